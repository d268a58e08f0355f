//! The recurrent networks of cuDNN 8 and before, which describe the input by an array of tensors, one a step.

use std::ffi::c_void;

use super::object::{self, BAD_PARAM, SUCCESS};
use super::rnn::{Rnn, bytes, rnn};
use super::rnn_sizes::{Batch, Part};
use super::tensor::{self, Filter};
use crate::boundary::put;

/// Describes a network.
pub unsafe fn cudnnSetRNNDescriptor_v6(
    _handle: *mut c_void,
    address: *mut c_void,
    hidden: i32,
    layers: i32,
    dropout: *mut c_void,
    input_mode: i32,
    direction: i32,
    cell: i32,
    algorithm: i32,
    precision: i32,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        *own = Rnn {
            algorithm,
            cell,
            direction,
            input_mode,
            hidden,
            layers,
            bias: own.bias,
            math: own.math,
            flags: own.flags,
            clip: own.clip,
            // The data's type comes with the data; until then it is the type of the arithmetic.
            precision,
            kind: precision,
            ..Rnn::default()
        };
        own.set_dropout(dropout);
    }
    SUCCESS
}

/// Reads a network back.
pub unsafe fn cudnnGetRNNDescriptor_v6(
    _handle: *mut c_void,
    address: *mut c_void,
    hidden: *mut i32,
    layers: *mut i32,
    dropout: *mut *mut c_void,
    input_mode: *mut i32,
    direction: *mut i32,
    cell: *mut i32,
    algorithm: *mut i32,
    precision: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        put(hidden, own.hidden);
        put(layers, own.layers);
        put(dropout, own.dropout);
        put(input_mode, own.input_mode);
        put(direction, own.direction);
        put(cell, own.cell);
        put(algorithm, own.algorithm);
        put(precision, own.precision);
    }
    SUCCESS
}

/// Sets the projection of the hidden state; that of the output was never supported.
pub unsafe fn cudnnSetRNNProjectionLayers(
    _handle: *mut c_void,
    address: *mut c_void,
    recurrent: i32,
    _output: i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { rnn(address) }) else { return BAD_PARAM };
    own.projection = recurrent;
    SUCCESS
}

/// Reads the projection back.
pub unsafe fn cudnnGetRNNProjectionLayers(
    _handle: *mut c_void,
    address: *mut c_void,
    recurrent: *mut i32,
    output: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        put(recurrent, own.projection);
        put(output, 0);
    }
    SUCCESS
}

/// Sets the number of biases.
pub unsafe fn cudnnSetRNNBiasMode(address: *mut c_void, mode: i32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { rnn(address) }) else { return BAD_PARAM };
    own.bias = mode;
    SUCCESS
}

/// Reads the number of biases.
pub unsafe fn cudnnGetRNNBiasMode(address: *mut c_void, mode: *mut i32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        put(mode, own.bias);
    }
    SUCCESS
}

/// Sets whether tensor cores may be used.
pub unsafe fn cudnnSetRNNMatrixMathType(address: *mut c_void, math: i32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { rnn(address) }) else { return BAD_PARAM };
    own.math = math;
    SUCCESS
}

/// Reads whether tensor cores may be used.
pub unsafe fn cudnnGetRNNMatrixMathType(address: *mut c_void, math: *mut i32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        put(math, own.math);
    }
    SUCCESS
}

/// Sets whether sequences may lie padded.
pub unsafe fn cudnnSetRNNPaddingMode(address: *mut c_void, mode: u32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { rnn(address) }) else { return BAD_PARAM };
    own.flags = mode;
    SUCCESS
}

/// Reads whether sequences may lie padded.
pub unsafe fn cudnnGetRNNPaddingMode(address: *mut c_void, mode: *mut u32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        put(mode, own.flags);
    }
    SUCCESS
}

/// Sets the clipping of a cell's state.
pub unsafe fn cudnnRNNSetClip(
    _handle: *mut c_void,
    address: *mut c_void,
    mode: i32,
    nan: i32,
    low: f64,
    high: f64,
) -> u32 {
    // SAFETY: the same contract.
    unsafe { super::rnn::cudnnRNNSetClip_v8(address, mode, nan, low, high) }
}

/// Reads the clipping back.
pub unsafe fn cudnnRNNGetClip(
    _handle: *mut c_void,
    address: *mut c_void,
    mode: *mut i32,
    nan: *mut i32,
    low: *mut f64,
    high: *mut f64,
) -> u32 {
    // SAFETY: the same contract.
    unsafe { super::rnn::cudnnRNNGetClip_v8(address, mode, nan, low, high) }
}

/// The batch that an array of tensors describes: one tensor a step, of as many rows as sequences are that long. Also
/// the numbers per input and their type.
///
/// # Safety
/// `inputs` is null or an array of `steps` tensor descriptors.
unsafe fn batch(inputs: *const *mut c_void, steps: i32) -> Option<(Batch, i32, i32)> {
    let mut whole = Batch { steps: 0, sequences: 0, total: 0 };
    let mut first = None;
    for index in 0..usize::try_from(steps).ok()? {
        if inputs.is_null() {
            return None;
        }
        // SAFETY: `index` is below the length, by the caller's promise.
        let step = unsafe { tensor::tensor(inputs.add(index).read_unaligned()) }?;
        let rows = u64::from(step.size(0).unsigned_abs());
        whole.steps += 1;
        whole.sequences = whole.sequences.max(rows);
        whole.total += rows;
        first.get_or_insert((step.size(1), step.kind));
    }
    first.map(|(input, kind)| (whole, input, kind))
}

/// The bytes of scratch memory.
pub unsafe fn cudnnGetRNNWorkspaceSize(
    _handle: *mut c_void,
    address: *mut c_void,
    steps: i32,
    inputs: *const *mut c_void,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and an out-parameter.
    unsafe {
        put(size, 0);
        let (Some(own), Some((batch, input, kind))) = (rnn(address), batch(inputs, steps)) else { return BAD_PARAM };
        (own.input, own.kind) = (input, kind);
        put(size, bytes(own.shape().workspace(batch)));
    }
    SUCCESS
}

/// The bytes that training keeps for the backward pass.
pub unsafe fn cudnnGetRNNTrainingReserveSize(
    _handle: *mut c_void,
    address: *mut c_void,
    steps: i32,
    inputs: *const *mut c_void,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and an out-parameter.
    unsafe {
        put(size, 0);
        let (Some(own), Some((batch, input, kind))) = (rnn(address), batch(inputs, steps)) else { return BAD_PARAM };
        (own.input, own.kind) = (input, kind);
        put(size, bytes(own.shape().reserve(batch)));
    }
    SUCCESS
}

/// The bytes of a network's weights.
pub unsafe fn cudnnGetRNNParamsSize(
    _handle: *mut c_void,
    address: *mut c_void,
    input: *mut c_void,
    size: *mut usize,
    kind: i32,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and an out-parameter.
    unsafe {
        put(size, 0);
        let (Some(own), Some(input)) = (rnn(address), tensor::tensor(input)) else { return BAD_PARAM };
        (own.input, own.kind) = (input.size(1), kind);
        put(size, bytes(own.shape().weights()));
    }
    SUCCESS
}

/// Writes where a part lies, as a filter of three dimensions.
///
/// # Safety
/// The descriptor is null or a filter's; the address may be written or is null.
unsafe fn write(
    part: Option<Part>,
    kind: i32,
    weights: *const c_void,
    descriptor: *mut c_void,
    address: *mut *mut c_void,
) {
    let number = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    // SAFETY: the caller's promise.
    if let Some(own) = unsafe { object::get::<Filter>(descriptor) } {
        *own = part.map_or_else(Filter::default, |part| Filter {
            kind,
            format: 0,
            dimensions: vec![1, number(part.rows), number(part.columns)],
        });
    }
    let place = part
        .map_or(std::ptr::null_mut(), |part| weights.cast::<u8>().wrapping_add(bytes(part.offset)).cast_mut().cast());
    // SAFETY: the caller's promise.
    unsafe { put(address, place) };
}

/// Where the matrix of one gate lies among the weights.
pub unsafe fn cudnnGetRNNLinLayerMatrixParams(
    _handle: *mut c_void,
    address: *mut c_void,
    pseudo_layer: i32,
    input: *mut c_void,
    _weights_descriptor: *mut c_void,
    weights: *const c_void,
    id: i32,
    descriptor: *mut c_void,
    place: *mut *mut c_void,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and an out-parameter.
    unsafe {
        let (Some(own), Some(input)) = (rnn(address), tensor::tensor(input)) else { return BAD_PARAM };
        (own.input, own.kind) = (input.size(1), input.kind);
        let part = own.shape().matrix(u64::from(pseudo_layer.unsigned_abs()), u64::from(id.unsigned_abs()));
        write(part, own.kind, weights, descriptor, place);
    }
    SUCCESS
}

/// Where the bias of one gate lies among the weights.
pub unsafe fn cudnnGetRNNLinLayerBiasParams(
    _handle: *mut c_void,
    address: *mut c_void,
    pseudo_layer: i32,
    input: *mut c_void,
    _weights_descriptor: *mut c_void,
    weights: *const c_void,
    id: i32,
    descriptor: *mut c_void,
    place: *mut *mut c_void,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and an out-parameter.
    unsafe {
        let (Some(own), Some(input)) = (rnn(address), tensor::tensor(input)) else { return BAD_PARAM };
        (own.input, own.kind) = (input.size(1), input.kind);
        let part = own.shape().bias(u64::from(pseudo_layer.unsigned_abs()), u64::from(id.unsigned_abs()));
        write(part, own.kind, weights, descriptor, place);
    }
    SUCCESS
}

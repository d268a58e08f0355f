//! The recurrent networks of cuDNN 8 and before, which describe the input by an array of tensors, one a step.

#![deny(unsafe_code)]

use std::ffi::c_void;

use super::layers::Dropout;
use super::object::{Handle, Held, change, known};
use super::rnn::{Rnn, address_of, bytes, cudnnRNNGetClip_v8, cudnnRNNSetClip_v8};
use super::rnn_sizes::{Batch, Part};
use super::tensor::{Filter, Tensor};
use crate::boundary::{Items, Out};
use crate::libcudnn::status::{CudnnStatus, Result};

/// Describes a network.
pub fn cudnnSetRNNDescriptor_v6(
    _handle: *mut c_void,
    mut network: Handle<'_, Rnn>,
    hidden: i32,
    layers: i32,
    dropout: Handle<'_, Dropout>,
    input_mode: i32,
    direction: i32,
    cell: i32,
    algorithm: i32,
    precision: i32,
) -> Result<()> {
    let own = change(&mut network)?;
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
    own.set_dropout(&dropout);
    Ok(())
}

/// Reads a network back.
pub fn cudnnGetRNNDescriptor_v6(
    _handle: *mut c_void,
    network: Handle<'_, Rnn>,
    hidden: Out<'_, i32>,
    layers: Out<'_, i32>,
    dropout: Out<'_, *mut c_void>,
    input_mode: Out<'_, i32>,
    direction: Out<'_, i32>,
    cell: Out<'_, i32>,
    algorithm: Out<'_, i32>,
    precision: Out<'_, i32>,
) -> Result<()> {
    let own = known(&network)?;
    hidden.set(own.hidden);
    layers.set(own.layers);
    dropout.set(own.dropout);
    input_mode.set(own.input_mode);
    direction.set(own.direction);
    cell.set(own.cell);
    algorithm.set(own.algorithm);
    precision.set(own.precision);
    Ok(())
}

/// Sets the projection of the hidden state; that of the output was never supported.
pub fn cudnnSetRNNProjectionLayers(
    _handle: *mut c_void,
    mut network: Handle<'_, Rnn>,
    recurrent: i32,
    _output: i32,
) -> Result<()> {
    let own = change(&mut network)?;
    own.projection = recurrent;
    Ok(())
}

/// Reads the projection back.
pub fn cudnnGetRNNProjectionLayers(
    _handle: *mut c_void,
    network: Handle<'_, Rnn>,
    recurrent: Out<'_, i32>,
    output: Out<'_, i32>,
) -> Result<()> {
    let own = known(&network)?;
    recurrent.set(own.projection);
    output.set(0);
    Ok(())
}

/// Sets the number of biases.
pub fn cudnnSetRNNBiasMode(mut network: Handle<'_, Rnn>, mode: i32) -> Result<()> {
    let own = change(&mut network)?;
    own.bias = mode;
    Ok(())
}

/// Reads the number of biases.
pub fn cudnnGetRNNBiasMode(network: Handle<'_, Rnn>, mode: Out<'_, i32>) -> Result<()> {
    let own = known(&network)?;
    mode.set(own.bias);
    Ok(())
}

/// Sets whether tensor cores may be used.
pub fn cudnnSetRNNMatrixMathType(mut network: Handle<'_, Rnn>, math: i32) -> Result<()> {
    let own = change(&mut network)?;
    own.math = math;
    Ok(())
}

/// Reads whether tensor cores may be used.
pub fn cudnnGetRNNMatrixMathType(network: Handle<'_, Rnn>, math: Out<'_, i32>) -> Result<()> {
    let own = known(&network)?;
    math.set(own.math);
    Ok(())
}

/// Sets whether sequences may lie padded.
pub fn cudnnSetRNNPaddingMode(mut network: Handle<'_, Rnn>, mode: u32) -> Result<()> {
    let own = change(&mut network)?;
    own.flags = mode;
    Ok(())
}

/// Reads whether sequences may lie padded.
pub fn cudnnGetRNNPaddingMode(network: Handle<'_, Rnn>, mode: Out<'_, u32>) -> Result<()> {
    let own = known(&network)?;
    mode.set(own.flags);
    Ok(())
}

/// Sets the clipping of a cell's state.
pub fn cudnnRNNSetClip(
    _handle: *mut c_void,
    network: Handle<'_, Rnn>,
    mode: i32,
    nan: i32,
    low: f64,
    high: f64,
) -> Result<()> {
    cudnnRNNSetClip_v8(network, mode, nan, low, high)
}

/// Reads the clipping back.
pub fn cudnnRNNGetClip(
    _handle: *mut c_void,
    network: Handle<'_, Rnn>,
    mode: Out<'_, i32>,
    nan: Out<'_, i32>,
    low: Out<'_, f64>,
    high: Out<'_, f64>,
) -> Result<()> {
    cudnnRNNGetClip_v8(network, mode, nan, low, high)
}

/// The tensors that describe the input, one a step.
type Steps<'a> = Items<'a, Held<'a, Tensor>>;

/// The batch that an array of tensors describes: as many rows a step as sequences are that long. The network remembers the
/// numbers per input and their type.
fn batch(own: &mut Rnn, inputs: Steps<'_>) -> Result<Batch> {
    let mut whole = Batch { steps: 0, sequences: 0, total: 0 };
    let mut first = None;
    for step in inputs.iter() {
        let step = step.handle();
        let step = known(&step)?;
        let rows = u64::from(step.size(0).unsigned_abs());
        whole.steps += 1;
        whole.sequences = whole.sequences.max(rows);
        whole.total += rows;
        first.get_or_insert((step.size(1), step.kind));
    }
    (own.input, own.kind) = first.ok_or(CudnnStatus::BAD_PARAM)?;
    Ok(whole)
}

/// The bytes of scratch memory.
pub fn cudnnGetRNNWorkspaceSize(
    _handle: *mut c_void,
    mut network: Handle<'_, Rnn>,
    _steps: i32,
    inputs: Steps<'_>,
    size: Out<'_, usize>,
) -> Result<()> {
    size.set(0);
    let own = change(&mut network)?;
    let batch = batch(own, inputs)?;
    size.set(bytes(own.shape().workspace(batch)));
    Ok(())
}

/// The bytes that training keeps for the backward pass.
pub fn cudnnGetRNNTrainingReserveSize(
    _handle: *mut c_void,
    mut network: Handle<'_, Rnn>,
    _steps: i32,
    inputs: Steps<'_>,
    size: Out<'_, usize>,
) -> Result<()> {
    size.set(0);
    let own = change(&mut network)?;
    let batch = batch(own, inputs)?;
    size.set(bytes(own.shape().reserve(batch)));
    Ok(())
}

/// The bytes of a network's weights.
pub fn cudnnGetRNNParamsSize(
    _handle: *mut c_void,
    mut network: Handle<'_, Rnn>,
    input: Handle<'_, Tensor>,
    size: Out<'_, usize>,
    kind: i32,
) -> Result<()> {
    size.set(0);
    let own = change(&mut network)?;
    (own.input, own.kind) = (known(&input)?.size(1), kind);
    size.set(bytes(own.shape().weights()));
    Ok(())
}

/// Writes where a part lies, and describes it as a filter of three dimensions if the program asks for that.
fn write(
    part: Option<Part>,
    kind: i32,
    weights: *const c_void,
    mut descriptor: Handle<'_, Filter>,
    place: Out<'_, *mut c_void>,
) {
    let number = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    if let Ok(own) = change(&mut descriptor) {
        *own = part.map_or_else(Filter::default, |part| Filter {
            kind,
            format: 0,
            dimensions: vec![1, number(part.rows), number(part.columns)],
        });
    }
    place.set(address_of(weights, part));
}

/// Where the matrix of one gate lies among the weights.
pub fn cudnnGetRNNLinLayerMatrixParams(
    _handle: *mut c_void,
    mut network: Handle<'_, Rnn>,
    pseudo_layer: i32,
    input: Handle<'_, Tensor>,
    _weights_descriptor: *mut c_void,
    weights: *const c_void,
    id: i32,
    descriptor: Handle<'_, Filter>,
    place: Out<'_, *mut c_void>,
) -> Result<()> {
    let (own, input) = (change(&mut network)?, known(&input)?);
    (own.input, own.kind) = (input.size(1), input.kind);
    let part = own.shape().matrix(u64::from(pseudo_layer.unsigned_abs()), u64::from(id.unsigned_abs()));
    write(part, own.kind, weights, descriptor, place);
    Ok(())
}

/// Where the bias of one gate lies among the weights.
pub fn cudnnGetRNNLinLayerBiasParams(
    _handle: *mut c_void,
    mut network: Handle<'_, Rnn>,
    pseudo_layer: i32,
    input: Handle<'_, Tensor>,
    _weights_descriptor: *mut c_void,
    weights: *const c_void,
    id: i32,
    descriptor: Handle<'_, Filter>,
    place: Out<'_, *mut c_void>,
) -> Result<()> {
    let (own, input) = (change(&mut network)?, known(&input)?);
    (own.input, own.kind) = (input.size(1), input.kind);
    let part = own.shape().bias(u64::from(pseudo_layer.unsigned_abs()), u64::from(id.unsigned_abs()));
    write(part, own.kind, weights, descriptor, place);
    Ok(())
}

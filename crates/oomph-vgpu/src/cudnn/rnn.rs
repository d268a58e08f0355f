//! Recurrent networks: descriptors, and the sizes that a program allocates.

use std::ffi::c_void;
use std::ptr;

use super::layers::Dropout;
use super::object::{self, BAD_PARAM, SUCCESS, descriptor, put_all, take};
use super::rnn_sizes::{Batch, Part, Shape};
use super::tensor::{self, Tensor};
use crate::boundary::put;

const BIDIRECTIONAL: i32 = 1;
const SKIP_INPUT: i32 = 1;
const DOUBLE_BIAS: i32 = 2;
const TRAINING: i32 = 1;
const PADDED_IO: u32 = 1;

/// A recurrent network.
pub struct Rnn {
    /// `cudnnRNNAlgo_t`
    pub algorithm: i32,
    /// `cudnnRNNMode_t`
    pub cell: i32,
    /// `cudnnRNNBiasMode_t`
    pub bias: i32,
    /// `cudnnDirectionMode_t`
    pub direction: i32,
    /// `cudnnRNNInputMode_t`
    pub input_mode: i32,
    /// The type of data and weights.
    pub kind: i32,
    /// The type it computes in.
    pub precision: i32,
    /// `cudnnMathType_t`
    pub math: i32,
    /// Numbers per input.
    pub input: i32,
    /// Numbers per hidden state.
    pub hidden: i32,
    /// Numbers per output of a direction.
    pub projection: i32,
    /// Layers.
    pub layers: i32,
    /// The dropout's descriptor, as the program gave it.
    pub dropout: *mut c_void,
    /// The dropout's probability when it was given.
    pub drops: bool,
    /// `CUDNN_RNN_PADDED_IO_ENABLED` or nothing.
    pub flags: u32,
    /// The clipping of a cell: mode, treatment of NaN, bounds.
    pub clip: (i32, i32, f64, f64),
}

impl Default for Rnn {
    fn default() -> Self {
        Self {
            algorithm: 0,
            cell: 0,
            bias: DOUBLE_BIAS,
            direction: 0,
            input_mode: 0,
            kind: 0,
            precision: 0,
            math: 0,
            input: 0,
            hidden: 0,
            projection: 0,
            layers: 0,
            dropout: ptr::null_mut(),
            drops: false,
            flags: 0,
            clip: (0, 0, 0.0, 0.0),
        }
    }
}
descriptor!(Rnn = 20, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor);

impl Rnn {
    /// The network, as far as sizes go.
    pub fn shape(&self) -> Shape {
        let number = |value: i32| u64::try_from(value).unwrap_or(0);
        let hidden = number(self.hidden);
        Shape {
            cell: self.cell,
            bias: self.bias,
            directions: if self.direction == BIDIRECTIONAL { 2 } else { 1 },
            layers: number(self.layers),
            input: number(self.input),
            hidden,
            projection: if self.projection > 0 { number(self.projection) } else { hidden },
            skips_input: self.input_mode == SKIP_INPUT,
            element: tensor::bits(self.kind) as u64 / 8,
            drops: self.drops,
            padded: self.flags & PADDED_IO != 0,
        }
    }

    /// Remembers a dropout. Its probability is read now, because it decides sizes later.
    ///
    /// # Safety
    /// The dropout is null or a dropout descriptor.
    pub unsafe fn set_dropout(&mut self, dropout: *mut c_void) {
        self.dropout = dropout;
        // SAFETY: the caller's promise.
        self.drops = unsafe { object::get::<Dropout>(dropout) }.is_some_and(|dropout| dropout.probability > 0.0);
    }
}

/// The network behind a pointer.
///
/// # Safety
/// As for [`object::get`].
pub unsafe fn rnn<'a>(address: *mut c_void) -> Option<&'a mut Rnn> {
    // SAFETY: the caller's promise.
    unsafe { object::get(address) }
}

/// Describes a network.
pub unsafe fn cudnnSetRNNDescriptor_v8(
    address: *mut c_void,
    algorithm: i32,
    cell: i32,
    bias: i32,
    direction: i32,
    input_mode: i32,
    kind: i32,
    precision: i32,
    math: i32,
    input: i32,
    hidden: i32,
    projection: i32,
    layers: i32,
    dropout: *mut c_void,
    flags: u32,
) -> u32 {
    // cuDNN refuses these, and so spares its users sizes of nothing.
    if input < 1 || hidden < 1 || layers < 1 || projection < 1 || projection > hidden {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: descriptors.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        let clip = own.clip;
        *own = Rnn {
            algorithm,
            cell,
            bias,
            direction,
            input_mode,
            kind,
            precision,
            math,
            input,
            hidden,
            projection,
            layers,
            flags,
            clip,
            ..Rnn::default()
        };
        own.set_dropout(dropout);
    }
    SUCCESS
}

/// Reads a network back.
pub unsafe fn cudnnGetRNNDescriptor_v8(
    address: *mut c_void,
    algorithm: *mut i32,
    cell: *mut i32,
    bias: *mut i32,
    direction: *mut i32,
    input_mode: *mut i32,
    kind: *mut i32,
    precision: *mut i32,
    math: *mut i32,
    input: *mut i32,
    hidden: *mut i32,
    projection: *mut i32,
    layers: *mut i32,
    dropout: *mut *mut c_void,
    flags: *mut u32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        let pairs = [
            (algorithm, own.algorithm),
            (cell, own.cell),
            (bias, own.bias),
            (direction, own.direction),
            (input_mode, own.input_mode),
            (kind, own.kind),
            (precision, own.precision),
            (math, own.math),
            (input, own.input),
            (hidden, own.hidden),
            (projection, own.projection),
            (layers, own.layers),
        ];
        for (out, value) in pairs {
            put(out, value);
        }
        put(dropout, own.dropout);
        put(flags, own.flags);
    }
    SUCCESS
}

/// Sets the clipping of a cell's state.
pub unsafe fn cudnnRNNSetClip_v8(address: *mut c_void, mode: i32, nan: i32, low: f64, high: f64) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { rnn(address) }) else { return BAD_PARAM };
    own.clip = (mode, nan, low, high);
    SUCCESS
}

/// Sets the clipping of a cell's state.
pub unsafe fn cudnnRNNSetClip_v9(address: *mut c_void, mode: i32, low: f64, high: f64) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnRNNSetClip_v8(address, mode, 0, low, high) }
}

/// Reads the clipping back.
pub unsafe fn cudnnRNNGetClip_v8(
    address: *mut c_void,
    mode: *mut i32,
    nan: *mut i32,
    low: *mut f64,
    high: *mut f64,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        put(mode, own.clip.0);
        put(nan, own.clip.1);
        put(low, own.clip.2);
        put(high, own.clip.3);
    }
    SUCCESS
}

/// Reads the clipping back.
pub unsafe fn cudnnRNNGetClip_v9(address: *mut c_void, mode: *mut i32, low: *mut f64, high: *mut f64) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnRNNGetClip_v8(address, mode, ptr::null_mut(), low, high) }
}

/// Compiles persistent kernels: nothing to do.
pub unsafe fn cudnnBuildRNNDynamic(_handle: *mut c_void, address: *mut c_void, _batch: i32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    if unsafe { rnn(address) }.is_none() { BAD_PARAM } else { SUCCESS }
}

/// A batch of sequences.
#[derive(Default)]
pub struct RnnData {
    kind: i32,
    layout: i32,
    steps: i32,
    sequences: i32,
    vector: i32,
    lengths: Vec<i32>,
}
descriptor!(RnnData = 21, cudnnCreateRNNDataDescriptor, cudnnDestroyRNNDataDescriptor);

impl RnnData {
    fn batch(&self) -> Batch {
        let number = |value: i32| u64::try_from(value).unwrap_or(0);
        let total = self.lengths.iter().map(|length| number(*length)).sum();
        Batch { steps: number(self.steps), sequences: number(self.sequences), total }
    }
}

/// Describes a batch of sequences.
pub unsafe fn cudnnSetRNNDataDescriptor(
    address: *mut c_void,
    kind: i32,
    layout: i32,
    steps: i32,
    sequences: i32,
    vector: i32,
    lengths: *const i32,
    _padding: *mut c_void,
) -> u32 {
    if steps < 1 || sequences < 1 || vector < 1 || lengths.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: a descriptor, and a length for every sequence.
    unsafe {
        let Some(own) = object::get::<RnnData>(address) else { return BAD_PARAM };
        *own = RnnData { kind, layout, steps, sequences, vector, lengths: take(lengths, sequences) };
    }
    SUCCESS
}

/// Reads a batch of sequences back.
pub unsafe fn cudnnGetRNNDataDescriptor(
    address: *mut c_void,
    kind: *mut i32,
    layout: *mut i32,
    steps: *mut i32,
    sequences: *mut i32,
    vector: *mut i32,
    requested: i32,
    lengths: *mut i32,
    _padding: *mut c_void,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor, out-parameters, and an array of `requested` numbers.
    unsafe {
        let Some(own) = object::get::<RnnData>(address) else { return BAD_PARAM };
        put(kind, own.kind);
        put(layout, own.layout);
        put(steps, own.steps);
        put(sequences, own.sequences);
        put(vector, own.vector);
        put_all(lengths, requested, &own.lengths);
    }
    SUCCESS
}

/// A size of bytes, as cuDNN's functions write it.
pub fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The bytes of a network's weights.
pub unsafe fn cudnnGetRNNWeightSpaceSize(_handle: *mut c_void, address: *mut c_void, size: *mut usize) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(own) = rnn(address) else { return BAD_PARAM };
        put(size, bytes(own.shape().weights()));
    }
    SUCCESS
}

/// The bytes of scratch memory, and those that training keeps for the backward pass.
pub unsafe fn cudnnGetRNNTempSpaceSizes(
    _handle: *mut c_void,
    address: *mut c_void,
    mode: i32,
    data: *mut c_void,
    workspace: *mut usize,
    reserve: *mut usize,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and out-parameters.
    unsafe {
        let (Some(own), Some(data)) = (rnn(address), object::get::<RnnData>(data)) else { return BAD_PARAM };
        let (shape, batch) = (own.shape(), data.batch());
        put(workspace, bytes(shape.workspace(batch)));
        put(reserve, if mode == TRAINING { bytes(shape.reserve(batch)) } else { 0 });
    }
    SUCCESS
}

/// Describes one part of the weights: three dimensions, of which the first is 1.
///
/// # Safety
/// The descriptor is null or a tensor's.
unsafe fn describe(address: *mut c_void, kind: i32, part: Option<Part>) {
    // SAFETY: the caller's promise.
    let Some(own) = (unsafe { tensor::tensor(address) }) else { return };
    let number = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    *own = part.map_or_else(Tensor::default, |part| {
        let (rows, columns) = (number(part.rows), number(part.columns));
        Tensor { kind, dimensions: vec![1, rows, columns], strides: vec![number(part.rows * part.columns), columns, 1] }
    });
}

/// The address of a part; null where there is none.
fn address_of(weights: *const c_void, part: Option<Part>) -> *mut c_void {
    part.map_or(ptr::null_mut(), |part| weights.cast::<u8>().wrapping_add(bytes(part.offset)).cast_mut().cast())
}

/// Where the matrix and the bias of one gate lie among the weights.
pub unsafe fn cudnnGetRNNWeightParams(
    _handle: *mut c_void,
    address: *mut c_void,
    pseudo_layer: i32,
    _size: usize,
    weights: *const c_void,
    id: i32,
    matrix_descriptor: *mut c_void,
    matrix_address: *mut *mut c_void,
    bias_descriptor: *mut c_void,
    bias_address: *mut *mut c_void,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors, or null where a part is not asked for, and out-parameters.
    unsafe {
        let (Some(own), Ok(layer), Ok(id)) = (rnn(address), u64::try_from(pseudo_layer), u64::try_from(id)) else {
            return BAD_PARAM;
        };
        let shape = own.shape();
        let (matrix, bias) = (shape.matrix(layer, id), shape.bias(layer, id));
        describe(matrix_descriptor, own.kind, matrix);
        describe(bias_descriptor, own.kind, bias);
        put(matrix_address, address_of(weights, matrix));
        put(bias_address, address_of(weights, bias));
    }
    SUCCESS
}

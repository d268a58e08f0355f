//! Recurrent networks: descriptors, and the sizes that a program allocates.

#![deny(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use super::layers::Dropout;
use super::object::{Handle, change, descriptor, known};
use super::rnn_sizes::{Batch, Part, Shape};
use super::tensor::Tensor;
use crate::boundary::{Items, Out, Room};
use crate::libcudnn::data_type;
use crate::libcudnn::status::{CudnnStatus, Result};

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
            element: data_type::bits(self.kind) as u64 / 8,
            drops: self.drops,
            padded: self.flags & PADDED_IO != 0,
        }
    }

    /// Remembers a dropout, or none. Its probability is read now, because it decides sizes later.
    pub fn set_dropout(&mut self, dropout: &Handle<'_, Dropout>) {
        self.dropout = dropout.address() as *mut c_void;
        self.drops = known(dropout).is_ok_and(|dropout| dropout.probability > 0.0);
    }
}

/// Describes a network.
pub fn cudnnSetRNNDescriptor_v8(
    mut network: Handle<'_, Rnn>,
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
    dropout: Handle<'_, Dropout>,
    flags: u32,
) -> Result<()> {
    // cuDNN refuses these, and so spares its users sizes of nothing.
    if input < 1 || hidden < 1 || layers < 1 || projection < 1 || projection > hidden {
        return Err(CudnnStatus::BAD_PARAM);
    }
    let own = change(&mut network)?;
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
    own.set_dropout(&dropout);
    Ok(())
}

/// Reads a network back.
pub fn cudnnGetRNNDescriptor_v8(
    network: Handle<'_, Rnn>,
    algorithm: Out<'_, i32>,
    cell: Out<'_, i32>,
    bias: Out<'_, i32>,
    direction: Out<'_, i32>,
    input_mode: Out<'_, i32>,
    kind: Out<'_, i32>,
    precision: Out<'_, i32>,
    math: Out<'_, i32>,
    input: Out<'_, i32>,
    hidden: Out<'_, i32>,
    projection: Out<'_, i32>,
    layers: Out<'_, i32>,
    dropout: Out<'_, *mut c_void>,
    flags: Out<'_, u32>,
) -> Result<()> {
    let own = known(&network)?;
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
        out.set(value);
    }
    dropout.set(own.dropout);
    flags.set(own.flags);
    Ok(())
}

/// Sets the clipping of a cell's state.
pub fn cudnnRNNSetClip_v8(mut network: Handle<'_, Rnn>, mode: i32, nan: i32, low: f64, high: f64) -> Result<()> {
    let own = change(&mut network)?;
    own.clip = (mode, nan, low, high);
    Ok(())
}

/// Sets the clipping of a cell's state.
pub fn cudnnRNNSetClip_v9(network: Handle<'_, Rnn>, mode: i32, low: f64, high: f64) -> Result<()> {
    cudnnRNNSetClip_v8(network, mode, 0, low, high)
}

/// Reads the clipping back.
pub fn cudnnRNNGetClip_v8(
    network: Handle<'_, Rnn>,
    mode: Out<'_, i32>,
    nan: Out<'_, i32>,
    low: Out<'_, f64>,
    high: Out<'_, f64>,
) -> Result<()> {
    let own = known(&network)?;
    mode.set(own.clip.0);
    nan.set(own.clip.1);
    low.set(own.clip.2);
    high.set(own.clip.3);
    Ok(())
}

/// Reads the clipping back.
pub fn cudnnRNNGetClip_v9(
    network: Handle<'_, Rnn>,
    mode: Out<'_, i32>,
    low: Out<'_, f64>,
    high: Out<'_, f64>,
) -> Result<()> {
    cudnnRNNGetClip_v8(network, mode, Out::null(), low, high)
}

/// Compiles persistent kernels: nothing to do.
pub fn cudnnBuildRNNDynamic(_handle: *mut c_void, network: Handle<'_, Rnn>, _batch: i32) -> Result<()> {
    known(&network).map(|_| ())
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
pub fn cudnnSetRNNDataDescriptor(
    mut descriptor: Handle<'_, RnnData>,
    kind: i32,
    layout: i32,
    steps: i32,
    sequences: i32,
    vector: i32,
    lengths: Items<'_, i32>,
    _padding: *mut c_void,
) -> Result<()> {
    if steps < 1 || sequences < 1 || vector < 1 || lengths.is_null() {
        return Err(CudnnStatus::BAD_PARAM);
    }
    let own = change(&mut descriptor)?;
    *own = RnnData { kind, layout, steps, sequences, vector, lengths: lengths.iter().collect() };
    Ok(())
}

/// Reads a batch of sequences back.
pub fn cudnnGetRNNDataDescriptor(
    descriptor: Handle<'_, RnnData>,
    kind: Out<'_, i32>,
    layout: Out<'_, i32>,
    steps: Out<'_, i32>,
    sequences: Out<'_, i32>,
    vector: Out<'_, i32>,
    _requested: i32,
    lengths: Room<'_, i32>,
    _padding: *mut c_void,
) -> Result<()> {
    let own = known(&descriptor)?;
    kind.set(own.kind);
    layout.set(own.layout);
    steps.set(own.steps);
    sequences.set(own.sequences);
    vector.set(own.vector);
    lengths.fill(own.lengths.iter().copied());
    Ok(())
}

/// A size of bytes, as cuDNN's functions write it.
pub fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The bytes of a network's weights.
pub fn cudnnGetRNNWeightSpaceSize(_handle: *mut c_void, network: Handle<'_, Rnn>, size: Out<'_, usize>) -> Result<()> {
    let own = known(&network)?;
    size.set(bytes(own.shape().weights()));
    Ok(())
}

/// The bytes of scratch memory, and those that training keeps for the backward pass.
pub fn cudnnGetRNNTempSpaceSizes(
    _handle: *mut c_void,
    network: Handle<'_, Rnn>,
    mode: i32,
    data: Handle<'_, RnnData>,
    workspace: Out<'_, usize>,
    reserve: Out<'_, usize>,
) -> Result<()> {
    let (shape, batch) = (known(&network)?.shape(), known(&data)?.batch());
    workspace.set(bytes(shape.workspace(batch)));
    reserve.set(if mode == TRAINING { bytes(shape.reserve(batch)) } else { 0 });
    Ok(())
}

/// Describes one part of the weights, if the program asks for it: three dimensions, of which the first is 1.
fn describe(mut descriptor: Handle<'_, Tensor>, kind: i32, part: Option<Part>) {
    let Ok(own) = change(&mut descriptor) else { return };
    let number = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    *own = part.map_or_else(Tensor::default, |part| {
        let (rows, columns) = (number(part.rows), number(part.columns));
        Tensor { kind, dimensions: vec![1, rows, columns], strides: vec![number(part.rows * part.columns), columns, 1] }
    });
}

/// The address of a part; null where there is none.
pub fn address_of(weights: *const c_void, part: Option<Part>) -> *mut c_void {
    part.map_or(ptr::null_mut(), |part| weights.cast::<u8>().wrapping_add(bytes(part.offset)).cast_mut().cast())
}

/// Where the matrix and the bias of one gate lie among the weights.
pub fn cudnnGetRNNWeightParams(
    _handle: *mut c_void,
    network: Handle<'_, Rnn>,
    pseudo_layer: i32,
    _size: usize,
    weights: *const c_void,
    id: i32,
    matrix_descriptor: Handle<'_, Tensor>,
    matrix_address: Out<'_, *mut c_void>,
    bias_descriptor: Handle<'_, Tensor>,
    bias_address: Out<'_, *mut c_void>,
) -> Result<()> {
    let own = known(&network)?;
    let (Ok(layer), Ok(id)) = (u64::try_from(pseudo_layer), u64::try_from(id)) else {
        return Err(CudnnStatus::BAD_PARAM);
    };
    let shape = own.shape();
    let (matrix, bias) = (shape.matrix(layer, id), shape.bias(layer, id));
    describe(matrix_descriptor, own.kind, matrix);
    describe(bias_descriptor, own.kind, bias);
    matrix_address.set(address_of(weights, matrix));
    bias_address.set(address_of(weights, bias));
    Ok(())
}

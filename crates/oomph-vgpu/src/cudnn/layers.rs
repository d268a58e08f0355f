//! Descriptors of activations, pooling, normalization across channels, dropout, sampling, reductions and element-wise
//! operations: what is set is read back.

#![deny(unsafe_code)]

use std::ffi::c_void;

use super::card;
use super::object::{Handle, change, descriptor, known};
use super::tensor::{Tensor, is_rank};
use crate::boundary::{Items, Out, Room};
use crate::libcudnn::status::{CudnnStatus, Result};

/// An activation.
#[derive(Default)]
pub struct Activation {
    mode: i32,
    nan: i32,
    coefficient: f64,
    swish_beta: f64,
}
descriptor!(Activation = 10, cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor);

/// Describes an activation.
pub fn cudnnSetActivationDescriptor(
    mut descriptor: Handle<'_, Activation>,
    mode: i32,
    nan: i32,
    coefficient: f64,
) -> Result<()> {
    let own = change(&mut descriptor)?;
    (own.mode, own.nan, own.coefficient) = (mode, nan, coefficient);
    Ok(())
}

/// Reads an activation back.
pub fn cudnnGetActivationDescriptor(
    descriptor: Handle<'_, Activation>,
    mode: Out<'_, i32>,
    nan: Out<'_, i32>,
    coefficient: Out<'_, f64>,
) -> Result<()> {
    let own = known(&descriptor)?;
    mode.set(own.mode);
    nan.set(own.nan);
    coefficient.set(own.coefficient);
    Ok(())
}

/// Sets the slope of a swish.
pub fn cudnnSetActivationDescriptorSwishBeta(mut descriptor: Handle<'_, Activation>, beta: f64) -> Result<()> {
    let own = change(&mut descriptor)?;
    own.swish_beta = beta;
    Ok(())
}

/// Reads the slope of a swish.
pub fn cudnnGetActivationDescriptorSwishBeta(descriptor: Handle<'_, Activation>, beta: Out<'_, f64>) -> Result<()> {
    let own = known(&descriptor)?;
    beta.set(own.swish_beta);
    Ok(())
}

/// A pooling.
#[derive(Default)]
pub struct Pooling {
    mode: i32,
    nan: i32,
    window: Vec<i32>,
    padding: Vec<i32>,
    stride: Vec<i32>,
}
descriptor!(Pooling = 11, cudnnCreatePoolingDescriptor, cudnnDestroyPoolingDescriptor);

impl Pooling {
    /// The size of the result along a spatial dimension.
    fn output(&self, index: usize, input: i32) -> i32 {
        let at = |list: &[i32], default| i64::from(list.get(index).copied().unwrap_or(default));
        let room = i64::from(input) + 2 * at(&self.padding, 0) - at(&self.window, 1);
        i32::try_from(1 + room.div_euclid(at(&self.stride, 1).max(1))).unwrap_or(0)
    }
}

/// Describes a pooling.
pub fn cudnnSetPoolingNdDescriptor(
    mut descriptor: Handle<'_, Pooling>,
    mode: i32,
    nan: i32,
    rank: i32,
    window: Items<'_, i32>,
    padding: Items<'_, i32>,
    stride: Items<'_, i32>,
) -> Result<()> {
    if !is_rank(rank) {
        return Err(CudnnStatus::BAD_PARAM);
    }
    *change(&mut descriptor)? = Pooling {
        mode,
        nan,
        window: window.iter().collect(),
        padding: padding.iter().collect(),
        stride: stride.iter().collect(),
    };
    Ok(())
}

/// Describes a pooling of images.
pub fn cudnnSetPooling2dDescriptor(
    descriptor: Handle<'_, Pooling>,
    mode: i32,
    nan: i32,
    window_height: i32,
    window_width: i32,
    vertical_padding: i32,
    horizontal_padding: i32,
    vertical_stride: i32,
    horizontal_stride: i32,
) -> Result<()> {
    let window = [window_height, window_width];
    let padding = [vertical_padding, horizontal_padding];
    let stride = [vertical_stride, horizontal_stride];
    cudnnSetPoolingNdDescriptor(descriptor, mode, nan, 2, Items::of(&window), Items::of(&padding), Items::of(&stride))
}

/// Reads a pooling back.
pub fn cudnnGetPoolingNdDescriptor(
    descriptor: Handle<'_, Pooling>,
    _requested: i32,
    mode: Out<'_, i32>,
    nan: Out<'_, i32>,
    rank: Out<'_, i32>,
    window: Room<'_, i32>,
    padding: Room<'_, i32>,
    stride: Room<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    mode.set(own.mode);
    nan.set(own.nan);
    rank.set(own.window.len() as i32);
    window.fill(own.window.iter().copied());
    padding.fill(own.padding.iter().copied());
    stride.fill(own.stride.iter().copied());
    Ok(())
}

/// Reads a pooling of images back.
pub fn cudnnGetPooling2dDescriptor(
    descriptor: Handle<'_, Pooling>,
    mode: Out<'_, i32>,
    nan: Out<'_, i32>,
    window_height: Out<'_, i32>,
    window_width: Out<'_, i32>,
    vertical_padding: Out<'_, i32>,
    horizontal_padding: Out<'_, i32>,
    vertical_stride: Out<'_, i32>,
    horizontal_stride: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    mode.set(own.mode);
    nan.set(own.nan);
    let pairs = [
        (window_height, window_width, &own.window),
        (vertical_padding, horizontal_padding, &own.padding),
        (vertical_stride, horizontal_stride, &own.stride),
    ];
    for (vertical, horizontal, list) in pairs {
        vertical.set(list.first().copied().unwrap_or(0));
        horizontal.set(list.get(1).copied().unwrap_or(0));
    }
    Ok(())
}

/// The sizes of a pooling's result.
pub fn cudnnGetPoolingNdForwardOutputDim(
    descriptor: Handle<'_, Pooling>,
    input: Handle<'_, Tensor>,
    _rank: i32,
    dimensions: Room<'_, i32>,
) -> Result<()> {
    let (own, input) = (known(&descriptor)?, known(&input)?);
    dimensions.fill((0..dimensions.count()).map(|index| match index.checked_sub(2) {
        None => input.size(index),
        Some(spatial) => own.output(spatial, input.size(index)),
    }));
    Ok(())
}

/// The sizes of an image pooling's result.
pub fn cudnnGetPooling2dForwardOutputDim(
    descriptor: Handle<'_, Pooling>,
    input: Handle<'_, Tensor>,
    n: Out<'_, i32>,
    c: Out<'_, i32>,
    h: Out<'_, i32>,
    w: Out<'_, i32>,
) -> Result<()> {
    let mut sizes = [0_i32; 4];
    let status = cudnnGetPoolingNdForwardOutputDim(descriptor, input, 4, Room::to(&mut sizes));
    for (out, size) in [n, c, h, w].into_iter().zip(sizes) {
        out.set(size);
    }
    status
}

/// A normalization across channels.
#[derive(Default)]
pub struct Lrn {
    n: u32,
    alpha: f64,
    beta: f64,
    k: f64,
}
descriptor!(Lrn = 12, cudnnCreateLRNDescriptor, cudnnDestroyLRNDescriptor);

/// Describes a normalization across channels.
pub fn cudnnSetLRNDescriptor(mut descriptor: Handle<'_, Lrn>, n: u32, alpha: f64, beta: f64, k: f64) -> Result<()> {
    let own = change(&mut descriptor)?;
    *own = Lrn { n, alpha, beta, k };
    Ok(())
}

/// Reads a normalization across channels back.
pub fn cudnnGetLRNDescriptor(
    descriptor: Handle<'_, Lrn>,
    n: Out<'_, u32>,
    alpha: Out<'_, f64>,
    beta: Out<'_, f64>,
    k: Out<'_, f64>,
) -> Result<()> {
    let own = known(&descriptor)?;
    n.set(own.n);
    alpha.set(own.alpha);
    beta.set(own.beta);
    k.set(own.k);
    Ok(())
}

/// A dropout.
pub struct Dropout {
    /// The probability that an element is dropped.
    pub probability: f32,
    states: *mut c_void,
    seed: u64,
}

impl Default for Dropout {
    fn default() -> Self {
        Self { probability: 0.0, states: std::ptr::null_mut(), seed: 0 }
    }
}
descriptor!(Dropout = 13, cudnnCreateDropoutDescriptor, cudnnDestroyDropoutDescriptor);

/// The bytes of the generators' states: one of 48 bytes for every other thread that the card can hold at once, in
/// blocks of 256. cuDNN 9.1 and 9.26 were seen to answer so.
fn states_size() -> usize {
    let threads = card::current().map_or(0, |card| card.sm_count * card.max_threads_per_sm);
    usize::try_from((threads / 2).next_multiple_of(256) * 48).unwrap_or(0)
}

/// The bytes of the generators' states.
pub fn cudnnDropoutGetStatesSize(_handle: *mut c_void, size: Out<'_, usize>) -> Result<()> {
    size.set(states_size());
    Ok(())
}

/// The bytes of a dropout's mask: one bit an element.
pub fn cudnnDropoutGetReserveSpaceSize(x: Handle<'_, Tensor>, size: Out<'_, usize>) -> Result<()> {
    let x = known(&x)?;
    size.set(usize::try_from(x.elements().div_ceil(8)).unwrap_or(usize::MAX));
    Ok(())
}

/// Describes a dropout.
pub fn cudnnSetDropoutDescriptor(
    mut descriptor: Handle<'_, Dropout>,
    _handle: *mut c_void,
    probability: f32,
    states: *mut c_void,
    _states_size: usize,
    seed: u64,
) -> Result<()> {
    let own = change(&mut descriptor)?;
    *own = Dropout { probability, states, seed };
    Ok(())
}

/// Describes a dropout whose states exist.
pub fn cudnnRestoreDropoutDescriptor(
    descriptor: Handle<'_, Dropout>,
    handle: *mut c_void,
    probability: f32,
    states: *mut c_void,
    states_size: usize,
    seed: u64,
) -> Result<()> {
    cudnnSetDropoutDescriptor(descriptor, handle, probability, states, states_size, seed)
}

/// Reads a dropout back.
pub fn cudnnGetDropoutDescriptor(
    descriptor: Handle<'_, Dropout>,
    _handle: *mut c_void,
    probability: Out<'_, f32>,
    states: Out<'_, *mut c_void>,
    seed: Out<'_, u64>,
) -> Result<()> {
    let own = known(&descriptor)?;
    probability.set(own.probability);
    states.set(own.states);
    seed.set(own.seed);
    Ok(())
}

/// A spatial transformer. Nothing of it can be read back.
#[derive(Default)]
pub struct SpatialTransformer;
descriptor!(SpatialTransformer = 14, cudnnCreateSpatialTransformerDescriptor, cudnnDestroySpatialTransformerDescriptor);

/// Describes a spatial transformer.
pub fn cudnnSetSpatialTransformerNdDescriptor(
    descriptor: Handle<'_, SpatialTransformer>,
    _sampler: i32,
    _kind: i32,
    _rank: i32,
    _dimensions: *const i32,
) -> Result<()> {
    known(&descriptor).map(|_| ())
}

/// An element-wise operation.
#[derive(Default)]
pub struct OpTensor([i32; 3]);
descriptor!(OpTensor = 15, cudnnCreateOpTensorDescriptor, cudnnDestroyOpTensorDescriptor);

/// Describes an element-wise operation.
pub fn cudnnSetOpTensorDescriptor(
    mut descriptor: Handle<'_, OpTensor>,
    operation: i32,
    kind: i32,
    nan: i32,
) -> Result<()> {
    let own = change(&mut descriptor)?;
    *own = OpTensor([operation, kind, nan]);
    Ok(())
}

/// Reads an element-wise operation back.
pub fn cudnnGetOpTensorDescriptor(
    descriptor: Handle<'_, OpTensor>,
    operation: Out<'_, i32>,
    kind: Out<'_, i32>,
    nan: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    for (out, value) in [operation, kind, nan].into_iter().zip(own.0) {
        out.set(value);
    }
    Ok(())
}

/// A reduction.
#[derive(Default)]
pub struct Reduction([i32; 5]);
descriptor!(Reduction = 16, cudnnCreateReduceTensorDescriptor, cudnnDestroyReduceTensorDescriptor);

/// Describes a reduction.
pub fn cudnnSetReduceTensorDescriptor(
    mut descriptor: Handle<'_, Reduction>,
    operation: i32,
    kind: i32,
    nan: i32,
    indices: i32,
    index_type: i32,
) -> Result<()> {
    let own = change(&mut descriptor)?;
    *own = Reduction([operation, kind, nan, indices, index_type]);
    Ok(())
}

/// Reads a reduction back.
pub fn cudnnGetReduceTensorDescriptor(
    descriptor: Handle<'_, Reduction>,
    operation: Out<'_, i32>,
    kind: Out<'_, i32>,
    nan: Out<'_, i32>,
    indices: Out<'_, i32>,
    index_type: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    for (out, value) in [operation, kind, nan, indices, index_type].into_iter().zip(own.0) {
        out.set(value);
    }
    Ok(())
}

/// The bytes of a reduction's indices: one for every element of the result, of the type that was set.
pub fn cudnnGetReductionIndicesSize(
    _handle: *mut c_void,
    reduction: Handle<'_, Reduction>,
    _a: *mut c_void,
    c: Handle<'_, Tensor>,
    size: Out<'_, usize>,
) -> Result<()> {
    let (own, c) = (known(&reduction)?, known(&c)?);
    let [_, _, _, indices, index_type] = own.0;
    let width = match index_type {
        1 => 8,
        2 => 2,
        3 => 1,
        _ => 4,
    };
    size.set(if indices == 0 { 0 } else { usize::try_from(c.elements() * width).unwrap_or(usize::MAX) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooling_shrinks_as_cudnn_says() {
        let pooling = Pooling { window: vec![3, 2], padding: vec![1, 0], stride: vec![2, 2], ..Pooling::default() };
        assert_eq!((pooling.output(0, 112), pooling.output(1, 112)), (56, 56));
        assert_eq!(Pooling { stride: vec![0], ..Pooling::default() }.output(0, 5), 5, "a zero stride does not divide");
    }
}

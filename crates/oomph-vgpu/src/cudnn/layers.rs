//! Descriptors of activations, pooling, normalization across channels, dropout, sampling, reductions and element-wise
//! operations: what is set is read back.

use std::ffi::c_void;

use super::object::{self, BAD_PARAM, SUCCESS, descriptor, put_all, take};
use super::props;
use super::tensor::{self, MOST_DIMENSIONS};
use crate::boundary::put;

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
pub unsafe fn cudnnSetActivationDescriptor(address: *mut c_void, mode: i32, nan: i32, coefficient: f64) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<Activation>(address) }) else { return BAD_PARAM };
    (own.mode, own.nan, own.coefficient) = (mode, nan, coefficient);
    SUCCESS
}

/// Reads an activation back.
pub unsafe fn cudnnGetActivationDescriptor(
    address: *mut c_void,
    mode: *mut i32,
    nan: *mut i32,
    coefficient: *mut f64,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Activation>(address) else { return BAD_PARAM };
        put(mode, own.mode);
        put(nan, own.nan);
        put(coefficient, own.coefficient);
    }
    SUCCESS
}

/// Sets the slope of a swish.
pub unsafe fn cudnnSetActivationDescriptorSwishBeta(address: *mut c_void, beta: f64) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<Activation>(address) }) else { return BAD_PARAM };
    own.swish_beta = beta;
    SUCCESS
}

/// Reads the slope of a swish.
pub unsafe fn cudnnGetActivationDescriptorSwishBeta(address: *mut c_void, beta: *mut f64) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(own) = object::get::<Activation>(address) else { return BAD_PARAM };
        put(beta, own.swish_beta);
    }
    SUCCESS
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
pub unsafe fn cudnnSetPoolingNdDescriptor(
    address: *mut c_void,
    mode: i32,
    nan: i32,
    rank: i32,
    window: *const i32,
    padding: *const i32,
    stride: *const i32,
) -> u32 {
    if !(1..=MOST_DIMENSIONS).contains(&rank) {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: a descriptor, and arrays of `rank` numbers.
    unsafe {
        let Some(own) = object::get::<Pooling>(address) else { return BAD_PARAM };
        *own =
            Pooling { mode, nan, window: take(window, rank), padding: take(padding, rank), stride: take(stride, rank) };
    }
    SUCCESS
}

/// Describes a pooling of images.
pub unsafe fn cudnnSetPooling2dDescriptor(
    address: *mut c_void,
    mode: i32,
    nan: i32,
    window_height: i32,
    window_width: i32,
    vertical_padding: i32,
    horizontal_padding: i32,
    vertical_stride: i32,
    horizontal_stride: i32,
) -> u32 {
    let window = [window_height, window_width];
    let padding = [vertical_padding, horizontal_padding];
    let stride = [vertical_stride, horizontal_stride];
    // SAFETY: cuDNN's contract for the descriptor; the arrays are local.
    unsafe { cudnnSetPoolingNdDescriptor(address, mode, nan, 2, window.as_ptr(), padding.as_ptr(), stride.as_ptr()) }
}

/// Reads a pooling back.
pub unsafe fn cudnnGetPoolingNdDescriptor(
    address: *mut c_void,
    requested: i32,
    mode: *mut i32,
    nan: *mut i32,
    rank: *mut i32,
    window: *mut i32,
    padding: *mut i32,
    stride: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor, out-parameters, and arrays of `requested` numbers.
    unsafe {
        let Some(own) = object::get::<Pooling>(address) else { return BAD_PARAM };
        put(mode, own.mode);
        put(nan, own.nan);
        put(rank, own.window.len() as i32);
        put_all(window, requested, &own.window);
        put_all(padding, requested, &own.padding);
        put_all(stride, requested, &own.stride);
    }
    SUCCESS
}

/// Reads a pooling of images back.
pub unsafe fn cudnnGetPooling2dDescriptor(
    address: *mut c_void,
    mode: *mut i32,
    nan: *mut i32,
    window_height: *mut i32,
    window_width: *mut i32,
    vertical_padding: *mut i32,
    horizontal_padding: *mut i32,
    vertical_stride: *mut i32,
    horizontal_stride: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Pooling>(address) else { return BAD_PARAM };
        put(mode, own.mode);
        put(nan, own.nan);
        let pairs = [
            (window_height, window_width, &own.window),
            (vertical_padding, horizontal_padding, &own.padding),
            (vertical_stride, horizontal_stride, &own.stride),
        ];
        for (vertical, horizontal, list) in pairs {
            put(vertical, list.first().copied().unwrap_or(0));
            put(horizontal, list.get(1).copied().unwrap_or(0));
        }
    }
    SUCCESS
}

/// The sizes of a pooling's result.
pub unsafe fn cudnnGetPoolingNdForwardOutputDim(
    address: *mut c_void,
    input: *mut c_void,
    rank: i32,
    dimensions: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: two descriptors, and an array of `rank` numbers.
    unsafe {
        let (Some(own), Some(input)) = (object::get::<Pooling>(address), tensor::tensor(input)) else {
            return BAD_PARAM;
        };
        let sizes: Vec<i32> = (0..usize::try_from(rank).unwrap_or(0))
            .map(|index| match index.checked_sub(2) {
                None => input.size(index),
                Some(spatial) => own.output(spatial, input.size(index)),
            })
            .collect();
        put_all(dimensions, rank, &sizes);
    }
    SUCCESS
}

/// The sizes of an image pooling's result.
pub unsafe fn cudnnGetPooling2dForwardOutputDim(
    address: *mut c_void,
    input: *mut c_void,
    n: *mut i32,
    c: *mut i32,
    h: *mut i32,
    w: *mut i32,
) -> u32 {
    let mut sizes = [0_i32; 4];
    // SAFETY: cuDNN's contract: two descriptors and out-parameters; the array is local and long enough.
    unsafe {
        let status = cudnnGetPoolingNdForwardOutputDim(address, input, 4, sizes.as_mut_ptr());
        for (out, size) in [n, c, h, w].into_iter().zip(sizes) {
            put(out, size);
        }
        status
    }
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
pub unsafe fn cudnnSetLRNDescriptor(address: *mut c_void, n: u32, alpha: f64, beta: f64, k: f64) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<Lrn>(address) }) else { return BAD_PARAM };
    *own = Lrn { n, alpha, beta, k };
    SUCCESS
}

/// Reads a normalization across channels back.
pub unsafe fn cudnnGetLRNDescriptor(
    address: *mut c_void,
    n: *mut u32,
    alpha: *mut f64,
    beta: *mut f64,
    k: *mut f64,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Lrn>(address) else { return BAD_PARAM };
        put(n, own.n);
        put(alpha, own.alpha);
        put(beta, own.beta);
        put(k, own.k);
    }
    SUCCESS
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
    let threads = props::current().map_or(0, |card| card.sm_count * card.max_threads_per_sm);
    usize::try_from((threads / 2).next_multiple_of(256) * 48).unwrap_or(0)
}

/// The bytes of the generators' states.
pub unsafe fn cudnnDropoutGetStatesSize(_handle: *mut c_void, size: *mut usize) -> u32 {
    // SAFETY: cuDNN's contract: an out-parameter.
    unsafe { put(size, states_size()) };
    SUCCESS
}

/// The bytes of a dropout's mask: one bit an element.
pub unsafe fn cudnnDropoutGetReserveSpaceSize(x: *mut c_void, size: *mut usize) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(x) = tensor::tensor(x) else { return BAD_PARAM };
        put(size, usize::try_from(x.elements().div_ceil(8)).unwrap_or(usize::MAX));
    }
    SUCCESS
}

/// Describes a dropout.
pub unsafe fn cudnnSetDropoutDescriptor(
    address: *mut c_void,
    _handle: *mut c_void,
    probability: f32,
    states: *mut c_void,
    _states_size: usize,
    seed: u64,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<Dropout>(address) }) else { return BAD_PARAM };
    *own = Dropout { probability, states, seed };
    SUCCESS
}

/// Describes a dropout whose states exist.
pub unsafe fn cudnnRestoreDropoutDescriptor(
    address: *mut c_void,
    handle: *mut c_void,
    probability: f32,
    states: *mut c_void,
    states_size: usize,
    seed: u64,
) -> u32 {
    // SAFETY: the same contract.
    unsafe { cudnnSetDropoutDescriptor(address, handle, probability, states, states_size, seed) }
}

/// Reads a dropout back.
pub unsafe fn cudnnGetDropoutDescriptor(
    address: *mut c_void,
    _handle: *mut c_void,
    probability: *mut f32,
    states: *mut *mut c_void,
    seed: *mut u64,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Dropout>(address) else { return BAD_PARAM };
        put(probability, own.probability);
        put(states, own.states);
        put(seed, own.seed);
    }
    SUCCESS
}

/// A spatial transformer. Nothing of it can be read back.
#[derive(Default)]
pub struct SpatialTransformer;
descriptor!(SpatialTransformer = 14, cudnnCreateSpatialTransformerDescriptor, cudnnDestroySpatialTransformerDescriptor);

/// Describes a spatial transformer.
pub unsafe fn cudnnSetSpatialTransformerNdDescriptor(
    address: *mut c_void,
    _sampler: i32,
    _kind: i32,
    _rank: i32,
    _dimensions: *const i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    if unsafe { object::get::<SpatialTransformer>(address) }.is_none() { BAD_PARAM } else { SUCCESS }
}

/// An element-wise operation.
#[derive(Default)]
pub struct OpTensor([i32; 3]);
descriptor!(OpTensor = 15, cudnnCreateOpTensorDescriptor, cudnnDestroyOpTensorDescriptor);

/// Describes an element-wise operation.
pub unsafe fn cudnnSetOpTensorDescriptor(address: *mut c_void, operation: i32, kind: i32, nan: i32) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<OpTensor>(address) }) else { return BAD_PARAM };
    *own = OpTensor([operation, kind, nan]);
    SUCCESS
}

/// Reads an element-wise operation back.
pub unsafe fn cudnnGetOpTensorDescriptor(
    address: *mut c_void,
    operation: *mut i32,
    kind: *mut i32,
    nan: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<OpTensor>(address) else { return BAD_PARAM };
        for (out, value) in [operation, kind, nan].into_iter().zip(own.0) {
            put(out, value);
        }
    }
    SUCCESS
}

/// A reduction.
#[derive(Default)]
pub struct Reduction([i32; 5]);
descriptor!(Reduction = 16, cudnnCreateReduceTensorDescriptor, cudnnDestroyReduceTensorDescriptor);

/// Describes a reduction.
pub unsafe fn cudnnSetReduceTensorDescriptor(
    address: *mut c_void,
    operation: i32,
    kind: i32,
    nan: i32,
    indices: i32,
    index_type: i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor.
    let Some(own) = (unsafe { object::get::<Reduction>(address) }) else { return BAD_PARAM };
    *own = Reduction([operation, kind, nan, indices, index_type]);
    SUCCESS
}

/// Reads a reduction back.
pub unsafe fn cudnnGetReduceTensorDescriptor(
    address: *mut c_void,
    operation: *mut i32,
    kind: *mut i32,
    nan: *mut i32,
    indices: *mut i32,
    index_type: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Reduction>(address) else { return BAD_PARAM };
        for (out, value) in [operation, kind, nan, indices, index_type].into_iter().zip(own.0) {
            put(out, value);
        }
    }
    SUCCESS
}

/// The bytes of a reduction's indices: one for every element of the result, of the type that was set.
pub unsafe fn cudnnGetReductionIndicesSize(
    _handle: *mut c_void,
    reduction: *mut c_void,
    _a: *mut c_void,
    c: *mut c_void,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors and an out-parameter.
    unsafe {
        let (Some(own), Some(c)) = (object::get::<Reduction>(reduction), tensor::tensor(c)) else { return BAD_PARAM };
        let [_, _, _, indices, index_type] = own.0;
        let width = match index_type {
            1 => 8,
            2 => 2,
            3 => 1,
            _ => 4,
        };
        put(size, if indices == 0 { 0 } else { usize::try_from(c.elements() * width).unwrap_or(usize::MAX) });
    }
    SUCCESS
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

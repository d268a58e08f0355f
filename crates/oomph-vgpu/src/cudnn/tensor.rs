//! Tensor, filter and transform descriptors.

use std::ffi::c_void;

use super::object::{self, BAD_PARAM, NOT_SUPPORTED, SUCCESS, descriptor, put_all, take};
use crate::boundary::put;

/// `CUDNN_DATA_FLOAT`
pub const FLOAT: i32 = 0;
/// `CUDNN_DATA_HALF`
pub const HALF: i32 = 2;
/// `CUDNN_DATA_BFLOAT16`
pub const BFLOAT16: i32 = 9;

const NHWC: i32 = 1;
const VECTORIZED: i32 = 2;
/// The most dimensions a descriptor can have.
pub const MOST_DIMENSIONS: i32 = 8;

/// The bits of an element of a data type.
pub fn bits(kind: i32) -> usize {
    match kind {
        1 | 10 | 20 => 64,
        HALF | BFLOAT16 => 16,
        3 | 6 | 12..=15 | 22 | 23 => 8,
        8 => 256,
        11 => 1,
        16..=18 => 4,
        21 => 128,
        _ => 32,
    }
}

/// A tensor, as a program describes it.
#[derive(Clone, Default)]
pub struct Tensor {
    /// The data type.
    pub kind: i32,
    /// Sizes, outermost first.
    pub dimensions: Vec<i32>,
    /// Strides, in elements.
    pub strides: Vec<i32>,
}
descriptor!(Tensor = 1, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor);

impl Tensor {
    /// A tensor without gaps, in the order of its dimensions or with the second one innermost.
    fn packed(kind: i32, dimensions: Vec<i32>, channels_last: bool) -> Tensor {
        let mut strides = vec![1; dimensions.len()];
        let mut order: Vec<usize> = (0..dimensions.len()).collect();
        if channels_last && dimensions.len() > 1 {
            order.remove(1);
            order.push(1);
        }
        let mut stride = 1_i32;
        for index in order.into_iter().rev() {
            if let (Some(place), Some(size)) = (strides.get_mut(index), dimensions.get(index)) {
                *place = stride;
                stride = stride.wrapping_mul(*size);
            }
        }
        Tensor { kind, dimensions, strides }
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.dimensions.iter().map(|size| u64::from(size.unsigned_abs())).fold(1, u64::saturating_mul)
    }

    /// The bytes from the first element to the last.
    pub fn bytes(&self) -> usize {
        let last: u64 = self
            .dimensions
            .iter()
            .zip(&self.strides)
            .map(|(size, stride)| u64::from(size.unsigned_abs().saturating_sub(1)) * u64::from(stride.unsigned_abs()))
            .fold(0, u64::saturating_add);
        let bits = last.saturating_add(1).saturating_mul(bits(self.kind) as u64);
        usize::try_from(bits.div_ceil(8)).unwrap_or(usize::MAX)
    }

    /// A size; 1 for a dimension that the tensor does not have.
    pub fn size(&self, index: usize) -> i32 {
        self.dimensions.get(index).copied().unwrap_or(1)
    }

    /// Whether the channels are innermost.
    pub fn is_channels_last(&self) -> bool {
        // One channel alone lies both ways; cuDNN looks at the strides then.
        self.dimensions.len() > 2
            && self.strides.get(1) == Some(&1)
            && (self.size(1) > 1 || self.strides.last() != Some(&1))
    }
}

fn is_rank(rank: i32) -> bool {
    (1..=MOST_DIMENSIONS).contains(&rank)
}

/// The tensor behind a pointer.
///
/// # Safety
/// As for [`object::get`].
pub unsafe fn tensor<'a>(address: *mut c_void) -> Option<&'a mut Tensor> {
    // SAFETY: the caller's promise.
    unsafe { object::get(address) }
}

/// Describes a tensor by sizes and strides.
pub unsafe fn cudnnSetTensorNdDescriptor(
    address: *mut c_void,
    kind: i32,
    rank: i32,
    dimensions: *const i32,
    strides: *const i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor, and arrays of `rank` numbers.
    let (own, dimensions, strides) = unsafe {
        if !is_rank(rank) || dimensions.is_null() || strides.is_null() {
            return BAD_PARAM;
        }
        (tensor(address), take(dimensions, rank), take(strides, rank))
    };
    let Some(own) = own else { return BAD_PARAM };
    *own = Tensor { kind, dimensions, strides };
    SUCCESS
}

/// Describes a tensor without gaps.
pub unsafe fn cudnnSetTensorNdDescriptorEx(
    address: *mut c_void,
    format: i32,
    kind: i32,
    rank: i32,
    dimensions: *const i32,
) -> u32 {
    if format == VECTORIZED {
        return NOT_SUPPORTED;
    }
    if !is_rank(rank) || dimensions.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: a descriptor, and an array of `rank` numbers.
    let (own, dimensions) = unsafe { (tensor(address), take(dimensions, rank)) };
    let Some(own) = own else { return BAD_PARAM };
    *own = Tensor::packed(kind, dimensions, format == NHWC);
    SUCCESS
}

/// Describes an image without gaps.
pub unsafe fn cudnnSetTensor4dDescriptor(
    address: *mut c_void,
    format: i32,
    kind: i32,
    n: i32,
    c: i32,
    h: i32,
    w: i32,
) -> u32 {
    // SAFETY: cuDNN's contract for the descriptor; the array is local.
    unsafe { cudnnSetTensorNdDescriptorEx(address, format, kind, 4, [n, c, h, w].as_ptr()) }
}

/// Describes an image with strides.
pub unsafe fn cudnnSetTensor4dDescriptorEx(
    address: *mut c_void,
    kind: i32,
    n: i32,
    c: i32,
    h: i32,
    w: i32,
    n_stride: i32,
    c_stride: i32,
    h_stride: i32,
    w_stride: i32,
) -> u32 {
    let strides = [n_stride, c_stride, h_stride, w_stride];
    // SAFETY: cuDNN's contract for the descriptor; the arrays are local.
    unsafe { cudnnSetTensorNdDescriptor(address, kind, 4, [n, c, h, w].as_ptr(), strides.as_ptr()) }
}

/// Reads a tensor's description back.
pub unsafe fn cudnnGetTensorNdDescriptor(
    address: *mut c_void,
    requested: i32,
    kind: *mut i32,
    rank: *mut i32,
    dimensions: *mut i32,
    strides: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor, out-parameters, and arrays of `requested` numbers.
    unsafe {
        let Some(own) = tensor(address) else { return BAD_PARAM };
        put(kind, own.kind);
        put(rank, own.dimensions.len() as i32);
        put_all(dimensions, requested, &own.dimensions);
        put_all(strides, requested, &own.strides);
    }
    SUCCESS
}

/// Reads an image's description back.
pub unsafe fn cudnnGetTensor4dDescriptor(
    address: *mut c_void,
    kind: *mut i32,
    n: *mut i32,
    c: *mut i32,
    h: *mut i32,
    w: *mut i32,
    n_stride: *mut i32,
    c_stride: *mut i32,
    h_stride: *mut i32,
    w_stride: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = tensor(address) else { return BAD_PARAM };
        put(kind, own.kind);
        for (index, out) in [n, c, h, w].into_iter().enumerate() {
            put(out, own.size(index));
        }
        for (index, out) in [n_stride, c_stride, h_stride, w_stride].into_iter().enumerate() {
            put(out, own.strides.get(index).copied().unwrap_or(1));
        }
    }
    SUCCESS
}

/// The bytes that a tensor spans.
pub unsafe fn cudnnGetTensorSizeInBytes(address: *mut c_void, size: *mut usize) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(own) = tensor(address) else { return BAD_PARAM };
        put(size, own.bytes());
    }
    SUCCESS
}

/// A filter, as a program describes it.
#[derive(Clone, Default)]
pub struct Filter {
    /// The data type.
    pub kind: i32,
    /// The order of the dimensions in memory.
    pub format: i32,
    /// Sizes: outputs, inputs per group, then the window.
    pub dimensions: Vec<i32>,
}
descriptor!(Filter = 2, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor);

impl Filter {
    /// The filter as a tensor.
    pub fn tensor(&self) -> Tensor {
        Tensor::packed(self.kind, self.dimensions.clone(), self.format == NHWC)
    }
}

/// Describes a filter.
pub unsafe fn cudnnSetFilterNdDescriptor(
    address: *mut c_void,
    kind: i32,
    format: i32,
    rank: i32,
    dimensions: *const i32,
) -> u32 {
    if !is_rank(rank) || dimensions.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: a descriptor, and an array of `rank` numbers.
    let (own, dimensions) = unsafe { (object::get::<Filter>(address), take(dimensions, rank)) };
    let Some(own) = own else { return BAD_PARAM };
    *own = Filter { kind, format, dimensions };
    SUCCESS
}

/// Describes a filter of images.
pub unsafe fn cudnnSetFilter4dDescriptor(
    address: *mut c_void,
    kind: i32,
    format: i32,
    k: i32,
    c: i32,
    h: i32,
    w: i32,
) -> u32 {
    // SAFETY: cuDNN's contract for the descriptor; the array is local.
    unsafe { cudnnSetFilterNdDescriptor(address, kind, format, 4, [k, c, h, w].as_ptr()) }
}

/// Reads a filter's description back.
pub unsafe fn cudnnGetFilterNdDescriptor(
    address: *mut c_void,
    requested: i32,
    kind: *mut i32,
    format: *mut i32,
    rank: *mut i32,
    dimensions: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor, out-parameters, and an array of `requested` numbers.
    unsafe {
        let Some(own) = object::get::<Filter>(address) else { return BAD_PARAM };
        put(kind, own.kind);
        put(format, own.format);
        put(rank, own.dimensions.len() as i32);
        put_all(dimensions, requested, &own.dimensions);
    }
    SUCCESS
}

/// Reads an image filter's description back.
pub unsafe fn cudnnGetFilter4dDescriptor(
    address: *mut c_void,
    kind: *mut i32,
    format: *mut i32,
    k: *mut i32,
    c: *mut i32,
    h: *mut i32,
    w: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = object::get::<Filter>(address) else { return BAD_PARAM };
        put(kind, own.kind);
        put(format, own.format);
        for (index, out) in [k, c, h, w].into_iter().enumerate() {
            put(out, own.dimensions.get(index).copied().unwrap_or(1));
        }
    }
    SUCCESS
}

/// The bytes of a filter.
pub unsafe fn cudnnGetFilterSizeInBytes(address: *mut c_void, size: *mut usize) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
    unsafe {
        let Some(own) = object::get::<Filter>(address) else { return BAD_PARAM };
        put(size, own.tensor().bytes());
    }
    SUCCESS
}

/// A change of layout, as a program describes it.
#[derive(Clone, Default)]
pub struct Transform {
    format: i32,
    before: Vec<i32>,
    after: Vec<i32>,
    fold: Vec<u32>,
    direction: i32,
}
descriptor!(Transform = 3, cudnnCreateTensorTransformDescriptor, cudnnDestroyTensorTransformDescriptor);

/// Describes a change of layout.
pub unsafe fn cudnnSetTensorTransformDescriptor(
    address: *mut c_void,
    rank: u32,
    format: i32,
    before: *const i32,
    after: *const i32,
    fold: *const u32,
    direction: i32,
) -> u32 {
    let rank = i32::try_from(rank).unwrap_or(0);
    if !is_rank(rank) {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: a descriptor, and arrays of `rank` numbers or null.
    unsafe {
        let Some(own) = object::get::<Transform>(address) else { return BAD_PARAM };
        *own = Transform {
            format,
            before: take(before, rank),
            after: take(after, rank),
            fold: take(fold, rank),
            direction,
        };
    }
    SUCCESS
}

/// Reads a change of layout back.
pub unsafe fn cudnnGetTensorTransformDescriptor(
    address: *mut c_void,
    requested: u32,
    format: *mut i32,
    before: *mut i32,
    after: *mut i32,
    fold: *mut u32,
    direction: *mut i32,
) -> u32 {
    let requested = i32::try_from(requested).unwrap_or(0);
    // SAFETY: cuDNN's contract: a descriptor, out-parameters, and arrays of `requested` numbers.
    unsafe {
        let Some(own) = object::get::<Transform>(address) else { return BAD_PARAM };
        put(format, own.format);
        put_all(before, requested, &own.before);
        put_all(after, requested, &own.after);
        put_all(fold, requested, &own.fold);
        put(direction, own.direction);
    }
    SUCCESS
}

/// Describes the result of a change of layout: the padded sizes, without gaps. Folding is not worked out.
pub unsafe fn cudnnInitTransformDest(
    transform: *mut c_void,
    source: *mut c_void,
    destination: *mut c_void,
    size: *mut usize,
) -> u32 {
    // SAFETY: cuDNN's contract: three descriptors and an out-parameter.
    unsafe {
        let (Some(change), Some(from)) = (object::get::<Transform>(transform), tensor(source)) else {
            return BAD_PARAM;
        };
        let padding = |list: &[i32], index: usize| list.get(index).copied().unwrap_or(0);
        let dimensions = from.dimensions.iter().enumerate();
        let dimensions = dimensions
            .map(|(index, size)| {
                size.wrapping_add(padding(&change.before, index)).wrapping_add(padding(&change.after, index))
            })
            .collect();
        let result = Tensor::packed(from.kind, dimensions, change.format == NHWC);
        put(size, result.bytes());
        let Some(to) = tensor(destination) else { return BAD_PARAM };
        *to = result;
    }
    SUCCESS
}

/// Describes the parameters of a batch normalization: one number per channel, or one per place.
pub unsafe fn cudnnDeriveBNTensorDescriptor(derived: *mut c_void, x: *mut c_void, mode: i32) -> u32 {
    const PER_ACTIVATION: i32 = 0;
    // SAFETY: cuDNN's contract: two descriptors.
    unsafe {
        let Some(x) = tensor(x).map(|x| x.clone()) else { return BAD_PARAM };
        let Some(derived) = tensor(derived) else { return BAD_PARAM };
        let mut dimensions = x.dimensions.clone();
        for (index, size) in dimensions.iter_mut().enumerate() {
            if index == 0 || (mode != PER_ACTIVATION && index > 1) {
                *size = 1;
            }
        }
        // Parameters of reduced precision are kept in single precision.
        let kind = if matches!(x.kind, HALF | BFLOAT16) { FLOAT } else { x.kind };
        *derived = Tensor::packed(kind, dimensions, false);
    }
    SUCCESS
}

/// As [`cudnnDeriveBNTensorDescriptor`], for the newer API's two descriptors.
pub unsafe fn cudnnDeriveNormTensorDescriptor(
    scale: *mut c_void,
    mean: *mut c_void,
    x: *mut c_void,
    mode: i32,
    _groups: i32,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors.
    unsafe {
        match cudnnDeriveBNTensorDescriptor(scale, x, mode) {
            SUCCESS => cudnnDeriveBNTensorDescriptor(mean, x, mode),
            status => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_packed_tensors() {
        let nchw = Tensor::packed(FLOAT, vec![2, 3, 4, 5], false);
        assert_eq!(nchw.strides, [60, 20, 5, 1]);
        let nhwc = Tensor::packed(HALF, vec![2, 3, 4, 5], true);
        assert_eq!(nhwc.strides, [60, 1, 15, 3]);
        assert_eq!((nchw.bytes(), nhwc.bytes()), (480, 240));
        assert!(nhwc.is_channels_last() && !nchw.is_channels_last());
        assert_eq!(Tensor { kind: FLOAT, dimensions: vec![2, 2], strides: vec![10, 1] }.bytes(), 48);
    }
}

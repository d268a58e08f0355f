//! Tensor, filter and transform descriptors.

#![deny(unsafe_code)]

use super::object::{Handle, change, descriptor, known};
use crate::boundary::{Items, Out, Room};
use crate::libcudnn::data_type::{BFLOAT16, FLOAT, HALF, bits};
use crate::libcudnn::status::{CudnnStatus, Result};

const NHWC: i32 = 1;
const VECTORIZED: i32 = 2;
/// The most dimensions a descriptor can have.
const MOST_DIMENSIONS: i32 = 8;

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

/// Whether a descriptor can have so many dimensions.
pub fn is_rank(rank: i32) -> bool {
    (1..=MOST_DIMENSIONS).contains(&rank)
}

/// Describes a tensor by sizes and strides.
pub fn cudnnSetTensorNdDescriptor(
    mut descriptor: Handle<'_, Tensor>,
    kind: i32,
    rank: i32,
    dimensions: Items<'_, i32>,
    strides: Items<'_, i32>,
) -> Result<()> {
    if !is_rank(rank) || dimensions.is_null() || strides.is_null() {
        return Err(CudnnStatus::BAD_PARAM);
    }
    *change(&mut descriptor)? =
        Tensor { kind, dimensions: dimensions.iter().collect(), strides: strides.iter().collect() };
    Ok(())
}

/// Describes a tensor without gaps.
pub fn cudnnSetTensorNdDescriptorEx(
    mut descriptor: Handle<'_, Tensor>,
    format: i32,
    kind: i32,
    rank: i32,
    dimensions: Items<'_, i32>,
) -> Result<()> {
    if format == VECTORIZED {
        return Err(CudnnStatus::NOT_SUPPORTED);
    }
    if !is_rank(rank) || dimensions.is_null() {
        return Err(CudnnStatus::BAD_PARAM);
    }
    *change(&mut descriptor)? = Tensor::packed(kind, dimensions.iter().collect(), format == NHWC);
    Ok(())
}

/// Describes an image without gaps.
pub fn cudnnSetTensor4dDescriptor(
    descriptor: Handle<'_, Tensor>,
    format: i32,
    kind: i32,
    n: i32,
    c: i32,
    h: i32,
    w: i32,
) -> Result<()> {
    cudnnSetTensorNdDescriptorEx(descriptor, format, kind, 4, Items::of(&[n, c, h, w]))
}

/// Describes an image with strides.
pub fn cudnnSetTensor4dDescriptorEx(
    descriptor: Handle<'_, Tensor>,
    kind: i32,
    n: i32,
    c: i32,
    h: i32,
    w: i32,
    n_stride: i32,
    c_stride: i32,
    h_stride: i32,
    w_stride: i32,
) -> Result<()> {
    let strides = [n_stride, c_stride, h_stride, w_stride];
    cudnnSetTensorNdDescriptor(descriptor, kind, 4, Items::of(&[n, c, h, w]), Items::of(&strides))
}

/// Reads a tensor's description back.
pub fn cudnnGetTensorNdDescriptor(
    descriptor: Handle<'_, Tensor>,
    _requested: i32,
    kind: Out<'_, i32>,
    rank: Out<'_, i32>,
    dimensions: Room<'_, i32>,
    strides: Room<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    kind.set(own.kind);
    rank.set(own.dimensions.len() as i32);
    dimensions.fill(own.dimensions.iter().copied());
    strides.fill(own.strides.iter().copied());
    Ok(())
}

/// Reads an image's description back.
pub fn cudnnGetTensor4dDescriptor(
    descriptor: Handle<'_, Tensor>,
    kind: Out<'_, i32>,
    n: Out<'_, i32>,
    c: Out<'_, i32>,
    h: Out<'_, i32>,
    w: Out<'_, i32>,
    n_stride: Out<'_, i32>,
    c_stride: Out<'_, i32>,
    h_stride: Out<'_, i32>,
    w_stride: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    kind.set(own.kind);
    for (index, out) in [n, c, h, w].into_iter().enumerate() {
        out.set(own.size(index));
    }
    for (index, out) in [n_stride, c_stride, h_stride, w_stride].into_iter().enumerate() {
        out.set(own.strides.get(index).copied().unwrap_or(1));
    }
    Ok(())
}

/// The bytes that a tensor spans.
pub fn cudnnGetTensorSizeInBytes(descriptor: Handle<'_, Tensor>, size: Out<'_, usize>) -> Result<()> {
    let own = known(&descriptor)?;
    size.set(own.bytes());
    Ok(())
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
pub fn cudnnSetFilterNdDescriptor(
    mut descriptor: Handle<'_, Filter>,
    kind: i32,
    format: i32,
    rank: i32,
    dimensions: Items<'_, i32>,
) -> Result<()> {
    if !is_rank(rank) || dimensions.is_null() {
        return Err(CudnnStatus::BAD_PARAM);
    }
    *change(&mut descriptor)? = Filter { kind, format, dimensions: dimensions.iter().collect() };
    Ok(())
}

/// Describes a filter of images.
pub fn cudnnSetFilter4dDescriptor(
    descriptor: Handle<'_, Filter>,
    kind: i32,
    format: i32,
    k: i32,
    c: i32,
    h: i32,
    w: i32,
) -> Result<()> {
    cudnnSetFilterNdDescriptor(descriptor, kind, format, 4, Items::of(&[k, c, h, w]))
}

/// Reads a filter's description back.
pub fn cudnnGetFilterNdDescriptor(
    descriptor: Handle<'_, Filter>,
    _requested: i32,
    kind: Out<'_, i32>,
    format: Out<'_, i32>,
    rank: Out<'_, i32>,
    dimensions: Room<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    kind.set(own.kind);
    format.set(own.format);
    rank.set(own.dimensions.len() as i32);
    dimensions.fill(own.dimensions.iter().copied());
    Ok(())
}

/// Reads an image filter's description back.
pub fn cudnnGetFilter4dDescriptor(
    descriptor: Handle<'_, Filter>,
    kind: Out<'_, i32>,
    format: Out<'_, i32>,
    k: Out<'_, i32>,
    c: Out<'_, i32>,
    h: Out<'_, i32>,
    w: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    kind.set(own.kind);
    format.set(own.format);
    for (index, out) in [k, c, h, w].into_iter().enumerate() {
        out.set(own.dimensions.get(index).copied().unwrap_or(1));
    }
    Ok(())
}

/// The bytes of a filter.
pub fn cudnnGetFilterSizeInBytes(descriptor: Handle<'_, Filter>, size: Out<'_, usize>) -> Result<()> {
    let own = known(&descriptor)?;
    size.set(own.tensor().bytes());
    Ok(())
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
pub fn cudnnSetTensorTransformDescriptor(
    mut descriptor: Handle<'_, Transform>,
    rank: u32,
    format: i32,
    before: Items<'_, i32>,
    after: Items<'_, i32>,
    fold: Items<'_, u32>,
    direction: i32,
) -> Result<()> {
    if !is_rank(i32::try_from(rank).unwrap_or(0)) {
        return Err(CudnnStatus::BAD_PARAM);
    }
    *change(&mut descriptor)? = Transform {
        format,
        before: before.iter().collect(),
        after: after.iter().collect(),
        fold: fold.iter().collect(),
        direction,
    };
    Ok(())
}

/// Reads a change of layout back.
pub fn cudnnGetTensorTransformDescriptor(
    descriptor: Handle<'_, Transform>,
    _requested: u32,
    format: Out<'_, i32>,
    before: Room<'_, i32>,
    after: Room<'_, i32>,
    fold: Room<'_, u32>,
    direction: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    format.set(own.format);
    before.fill(own.before.iter().copied());
    after.fill(own.after.iter().copied());
    fold.fill(own.fold.iter().copied());
    direction.set(own.direction);
    Ok(())
}

/// Describes the result of a change of layout: the padded sizes, without gaps. Folding is not worked out.
pub fn cudnnInitTransformDest(
    transform: Handle<'_, Transform>,
    source: Handle<'_, Tensor>,
    mut destination: Handle<'_, Tensor>,
    size: Out<'_, usize>,
) -> Result<()> {
    let (layout, from) = (known(&transform)?, known(&source)?);
    let padding = |list: &[i32], index: usize| list.get(index).copied().unwrap_or(0);
    let padded = |(index, size): (usize, &i32)| {
        size.wrapping_add(padding(&layout.before, index)).wrapping_add(padding(&layout.after, index))
    };
    let dimensions = from.dimensions.iter().enumerate().map(padded).collect();
    let result = Tensor::packed(from.kind, dimensions, layout.format == NHWC);
    size.set(result.bytes());
    *change(&mut destination)? = result;
    Ok(())
}

/// The parameters of a batch normalization: one number per channel, or one per place.
fn parameters(x: &Tensor, mode: i32) -> Tensor {
    const PER_ACTIVATION: i32 = 0;
    let mut dimensions = x.dimensions.clone();
    for (index, size) in dimensions.iter_mut().enumerate() {
        if index == 0 || (mode != PER_ACTIVATION && index > 1) {
            *size = 1;
        }
    }
    // Parameters of reduced precision are kept in single precision.
    let kind = if matches!(x.kind, HALF | BFLOAT16) { FLOAT } else { x.kind };
    Tensor::packed(kind, dimensions, false)
}

/// Describes the parameters of a batch normalization.
pub fn cudnnDeriveBNTensorDescriptor(mut derived: Handle<'_, Tensor>, x: Handle<'_, Tensor>, mode: i32) -> Result<()> {
    let result = parameters(known(&x)?, mode);
    *change(&mut derived)? = result;
    Ok(())
}

/// As [`cudnnDeriveBNTensorDescriptor`], for the newer API's two descriptors.
pub fn cudnnDeriveNormTensorDescriptor(
    mut scale: Handle<'_, Tensor>,
    mut mean: Handle<'_, Tensor>,
    x: Handle<'_, Tensor>,
    mode: i32,
    _groups: i32,
) -> Result<()> {
    let result = parameters(known(&x)?, mode);
    *change(&mut scale)? = result.clone();
    *change(&mut mean)? = result;
    Ok(())
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

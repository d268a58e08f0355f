//! The convolutions of the older API: their descriptors, and the sizes of their results.
#![deny(unsafe_code)]

use super::object::{Handle, change, descriptor, known};
use super::tensor::{Filter, Tensor, is_rank};
use crate::boundary::{Items, Out, Room};
use crate::libcudnn::status::{CudnnStatus, Result};

const CROSS_CORRELATION: i32 = 1;

/// A convolution.
#[derive(Clone)]
pub struct Convolution {
    /// Padding of every spatial dimension, at both ends.
    pub padding: Vec<i32>,
    /// Steps of the window.
    pub stride: Vec<i32>,
    /// Gaps in the window.
    pub dilation: Vec<i32>,
    /// Whether the window is turned over.
    pub mode: i32,
    /// The type it computes in.
    pub kind: i32,
    /// `cudnnMathType_t`
    pub math: i32,
    groups: i32,
    reorder: i32,
}

impl Default for Convolution {
    fn default() -> Self {
        Self {
            padding: Vec::new(),
            stride: Vec::new(),
            dilation: Vec::new(),
            mode: CROSS_CORRELATION,
            kind: 0,
            math: 0,
            groups: 1,
            reorder: 0,
        }
    }
}
descriptor!(Convolution = 40, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor);

impl Convolution {
    /// The size of the result along a spatial dimension.
    fn output(&self, index: usize, input: i32, window: i32) -> i32 {
        let at = |list: &[i32], default| i64::from(list.get(index).copied().unwrap_or(default));
        let window = 1 + at(&self.dilation, 1) * (i64::from(window) - 1);
        let room = i64::from(input) + 2 * at(&self.padding, 0) - window;
        i32::try_from(1 + room.div_euclid(at(&self.stride, 1).max(1))).unwrap_or(0)
    }
}

/// Describes a convolution.
pub fn cudnnSetConvolutionNdDescriptor(
    mut descriptor: Handle<'_, Convolution>,
    rank: i32,
    padding: Items<'_, i32>,
    stride: Items<'_, i32>,
    dilation: Items<'_, i32>,
    mode: i32,
    kind: i32,
) -> Result<()> {
    if !is_rank(rank) || padding.is_null() || stride.is_null() || dilation.is_null() {
        return Err(CudnnStatus::BAD_PARAM);
    }
    let own = change(&mut descriptor)?;
    own.padding = padding.iter().collect();
    own.stride = stride.iter().collect();
    own.dilation = dilation.iter().collect();
    (own.mode, own.kind) = (mode, kind);
    Ok(())
}

/// Describes a convolution of images.
pub fn cudnnSetConvolution2dDescriptor(
    descriptor: Handle<'_, Convolution>,
    pad_h: i32,
    pad_w: i32,
    u: i32,
    v: i32,
    dilation_h: i32,
    dilation_w: i32,
    mode: i32,
    kind: i32,
) -> Result<()> {
    let (padding, stride, dilation) = ([pad_h, pad_w], [u, v], [dilation_h, dilation_w]);
    cudnnSetConvolutionNdDescriptor(
        descriptor,
        2,
        Items::of(&padding),
        Items::of(&stride),
        Items::of(&dilation),
        mode,
        kind,
    )
}

/// Reads a convolution back.
pub fn cudnnGetConvolutionNdDescriptor(
    descriptor: Handle<'_, Convolution>,
    _requested: i32,
    rank: Out<'_, i32>,
    padding: Room<'_, i32>,
    stride: Room<'_, i32>,
    dilation: Room<'_, i32>,
    mode: Out<'_, i32>,
    kind: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    rank.set(own.padding.len() as i32);
    padding.fill(own.padding.iter().copied());
    stride.fill(own.stride.iter().copied());
    dilation.fill(own.dilation.iter().copied());
    mode.set(own.mode);
    kind.set(own.kind);
    Ok(())
}

/// Reads a convolution of images back.
pub fn cudnnGetConvolution2dDescriptor(
    descriptor: Handle<'_, Convolution>,
    pad_h: Out<'_, i32>,
    pad_w: Out<'_, i32>,
    u: Out<'_, i32>,
    v: Out<'_, i32>,
    dilation_h: Out<'_, i32>,
    dilation_w: Out<'_, i32>,
    mode: Out<'_, i32>,
    kind: Out<'_, i32>,
) -> Result<()> {
    let own = known(&descriptor)?;
    let lists = [(pad_h, pad_w, &own.padding), (u, v, &own.stride), (dilation_h, dilation_w, &own.dilation)];
    for (vertical, horizontal, list) in lists {
        vertical.set(list.first().copied().unwrap_or(0));
        horizontal.set(list.get(1).copied().unwrap_or(0));
    }
    mode.set(own.mode);
    kind.set(own.kind);
    Ok(())
}

/// Defines a pair of functions for one number of a convolution.
macro_rules! property {
    ($set:ident, $get:ident, $field:ident) => {
        /// Sets one number of a convolution.
        pub fn $set(mut descriptor: Handle<'_, Convolution>, value: i32) -> Result<()> {
            change(&mut descriptor)?.$field = value;
            Ok(())
        }

        /// Reads one number of a convolution.
        pub fn $get(descriptor: Handle<'_, Convolution>, value: Out<'_, i32>) -> Result<()> {
            value.set(known(&descriptor)?.$field);
            Ok(())
        }
    };
}
property!(cudnnSetConvolutionMathType, cudnnGetConvolutionMathType, math);
property!(cudnnSetConvolutionGroupCount, cudnnGetConvolutionGroupCount, groups);
property!(cudnnSetConvolutionReorderType, cudnnGetConvolutionReorderType, reorder);

/// The sizes of a convolution's result.
pub fn cudnnGetConvolutionNdForwardOutputDim(
    descriptor: Handle<'_, Convolution>,
    input: Handle<'_, Tensor>,
    filter: Handle<'_, Filter>,
    _rank: i32,
    dimensions: Room<'_, i32>,
) -> Result<()> {
    let (own, x, w) = (known(&descriptor)?, known(&input)?, known(&filter)?);
    let window = |index: usize| w.dimensions.get(index).copied().unwrap_or(1);
    dimensions.fill((0..dimensions.count()).map(|index| match index {
        0 => x.size(0),
        1 => window(0),
        _ => own.output(index - 2, x.size(index), window(index)),
    }));
    Ok(())
}

/// The sizes of an image convolution's result.
pub fn cudnnGetConvolution2dForwardOutputDim(
    descriptor: Handle<'_, Convolution>,
    input: Handle<'_, Tensor>,
    filter: Handle<'_, Filter>,
    n: Out<'_, i32>,
    c: Out<'_, i32>,
    h: Out<'_, i32>,
    w: Out<'_, i32>,
) -> Result<()> {
    let mut sizes = [0_i32; 4];
    let status = cudnnGetConvolutionNdForwardOutputDim(descriptor, input, filter, 4, Room::to(&mut sizes));
    for (out, size) in [n, c, h, w].into_iter().zip(sizes) {
        out.set(size);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_shrinks_as_cudnn_says() {
        let own =
            Convolution { padding: vec![3, 0], stride: vec![2, 1], dilation: vec![1, 2], ..Convolution::default() };
        assert_eq!((own.output(0, 224, 7), own.output(1, 10, 3)), (112, 6));
    }
}

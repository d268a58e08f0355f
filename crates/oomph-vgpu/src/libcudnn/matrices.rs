//! Convolutions that are products of matrices: cuDNN on a card multiplies them in place, and what it says without a card
//! is too much.
//!
//! A 1x1 filter that visits every pixel once multiplies, image by image, a matrix of channels by one of pixels. On a card,
//! cuDNN has cuBLAS do it, with no copy of either tensor. Engines of cuBLAS need a handle of a card, so without one the
//! heuristics leave them out, and the next best engine first copies both tensors into another order.
//!
//! Read on an H100 with cuDNN 9.19 (`acceptance/readings/real`): 44 of 45 such convolutions in 16 and 32 bits took at most 512
//! bytes forwards; gradients of the filter took one partial gradient for each image, or what the other engines take where
//! that is less. Where a channel's pixels are no multiple of 16 bytes, the card took the other engines as well.
#![deny(unsafe_code)]

use super::data_type;

/// More dimensions than cuDNN knows.
pub const MOST_DIMENSIONS: usize = 8;
/// What cuBLAS wants of the distance between rows, in bytes.
const ALIGNMENT: u64 = 16;

/// The sides of a tensor and their strides, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    rank: usize,
    sides: [u64; MOST_DIMENSIONS],
    strides: [u64; MOST_DIMENSIONS],
}

/// As many numbers as a shape has room for, and how many there are.
fn kept(numbers: &[u64]) -> (usize, [u64; MOST_DIMENSIONS]) {
    let mut room = [0; MOST_DIMENSIONS];
    for (place, number) in room.iter_mut().zip(numbers) {
        *place = *number;
    }
    (numbers.len().min(MOST_DIMENSIONS), room)
}

impl Shape {
    /// Notes the sides.
    pub fn set_sides(&mut self, sides: &[u64]) {
        (self.rank, self.sides) = kept(sides);
    }

    /// Notes the strides.
    pub fn set_strides(&mut self, strides: &[u64]) {
        self.strides = kept(strides).1;
    }

    fn side(&self, index: usize) -> u64 {
        self.sides.get(index).copied().unwrap_or(0)
    }

    /// The elements of one channel of one image.
    fn pixels(&self) -> u64 {
        self.sides.iter().take(self.rank).skip(2).fold(1, |product, side| product.saturating_mul(*side))
    }

    /// Whether image follows image, and channel follows channel.
    fn is_channels_first(&self) -> bool {
        let mut expected = 1_u64;
        (0..self.rank).rev().all(|index| {
            let fits = self.side(index) == 1 || self.strides.get(index) == Some(&expected);
            expected = expected.saturating_mul(self.side(index));
            fits
        })
    }
}

/// Which of the three operations of convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The output, or the gradient of the input.
    Images,
    /// The gradient of the filter.
    Filter,
}

/// The most that such a convolution takes on a card, in bytes; `None` for any other. The filter has the sides output channels,
/// input channels, height, width.
pub fn workspace(wanted: Wanted, kind: i32, filter: &Shape, input: &Shape, output: &Shape) -> Option<u64> {
    let size = match kind {
        data_type::HALF | data_type::BFLOAT16 => 2,
        data_type::FLOAT => 4,
        _ => return None,
    };
    let is_product = filter.rank == 4
        && filter.pixels() == 1
        && filter.side(1) == input.side(1)
        && filter.side(0) == output.side(1)
        && input.pixels() == output.pixels()
        && input.pixels() > 1
        && input.is_channels_first()
        && output.is_channels_first()
        && input.pixels().saturating_mul(size).is_multiple_of(ALIGNMENT);
    let partial = || {
        // Partial gradients are added up in 32 bits only by engines of 16 bits, which copy nothing; they were not read.
        (size == 4)
            .then(|| [filter.side(0), filter.side(1), size].iter().fold(input.side(0), |all, n| all.saturating_mul(*n)))
    };
    match wanted {
        _ if !is_product => None,
        Wanted::Images => Some(0),
        Wanted::Filter => partial(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sides: [u64; 4], channels_last: bool) -> Shape {
        let [_, c, h, w] = sides;
        let mut shape = Shape::default();
        shape.set_sides(&sides);
        shape.set_strides(&if channels_last { [h * w * c, 1, w * c, c] } else { [c * h * w, h * w, w, 1] });
        shape
    }

    fn taken(wanted: Wanted, kind: i32, x: [u64; 4], out: u64, last: bool) -> Option<u64> {
        let [n, c, h, w] = x;
        workspace(wanted, kind, &shape([out, c, 1, 1], last), &shape(x, last), &shape([n, out, h, w], last))
    }

    #[test]
    fn a_product_of_matrices_takes_what_an_h100_took() {
        assert_eq!(taken(Wanted::Images, data_type::FLOAT, [256, 256, 56, 56], 64, false), Some(0));
        assert_eq!(taken(Wanted::Images, data_type::HALF, [1, 256, 1024, 1024], 128, false), Some(0));
        // ResNet-50 with 32 images: 2 MiB, 8 MiB, and 16 MiB for 256 images.
        assert_eq!(taken(Wanted::Filter, data_type::FLOAT, [32, 256, 56, 56], 64, false), Some(2_097_152));
        assert_eq!(taken(Wanted::Filter, data_type::FLOAT, [32, 128, 28, 28], 512, false), Some(8_388_608));
        assert_eq!(taken(Wanted::Filter, data_type::FLOAT, [256, 256, 56, 56], 64, false), Some(16_777_216));
    }

    #[test]
    fn others_are_left_to_cudnn() {
        assert_eq!(taken(Wanted::Images, data_type::FLOAT, [32, 512, 7, 7], 2048, false), None, "49 pixels");
        assert_eq!(taken(Wanted::Images, data_type::HALF, [64, 256, 56, 56], 64, true), None, "channels last");
        assert_eq!(taken(Wanted::Filter, data_type::HALF, [2, 320, 64, 64], 320, false), None, "not read");
        let (input, half) = (shape([8, 64, 56, 56], false), shape([8, 64, 28, 28], false));
        let filter = shape([64, 64, 1, 1], false);
        assert_eq!(workspace(Wanted::Images, 0, &filter, &input, &half), None, "strides");
        let (grouped, wide) = (shape([64, 32, 1, 1], false), shape([64, 64, 3, 3], false));
        assert_eq!(workspace(Wanted::Images, 0, &grouped, &input, &input), None, "groups");
        assert_eq!(workspace(Wanted::Images, 0, &wide, &input, &input), None, "3x3");
    }
}

//! Workspaces of convolutions on a card, where what cuDNN says without one is known to be wrong.
//!
//! **Products of matrices.** A 1x1 filter that visits every pixel once multiplies, image by image, a matrix of channels by one of
//! pixels. On a card, cuDNN has cuBLAS do it, with no copy of either tensor. Engines of cuBLAS need a handle of a card, so
//! without one the heuristics leave them out, and the next best engine first copies both tensors into another order.
//! Read on an H100 with cuDNN 9.19 (`acceptance/readings/real`): 52 of 53 such convolutions in 16 and 32 bits took at most 512
//! bytes forwards; gradients of the filter took one partial gradient for each image, or what the other engines take where
//! that is less. Where a channel's pixels are no multiple of 16 bytes, the card took the other engines as well.
//!
//! **Split sums.** Hopper's engine for gradients of filters in 32 bits shares the sum among multiprocessors that would have
//! nothing to do, and each keeps a partial tile of 128x128 numbers. How many can share is asked of the card, so that
//! without one nothing is split. On the H100 as many shared a tile as there are multiprocessors for it, 12 at most: that gives what
//! 15 of 26 gradients took to 1 KiB; the others differ by up to 9 MiB in both directions, most with more tiles than
//! multiprocessors, or with images of 7x7.
#![deny(unsafe_code)]

use super::data_type;

/// More dimensions than cuDNN knows.
pub const MOST_DIMENSIONS: usize = 8;
/// What cuBLAS wants of the distance between rows, in bytes.
const ALIGNMENT: u64 = 16;
/// The compute capability whose engine splits sums.
const HOPPER: u64 = 9;
/// Numbers along each side of a tile, at most.
const TILE: u64 = 128;
/// Channels below which another engine was chosen.
const LEAST_SPLIT: u64 = 64;
/// Multiprocessors that share one tile, at most.
const MOST_SHARES: u64 = 12;

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

/// How a convolution's workspace on a card differs from what the library says without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// It has at most so many bytes.
    AtMost(u64),
    /// It holds partial sums besides: how many tiles the result has, and the bytes of each.
    WithSums { tiles: u64, bytes: u64 },
}

impl Workspace {
    /// The bytes on a card with as many multiprocessors, of those that the library says.
    pub fn on(self, said: u64, cc_major: u64, multiprocessors: u64) -> u64 {
        match self {
            Workspace::AtMost(most) => said.min(most),
            Workspace::WithSums { tiles, bytes } if cc_major == HOPPER => {
                let share = (multiprocessors / tiles.max(1)).min(MOST_SHARES);
                let sums = if share > 1 { share.saturating_mul(tiles).saturating_mul(bytes) } else { 0 };
                said.saturating_add(sums)
            }
            Workspace::WithSums { .. } => said,
        }
    }
}

/// The tiles of a filter's gradient, of at most 128 output channels by 128 products; `None` where no engine splits them.
fn sums(kind: i32, filter: &Shape, input: &Shape, output: &Shape) -> Option<Workspace> {
    let (outputs, inputs) = (filter.side(0), filter.side(1));
    let is_split = kind == data_type::FLOAT
        && filter.rank == 4
        && outputs.min(inputs) >= LEAST_SPLIT
        && inputs == input.side(1)
        && input.is_channels_first()
        && output.is_channels_first();
    let side = |channels: u64| channels.min(TILE);
    let tiles = |length: u64, channels: u64| length.div_ceil(side(channels).max(1));
    is_split.then(|| Workspace::WithSums {
        tiles: tiles(outputs, outputs).saturating_mul(tiles(inputs.saturating_mul(filter.pixels()), inputs)),
        bytes: side(outputs) * side(inputs) * 4,
    })
}

/// What is known of a convolution on a card, if it is. The filter has the sides output channels, input channels, height, width.
pub fn workspace(wanted: Wanted, kind: i32, filter: &Shape, input: &Shape, output: &Shape) -> Option<Workspace> {
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
        Wanted::Images => is_product.then_some(Workspace::AtMost(0)),
        Wanted::Filter if is_product => partial().map(Workspace::AtMost),
        Wanted::Filter => sums(kind, filter, input, output),
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

    fn taken(wanted: Wanted, kind: i32, x: [u64; 4], out: u64, last: bool) -> Option<Workspace> {
        let [n, c, h, w] = x;
        workspace(wanted, kind, &shape([out, c, 1, 1], last), &shape(x, last), &shape([n, out, h, w], last))
    }

    #[test]
    fn a_product_of_matrices_takes_what_an_h100_took() {
        assert_eq!(taken(Wanted::Images, data_type::FLOAT, [256, 256, 56, 56], 64, false), Some(Workspace::AtMost(0)));
        assert_eq!(
            taken(Wanted::Images, data_type::HALF, [1, 256, 1024, 1024], 128, false),
            Some(Workspace::AtMost(0))
        );
        // ResNet-50 with 32 images: 2 MiB, 8 MiB, and 16 MiB for 256 images.
        assert_eq!(
            taken(Wanted::Filter, data_type::FLOAT, [32, 256, 56, 56], 64, false),
            Some(Workspace::AtMost(2_097_152))
        );
        assert_eq!(
            taken(Wanted::Filter, data_type::FLOAT, [32, 128, 28, 28], 512, false),
            Some(Workspace::AtMost(8_388_608))
        );
        assert_eq!(
            taken(Wanted::Filter, data_type::FLOAT, [256, 256, 56, 56], 64, false),
            Some(Workspace::AtMost(16_777_216))
        );
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

    #[test]
    fn gradients_of_filters_hold_the_partial_sums_of_an_h100() {
        let more = |filter: [u64; 4], pixels: u64, cc_major: u64| {
            let [out, c, ..] = filter;
            let images = |channels| shape([32, channels, pixels, pixels], false);
            let known = workspace(Wanted::Filter, data_type::FLOAT, &shape(filter, false), &images(c), &images(out));
            known.map(|known| known.on(1000, cc_major, 132) - 1000)
        };
        // What the card took besides, of 7 or 8 MiB, to 512 bytes.
        assert_eq!(more([256, 128, 3, 3], 32, 9), Some(8_257_536));
        assert_eq!(more([256, 256, 3, 3], 14, 9), Some(7_077_888));
        assert_eq!(more([128, 128, 3, 3], 28, 9), Some(7_077_888));
        assert_eq!(more([64, 64, 3, 3], 56, 9), Some(1_769_472));
        // 49 pixels are no product of matrices.
        assert_eq!(more([2048, 512, 1, 1], 7, 9), Some(8_388_608));
        assert_eq!(more([512, 512, 3, 3], 7, 9), Some(0), "there are more tiles than multiprocessors");
        assert_eq!(more([256, 128, 3, 3], 32, 8), Some(0), "another generation was not read");
        assert_eq!(more([64, 3, 7, 7], 112, 9), None, "another engine");
    }
}

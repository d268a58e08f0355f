//! The common parts of video decoders: the sizes of their maps, the parts that they work in, and a convolution.

use crate::tape::{Tape, TapeOwner, Tensor};

/// Maps of one video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maps {
    /// Videos.
    pub samples: u64,
    /// Frames of each.
    pub frames: u64,
    /// Rows of each frame.
    pub height: u64,
    /// Columns of each frame.
    pub width: u64,
}

impl Maps {
    /// Numbers of so many channels of them.
    pub(super) fn numbers(self, channels: u64) -> u64 {
        [self.samples, self.frames, self.height, self.width].into_iter().fold(channels, u64::saturating_mul)
    }

    /// The same with an edge of so many frames in front and places around each.
    pub(super) fn padded(self, frames: u64, places: u64) -> Self {
        let around = |side: u64| side.saturating_add(2 * places);
        Self {
            frames: self.frames.saturating_add(frames),
            height: around(self.height),
            width: around(self.width),
            ..self
        }
    }

    /// The same with so many times the frames and the length of each side.
    pub(super) fn scaled(self, times: u64, sides: u64) -> Self {
        Self {
            frames: self.frames.saturating_mul(times),
            height: self.height.saturating_mul(sides),
            width: self.width.saturating_mul(sides),
            ..self
        }
    }

    /// The same, the first frame for itself, with so many times the frames behind it and the length of each side.
    pub(super) fn larger(self, [times, sides]: [u64; 2]) -> Self {
        Self {
            frames: self.frames.saturating_sub(1).saturating_mul(times).saturating_add(1),
            height: self.height.saturating_mul(sides),
            width: self.width.saturating_mul(sides),
            ..self
        }
    }
}

/// The lengths of parts of a whole that begin so far apart. A whole of any length has few parts here.
pub(super) fn parts(whole: u64, length: u64, apart: u64) -> impl Iterator<Item = u64> {
    let count = whole.div_ceil(apart).min(MOST_PARTS);
    (0..count).map(move |part| (whole - part * apart).min(length))
}

/// More parts than a video has that anybody decodes.
const MOST_PARTS: u64 = 512;

/// A convolution. For video cuDNN turns both maps into its own layout, in a workspace (answers of cuDNN 9 for compute
/// capability 9.0, `calibration/README.md`).
pub(super) fn convolution(tape: &Tape, x: &Tensor, [from, to]: [u64; 2], taps: u64, maps: Maps) -> Tensor {
    let out = tape.empty(maps.numbers(to), x.kind);
    let weights = from.saturating_mul(to).saturating_mul(taps);
    let numbers = x.count.saturating_add(out.count).saturating_add(weights);
    drop(tape.owned(TapeOwner::Workspaces, || tape.empty(numbers, x.kind)));
    out
}

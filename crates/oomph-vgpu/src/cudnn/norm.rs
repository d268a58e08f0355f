//! Batch normalization: the memory that it needs in addition to its tensors, and what it moves.
//!
//! cuDNN's size functions want a handle. Their answers were taken from cuDNN 9.26 and 9.1, which agree, and do not
//! depend on the card from compute capability 6.0 on: nothing for tensors in NCHW order, and for channels-last tensors
//! in the persistent mode the partial sums of blocks of rows.

#![deny(unsafe_code)]

use std::ffi::c_void;

use super::object::{Handle, known};
use super::tensor::Tensor;
use crate::boundary::Out;
use crate::gpu::gpu;
use crate::libcudnn::data_type::FLOAT;
use crate::libcudnn::status::Result;

/// `CUDNN_BATCHNORM_SPATIAL_PERSISTENT`
const PERSISTENT: i32 = 2;

/// Rows (places of an image) that a block of the forward pass sums, in half and in single precision.
const FORWARD_ROWS: (u64, u64) = (160, 64);
/// Rows that a block of the backward pass sums.
const BACKWARD_ROWS: u64 = 96;

/// What a persistent normalization of a channels-last tensor works on: rows, and channels in groups.
struct Blocks {
    rows: u64,
    /// Groups of channels, the last one filled up.
    groups: u64,
    channels: u64,
}

impl Blocks {
    /// `None` where the normalization needs no memory.
    fn of(mode: i32, x: &Tensor) -> Option<Blocks> {
        let channels = u64::from(x.size(1).unsigned_abs());
        if mode != PERSISTENT || !x.is_channels_last() || channels == 0 {
            return None;
        }
        // Numbers of channels that are no multiple of 4 are taken in smaller groups.
        let group = if channels.is_multiple_of(4) { 64 } else { 16 };
        let groups = channels.div_ceil(group);
        Some(Blocks { rows: x.elements() / channels, groups, channels: groups * group })
    }
}

/// The bytes of the forward pass: two sums a channel for every block of rows, a flag a group, and the totals.
pub fn forward(mode: i32, x: &Tensor) -> u64 {
    let Some(Blocks { rows, groups, channels }) = Blocks::of(mode, x) else { return 0 };
    let block = if x.kind == FLOAT { FORWARD_ROWS.1 } else { FORWARD_ROWS.0 };
    rows.div_ceil(block) * (8 * channels + 4 * groups) + 4 * groups + 1072
}

/// The bytes of the backward pass.
pub fn backward(mode: i32, x: &Tensor) -> u64 {
    let Some(Blocks { rows, groups, channels }) = Blocks::of(mode, x) else { return 0 };
    rows.div_ceil(BACKWARD_ROWS) * 8 * channels + 4 * groups + 1056
}

/// The bytes kept for the backward pass: the mask of a fused activation, one bit an element, and nothing without one.
fn reserve(operations: i32, x: &Tensor) -> u64 {
    if operations == 0 { 0 } else { x.elements().div_ceil(32) * 4 }
}

/// Writes a size that depends on one tensor.
fn write(x: Handle<'_, Tensor>, size: Out<'_, usize>, work: impl FnOnce(&Tensor) -> u64) -> Result<()> {
    size.set(0);
    size.set(usize::try_from(work(known(&x)?)).unwrap_or(usize::MAX));
    Ok(())
}

/// The workspace of the forward pass.
pub fn cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    _handle: *mut c_void,
    mode: i32,
    _operations: i32,
    x: Handle<'_, Tensor>,
    _z: *mut c_void,
    _y: *mut c_void,
    _parameters: *mut c_void,
    _activation: *mut c_void,
    size: Out<'_, usize>,
) -> Result<()> {
    write(x, size, |x| forward(mode, x))
}

/// The workspace of the backward pass.
pub fn cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    _handle: *mut c_void,
    mode: i32,
    _operations: i32,
    x: Handle<'_, Tensor>,
    _y: *mut c_void,
    _dy: *mut c_void,
    _dz: *mut c_void,
    _dx: *mut c_void,
    _parameters: *mut c_void,
    _activation: *mut c_void,
    size: Out<'_, usize>,
) -> Result<()> {
    write(x, size, |x| backward(mode, x))
}

/// What the forward pass keeps for the backward pass.
pub fn cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    _handle: *mut c_void,
    _mode: i32,
    operations: i32,
    _activation: *mut c_void,
    x: Handle<'_, Tensor>,
    size: Out<'_, usize>,
) -> Result<()> {
    write(x, size, |x| reserve(operations, x))
}

/// The newer API's mode, as the older one says it.
fn older_mode(mode: i32, algorithm: i32) -> i32 {
    // `CUDNN_NORM_ALGO_PERSIST` is 1; `CUDNN_NORM_PER_CHANNEL` is 1.
    if algorithm == 1 && mode == 1 { PERSISTENT } else { mode }
}

/// The workspace of the forward pass, by the newer API.
pub fn cudnnGetNormalizationForwardTrainingWorkspaceSize(
    _handle: *mut c_void,
    mode: i32,
    _operations: i32,
    algorithm: i32,
    x: Handle<'_, Tensor>,
    _z: *mut c_void,
    _y: *mut c_void,
    _scale: *mut c_void,
    _activation: *mut c_void,
    _mean: *mut c_void,
    size: Out<'_, usize>,
    _groups: i32,
) -> Result<()> {
    write(x, size, |x| forward(older_mode(mode, algorithm), x))
}

/// The workspace of the backward pass, by the newer API.
pub fn cudnnGetNormalizationBackwardWorkspaceSize(
    _handle: *mut c_void,
    mode: i32,
    _operations: i32,
    algorithm: i32,
    x: Handle<'_, Tensor>,
    _y: *mut c_void,
    _dy: *mut c_void,
    _dz: *mut c_void,
    _dx: *mut c_void,
    _parameters: *mut c_void,
    _activation: *mut c_void,
    _mean: *mut c_void,
    size: Out<'_, usize>,
    _groups: i32,
) -> Result<()> {
    write(x, size, |x| backward(older_mode(mode, algorithm), x))
}

/// What the forward pass keeps for the backward pass, by the newer API.
pub fn cudnnGetNormalizationTrainingReserveSpaceSize(
    _handle: *mut c_void,
    _mode: i32,
    operations: i32,
    _algorithm: i32,
    _activation: *mut c_void,
    x: Handle<'_, Tensor>,
    size: Out<'_, usize>,
    _groups: i32,
) -> Result<()> {
    write(x, size, |x| reserve(operations, x))
}

/// Counts a normalization that goes over its tensor so many times.
fn count(x: Handle<'_, Tensor>, times: u64) {
    if let Ok(x) = known(&x) {
        gpu().work.kernel((x.bytes() as u64).saturating_mul(times));
    }
}

/// A forward pass: the tensor is read for its mean and variance, and once more to be normalized.
pub fn cudnnBatchNormalizationForwardTrainingEx(
    _handle: *mut c_void,
    _mode: i32,
    _operations: i32,
    _alpha: *const c_void,
    _beta: *const c_void,
    x: Handle<'_, Tensor>,
    _x_data: *const c_void,
    _z: *mut c_void,
    _z_data: *const c_void,
    _y: *mut c_void,
    _y_data: *mut c_void,
    _scale: *mut c_void,
    _scale_data: *const c_void,
    _bias: *const c_void,
    _factor: f64,
    _running_mean: *mut c_void,
    _running_variance: *mut c_void,
    _epsilon: f64,
    _mean: *mut c_void,
    _variance: *mut c_void,
    _activation: *mut c_void,
    _workspace: *mut c_void,
    _workspace_size: usize,
    _reserve: *mut c_void,
    _reserve_size: usize,
) -> Result<()> {
    count(x, 3);
    Ok(())
}

/// A backward pass: the tensor and its gradient are read for the sums, and once more for the result.
pub fn cudnnBatchNormalizationBackwardEx(
    _handle: *mut c_void,
    _mode: i32,
    _operations: i32,
    _alpha_data: *const c_void,
    _beta_data: *const c_void,
    _alpha_parameter: *const c_void,
    _beta_parameter: *const c_void,
    x: Handle<'_, Tensor>,
    _x_data: *const c_void,
    _y: *mut c_void,
    _y_data: *const c_void,
    _dy: *mut c_void,
    _dy_data: *const c_void,
    _dz: *mut c_void,
    _dz_data: *mut c_void,
    _dx: *mut c_void,
    _dx_data: *mut c_void,
    _scale: *mut c_void,
    _scale_data: *const c_void,
    _bias_data: *const c_void,
    _dscale: *mut c_void,
    _dbias: *mut c_void,
    _epsilon: f64,
    _mean: *const c_void,
    _variance: *const c_void,
    _activation: *mut c_void,
    _workspace: *mut c_void,
    _workspace_size: usize,
    _reserve: *mut c_void,
    _reserve_size: usize,
) -> Result<()> {
    count(x, 5);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libcudnn::data_type::HALF;

    fn image(kind: i32, n: i32, c: i32, side: i32, channels_last: bool) -> Tensor {
        let strides = if channels_last {
            vec![c * side * side, 1, c * side, c]
        } else {
            vec![c * side * side, side * side, side, 1]
        };
        Tensor { kind, dimensions: vec![n, c, side, side], strides }
    }

    #[test]
    fn workspaces_are_what_cudnn_answers() {
        let cases = [
            (HALF, 32, 64, 56, 325_124, 536_612),
            (FLOAT, 32, 64, 56, 810_164, 536_612),
            (HALF, 1, 64, 1, 1592, 1572),
            (HALF, 32, 128, 56, 649_176, 1_072_168),
            (HALF, 256, 1024, 14, 2_593_520, 4_285_536),
            (FLOAT, 256, 64, 112, 25_891_892, 17_127_972),
            (HALF, 32, 61, 7, 6368, 9776),
            (HALF, 32, 65, 56, 415_572, 670_516),
            (FLOAT, 32, 160, 56, 2_428_348, 1_607_724),
        ];
        for (kind, n, c, side, first, second) in cases {
            let x = image(kind, n, c, side, true);
            assert_eq!(forward(PERSISTENT, &x), first, "forward, {n}x{c}x{side}");
            assert_eq!(backward(PERSISTENT, &x), second, "backward, {n}x{c}x{side}");
            // An image of one place lies both ways.
            assert!(side == 1 || forward(PERSISTENT, &image(kind, n, c, side, false)) == 0);
            assert_eq!(forward(1, &x), 0);
        }
    }
}

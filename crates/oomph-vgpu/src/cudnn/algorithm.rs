//! The choice of an algorithm for a convolution of the older API. The choice and its workspace are the graph API's, which
//! is asked the same question.
#![deny(unsafe_code)]

use std::ffi::c_void;

use super::convolution::Convolution;
use super::graph::{self, Question};
use super::object::{Handle, known};
use super::tensor::{Filter, Tensor};
use crate::boundary::Out;
use crate::device;
use crate::gpu::gpu;
use crate::libcudnn::status::{CudnnStatus, Result};

/// `CUDNN_FMA_MATH`: no tensor cores.
const FMA_MATH: i32 = 3;

/// A direction of a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// `cudnnConvolutionFwdAlgoPerf_t` and its two like-shaped relatives.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Performance {
    algorithm: i32,
    /// `cudnnStatus_t` of the algorithm: success.
    status: u32,
    time: f32,
    memory: usize,
    determinism: i32,
    math: i32,
    reserved: [i32; 3],
}
const _: () = assert!(size_of::<Performance>() == 48, "the layout of cudnn_cnn.h");

/// The algorithm that stands for "what the heuristics chose": `IMPLICIT_PRECOMP_GEMM` forward, `ALGO_1` backward.
const CHOSEN: i32 = 1;
/// `IMPLICIT_GEMM` and `ALGO_0` need no memory.
const WITHOUT_MEMORY: i32 = 0;

/// The workspace of a convolution, as the graph API answers. Answers are kept: programs ask for the same shape often.
fn workspace(direction: Direction, x: &Tensor, w: &Tensor, y: &Tensor, own: &Convolution) -> Result<u64> {
    let operation = match direction {
        Direction::Forward => 10,
        Direction::BackwardFilter => 11,
        Direction::BackwardData => 12,
    };
    let without_tensor_cores = own.math == FMA_MATH;
    let card = i32::try_from(device::current().map_or(0, |device| device.card)).unwrap_or(0);
    let mut key = vec![operation, card, i32::from(without_tensor_cores), own.mode, own.kind];
    let lists = [&own.padding, &own.stride, &own.dilation];
    let tensors = [x, w, y].into_iter().flat_map(|tensor| [&tensor.dimensions, &tensor.strides]);
    for list in lists.into_iter().chain(tensors) {
        key.push(list.len() as i32);
        key.extend_from_slice(list);
    }
    key.extend([x.kind, w.kind, y.kind]);
    if let Some(answer) = gpu().cudnn.workspaces.lock().get(&key) {
        return *answer;
    }
    let answer = graph::ask(&Question { operation, x, w, y, convolution: own, without_tensor_cores });
    gpu().cudnn.workspaces.lock().insert(key, answer);
    answer
}

/// What a program asks about: input, filter and output, or their gradients, and how the filter moves.
struct Asked<'a> {
    direction: Direction,
    x: Handle<'a, Tensor>,
    w: Handle<'a, Filter>,
    y: Handle<'a, Tensor>,
    convolution: Handle<'a, Convolution>,
}

impl Asked<'_> {
    /// The workspace in bytes, and the convolution's `cudnnMathType_t`.
    fn workspace(&self) -> Result<(usize, i32)> {
        let (x, w, y, own) = (known(&self.x)?, known(&self.w)?, known(&self.y)?, known(&self.convolution)?);
        let bytes = workspace(self.direction, x, &w.tensor(), y, own)?;
        Ok((usize::try_from(bytes).unwrap_or(usize::MAX), own.math))
    }

    /// Writes the one algorithm that is offered. One that takes more than `most` bytes gives way to the one without a
    /// workspace.
    fn offer(&self, most: usize, requested: i32, returned: Out<'_, i32>, results: Out<'_, Performance>) -> Result<()> {
        returned.set(0);
        if requested < 1 || results.is_null() {
            return Err(CudnnStatus::BAD_PARAM);
        }
        let (memory, math) = self.workspace()?;
        let (algorithm, memory) = if memory > most { (WITHOUT_MEMORY, 0) } else { (CHOSEN, memory) };
        let performance =
            Performance { algorithm, status: 0, time: 1.0, memory, determinism: 1, math, reserved: [0; 3] };
        results.set(performance);
        returned.set(1);
        Ok(())
    }

    /// Writes the workspace of an algorithm.
    fn write(&self, algorithm: i32, size: Out<'_, usize>) -> Result<()> {
        size.set(0);
        if algorithm != WITHOUT_MEMORY {
            size.set(self.workspace()?.0);
        }
        Ok(())
    }
}

/// Defines the six functions of a direction. The tensors come in the order of the C function and go on in the order
/// input, filter, output.
macro_rules! direction {
    ($direction:ident, [$a:ident: $of_a:ident, $b:ident: $of_b:ident, $c:ident: $of_c:ident]
     -> [$x:ident, $w:ident, $y:ident], $count:literal,
     $max:ident, [$($plain:ident),+], $find_ex:ident, $size:ident) => {
        /// How many algorithms there are.
        pub fn $max(_handle: *mut c_void, count: Out<'_, i32>) -> Result<()> {
            count.set($count);
            Ok(())
        }

        $(
            /// The algorithm that the heuristics choose; it is also the fastest, for nothing is measured.
            pub fn $plain(
                _handle: *mut c_void,
                $a: Handle<'_, $of_a>,
                $b: Handle<'_, $of_b>,
                convolution: Handle<'_, Convolution>,
                $c: Handle<'_, $of_c>,
                requested: i32,
                returned: Out<'_, i32>,
                results: Out<'_, Performance>,
            ) -> Result<()> {
                Asked { direction: Direction::$direction, x: $x, w: $w, y: $y, convolution }.offer(
                    usize::MAX,
                    requested,
                    returned,
                    results,
                )
            }
        )+

        /// The fastest algorithm within a workspace.
        pub fn $find_ex(
            _handle: *mut c_void,
            $a: Handle<'_, $of_a>,
            _first: *mut c_void,
            $b: Handle<'_, $of_b>,
            _second: *mut c_void,
            convolution: Handle<'_, Convolution>,
            $c: Handle<'_, $of_c>,
            _third: *mut c_void,
            requested: i32,
            returned: Out<'_, i32>,
            results: Out<'_, Performance>,
            _workspace: *mut c_void,
            size: usize,
        ) -> Result<()> {
            Asked { direction: Direction::$direction, x: $x, w: $w, y: $y, convolution }
                .offer(size, requested, returned, results)
        }

        /// The workspace of an algorithm.
        pub fn $size(
            _handle: *mut c_void,
            $a: Handle<'_, $of_a>,
            $b: Handle<'_, $of_b>,
            convolution: Handle<'_, Convolution>,
            $c: Handle<'_, $of_c>,
            algorithm: i32,
            size: Out<'_, usize>,
        ) -> Result<()> {
            Asked { direction: Direction::$direction, x: $x, w: $w, y: $y, convolution }.write(algorithm, size)
        }
    };
}
direction!(
    Forward, [x: Tensor, w: Filter, y: Tensor] -> [x, w, y], 8,
    cudnnGetConvolutionForwardAlgorithmMaxCount,
    [cudnnGetConvolutionForwardAlgorithm_v7, cudnnFindConvolutionForwardAlgorithm],
    cudnnFindConvolutionForwardAlgorithmEx,
    cudnnGetConvolutionForwardWorkspaceSize
);
direction!(
    BackwardData, [w: Filter, dy: Tensor, dx: Tensor] -> [dx, w, dy], 6,
    cudnnGetConvolutionBackwardDataAlgorithmMaxCount,
    [cudnnGetConvolutionBackwardDataAlgorithm_v7, cudnnFindConvolutionBackwardDataAlgorithm],
    cudnnFindConvolutionBackwardDataAlgorithmEx,
    cudnnGetConvolutionBackwardDataWorkspaceSize
);
direction!(
    BackwardFilter, [x: Tensor, dy: Tensor, dw: Filter] -> [x, dw, dy], 7,
    cudnnGetConvolutionBackwardFilterAlgorithmMaxCount,
    [cudnnGetConvolutionBackwardFilterAlgorithm_v7, cudnnFindConvolutionBackwardFilterAlgorithm],
    cudnnFindConvolutionBackwardFilterAlgorithmEx,
    cudnnGetConvolutionBackwardFilterWorkspaceSize
);

//! The convolutions of the older API: descriptors, and the choice of an algorithm. The choice and its workspace are the
//! graph API's, which is asked the same question.

use crate::boundary::put;
use crate::lock::{Mutex, Rank};
use std::collections::BTreeMap;
use std::ffi::c_void;

use super::graph::{self, Question};
use super::object::{self, BAD_PARAM, SUCCESS, descriptor, put_all, take};
use super::tensor::{Filter, MOST_DIMENSIONS, Tensor, tensor};

const CROSS_CORRELATION: i32 = 1;
/// `CUDNN_FMA_MATH`: no tensor cores.
const FMA_MATH: i32 = 3;

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
    math: i32,
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

/// The convolution behind a pointer.
///
/// # Safety
/// As for [`object::get`].
unsafe fn convolution<'a>(address: *mut c_void) -> Option<&'a mut Convolution> {
    // SAFETY: the caller's promise.
    unsafe { object::get(address) }
}

/// Describes a convolution.
pub unsafe fn cudnnSetConvolutionNdDescriptor(
    address: *mut c_void,
    rank: i32,
    padding: *const i32,
    stride: *const i32,
    dilation: *const i32,
    mode: i32,
    kind: i32,
) -> u32 {
    if !(1..=MOST_DIMENSIONS).contains(&rank) || padding.is_null() || stride.is_null() || dilation.is_null() {
        return BAD_PARAM;
    }
    // SAFETY: cuDNN's contract: a descriptor, and arrays of `rank` numbers.
    unsafe {
        let Some(own) = convolution(address) else { return BAD_PARAM };
        own.padding = take(padding, rank);
        own.stride = take(stride, rank);
        own.dilation = take(dilation, rank);
        (own.mode, own.kind) = (mode, kind);
    }
    SUCCESS
}

/// Describes a convolution of images.
pub unsafe fn cudnnSetConvolution2dDescriptor(
    address: *mut c_void,
    pad_h: i32,
    pad_w: i32,
    u: i32,
    v: i32,
    dilation_h: i32,
    dilation_w: i32,
    mode: i32,
    kind: i32,
) -> u32 {
    let (padding, stride, dilation) = ([pad_h, pad_w], [u, v], [dilation_h, dilation_w]);
    // SAFETY: cuDNN's contract for the descriptor; the arrays are local.
    unsafe {
        cudnnSetConvolutionNdDescriptor(address, 2, padding.as_ptr(), stride.as_ptr(), dilation.as_ptr(), mode, kind)
    }
}

/// Reads a convolution back.
pub unsafe fn cudnnGetConvolutionNdDescriptor(
    address: *mut c_void,
    requested: i32,
    rank: *mut i32,
    padding: *mut i32,
    stride: *mut i32,
    dilation: *mut i32,
    mode: *mut i32,
    kind: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor, out-parameters, and arrays of `requested` numbers.
    unsafe {
        let Some(own) = convolution(address) else { return BAD_PARAM };
        put(rank, own.padding.len() as i32);
        put_all(padding, requested, &own.padding);
        put_all(stride, requested, &own.stride);
        put_all(dilation, requested, &own.dilation);
        put(mode, own.mode);
        put(kind, own.kind);
    }
    SUCCESS
}

/// Reads a convolution of images back.
pub unsafe fn cudnnGetConvolution2dDescriptor(
    address: *mut c_void,
    pad_h: *mut i32,
    pad_w: *mut i32,
    u: *mut i32,
    v: *mut i32,
    dilation_h: *mut i32,
    dilation_w: *mut i32,
    mode: *mut i32,
    kind: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: a descriptor and out-parameters.
    unsafe {
        let Some(own) = convolution(address) else { return BAD_PARAM };
        let lists = [(pad_h, pad_w, &own.padding), (u, v, &own.stride), (dilation_h, dilation_w, &own.dilation)];
        for (vertical, horizontal, list) in lists {
            put(vertical, list.first().copied().unwrap_or(0));
            put(horizontal, list.get(1).copied().unwrap_or(0));
        }
        put(mode, own.mode);
        put(kind, own.kind);
    }
    SUCCESS
}

/// Defines a pair of functions for one number of a convolution.
macro_rules! property {
    ($set:ident, $get:ident, $field:ident) => {
        /// Sets one number of a convolution.
        pub unsafe fn $set(address: *mut c_void, value: i32) -> u32 {
            // SAFETY: cuDNN's contract: a descriptor.
            let Some(own) = (unsafe { convolution(address) }) else { return BAD_PARAM };
            own.$field = value;
            SUCCESS
        }

        /// Reads one number of a convolution.
        pub unsafe fn $get(address: *mut c_void, value: *mut i32) -> u32 {
            // SAFETY: cuDNN's contract: a descriptor and an out-parameter.
            unsafe {
                let Some(own) = convolution(address) else { return BAD_PARAM };
                put(value, own.$field);
            }
            SUCCESS
        }
    };
}
property!(cudnnSetConvolutionMathType, cudnnGetConvolutionMathType, math);
property!(cudnnSetConvolutionGroupCount, cudnnGetConvolutionGroupCount, groups);
property!(cudnnSetConvolutionReorderType, cudnnGetConvolutionReorderType, reorder);

/// The sizes of a convolution's result.
pub unsafe fn cudnnGetConvolutionNdForwardOutputDim(
    address: *mut c_void,
    input: *mut c_void,
    filter: *mut c_void,
    rank: i32,
    dimensions: *mut i32,
) -> u32 {
    // SAFETY: cuDNN's contract: descriptors, and an array of `rank` numbers.
    unsafe {
        let (Some(own), Some(x), Some(w)) = (convolution(address), tensor(input), object::get::<Filter>(filter)) else {
            return BAD_PARAM;
        };
        let window = |index: usize| w.dimensions.get(index).copied().unwrap_or(1);
        let sizes: Vec<i32> = (0..usize::try_from(rank).unwrap_or(0))
            .map(|index| match index {
                0 => x.size(0),
                1 => window(0),
                _ => own.output(index - 2, x.size(index), window(index)),
            })
            .collect();
        put_all(dimensions, rank, &sizes);
    }
    SUCCESS
}

/// The sizes of an image convolution's result.
pub unsafe fn cudnnGetConvolution2dForwardOutputDim(
    address: *mut c_void,
    input: *mut c_void,
    filter: *mut c_void,
    n: *mut i32,
    c: *mut i32,
    h: *mut i32,
    w: *mut i32,
) -> u32 {
    let mut sizes = [0_i32; 4];
    // SAFETY: cuDNN's contract: descriptors and out-parameters; the array is local and long enough.
    unsafe {
        let status = cudnnGetConvolutionNdForwardOutputDim(address, input, filter, 4, sizes.as_mut_ptr());
        for (out, size) in [n, c, h, w].into_iter().zip(sizes) {
            put(out, size);
        }
        status
    }
}

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
fn workspace(direction: Direction, x: &Tensor, w: &Tensor, y: &Tensor, own: &Convolution) -> Result<u64, u32> {
    static ANSWERS: Mutex<BTreeMap<Vec<i32>, Result<u64, u32>>> = Mutex::new(Rank::ConvolutionAnswers, BTreeMap::new());
    let operation = match direction {
        Direction::Forward => 10,
        Direction::BackwardFilter => 11,
        Direction::BackwardData => 12,
    };
    let without_tensor_cores = own.math == FMA_MATH;
    let card = i32::try_from(crate::device::current().map_or(0, |device| device.card)).unwrap_or(0);
    let mut key = vec![operation, card, i32::from(without_tensor_cores), own.mode, own.kind];
    let lists = [&own.padding, &own.stride, &own.dilation];
    let tensors = [x, w, y].into_iter().flat_map(|tensor| [&tensor.dimensions, &tensor.strides]);
    for list in lists.into_iter().chain(tensors) {
        key.push(list.len() as i32);
        key.extend_from_slice(list);
    }
    key.extend([x.kind, w.kind, y.kind]);
    if let Some(answer) = ANSWERS.lock().get(&key) {
        return *answer;
    }
    let answer = graph::ask(&Question { operation, x, w, y, convolution: own, without_tensor_cores });
    ANSWERS.lock().insert(key, answer);
    answer
}

/// The tensors of a question, by the pointers that the program gave.
///
/// # Safety
/// Descriptors of tensors, of a filter and of a convolution, or null.
unsafe fn question(
    direction: Direction,
    x: *mut c_void,
    w: *mut c_void,
    y: *mut c_void,
    own: *mut c_void,
) -> Result<(u64, i32), u32> {
    // SAFETY: the caller's promise.
    let found = unsafe { (tensor(x), object::get::<Filter>(w), tensor(y), convolution(own)) };
    let (Some(x), Some(w), Some(y), Some(own)) = found else { return Err(BAD_PARAM) };
    workspace(direction, x, &w.tensor(), y, own).map(|bytes| (bytes, own.math))
}

/// Writes the one algorithm that is offered.
///
/// # Safety
/// As for [`question`], with room for `requested` results.
unsafe fn offer(
    direction: Direction,
    x: *mut c_void,
    w: *mut c_void,
    y: *mut c_void,
    own: *mut c_void,
    requested: i32,
    returned: *mut i32,
    results: *mut Performance,
) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        put(returned, 0);
        if requested < 1 || results.is_null() {
            return BAD_PARAM;
        }
        let (bytes, math) = match question(direction, x, w, y, own) {
            Ok(answer) => answer,
            Err(status) => return status,
        };
        let memory = usize::try_from(bytes).unwrap_or(usize::MAX);
        let time = 1.0;
        let result =
            Performance { algorithm: CHOSEN, status: SUCCESS, time, memory, determinism: 1, math, reserved: [0; 3] };
        put(results, result);
        put(returned, 1);
    }
    SUCCESS
}

/// Writes the workspace of an algorithm.
///
/// # Safety
/// As for [`question`], with an out-parameter.
unsafe fn write(
    direction: Direction,
    tensors: [*mut c_void; 3],
    own: *mut c_void,
    algorithm: i32,
    size: *mut usize,
) -> u32 {
    let [x, w, y] = tensors;
    // SAFETY: the caller's promise.
    unsafe {
        put(size, 0);
        if algorithm == WITHOUT_MEMORY {
            return SUCCESS;
        }
        match question(direction, x, w, y, own) {
            Ok((bytes, _)) => put(size, usize::try_from(bytes).unwrap_or(usize::MAX)),
            Err(status) => return status,
        }
    }
    SUCCESS
}

/// Defines the six functions of a direction. The tensors come in the order of the C function and go on in the order
/// input, filter, output.
macro_rules! direction {
    ($direction:ident, [$a:ident, $b:ident, $c:ident] -> [$x:ident, $w:ident, $y:ident], $count:literal,
     $max:ident, $v7:ident, $find:ident, $find_ex:ident, $size:ident) => {
        /// How many algorithms there are.
        pub unsafe fn $max(_handle: *mut c_void, count: *mut i32) -> u32 {
            // SAFETY: cuDNN's contract: an out-parameter.
            unsafe { put(count, $count) };
            SUCCESS
        }

        /// The algorithm that the heuristics choose.
        pub unsafe fn $v7(
            _handle: *mut c_void,
            $a: *mut c_void,
            $b: *mut c_void,
            own: *mut c_void,
            $c: *mut c_void,
            requested: i32,
            returned: *mut i32,
            results: *mut Performance,
        ) -> u32 {
            // SAFETY: cuDNN's contract: descriptors and room for the results.
            unsafe { offer(Direction::$direction, $x, $w, $y, own, requested, returned, results) }
        }

        /// The fastest algorithm: the one that the heuristics choose, for nothing is measured.
        pub unsafe fn $find(
            _handle: *mut c_void,
            $a: *mut c_void,
            $b: *mut c_void,
            own: *mut c_void,
            $c: *mut c_void,
            requested: i32,
            returned: *mut i32,
            results: *mut Performance,
        ) -> u32 {
            // SAFETY: cuDNN's contract: descriptors and room for the results.
            unsafe { offer(Direction::$direction, $x, $w, $y, own, requested, returned, results) }
        }

        /// The fastest algorithm within a workspace.
        pub unsafe fn $find_ex(
            _handle: *mut c_void,
            $a: *mut c_void,
            _first: *mut c_void,
            $b: *mut c_void,
            _second: *mut c_void,
            own: *mut c_void,
            $c: *mut c_void,
            _third: *mut c_void,
            requested: i32,
            returned: *mut i32,
            results: *mut Performance,
            _workspace: *mut c_void,
            size: usize,
        ) -> u32 {
            // SAFETY: cuDNN's contract: descriptors and room for the results.
            unsafe {
                let status = offer(Direction::$direction, $x, $w, $y, own, requested, returned, results);
                // An algorithm that does not fit gives way to the one without a workspace.
                if status == SUCCESS && results.read_unaligned().memory > size {
                    let first = results.read_unaligned();
                    put(results, Performance { algorithm: WITHOUT_MEMORY, memory: 0, ..first });
                }
                status
            }
        }

        /// The workspace of an algorithm.
        pub unsafe fn $size(
            _handle: *mut c_void,
            $a: *mut c_void,
            $b: *mut c_void,
            own: *mut c_void,
            $c: *mut c_void,
            algorithm: i32,
            size: *mut usize,
        ) -> u32 {
            // SAFETY: cuDNN's contract: descriptors and an out-parameter.
            unsafe { write(Direction::$direction, [$x, $w, $y], own, algorithm, size) }
        }
    };
}
direction!(
    Forward, [x, w, y] -> [x, w, y], 8,
    cudnnGetConvolutionForwardAlgorithmMaxCount,
    cudnnGetConvolutionForwardAlgorithm_v7,
    cudnnFindConvolutionForwardAlgorithm,
    cudnnFindConvolutionForwardAlgorithmEx,
    cudnnGetConvolutionForwardWorkspaceSize
);
direction!(
    BackwardData, [w, dy, dx] -> [dx, w, dy], 6,
    cudnnGetConvolutionBackwardDataAlgorithmMaxCount,
    cudnnGetConvolutionBackwardDataAlgorithm_v7,
    cudnnFindConvolutionBackwardDataAlgorithm,
    cudnnFindConvolutionBackwardDataAlgorithmEx,
    cudnnGetConvolutionBackwardDataWorkspaceSize
);
direction!(
    BackwardFilter, [x, dy, dw] -> [x, dw, dy], 7,
    cudnnGetConvolutionBackwardFilterAlgorithmMaxCount,
    cudnnGetConvolutionBackwardFilterAlgorithm_v7,
    cudnnFindConvolutionBackwardFilterAlgorithm,
    cudnnFindConvolutionBackwardFilterAlgorithmEx,
    cudnnGetConvolutionBackwardFilterWorkspaceSize
);

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

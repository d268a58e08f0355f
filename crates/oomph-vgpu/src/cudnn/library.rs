//! The library itself: its version, its handles, its errors.

use std::ffi::{CStr, c_char, c_void};

use super::backend::{self, Source};
use super::object::{self, BAD_PARAM, NOT_INITIALIZED, Object, SUCCESS};
use super::real;
use crate::boundary::put;
use crate::device;

/// A library handle. Only its stream can be read back.
struct Handle {
    stream: *mut c_void,
}

impl Object for Handle {
    const KIND: u64 = 60;
}

/// Makes a handle.
pub unsafe fn cudnnCreate(out: *mut *mut c_void) -> u32 {
    // A program makes its context with this call at the latest, as cuDNN's own calls to the runtime would.
    if device::activate_current().is_err() {
        // SAFETY: cuDNN's contract: an out-parameter.
        unsafe { put(out, std::ptr::null_mut()) };
        return NOT_INITIALIZED;
    }
    // SAFETY: cuDNN's contract: an out-parameter.
    unsafe { object::create(out, Handle { stream: std::ptr::null_mut() }) }
}

/// Ends a handle.
pub unsafe fn cudnnDestroy(handle: *mut c_void) -> u32 {
    // SAFETY: cuDNN's contract: a handle that is not used again.
    unsafe { object::destroy::<Handle>(handle) }
}

/// Sets the stream that work goes to.
pub unsafe fn cudnnSetStream(handle: *mut c_void, stream: *mut c_void) -> u32 {
    // SAFETY: cuDNN's contract: a handle.
    let Some(own) = (unsafe { object::get::<Handle>(handle) }) else { return BAD_PARAM };
    own.stream = stream;
    SUCCESS
}

/// Reads the stream back.
pub unsafe fn cudnnGetStream(handle: *mut c_void, stream: *mut *mut c_void) -> u32 {
    // SAFETY: cuDNN's contract: a handle and an out-parameter.
    unsafe {
        let Some(own) = object::get::<Handle>(handle) else { return BAD_PARAM };
        put(stream, own.stream);
    }
    SUCCESS
}

/// The version, as one number.
pub unsafe fn cudnnGetVersion() -> usize {
    real::version()
}

/// The CUDA runtime inside the library: frameworks only print it.
pub unsafe fn cudnnGetCudartVersion() -> usize {
    real::runtime_version()
}

/// The newest compute capability that the library knows: newer than any card of the catalogue, because a program asks
/// in order to refuse.
pub unsafe fn cudnnGetMaxDeviceVersion() -> usize {
    1210
}

/// A part of the version.
pub unsafe fn cudnnGetProperty(property: i32, value: *mut i32) -> u32 {
    let version = real::version();
    // Since 9 the major version counts 10,000, before that 1,000.
    let major = if version >= 90_000 { 10_000 } else { 1000 };
    let part = match property {
        0 => version / major,
        1 => version % major / 100,
        2 => version % 100,
        _ => return BAD_PARAM,
    };
    // SAFETY: cuDNN's contract: an out-parameter.
    unsafe { put(value, i32::try_from(part).unwrap_or(0)) };
    SUCCESS
}

/// The name of a status.
pub unsafe fn cudnnGetErrorString(status: i32) -> *const c_char {
    name(status).as_ptr()
}

/// The names of statuses. cuDNN 9 numbers them anew, in thousands.
fn name(status: i32) -> &'static CStr {
    match status {
        0 => c"CUDNN_STATUS_SUCCESS",
        1 | 1001 => c"CUDNN_STATUS_NOT_INITIALIZED",
        2 | 4003 => c"CUDNN_STATUS_ALLOC_FAILED",
        3 | 2000 => c"CUDNN_STATUS_BAD_PARAM",
        4 | 4000 => c"CUDNN_STATUS_INTERNAL_ERROR",
        5 | 2001 => c"CUDNN_STATUS_INVALID_VALUE",
        6 | 3007 => c"CUDNN_STATUS_ARCH_MISMATCH",
        7 | 4006 => c"CUDNN_STATUS_MAPPING_ERROR",
        8 | 5000 => c"CUDNN_STATUS_EXECUTION_FAILED",
        9 | 3000 => c"CUDNN_STATUS_NOT_SUPPORTED",
        10 => c"CUDNN_STATUS_LICENSE_ERROR",
        11 | 3008 => c"CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING",
        1002 => c"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        1003 => c"CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH",
        1004 => c"CUDNN_STATUS_DEPRECATED",
        1005 => c"CUDNN_STATUS_LICENSE_ERROR",
        1008 => c"CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
        2002 => c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER",
        2003 => c"CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER",
        2004 => c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED",
        2005 => c"CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND",
        2006 => c"CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT",
        2007 => c"CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH",
        2008 => c"CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH",
        2009 => c"CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES",
        2010 => c"CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE",
        2011 => c"CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH",
        2012 => c"CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE",
        3001 => c"CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN",
        3002 => c"CUDNN_STATUS_NOT_SUPPORTED_SHAPE",
        3003 => c"CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE",
        3004 => c"CUDNN_STATUS_NOT_SUPPORTED_LAYOUT",
        3005 => c"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER",
        3006 => c"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART",
        3009 => c"CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE",
        3010 => c"CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT",
        3011 => c"CUDNN_STATUS_NOT_SUPPORTED_PADDING",
        3012 => c"CUDNN_STATUS_NOT_SUPPORTED_BAD_LAUNCH_PARAM",
        3013 => c"CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API",
        4001 => c"CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED",
        4002 => c"CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE",
        4004 => c"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        4005 => c"CUDNN_STATUS_INTERNAL_ERROR_BAD_LAUNCH_PARAM",
        _ => c"CUDNN_UNKNOWN_STATUS",
    }
}

/// What went wrong last: the real library's own words, for its are the only refusals that need any.
pub unsafe fn cudnnGetLastErrorString(message: *mut c_char, size: usize) {
    if message.is_null() || size == 0 {
        return;
    }
    if let Source::Real(real) = backend::source() {
        // SAFETY: cuDNN's contract: room for `size` bytes.
        if unsafe { real.write_last_error(message, size) } {
            return;
        }
    }
    // SAFETY: there is room for at least one byte.
    unsafe { message.write(0) };
}

/// What a kernel ran into: nothing.
pub unsafe fn cudnnQueryRuntimeError(_handle: *mut c_void, status: *mut i32, _mode: i32, _tag: *mut c_void) -> u32 {
    // SAFETY: cuDNN's contract: an out-parameter.
    unsafe { put(status, 0) };
    SUCCESS
}

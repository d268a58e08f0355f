//! The library itself: its version, its handles, its errors.

#![deny(unsafe_code)]

use std::ffi::{CStr, c_void};

use super::object::{self, Handle, Kind, change, known};
use super::source::{source, warn};
use crate::boundary::{Out, Room};
use crate::gpu::gpu;
use crate::libcudnn::status::{CudnnStatus, Result};
use crate::libcudnn::{Source, real};
use crate::{device, holdings};

/// What a library handle holds. Only its stream can be read back.
pub struct Library {
    stream: *mut c_void,
    /// The card that it was made on, and bytes that are charged for it.
    charged: (usize, u64),
}

impl Drop for Library {
    fn drop(&mut self) {
        let (card, bytes) = self.charged;
        if bytes > 0 {
            gpu().release(card, oomph_ledger::Kind::Library, bytes);
        }
    }
}

impl Kind for Library {
    const KIND: u64 = 60;
}

/// Makes a handle.
pub fn cudnnCreate(out: Out<'_, *mut c_void>) -> Result<()> {
    // A program makes its context with this call at the latest, as cuDNN's own calls to the runtime would.
    let Ok(device) = device::activate_current() else {
        out.set(std::ptr::null_mut());
        return Err(CudnnStatus::NOT_INITIALIZED);
    };
    let bytes = holdings::of(device.description).cudnn;
    if bytes > 0 && !gpu().charge(device.card, oomph_ledger::Kind::Library, bytes) {
        out.set(std::ptr::null_mut());
        return Err(CudnnStatus::DEVICE_ALLOCATION_FAILED);
    }
    object::create(out, Library { stream: std::ptr::null_mut(), charged: (device.card, bytes) })
}

/// Ends a handle.
pub fn cudnnDestroy(handle: Handle<'_, Library>) -> Result<()> {
    object::destroy(handle)
}

/// Sets the stream that work goes to.
pub fn cudnnSetStream(mut handle: Handle<'_, Library>, stream: *mut c_void) -> Result<()> {
    change(&mut handle)?.stream = stream;
    Ok(())
}

/// Reads the stream back.
pub fn cudnnGetStream(handle: Handle<'_, Library>, stream: Out<'_, *mut c_void>) -> Result<()> {
    stream.set(known(&handle)?.stream);
    Ok(())
}

/// The version, as one number.
pub fn cudnnGetVersion() -> usize {
    gpu().cudnn.libraries.version(warn)
}

/// The CUDA runtime inside the library: frameworks only print it.
pub fn cudnnGetCudartVersion() -> usize {
    real::runtime_version()
}

/// The newest compute capability that the library knows: newer than any card of the catalogue, because a program asks
/// in order to refuse.
pub fn cudnnGetMaxDeviceVersion() -> usize {
    1210
}

/// A part of the version.
pub fn cudnnGetProperty(property: i32, value: Out<'_, i32>) -> Result<()> {
    let version = gpu().cudnn.libraries.version(warn);
    // Since 9 the major version counts 10,000, before that 1,000.
    let major = if version >= 90_000 { 10_000 } else { 1000 };
    let part = match property {
        0 => version / major,
        1 => version % major / 100,
        2 => version % 100,
        _ => return Err(CudnnStatus::BAD_PARAM),
    };
    value.set(i32::try_from(part).unwrap_or(0));
    Ok(())
}

/// The name of a status. cuDNN 9 numbers them anew, in thousands.
pub fn cudnnGetErrorString(status: i32) -> &'static CStr {
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
pub fn cudnnGetLastErrorString(message: Room<'_, u8>, _size: usize) {
    if message.is_null() || message.count() == 0 {
        return;
    }
    if let Source::Real(real) = source()
        && real.write_last_error(message)
    {
        return;
    }
    message.set(0, 0);
}

/// What a kernel ran into: nothing.
pub fn cudnnQueryRuntimeError(_handle: *mut c_void, status: Out<'_, i32>, _mode: i32, _tag: *mut c_void) -> Result<()> {
    status.set(0);
    Ok(())
}

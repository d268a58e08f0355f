//! Statuses of the driver API (`CUresult`) and of the runtime API (`cudaError_t`), which number alike all that are used
//! here.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

use crate::boundary::{Status, statuses};

statuses! {
    /// Why a call is refused that both APIs offer.
    pub CudaStatus {
        /// An argument is out of range.
        INVALID_VALUE = 1,
        /// The card cannot hold the request.
        OUT_OF_MEMORY = 2,
        /// The driver was not made ready in this process, or in the one that it was forked from.
        NOT_INITIALIZED = 3,
        /// There is no card.
        NO_DEVICE = 100,
        /// No card has this ordinal.
        INVALID_DEVICE = 101,
        /// The image of a module cannot be read.
        INVALID_IMAGE = 200,
        /// No context is current.
        INVALID_CONTEXT = 201,
        /// `CUDA_ERROR_FILE_NOT_FOUND`.
        FILE_NOT_FOUND = 301,
        /// A handle is not one that was handed out.
        INVALID_HANDLE = 400,
        /// A name is unknown.
        NOT_FOUND = 500,
        /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
        PEER_ACCESS_UNSUPPORTED = 217,
        /// Peer access is on already.
        PEER_ACCESS_ALREADY_ENABLED = 704,
        /// The virtual GPU does not do this.
        NOT_SUPPORTED = 801,
        /// The call is not permitted while a stream is capturing.
        CAPTURE_UNSUPPORTED = 900,
        /// The capture was invalidated by an earlier error.
        CAPTURE_INVALIDATED = 901,
        /// The capture was not begun on this stream.
        CAPTURE_UNMATCHED = 903,
    }
}

/// Defines the status type of an API whose numbers are those of [`CudaStatus`].
macro_rules! of_api {
    ($(#[$doc:meta])* $name:ident { $($remember:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(CudaStatus);

        impl $name {
            /// CUDA was not made ready in this process, or in the one that it was forked from.
            pub const NOT_INITIALIZED: $name = $name(CudaStatus::NOT_INITIALIZED);
        }

        impl From<CudaStatus> for $name {
            fn from(status: CudaStatus) -> $name {
                $name(status)
            }
        }

        impl Status for $name {
            fn number(self) -> u32 {
                self.0.number()
            }

            $($remember)*
        }
    };
}
of_api! {
    /// `CUresult`
    DriverStatus {}
}
of_api! {
    /// `cudaError_t`. The runtime remembers the last failure of each thread.
    RuntimeStatus {
        #[cold]
        fn remember(self) {
            LAST_FAILURE.set(Some(self));
        }
    }
}

thread_local! {
    // `cudaGetLastError` answers for its thread. `const` and without a destructor, so that a thread's end runs no code of
    // this library.
    static LAST_FAILURE: Cell<Option<RuntimeStatus>> = const { Cell::new(None) };
}

/// The last failure of the runtime in this thread.
pub fn last_failure() -> Option<RuntimeStatus> {
    LAST_FAILURE.get()
}

/// The last failure of the runtime in this thread, which is then forgotten.
pub fn take_last_failure() -> Option<RuntimeStatus> {
    LAST_FAILURE.take()
}

/// The driver's name of a code.
pub fn driver_name(code: c_int) -> &'static CStr {
    match CudaStatus(code as u32) {
        CudaStatus(0) => c"CUDA_SUCCESS",
        CudaStatus::INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        CudaStatus::OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        CudaStatus::NOT_INITIALIZED => c"CUDA_ERROR_NOT_INITIALIZED",
        CudaStatus::NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        CudaStatus::INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        CudaStatus::INVALID_IMAGE => c"CUDA_ERROR_INVALID_IMAGE",
        CudaStatus::INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        CudaStatus::INVALID_HANDLE => c"CUDA_ERROR_INVALID_HANDLE",
        CudaStatus::NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        CudaStatus(600) => c"CUDA_ERROR_NOT_READY",
        CudaStatus::PEER_ACCESS_ALREADY_ENABLED => c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        CudaStatus::NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        CudaStatus::CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        CudaStatus::CAPTURE_INVALIDATED => c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        CudaStatus::CAPTURE_UNMATCHED => c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        _ => c"CUDA_ERROR_UNKNOWN",
    }
}

/// The runtime's name of a code.
pub fn runtime_name(code: c_int) -> &'static CStr {
    match CudaStatus(code as u32) {
        CudaStatus(0) => c"cudaSuccess",
        CudaStatus::INVALID_VALUE => c"cudaErrorInvalidValue",
        CudaStatus::OUT_OF_MEMORY => c"cudaErrorMemoryAllocation",
        CudaStatus::NOT_INITIALIZED => c"cudaErrorInitializationError",
        CudaStatus::NO_DEVICE => c"cudaErrorNoDevice",
        CudaStatus::INVALID_DEVICE => c"cudaErrorInvalidDevice",
        CudaStatus(98) => c"cudaErrorInvalidDeviceFunction",
        CudaStatus::INVALID_IMAGE => c"cudaErrorInvalidKernelImage",
        CudaStatus::INVALID_CONTEXT => c"cudaErrorDeviceUninitialized",
        CudaStatus::INVALID_HANDLE => c"cudaErrorInvalidResourceHandle",
        CudaStatus::NOT_FOUND => c"cudaErrorSymbolNotFound",
        CudaStatus(600) => c"cudaErrorNotReady",
        CudaStatus::PEER_ACCESS_ALREADY_ENABLED => c"cudaErrorPeerAccessAlreadyEnabled",
        CudaStatus::NOT_SUPPORTED => c"cudaErrorNotSupported",
        CudaStatus::CAPTURE_UNSUPPORTED => c"cudaErrorStreamCaptureUnsupported",
        CudaStatus::CAPTURE_INVALIDATED => c"cudaErrorStreamCaptureInvalidated",
        CudaStatus::CAPTURE_UNMATCHED => c"cudaErrorStreamCaptureUnmatched",
        _ => c"cudaErrorUnknown",
    }
}

/// What a code means. Frameworks match "out of memory".
pub fn text(code: c_int) -> &'static CStr {
    match CudaStatus(code as u32) {
        CudaStatus(0) => c"no error",
        CudaStatus::INVALID_VALUE => c"invalid argument",
        CudaStatus::OUT_OF_MEMORY => c"out of memory",
        CudaStatus::NOT_INITIALIZED => c"initialization error",
        CudaStatus::NO_DEVICE => c"no CUDA-capable device is detected",
        CudaStatus::INVALID_DEVICE => c"invalid device ordinal",
        CudaStatus(98) => c"invalid device function",
        CudaStatus::INVALID_IMAGE => c"device kernel image is invalid",
        CudaStatus::INVALID_CONTEXT => c"invalid device context",
        CudaStatus::FILE_NOT_FOUND => c"file not found",
        CudaStatus::INVALID_HANDLE => c"invalid resource handle",
        CudaStatus::NOT_FOUND => c"named symbol not found",
        CudaStatus(600) => c"device not ready",
        CudaStatus::PEER_ACCESS_ALREADY_ENABLED => c"peer access is already enabled",
        CudaStatus::NOT_SUPPORTED => c"operation not supported",
        CudaStatus::CAPTURE_UNSUPPORTED => c"operation not permitted when stream is capturing",
        CudaStatus::CAPTURE_INVALIDATED => c"operation failed due to a previous error during capture",
        CudaStatus::CAPTURE_UNMATCHED => c"capture was not initiated in this stream",
        _ => c"unknown error",
    }
}

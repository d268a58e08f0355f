//! Status codes. The driver's `CUresult` and the runtime's `cudaError_t` agree on all that are used here.

/// Success.
pub const SUCCESS: u32 = 0;
/// An argument is out of range.
pub const INVALID_VALUE: u32 = 1;
/// The card cannot hold the request.
pub const OUT_OF_MEMORY: u32 = 2;
/// The driver was not made ready in this process, or in the one that it was forked from.
pub const NOT_INITIALIZED: u32 = 3;
/// There is no card.
pub const NO_DEVICE: u32 = 100;
/// No card has this ordinal.
pub const INVALID_DEVICE: u32 = 101;
/// The image of a module cannot be read.
pub const INVALID_IMAGE: u32 = 200;
/// No context is current.
pub const INVALID_CONTEXT: u32 = 201;
/// `CUDA_ERROR_FILE_NOT_FOUND`.
pub const FILE_NOT_FOUND: u32 = 301;
/// A handle is not one that was handed out.
pub const INVALID_HANDLE: u32 = 400;
/// A name is unknown.
pub const NOT_FOUND: u32 = 500;
/// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
pub const PEER_ACCESS_UNSUPPORTED: u32 = 217;
/// Peer access is on already.
pub const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
/// The virtual GPU does not do this.
pub const NOT_SUPPORTED: u32 = 801;
/// The call is not permitted while a stream is capturing.
pub const CAPTURE_UNSUPPORTED: u32 = 900;
/// The capture was invalidated by an earlier error.
pub const CAPTURE_INVALIDATED: u32 = 901;
/// The capture was not begun on this stream.
pub const CAPTURE_UNMATCHED: u32 = 903;

/// The driver's name of a code, zero-terminated.
pub fn driver_name(code: u32) -> &'static [u8] {
    match code {
        SUCCESS => b"CUDA_SUCCESS\0",
        INVALID_VALUE => b"CUDA_ERROR_INVALID_VALUE\0",
        OUT_OF_MEMORY => b"CUDA_ERROR_OUT_OF_MEMORY\0",
        NOT_INITIALIZED => b"CUDA_ERROR_NOT_INITIALIZED\0",
        NO_DEVICE => b"CUDA_ERROR_NO_DEVICE\0",
        INVALID_DEVICE => b"CUDA_ERROR_INVALID_DEVICE\0",
        INVALID_IMAGE => b"CUDA_ERROR_INVALID_IMAGE\0",
        INVALID_CONTEXT => b"CUDA_ERROR_INVALID_CONTEXT\0",
        INVALID_HANDLE => b"CUDA_ERROR_INVALID_HANDLE\0",
        NOT_FOUND => b"CUDA_ERROR_NOT_FOUND\0",
        600 => b"CUDA_ERROR_NOT_READY\0",
        PEER_ACCESS_ALREADY_ENABLED => b"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED\0",
        NOT_SUPPORTED => b"CUDA_ERROR_NOT_SUPPORTED\0",
        CAPTURE_UNSUPPORTED => b"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\0",
        CAPTURE_INVALIDATED => b"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED\0",
        CAPTURE_UNMATCHED => b"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED\0",
        _ => b"CUDA_ERROR_UNKNOWN\0",
    }
}

/// The runtime's name of a code, zero-terminated.
pub fn runtime_name(code: u32) -> &'static [u8] {
    match code {
        SUCCESS => b"cudaSuccess\0",
        INVALID_VALUE => b"cudaErrorInvalidValue\0",
        OUT_OF_MEMORY => b"cudaErrorMemoryAllocation\0",
        NOT_INITIALIZED => b"cudaErrorInitializationError\0",
        NO_DEVICE => b"cudaErrorNoDevice\0",
        INVALID_DEVICE => b"cudaErrorInvalidDevice\0",
        98 => b"cudaErrorInvalidDeviceFunction\0",
        INVALID_IMAGE => b"cudaErrorInvalidKernelImage\0",
        INVALID_CONTEXT => b"cudaErrorDeviceUninitialized\0",
        INVALID_HANDLE => b"cudaErrorInvalidResourceHandle\0",
        NOT_FOUND => b"cudaErrorSymbolNotFound\0",
        600 => b"cudaErrorNotReady\0",
        PEER_ACCESS_ALREADY_ENABLED => b"cudaErrorPeerAccessAlreadyEnabled\0",
        NOT_SUPPORTED => b"cudaErrorNotSupported\0",
        CAPTURE_UNSUPPORTED => b"cudaErrorStreamCaptureUnsupported\0",
        CAPTURE_INVALIDATED => b"cudaErrorStreamCaptureInvalidated\0",
        CAPTURE_UNMATCHED => b"cudaErrorStreamCaptureUnmatched\0",
        _ => b"cudaErrorUnknown\0",
    }
}

/// What a code means, zero-terminated. Frameworks match "out of memory".
pub fn text(code: u32) -> &'static [u8] {
    match code {
        SUCCESS => b"no error\0",
        INVALID_VALUE => b"invalid argument\0",
        OUT_OF_MEMORY => b"out of memory\0",
        NOT_INITIALIZED => b"initialization error\0",
        NO_DEVICE => b"no CUDA-capable device is detected\0",
        INVALID_DEVICE => b"invalid device ordinal\0",
        98 => b"invalid device function\0",
        INVALID_IMAGE => b"device kernel image is invalid\0",
        INVALID_CONTEXT => b"invalid device context\0",
        FILE_NOT_FOUND => b"file not found\0",
        INVALID_HANDLE => b"invalid resource handle\0",
        NOT_FOUND => b"named symbol not found\0",
        600 => b"device not ready\0",
        PEER_ACCESS_ALREADY_ENABLED => b"peer access is already enabled\0",
        NOT_SUPPORTED => b"operation not supported\0",
        CAPTURE_UNSUPPORTED => b"operation not permitted when stream is capturing\0",
        CAPTURE_INVALIDATED => b"operation failed due to a previous error during capture\0",
        CAPTURE_UNMATCHED => b"capture was not initiated in this stream\0",
        _ => b"unknown error\0",
    }
}

//! The error codes of CUDA 13: their names in both APIs and what they mean.
//!
//! The names are those of the public headers. Frameworks and `oomph explain` match the texts, so those that a driver was
//! asked for are the driver's own, to the letter.

use std::ffi::{CStr, c_int};

/// A code, its name in the driver API, its name in the runtime API, and what it means.
type Code = (c_int, Option<&'static CStr>, Option<&'static CStr>, &'static CStr);

/// What the runtime API says of a number that is not a code.
const UNRECOGNIZED: &CStr = c"unrecognized error code";

fn find(code: c_int) -> Option<&'static Code> {
    CODES.binary_search_by_key(&code, |(known, ..)| *known).ok().and_then(|at| CODES.get(at))
}

/// The driver's name of a code, and what it means; `None` for a number that the driver API does not use.
pub fn of_driver(code: c_int) -> Option<(&'static CStr, &'static CStr)> {
    let (_, name, _, text) = find(code)?;
    name.map(|name| (name, *text))
}

/// The runtime's name of a code, and what it means.
pub fn of_runtime(code: c_int) -> (&'static CStr, &'static CStr) {
    match find(code) {
        Some((_, _, Some(name), text)) => (name, text),
        _ => (UNRECOGNIZED, UNRECOGNIZED),
    }
}

/// Sorted by code.
#[rustfmt::skip]
const CODES: &[Code] = &[
    (0, Some(c"CUDA_SUCCESS"), Some(c"cudaSuccess"), c"no error"),
    (1, Some(c"CUDA_ERROR_INVALID_VALUE"), Some(c"cudaErrorInvalidValue"), c"invalid argument"),
    (2, Some(c"CUDA_ERROR_OUT_OF_MEMORY"), Some(c"cudaErrorMemoryAllocation"), c"out of memory"),
    (3, Some(c"CUDA_ERROR_NOT_INITIALIZED"), Some(c"cudaErrorInitializationError"), c"initialization error"),
    (4, Some(c"CUDA_ERROR_DEINITIALIZED"), Some(c"cudaErrorCudartUnloading"), c"driver shutting down"),
    (5, Some(c"CUDA_ERROR_PROFILER_DISABLED"), Some(c"cudaErrorProfilerDisabled"), c"profiler disabled while using external profiling tool"),
    (6, Some(c"CUDA_ERROR_PROFILER_NOT_INITIALIZED"), Some(c"cudaErrorProfilerNotInitialized"), c"profiler not initialized: call cudaProfilerInitialize()"),
    (7, Some(c"CUDA_ERROR_PROFILER_ALREADY_STARTED"), Some(c"cudaErrorProfilerAlreadyStarted"), c"profiler already started"),
    (8, Some(c"CUDA_ERROR_PROFILER_ALREADY_STOPPED"), Some(c"cudaErrorProfilerAlreadyStopped"), c"profiler already stopped"),
    (9, None, Some(c"cudaErrorInvalidConfiguration"), c"invalid configuration argument"),
    (12, None, Some(c"cudaErrorInvalidPitchValue"), c"invalid pitch argument"),
    (13, None, Some(c"cudaErrorInvalidSymbol"), c"invalid device symbol"),
    (16, None, Some(c"cudaErrorInvalidHostPointer"), c"invalid host pointer"),
    (17, None, Some(c"cudaErrorInvalidDevicePointer"), c"invalid device pointer"),
    (18, None, Some(c"cudaErrorInvalidTexture"), c"invalid texture reference"),
    (19, None, Some(c"cudaErrorInvalidTextureBinding"), c"texture is not bound to a pointer"),
    (20, None, Some(c"cudaErrorInvalidChannelDescriptor"), c"invalid channel descriptor"),
    (21, None, Some(c"cudaErrorInvalidMemcpyDirection"), c"invalid copy direction for memcpy"),
    (22, None, Some(c"cudaErrorAddressOfConstant"), c"address of a constant"),
    (23, None, Some(c"cudaErrorTextureFetchFailed"), c"fetch from texture failed"),
    (24, None, Some(c"cudaErrorTextureNotBound"), c"cannot fetch from a texture that is not bound"),
    (25, None, Some(c"cudaErrorSynchronizationError"), c"incorrect use of __syncthreads()"),
    (26, None, Some(c"cudaErrorInvalidFilterSetting"), c"linear filtering not supported for non-float type"),
    (27, None, Some(c"cudaErrorInvalidNormSetting"), c"read as normalized float not supported for 32-bit non float type"),
    (28, None, Some(c"cudaErrorMixedDeviceExecution"), c"device emulation mode and device execution mode cannot be mixed"),
    (31, None, Some(c"cudaErrorNotYetImplemented"), c"feature not yet implemented"),
    (32, None, Some(c"cudaErrorMemoryValueTooLarge"), c"memory size or pointer value too large to fit in 32 bit"),
    (34, Some(c"CUDA_ERROR_STUB_LIBRARY"), Some(c"cudaErrorStubLibrary"), c"CUDA driver is a stub library"),
    (35, None, Some(c"cudaErrorInsufficientDriver"), c"CUDA driver version is insufficient for CUDA runtime version"),
    (36, Some(c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"), Some(c"cudaErrorCallRequiresNewerDriver"), c"API call is not supported in the installed CUDA driver"),
    (37, None, Some(c"cudaErrorInvalidSurface"), c"invalid surface reference"),
    (43, None, Some(c"cudaErrorDuplicateVariableName"), c"duplicate global variable looked up by string name"),
    (44, None, Some(c"cudaErrorDuplicateTextureName"), c"duplicate texture looked up by string name"),
    (45, None, Some(c"cudaErrorDuplicateSurfaceName"), c"duplicate surface looked up by string name"),
    (46, Some(c"CUDA_ERROR_DEVICE_UNAVAILABLE"), Some(c"cudaErrorDevicesUnavailable"), c"CUDA-capable device(s) is/are busy or unavailable"),
    (49, None, Some(c"cudaErrorIncompatibleDriverContext"), c"incompatible driver context"),
    (52, None, Some(c"cudaErrorMissingConfiguration"), c"__global__ function call is not configured"),
    (53, None, Some(c"cudaErrorPriorLaunchFailure"), c"unspecified launch failure in prior launch"),
    (65, None, Some(c"cudaErrorLaunchMaxDepthExceeded"), c"launch would exceed maximum depth of nested launches"),
    (66, None, Some(c"cudaErrorLaunchFileScopedTex"), c"launch failed because kernel uses unsupported, file-scoped textures"),
    (67, None, Some(c"cudaErrorLaunchFileScopedSurf"), c"launch failed because kernel uses unsupported, file-scoped surfaces"),
    (68, None, Some(c"cudaErrorSyncDepthExceeded"), c"cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth"),
    (69, None, Some(c"cudaErrorLaunchPendingCountExceeded"), c"launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount"),
    (98, None, Some(c"cudaErrorInvalidDeviceFunction"), c"invalid device function"),
    (100, Some(c"CUDA_ERROR_NO_DEVICE"), Some(c"cudaErrorNoDevice"), c"no CUDA-capable device is detected"),
    (101, Some(c"CUDA_ERROR_INVALID_DEVICE"), Some(c"cudaErrorInvalidDevice"), c"invalid device ordinal"),
    (102, Some(c"CUDA_ERROR_DEVICE_NOT_LICENSED"), Some(c"cudaErrorDeviceNotLicensed"), c"device is not licensed"),
    (103, None, Some(c"cudaErrorSoftwareValidityNotEstablished"), c"integrity checks failed"),
    (127, None, Some(c"cudaErrorStartupFailure"), c"startup failure in cuda runtime"),
    (200, Some(c"CUDA_ERROR_INVALID_IMAGE"), Some(c"cudaErrorInvalidKernelImage"), c"device kernel image is invalid"),
    (201, Some(c"CUDA_ERROR_INVALID_CONTEXT"), Some(c"cudaErrorDeviceUninitialized"), c"invalid device context"),
    (202, Some(c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT"), None, c"context already current"),
    (205, Some(c"CUDA_ERROR_MAP_FAILED"), Some(c"cudaErrorMapBufferObjectFailed"), c"mapping of buffer object failed"),
    (206, Some(c"CUDA_ERROR_UNMAP_FAILED"), Some(c"cudaErrorUnmapBufferObjectFailed"), c"unmapping of buffer object failed"),
    (207, Some(c"CUDA_ERROR_ARRAY_IS_MAPPED"), Some(c"cudaErrorArrayIsMapped"), c"array is mapped"),
    (208, Some(c"CUDA_ERROR_ALREADY_MAPPED"), Some(c"cudaErrorAlreadyMapped"), c"resource already mapped"),
    (209, Some(c"CUDA_ERROR_NO_BINARY_FOR_GPU"), Some(c"cudaErrorNoKernelImageForDevice"), c"no kernel image is available for execution on the device"),
    (210, Some(c"CUDA_ERROR_ALREADY_ACQUIRED"), Some(c"cudaErrorAlreadyAcquired"), c"resource already acquired"),
    (211, Some(c"CUDA_ERROR_NOT_MAPPED"), Some(c"cudaErrorNotMapped"), c"resource not mapped"),
    (212, Some(c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY"), Some(c"cudaErrorNotMappedAsArray"), c"resource not mapped as array"),
    (213, Some(c"CUDA_ERROR_NOT_MAPPED_AS_POINTER"), Some(c"cudaErrorNotMappedAsPointer"), c"resource not mapped as pointer"),
    (214, Some(c"CUDA_ERROR_ECC_UNCORRECTABLE"), Some(c"cudaErrorECCUncorrectable"), c"uncorrectable ECC error encountered"),
    (215, Some(c"CUDA_ERROR_UNSUPPORTED_LIMIT"), Some(c"cudaErrorUnsupportedLimit"), c"limit is not supported on this architecture"),
    (216, Some(c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE"), Some(c"cudaErrorDeviceAlreadyInUse"), c"exclusive-thread device already in use by a different thread"),
    (217, Some(c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"), Some(c"cudaErrorPeerAccessUnsupported"), c"peer access is not supported between these two devices"),
    (218, Some(c"CUDA_ERROR_INVALID_PTX"), Some(c"cudaErrorInvalidPtx"), c"a PTX JIT compilation failed"),
    (219, Some(c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT"), Some(c"cudaErrorInvalidGraphicsContext"), c"invalid OpenGL or DirectX context"),
    (220, Some(c"CUDA_ERROR_NVLINK_UNCORRECTABLE"), Some(c"cudaErrorNvlinkUncorrectable"), c"uncorrectable NVLink error detected during the execution"),
    (221, Some(c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND"), Some(c"cudaErrorJitCompilerNotFound"), c"PTX JIT compiler library not found"),
    (222, Some(c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), Some(c"cudaErrorUnsupportedPtxVersion"), c"the provided PTX was compiled with an unsupported toolchain."),
    (223, Some(c"CUDA_ERROR_JIT_COMPILATION_DISABLED"), Some(c"cudaErrorJitCompilationDisabled"), c"PTX JIT compilation was disabled"),
    (224, Some(c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY"), Some(c"cudaErrorUnsupportedExecAffinity"), c"the provided execution affinity is not supported"),
    (225, Some(c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC"), Some(c"cudaErrorUnsupportedDevSideSync"), c"the provided PTX contains unsupported call to cudaDeviceSynchronize"),
    (226, Some(c"CUDA_ERROR_CONTAINED"), Some(c"cudaErrorContained"), c"a contained error was encountered"),
    (300, Some(c"CUDA_ERROR_INVALID_SOURCE"), Some(c"cudaErrorInvalidSource"), c"device kernel image is invalid"),
    (301, Some(c"CUDA_ERROR_FILE_NOT_FOUND"), Some(c"cudaErrorFileNotFound"), c"file not found"),
    (302, Some(c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"), Some(c"cudaErrorSharedObjectSymbolNotFound"), c"shared object symbol not found"),
    (303, Some(c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"), Some(c"cudaErrorSharedObjectInitFailed"), c"shared object initialization failed"),
    (304, Some(c"CUDA_ERROR_OPERATING_SYSTEM"), Some(c"cudaErrorOperatingSystem"), c"OS call failed or operation not supported on this OS"),
    (400, Some(c"CUDA_ERROR_INVALID_HANDLE"), Some(c"cudaErrorInvalidResourceHandle"), c"invalid resource handle"),
    (401, Some(c"CUDA_ERROR_ILLEGAL_STATE"), Some(c"cudaErrorIllegalState"), c"the operation cannot be performed in the present state"),
    (402, Some(c"CUDA_ERROR_LOSSY_QUERY"), Some(c"cudaErrorLossyQuery"), c"attempted introspection would be semantically lossy"),
    (500, Some(c"CUDA_ERROR_NOT_FOUND"), Some(c"cudaErrorSymbolNotFound"), c"named symbol not found"),
    (600, Some(c"CUDA_ERROR_NOT_READY"), Some(c"cudaErrorNotReady"), c"device not ready"),
    (700, Some(c"CUDA_ERROR_ILLEGAL_ADDRESS"), Some(c"cudaErrorIllegalAddress"), c"an illegal memory access was encountered"),
    (701, Some(c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"), Some(c"cudaErrorLaunchOutOfResources"), c"too many resources requested for launch"),
    (702, Some(c"CUDA_ERROR_LAUNCH_TIMEOUT"), Some(c"cudaErrorLaunchTimeout"), c"the launch timed out and was terminated"),
    (703, Some(c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING"), Some(c"cudaErrorLaunchIncompatibleTexturing"), c"launch uses incompatible texturing mode"),
    (704, Some(c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"), Some(c"cudaErrorPeerAccessAlreadyEnabled"), c"peer access is already enabled"),
    (705, Some(c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"), Some(c"cudaErrorPeerAccessNotEnabled"), c"peer access has not been enabled"),
    (708, Some(c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"), Some(c"cudaErrorSetOnActiveProcess"), c"cannot set while device is active in this process"),
    (709, Some(c"CUDA_ERROR_CONTEXT_IS_DESTROYED"), Some(c"cudaErrorContextIsDestroyed"), c"context is destroyed"),
    (710, Some(c"CUDA_ERROR_ASSERT"), Some(c"cudaErrorAssert"), c"device-side assert triggered"),
    (711, Some(c"CUDA_ERROR_TOO_MANY_PEERS"), Some(c"cudaErrorTooManyPeers"), c"peer mapping resources exhausted"),
    (712, Some(c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"), Some(c"cudaErrorHostMemoryAlreadyRegistered"), c"part or all of the requested memory range is already mapped"),
    (713, Some(c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"), Some(c"cudaErrorHostMemoryNotRegistered"), c"pointer does not correspond to a registered memory region"),
    (714, Some(c"CUDA_ERROR_HARDWARE_STACK_ERROR"), Some(c"cudaErrorHardwareStackError"), c"hardware stack error"),
    (715, Some(c"CUDA_ERROR_ILLEGAL_INSTRUCTION"), Some(c"cudaErrorIllegalInstruction"), c"an illegal instruction was encountered"),
    (716, Some(c"CUDA_ERROR_MISALIGNED_ADDRESS"), Some(c"cudaErrorMisalignedAddress"), c"misaligned address"),
    (717, Some(c"CUDA_ERROR_INVALID_ADDRESS_SPACE"), Some(c"cudaErrorInvalidAddressSpace"), c"operation not supported on global/shared address space"),
    (718, Some(c"CUDA_ERROR_INVALID_PC"), Some(c"cudaErrorInvalidPc"), c"invalid program counter"),
    (719, Some(c"CUDA_ERROR_LAUNCH_FAILED"), Some(c"cudaErrorLaunchFailure"), c"unspecified launch failure"),
    (720, Some(c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"), Some(c"cudaErrorCooperativeLaunchTooLarge"), c"too many blocks in cooperative launch"),
    (721, Some(c"CUDA_ERROR_TENSOR_MEMORY_LEAK"), Some(c"cudaErrorTensorMemoryLeak"), c"tensor memory was not freed by a block that ended"),
    (800, Some(c"CUDA_ERROR_NOT_PERMITTED"), Some(c"cudaErrorNotPermitted"), c"operation not permitted"),
    (801, Some(c"CUDA_ERROR_NOT_SUPPORTED"), Some(c"cudaErrorNotSupported"), c"operation not supported"),
    (802, Some(c"CUDA_ERROR_SYSTEM_NOT_READY"), Some(c"cudaErrorSystemNotReady"), c"system not yet initialized"),
    (803, Some(c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), Some(c"cudaErrorSystemDriverMismatch"), c"system has unsupported display driver / cuda driver combination"),
    (804, Some(c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"), Some(c"cudaErrorCompatNotSupportedOnDevice"), c"forward compatibility was attempted on non supported HW"),
    (805, Some(c"CUDA_ERROR_MPS_CONNECTION_FAILED"), Some(c"cudaErrorMpsConnectionFailed"), c"MPS client failed to connect to the MPS control daemon or the MPS server"),
    (806, Some(c"CUDA_ERROR_MPS_RPC_FAILURE"), Some(c"cudaErrorMpsRpcFailure"), c"MPS server had an error in its communication"),
    (807, Some(c"CUDA_ERROR_MPS_SERVER_NOT_READY"), Some(c"cudaErrorMpsServerNotReady"), c"MPS server is not ready to accept new MPS client requests"),
    (808, Some(c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"), Some(c"cudaErrorMpsMaxClientsReached"), c"MPS has no room for another client"),
    (809, Some(c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"), Some(c"cudaErrorMpsMaxConnectionsReached"), c"MPS has no room for another connection to a device"),
    (810, Some(c"CUDA_ERROR_MPS_CLIENT_TERMINATED"), Some(c"cudaErrorMpsClientTerminated"), c"MPS client has been terminated by the server"),
    (811, Some(c"CUDA_ERROR_CDP_NOT_SUPPORTED"), Some(c"cudaErrorCdpNotSupported"), c"device-side launches are not supported by this device"),
    (812, Some(c"CUDA_ERROR_CDP_VERSION_MISMATCH"), Some(c"cudaErrorCdpVersionMismatch"), c"device-side launches need another version of the driver"),
    (900, Some(c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"), Some(c"cudaErrorStreamCaptureUnsupported"), c"operation not permitted when stream is capturing"),
    (901, Some(c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"), Some(c"cudaErrorStreamCaptureInvalidated"), c"operation failed due to a previous error during capture"),
    (902, Some(c"CUDA_ERROR_STREAM_CAPTURE_MERGE"), Some(c"cudaErrorStreamCaptureMerge"), c"operation would result in a merge of separate capture sequences"),
    (903, Some(c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"), Some(c"cudaErrorStreamCaptureUnmatched"), c"capture was not ended in the same stream as it began"),
    (904, Some(c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED"), Some(c"cudaErrorStreamCaptureUnjoined"), c"capturing stream has unjoined work"),
    (905, Some(c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION"), Some(c"cudaErrorStreamCaptureIsolation"), c"dependency created on uncaptured work in another stream"),
    (906, Some(c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"), Some(c"cudaErrorStreamCaptureImplicit"), c"operation would make the legacy stream depend on a capturing blocking stream"),
    (907, Some(c"CUDA_ERROR_CAPTURED_EVENT"), Some(c"cudaErrorCapturedEvent"), c"operation not permitted on an event last recorded in a capturing stream"),
    (908, Some(c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"), Some(c"cudaErrorStreamCaptureWrongThread"), c"attempt to terminate a thread-local capture sequence from another thread"),
    (909, Some(c"CUDA_ERROR_TIMEOUT"), Some(c"cudaErrorTimeout"), c"wait operation timed out"),
    (910, Some(c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"), Some(c"cudaErrorGraphExecUpdateFailure"), c"the graph update was not performed because it included changes which violated constraints specific to instantiated graph update"),
    (911, Some(c"CUDA_ERROR_EXTERNAL_DEVICE"), Some(c"cudaErrorExternalDevice"), c"an error occurred on a device outside of CUDA"),
    (912, Some(c"CUDA_ERROR_INVALID_CLUSTER_SIZE"), Some(c"cudaErrorInvalidClusterSize"), c"cluster size is not possible for this launch"),
    (913, Some(c"CUDA_ERROR_FUNCTION_NOT_LOADED"), Some(c"cudaErrorFunctionNotLoaded"), c"the requested function is not loaded"),
    (914, Some(c"CUDA_ERROR_INVALID_RESOURCE_TYPE"), Some(c"cudaErrorInvalidResourceType"), c"the requested resource type is not valid for this operation"),
    (915, Some(c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"), Some(c"cudaErrorInvalidResourceConfiguration"), c"the requested resource configuration is insufficient or invalid"),
    (916, Some(c"CUDA_ERROR_KEY_ROTATION"), None, c"the keys of protected memory are being changed"),
    (999, Some(c"CUDA_ERROR_UNKNOWN"), Some(c"cudaErrorUnknown"), c"unknown error"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_sorted() {
        assert!(CODES.is_sorted_by(|(one, ..), (other, ..)| one < other));
    }

    /// Read on an H100, driver 580.159.04, 2026-11-26.
    #[test]
    fn codes_are_named_as_a_driver_names_them() {
        let read = [
            (0, c"CUDA_SUCCESS", c"no error"),
            (8, c"CUDA_ERROR_PROFILER_ALREADY_STOPPED", c"profiler already stopped"),
            (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
            (218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
            (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
            (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        ];
        for (code, name, text) in read {
            assert_eq!(of_driver(code), Some((name, text)));
        }
        for unknown in [9, 19, 35, 98, 12_345, -1] {
            assert_eq!(of_driver(unknown), None, "{unknown} is not the driver's");
        }
    }

    #[test]
    fn the_runtime_has_names_of_its_own() {
        assert_eq!(of_runtime(2), (c"cudaErrorMemoryAllocation", c"out of memory"));
        assert_eq!(of_runtime(98), (c"cudaErrorInvalidDeviceFunction", c"invalid device function"));
        assert_eq!(of_runtime(202), (UNRECOGNIZED, UNRECOGNIZED), "only the driver's");
        assert_eq!(of_runtime(12_345), (UNRECOGNIZED, UNRECOGNIZED));
    }
}

//! Statuses of the driver API (`CUresult`) and of the runtime API (`cudaError_t`), which number alike all that are used
//! here.

use std::cell::Cell;

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
        /// The card has no such limit.
        UNSUPPORTED_LIMIT = 215,
        /// `CUDA_ERROR_FILE_NOT_FOUND`.
        FILE_NOT_FOUND = 301,
        /// A handle is not one that was handed out.
        INVALID_HANDLE = 400,
        /// The object is in no state for this.
        ILLEGAL_STATE = 401,
        /// A name is unknown.
        NOT_FOUND = 500,
        /// `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`
        PEER_ACCESS_UNSUPPORTED = 217,
        /// Peer access is on already.
        PEER_ACCESS_ALREADY_ENABLED = 704,
        /// The memory was not registered.
        HOST_MEMORY_NOT_REGISTERED = 713,
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

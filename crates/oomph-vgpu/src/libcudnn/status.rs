//! What cuDNN's functions answer.
#![deny(unsafe_code)]

use crate::boundary::{Status, statuses};

statuses! {
    /// `cudnnStatus_t`, with the numbers of cuDNN 9.
    pub CudnnStatus {
        /// There is no card, or no library.
        NOT_INITIALIZED = 1001,
        /// An argument is null or out of range.
        BAD_PARAM = 2000,
        /// cuDNN has no such operation.
        NOT_SUPPORTED = 3000,
        /// The card cannot hold what a handle takes.
        DEVICE_ALLOCATION_FAILED = 4004,
    }
}

/// What a call answers: nothing goes with success.
pub type Result<T> = std::result::Result<T, CudnnStatus>;

impl CudnnStatus {
    /// What a function of the real library answered.
    pub fn check(number: u32) -> Result<()> {
        if number == 0 { Ok(()) } else { Err(CudnnStatus(number)) }
    }
}

impl std::fmt::Display for CudnnStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.number().fmt(f)
    }
}

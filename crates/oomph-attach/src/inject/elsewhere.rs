//! Reports this way as closed on processors for which no routine has been written.

use std::time::Instant;

use crate::error::AttachError;
use crate::target::Target;

const REASON: &str = "ptrace is used on x86-64 only; CPython 3.14 and later need none";

/// Whether this way is open: it is not.
pub(crate) fn check(_target: &Target) -> Result<(), String> {
    Err(REASON.to_owned())
}

/// Sends nothing.
///
/// # Errors
/// Always.
pub(crate) fn send(target: &Target, _script: &str, _end: Instant) -> Result<(), AttachError> {
    Err(AttachError::NoWay { pid: target.pid, reason: REASON.to_owned() })
}

/// Leaves the main thread in its wait: setting its registers needs the routine's knowledge of the processor.
pub(crate) fn wake(_pid: u32) {}

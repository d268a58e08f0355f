//! What the readers of JSON share: scalars, streams, and the faults of serde.

mod scalar;
mod stream;

pub(crate) use scalar::Scalar;
pub(crate) use stream::{Counted, Each};

use crate::error::{Cause, Fault};
use crate::figure;

/// What serde found, at the offset up to which was read.
pub(crate) fn fault(error: &serde_json::Error, offset: u64, memory: u64) -> Fault {
    let cause = match error.classify() {
        serde_json::error::Category::Eof => Cause::Cut,
        serde_json::error::Category::Io => match error.io_error_kind() {
            Some(std::io::ErrorKind::UnexpectedEof) => Cause::Cut,
            Some(std::io::ErrorKind::QuotaExceeded) => Cause::Grows,
            Some(std::io::ErrorKind::FileTooLarge) => Cause::TooLarge(memory >> 20),
            kind => Cause::Io(kind.map_or_else(|| std::io::Error::other("unknown"), Into::into)),
        },
        serde_json::error::Category::Data if error.to_string().starts_with(TOO_LARGE) => Cause::TooLarge(memory >> 20),
        serde_json::error::Category::Data if error.to_string().contains(figure::REFUSAL) => {
            // The offset says more than serde's line and column.
            let text = error.to_string();
            Cause::Malformed(text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned())
        }
        _ => Cause::Malformed(format!("broken JSON ({error})")),
    };
    Fault::at(offset, cause)
}

/// How a reader says through serde that a file needs too much memory.
pub(crate) const TOO_LARGE: &str = "too much memory";

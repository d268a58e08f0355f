//! Sizes of memory.

use oomph_gpu::size::{self, Size};
use oomph_ledger::UNBOUNDED_CAPACITY;

use crate::failure::Hinted;

/// A size.
///
/// # Errors
/// When it is not one.
pub fn size(option: &str, text: &str) -> Result<Size, Hinted> {
    size::parse(text)
        .map(Size)
        .map_err(|error| Hinted::new(format!("{option}: {error}"), format!("write {option} 20GiB, for example")))
}

/// The memory of a card: more than nothing, and less than a card without a limit has.
///
/// # Errors
/// When it is not a size, or not one that a card can have.
pub fn capacity(option: &str, text: &str) -> Result<Size, Hinted> {
    let bytes = size::parse(text).map_err(|error| {
        Hinted::new(format!("{option}: {error}"), format!("write {option} 8GiB, {option} 512MiB or {option} 24G"))
    })?;
    match bytes {
        0 => Err(Hinted::new(
            format!("{option} 0 leaves nothing to run on"),
            format!("write {option} 8GiB, for example"),
        )),
        UNBOUNDED_CAPACITY.. => Err(Hinted::new(
            format!("{option} {text} is more than any card has"),
            "leave out --gpu and --vram for a card without a limit",
        )),
        _ => Ok(Size(bytes)),
    }
}

/// The memory that a program has to fit into.
///
/// # Errors
/// When it is not a size, or 0.
pub fn target(option: &str, text: &str) -> Result<Size, Hinted> {
    let hint = || format!("write {option} 10GiB");
    match size::parse(text) {
        Ok(0) => Err(Hinted::new(format!("{option} 0 leaves no memory to fit into"), hint())),
        Ok(bytes) => Ok(Size(bytes)),
        Err(error) => Err(Hinted::new(format!("{option}: {error}"), hint())),
    }
}

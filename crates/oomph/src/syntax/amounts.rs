//! Amounts of memory: a size, or a share of something else in percent.

use oomph_gpu::size;
use oomph_report::clean;

use crate::failure::Hinted;

/// A size, or a share of something else.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So much of the whole in percent.
    Percent(f64),
}

impl Amount {
    /// Nothing.
    pub const NONE: Self = Self::Bytes(0);

    /// The amount in bytes, of a whole with so many.
    pub fn of(self, whole_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (whole_bytes as f64 * percent / 100.0) as u64,
        }
    }
}

/// The memory of a card that has to stay free: `512MiB`, or a share below 100%.
///
/// # Errors
/// When it is neither.
pub fn margin(option: &str, text: &str) -> Result<Amount, Hinted> {
    let wrong = || {
        Hinted::new(
            format!("{option} `{}` is not a size", clean(text)),
            format!("write {option} 512MiB or {option} 10%"),
        )
    };
    let Some(percent) = text.trim().strip_suffix('%') else {
        return size::parse(text).map(Amount::Bytes).map_err(|_| wrong());
    };
    let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
    if (0.0..100.0).contains(&percent) { Ok(Amount::Percent(percent)) } else { Err(wrong()) }
}

/// The growth that is allowed: `500MiB`, or a share of what was before, which may be more than 100%.
///
/// # Errors
/// When it is neither.
pub fn growth(option: &str, text: &str) -> Result<Amount, Hinted> {
    let wrong =
        |what: String| Hinted::new(format!("{option}: {what}"), format!("write {option} 500MiB or {option} 2%"));
    let Some(percent) = text.trim().strip_suffix('%') else {
        return size::parse(text).map(Amount::Bytes).map_err(|error| wrong(error.to_string()));
    };
    let percent: f64 = percent.trim().parse().map_err(|_| wrong(format!("`{text}` is not a percentage")))?;
    if (0.0..=1e6).contains(&percent) {
        Ok(Amount::Percent(percent))
    } else {
        Err(wrong(format!("`{text}` is not a sensible percentage")))
    }
}

//! Checks numbers of bytes in files of others: a damaged one is an error, not a peak of 16 EiB.

/// How the refusal of a figure ends.
pub(crate) const REFUSAL: &str = "which is not a number of bytes";

/// A whole number as bytes.
pub(crate) fn whole(field: &str, value: i128) -> Result<u64, String> {
    i64::try_from(value).ok().and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(|| refusal(field, value))
}

/// A number with a fraction as bytes; the fraction is cut off.
pub(crate) fn fraction(field: &str, value: f64) -> Result<u64, String> {
    // Not a number is in no range.
    if (0.0..i64::MAX as f64).contains(&value) {
        Ok(value as u64)
    } else {
        Err(refusal(field, format_args!("{value:?}")))
    }
}

fn refusal(field: &str, value: impl std::fmt::Display) -> String {
    format!("{field} is {value}, {REFUSAL}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_figures_are_refused() {
        assert_eq!(whole("size", 512), Ok(512));
        assert_eq!(whole("size", -5), Err("size is -5, which is not a number of bytes".to_owned()));
        assert!(whole("size", 1 << 63).is_err());
        assert_eq!(fraction("size", 2.5), Ok(2));
        for damaged in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e19] {
            assert!(fraction("size", damaged).is_err(), "{damaged}");
        }
    }
}

//! Reads and writes sizes in bytes, as people write them.
//!
//! GiB and MiB are powers of two, GB and MB powers of ten. A bare G or M means GiB or MiB, because that is what
//! PyTorch users mean by "24G", and a number alone is bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A size in bytes that can be read from and written to text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Size(pub u64);

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// There is no number, or something that is not a number.
    #[error("\"{0}\" is not a size; write it as 8GiB, 7.5GB or 512M")]
    NotANumber(String),
    /// The unit is not known.
    #[error("\"{0}\" is not a unit of size; use B, KiB, MiB, GiB, TiB, KB, MB, GB or TB")]
    UnknownUnit(String),
    /// The size does not fit in 64 bits.
    #[error("\"{0}\" is more than any computer holds; use a smaller size")]
    TooLarge(String),
}

const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

fn unit(text: &str) -> Option<u64> {
    Some(match text.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

/// The bytes that a text such as "8GiB", "8G", "7.5 GB", "512MiB" or "1048576" means.
///
/// Fractions of a byte are rounded to the nearest byte. Digits may be grouped with underscores.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let shown = || text.chars().take(40).collect::<String>();
    let trimmed = text.trim();
    let end = trimmed.find(|character: char| !matches!(character, '0'..='9' | '.' | '_')).unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (whole, fraction) = (whole.replace('_', ""), fraction.replace('_', ""));
    let digits = whole.bytes().chain(fraction.bytes());
    if whole.len() + fraction.len() == 0 || !digits.clone().all(|byte| byte.is_ascii_digit()) {
        return Err(SizeError::NotANumber(shown()));
    }
    let suffix = suffix.trim();
    let unit = unit(suffix).ok_or_else(|| SizeError::UnknownUnit(suffix.chars().take(40).collect()))?;

    let too_large = || SizeError::TooLarge(shown());
    let whole: u128 = match whole.as_str() {
        "" => 0,
        digits => digits.parse().map_err(|_| too_large())?,
    };
    // The largest unit is below 10^13, so digits beyond the fifteenth change nothing but the rounding of a tie.
    let fraction = &fraction[..fraction.len().min(15)];
    let scale = 10_u128.pow(fraction.len() as u32);
    let fraction: u128 = fraction.parse().unwrap_or(0);
    let unit = u128::from(unit);
    let bytes = whole
        .checked_mul(unit)
        .and_then(|bytes| bytes.checked_add((fraction * unit + scale / 2) / scale))
        .ok_or_else(too_large)?;
    u64::try_from(bytes).map_err(|_| too_large())
}

/// A size with two decimals in the largest binary unit that it reaches, for example "23.64 GiB" or "512.00 MiB".
///
/// This is how PyTorch writes sizes, so figures can be compared by eye.
pub fn format(bytes: u64) -> String {
    for (unit, name) in UNITS {
        // What would be rounded to "1024.00" of the next smaller unit is "1.00" of this one.
        if bytes >= unit - unit / 1024 / 200 {
            let hundredths = (u128::from(bytes) * 100 + u128::from(unit) / 2) / u128::from(unit);
            return format!("{}.{:02} {name}", hundredths / 100, hundredths % 100);
        }
    }
    match bytes {
        1 => "1 byte".into(),
        _ => format!("{bytes} bytes"),
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format(self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_read_as_people_mean_them() {
        for (text, bytes) in [
            ("8GiB", 8 << 30),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("8 gib", 8 << 30),
            ("7.5 GB", 7_500_000_000),
            ("7.5GiB", 8_053_063_680),
            ("512MiB", 512 << 20),
            ("512M", 512 << 20),
            ("512mb", 512_000_000),
            ("1k", 1024),
            ("1kb", 1000),
            ("2T", 2 << 40),
            ("1048576", 1 << 20),
            ("25_386_352_640", 25_386_352_640),
            ("100 bytes", 100),
            ("1 byte", 1),
            ("0", 0),
            (".5G", 1 << 29),
            ("5.G", 5 << 30),
            ("  1 B ", 1),
            ("0.1B", 0),
            ("18446744073709551615", u64::MAX),
            ("1.0000000000000000000000000000001KiB", 1024),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_in_one_line() {
        for text in [
            "",
            " ",
            "G",
            ".",
            "_",
            "GiB8",
            "-8G",
            "1.2.3",
            "8 XB",
            "8 G B",
            "1e3",
            "0x10",
            "٣G",
            "18446744073709551616",
            "99999999999T",
            "16777216T",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let long = "9".repeat(1_000_000);
        assert!(parse(&long).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn sizes_are_written_as_pytorch_writes_them() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (512, "512 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.00 KiB"),
            (512 << 20, "512.00 MiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (1019 << 20, "1019.00 MiB"),
            (25_386_352_640, "23.64 GiB"),
            (1 << 40, "1.00 TiB"),
            (u64::MAX, "16777216.00 TiB"),
        ] {
            assert_eq!(format(bytes), text);
            assert_eq!(Size(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>12}", Size(1024)), "    1.00 KiB");
    }

    proptest! {
        #[test]
        fn plain_bytes_survive(bytes: u64) {
            prop_assert_eq!(parse(&bytes.to_string()), Ok(bytes));
            prop_assert_eq!(format!("{bytes}B").parse(), Ok(Size(bytes)));
        }

        #[test]
        fn whole_units_are_exact(count in 0_u64..1 << 23) {
            prop_assert_eq!(parse(&format!("{count}GiB")), Ok(count << 30));
            prop_assert_eq!(parse(&format!("{count} G")), Ok(count << 30));
            prop_assert_eq!(parse(&format!("{count}MB")), Ok(count * 1_000_000));
        }

        #[test]
        fn what_is_written_reads_back_within_its_rounding(bytes in 0_u64..1 << 60) {
            let again = parse(&format(bytes)).unwrap();
            prop_assert!(again.abs_diff(bytes) <= bytes / 200 + 1, "{} {}", bytes, again);
        }

        #[test]
        fn more_bytes_never_look_like_less(left in 0_u64..1 << 50, right in 0_u64..1 << 50) {
            let (small, large) = (left.min(right), left.max(right));
            prop_assert!(parse(&format(small)).unwrap() <= parse(&format(large)).unwrap());
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn any_number_is_answered(text in "[0-9._]{0,40} ?[kmgtKMGT]?i?[bB]?") {
            let _ = parse(&text);
        }
    }
}

//! Figures as frameworks print them.
//!
//! Every framework that was met counts in powers of 1024, whatever unit it prints: PyTorch's MPS allocator says "GB" for
//! 2^30 bytes, PaddlePaddle "kB" for 2^10, TensorFlow's "2.05G" is 2^31 and a bit.

/// The bytes of a figure such as `2.00 GiB`, `39.25kB`, `1,234,567 bytes`, `7. 92 GiB` or `0 bytes`.
///
/// A figure without a unit is a number of bytes. A figure above `u64::MAX` saturates: NVML's "not available" is printed
/// as 17179869184.00 GiB, which is 2^64. None where there is no figure, or the unit is not one of memory.
pub(crate) fn parse(figure: &str) -> Option<u64> {
    let figure = figure.trim();
    let end = figure.rfind(|c: char| c.is_ascii_digit()).map_or(0, |last| last + 1);
    let number: String = figure[..end].chars().filter(|c| !matches!(c, ',' | ' ')).collect();
    let unit = figure[end..].trim();
    let scale = scale(unit)?;
    if scale == 1
        && let Ok(bytes) = number.parse::<u64>()
    {
        return Some(bytes);
    }
    let value: f64 = number.parse().ok()?;
    // A cast from a float saturates, and the value is finite and not negative here.
    (value >= 0.0).then_some((value * scale as f64) as u64)
}

/// The bytes of a number that is known to be in GiB.
pub(crate) fn parse_gib(number: &str) -> Option<u64> {
    let value: f64 = number.trim().parse().ok()?;
    (value >= 0.0).then_some((value * (1u64 << 30) as f64) as u64)
}

fn scale(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    if matches!(lower.as_str(), "" | "b" | "byte" | "bytes") {
        return Some(1);
    }
    // Not cut by bytes: where a log is garbled, what follows a figure may begin with any character.
    let mut letters = lower.chars();
    let letter = letters.next()?;
    let power = "kmgtpe".find(letter)? as u32 + 1;
    matches!(letters.as_str(), "" | "b" | "ib").then_some(1u64 << (10 * power))
}

/// The regular expression that `{size}` stands for in the tables: a figure with its unit.
///
/// A single lower-case "b" is not a unit, also where letters of both kinds are the same: "3b" counts a model's parameters.
pub(crate) const PATTERN: &str = r"\d[\d,]*(?:\.\s?\d+)?\s?(?:[Bb]ytes|[kKMGTPE]i?[Bb]\b|[KMGT]\b|(?-i:B)\b)";

/// A figure for a reader: two decimals of the largest unit that gives at least one.
///
/// Halves are rounded up, and what would be 1024.00 of a unit is 1.00 of the next, as `oomph_gpu::size::format` does it,
/// which prints the same figures in the report. Rust's own formatting makes 10.12 of 10.125.
pub(crate) fn show(bytes: u64) -> String {
    for (unit, scale) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= scale - scale / 1024 / 200 {
            let hundredths = (u128::from(bytes) * 100 + u128::from(scale) / 2) / u128::from(scale);
            return format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100);
        }
    }
    match bytes {
        1 => "1 byte".to_owned(),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_as_the_report_rounds_them() {
        for (bytes, shown) in [
            (10_871_635_968, "10.13 GiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (25_386_352_640, "23.64 GiB"),
            (822_083_584, "784.00 MiB"),
            (512, "512 bytes"),
            (1, "1 byte"),
        ] {
            assert_eq!(show(bytes), shown);
        }
    }

    #[test]
    fn a_lower_case_b_is_no_unit() {
        let form = regex::Regex::new(&format!("(?i){PATTERN}")).unwrap();
        for figure in ["3B", "3 gb", "2.50 GB", "7 bytes"] {
            assert!(form.is_match(figure), "{figure}");
        }
        for word in ["3b", "8b.gguf"] {
            assert!(!form.is_match(word), "{word}");
        }
    }

    #[test]
    fn figures_of_every_framework() {
        for (figure, bytes) in [
            ("2.00 GiB", 2 << 30),
            ("39.250000kB", 40192),
            ("1,234,567 bytes", 1_234_567),
            ("7. 92 GiB", 8_504_035_246),
            ("0 bytes", 0),
            ("3GB", 3 << 30),
            ("1.25GiB", 1_342_177_280),
            ("35571892224", 35_571_892_224),
            ("85.412131TB", 93_911_631_187_626),
            ("17179869184.00 GiB", u64::MAX),
            ("99999999999999999999999 bytes", u64::MAX),
        ] {
            assert_eq!(parse(figure), Some(bytes), "{figure}");
        }
        for nothing in ["", "GiB", "12 apples", "1.2.3 GiB", "-4 GiB", "3 Zib", "3 éGiB", "3 éb", "3 k\u{e9}"] {
            assert_eq!(parse(nothing), None, "{nothing}");
        }
    }
}

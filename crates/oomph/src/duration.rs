//! Reads durations from a command line.

use std::time::Duration;

use anyhow::Result;

use crate::failure::Hinted;

/// A duration: "90", "90s", "1.5h", "1h30m", "500ms". `option` is where it was typed.
///
/// # Errors
/// When it is not a duration, or is zero.
pub fn duration(option: &str, text: &str) -> Result<Duration> {
    let wrong = || {
        anyhow::Error::from(Hinted::new(
            format!("{option} `{}` is not a duration", oomph_report::clean(text)),
            "write 90s, 10m or 1h30m",
        ))
    };
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(wrong);
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let seconds = match unit {
            "ms" => 0.001,
            "s" | "sec" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    if total.is_zero() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_units_and_is_never_zero() {
        for (text, seconds) in [
            ("90", 90.0),
            ("1.5", 1.5),
            ("90s", 90.0),
            ("10m", 600.0),
            ("1h30m", 5400.0),
            ("500ms", 0.5),
            ("1h 5s", 3605.0),
        ] {
            assert_eq!(duration("--timeout", text).ok(), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for wrong in
            ["", "0", "0s", "-1", "1x", "s", "1h30", "1..5s", "nan", "inf", "1e99", "99999999999999999999d", "é"]
        {
            assert!(duration("--timeout", wrong).is_err(), "{wrong:?}");
        }
    }
}

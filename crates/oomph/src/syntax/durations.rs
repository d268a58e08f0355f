//! Durations.

use std::time::Duration;

use oomph_report::clean;

use crate::failure::Hinted;

/// The driver is not asked more often.
const LEAST_INTERVAL: Duration = Duration::from_millis(250);

/// A duration: "90", "90s", "1.5h", "1h30m", "500ms".
///
/// # Errors
/// When it is not a duration, or is zero.
pub fn duration(option: &str, text: &str) -> Result<Duration, Hinted> {
    let wrong = || Hinted::new(format!("{option} `{}` is not a duration", clean(text)), "write 90s, 10m or 1h30m");
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

/// The time between two readings of a card.
///
/// # Errors
/// When it is not a duration, or too short.
pub fn interval(option: &str, text: &str) -> Result<Duration, Hinted> {
    let interval = duration(option, text)?;
    if interval < LEAST_INTERVAL {
        return Err(Hinted::new(
            format!("{option} {text} is too short: each look holds a lock of the driver"),
            format!("write {option} 250ms or more"),
        ));
    }
    Ok(interval)
}

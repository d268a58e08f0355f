//! Ranks of a job, cells of a sweep, steps of a run, and addresses.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use oomph_report::clean;

use crate::failure::Hinted;

/// Ranks of a job, as the hook takes them: "0,1,last", "0-3", "all".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks(String);

impl fmt::Display for Ranks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Ranks of a job.
///
/// # Errors
/// When the text names none.
pub fn ranks(option: &str, text: &str) -> Result<Ranks, Hinted> {
    let text: String = text.chars().filter(|character| !character.is_whitespace()).collect();
    let number = |text: &str| text.parse::<u32>().ok();
    let is_known = |name: &str| match name.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).is_some_and(|(first, last)| first <= last),
        None => matches!(name, "last" | "all") || number(name).is_some(),
    };
    if text.split(',').all(is_known) {
        return Ok(Ranks(text));
    }
    Err(Hinted::new(
        format!("{option} `{}` does not name ranks", clean(&text)),
        "write numbers, ranges and `last` with commas, like 0,1,last or 0-3, or `all`",
    ))
}

/// Cells of a sweep: `7`, or `8-15`.
///
/// # Errors
/// When it is neither.
pub fn cells(option: &str, text: &str) -> Result<RangeInclusive<usize>, Hinted> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(Hinted::new(
            format!("{option} `{}` is not the number of a cell, and not a range of them", clean(text)),
            format!("write {option} 7 or {option} 0-7"),
        )),
    }
}

/// A number of steps after which a run ends.
///
/// # Errors
/// When it is 0.
pub fn steps(number: u32) -> Result<u32, Hinted> {
    match number {
        0 => Err(Hinted::new("--steps 0 would stop before anything happened", "the least is --steps 1")),
        steps => Ok(steps),
    }
}

/// An address that only this machine reaches.
///
/// # Errors
/// When it is not an address with a port, or others reach it.
pub fn loopback(option: &str, text: &str) -> Result<SocketAddr, Hinted> {
    let wrong =
        |what: &str| Hinted::new(format!("{option} {}{what}", clean(text)), format!("write {option} 127.0.0.1:9400"));
    let address: SocketAddr = text.parse().map_err(|_| wrong(" is not an address with a port"))?;
    if address.ip().is_loopback() { Ok(address) } else { Err(wrong(": others could read it; only loopback is served")) }
}

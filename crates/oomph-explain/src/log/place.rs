//! A place in a log: a line with its context.

use super::text;

/// A line of the log, with its context.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The line with some 64 KiB before it and some 16 KiB behind it.
    pub window: &'a [u8],
    /// Where the line starts in the window.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// The line's number.
    pub number: u64,
}

impl<'a> Place<'a> {
    pub fn line(&self) -> &'a [u8] {
        &self.window[self.start..self.end]
    }

    pub fn before(&self) -> &'a [u8] {
        &self.window[..self.start]
    }

    /// The line and what follows it.
    pub fn from(&self) -> &'a [u8] {
        &self.window[self.start..]
    }

    /// The line above, if there is a whole one.
    pub fn above(&self) -> Option<Place<'a>> {
        let before = self.before();
        let above = before.strip_suffix(b"\n")?;
        let end = above.strip_suffix(b"\r").unwrap_or(above).len();
        let start = above.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        (start < end).then_some(Place { start, end, number: self.number.checked_sub(1)?, ..*self })
    }

    /// The line below, if anything is in it.
    pub fn below(&self) -> Option<&'a [u8]> {
        let mut lines = lines_from(self.from(), self.number).map(|(line, _)| line).skip(1);
        lines.find(|line| !line.is_empty())
    }
}

/// The last bytes of a slice.
pub(crate) fn tail(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(most)..]
}

/// Bytes into lines with their numbers; `\r` redraws a line, so it ends one for the eye but not for the count.
pub(crate) fn lines_from(bytes: &[u8], first: u64) -> impl Iterator<Item = (&[u8], u64)> {
    let mut number = first;
    bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')).map(move |piece| {
        let here = number;
        let line = match piece.last() {
            Some(b'\n') => {
                number += 1;
                &piece[..piece.len() - 1]
            }
            Some(b'\r') => &piece[..piece.len() - 1],
            _ => piece,
        };
        (line, here)
    })
}

/// The last 400 lines before line `number`.
pub(crate) fn lines_before(before: &[u8], number: u64) -> Vec<(String, u64)> {
    let mut lines: Vec<(String, u64)> = Vec::new();
    let mut at = number;
    for piece in before.rsplit(|byte| *byte == b'\n') {
        // The first piece is what precedes the hit in its own line, empty for a whole line.
        lines.push((text::plain(&piece[piece.len().saturating_sub(2000)..]), at));
        at = at.saturating_sub(1);
        if lines.len() > 400 {
            break;
        }
    }
    lines.reverse();
    lines
}

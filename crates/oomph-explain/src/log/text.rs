//! Lines of a log made plain: colours, log prefixes and comment marks gone, wrapped messages whole again.

use std::sync::LazyLock;

use regex::Regex;

/// The most characters of a message that are looked at, from its first line on.
const LONGEST_MESSAGE: usize = 6000;
/// The most lines over which one message is followed.
const MOST_LINES: usize = 28;

/// A message joined from its lines: single spaces between words, so that patterns need not know where it was wrapped.
pub(crate) struct Paragraph {
    /// The words.
    pub text: String,
    /// Where the first line ends in `text`.
    pub first_line: usize,
    /// For each line: where it starts in `text`, and its number in the log.
    starts: Vec<(usize, u64)>,
}

impl Paragraph {
    /// Joins the message that starts in the first of `lines` (bytes and line number).
    ///
    /// Lines of other ranks are left out, since ranks write over each other; a new traceback ends the message.
    pub fn join<'a>(lines: impl Iterator<Item = (&'a [u8], u64)>) -> Self {
        let mut paragraph = Self { text: String::new(), first_line: 0, starts: Vec::new() };
        let mut of_rank = None;
        for (index, (line, number)) in lines.take(MOST_LINES).enumerate() {
            let plain = plain(line);
            let rank_here = rank(&plain);
            let words = if index == 0 {
                of_rank = rank_here;
                plain.as_str()
            } else {
                if (of_rank.is_some() && rank_here.is_some() && rank_here != of_rank) || plain.trim_start().is_empty() {
                    continue;
                }
                if plain.contains("Traceback (most recent call last)") {
                    break;
                }
                without_prefix(&plain)
            };
            if !paragraph.text.is_empty() {
                paragraph.text.push(' ');
            }
            paragraph.starts.push((paragraph.text.len(), number));
            // A log in JSON has a whole message in one line, its line ends written as `\n`.
            if index == 0 && words.contains("\\n") {
                push_words(&mut paragraph.text, &words.replace("\\n", " "));
            } else {
                push_words(&mut paragraph.text, words);
            }
            if index == 0 {
                paragraph.first_line = paragraph.text.len();
            }
            if paragraph.text.len() > LONGEST_MESSAGE {
                break;
            }
        }
        paragraph
    }

    /// The number of the line that holds this place of the text.
    pub fn line_at(&self, place: usize) -> u64 {
        let after = self.starts.partition_point(|(start, _)| *start <= place);
        self.starts.get(after.saturating_sub(1)).map_or(0, |(_, number)| *number)
    }

    /// The sentence around a match, for a reader: from its line's start, at most about 240 characters.
    pub fn quote(&self, start: usize, end: usize) -> String {
        let from = floor_boundary(&self.text, start.saturating_sub(60));
        let from = self.text[from..start].rfind(['\n', '|']).map_or(from, |bar| from + bar + 1);
        let to = floor_boundary(&self.text, end.max(from.saturating_add(240)).min(from.saturating_add(400)));
        self.text[from..to.max(from)].trim().to_owned()
    }
}

/// The largest character boundary at or below `place`.
pub(crate) fn floor_boundary(text: &str, place: usize) -> usize {
    let mut place = place.min(text.len());
    while !text.is_char_boundary(place) {
        place -= 1;
    }
    place
}

fn push_words(text: &mut String, words: &str) {
    let mut pending = false;
    for character in words.chars() {
        if character.is_whitespace() {
            pending = true;
        } else {
            if pending && !text.is_empty() && !text.ends_with(' ') {
                text.push(' ');
            }
            pending = false;
            text.push(character);
        }
    }
}

/// A line without colours and control characters, decoded; invalid UTF-8 becomes U+FFFD.
pub(crate) fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if !text.bytes().any(|byte| byte < 0x20) {
        return text.trim_end().trim_end_matches('\\').to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // A control sequence of a terminal: ESC [ parameters letter, or ESC and one character.
            '\u{1b}' => {
                if characters.peek() == Some(&'[') {
                    characters.next();
                    for inside in characters.by_ref() {
                        if ('@'..='~').contains(&inside) {
                            break;
                        }
                    }
                } else {
                    characters.next();
                }
            }
            '\t' => plain.push(' '),
            control if (control as u32) < 0x20 => {}
            other => plain.push(other),
        }
    }
    let length = plain.trim_end().trim_end_matches('\\').len();
    plain.truncate(length);
    plain
}

/// What loggers, containers, launchers and people put before a line: time stamps, `[rank0]:`, `ERROR 08-25 09:42:24
/// [core.py:700]`, `name-1  |`, comment marks, pytest's `E`.
static PREFIX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?x)^(?:
            \s+ | [\#>*|`•]+\s | //+ | E\s{2,}
          | \[rank\d+\]:? | \[\d+\]:\s | rank\s?\d+:\s | \[default\d+\]:
          | \([A-Za-z_]\w*(?:\s\w+=[\w.]+|\spid=\d+|,\s?\w+=[\w.]+)+\)
          | \[?\d{4}[-/]\d\d[-/]\d\d[T\s]\d\d:\d\d:\d\d[.,\d]*Z?(?:[+-]\d\d:?\d\d)?\]?:?
          | \d\d-\d\d\s\d\d:\d\d:\d\d | \[?\d\d:\d\d:\d\d[.,\d]*\]?\s
          | (?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b:?
          | \[(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|E|W|I)\]
          | \[[\w./-]+\.(?:py|cc|cpp|rs|go):\d+\]
          | [\w.-]+\s*\|\s
        )+",
    )
    .ok()
});

/// The line after its prefixes.
pub(crate) fn without_prefix(line: &str) -> &str {
    match PREFIX.as_ref().and_then(|prefix| prefix.find(line)) {
        Some(prefix) => &line[prefix.end()..],
        None => line,
    }
}

static RANK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\brank[ =:_]{0,2}(\d{1,5})\b|\[rank(\d{1,5})\]|\bTP(\d{1,4})\b|_TP(\d{1,4})\b|\[default(\d{1,4})\]:",
    )
    .ok()
});

/// The rank that wrote a line, where its first words say so.
pub(crate) fn rank(line: &str) -> Option<u32> {
    let head = &line[..floor_boundary(line, 120)];
    let captures = RANK.as_ref()?.captures(head)?;
    captures.iter().skip(1).flatten().next()?.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(text: &str) -> String {
        Paragraph::join(text.split('\n').enumerate().map(|(index, line)| (line.as_bytes(), index as u64 + 1))).text
    }

    #[test]
    fn a_wrapped_message_is_whole_again() {
        assert_eq!(
            join("# OOM: Tried to allocate\n#   1.16 GiB.\n# GPU 0 has"),
            "# OOM: Tried to allocate 1.16 GiB. GPU 0 has"
        );
        assert_eq!(join("a\n[rank0]: b\n(EngineCore_0 pid=72) ERROR 08-25 09:42:24 [core.py:700] c"), "a b c");
        assert_eq!(join("x \u{1b}[31mred\u{1b}[0m\r\nserver-1  | y"), "x red y");
    }

    #[test]
    fn lines_of_another_rank_are_left_out() {
        assert_eq!(join("[rank0]: one\n[rank1]: two\n[rank0]: three"), "[rank0]: one three");
        assert_eq!(rank("[2024-10-22 06:31:49 TP3] x"), Some(3));
        assert_eq!(rank("(VllmWorker rank=2 pid=4) INFO"), Some(2));
        assert_eq!(rank("frank 3"), None);
    }

    #[test]
    fn places_know_their_lines() {
        let paragraph = Paragraph::join([(&b"one two"[..], 7), (&b"three"[..], 8)].into_iter());
        assert_eq!(paragraph.line_at(paragraph.text.find("three").unwrap()), 8);
        assert_eq!(paragraph.line_at(0), 7);
    }
}

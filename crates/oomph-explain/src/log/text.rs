//! Lines of a log made plain: colours, log prefixes and comment marks gone, wrapped messages whole again.

use std::sync::LazyLock;

use regex::Regex;

use super::wrapping::{self, Unwrapped};

/// The most characters of a message that are looked at, from its first line on.
const LONGEST_MESSAGE: usize = 6000;
/// The most lines over which one message is followed.
const MOST_LINES: usize = 28;
/// A terminal is no narrower than this, in characters.
const NARROWEST: usize = 40;

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
        Self::of_lines(&plain_lines(lines), None)
    }

    /// The same message, if its lines may have been broken in the middle of words, as a terminal does: a line of full
    /// width is then followed by the rest of its last word. The flag says that more than one line has that width, or that a
    /// number goes on in the next line, which is seldom so where lines were broken between words.
    pub fn join_broken<'a>(lines: impl Iterator<Item = (&'a [u8], u64)>) -> Option<(Self, bool)> {
        let lines = plain_lines(lines);
        let width = lines.first()?.width;
        let second = lines.get(1)?;
        let next = second.width;
        // Two messages of one length look like one that was broken at that length.
        let broken = width >= NARROWEST && next <= width && !second.begins_a_message();
        // A number that goes on in the next line was not broken between words. (Lines that begin with a time or with
        // their number all begin with a digit.)
        let numbered = lines.first()?.text.trim_start().starts_with(|first: char| first.is_ascii_digit());
        let in_number = |pair: &[PlainLine]| {
            let digit = |character: char| character.is_ascii_digit();
            pair[0].width == width
                && !pair[0].padded
                && !pair[1].begins_a_message()
                && pair[0].text.ends_with(digit)
                && pair[1].text.starts_with(|first: char| digit(first) || first == '.')
        };
        let sure = next == width || !numbered && lines.windows(2).any(in_number);
        broken.then(|| (Self::of_lines(&lines, Some(width)), sure))
    }

    fn of_lines(lines: &[PlainLine], broken_at: Option<usize>) -> Self {
        let mut paragraph = Self { text: String::new(), first_line: 0, starts: Vec::new() };
        let mut of_rank = None;
        let mut goes_on = false;
        // Where its own lines go on without a mark, those that have one are another's.
        let unmarked = |line: &PlainLine| {
            let text = line.text.trim_start();
            !is_marked(text) && without_prefix(text) == text
        };
        let alone = lines.iter().skip(1).any(unmarked);
        for (index, line) in lines.iter().enumerate() {
            let PlainLine { text: plain, number, width, padded, .. } = line;
            let rank_here = rank(plain);
            // PowerShell ends what it puts into a message with an empty line, after which the message goes on.
            let resumes = index > 1 && wrapping::is_of_powershell(&lines[index - 1].text, &lines[index - 2].text);
            goes_on = goes_on && (resumes || !line.begins_a_message());
            let words = if index == 0 {
                of_rank = rank_here;
                plain.as_str()
            } else {
                let another = alone && of_rank.is_none() && is_marked(plain);
                if another || of_rank.is_some() && rank_here.is_some() && rank_here != of_rank {
                    continue;
                }
                if CHAINS.iter().any(|chain| plain.contains(chain)) {
                    break;
                }
                if wrapping::is_of_powershell(plain, &lines[index - 1].text) {
                    continue;
                }
                if goes_on { plain.as_str() } else { without_prefix_of(&lines[0].text, plain) }
            };
            let words = without_place(words);
            if !paragraph.text.is_empty() && !goes_on {
                paragraph.text.push(' ');
            }
            goes_on = broken_at == Some(*width) && !padded;
            paragraph.starts.push((paragraph.text.len(), *number));
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
        // Not from the middle of a word.
        let whole = from == 0 || self.text[..from].ends_with([' ', '|']);
        let from = if whole { from } else { self.text[from..start].find(' ').map_or(start, |space| from + space + 1) };
        let to = floor_boundary(&self.text, end.max(from.saturating_add(240)).min(from.saturating_add(400)));
        let quote = self.text[from..to.max(from)].trim();
        // Nor to the middle of one.
        let is_cut = self.text[to.max(from)..].starts_with(char::is_alphanumeric) && to > end;
        match quote.rfind(' ').filter(|space| is_cut && from + space >= end) {
            Some(space) => format!("{} …", quote[..space].trim_end()),
            None => quote.to_owned(),
        }
    }
}

/// A line as a reader sees it.
struct PlainLine {
    text: String,
    number: u64,
    /// Its characters, with the spaces at its end.
    width: usize,
    /// Whether there were such spaces.
    padded: bool,
    /// Whether an empty line is above it.
    after_blank: bool,
}

impl PlainLine {
    /// Whether a logger or a launcher began a new line here, so that no word of the line above goes on in it.
    fn begins_a_message(&self) -> bool {
        self.after_blank || RECORD.as_ref().is_some_and(|record| record.is_match(&self.text))
    }
}

fn plain_lines<'a>(lines: impl Iterator<Item = (&'a [u8], u64)>) -> Vec<PlainLine> {
    let of_line = |(line, number): (&[u8], u64)| {
        let Unwrapped { text, room } = wrapping::unwrapped(&plain(line));
        let length = text.chars().count();
        let spaces = line.iter().rev().skip_while(|byte| **byte == b'\r').take_while(|byte| **byte == b' ').count();
        let width = room.unwrap_or(length + spaces);
        PlainLine { text, number, width, padded: width > length, after_blank: false }
    };
    let mut kept: Vec<PlainLine> = Vec::new();
    let mut blank = false;
    for line in lines.take(MOST_LINES).map(of_line) {
        if line.text.trim_start().is_empty() {
            blank = !kept.is_empty();
        } else {
            kept.push(PlainLine { after_blank: blank, ..line });
            blank = false;
        }
    }
    kept
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

/// A line without colours, control characters and markup, decoded; invalid UTF-8 becomes U+FFFD.
pub(crate) fn plain(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = wrapping::without_markup(&text);
    if !text.bytes().any(|byte| byte < 0x20) {
        return text.trim_end().trim_end_matches('\\').to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // A control sequence of a terminal: ESC [ parameters letter, ESC ] text, or ESC and one character.
            '\u{1b}' => {
                match characters.next() {
                    Some('[') => {
                        for inside in characters.by_ref() {
                            if ('@'..='~').contains(&inside) {
                                break;
                            }
                        }
                    }
                    // The target of a link or a window's title, up to BEL or ESC \.
                    Some(']') => {
                        for inside in characters.by_ref() {
                            if matches!(inside, '\u{7}' | '\u{1b}') {
                                break;
                            }
                        }
                        characters.next_if_eq(&'\\');
                    }
                    _ => {}
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
          | [│┃]\s | (?:stdout|stderr)\s[FP]\s
          | [\w.-]+\s*\|\s
        )+",
    )
    .ok()
});

/// What a line of a log begins with where it is not the rest of the line above: a time, a level, a rank.
static RECORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?x)^\s*(?:
            \[?\d{4}[-/]\d\d[-/]\d\d[T\s]\d\d:\d\d | \[?\d\d[-/]\d\d\s\d\d:\d\d:\d\d | \[?\d\d:\d\d:\d\d[.,\d]*\]?\s
          | [A-Z][a-z]{2}\s{1,2}\d{1,2}\s\d\d:\d\d:\d\d\s | [EWIFD]\d{4}\s\d\d:\d\d:\d\d
          | (?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?::\w|:?\s) | \[(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|[EWI])[\]:]
          | \[rank\d+\] | \[default\d+\]: | \([A-Za-z_]\w*\spid=\d+[,)]
        )",
    )
    .ok()
});

/// What Python prints between the errors of a chain, each of which is a message of its own.
const CHAINS: [&str; 3] = [
    "Traceback (most recent call last)",
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
];

/// The line after its prefixes.
pub(crate) fn without_prefix(line: &str) -> &str {
    match PREFIX.as_ref().and_then(|prefix| prefix.find(line)) {
        Some(prefix) => &line[prefix.end()..],
        None => line,
    }
}

/// A line of a message after its prefixes, among them what it has in common with the message's first line: writers of
/// logs put the same marks before each line, in which only the digits change.
fn without_prefix_of<'a>(first: &str, line: &'a str) -> &'a str {
    let known = without_prefix(line);
    let marks = shared_marks(first, line);
    if line.len() - known.len() >= marks { known } else { without_prefix(&line[marks..]) }
}

/// How many bytes two lines begin with alike, digits aside, up to the last mark that ends a prefix and the space behind it.
fn shared_marks(first: &str, line: &str) -> usize {
    let mut one = first.chars().peekable();
    let mut other = line.char_indices().peekable();
    let mut end = 0;
    while let (Some(&theirs), Some(&(at, ours))) = (one.peek(), other.peek()) {
        if theirs.is_ascii_digit() && ours.is_ascii_digit() {
            while one.next_if(char::is_ascii_digit).is_some() {}
            while other.next_if(|(_, character)| character.is_ascii_digit()).is_some() {}
            continue;
        }
        if theirs != ours {
            break;
        }
        let mark = matches!(ours, ':' | ']' | ')' | '>' | '|' | '+' | '#' | '*' | '-' | '│');
        // `Z` ends a time; a line can begin with its number.
        let of_number = line[..at].ends_with(|last: char| last.is_ascii_digit())
            && (ours == 'Z' || ours == ' ' && line[..at].trim_start().bytes().all(|byte| byte.is_ascii_digit()));
        if mark || of_number || (ours == ' ' && end == at) {
            end = at + ours.len_utf8();
        }
        one.next();
        other.next();
    }
    end
}

/// A line without the place in the source that some loggers put at its right edge, and without the edge of a box.
fn without_place(line: &str) -> &str {
    static PLACE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\s{2,}[\w./-]+\.py:\d+$|\s+│$").ok());
    // The expression is costly to begin at every place, so that the end is looked at first.
    if !line.ends_with(|last: char| last.is_ascii_digit() || last == '│') {
        return line;
    }
    match PLACE.as_ref().and_then(|place| place.find(line)) {
        Some(place) => &line[..place.start()],
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

/// Whether a launcher has put the rank of its writer before a line.
fn is_marked(line: &str) -> bool {
    let line = line.trim_start();
    ["[rank", "[default"]
        .iter()
        .any(|mark| line.strip_prefix(mark).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit())))
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
    fn a_message_is_taken_out_of_what_holds_it() {
        let row = |text: &str| format!("│ {text:<50} │");
        let boxed = [row("RuntimeError: CUDA out of memory. Tried to"), row("allocate 2.00 GiB")].join("\n");
        assert_eq!(join(&boxed), "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB");
        let lines = boxed.split('\n').map(|line| (line.as_bytes(), 1));
        let (broken, _) = Paragraph::join_broken(lines).expect("the lines have one width");
        assert_eq!(broken.text, "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB");
        assert_eq!(join("{\"log\":\"Tried to\\n\"}\n{\"log\":\"allocate 2 GiB\\n\"}"), "Tried to allocate 2 GiB");
        assert_eq!(join("<pre>Tried to<br>\nallocate &#39;2&#39; GiB</pre>"), " Tried to allocate '2' GiB".trim());
        let bar = "12%|█▏        | 12/100 [00:03<00:21,  4.1it/s]\r";
        assert_eq!(join(&format!("Tried to\n{bar}\nallocate")), "Tried to allocate");
    }

    #[test]
    fn marks_that_every_line_has_go() {
        for (first, second) in [
            ("[trainer3]: a", "[trainer3]: b"),
            ("Nov 20 12:00:01 node17 python[12345]: a", "Nov 20 12:00:02 node17 python[12345]: b"),
            ("2026-11-20 12:00:01,123 - trainer - ERROR - a", "2026-11-20 12:00:01,124 - trainer - ERROR - b"),
            ("E1120 12:00:01.123456 99 trainer.cc:99] a", "E1120 12:00:01.123461 99 trainer.cc:99] b"),
            ("logs/train.log:17:a", "logs/train.log:18:b"),
            ("+a", "+b"),
            ("    17 a", "    18 b"),
            ("job step 2026-11-20T12:00:01.123Z a", "job step 2026-11-20T12:00:01.124Z b"),
        ] {
            assert_eq!(join(&format!("{first}\n{second}")), format!("{} b", first.trim_start()));
        }
        // What only looks alike is the message's own.
        assert_eq!(join("Process 12 has 1 GiB\nProcess 7 has 2 GiB"), "Process 12 has 1 GiB Process 7 has 2 GiB");
        assert_eq!(
            join("[11:00] ERROR    Tried to     train.py:99\n         allocate"),
            "[11:00] ERROR Tried to allocate"
        );
    }

    #[test]
    fn what_powershell_puts_into_a_message_is_left_out() {
        let text = "python.exe : Tried to\nAt line:1 char:1\n+ python train.py\n+ ~~~~~~~~~~~~~~~\n    + CategoryInfo          \
                    : NotSpecified: (Tried to:String) [], RemoteException\n    + FullyQualifiedErrorId : NativeCommandError\n \nallocate";
        assert_eq!(join(text), "python.exe : Tried to allocate");
    }

    #[test]
    fn a_line_that_a_terminal_broke_is_whole_again() {
        let text =
            "CUDA out of memory. Tried to allocate 24.\n00 MiB (GPU 0; 8.00 GiB total capacity; 7.10\n GiB already";
        let lines = || text.split('\n').map(|line| (line.as_bytes(), 1));
        assert!(Paragraph::join_broken(lines()).is_none(), "the second line is wider");
        let text = "Cannot allocate 9.492432MB memory on GPU 0, 4.0000\n00GB memory has been allocated";
        let lines = || text.split('\n').map(|line| (line.as_bytes(), 1));
        assert!(Paragraph::join_broken(lines()).is_some_and(|(whole, sure)| sure && whole.text.contains("4.000000GB")));
        let text =
            "CUDA out of memory. Tried to allocate 24.\n00 MiB (GPU 0; 8.00 GiB total capacity; 7\n.10 GiB already";
        let lines = || text.split('\n').map(|line| (line.as_bytes(), 1));
        let (whole, sure) = Paragraph::join_broken(lines()).expect("two lines of one width");
        assert!(sure);
        assert!(whole.text.contains("24.00 MiB (GPU 0; 8.00 GiB total capacity; 7.10 GiB"), "{}", whole.text);
    }

    #[test]
    fn two_messages_of_one_width_are_not_one_that_was_broken() {
        let line = |second: &str| {
            format!(
                "\u{1b}[1;31m2026-11-28 07:55:{second} [E:onnxruntime:, bfc_arena.cc:360] requested buffer of size 822083584"
            )
        };
        for between in ["\n", "\n\n", "\n\u{1b}[m\n"] {
            let text = format!("{}{between}{}", line("15.1"), line("15.7"));
            let lines = text.split('\n').map(|line| (line.as_bytes(), 1));
            assert!(Paragraph::join_broken(lines).is_none(), "{text}");
        }
        // The message itself may be broken, and another one of its width follow.
        let text = "CUDA out of memory. Tried to allocate 24.\n00 MiB (GPU 0; 8.00 GiB total capacity; 7\n\n10 GiB";
        let (whole, _) = Paragraph::join_broken(text.split('\n').map(|line| (line.as_bytes(), 1))).unwrap();
        assert!(whole.text.contains("24.00 MiB") && whole.text.ends_with("7 10 GiB"), "{}", whole.text);
    }

    #[test]
    fn a_message_ends_where_python_goes_on_to_the_next_error() {
        for chain in [
            "During handling of the above exception, another exception occurred:",
            "The above exception was the direct cause of the following exception:",
        ] {
            assert_eq!(
                join(&format!("results in CUDA_ERROR_OUT_OF_MEMORY\n\n{chain}\n\nmore")),
                "results in CUDA_ERROR_OUT_OF_MEMORY"
            );
        }
    }

    #[test]
    fn a_quotation_begins_with_a_word() {
        let text = "worker 12 of the first node OP_REQUIRES failed at conv_ops.cc:446 : OOM when allocating a tensor";
        let paragraph = Paragraph::join([(text.as_bytes(), 1)].into_iter());
        let start = text.find("OOM").unwrap();
        assert_eq!(paragraph.quote(start, start + 3), &text[text.find("of the").unwrap()..]);
    }

    #[test]
    fn links_and_titles_of_terminals_go() {
        assert_eq!(
            plain(b"\x1b]8;;file:///x\x1b\\train.py\x1b]8;;\x1b\\ and \x1b]0;title\x07rest"),
            "train.py and rest"
        );
    }

    #[test]
    fn lines_of_another_rank_are_left_out() {
        assert_eq!(join("[rank0]: one\n[rank1]: two\n[rank0]: three"), "[rank0]: one three");
        assert_eq!(join("one\n[rank5]: two\nthree"), "one three");
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

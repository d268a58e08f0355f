//! Finds what the lines of a log say in passing: when, and about which model.

use std::io::{self, Read};
use std::sync::LazyLock;

use chrono::NaiveDate;
use regex::bytes::Regex;

/// How much of a line is looked at, in bytes.
const LOOKED_AT: usize = 1 << 10;
/// How many time stamps are kept; of more, every second one is dropped.
const MOST: usize = 4096;

/// A reader that watches the lines which pass through it.
pub struct Watched<R> {
    inner: R,
    seen: Seen,
}

/// What was seen.
#[derive(Default)]
pub struct Seen {
    /// The start of the line that is not complete.
    line: Vec<u8>,
    number: u64,
    /// Lines with a time stamp: the line's number and the time in microseconds.
    stamps: Vec<(u64, i64)>,
    /// Only every so many stamps are kept.
    every: u64,
    count: u64,
    model: Option<String>,
}

impl<R: Read> Watched<R> {
    /// Watches a reader.
    pub fn new(inner: R) -> Self {
        Self { inner, seen: Seen { number: 1, every: 1, ..Seen::default() } }
    }

    /// What was seen.
    pub fn into_seen(mut self) -> Seen {
        self.seen.end_line();
        self.seen
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.seen.feed(&buffer[..read]);
        Ok(read)
    }
}

impl Seen {
    fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.extend(&bytes[..end]);
            self.end_line();
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = LOOKED_AT.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        if let Some(time) = stamp(&self.line) {
            if self.count.is_multiple_of(self.every) {
                self.stamps.push((self.number, time));
            }
            self.count += 1;
            if self.stamps.len() >= MOST {
                let mut keep = false;
                self.stamps.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.every *= 2;
            }
        }
        if self.model.is_none() {
            self.model = model(&self.line);
        }
        self.line.clear();
        self.number += 1;
    }

    /// The last time stamp at or before a line, or the first after it; microseconds since 1970.
    #[must_use]
    pub fn time_of(&self, line: u64) -> Option<i64> {
        let after = self.stamps.partition_point(|(number, _)| *number <= line);
        let stamp = after.checked_sub(1).map_or(self.stamps.first(), |before| self.stamps.get(before));
        stamp.map(|(_, time)| *time)
    }

    /// The first model that a line names.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// The time that a line begins with or holds, such as `2026-11-20 10:00:00,123` or `2026-11-20T10:00:00+01:00`. Without
/// an offset it is taken for UTC.
fn stamp(line: &[u8]) -> Option<i64> {
    memchr::memmem::find_iter(line, b"20").find_map(|at| {
        let begins = at == 0 || !line[at - 1].is_ascii_digit();
        if begins { time_at(&line[at..]) } else { None }
    })
}

fn time_at(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| {
        text.get(from..to)?
            .iter()
            .try_fold(0u32, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let dashes = matches!((text[4], text[7]), (b'-', b'-') | (b'/', b'/'));
    if !dashes || !matches!(text[10], b' ' | b'T') || text[13] != b':' || text[16] != b':' {
        return None;
    }
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    let time = date.and_hms_opt(hour, minute, second)?.and_utc();
    let mut rest = &text[19..];
    if let [b'.' | b',', fraction @ ..] = rest {
        rest = &fraction[fraction.iter().take_while(|byte| byte.is_ascii_digit()).count()..];
    }
    let offset = match rest {
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2, ..] | [sign @ (b'+' | b'-'), h1, h2, m1, m2, ..]
            if [h1, h2, m1, m2].iter().all(|digit| digit.is_ascii_digit()) =>
        {
            let digit = |byte: &u8| i64::from(byte - b'0');
            let minutes = (digit(h1) * 10 + digit(h2)) * 60 + digit(m1) * 10 + digit(m2);
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => 0,
    };
    Some(time.timestamp_micros() - offset * 60_000_000)
}

/// Where a name of a model is found, the surest place first.
static MODEL: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        r#"from_pretrained\(\s*['"]([\w~./][\w.\-/]{2,95})"#,
        r#"(?i)--?model(?:[_-](?:name|path|id|name[_-]or[_-]path))?[= ]\s*['"]?([\w~./][\w.\-/]{2,95})"#,
        r#"(?i)\bmodel(?:_id|_path|_name|_name_or_path)?['"]?\s*[:=]\s*['"]?([\w~./][\w.\-/]{2,95})"#,
        r#"(?i)\bloading model\s+['"]?([\w~./][\w.\-/]{2,95})"#,
    ]
    .iter()
    .filter_map(|pattern| Regex::new(pattern).ok())
    .collect()
});

/// The model that a line names: an argument, a setting, or what is loaded. A name has a slash, a dash or a digit in it;
/// `model = Net` is a variable.
#[must_use]
pub fn model(line: &[u8]) -> Option<String> {
    memchr::memmem::find(line, b"odel").or_else(|| memchr::memmem::find(line, b"from_pretrained"))?;
    MODEL.iter().flat_map(|pattern| pattern.captures_iter(line)).find_map(|found| {
        let name = std::str::from_utf8(found.get(1)?.as_bytes()).ok()?.trim_end_matches(['.', '/', '-']);
        let local = name.starts_with(['/', '.', '~']) || name.matches('/').count() > 1;
        let name = if local { name.rsplit('/').next()? } else { name };
        let named = name.bytes().any(|byte| byte == b'/' || byte == b'-' || byte.is_ascii_digit())
            && name.bytes().any(|byte| byte.is_ascii_alphabetic());
        named.then(|| name.to_owned())
    })
}

/// The model that a command names.
#[must_use]
pub fn model_of(command: &[String]) -> Option<String> {
    model(command.join(" ").as_bytes())
}

/// The program of a command: its first script, else its first word, without the folder.
#[must_use]
pub fn program_of(command: &[String]) -> Option<String> {
    let script = command.iter().find(|word| word.ends_with(".py") || word.ends_with(".ipynb") || word.ends_with(".sh"));
    let word = script.or(command.first())?;
    word.rsplit(['/', '\\']).next().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Seen {
        let mut watched = Watched::new(text.as_bytes());
        io::copy(&mut watched, &mut io::sink()).unwrap();
        watched.into_seen()
    }

    #[test]
    fn the_last_time_before_a_line_counts() {
        let seen = seen(
            "start\n[2026-11-20 10:00:00,123] INFO a\nb\n2026-11-20T12:00:00+01:00 c\n2026/11/21 00:00:00 d 2199-99-99 1",
        );
        let ten = 1_795_168_800_000_000;
        assert_eq!(seen.time_of(1), Some(ten));
        assert_eq!(seen.time_of(3), Some(ten));
        assert_eq!(seen.time_of(4), Some(ten + 3_600_000_000));
        assert_eq!(seen.time_of(900), Some(ten + 14 * 3_600_000_000));
        assert_eq!(super::stamp(b"2026-13-20 10:00:00"), None);
        assert_eq!(super::stamp(b"step 20 of 2026-11"), None);
        assert_eq!(super::stamp(b"2026-11-20 10:00:6"), None);
    }

    #[test]
    fn many_times_are_thinned_and_stay_in_order() {
        let text: String = (0..20_000)
            .map(|second| format!("2026-11-20 {:02}:{:02}:{:02} x\n", second / 3600, second / 60 % 60, second % 60))
            .collect();
        let seen = seen(&text);
        assert!(seen.stamps.len() < MOST);
        let (start, end) = (seen.time_of(1).unwrap(), seen.time_of(20_000).unwrap());
        assert!((end - start - 19_999_000_000).abs() < 60_000_000, "{start} {end}");
    }

    #[test]
    fn models_are_named_by_arguments_and_calls() {
        for (line, name) in [
            ("python train.py --model_name_or_path meta-llama/Llama-3.1-8B --bs 4", Some("meta-llama/Llama-3.1-8B")),
            ("    model = AutoModel.from_pretrained(\"gpt2\")", Some("gpt2")),
            ("{'model': 'Qwen/Qwen2.5-0.5B', 'lr': 1}", Some("Qwen/Qwen2.5-0.5B")),
            ("vllm serve --model=/data/models/llama-3-70b/", Some("llama-3-70b")),
            ("model = Net()", None),
            ("    return model(x)", None),
            ("no words", None),
        ] {
            assert_eq!(super::model(line.as_bytes()).as_deref(), name, "{line}");
        }
        let command = ["torchrun", "--nproc", "2", "/home/ada/train.py"].map(str::to_owned);
        assert_eq!(program_of(&command).as_deref(), Some("train.py"));
    }
}

//! What a line of a log is wrapped in: the markup of a page, the edges of a box, an object of JSON, a progress bar.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

/// An object of JSON longer than this does not count as a line of a log, in bytes.
const LONGEST_OBJECT: usize = 64 << 10;

/// The keys under which loggers and containers put the text of a line.
const TEXT_KEYS: [&str; 14] = [
    "log",
    "msg",
    "message",
    "event",
    "text",
    "line",
    "body",
    "textPayload",
    "MESSAGE",
    "exception",
    "error",
    "err",
    "stack",
    "traceback",
];

/// The keys under which servers put several of them.
const LIST_KEYS: [&str; 3] = ["warnings", "errors", "messages"];

/// A line without what it is wrapped in.
pub(crate) struct Unwrapped {
    pub text: String,
    /// The characters that the line had room for, where a box shows it.
    pub room: Option<usize>,
}

/// Takes a plain line out of a box, an object of JSON, and from behind a progress bar.
pub(crate) fn unwrapped(line: &str) -> Unwrapped {
    if let Some(text) = text_of_object(line) {
        return Unwrapped { text, room: None };
    }
    if let Some(inside) = inside_box(line) {
        let room = inside.chars().count();
        return Unwrapped { text: inside.trim_end().to_owned(), room: Some(room) };
    }
    Unwrapped { text: behind_bar(line).to_owned(), room: None }
}

/// The text of a line that is an object of JSON, with its line ends as spaces.
pub(crate) fn text_of_object(line: &str) -> Option<String> {
    let line = line.trim();
    if !line.starts_with("{\"") || !line.ends_with('}') || line.len() > LONGEST_OBJECT {
        return None;
    }
    let object: Map<String, Value> = serde_json::from_str(line).ok()?;
    let lists = LIST_KEYS.iter().filter_map(|key| object.get(*key)?.as_array()).flatten().filter_map(Value::as_str);
    let texts: Vec<&str> = TEXT_KEYS.iter().filter_map(|key| object.get(*key)?.as_str()).chain(lists).collect();
    if texts.is_empty() { None } else { Some(texts.join(" ").replace(['\n', '\r'], " ")) }
}

/// The text between the two edges of a box.
fn inside_box(line: &str) -> Option<&str> {
    let edge = |character: char| matches!(character, '│' | '┃' | '║');
    let line = line.trim();
    let inside = line.strip_prefix(edge)?.strip_suffix(edge)?;
    let inside = inside.strip_prefix(' ').unwrap_or(inside);
    Some(inside.strip_suffix(' ').unwrap_or(inside))
}

/// A line up to the right edge of a box.
pub(crate) fn without_edge(line: &str) -> &str {
    match line.strip_suffix(['│', '┃', '║']) {
        Some(rest) => rest.trim_end(),
        None => line,
    }
}

/// The text after a progress bar (`40%|████      | 4/10 [00:03<00:05, 1.2it/s]`), which is redrawn in the same line.
pub(crate) fn behind_bar(line: &str) -> &str {
    static BAR: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[^|]{0,80}?\b\d{1,3}%\|[^|]{0,300}\|[^\[|]{0,60}\[[^\]]{0,120}\]").ok());
    if !line.contains("%|") {
        return line;
    }
    match BAR.as_ref().and_then(|bar| bar.find(line)) {
        Some(bar) => &line[bar.end()..],
        None => line,
    }
}

/// Whether Windows PowerShell wrote a line into what a program wrote to standard error: the place of the command, the
/// command itself below it, and what kind of error it takes it for.
pub(crate) fn is_of_powershell(line: &str, above: &str) -> bool {
    let place = |line: &str| {
        line.strip_prefix("At ")
            .and_then(|rest| rest.rsplit_once(" char:"))
            .is_some_and(|(_, column)| !column.is_empty() && column.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("+ ") else { return place(line) };
    let marks = rest.bytes().all(|byte| byte == b'~');
    marks || rest.starts_with("CategoryInfo") || rest.starts_with("FullyQualifiedErrorId") || place(above.trim())
}

/// A line, as pasted from a page's source, without the tags and references of HTML.
pub(crate) fn without_markup(line: &str) -> Cow<'_, str> {
    struct Markup {
        breaks: Regex,
        marks: Regex,
    }
    static MARKUP: LazyLock<Option<Markup>> = LazyLock::new(|| {
        Some(Markup {
            breaks: Regex::new(r"(?i)</?(?:br|p|div|li|td|tr|pre)\b(?:\s[^<>]{0,300})?\s?/?>").ok()?,
            marks: Regex::new(r"(?i)</?(?:code|span|b|i|em|strong|tt|samp|font)\b(?:\s[^<>]{0,300})?>").ok()?,
        })
    });
    let Some(markup) = MARKUP.as_ref().filter(|_| line.contains(['<', '&'])) else { return Cow::Borrowed(line) };
    let text = markup.breaks.replace_all(line, " ");
    let text = match markup.marks.replace_all(&text, "") {
        Cow::Borrowed(_) => text,
        Cow::Owned(changed) => Cow::Owned(changed),
    };
    if !text.contains('&') || !text.contains(';') {
        return text;
    }
    let references = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&apos;", "'"),
        ("&#96;", "`"),
        ("&#x60;", "`"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ];
    let decoded = references.iter().fold(text.into_owned(), |text, (reference, character)| {
        if text.contains(reference) { text.replace(reference, character) } else { text }
    });
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappings_come_off() {
        for (line, text) in [
            ("│ Tried to allocate    │", "Tried to allocate"),
            (r#"{"log":"Tried to\n","stream":"stderr"}"#, "Tried to "),
            (r#"{"event":"failed","exception":"Tried to\nallocate"}"#, "failed Tried to allocate"),
            ("Epoch 3:  12%|█▏        | 12/100 [00:03<00:21,  4.1it/s]Tried to", "Tried to"),
            ("100%|██████████| 5/5 [00:03<00:00]", ""),
            ("Tried to allocate", "Tried to allocate"),
            ("a 5%| b", "a 5%| b"),
            (r#"{"level":3}"#, r#"{"level":3}"#),
            (r#"{"error":"unknown","warnings":["Tried to","x"]}"#, "unknown Tried to x"),
        ] {
            assert_eq!(unwrapped(line).text, text, "{line}");
        }
        assert_eq!(unwrapped("│ ab   │").room, Some(4));
    }

    #[test]
    fn pages_are_read_as_they_look() {
        assert_eq!(
            without_markup("<pre>Cuda failure 2 &#39;out of memory&#39;</pre>"),
            " Cuda failure 2 'out of memory' "
        );
        assert_eq!(without_markup(r#"<span class="x">1</span>.00 GiB<br>"#), "1.00 GiB ");
        assert_eq!(without_markup("in <module> a < b && c > d"), "in <module> a < b && c > d");
        assert_eq!(without_markup("&amp;lt;"), "&lt;");
    }
}

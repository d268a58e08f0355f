//! Makes strings that come from the program harmless to a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` with every character that could steer a terminal or mislead its reader written as an escape:
/// control characters (`\n`, `\u{1b}`), and the invisible ones that change the direction or the identity of text.
///
/// The result is always a single line.
#[must_use]
pub fn clean(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push(' '),
            _ if is_harmful(character) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    Cow::Owned(out)
}

/// The same for a JSON document: what a terminal would act on becomes an escape of JSON, so that the document says the
/// same. Its own line breaks stay.
#[must_use]
pub fn clean_json(document: &str) -> Cow<'_, str> {
    let harmful = |character: char| character != '\n' && is_harmful(character);
    if !document.chars().any(harmful) {
        return Cow::Borrowed(document);
    }
    let mut out = String::with_capacity(document.len() + 64);
    for character in document.chars() {
        if harmful(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Whether a character must not reach a terminal unescaped.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            // Zero-width characters, direction marks, embeddings and isolates, line and paragraph separators, the
            // byte-order mark, and the language tags.
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_not_copied() {
        assert!(matches!(clean("/home/zoé/学習.py"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_document_says_the_same_without_the_characters_themselves() {
        let value = serde_json::json!({"name": "a\u{9b}31m\u{202e}b\u{e0041}\u{1b}[0m"});
        let text = serde_json::to_string_pretty(&value).expect("it is written");
        let cleaned = clean_json(&text);
        assert!(cleaned.is_ascii() && cleaned.contains('\n'), "{cleaned}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&cleaned).expect("it is read"), value);
        assert!(matches!(clean_json("{\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn escape_sequences_lose_their_power() {
        assert_eq!(clean("\x1b[2Jgone\u{9b}31m"), "\\u{1b}[2Jgone\\u{9b}31m");
        assert_eq!(clean("a\nb\rc\td"), "a\\nb\\rc d");
        assert_eq!(clean("txt.\u{202e}yp"), "txt.\\u{202e}yp");
    }
}

//! Writes a unified diff that `git apply` takes.

use similar::TextDiff;

/// Lines that are shown around a change.
const CONTEXT: usize = 3;

/// The difference between two texts of one file, as `git diff` writes it; empty where they are the same.
///
/// `name` is the file's path with `/` between its parts, relative to where the patch is applied.
pub fn patch(name: &str, before: &str, after: &str) -> String {
    if before == after {
        return String::new();
    }
    let (old, new) = (quoted(&format!("a/{name}")), quoted(&format!("b/{name}")));
    let diff = TextDiff::from_lines(before, after);
    let mut hunks = diff.unified_diff();
    let text = hunks.context_radius(CONTEXT).header(&old, &new).to_string();
    format!("diff --git {old} {new}\n{text}")
}

/// A name as git writes it: in quotes where it has letters that would confuse.
fn quoted(name: &str) -> String {
    if name.chars().all(|letter| letter.is_ascii_graphic() && !matches!(letter, '"' | '\\') || letter == ' ') {
        return name.to_owned();
    }
    let mut text = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_has_the_form_of_git() {
        let text = patch("my dir/a.py", "one\ntwo\nthree", "one\n2\nthree");
        assert_eq!(
            text,
            "diff --git a/my dir/a.py b/my dir/a.py\n--- a/my dir/a.py\n+++ b/my dir/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\\ No newline at end of file\n"
        );
        assert_eq!(patch("a.py", "x", "x"), "");
        assert!(patch("\u{e9}.py", "x\n", "y\n").contains("\"a/\\303\\251.py\""));
    }
}

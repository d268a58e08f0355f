//! Writes a review as GitHub's workflow commands and job summaries.

use std::fmt::Write as _;

use super::{growth, line, message, needs, verdict_words};
use crate::review::{Review, ReviewedRun};

/// The commands that set annotations on lines, one a line. `path` gives a file as the repository names it.
#[must_use]
pub fn github_annotations(review: &Review, path: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for run in &review.runs {
        let (level, says) = if !run.violations.is_empty() {
            ("error", message(run))
        } else if is_worth_a_notice(run) {
            // Within what is allowed: nobody has to act.
            ("notice", line(run))
        } else {
            continue;
        };
        let name = run.gpu.as_deref().unwrap_or("memory");
        let place =
            run.place.as_ref().map(|place| format!("file={},line={},", property(&path(&place.file)), place.line));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "::{level} {}title={}::{}",
            place.unwrap_or_default(),
            property(&format!("oomph: {name}")),
            data(&says)
        );
    }
    text
}

/// Whether a run needs noticeably more than before. A growth of less than a fiftieth is noise to a reader.
fn is_worth_a_notice(run: &ReviewedRun) -> bool {
    let grown = run.growth_bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
    grown > 0 && run.before_bytes.is_some_and(|before| grown.saturating_mul(50) >= before)
}

/// A table in Markdown, for `$GITHUB_STEP_SUMMARY`.
#[must_use]
pub fn github_summary(review: &Review) -> String {
    let mut text = String::from("### GPU memory\n\n| card | | needs | change |\n|---|---|---|---|\n");
    for run in &review.runs {
        let name = run.gpu.as_deref().unwrap_or(&run.file);
        let word = run.verdict.map_or("", verdict_words);
        let mark = if run.violations.is_empty() { "" } else { "**not passed**: " };
        let cells = [name, word, &needs(run).unwrap_or_default(), &growth(run).unwrap_or_default()].map(markdown);
        let [name, word, needs, growth] = cells;
        let _ = writeln!(text, "| {name} | {mark}{word} | {needs} | {growth} |");
    }
    for run in review.runs.iter().filter(|run| !run.violations.is_empty()) {
        let name = run.gpu.as_deref().unwrap_or(&run.file);
        for broken in &run.violations {
            let place = run.place.as_ref().map(|place| format!(" (`{}:{}`)", markdown(&place.file), place.line));
            let _ = write!(text, "\n- {}, {}: {}", markdown(name), broken.limit, markdown(&broken.says));
            text += &place.unwrap_or_default();
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

/// Text that Markdown and HTML leave alone.
fn markdown(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '\n' | '\r' => out.push(' '),
            '|' | '`' | '*' | '[' | ']' | '\\' => out.extend(['\\', character]),
            _ if character.is_control() => {}
            _ => out.push(character),
        }
    }
    out
}

/// The message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

//! Writes a review as JUnit XML, which most CI services show as tests.

use std::fmt::Write as _;

use super::line;
use crate::review::Review;

/// A test case for each run.
#[must_use]
pub fn junit(review: &Review) -> String {
    let failures = review.runs.iter().filter(|run| !run.violations.is_empty()).count();
    let tests = review.runs.len();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "<testsuites tests=\"{tests}\" failures=\"{failures}\">");
    let _ = writeln!(text, "  <testsuite name=\"oomph\" tests=\"{tests}\" failures=\"{failures}\">");
    for run in &review.runs {
        let name = run.gpu.as_deref().unwrap_or(&run.file);
        let place = run.place.as_ref().map(|place| format!(" file=\"{}\" line=\"{}\"", xml(&place.file), place.line));
        let place = place.unwrap_or_default();
        let _ = writeln!(text, "    <testcase classname=\"oomph\" name=\"{}\"{place}>", xml(name));
        for broken in &run.violations {
            let (limit, says) = (xml(&broken.limit), xml(&broken.says));
            let _ = writeln!(text, "      <failure type=\"{limit}\" message=\"{says}\"/>");
        }
        let _ = writeln!(text, "      <system-out>{}</system-out>\n    </testcase>", xml(&line(run)));
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// Text in XML, without the characters that XML cannot hold.
fn xml(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' | '\r' | '\t' => out.push(' '),
            '\u{fffe}' | '\u{ffff}' => {}
            _ if character.is_control() => {}
            _ => out.push(character),
        }
    }
    out
}

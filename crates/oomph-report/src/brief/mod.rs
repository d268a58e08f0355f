//! The short form of an answer, `oomph.brief/1`: what a coding agent needs of it, in at most [`BRIEF_BYTES`] bytes.
//!
//! All commands that look for memory share this one form, so that a reader learns it once. The whole document stays what
//! `--format json` without `--brief` writes.

mod short;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clean_json;
use crate::dry_run::NextStep;
use crate::followed::Unreached;

pub use short::InBrief;

/// The most bytes that a short answer takes as JSON, its line break included.
pub const BRIEF_BYTES: usize = 2048;

/// The most characters of a text in it.
const MOST_TEXT: usize = 240;
/// The most characters of a command.
const MOST_COMMAND: usize = 400;
/// The most characters of a name.
const MOST_NAME: usize = 80;
/// The most of anything that comes in a list.
const MOST_ROWS: usize = 3;

oomph_protocol::schema!(BriefSchema, "oomph.brief/1");

/// An answer in short. What is not known, or has nothing to say, is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Brief {
    /// Name and version of this document: `oomph.brief/1`.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub schema: BriefSchema,
    /// Name and version of the document that this is short for, such as `oomph.dry-run/1`.
    pub of: String,
    /// The verdict, in the words of that document.
    pub verdict: String,
    /// The answer in one sentence.
    pub answer: String,
    /// The card, by its identifier in the catalogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// What the program may take of the card, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// What the program needs of the card, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs_bytes: Option<u64>,
    /// Whether it needs at least that much, because it was not followed to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_at_least: bool,
    /// Why it does not fit, or what weakens the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The line of the program at which memory runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<BriefPlace>,
    /// Whose memory it is, in bytes, the largest owners only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub owners: BTreeMap<String, u64>,
    /// What makes it fit, the first to try first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<BriefFix>,
    /// The values to use: those that `tune` recommends, or the largest that `plan` says fit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, u64>,
    /// The smallest cards that hold it, by their identifiers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<String>,
    /// What the program would do and the run did not reach, the first few. The answer does not hold for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreached: Vec<Unreached>,
    /// What weakens the answer, the first few.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What one would run next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<BriefNext>"))]
    pub next: Vec<NextStep>,
    /// The program, ready for a shell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Whether parts were left out or cut so that the document stays short.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A line of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BriefPlace {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The function that the line is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The line's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A change that helps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BriefFix {
    /// What is changed, in a few words.
    pub what: String,
    /// Whether the program was run with it on the virtual GPU.
    pub verified: bool,
    /// What the program needs with it, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs_bytes: Option<u64>,
    /// What happens to the program's result: `same`, `equivalent`, `approximate` or `changed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The words that apply it, where no command and no patch does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apply: Option<String>,
    /// The whole command line with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The change of the program's files as a unified diff; absent also where it is too long for this document, which
    /// `cut` says: `oomph fix --write N FILE` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
}

/// What [`NextStep`] looks like, for the schema.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[allow(dead_code)]
struct BriefNext {
    /// What it is for.
    why: String,
    /// The command, ready for a shell.
    command: String,
}

impl Brief {
    /// The document as one line of JSON of at most [`BRIEF_BYTES`] bytes, with its line break.
    #[must_use]
    pub fn line(self) -> String {
        let mut brief = self;
        brief.shorten();
        for give_up in GIVEN_UP {
            let line = brief.as_written();
            if line.len() <= BRIEF_BYTES {
                return line;
            }
            brief.cut = true;
            give_up(&mut brief);
        }
        brief.as_written()
    }

    fn as_written(&self) -> String {
        // The fields are texts, numbers and lists of them, which JSON holds without fail.
        let text = serde_json::to_string(self).unwrap_or_default();
        clean_json(&text).into_owned() + "\n"
    }

    /// Cuts every list and text to a length that people and agents read. A patch is whole or absent.
    fn shorten(&mut self) {
        let mut cut =
            [self.fixes.len(), self.warnings.len(), self.unreached.len()].iter().any(|count| *count > MOST_ROWS);
        self.unreached.truncate(MOST_ROWS);
        for one in &mut self.unreached {
            cut |= shortened(&mut one.part, MOST_NAME) | shortened(&mut one.why, MOST_NAME);
        }
        self.fixes.truncate(MOST_ROWS);
        self.cards.truncate(MOST_ROWS);
        self.warnings.truncate(MOST_ROWS);
        self.next.truncate(MOST_ROWS);
        let names = [&mut self.of, &mut self.verdict].into_iter().chain(self.gpu.iter_mut()).chain(&mut self.cards);
        names.for_each(|text| cut |= shortened(text, MOST_NAME));
        let texts = [&mut self.answer].into_iter().chain(self.cause.iter_mut()).chain(&mut self.warnings);
        texts.for_each(|text| cut |= shortened(text, MOST_TEXT));
        if let Some(place) = &mut self.place {
            cut |= shortened(&mut place.file, MOST_TEXT);
            let texts = place.function.iter_mut().chain(place.text.iter_mut());
            texts.for_each(|text| cut |= shortened(text, MOST_NAME));
        }
        for fix in &mut self.fixes {
            cut |= shortened(&mut fix.what, MOST_NAME);
            let texts = fix.command.iter_mut().chain(fix.apply.iter_mut());
            texts.for_each(|text| cut |= shortened(text, MOST_COMMAND));
        }
        for next in &mut self.next {
            cut |= shortened(&mut next.why, MOST_NAME) | shortened(&mut next.command, MOST_COMMAND);
        }
        self.command.iter_mut().for_each(|text| cut |= shortened(text, MOST_COMMAND));
        self.cut |= cut;
    }
}

/// What is given up where the document is too long, the least useful first. What then remains is short whatever it holds.
const GIVEN_UP: [fn(&mut Brief); 11] = [
    |brief| brief.warnings.truncate(1),
    |brief| brief.fixes.iter_mut().skip(1).for_each(|fix| fix.patch = None),
    |brief| brief.next.truncate(1),
    |brief| brief.fixes.truncate(2),
    |brief| brief.command = None,
    |brief| brief.fixes.truncate(1),
    |brief| brief.warnings.clear(),
    |brief| brief.fixes.iter_mut().for_each(|fix| fix.patch = None),
    |brief| brief.next.clear(),
    |brief| brief.fixes.clear(),
    |brief| {
        // Only texts of control characters, six bytes each, come as far as this.
        brief.cause = None;
        brief.place = None;
        brief.owners.clear();
        brief.values.clear();
        brief.cards.clear();
        brief.unreached.clear();
        shortened(&mut brief.answer, MOST_NAME);
    },
];

/// Cuts a text to so many characters, and says whether it did.
fn shortened(text: &mut String, most: usize) -> bool {
    let Some((end, _)) = text.char_indices().nth(most) else { return false };
    text.truncate(end);
    text.push_str("...");
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(text: &str) -> Brief {
        let fix = BriefFix {
            what: text.into(),
            verified: true,
            needs_bytes: Some(u64::MAX),
            result: Some("equivalent".into()),
            apply: Some(text.into()),
            command: Some(text.into()),
            patch: Some(text.into()),
        };
        Brief {
            of: "oomph.fix/1".into(),
            verdict: "fixed".into(),
            answer: text.into(),
            gpu: Some(text.into()),
            limit_bytes: Some(u64::MAX),
            needs_bytes: Some(u64::MAX),
            cause: Some(text.into()),
            place: Some(BriefPlace {
                file: text.into(),
                line: 1,
                function: Some(text.into()),
                text: Some(text.into()),
            }),
            fixes: vec![fix; 9],
            unreached: vec![Unreached { part: text.into(), why: text.into() }; 9],
            cards: vec![text.into(); 9],
            warnings: vec![text.into(); 9],
            next: vec![NextStep { why: text.into(), command: text.into() }; 9],
            command: Some(text.into()),
            ..Brief::default()
        }
    }

    #[test]
    fn whatever_it_holds_it_is_short_and_whole() -> Result<(), serde_json::Error> {
        for text in ["x", &"word ".repeat(60), &"\u{1b}".repeat(5000), &"\u{202e}語".repeat(5000)] {
            let line = full(text).line();
            assert!(line.len() <= BRIEF_BYTES, "{} bytes for {text:.20?}", line.len());
            assert_eq!(line.matches('\n').count(), 1);
            let read: serde_json::Value = serde_json::from_str(&line)?;
            assert_eq!((&read["schema"], &read["verdict"]), (&"oomph.brief/1".into(), &"fixed".into()));
            assert_eq!(read["cut"], true);
        }
        Ok(())
    }

    #[test]
    fn what_is_short_is_not_cut() -> Result<(), serde_json::Error> {
        let brief = Brief { verdict: "fits".into(), needs_bytes: Some(7), ..Brief::default() };
        let read: serde_json::Value = serde_json::from_str(&brief.line())?;
        assert_eq!(
            read,
            serde_json::json!({"schema": "oomph.brief/1", "of": "", "verdict": "fits", "answer": "", "needs_bytes": 7})
        );
        Ok(())
    }

    #[test]
    fn a_patch_is_whole_or_absent() {
        let patch = "+line\n".repeat(100);
        let fix = |patch: &str| BriefFix { what: "x".into(), patch: Some(patch.into()), ..BriefFix::default() };
        let brief = Brief { fixes: vec![fix(&patch)], ..Brief::default() };
        let read: serde_json::Value = serde_json::from_str(&brief.line()).unwrap_or_default();
        assert_eq!(read["fixes"][0]["patch"], patch);
        let brief = Brief { fixes: vec![fix(&patch.repeat(4))], ..Brief::default() };
        let read: serde_json::Value = serde_json::from_str(&brief.line()).unwrap_or_default();
        assert_eq!((&read["fixes"][0]["patch"], &read["cut"]), (&serde_json::Value::Null, &true.into()));
    }
}

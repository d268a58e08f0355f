//! `journal.jsonl`: what happened in guarded runs, one JSON object per line. A journal is only ever added to, and may hold
//! the lines of many runs.
//!
//! `oomph run` writes it; `oomph-fleet` reads it, also from files that a full disk has cut short and from releases that
//! wrote fewer fields. So every field has a default.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Phase;

crate::schema!(JournalSchema, crate::JOURNAL.text);

/// One line: what happened, when, in which run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JournalLine {
    /// Name and version of this document.
    pub schema: JournalSchema,
    /// The run's name in the file: when its command began, and its process.
    pub run: String,
    /// When it happened, in UTC, as in RFC 3339.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub event: JournalEvent,
}

/// What happened in a guarded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum JournalEvent {
    /// The command began.
    Start(Start),
    /// The program was started.
    Attempt(Attempt),
    /// The program ended.
    End(End),
    /// What happens next was decided.
    Decision(Decision),
    /// An event that a later release has added.
    #[serde(other)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    Other,
}

/// The command began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Start {
    /// The program and its arguments, without secrets.
    pub command: Vec<String>,
    /// The card's name.
    pub gpu: String,
    /// Whether the card is a virtual one.
    pub rehearsal: bool,
    /// What is free on the card, or what the program may take of it, in bytes.
    pub free_bytes: Option<u64>,
}

/// The program was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Attempt {
    /// Which attempt it is, from 1.
    pub number: u64,
    /// The remedies that it runs with, by id; empty for the unmodified program.
    pub remedies: Vec<String>,
    /// The checkpoint that it resumes from.
    pub checkpoint: Option<PathBuf>,
    /// The checkpoint's step.
    pub step: Option<u64>,
    /// Optimizer steps that an earlier attempt made and this one makes again.
    pub repeated_steps: u64,
    /// The peak that the dry run predicted, in bytes.
    pub predicted_peak_bytes: Option<u64>,
}

/// The program ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct End {
    /// Which attempt it was, from 1.
    pub number: u64,
    /// Its exit status; a signal's number is negative.
    pub exit_status: i32,
    /// How long it ran.
    pub seconds: f64,
    /// What PyTorch reserved at most, in bytes.
    pub reserved_peak_bytes: Option<u64>,
    /// The optimizer steps of the whole training, where the trainer counts them; otherwise those of this attempt.
    pub steps: u64,
    /// The step that it resumed at, as the trainer counted.
    pub resumed_at_step: Option<u64>,
    /// The samples of one optimizer step, where the trainer reports them.
    pub effective_batch: Option<u64>,
    /// The warnings about memory running out, given while it ran.
    pub signs: Vec<String>,
    /// The out-of-memory error that ended it, if one did.
    pub out_of_memory: Option<Death>,
}

/// An out-of-memory error that ended the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Death {
    /// The request that was refused, in bytes.
    pub requested_bytes: u64,
    /// What PyTorch had reserved, in bytes.
    pub reserved_bytes: Option<u64>,
    /// What the program was doing.
    pub phase: Phase,
    /// The step that it died in, from 1.
    pub step: u64,
    /// The file of the user's line.
    pub file: Option<String>,
    /// The user's line.
    pub line: Option<u32>,
    /// The rank that died.
    pub rank: Option<u32>,
    /// The recording, for `oomph explain`.
    pub recording: Option<PathBuf>,
}

/// What happens next, or why nothing does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Decision {
    /// The remedies that come next; empty where the run ends.
    pub remedies: Vec<String>,
    /// Why.
    pub reason: String,
    /// The time that dry runs took, in seconds.
    pub searched_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = JournalLine {
            schema: JournalSchema,
            run: "20261126-070000-4242".to_owned(),
            at: "2026-11-26T07:00:00.000Z".to_owned(),
            event: JournalEvent::End(End {
                number: 2,
                exit_status: 1,
                out_of_memory: Some(Death { requested_bytes: 1 << 30, ..Death::default() }),
                ..End::default()
            }),
        };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.starts_with(r#"{"schema":"oomph.journal/1","run":"20261126-070000-4242","#), "{text}");
        assert!(text.contains(r#""event":"end","number":2,"#), "{text}");
        assert_eq!(serde_json::from_str::<JournalLine>(&text).unwrap(), line);
    }

    #[test]
    fn a_line_of_another_release_is_read_as_far_as_it_is_known() {
        let fewer = r#"{"schema":"oomph.journal/1","run":"r","at":"t","event":"attempt","number":1}"#;
        let JournalEvent::Attempt(attempt) = serde_json::from_str::<JournalLine>(fewer).unwrap().event else {
            panic!()
        };
        assert_eq!(attempt, Attempt { number: 1, ..Attempt::default() });

        let more = r#"{"schema":"oomph.journal/1","run":"r","at":"t","event":"pause","minutes":5}"#;
        assert_eq!(serde_json::from_str::<JournalLine>(more).unwrap().event, JournalEvent::Other);
    }
}

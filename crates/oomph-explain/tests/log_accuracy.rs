//! The reader of logs against messages that people posted, with the facts that a person read off them.

mod scoring;

use std::path::PathBuf;

/// The messages that the patterns were written on. They are not part of the project; the test is skipped where they are
/// not there.
#[test]
fn real_messages_are_read_as_a_person_reads_them() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/oom-logs.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: {} is not there", path.display());
        return;
    };
    let score = scoring::score(&scoring::samples(&text));
    assert!(score.sure_and_wrong.is_empty(), "called a GPU's memory with confidence: {:?}", score.sure_and_wrong);
    assert!(score.verdicts >= 0.98, "verdicts");
    assert!(score.facts >= 0.97, "facts");
    assert!(score.frameworks >= 0.90, "frameworks");
}

/// Lines of public threads that were collected after the patterns and the weights were written. Each has its source.
#[test]
fn messages_that_were_never_shown_are_read() {
    let score = scoring::score(&scoring::samples(include_str!("public/messages.jsonl")));
    assert!(score.sure_and_wrong.is_empty(), "called a GPU's memory with confidence: {:?}", score.sure_and_wrong);
    assert!(score.verdicts >= 0.95, "verdicts");
    assert!(score.facts >= 0.95, "facts");
    assert!(score.frameworks >= 0.85, "frameworks");
}

/// A later set of such lines, of which the labels were committed before the reader saw them.
#[test]
fn a_second_set_of_messages_that_were_never_shown_is_read() {
    let score = scoring::score(&scoring::samples(include_str!("public/fresh.jsonl")));
    assert!(score.verdicts >= 0.97, "verdicts");
    assert!(score.facts >= 0.98, "facts");
    assert!(score.failures_named >= 0.95, "frameworks of failures");
}

/// A set of rare programs and of many near-misses, which it took more than words and patterns to read.
#[test]
fn a_fourth_set_of_messages_that_were_never_shown_is_read() {
    let score = scoring::score(&scoring::samples(include_str!("public/fourth.jsonl")));
    assert!(score.verdicts >= 0.98, "verdicts");
    assert!(score.facts >= 0.98, "facts");
    assert!(score.failures_named >= 0.95, "frameworks of failures");
}

/// A set with texts that are not part of the project, such as those of `public/third.jsonl`, which has the facts alone.
#[test]
fn a_set_of_ones_own_is_scored() {
    let Some(path) = std::env::var_os("OOMPH_MESSAGES") else {
        println!("skipped: OOMPH_MESSAGES names no file");
        return;
    };
    let text = std::fs::read_to_string(path).expect("OOMPH_MESSAGES names a file");
    let samples = scoring::samples(&text);
    assert!(!samples.is_empty(), "the file has messages");
    scoring::score(&samples);
}

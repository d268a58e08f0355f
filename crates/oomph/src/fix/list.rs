//! Lists the remedies (`oomph fix --list`), and resolves the words of `--allow` and `--forbid`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Result;
use oomph_remedy::{Catalogue, DryRunKind, Remedy, Sameness};
use serde::Serialize;

use crate::failure::hinted;
use crate::output::{self, Form};
use crate::status;

/// Words that people use, and the remedies that they mean.
const WORDS: &[(&str, &[&str])] = &[
    ("amp", &["autocast"]),
    ("mixed-precision", &["autocast"]),
    ("fp16", &["autocast", "half-weights"]),
    ("bf16", &["autocast", "pure-bf16", "half-weights"]),
    ("checkpointing", &["gradient-checkpointing", "checkpointing-every-n-layers", "selective-checkpointing"]),
    (
        "activation-checkpointing",
        &["gradient-checkpointing", "checkpointing-every-n-layers", "selective-checkpointing"],
    ),
    ("accumulation", &["micro-batch"]),
    ("gradient-accumulation", &["micro-batch"]),
    ("batch", &["micro-batch", "smaller-batch", "smaller-training-batch"]),
    ("batch-size", &["micro-batch", "smaller-batch", "smaller-training-batch"]),
    ("8bit", &["adam-8bit", "paged-adam-8bit", "lion-8bit", "weights-int8"]),
    ("8bit-adam", &["adam-8bit", "paged-adam-8bit"]),
    ("8-bit-adam", &["adam-8bit", "paged-adam-8bit"]),
    ("optimizer", &["adam-8bit", "paged-adam-8bit", "adam-4bit", "adafactor", "lion-8bit", "sgd"]),
    ("4bit", &["weights-nf4", "qlora", "adam-4bit"]),
    ("quantization", &["weights-int8", "weights-nf4", "qlora", "fp8-weights"]),
    (
        "offload",
        &[
            "activation-offload",
            "optimizer-cpu-offload",
            "gradient-cpu-offload",
            "model-cpu-offload",
            "sequential-cpu-offload",
            "group-offload",
            "device-map",
        ],
    ),
    ("cpu-offload", &["optimizer-cpu-offload", "gradient-cpu-offload", "model-cpu-offload", "sequential-cpu-offload"]),
    ("liger", &["fused-cross-entropy"]),
    ("cross-entropy", &["fused-cross-entropy", "chunked-cross-entropy"]),
    ("slicing", &["vae-slicing", "attention-slicing"]),
    ("tiling", &["vae-tiling"]),
    ("length", &["shorter-sequence"]),
    ("max-length", &["shorter-sequence"]),
    ("detach", &["detach-losses"]),
    ("environment", &["expandable-segments", "max-split-size", "garbage-collection-threshold", "cuda-malloc-async"]),
    ("allocator", &["expandable-segments", "max-split-size", "garbage-collection-threshold", "cuda-malloc-async"]),
    ("peft", &["lora", "qlora"]),
];

/// A remedy in the list.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    title: &'a str,
    changes: &'a str,
    sameness: Sameness,
    tried_by_fix: bool,
    frameworks: BTreeSet<&'static str>,
}

#[derive(Serialize)]
struct List<'a> {
    schema: &'static str,
    remedies: Vec<Row<'a>>,
}

/// Prints the remedies that a search tries, or with `--format json` all.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(catalogue: &Catalogue, form: Form) -> Result<ExitCode> {
    let rows: Vec<Row<'_>> = catalogue.remedies().iter().map(row).collect();
    let text = if form != Form::Text {
        let list = List { schema: "oomph.remedies/1", remedies: rows };
        format!("{}\n", serde_json::to_string_pretty(&list)?)
    } else {
        let mut text = String::new();
        for row in rows.iter().filter(|row| row.tried_by_fix) {
            let frameworks: Vec<&str> = row.frameworks.iter().copied().collect();
            text.push_str(&format!(
                "{}  ({})\n    {}\n    {}\n",
                row.id,
                sameness(row.sameness),
                row.changes,
                frameworks.join(", ")
            ));
        }
        text
    };
    output::data(&text)?;
    Ok(ExitCode::from(status::DONE))
}

fn row(remedy: &Remedy) -> Row<'_> {
    Row {
        id: &remedy.id,
        title: &remedy.title,
        changes: &remedy.changes,
        sameness: remedy.sameness,
        tried_by_fix: is_tried(remedy),
        frameworks: remedy.written.iter().map(|written| written.framework.name()).collect(),
    }
}

fn sameness(sameness: Sameness) -> &'static str {
    match sameness {
        Sameness::Exact => "same result",
        Sameness::Equivalent => "same result but for rounding",
        Sameness::Approximate => "nearly the same result",
        Sameness::ChangesTheResult => "changes the result",
    }
}

/// Whether a dry run can try a remedy.
fn is_tried(remedy: &Remedy) -> bool {
    !matches!(remedy.dry_run.kind, DryRunKind::None | DryRunKind::Machine) || oomph_edit::has_recipe(&remedy.id)
}

/// Ids of remedies as typed, or what people call them.
///
/// # Errors
/// When there is no such remedy; the error names those that are spelled alike.
pub fn ids(catalogue: &Catalogue, option: &str, typed: &[String]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for word in typed.iter().map(|word| word.trim()) {
        // An answer names some with their amount.
        let plain = word.split_once('/').map_or(word, |(id, _)| id);
        if let Some(remedy) = catalogue.get(plain) {
            found.insert(remedy.id.clone());
            continue;
        }
        let spelled = plain.to_lowercase().replace([' ', '_'], "-");
        if let Some((_, ids)) = WORDS.iter().find(|(known, _)| *known == spelled) {
            found.extend(ids.iter().filter(|id| catalogue.get(id).is_some()).map(|id| (*id).to_owned()));
            continue;
        }
        let near: Vec<&str> = catalogue.nearest(plain).into_iter().map(|remedy| remedy.id.as_str()).collect();
        let hint = match near.as_slice() {
            [] => "oomph fix --list names them all".to_owned(),
            near => format!("did you mean {}?", near.join(" or ")),
        };
        return Err(hinted(format!("{option}: there is no remedy `{}`", oomph_report::clean(word)), hint));
    }
    Ok(found)
}

/// The remedies of `--allow` are those that a dry run can try.
///
/// # Errors
/// When there is no such remedy, or a dry run cannot try it.
pub fn allowed(catalogue: &Catalogue, typed: &[String]) -> Result<BTreeSet<String>> {
    let ids = ids(catalogue, "--allow", typed)?;
    let untried = |id: &&String| catalogue.get(id).is_some_and(|remedy| !is_tried(remedy));
    match ids.iter().find(untried).and_then(|id| catalogue.get(id)) {
        Some(remedy) => Err(hinted(
            format!("--allow: `{}` cannot be tried in a dry run", remedy.id),
            format!("{}; leave it out", remedy.dry_run.what),
        )),
        None => Ok(ids),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_means_remedies_of_the_catalogue() {
        for (word, ids) in WORDS {
            for id in *ids {
                assert!(Catalogue::builtin().get(id).is_some(), "{word}: {id}");
            }
        }
    }

    #[test]
    fn what_is_placed_in_code_can_be_allowed() {
        assert!(allowed(Catalogue::builtin(), &["gradient-bucket-view".to_owned()]).is_ok());
        assert!(allowed(Catalogue::builtin(), &["smaller-model".to_owned()]).is_ok());
        assert!(allowed(Catalogue::builtin(), &["free-other-processes".to_owned()]).is_err());
    }

    #[test]
    fn common_words_are_understood() {
        let typed = |word: &str| ids(Catalogue::builtin(), "--allow", &[word.to_owned()]);
        assert!(typed("AMP").unwrap().contains("autocast"));
        assert!(typed("mixed precision").unwrap().contains("autocast"));
        assert!(typed("micro-batch/4").unwrap().contains("micro-batch"));
        assert!(typed("no such thing at all").is_err());
    }
}

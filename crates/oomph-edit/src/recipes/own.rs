//! Finds the program's own options for a remedy, by their names.

use crate::draft::Draft;
use crate::opt::{Opt, OptKind};
use crate::program::Program;
use crate::settings;
use crate::source::{At, statement_of};

/// What an option's name says, without the marks between its words.
fn squeezed(name: &str) -> String {
    name.to_lowercase().replace(['_', '-', '.'], "")
}

/// Whether a value means that something is on.
fn is_on(value: &str) -> bool {
    !matches!(value.to_lowercase().as_str(), "false" | "0" | "none" | "no" | "off" | "" | "fp32" | "float32" | "32")
}

/// Sets the first option of these names that switches something on and is off. Whether there was one.
pub fn switch_on(draft: &mut Draft<'_>, is: impl Fn(&str) -> bool) -> bool {
    let found = draft.program.options().into_iter().find(|option| {
        matches!(option.kind, OptKind::Switch | OptKind::Truth)
            && is(&squeezed(&option.name))
            && !option.value_in(draft.program.arguments()).is_some_and(|value| is_on(&value))
    });
    match found {
        Some(option) => {
            draft.set_option(&option, "True");
            true
        }
        None => false,
    }
}

/// The first option with a value of these names.
pub fn with_value(draft: &Draft<'_>, is: impl Fn(&str) -> bool) -> Option<Opt> {
    let program = draft.program;
    let is_read = |option: &Opt| option.written.as_ref().is_none_or(|place| settings::is_named_in_code(program, place));
    let wanted = |option: &Opt| option.kind == OptKind::Value && is(&squeezed(&option.name)) && is_read(option);
    program.options().into_iter().find(wanted)
}

/// Gives an option that chooses among words the first of `wanted` that it takes. Whether it could.
pub fn choose(draft: &mut Draft<'_>, is: impl Fn(&str) -> bool, wanted: &[&str]) -> bool {
    let Some(option) = with_value(draft, is) else { return false };
    let Some(word) = wanted.iter().find(|word| option.choices.iter().any(|choice| choice == *word)) else {
        return false;
    };
    if option.value_in(draft.program.arguments()).as_deref() == Some(word) {
        return false;
    }
    draft.set_option(&option, word);
    true
}

/// An option for how many micro-batches make a step.
pub fn accumulation(draft: &Draft<'_>) -> Option<Opt> {
    with_value(draft, accumulates)
}

/// An option for the side of the tiles in which an image is worked on.
pub fn tile(draft: &Draft<'_>) -> Option<Opt> {
    with_value(draft, |name| matches!(name, "tile" | "tilesize" | "tilepixels"))
}

/// What programs call the number of samples at a time in training.
const BATCH: &[&str] =
    &["batchsize", "bs", "batch", "trainbatchsize", "perdevicetrainbatchsize", "microbatchsize", "trainbs", "bsz", "b"];

/// Whether a name is one for the number of samples at a time in training.
pub fn is_batch_of_training(name: &str) -> bool {
    BATCH.contains(&squeezed(name.trim_start_matches('-')).as_str())
}

/// Whether a name is one for how many micro-batches make a step.
fn accumulates(name: &str) -> bool {
    name.contains("accum") || matches!(name, "itersize" | "gradacc" | "updatefreq")
}

/// A number that a file of the program gives a name of these at its top, where only one does.
fn constant<'a>(draft: &Draft<'a>, is: impl Fn(&str) -> bool) -> Option<At<'a>> {
    let program: &'a Program = draft.program;
    let mut found = program.all("assignment").into_iter().filter_map(|at| {
        let (left, right) = (at.node.child_by_field_name("left")?, at.node.child_by_field_name("right")?);
        let named = left.kind() == "identifier" && is(&squeezed(at.source.of(left)));
        let top = statement_of(at.node)?.parent()?.kind() == "module";
        (named && top && right.kind() == "integer").then(|| at.with(right))
    });
    found.next().filter(|_| found.next().is_none())
}

/// A constant for the number of samples at a time in training: `batch_size = 12`.
pub fn batch_constant<'a>(draft: &Draft<'a>) -> Option<At<'a>> {
    constant(draft, |name| BATCH.contains(&name) && name != "b")
}

/// A constant for how many micro-batches make a step.
pub fn accumulation_constant<'a>(draft: &Draft<'a>) -> Option<At<'a>> {
    // `accumulated_loss = 0` is not one.
    let counts = |name: &str| accumulates(name) && ["step", "grad", "iter"].iter().any(|word| name.contains(word));
    constant(draft, counts).filter(|at| at.text() != "0")
}

/// An option for the number of samples at a time in training.
pub fn batch(draft: &Draft<'_>) -> Option<Opt> {
    let options: Vec<Opt> =
        draft.program.options().into_iter().filter(|option| option.kind == OptKind::Value).collect();
    let known = BATCH.iter().find_map(|wanted| options.iter().find(|option| squeezed(&option.name) == *wanted));
    // `--frames-per-batch`, `--images-per-batch`.
    known.or_else(|| options.iter().find(|option| squeezed(&option.name).ends_with("perbatch"))).cloned()
}

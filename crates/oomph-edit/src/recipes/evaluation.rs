//! Evaluation that keeps less.

use crate::calls::Call;
use crate::edit::Edit;
use crate::program::{At, CannotPlace, Draft, Way};
use crate::source::within;

use super::{cannot, own, trainer};

/// Predictions that go to host memory step by step.
pub fn accumulation(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return trainer::set(draft, &[("eval_accumulation_steps", "1")]);
    }
    super::lifetime::results_to_host(draft)
}

/// Smaller batches in evaluation.
pub fn smaller_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return trainer::set(draft, &[("per_device_eval_batch_size", "1")]);
    }
    let named =
        |name: &str| name.contains("batch") && (name.contains("eval") || name.contains("val") || name.contains("test"));
    match own::with_value(draft, named) {
        Some(option) => {
            draft.set_option(&option, "1");
            Ok(())
        }
        None => super::batch::smaller_evaluation(draft),
    }
}

/// The Trainer keeps the predicted token instead of all logits, where the program's metrics only take the largest.
pub fn preprocessing(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let Some(call) = trainer::trainer(program) else { return cannot("the program makes no Trainer") };
    if call.keyword("preprocess_logits_for_metrics").is_some() {
        return cannot("the Trainer has a function for the logits already");
    }
    let Some(metrics) = call.value("compute_metrics") else { return cannot("the Trainer computes no metrics") };
    let name = metrics.text();
    let functions = program.all("function_definition");
    let Some(function) = functions
        .into_iter()
        .find(|at| at.node.child_by_field_name("name").is_some_and(|node| at.source.of(node) == name))
    else {
        return cannot("the function of the metrics was not found");
    };
    let largest: Vec<Call<'_>> = within(function.node)
        .filter_map(|node| Call::of(function.with(node)))
        .filter(|call| call.name() == "argmax" && is_last_axis(call))
        .collect();
    let [largest] = largest.as_slice() else {
        return cannot("the metrics need more of the logits than which is largest");
    };
    // `x.argmax(-1)` is x, and so is `np.argmax(x, axis=-1)`.
    let object = largest.object().filter(|object| !matches!(function.source.of(*object), "np" | "numpy" | "torch"));
    let Some(inner) = object.or_else(|| largest.positional().first().copied()) else {
        return cannot("the metrics were not understood");
    };
    let edit = Edit::replace(largest.at.node, function.source.of(inner));
    draft.edit(function.file, Way::Code, edit);
    let file = call.at.file.to_owned();
    // Some models give more than their logits.
    let value = "lambda logits, labels: (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)";
    draft.edit(&file, Way::Argument, call.adding("preprocess_logits_for_metrics", value));
    Ok(())
}

fn is_last_axis(call: &Call<'_>) -> bool {
    let last = |at: At<'_>| at.text() == "-1";
    let named = ["axis", "dim"].iter().find_map(|name| call.value(name));
    match named {
        Some(at) => last(at),
        None => call.positional().last().is_some_and(|node| last(call.at.with(*node))),
    }
}

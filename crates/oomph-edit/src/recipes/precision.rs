//! Fewer bits: mixed precision, and weights in 16 bits.

use crate::calls::Call;
use crate::edit::wrapped;
use crate::loops::{between, calls_model, model_names, passes, statement};
use crate::program::{CannotPlace, Draft, Way};

use super::{cannot, own, trainer};

/// Mixed precision.
pub fn autocast(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let modern = draft.facts.capability.0 >= 8;
    if draft.facts.trainer.is_some() {
        return trainer::set(draft, &[(if modern { "bf16" } else { "fp16" }, "True")]);
    }
    let first = if modern { "bf16" } else { "fp16" };
    for wanted in [first, "amp", "mixedprecision", "autocast", "fp16", "half"] {
        let is = |name: &str| name == wanted || name == format!("use{wanted}") || name == format!("enable{wanted}");
        if own::switch_on(draft, is) {
            return Ok(());
        }
    }
    let words: &[&str] = if modern {
        &["bf16", "bfloat16", "bf16-mixed", "fp16", "16-mixed", "float16", "16"]
    } else {
        &["fp16", "16-mixed", "float16", "16"]
    };
    if own::choose(draft, |name| name.contains("precision") || name.contains("amp") || name == "dtype", words) {
        return Ok(());
    }
    if let Some(call) = trainer::lightning(draft.program) {
        trainer::set_argument(draft, &call, "precision", if modern { "\"bf16-mixed\"" } else { "\"16-mixed\"" });
        return Ok(());
    }
    if let Some(call) = trainer::accelerator(draft.program) {
        trainer::set_argument(draft, &call, "mixed_precision", if modern { "\"bf16\"" } else { "\"fp16\"" });
        return Ok(());
    }
    if !modern {
        return cannot("in float16 a GradScaler is needed around the steps");
    }
    around_forward(draft, "with torch.autocast(\"cuda\", dtype=torch.bfloat16):")
}

/// Saved activations in host memory.
pub fn activation_offload(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    around_forward(draft, "with torch.autograd.graph.save_on_cpu(pin_memory=True):")
}

/// Puts the statements of each training loop from the first call of a model to the backward pass under a `with`.
fn around_forward(draft: &mut Draft<'_>, head: &str) -> Result<(), CannotPlace> {
    let program = draft.program;
    let models = model_names(program);
    let mut any = false;
    for pass in passes(program) {
        let [backward] = pass.backwards.as_slice() else { return cannot("a loop makes several backward passes") };
        let Some(end) = statement(backward) else { return cannot("the backward pass is not a statement") };
        let at = backward.at;
        if !crate::source::within(at.source.root())
            .any(|node| node.kind() == "identifier" && at.source.of(node) == "torch")
        {
            return cannot("the file does not import torch");
        }
        let Some(block) = end.parent() else { return cannot("the backward pass stands alone") };
        let all = crate::source::statements(block);
        let before: Vec<_> = all.iter().copied().take_while(|node| *node != end).collect();
        let calls: Vec<_> = before.iter().copied().filter(|node| calls_model(at.with(*node), &models)).collect();
        let (Some(first), Some(last)) = (calls.first(), before.last()) else {
            return cannot("the call of the model was not found before the backward pass");
        };
        if calls_model(at.with(end), &models) && !at.source.of(end).starts_with("accelerator") {
            return cannot("the model is called on the line of the backward pass");
        }
        // What prepares the step needs no precision of its own.
        let last = before.iter().rev().copied().find(|node| !is_of_optimizer(at.with(*node))).unwrap_or(*last);
        if between(*first, last).iter().any(|node| at.source.of(*node).contains("autocast")) {
            return cannot("a part of the loop runs under autocast already");
        }
        let Some(edits) = wrapped(at.source, *first, last, head) else {
            return cannot("the forward pass shares its lines with other code");
        };
        draft.edits(at.file, Way::Code, edits);
        any = true;
    }
    if any { Ok(()) } else { cannot("no backward pass was found in the program's code") }
}

fn is_of_optimizer(at: crate::program::At<'_>) -> bool {
    crate::source::within(at.node).filter_map(|node| Call::of(at.with(node))).any(|call| call.name() == "zero_grad")
}

/// Weights, gradients and states in bf16, for a model that is loaded with a type.
pub fn pure_bf16(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    loaded(draft, "torch.bfloat16")
}

/// Weights in 16 bits for inference.
pub fn half_weights(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if own::choose(
        draft,
        |name| name.contains("precision") || name.contains("dtype"),
        &["bf16", "bfloat16", "fp16", "float16"],
    ) {
        return Ok(());
    }
    if draft.facts.capability.0 < 8 && own::switch_on(draft, |name| matches!(name, "fp16" | "half" | "usefp16")) {
        return Ok(());
    }
    let kind = if draft.facts.capability.0 >= 8 { "torch.bfloat16" } else { "torch.float16" };
    loaded(draft, kind)
}

/// Gives the only `from_pretrained` of a model or pipeline a type.
fn loaded(draft: &mut Draft<'_>, kind: &str) -> Result<(), CannotPlace> {
    let program = draft.program;
    let calls: Vec<Call<'_>> = program
        .calls()
        .into_iter()
        .filter(|call| {
            call.name() == "from_pretrained"
                && call.object().is_some_and(|object| {
                    let text = call.at.source.of(object);
                    text.contains("Model") || text.ends_with("Pipeline") || text.contains("For")
                })
        })
        .collect();
    let [call] = calls.as_slice() else { return cannot("where the model is loaded could not be told for certain") };
    if !call.at.source.text().contains("import torch") && !call.at.source.text().contains(", torch") {
        return cannot("the file does not import torch");
    }
    let name = if call.keyword("torch_dtype").is_some() { "torch_dtype" } else { "dtype" };
    if call.value(name).is_some_and(|at| at.text() == kind) {
        return cannot("the model is loaded so already");
    }
    draft.edit(call.at.file, Way::Argument, call.setting(name, kind));
    Ok(())
}

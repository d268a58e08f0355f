//! Fewer bits: mixed precision, and weights in 16 bits.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{import, lines_after, wrapped};
use crate::error::CannotPlace;
use crate::loops::{between, passes, statement};
use crate::models::{calls_model, model_names};
use crate::program::Program;
use crate::trainers;

use super::{cannot, imports_torch, own, trainer};

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
    if let Some(call) = trainers::lightning(draft.program) {
        trainer::set_argument(draft, &call, "precision", if modern { "\"bf16-mixed\"" } else { "\"16-mixed\"" });
        return Ok(());
    }
    if let Some(call) = trainers::accelerator(draft.program) {
        trainer::set_argument(draft, &call, "mixed_precision", if modern { "\"bf16\"" } else { "\"fp16\"" });
        return Ok(());
    }
    if !modern {
        return cannot("in float16 a GradScaler is needed around the steps");
    }
    around_forward(draft, "with torch.autocast(\"cuda\", dtype=torch.bfloat16):")
}

/// Saved activations in host memory: around the forward pass of the program's own loop, or around a Trainer's run.
pub fn activation_offload(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    const HEAD: &str = "with torch.autograd.graph.save_on_cpu(pin_memory=True):";
    let runs = trainers::runs(draft.program);
    let [run] = runs.as_slice() else {
        return if runs.is_empty() { around_forward(draft, HEAD) } else { cannot("several Trainers run") };
    };
    let Some(edits) = statement(run).and_then(|line| wrapped(run.at.source, line, line, HEAD)) else {
        return cannot("the Trainer's run shares its line with other code");
    };
    draft.edits(run.at.file, Way::Code, edits);
    if !imports_torch(run.at.source)
        && let Some(edit) = import(run.at.source, "import torch")
    {
        draft.edit(run.at.file, Way::Code, edit);
    }
    Ok(())
}

/// Puts the statements of each training loop from the first call of a model to the backward pass under a `with`; where a
/// loop makes several backward passes, as for a GAN, those before each of them.
fn around_forward(draft: &mut Draft<'_>, head: &str) -> Result<(), CannotPlace> {
    let program = draft.program;
    let models = model_names(program);
    let mut any = false;
    for pass in passes(program) {
        let mut done: Option<Node<'_>> = None;
        for backward in &pass.backwards {
            let Some(end) = statement(backward) else { return cannot("the backward pass is not a statement") };
            let at = backward.at;
            if !imports_torch(at.source) {
                return cannot("the file does not import torch");
            }
            let Some(block) = end.parent() else { return cannot("the backward pass stands alone") };
            let all = crate::source::statements(block);
            let after = |node: &Node<'_>| done.is_none_or(|before| node.start_byte() >= before.end_byte());
            let before: Vec<_> = all.iter().copied().take_while(|node| *node != end).filter(after).collect();
            let calls: Vec<_> = before.iter().copied().filter(|node| calls_model(at.with(*node), &models)).collect();
            let ours = calls_model(at.with(end), &models) && !at.source.of(end).starts_with("accelerator");
            if ours {
                return cannot("the model is called on the line of the backward pass");
            }
            let (Some(first), Some(last)) = (calls.first(), before.last()) else {
                if done.is_some() {
                    // The forward passes of both were made before the first one.
                    continue;
                }
                return cannot("the call of the model was not found before the backward pass");
            };
            // What prepares the step needs no precision of its own.
            let last = before.iter().rev().copied().find(|node| !names(at.with(*node), "zero_grad")).unwrap_or(*last);
            let inside = between(*first, last);
            if inside.iter().any(|node| at.source.of(*node).contains("autocast")) {
                return cannot("a part of the loop runs under autocast already");
            }
            if inside.iter().any(|node| names(at.with(*node), "step")) {
                return cannot("an optimizer steps between the model and the backward pass");
            }
            let Some(edits) = wrapped(at.source, *first, last, head) else {
                return cannot("the forward pass shares its lines with other code");
            };
            draft.edits(at.file, Way::Code, edits);
            done = Some(end);
            any = true;
        }
    }
    if any { Ok(()) } else { cannot("no backward pass was found in the program's code") }
}

/// Whether a method of this name is called somewhere in a node.
fn names(at: crate::source::At<'_>, name: &str) -> bool {
    crate::source::within(at.node).filter_map(|node| Call::of(at.with(node))).any(|call| call.name() == name)
}

/// Weights, gradients and states in bf16, for a model that is loaded with a type or made by transformers.
pub fn pure_bf16(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if let Some(call) = trainers::lightning(draft.program) {
        trainer::set_argument(draft, &call, "precision", "\"bf16-true\"");
        return Ok(());
    }
    if loaded(draft, "torch.bfloat16").is_ok() {
        return Ok(());
    }
    // Words are whole numbers, so that only the weights have to change; pictures would have to be converted too.
    let (name, statement) = trainer::language_model(draft)?;
    if !imports_torch(statement.source) {
        return cannot("the file does not import torch");
    }
    let Some(edit) = lines_after(statement.source, statement.node, &[format!("{name}.to(torch.bfloat16)")]) else {
        return cannot("the model is made on a line with other code");
    };
    draft.edit(statement.file, Way::Code, edit);
    Ok(())
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

/// The only `from_pretrained` of a model or pipeline.
pub fn loading(program: &Program) -> Option<Call<'_>> {
    let loads = |call: &Call<'_>| {
        call.name() == "from_pretrained"
            && call.object().is_some_and(|object| {
                let text = call.at.source.of(object);
                text.contains("Model") || text.ends_with("Pipeline") || text.contains("For")
            })
    };
    let mut calls = program.calls().into_iter().filter(loads);
    calls.next().filter(|_| calls.next().is_none())
}

/// Gives the only `from_pretrained` of a model or pipeline a type.
fn loaded(draft: &mut Draft<'_>, kind: &str) -> Result<(), CannotPlace> {
    let Some(call) = loading(draft.program) else {
        return cannot("the line that loads the model could not be identified");
    };
    if !imports_torch(call.at.source) {
        return cannot("the file does not import torch");
    }
    let name = if call.keyword("torch_dtype").is_some() { "torch_dtype" } else { "dtype" };
    if call.value(name).is_some_and(|at| at.text() == kind) {
        return cannot("the model is loaded so already");
    }
    draft.edit(call.at.file, Way::Argument, call.setting(name, kind));
    Ok(())
}

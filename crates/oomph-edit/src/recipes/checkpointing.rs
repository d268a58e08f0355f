//! Gradient checkpointing: activations are recomputed instead of kept.

use crate::draft::{Draft, Way};
use crate::edit::{import, lines_after};
use crate::error::CannotPlace;
use crate::facts::ModelFacts;
use crate::loops::trained_names;
use crate::models::made;

use super::{cannot, imports_torch, own, trainer};

/// Which modules are computed again, and how much of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// All of them, whole.
    Whole,
    /// One of so many.
    Every(u64),
    /// All of them, but for the results that are dear to compute.
    Selective,
}

/// Gradient checkpointing: the Trainer's argument, the program's option, the model's method, or a wrapper around its
/// repeated modules.
pub fn checkpointing(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() && trainer::set(draft, &[("gradient_checkpointing", "True")]).is_ok() {
        return Ok(());
    }
    let named = |name: &str| {
        name.contains("checkpointing")
            || matches!(
                name,
                "gradckpt"
                    | "gradientcheckpoint"
                    | "gradcheckpoint"
                    | "activationcheckpoint"
                    | "usecheckpoint"
                    | "gc"
                    | "ckpt"
            )
    };
    if own::switch_on(draft, named) {
        return Ok(());
    }
    wrapped(draft, How::Whole)
}

/// Checkpointing of one block of several.
pub fn every_nth(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let every = draft.amount.by.unwrap_or(2).max(2);
    if draft.facts.trainer.is_some() {
        let kwargs = format!("{{\"every_n_layers\": {every}}}");
        return trainer::set(
            draft,
            &[("activation_checkpointing", "True"), ("activation_checkpointing_kwargs", &kwargs)],
        );
    }
    wrapped(draft, How::Every(every))
}

/// Checkpointing that keeps the results of matrix products and attention.
pub fn selective(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return cannot("the Trainer has no argument for it");
    }
    wrapped(draft, How::Selective)
}

/// Lines after the statement that makes the model, which have its repeated modules computed again.
fn wrapped(draft: &mut Draft<'_>, how: How) -> Result<(), CannotPlace> {
    let program = draft.program;
    let names = trained_names(program);
    let models: Vec<&ModelFacts> =
        draft.facts.models.iter().filter(|model| model.library != "plain" || !model.blocks.is_empty()).collect();
    let [model] = models.as_slice() else {
        return cannot(if models.is_empty() {
            "the model has no repeated modules"
        } else {
            "the program has several models"
        });
    };
    let made = names.iter().filter_map(|name| made(program, name)).collect::<Vec<_>>();
    let [(name, statement)] = made.as_slice() else {
        return cannot("the line that creates the model could not be identified");
    };
    let source = statement.source;
    let lines = match (model.library.as_str(), how) {
        ("transformers", How::Whole) => vec![format!("{name}.gradient_checkpointing_enable()")],
        ("transformers", How::Every(every)) => {
            vec![format!("{name}.activation_checkpointing_enable(every_n_layers={every})")]
        }
        ("transformers" | "diffusers", _) if how != How::Whole => return cannot("the model has no method for it"),
        ("diffusers", _) => vec![format!("{name}.enable_gradient_checkpointing()")],
        ("timm", How::Whole) => vec![format!("{name}.set_grad_checkpointing()")],
        _ if model.blocks.is_empty() => return cannot("the model has no repeated modules"),
        _ => {
            let mut imports = vec!["from functools import partial", "from torch.utils.checkpoint import checkpoint"];
            if how == How::Selective {
                if !imports_torch(source) {
                    return cannot("the file does not import torch");
                }
                imports.push("from torch.utils.checkpoint import create_selective_checkpoint_contexts");
            }
            for line in imports {
                if let Some(edit) = import(source, line) {
                    draft.edit(statement.file, Way::Code, edit);
                }
            }
            around_blocks(name, model, how, &source.unit())
        }
    };
    let way = if lines.len() == 1 { Way::Argument } else { Way::Code };
    let Some(edit) = lines_after(source, statement.node, &lines) else {
        return cannot("the model is made on a line with other code");
    };
    draft.edit(statement.file, way, edit);
    Ok(())
}

/// A loop over a model's repeated modules that puts each under `checkpoint`.
fn around_blocks(name: &str, model: &ModelFacts, how: How, unit: &str) -> Vec<String> {
    let step = match how {
        How::Every(every) => format!("[::{every}]"),
        How::Whole | How::Selective => String::new(),
    };
    let paths: Vec<String> = model.blocks.iter().map(|path| reached(name, path) + &step).collect();
    let blocks = match paths.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.iter().map(|path| format!("*{path}")).collect::<Vec<_>>().join(", ")),
    };
    let mut lines = Vec::new();
    let mut contexts = "";
    if how == How::Selective {
        let names: Vec<String> = KEPT_RESULTS.iter().map(|name| format!("\"{name}\"")).collect();
        lines.push(format!("kept = [{}]", names.join(", ")));
        lines.push("kept = [getattr(torch.ops.aten, name).default for name in kept]".to_owned());
        contexts = ", context_fn=partial(create_selective_checkpoint_contexts, kept)";
    }
    lines.push(format!("for block in {blocks}:"));
    lines.push(format!("{unit}block.forward = partial(checkpoint, block.forward, use_reentrant=False{contexts})"));
    lines
}

/// The operations of torch whose results selective checkpointing keeps, as the trial does that proposes it.
const KEPT_RESULTS: &[&str] = &[
    "mm",
    "bmm",
    "addmm",
    "convolution",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
];

/// `model.encoder.0` as Python reaches it: `model.encoder[0]`.
fn reached(name: &str, path: &str) -> String {
    path.split('.').filter(|part| !part.is_empty()).fold(name.to_owned(), |text, part| {
        if part.chars().all(|letter| letter.is_ascii_digit()) {
            format!("{text}[{part}]")
        } else {
            format!("{text}.{part}")
        }
    })
}

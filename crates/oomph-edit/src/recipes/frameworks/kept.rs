//! Moves what a loop keeps on the card to host memory, as each framework writes it.

use crate::draft::{Draft, Way};
use crate::edit::{Edit, import};
use crate::error::CannotPlace;
use crate::facts::KeptAt;
use crate::source::{At, Source, within};

use super::super::cannot;
use super::super::keeping::stored;
use super::alias;

/// `kept.append(params)` becomes `kept.append(jax.device_get(params))`, whatever tree of arrays it is.
pub fn jax(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    to_host(draft, |source, text| alias(source, "jax").map(|jax| format!("{jax}.device_get({text})")))?;
    joined_on_host(draft, "jax.numpy", &[("concatenate", "concatenate"), ("stack", "stack"), ("vstack", "vstack")]);
    Ok(())
}

/// `kept.append(logits)` becomes `kept.append(logits.numpy())`.
pub fn tensorflow(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    to_host(draft, |_, text| Some(format!("{text}.numpy()")))?;
    joined_on_host(draft, "tensorflow", &[("concat", "concatenate"), ("stack", "stack")]);
    Ok(())
}

/// `kept.append(binding.get_outputs()[0])` becomes `kept.append(binding.get_outputs()[0].numpy())`.
pub fn onnx_runtime(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    to_host(draft, |_, text| {
        Some(match text.strip_suffix(".get_outputs()") {
            Some(binding) => format!("{binding}.copy_outputs_to_cpu()"),
            None => format!("{text}.numpy()"),
        })
    })
}

/// Rewrites the values at the lines where a run saw them kept; `moved` gives the text of a value in host memory.
fn to_host(draft: &mut Draft<'_>, moved: impl Fn(&Source, &str) -> Option<String>) -> Result<(), CannotPlace> {
    let program = draft.program;
    for kept in draft.facts.kept.iter().filter(|kept| kept.kind == "results") {
        let Some((file, source)) = program.file(&kept.file) else { continue };
        let statements = source.statements_at(kept.line);
        for at in statements.iter().flat_map(|statement| within(*statement)).map(|node| At { file, source, node }) {
            for part in stored(at) {
                let simple = matches!(part.kind(), "identifier" | "attribute" | "call" | "subscript");
                let text = source.of(part);
                let there = ["device_get(", ".numpy()", "copy_outputs_to_cpu("].iter().any(|word| text.contains(word));
                if simple
                    && !there
                    && let Some(text) = moved(source, text)
                {
                    draft.edit_once(file, Way::Code, Edit::replace(part, text));
                }
            }
        }
    }
    if draft.is_empty() {
        return cannot("the line that keeps the results was not found");
    }
    Ok(())
}

/// Has NumPy join what was moved to host memory: a function of the framework would send all of it back to the card.
fn joined_on_host(draft: &mut Draft<'_>, module: &str, functions: &[(&str, &str)]) {
    let program = draft.program;
    for call in program.calls() {
        let source = call.at.source;
        let of_module = call.object().is_some_and(|object| alias(source, module) == Some(source.of(object)));
        let Some((_, to)) = functions.iter().find(|(from, _)| of_module && *from == call.name()) else { continue };
        let joins = |kept: &&KeptAt| {
            kept.kind == "results" && call.positional().first().is_some_and(|first| source.of(*first) == kept.name)
        };
        if !draft.facts.kept.iter().any(|kept| joins(&kept)) {
            continue;
        }
        let numpy = match alias(source, "numpy") {
            Some(numpy) => numpy,
            None => {
                let Some(edit) = import(source, "import numpy as np") else { continue };
                draft.edit_once(call.at.file, Way::Code, edit);
                "np"
            }
        };
        draft.edit(call.at.file, Way::Code, Edit::replace(call.function, format!("{numpy}.{to}")));
    }
}

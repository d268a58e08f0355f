//! Optimizers with smaller states, and smaller temporaries.

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, import};
use crate::error::CannotPlace;

use super::{cannot, own, trainer};

/// Arguments of torch's optimizers that others do not have.
const TORCH_ONLY: &[&str] = &["fused", "foreach", "capturable", "maximize", "differentiable"];

/// Adam with states in 8 bits: for the Trainer its name, else each call of the program's own, with its own arguments.
pub fn replaced(draft: &mut Draft<'_>, trainers: &str, kind: &str) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return trainer::set(draft, &[("optim", &format!("\"{trainers}\""))]);
    }
    if kind == "8bit" {
        if own::switch_on(draft, |name| name.contains("8bit") && (name.contains("adam") || name.contains("optim"))) {
            return Ok(());
        }
        let words = ["adamw8bit", "adamw_8bit", "adamw-8bit", "adamw_bnb_8bit", "adam8bit", "AdamW8bit", "8bit"];
        if own::choose(draft, |name| name.contains("optim") || name == "opt", &words) {
            return Ok(());
        }
    }
    let program = draft.program;
    let calls: Vec<Call<'_>> =
        program.calls().into_iter().filter(|call| matches!(call.name(), "Adam" | "AdamW")).collect();
    if calls.is_empty() {
        return cannot("the program does not create Adam itself");
    }
    for call in calls {
        let class = match (kind, call.name()) {
            ("Paged", name) => format!("Paged{name}8bit"),
            (_, name) => format!("{name}8bit"),
        };
        let file = call.at.file.to_owned();
        draft.edit(&file, Way::Code, Edit::replace(call.function, format!("bnb.optim.{class}")));
        for name in TORCH_ONLY {
            if let Some(edit) = call.without(name) {
                draft.edit(&file, Way::Code, edit);
            }
        }
        if let Some(edit) = import(call.at.source, "import bitsandbytes as bnb") {
            draft.edit(&file, Way::Code, edit);
        }
    }
    Ok(())
}

/// An argument of each of the program's optimizers that says how they step.
pub fn stepping(draft: &mut Draft<'_>, name: &str, value: &str) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return match name {
            "fused" => trainer::set(draft, &[("optim", "\"adamw_torch_fused\"")]),
            _ => cannot("the Trainer has no argument for it"),
        };
    }
    let program = draft.program;
    let known =
        |call: &Call<'_>| matches!(call.name(), "Adam" | "AdamW" | "SGD" | "Adagrad") && !call.path().contains("bnb");
    let calls: Vec<Call<'_>> = program.calls().into_iter().filter(known).collect();
    if calls.is_empty() {
        return cannot("the program does not create a torch optimizer itself");
    }
    for call in calls {
        let file = call.at.file.to_owned();
        draft.edit(&file, Way::Argument, call.setting(name, value));
    }
    Ok(())
}

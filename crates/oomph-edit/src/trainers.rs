//! Finds the calls that make and start Trainers: that of transformers, its descendants, Lightning's, and an
//! `Accelerator`.

use crate::calls::Call;
use crate::program::Program;

/// Classes of a Trainer's arguments that are not called so.
const CONFIGS: &[&str] = &[
    "SFTConfig",
    "DPOConfig",
    "ORPOConfig",
    "KTOConfig",
    "CPOConfig",
    "GRPOConfig",
    "RewardConfig",
    "PPOConfig",
    "RLOOConfig",
    "OnlineDPOConfig",
    "GKDConfig",
    "BCOConfig",
    "NashMDConfig",
    "XPOConfig",
    "PRMConfig",
];

/// The only call that makes a Trainer's arguments.
pub(crate) fn arguments(program: &Program) -> Option<Call<'_>> {
    let is = |call: &Call<'_>| call.name().ends_with("TrainingArguments") || CONFIGS.contains(&call.name());
    let mut calls = program.calls().into_iter().filter(is);
    match (calls.next(), calls.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Whether the arguments of the Trainer are of one of TRL's classes.
pub(crate) fn arguments_are_of_trl(program: &Program) -> bool {
    arguments(program).is_some_and(|call| CONFIGS.contains(&call.name()))
}

/// Whether the program's parser takes every argument of a Trainer as an option.
pub(crate) fn has_parser(program: &Program) -> bool {
    program.calls().iter().any(|call| {
        matches!(call.name(), "HfArgumentParser" | "TrlParser")
            && call.positional().iter().any(|node| {
                let text = call.at.source.of(*node);
                text.contains("TrainingArguments") || CONFIGS.iter().any(|name| text.contains(name))
            })
    })
}

/// The call that makes Lightning's Trainer.
pub(crate) fn lightning(program: &Program) -> Option<Call<'_>> {
    let is = |call: &Call<'_>| {
        call.name() == "Trainer"
            && !is_own(program, call.name())
            && call.keyword("model").is_none()
            && call.keyword("args").is_none()
            && (call.path().contains('.') && !call.path().starts_with("transformers")
                || ["max_epochs", "max_steps", "accelerator", "devices"]
                    .iter()
                    .any(|name| call.keyword(name).is_some()))
    };
    program.calls().into_iter().find(is)
}

/// Whether a module of Lightning's steps its optimizers itself (`automatic_optimization = False`): its Trainer refuses to
/// accumulate then.
pub(crate) fn steps_by_hand(program: &Program) -> bool {
    let off = |name: &str| program.assigned(name).iter().any(|at| at.text() == "False");
    lightning(program).is_some() && (off("self.automatic_optimization") || off("automatic_optimization"))
}

/// The call that makes an `Accelerator`.
pub(crate) fn accelerator(program: &Program) -> Option<Call<'_>> {
    program.calls().into_iter().find(|call| call.name() == "Accelerator")
}

/// The call that makes the Trainer itself.
pub(crate) fn trainer(program: &Program) -> Option<Call<'_>> {
    let is = |call: &Call<'_>| {
        call.name().ends_with("Trainer")
            && !is_own(program, call.name())
            && (call.keyword("args").is_some() || call.keyword("model").is_some())
    };
    program.calls().into_iter().find(is)
}

/// Whether the program defines a class of this name that is made from no library's Trainer.
fn is_own(program: &Program, name: &str) -> bool {
    program.all("class_definition").into_iter().any(|at| {
        let text = |field| at.node.child_by_field_name(field).map_or("", |node| at.source.of(node));
        text("name") == name && !text("superclasses").contains("Trainer")
    })
}

/// The calls that start a Trainer: `trainer.train()`, and `trainer.fit(...)` of Lightning's.
pub(crate) fn runs(program: &Program) -> Vec<Call<'_>> {
    let is = |call: &Call<'_>| {
        let trains = match call.name() {
            "train" => |name: &str| name.ends_with("Trainer"),
            "fit" => |name: &str| name == "Trainer",
            _ => return false,
        };
        call.object().is_some_and(|object| {
            let made = program.assigned(call.at.source.of(object));
            made.iter().any(|at| Call::of(*at).is_some_and(|maker| trains(maker.name())))
                || Call::of(call.at.with(object)).is_some_and(|maker| trains(maker.name()))
        })
    };
    program.calls().into_iter().filter(is).collect()
}

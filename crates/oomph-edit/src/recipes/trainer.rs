//! Arguments of the Trainer of transformers, of its descendants, and of Lightning's.

use crate::calls::Call;
use crate::names::{Value, follow};
use crate::options::OptKind;
use crate::program::{CannotPlace, Draft, Program, Way};

use super::cannot;

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
pub fn arguments(program: &Program) -> Option<Call<'_>> {
    let is = |call: &Call<'_>| call.name().ends_with("TrainingArguments") || CONFIGS.contains(&call.name());
    let mut calls = program.calls().into_iter().filter(is);
    match (calls.next(), calls.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Whether the program's parser takes every argument of a Trainer as an option.
pub fn has_parser(program: &Program) -> bool {
    program.calls().iter().any(|call| {
        matches!(call.name(), "HfArgumentParser" | "TrlParser")
            && call.positional().iter().any(|node| {
                let text = call.at.source.of(*node);
                text.contains("TrainingArguments") || CONFIGS.iter().any(|name| text.contains(name))
            })
    })
}

/// Sets arguments of the Trainer, each a name and a Python expression.
pub fn set(draft: &mut Draft<'_>, wanted: &[(&str, &str)]) -> Result<(), CannotPlace> {
    if let Some(call) = arguments(draft.program) {
        for (name, value) in wanted {
            set_argument(draft, &call, name, value);
        }
        return Ok(());
    }
    if has_parser(draft.program) {
        let is_file = |word: &String| [".json", ".yaml", ".yml"].iter().any(|ending| word.ends_with(ending));
        if draft.program.arguments().iter().any(is_file) {
            return cannot("the arguments stand in a file");
        }
        for (name, value) in wanted {
            let option = crate::options::Opt {
                flags: vec![format!("--{name}"), format!("--{}", name.replace('_', "-"))],
                name: (*name).to_owned(),
                kind: OptKind::Value,
                default: None,
                choices: Vec::new(),
                parameter: false,
            };
            let plain = value.trim_matches('"');
            draft.set_option(&option, plain);
        }
        return Ok(());
    }
    cannot("the program makes no TrainingArguments, or makes several")
}

/// Sets one argument of a call: by the option that gives its value, at the literal that is its value, or in the call.
pub fn set_argument(draft: &mut Draft<'_>, call: &Call<'_>, name: &str, value: &str) {
    let program = draft.program;
    if let Some(present) = call.value(name) {
        let plain = value.trim_matches('"');
        match follow(program, present) {
            Value::Option(option) => {
                let takes = option.choices.is_empty() || option.choices.iter().any(|choice| choice == plain);
                let off = option.kind == OptKind::Switch && value == "False";
                if takes && !off {
                    draft.set_option(&option, plain);
                    return;
                }
            }
            Value::Literal(at) if at.file == call.at.file && at.node == present.node => {}
            // A constant may be used elsewhere too, so the call says what it needs.
            _ => {}
        }
    }
    let (file, edit) = (call.at.file.to_owned(), call.setting(name, value));
    draft.edit(&file, Way::Argument, edit);
}

/// The call that makes Lightning's Trainer.
pub fn lightning(program: &Program) -> Option<Call<'_>> {
    let is = |call: &Call<'_>| {
        call.name() == "Trainer"
            && call.keyword("model").is_none()
            && call.keyword("args").is_none()
            && (call.path().contains('.') && !call.path().starts_with("transformers")
                || ["max_epochs", "max_steps", "accelerator", "devices"]
                    .iter()
                    .any(|name| call.keyword(name).is_some()))
    };
    program.calls().into_iter().find(is)
}

/// The call that makes an `Accelerator`.
pub fn accelerator(program: &Program) -> Option<Call<'_>> {
    program.calls().into_iter().find(|call| call.name() == "Accelerator")
}

/// The call that makes the Trainer itself.
pub fn trainer(program: &Program) -> Option<Call<'_>> {
    let is = |call: &Call<'_>| {
        call.name().ends_with("Trainer") && (call.keyword("args").is_some() || call.keyword("model").is_some())
    };
    program.calls().into_iter().find(is)
}

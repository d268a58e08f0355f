//! Arguments of the Trainer of transformers, of its descendants, and of Lightning's.

use crate::calls::Call;
use crate::loops::trained_names;
use crate::names::{Value, assigned_anywhere, follow};
use crate::options::OptKind;
use crate::program::{At, CannotPlace, Draft, Program, Way};
use crate::settings;

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

/// Whether the arguments of the Trainer are of one of TRL's classes.
pub fn arguments_are_of_trl(program: &Program) -> bool {
    arguments(program).is_some_and(|call| CONFIGS.contains(&call.name()))
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
            return cannot("the arguments are in a file");
        }
        for (name, value) in wanted {
            let option = crate::options::Opt {
                flags: vec![format!("--{name}"), format!("--{}", name.replace('_', "-"))],
                name: (*name).to_owned(),
                kind: OptKind::Value,
                default: None,
                choices: Vec::new(),
                parameter: false,
                written: None,
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
    // `TrainingArguments(**config["training"])`
    let table = call.splat().filter(|_| call.keyword(name).is_none());
    if let Some(setting) = table.and_then(|table| settings::entry_of(program, table, name)) {
        draft.set_option(&setting, value.trim_matches('"'));
        return;
    }
    let (file, edit) = (call.at.file.to_owned(), call.setting(name, value));
    draft.edit(&file, Way::Argument, edit);
}

/// The call that makes Lightning's Trainer.
pub fn lightning(program: &Program) -> Option<Call<'_>> {
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

/// The call that makes an `Accelerator`.
pub fn accelerator(program: &Program) -> Option<Call<'_>> {
    program.calls().into_iter().find(|call| call.name() == "Accelerator")
}

/// The call that makes the Trainer itself.
pub fn trainer(program: &Program) -> Option<Call<'_>> {
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
pub fn runs(program: &Program) -> Vec<Call<'_>> {
    let is = |call: &Call<'_>| {
        let trains = match call.name() {
            "train" => |name: &str| name.ends_with("Trainer"),
            "fit" => |name: &str| name == "Trainer",
            _ => return false,
        };
        call.object().is_some_and(|object| {
            let made = assigned_anywhere(program, call.at.source.of(object));
            made.iter().any(|at| Call::of(*at).is_some_and(|maker| trains(maker.name())))
                || Call::of(call.at.with(object)).is_some_and(|maker| trains(maker.name()))
        })
    };
    program.calls().into_iter().filter(is).collect()
}

/// The only trained model, where it is one of words that transformers made: its name, and the statement after which it
/// is there.
pub fn language_model<'a>(draft: &Draft<'a>) -> Result<(String, At<'a>), CannotPlace> {
    let [model] = draft.facts.models.as_slice() else { return cannot("the program trains several models, or none") };
    if model.library != "transformers" || task(&model.class).is_none() {
        return cannot("the model is not one of words");
    }
    let program = draft.program;
    let given = trainer(program).and_then(|call| call.value("model")).map(|at| at.text().to_owned());
    let names: Vec<String> = given.into_iter().chain(trained_names(program)).collect();
    let first = names.first().and_then(|name| super::checkpointing::made(program, name));
    first.ok_or_else(|| CannotPlace("the line that creates the model could not be identified".into()))
}

/// What peft calls the task of a model of words.
pub fn task(class: &str) -> Option<&'static str> {
    const TASKS: &[(&str, &str)] = &[
        ("ForCausalLM", "CAUSAL_LM"),
        ("LMHeadModel", "CAUSAL_LM"),
        ("ForConditionalGeneration", "SEQ_2_SEQ_LM"),
        ("ForSequenceClassification", "SEQ_CLS"),
        ("ForTokenClassification", "TOKEN_CLS"),
        ("ForQuestionAnswering", "QUESTION_ANS"),
    ];
    TASKS.iter().find(|(ending, _)| class.ends_with(ending)).map(|(_, task)| *task)
}

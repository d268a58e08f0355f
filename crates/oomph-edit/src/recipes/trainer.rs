//! Arguments of the Trainer of transformers, of its descendants, and of Lightning's.

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::error::CannotPlace;
use crate::loops::trained_names;
use crate::models::made;
use crate::names::{Value, follow};
use crate::opt::OptKind;
use crate::settings;
use crate::source::At;
use crate::trainers::{arguments, has_parser, trainer};

use super::cannot;

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
            let option = crate::opt::Opt {
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
    let first = names.first().and_then(|name| made(program, name));
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

//! TensorFlow and Keras: batches of `tf.data` and of `fit`, accumulation by the optimizer, policies for types.

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, import};
use crate::error::CannotPlace;
use crate::literals::string;
use crate::program::Program;
use crate::source::{At, Source};

use super::super::{Recipe, cannot, own};
use super::places::{divide, evaluates};
use super::{after_imports, alias, kept, pieces};

/// What can be placed.
pub const RECIPES: &[(&str, Recipe)] = &[
    ("micro-batch", micro_batch),
    ("smaller-training-batch", smaller_batch),
    ("smaller-batch", smaller_batch),
    ("eval-batch", smaller_evaluation),
    ("collect-on-host", kept::tensorflow),
    ("eval-accumulation", kept::tensorflow),
    ("in-pieces", pieces::tensorflow),
    ("autocast", |draft| policy(draft, true)),
    ("pure-bf16", |draft| policy(draft, false)),
    ("xla", xla),
];

const OPTIMIZERS: &[&str] =
    &["Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl", "Lion", "Adafactor", "Lamb"];

/// Calls that take how many samples are in a batch, by its name.
const BATCHED: &[&str] = &[
    "fit",
    "flow",
    "flow_from_directory",
    "flow_from_dataframe",
    "image_dataset_from_directory",
    "text_dataset_from_directory",
    "audio_dataset_from_directory",
    "timeseries_dataset_from_array",
    "padded_batch",
    "ragged_batch",
];

/// What a file calls Keras.
fn keras(source: &Source) -> Option<String> {
    let whole =
        alias(source, "keras").or_else(|| alias(source, "tensorflow.keras")).or_else(|| alias(source, "tf_keras"));
    whole.map(str::to_owned).or_else(|| alias(source, "tensorflow").map(|tensorflow| format!("{tensorflow}.keras")))
}

/// The arguments that say how many samples are trained on at a time, or are evaluated.
fn batches(program: &Program, evaluation: bool) -> Vec<(Call<'_>, &'static str)> {
    let calls = program.calls().into_iter();
    let found = calls.filter(|call| match call.name() {
        "batch" => call.object().is_some() && !call.positional().is_empty() || call.keyword("batch_size").is_some(),
        "evaluate" | "predict" => evaluation && call.keyword("batch_size").is_some(),
        name => BATCHED.contains(&name) && call.keyword("batch_size").is_some(),
    });
    found
        .filter(|call| (evaluates(call.at) || matches!(call.name(), "evaluate" | "predict")) == evaluation)
        .map(|call| (call, "batch_size"))
        .collect()
}

/// `model.fit(x, y)` of arrays without a batch size: Keras takes 32.
fn default_fit(program: &Program) -> Option<Call<'_>> {
    let takes_arrays = |call: &Call<'_>| call.positional().len() >= 2 || call.keyword("y").is_some();
    let mut fits = program.calls().into_iter().filter(|call| call.name() == "fit" && takes_arrays(call));
    fits.next().filter(|call| fits.next().is_none() && call.keyword("batch_size").is_none())
}

fn divided(draft: &mut Draft<'_>) -> Result<(u64, u64), CannotPlace> {
    let found = batches(draft.program, false);
    if found.is_empty()
        && own::batch(draft).is_none()
        && own::batch_constant(draft).is_none()
        && let Some(call) = default_fit(draft.program)
    {
        let old = draft.facts.batch_size.unwrap_or(32);
        let new = old.div_ceil(draft.amount.by.unwrap_or(2).max(2));
        draft.edit(call.at.file, Way::Argument, call.setting("batch_size", &new.to_string()));
        return Ok((old, new));
    }
    divide(draft, &found)
}

/// A smaller batch, with nothing that makes up for it.
fn smaller_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let sizes = divided(draft)?;
    if trains(draft.program) {
        draft.smaller_batch = Some(sizes);
    }
    Ok(())
}

fn trains(program: &Program) -> bool {
    program
        .calls()
        .iter()
        .any(|call| matches!(call.name(), "fit" | "apply_gradients" | "train_on_batch" | "GradientTape"))
}

/// A smaller batch, whose gradients the optimizer adds up.
fn micro_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let (old, new) = divided(draft)?;
    let by = old.div_ceil(new).max(2);
    let program = draft.program;
    let mut any = false;
    for call in program.calls().into_iter().filter(|call| OPTIMIZERS.contains(&call.name())) {
        let before = call.value("gradient_accumulation_steps").and_then(|at| at.text().parse::<u64>().ok());
        let wanted = (before.unwrap_or(1).max(1) * by).to_string();
        draft.edit(call.at.file, Way::Argument, call.setting("gradient_accumulation_steps", &wanted));
        any = true;
    }
    for (named, place) in named_optimizers(program) {
        let Some(class) = OPTIMIZERS.iter().find(|class| class.eq_ignore_ascii_case(&named)) else { continue };
        let prefix = match keras(place.source) {
            Some(prefix) => prefix,
            None => {
                let Some(edit) = import(place.source, "import keras") else { continue };
                draft.edit(place.file, Way::Code, edit);
                "keras".to_owned()
            }
        };
        let made = format!("{prefix}.optimizers.{class}(gradient_accumulation_steps={by})");
        draft.edit(place.file, Way::Argument, Edit::replace(place.node, made));
        any = true;
    }
    if !any {
        return cannot("where the optimizer is made was not found");
    }
    Ok(())
}

/// `model.compile("adam")` and `model.compile(optimizer="adam")`: the names and where they are written.
fn named_optimizers(program: &Program) -> Vec<(String, At<'_>)> {
    let compiles = program.calls().into_iter().filter(|call| call.name() == "compile" && call.object().is_some());
    compiles.filter_map(|call| call.argument("optimizer", 0)).filter_map(|at| Some((string(at)?, at))).collect()
}

/// A smaller batch in an evaluation or a prediction: an eighth, or that of training where that is less.
fn smaller_evaluation(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let by = draft.amount.by;
    draft.amount.by = Some(8);
    let named = |name: &str| {
        name.contains("batch") && ["eval", "val", "test", "pred", "infer"].iter().any(|word| name.contains(word))
    };
    let result = match own::with_value(draft, named) {
        Some(option) => match option.value_in(program.arguments()).and_then(|value| value.parse::<u64>().ok()) {
            Some(old) if old > 1 => {
                draft.set_option(&option, &old.div_ceil(8).to_string());
                Ok(())
            }
            _ => cannot("the batch of the evaluation is one already, or not known"),
        },
        None => {
            let found = batches(program, true);
            if found.is_empty() {
                cannot("the batch of the evaluation was not found")
            } else {
                divide(draft, &found).map(|_| ())
            }
        }
    };
    draft.amount.by = by;
    result
}

/// A policy for the types of all layers that are made after it.
fn policy(draft: &mut Draft<'_>, mixed: bool) -> Result<(), CannotPlace> {
    let program = draft.program;
    let sets = |call: &Call<'_>| matches!(call.name(), "set_global_policy" | "set_dtype_policy" | "set_floatx");
    if program.calls().iter().any(sets) {
        return cannot("the program sets a policy for types already");
    }
    let modern = draft.facts.capability.0 >= 8;
    if mixed
        && own::switch_on(draft, |name| {
            matches!(name, "mixedprecision" | "amp" | "fp16" | "bf16" | "usemixedprecision")
        })
    {
        return Ok(());
    }
    let by_fit = program.calls().iter().any(|call| call.name() == "fit");
    if !(modern || mixed && by_fit) {
        return cannot("in float16 the loss has to be scaled, which only fit() does automatically");
    }
    after_imports(draft, &["keras", "tensorflow"], |source| {
        let keras = keras(source)?;
        Some(match (mixed, modern) {
            (true, true) => format!("{keras}.mixed_precision.set_global_policy(\"mixed_bfloat16\")"),
            (true, false) => format!("{keras}.mixed_precision.set_global_policy(\"mixed_float16\")"),
            (false, _) => format!("{keras}.config.set_dtype_policy(\"bfloat16\")"),
        })
    })?;
    if mixed {
        draft.notes.push("Keep the last layer in float32: Dense(..., dtype=\"float32\").".to_owned());
    }
    Ok(())
}

/// The functions that TensorFlow traces are compiled by XLA: `@tf.function` becomes `@tf.function(jit_compile=True)`.
fn xla(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let is = |source: &Source, path: &str| {
        let of = alias(source, "tensorflow").map(|tensorflow| format!("{tensorflow}.function"));
        of.as_deref() == Some(path) || alias(source, "tensorflow.function") == Some(path)
    };
    for call in program.calls().into_iter().filter(|call| is(call.at.source, call.path())) {
        if call.keyword("jit_compile").is_none() && call.keyword("experimental_compile").is_none() {
            draft.edit(call.at.file, Way::Argument, call.adding("jit_compile", "True"));
        }
    }
    for at in program.all("decorator") {
        let Some(name) = at.node.named_child(0).filter(|node| is(at.source, at.source.of(*node))) else { continue };
        let text = format!("{}(jit_compile=True)", at.source.of(name));
        draft.edit(at.file, Way::Argument, Edit::replace(name, text));
    }
    if draft.is_empty() {
        return cannot("no function is traced by tf.function, or XLA compiles them already");
    }
    Ok(())
}

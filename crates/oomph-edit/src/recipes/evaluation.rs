//! Evaluation that keeps less.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::loops::without_graph;
use crate::models::{is_name, model_names};
use crate::names::{Value, follow};
use crate::source::{At, around, function_of, statements, within};
use crate::trainers;

use super::batch::{self, Batch};
use super::{cannot, imports_torch, own, trainer};

/// Predictions that go to host memory step by step.
pub fn accumulation(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return trainer::set(draft, &[("eval_accumulation_steps", "1")]);
    }
    super::lifetime::results_to_host(draft)
}

/// Smaller batches in evaluation.
pub fn smaller_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        let size = size_of_trainer(draft).map_or_else(|| "1".to_owned(), |size| size.to_string());
        return trainer::set(draft, &[(TRAINERS_BATCH, &size)]);
    }
    let named =
        |name: &str| name.contains("batch") && (name.contains("eval") || name.contains("val") || name.contains("test"));
    match own::with_value(draft, named) {
        Some(option) => {
            let size = batch::evaluation_size(draft);
            // Where no number is known, the least is what may help most.
            if batch::resize(draft, Batch::Option(option.clone()), size).is_err() {
                draft.set_option(&option, "1");
            }
            Ok(())
        }
        None => batch::smaller_evaluation(draft).or_else(|reason| in_parts(draft).map_err(|_| reason)),
    }
}

/// The Trainer's argument for the batch of its evaluation.
const TRAINERS_BATCH: &str = "per_device_eval_batch_size";

/// As many samples as in training, where the program gives its Trainer more than that.
fn size_of_trainer(draft: &Draft<'_>) -> Option<u64> {
    let program = draft.program;
    let given = trainers::arguments(program)?.value(TRAINERS_BATCH)?;
    let text = match follow(program, given) {
        Value::Option(option) => option.value_in(program.arguments())?,
        Value::Literal(at) => at.text().to_owned(),
        _ => return None,
    };
    let (old, training) = (text.parse::<u64>().ok()?, draft.facts.batch_size?);
    (old > training).then_some(training)
}

/// A part of the evaluation, as Lightning's Trainer limits it.
pub fn fewer_batches(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let Some(call) = trainers::lightning(program) else { return cannot("no Trainer limits its evaluation") };
    let share = 1.0 / draft.amount.by.unwrap_or(2).max(1) as f64;
    let defines = |name: &str| {
        let functions = program.all("function_definition");
        functions
            .into_iter()
            .any(|at| at.node.child_by_field_name("name").is_some_and(|node| at.source.of(node) == name))
    };
    for (step, argument) in [("validation_step", "limit_val_batches"), ("test_step", "limit_test_batches")] {
        if defines(step) {
            trainer::set_argument(draft, &call, argument, &share.to_string());
        }
    }
    if draft.is_empty() { cannot("the module has no step of an evaluation") } else { Ok(()) }
}

/// Samples of a part where the whole of a dataset goes through the model at once, and no batch of training says another
/// number.
const PART: u64 = 256;

/// A dataset that goes through the model as one batch goes through it in parts: `net(X)` becomes
/// `torch.cat([net(part) for part in X.split(256)])`.
fn in_parts(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let models = model_names(program);
    let part = draft.facts.batch_size.filter(|size| *size > 1).unwrap_or(PART);
    let mut any = false;
    for call in program.calls().into_iter().filter(|call| models.contains(call.path())) {
        let at = call.at;
        let (given, all) = (call.positional(), at.node.child_by_field_name("arguments"));
        let ([whole], 1) = (given.as_slice(), all.map_or(0, |all| all.named_child_count())) else { continue };
        if !evaluates_once(at) || !imports_torch(at.source) {
            continue;
        }
        // What is moved to the card is moved part by part: `X.to(device)`.
        let Some(name) = innermost(at.with(*whole)) else { continue };
        let text = at.source.of(*whole);
        let rest = text.strip_prefix(name).unwrap_or_default();
        if rest.contains(name) {
            continue;
        }
        let call = format!("{}(part{rest})", call.path());
        let text = format!("torch.cat([{call} for part in {name}.split({part})])");
        draft.edit(at.file, Way::Code, Edit::replace(at.node, text));
        any = true;
    }
    if !any {
        return cannot("no dataset goes through the model as one batch");
    }
    draft.notes.push(format!("The whole dataset goes through the model in parts of {part} samples."));
    Ok(())
}

/// The name that methods are called on: `X` of `X.float().to(device)`; `None` for anything else.
fn innermost(at: At<'_>) -> Option<&str> {
    let mut at = at;
    while let Some(call) = Call::of(at) {
        at = at.with(call.object()?);
    }
    matches!(at.node.kind(), "identifier" | "attribute").then(|| at.text()).filter(|text| is_name(text))
}

/// Whether a call evaluates, and is made for all of the data: behind `eval()` or without a graph, and in no loop but
/// one that counts.
fn evaluates_once(at: At<'_>) -> bool {
    let function = function_of(at.node);
    let loops = around(at.node).take_while(|node| Some(*node) != function);
    let mut loops = loops.filter(|node| {
        matches!(
            node.kind(),
            "for_statement" | "while_statement" | "list_comprehension" | "generator_expression" | "lambda"
        )
    });
    let counts = |node: Node<'_>| {
        node.kind() == "for_statement"
            && node.child_by_field_name("right").is_some_and(|right| at.source.of(right).contains("range("))
    };
    let behind_eval = || {
        around(at.node).filter(|node| matches!(node.kind(), "block" | "module")).any(|block| {
            let before = statements(block).into_iter().filter(|node| node.end_byte() <= at.node.start_byte());
            let modes: Vec<bool> = before
                .flat_map(|node| within(node).collect::<Vec<_>>())
                .filter_map(|node| Call::of(at.with(node)))
                .filter(|call| call.object().is_some() && matches!(call.name(), "eval" | "train"))
                .map(|call| call.name() == "eval")
                .collect();
            modes.last() == Some(&true)
        })
    };
    loops.all(counts) && (without_graph(at) || behind_eval())
}

/// The Trainer keeps the predicted token instead of all logits, where the program's metrics only take the largest.
pub fn preprocessing(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let Some(call) = trainers::trainer(program) else { return cannot("the program makes no Trainer") };
    if call.keyword("preprocess_logits_for_metrics").is_some() {
        return cannot("the Trainer has a function for the logits already");
    }
    let Some(metrics) = call.value("compute_metrics") else { return cannot("the Trainer computes no metrics") };
    let name = metrics.text();
    let functions = program.all("function_definition");
    let Some(function) = functions
        .into_iter()
        .find(|at| at.node.child_by_field_name("name").is_some_and(|node| at.source.of(node) == name))
    else {
        return cannot("the function of the metrics was not found");
    };
    let largest: Vec<Call<'_>> = within(function.node)
        .filter_map(|node| Call::of(function.with(node)))
        .filter(|call| call.name() == "argmax" && is_last_axis(call))
        .collect();
    let [largest] = largest.as_slice() else {
        return cannot("the metrics need more of the logits than which is largest");
    };
    // `x.argmax(-1)` is x, and so is `np.argmax(x, axis=-1)`.
    let object = largest.object().filter(|object| !matches!(function.source.of(*object), "np" | "numpy" | "torch"));
    let Some(inner) = object.or_else(|| largest.positional().first().copied()) else {
        return cannot("the metrics were not understood");
    };
    let edit = Edit::replace(largest.at.node, function.source.of(inner));
    draft.edit(function.file, Way::Code, edit);
    let file = call.at.file.to_owned();
    // Some models give more than their logits.
    let value = "lambda logits, labels: (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)";
    draft.edit(&file, Way::Argument, call.adding("preprocess_logits_for_metrics", value));
    Ok(())
}

fn is_last_axis(call: &Call<'_>) -> bool {
    let last = |at: At<'_>| at.text() == "-1";
    let named = ["axis", "dim"].iter().find_map(|name| call.value(name));
    match named {
        Some(at) => last(at),
        None => call.positional().last().is_some_and(|node| last(call.at.with(*node))),
    }
}

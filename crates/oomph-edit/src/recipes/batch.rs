//! Fewer samples at a time, and shorter ones.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::loaders::{loaders, loop_at, name_of, names};
use crate::loops::{Pass, passes};
use crate::names::{Value, follow};
use crate::opt::Opt;
use crate::program::Program;
use crate::source::{At, around, function_of, within};
use crate::trainers;

use super::accumulation::accumulate;
use super::{cannot, cut, own, trainer};

/// Where the batch of training is written.
pub(super) enum Batch<'a> {
    /// An option of the program.
    Option(Opt),
    /// A literal.
    Literal(At<'a>),
    /// A computed argument of a call, which is replaced whole.
    Argument(Call<'a>, &'static str),
}

/// A smaller micro-batch, with more of them in a step.
pub fn micro_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let by = draft.amount.by.unwrap_or(2).max(2);
    if draft.facts.trainer.is_some() || trainers::arguments(draft.program).is_some() {
        let batch = draft.facts.batch_size.filter(|batch| *batch > 1);
        let Some(batch) = batch else { return cannot("the batch is one already, or not known") };
        let accumulation = draft.facts.accumulation.unwrap_or(1).max(1) * by;
        let wanted = [
            ("per_device_train_batch_size", batch.div_ceil(by).to_string()),
            ("gradient_accumulation_steps", accumulation.to_string()),
        ];
        let wanted = wanted.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>();
        return trainer::set(draft, &wanted);
    }
    if trainers::steps_by_hand(draft.program) {
        return cannot("the module steps its optimizers itself, so the Trainer does not accumulate");
    }
    let accumulates = own::accumulation(draft).is_some()
        || own::accumulation_constant(draft).is_some()
        || modulus(draft.program).is_some()
        || accelerated(draft.program).is_some()
        || trainers::lightning(draft.program).is_some();
    if !accumulates && cut::cut(draft, by).is_ok() {
        return Ok(());
    }
    let old = divide(draft, by)?;
    let by = old.div_ceil(old.div_ceil(by));
    if let Some(option) = own::accumulation(draft) {
        let before =
            option.value_in(draft.program.arguments()).and_then(|value| value.parse::<u64>().ok()).unwrap_or(1);
        draft.set_option(&option, &(before.max(1) * by).to_string());
        return Ok(());
    }
    let constant = own::accumulation_constant(draft).map(Value::Literal);
    match modulus(draft.program).or(constant) {
        Some(Value::Literal(at)) if at.text().parse::<u64>().is_ok() => {
            let before: u64 = at.text().parse().unwrap_or(1);
            draft.edit(at.file, Way::Argument, Edit::replace(at.node, (before.max(1) * by).to_string()));
            return Ok(());
        }
        Some(Value::Option(option)) => {
            let before = option.value_in(draft.program.arguments()).and_then(|value| value.parse::<u64>().ok());
            draft.set_option(&option, &(before.unwrap_or(1).max(1) * by).to_string());
            return Ok(());
        }
        _ => {}
    }
    if let Some(call) = accelerated(draft.program) {
        let before = call.value("gradient_accumulation_steps").and_then(|at| at.text().parse::<u64>().ok());
        let wanted = (before.unwrap_or(1).max(1) * by).to_string();
        trainer::set_argument(draft, &call, "gradient_accumulation_steps", &wanted);
        return Ok(());
    }
    if let Some(call) = trainers::lightning(draft.program) {
        let before = call.value("accumulate_grad_batches").and_then(|at| at.text().parse::<u64>().ok()).unwrap_or(1);
        trainer::set_argument(draft, &call, "accumulate_grad_batches", &(before * by).to_string());
        return Ok(());
    }
    accumulate(draft, by)
}

/// A smaller batch, with nothing that makes up for it.
pub fn smaller_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if draft.facts.trainer.is_some() {
        return cannot("the Trainer accumulates, so the effective batch need not shrink");
    }
    let own = own::accumulation(draft).is_some() || own::accumulation_constant(draft).is_some();
    if own || accelerated(draft.program).is_some() {
        return cannot("the program accumulates, so the effective batch need not shrink");
    }
    let by = draft.amount.by.unwrap_or(2).max(2);
    let old = divide(draft, by)?;
    if !passes(draft.program).is_empty() {
        draft.smaller_batch = Some((old, old.div_ceil(by)));
    }
    Ok(())
}

/// Divides the batch where it is written; gives what it was.
fn divide(draft: &mut Draft<'_>, by: u64) -> Result<u64, CannotPlace> {
    let Some(place) = written(draft) else { return cannot("where the batch size is written was not found") };
    let fewer = |old: u64| if old < 2 { None } else { Some(old.div_ceil(by)) };
    resize(draft, place, fewer).map(|(old, _)| old)
}

/// Gives a batch another size, a function of the one it has; returns both.
pub(super) fn resize(
    draft: &mut Draft<'_>,
    place: Batch<'_>,
    size: impl Fn(u64) -> Option<u64>,
) -> Result<(u64, u64), CannotPlace> {
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    let old = match &place {
        Batch::Option(option) => option.value_in(draft.program.arguments()).and_then(|value| number(&value)),
        Batch::Literal(at) => number(at.text()),
        Batch::Argument(..) => None,
    };
    let Some(old) = old.or(draft.facts.batch_size) else { return cannot("the batch size is not known") };
    let Some(new) = size(old) else { return cannot("the batch is one already") };
    match place {
        Batch::Option(option) => draft.set_option(&option, &new.to_string()),
        Batch::Literal(at) => {
            let file = at.file.to_owned();
            draft.edit(&file, Way::Argument, Edit::replace(at.node, new.to_string()));
        }
        Batch::Argument(call, name) => {
            let file = call.at.file.to_owned();
            draft.edit(&file, Way::Argument, call.setting(name, &new.to_string()));
        }
    }
    Ok((old, new))
}

/// A smaller batch for the loaders of an evaluation.
pub fn smaller_evaluation(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let dying = draft.facts.died_at.as_ref().and_then(|(file, line)| {
        let (file, source) = program.file(file)?;
        let node = source.statements_at(*line).pop()?;
        Some(loop_at(program, At { file, source, node }))
    });
    let trained = loader(program).map(|(call, _)| call.at.node);
    let mut found = dying.unwrap_or_default();
    if found.is_empty() {
        found = loaders(program).into_iter().filter(evaluates).collect();
    }
    found.retain(|call| Some(call.at.node) != trained);
    if found.is_empty() {
        return cannot("the loader of the evaluation was not found");
    }
    let size = evaluation_size(draft);
    let shared = written(draft);
    for call in found {
        let Some(place) = call.argument("batch_size", 1).and_then(|given| place_of(program, call, given)) else {
            return cannot("where the batch size of the evaluation is written was not found");
        };
        // What training reads too stays unchanged.
        let same = match (&place, &shared) {
            (Batch::Option(one), Some(Batch::Option(other))) => one == other,
            (Batch::Literal(one), Some(Batch::Literal(other))) => one.node == other.node,
            _ => false,
        };
        let place = match same {
            true if call.keyword("batch_size").is_none() => {
                return cannot("the evaluation has the batch size of training");
            }
            true => Batch::Argument(call, "batch_size"),
            false => place,
        };
        resize(draft, place, size)?;
    }
    Ok(())
}

/// The batch for an evaluation that has this one: as many samples as in training, or an eighth where that is no less.
pub(super) fn evaluation_size(draft: &Draft<'_>) -> impl Fn(u64) -> Option<u64> + Copy + use<> {
    let training = draft.facts.batch_size.unwrap_or(1).max(1);
    move |old| (old > 1).then(|| if old > training { training } else { old.div_ceil(8) })
}

/// Where the batch size that a loader is given is written.
pub(super) fn place_of<'a>(program: &'a Program, call: Call<'a>, given: At<'a>) -> Option<Batch<'a>> {
    match follow(program, given) {
        Value::Option(option) => Some(Batch::Option(option)),
        Value::Literal(at) => Some(Batch::Literal(at)),
        Value::Word(_) | Value::Unknown => call.keyword("batch_size").map(|_| Batch::Argument(call, "batch_size")),
    }
}

/// Whether a loader is one of an evaluation: by its name, by the method of Lightning's that makes it, or where it is made
/// in the call that evaluates.
fn evaluates(call: &Call<'_>) -> bool {
    let speaks = |name: &str| {
        let name = name.to_lowercase();
        ["val", "test", "eval"].iter().any(|word| name.contains(word))
    };
    if let Some(name) = name_of(call) {
        return speaks(name);
    }
    let name_of_function = |node: Node<'_>| node.child_by_field_name("name").map(|name| call.at.source.of(name));
    if function_of(call.at.node)
        .and_then(name_of_function)
        .is_some_and(|name| name.ends_with("dataloader") && speaks(name))
    {
        return true;
    }
    let Some(outer) = around(call.at.node).find_map(|node| Call::of(call.at.with(node))) else { return false };
    let is_third = outer.positional().get(2) == Some(&call.at.node);
    let is_named = outer.value("val_dataloaders").is_some_and(|at| at.node == call.at.node);
    match outer.name() {
        "test" | "validate" => outer.object().is_some(),
        "fit" => is_third || is_named,
        _ => false,
    }
}

/// Where the batch of the training loader is written.
fn written<'a>(draft: &Draft<'a>) -> Option<Batch<'a>> {
    let program = draft.program;
    if let Some((call, name)) = loader(program) {
        let Some(given) = call.argument(name, 1) else {
            // `DataLoader(data, **cfg["loader"])`
            let table = call.splat()?;
            return crate::settings::entry_of(program, table, name).map(Batch::Option);
        };
        return Some(match follow(program, given) {
            Value::Option(option) => Batch::Option(option),
            Value::Literal(at) => Batch::Literal(at),
            // What is computed is replaced in the call, if the call has a name for it.
            Value::Word(_) | Value::Unknown => match own::batch(draft) {
                Some(option)
                    if draft.facts.batch_size.map(|size| size.to_string()) == option.value_in(program.arguments()) =>
                {
                    Batch::Option(option)
                }
                _ if call.keyword(name).is_some() => Batch::Argument(call, name),
                _ => return None,
            },
        });
    }
    own::batch(draft).map(Batch::Option).or_else(|| own::batch_constant(draft).map(Batch::Literal))
}

/// The call that makes the batches of training: of several loaders the one that a training loop goes over.
fn loader(program: &Program) -> Option<(Call<'_>, &'static str)> {
    let loaders = loaders(program);
    if loaders.is_empty() {
        // `model.train(data=..., batch=16)` of Ultralytics.
        let train = program.calls().into_iter().find(|call| {
            call.name() == "train" && (call.keyword("data").is_some() || call.keyword("imgsz").is_some())
        })?;
        return train.keyword("batch").is_some().then_some((train, "batch"));
    }
    let iterated: Vec<&str> = passes(program)
        .iter()
        .filter_map(|pass| pass.at_loop.map(|node| (pass.backwards[0].at.source, node)))
        .filter_map(|(source, node)| node.child_by_field_name("right").map(|right| source.of(right)))
        .collect();
    let trains = |call: &&Call<'_>| name_of(call).is_some_and(|name| iterated.iter().any(|text| names(text, name)));
    let shuffles = |call: &&Call<'_>| call.value("shuffle").is_some_and(|at| at.text() == "True");
    let other = |call: &&Call<'_>| !evaluates(call);
    let found = loaders
        .iter()
        .find(trains)
        .or_else(|| loaders.iter().find(shuffles))
        .or_else(|| loaders.iter().find(other))
        .or(loaders.first())?;
    Some((*found, "batch_size"))
}

/// The call that makes the `Accelerator` of a loop that lets it accumulate: `with accelerator.accumulate(model):`.
fn accelerated(program: &Program) -> Option<Call<'_>> {
    let lets = program.calls().iter().any(|call| call.name() == "accumulate" && call.object().is_some());
    trainers::accelerator(program).filter(|_| lets)
}

/// What a loop with its own accumulation counts to: `k` of `if (step + 1) % k == 0: optimizer.step()`. A number without
/// a name does not count, because the loss is divided by another one.
fn modulus(program: &Program) -> Option<Value<'_>> {
    let passes = passes(program);
    let [Pass { at_loop: Some(node), backwards }] = passes.as_slice() else { return None };
    let at = backwards[0].at.with(*node);
    let steps = |node: &Node<'_>| {
        let calls: Vec<_> = within(*node).filter_map(|inner| Call::of(at.with(inner))).collect();
        let of_optimizer = |call: &Call<'_>| {
            call.name() == "step" && call.object().is_some_and(|object| at.source.of(object).contains("opt"))
        };
        // What makes its own backward pass there trains a second model now and then, as a GAN does.
        calls.iter().any(of_optimizer) && !calls.iter().any(|call| call.name() == "backward")
    };
    let conditions = within(*node).filter(|node| node.kind() == "if_statement").filter(steps);
    let remainder =
        conditions.filter_map(|node| node.child_by_field_name("condition")).flat_map(within).find(|node| {
            node.kind() == "binary_operator"
                && node.child_by_field_name("operator").is_some_and(|operator| at.source.of(operator) == "%")
        })?;
    let counted = remainder.child_by_field_name("right").filter(|right| right.kind() != "integer")?;
    Some(follow(program, at.with(counted)))
}

/// Shorter samples, for Trainers that cut what is longer.
pub fn shorter_sequence(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let by = draft.amount.by.unwrap_or(2).max(2);
    let Some(length) = draft.facts.sequence_length else { return cannot("the length is not known") };
    let wanted = length.div_ceil(by).to_string();
    let program = draft.program;
    let call = trainers::arguments(program);
    let name = ["max_length", "max_seq_length"]
        .into_iter()
        .find(|name| call.as_ref().is_some_and(|call| call.keyword(name).is_some()));
    match name {
        Some(name) => trainer::set(draft, &[(name, &wanted)]),
        None => match call {
            Some(call) if call.name() != "TrainingArguments" && call.name() != "Seq2SeqTrainingArguments" => {
                trainer::set(draft, &[("max_length", &wanted)])
            }
            _ => cannot("no argument cuts what is longer"),
        },
    }
}

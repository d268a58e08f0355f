//! JAX and Flax: batches, optax's accumulation, types, and arguments that are given away.

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, lines_after};
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::{Source, around, function_of, statement_of};

use super::super::{Recipe, cannot, own};
use super::places::{divide, evaluates};
use super::traced::{in_loop, is_jit, jitted, tuple};
use super::{alias, around_expression, fused, kept, mapped, partial, pieces, remat};

/// What can be placed.
pub const RECIPES: &[(&str, Recipe)] = &[
    ("micro-batch", micro_batch),
    ("smaller-training-batch", smaller_batch),
    ("smaller-batch", smaller_batch),
    ("gradient-checkpointing", remat::checkpointing),
    ("donate-buffers", donate),
    ("eval-batch", smaller_evaluation),
    ("collect-on-host", kept::jax),
    ("eval-accumulation", kept::jax),
    ("in-pieces", pieces::jax),
    ("mapped-in-parts", mapped::mapped),
    ("xla", fused::jax),
    ("autocast", autocast),
    ("pure-bf16", sixteen_bits),
];

/// The arguments that say how many samples are worked on at a time.
fn batches(program: &Program, evaluation: bool) -> Vec<(Call<'_>, &'static str)> {
    let calls = program.calls().into_iter();
    let found = calls.filter_map(|call| {
        let tensorflow = call.name() == "batch" && call.object().is_some() && call.positional().len() == 1;
        if tensorflow {
            return Some((call, "batch_size"));
        }
        ["batch_size", "train_batch_size"]
            .into_iter()
            .find(|name| call.keyword(name).is_some())
            .map(|name| (call, name))
    });
    found.filter(|(call, _)| call.name() != "add_argument" && evaluates(call.at) == evaluation).collect()
}

fn divided(draft: &mut Draft<'_>) -> Result<(u64, u64), CannotPlace> {
    // The program's own option may be read in several places.
    let found = if own::batch(draft).is_some() { Vec::new() } else { batches(draft.program, false) };
    divide(draft, &found)
}

/// A smaller batch, with nothing that makes up for it.
fn smaller_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let sizes = divided(draft)?;
    let trains = |call: &Call<'_>| matches!(call.name(), "grad" | "value_and_grad");
    if draft.program.calls().iter().any(trains) {
        draft.smaller_batch = Some(sizes);
    }
    Ok(())
}

/// A smaller batch, whose gradients optax adds up.
fn micro_batch(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let (old, new) = divided(draft)?;
    let by = old.div_ceil(new).max(2);
    let program = draft.program;
    let made: Vec<Call<'_>> = program.calls().into_iter().filter(makes_optimizer).collect();
    let [made] = made.as_slice() else {
        return cannot(if made.is_empty() {
            "the program makes no optimizer of optax"
        } else {
            "it makes several optimizers"
        });
    };
    let optax = alias(made.at.source, "optax").unwrap_or("optax");
    let edit = around_expression(made, &format!("{optax}.MultiSteps"), &format!(", every_k_schedule={by}"));
    draft.edit(made.at.file, Way::Argument, edit);
    Ok(())
}

/// Whether a call makes a whole optimizer of optax: not a part of a chain, and not a schedule or a loss.
fn makes_optimizer(call: &Call<'_>) -> bool {
    const MAKES: &[&str] = &[
        "adam",
        "adamw",
        "sgd",
        "lion",
        "adafactor",
        "rmsprop",
        "adagrad",
        "lamb",
        "lars",
        "nadam",
        "radam",
        "chain",
        "novograd",
        "yogi",
        "adabelief",
        "sm3",
    ];
    let of_optax = |call: &Call<'_>| {
        let object = call.object().map(|object| call.at.source.of(object));
        MAKES.contains(&call.name()) && object.is_some_and(|object| alias(call.at.source, "optax") == Some(object))
    };
    let inside = || {
        around(call.at.node)
            .filter_map(|node| Call::of(call.at.with(node)))
            .any(|outer| of_optax(&outer) || outer.name() == "MultiSteps")
    };
    of_optax(call) && !inside()
}

/// A compiled function that gives back new values of its arguments takes their memory: `state = step(state, batch)`.
fn donate(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    for function in program.all("function_definition") {
        let Some(name) = function.node.child_by_field_name("name").map(|node| function.source.of(node)) else {
            continue;
        };
        let Some(decorator) = jitted(function) else { continue };
        let places = reassigned(program, name);
        if places.is_empty() || function.source.of(decorator).contains("donate") {
            continue;
        }
        let wanted = tuple(&places);
        let inner = decorator.named_child(0).map(|node| function.with(node));
        match inner.and_then(Call::of) {
            Some(call) => draft.edit(call.at.file, Way::Argument, call.adding("donate_argnums", &wanted)),
            None => {
                let Some(inner) = inner else { continue };
                let Some(partial) = partial(draft, function.file, function.source) else { continue };
                let text = format!("{partial}({}, donate_argnums={wanted})", inner.text());
                draft.edit(function.file, Way::Argument, Edit::replace(inner.node, text));
            }
        }
    }
    for call in program.calls().into_iter().filter(|call| is_jit(call.path())) {
        let place = around(call.at.node).find(|node| node.kind() == "assignment");
        let name = place.and_then(|node| node.child_by_field_name("left")).map(|left| call.at.source.of(left));
        let places = name.map(|name| reassigned(program, name)).unwrap_or_default();
        if !places.is_empty() && call.keyword("donate_argnums").is_none() && call.keyword("donate_argnames").is_none() {
            draft.edit(call.at.file, Way::Argument, call.adding("donate_argnums", &tuple(&places)));
        }
    }
    if draft.is_empty() {
        return cannot("no compiled function gives back new values of its own arguments, or it is so already");
    }
    Ok(())
}

/// The places of the arguments whose names every call of a function gives new values: `params, loss = step(params, x)`.
fn reassigned(program: &Program, name: &str) -> Vec<usize> {
    let mut common: Option<Vec<usize>> = None;
    for call in program.calls().into_iter().filter(|call| call.path() == name) {
        let source = call.at.source;
        let assignment = call.at.node.parent().filter(|node| node.kind() == "assignment");
        let names: Vec<&str> = match assignment.and_then(|node| node.child_by_field_name("left")) {
            Some(left) if left.kind() == "identifier" => vec![source.of(left)],
            Some(left) => {
                let count = left.named_child_count();
                (0..count).filter_map(|place| left.named_child(place)).map(|node| source.of(node)).collect()
            }
            None => Vec::new(),
        };
        let places: Vec<usize> = call
            .positional()
            .into_iter()
            .enumerate()
            .filter(|(_, node)| node.kind() == "identifier" && names.contains(&source.of(*node)))
            .map(|(place, _)| place)
            .collect();
        common = Some(match common {
            None => places,
            Some(known) => known.into_iter().filter(|place| places.contains(place)).collect(),
        });
    }
    common.unwrap_or_default()
}

/// The layers of Flax compute in 16 bits; their weights stay in 32.
fn autocast(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    const LAYERS: &[&str] = &[
        "Dense",
        "DenseGeneral",
        "Einsum",
        "Linear",
        "LinearGeneral",
        "Conv",
        "ConvTranspose",
        "Embed",
        "SelfAttention",
        "MultiHeadAttention",
        "MultiHeadDotProductAttention",
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "BatchNorm",
    ];
    if own::switch_on(draft, |name| matches!(name, "mixedprecision" | "amp" | "bf16" | "halfprecision")) {
        return Ok(());
    }
    for call in draft.program.calls() {
        let source = call.at.source;
        let object = call.object().map(|object| source.of(object));
        let of_flax =
            object.is_some() && ["flax.linen", "flax.nnx"].into_iter().any(|module| alias(source, module) == object);
        let Some(numpy) = alias(source, "jax.numpy").filter(|_| of_flax && LAYERS.contains(&call.name())) else {
            continue;
        };
        if call.keyword("dtype").is_none() {
            draft.edit(call.at.file, Way::Argument, call.adding("dtype", &format!("{numpy}.bfloat16")));
        }
    }
    if draft.is_empty() {
        return cannot("no layer of Flax was found that computes in 32 bits");
    }
    draft.notes.push("Compute the loss in float32: logits.astype(jnp.float32).".to_owned());
    Ok(())
}

/// The weights and, with them, the optimizer's state are kept in 16 bits: `params = init(key)` is followed by a cast, and
/// so is what a state is made of.
fn sixteen_bits(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    if !program.calls().iter().any(|call| matches!(call.name(), "grad" | "value_and_grad")) {
        return cannot("the program takes no gradients");
    }
    let cast = |source: &Source, value: &str| {
        let (jax, numpy) = (alias(source, "jax")?, alias(source, "jax.numpy")?);
        let to = format!("leaf.astype({numpy}.bfloat16) if leaf.dtype == {numpy}.float32 else leaf");
        Some(format!("{jax}.tree.map(lambda leaf: {to}, {value})"))
    };
    let mut names = Vec::new();
    for at in program.all("assignment") {
        let (Some(left), Some(right)) = (at.node.child_by_field_name("left"), at.node.child_by_field_name("right"))
        else {
            continue;
        };
        let name = at.source.of(left);
        // `model.init(key, x)["params"]` and `init_params(key)`; a step of the training gives back what it was given.
        let made =
            if right.kind() == "subscript" { right.child_by_field_name("value").unwrap_or(right) } else { right };
        let is_made = Call::of(at.with(made)).is_some_and(|call| {
            let given = || call.positional().iter().any(|node| at.source.of(*node) == name);
            call.name() != "device_put" && !given()
        });
        let inside_a_step = || function_of(at.node).is_some_and(|function| jitted(at.with(function)).is_some());
        let Some(statement) = statement_of(at.node) else { continue };
        if left.kind() == "identifier" && is_weights(name) && is_made && !in_loop(at.node) && !inside_a_step() {
            let line = cast(at.source, name).map(|cast| format!("{name} = {cast}"));
            if let Some(edit) = line.and_then(|line| lines_after(at.source, statement, &[line])) {
                draft.edit(at.file, Way::Code, edit);
                names.push(name);
            }
        }
    }
    for call in program.calls().into_iter().filter(|call| call.name() == "create") {
        let Some(given) = call.value("params").filter(|given| !names.contains(&given.text())) else { continue };
        if let Some(cast) = cast(given.source, given.text()) {
            draft.edit(given.file, Way::Argument, Edit::replace(given.node, cast));
        }
    }
    if draft.is_empty() {
        return cannot("where the weights are made was not found");
    }
    Ok(())
}

/// What programs call their weights.
fn is_weights(name: &str) -> bool {
    matches!(
        name,
        "params" | "parameters" | "weights" | "model" | "variables" | "theta" | "model_params" | "net_params"
    )
}

/// A smaller batch in an evaluation: an eighth.
fn smaller_evaluation(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let named = |name: &str| {
        name.contains("batch") && ["eval", "val", "test", "pred", "infer"].iter().any(|word| name.contains(word))
    };
    let Some(option) = own::with_value(draft, named) else {
        let found = batches(draft.program, true);
        if found.is_empty() {
            return cannot("the batch of the evaluation was not found");
        }
        return divide(draft, &found).map(|_| ());
    };
    let value = option.value_in(draft.program.arguments()).and_then(|value| value.parse::<u64>().ok());
    let Some(old) = value.filter(|old| *old > 1) else {
        return cannot("the batch of the evaluation is one already, or not known");
    };
    draft.set_option(&option, &old.div_ceil(8).to_string());
    Ok(())
}

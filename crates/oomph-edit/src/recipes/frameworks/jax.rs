//! JAX and Flax: batches, optax's accumulation, recomputed blocks, and arguments that are given away.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::program::Program;
use crate::scopes::parameters;
use crate::source::{At, around, function_of, within};

use super::super::{Recipe, cannot, own};
use super::places::{divide, evaluates};
use super::{alias, around_expression, kept, partial, pieces};

/// What can be placed.
pub const RECIPES: &[(&str, Recipe)] = &[
    ("micro-batch", micro_batch),
    ("smaller-training-batch", smaller_batch),
    ("smaller-batch", smaller_batch),
    ("gradient-checkpointing", checkpointing),
    ("donate-buffers", donate),
    ("eval-batch", smaller_evaluation),
    ("collect-on-host", kept::jax),
    ("eval-accumulation", kept::jax),
    ("in-pieces", pieces::jax),
    ("autocast", autocast),
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

/// Each block of a model is computed again in the backward pass.
fn checkpointing(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let has =
        |call: &Call<'_>| matches!(call.name(), "remat" | "checkpoint" | "remat_scan") && !call.path().contains("ckpt");
    if program.calls().iter().any(has) {
        return cannot("the program recomputes some of it already");
    }
    if own::switch_on(draft, |name| matches!(name, "remat" | "checkpoint" | "gradientcheckpointing" | "useremat")) {
        return Ok(());
    }
    flax_blocks(draft)?;
    if draft.is_empty() {
        scans(draft)?;
    }
    if draft.is_empty() {
        repeated_functions(draft)?;
    }
    if draft.is_empty() {
        return cannot("no repeated block of the model was found");
    }
    Ok(())
}

/// Modules of Flax that are made in a loop: `x = Block(8)(x, train)` becomes `x = nn.remat(Block, ...)(8)(x, train)`.
fn flax_blocks(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    for call in program.calls() {
        let source = call.at.source;
        let Some(linen) = alias(source, "flax.linen") else { continue };
        let is_class = call.function.kind() == "identifier" && in_loop(call.at.node);
        let Some(class) = class_of(program, call.path()).filter(|_| is_class) else { continue };
        let Some(outer) = call.at.node.parent().and_then(|node| Call::of(call.at.with(node))) else { continue };
        if outer.function != call.at.node {
            continue;
        }
        let fixed = static_arguments(class, &outer);
        let wrapped = match fixed.as_slice() {
            [] => format!("{linen}.remat({})", call.path()),
            places => format!("{linen}.remat({}, static_argnums={})", call.path(), tuple(places)),
        };
        draft.edit(call.at.file, Way::Code, Edit::replace(call.function, wrapped));
    }
    Ok(())
}

/// The class of a program with a `__call__`.
fn class_of<'a>(program: &'a Program, name: &str) -> Option<At<'a>> {
    let class = program.all("class_definition").into_iter().find(|at| {
        at.node.child_by_field_name("name").is_some_and(|node| at.source.of(node) == name)
            && at.node.child_by_field_name("superclasses").is_some_and(|bases| at.source.of(bases).contains("Module"))
    })?;
    let is_call = |node: &Node<'_>| {
        node.kind() == "function_definition"
            && node.child_by_field_name("name").is_some_and(|name| class.source.of(name) == "__call__")
    };
    within(class.node).find(is_call).map(|node| class.with(node))
}

/// The places of arguments that are decided on in Python, `self` being 0: a traced value cannot be.
fn static_arguments(function: At<'_>, call: &Call<'_>) -> Vec<usize> {
    let given = call.positional().len();
    let named =
        |name: &str| ["train", "training", "deterministic", "is_training", "eval", "decode", "testing"].contains(&name);
    let truth = |default: &Option<At<'_>>| default.is_some_and(|at| matches!(at.text(), "True" | "False"));
    let all = parameters(function).into_iter().enumerate();
    all.filter(|(place, (name, default))| *place > 0 && *place <= given && (named(name) || truth(default)))
        .map(|(place, _)| place)
        .collect()
}

/// The body of a scan: `jax.lax.scan(body, ...)`.
fn scans(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    for call in program.calls() {
        let of_lax = call.object().is_some_and(|object| call.at.source.of(object).ends_with("lax"));
        if call.name() != "scan" || !of_lax {
            continue;
        }
        let (Some(body), Some(jax)) = (call.argument("f", 0), alias(call.at.source, "jax")) else { continue };
        draft.edit(call.at.file, Way::Code, Edit::replace(body.node, format!("{jax}.checkpoint({})", body.text())));
    }
    Ok(())
}

/// A function of the program that is called in a loop on its own result: `x = block(weights, x)`.
fn repeated_functions(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    for at in program.all("assignment") {
        let (Some(left), Some(right)) = (at.node.child_by_field_name("left"), at.node.child_by_field_name("right"))
        else {
            continue;
        };
        let Some(call) = Call::of(at.with(right)).filter(|call| call.function.kind() == "identifier") else { continue };
        let Some(jax) = alias(at.source, "jax") else { continue };
        let name = at.source.of(left);
        let on_itself = call.positional().iter().any(|node| at.source.of(*node) == name);
        let own = program.all("function_definition").into_iter().any(|function| {
            function.node.child_by_field_name("name").is_some_and(|node| function.source.of(node) == call.path())
        });
        // A step of the training is called on its own result too, in a loop of the main program.
        let traced = function_of(at.node).is_some_and(|function| !at.source.of(function).contains("value_and_grad"));
        if left.kind() == "identifier" && on_itself && own && traced && in_loop(at.node) {
            let edit = Edit::replace(call.function, format!("{jax}.checkpoint({})", call.path()));
            draft.edit(at.file, Way::Code, edit);
        }
    }
    Ok(())
}

fn in_loop(node: Node<'_>) -> bool {
    let function = function_of(node);
    around(node).take_while(|node| Some(*node) != function).any(|node| node.kind() == "for_statement")
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

fn is_jit(path: &str) -> bool {
    matches!(path, "jax.jit" | "jit" | "pjit" | "jax.pjit")
}

/// The decorator that compiles a function: `@jax.jit` or `@partial(jax.jit, ...)`.
fn jitted(function: At<'_>) -> Option<Node<'_>> {
    let whole = function.node.parent().filter(|node| node.kind() == "decorated_definition")?;
    let mut cursor = whole.walk();
    let decorators: Vec<Node<'_>> = whole.children(&mut cursor).filter(|node| node.kind() == "decorator").collect();
    decorators.into_iter().find(|decorator| {
        let Some(inner) = decorator.named_child(0) else { return false };
        is_jit(function.source.of(inner))
            || Call::of(function.with(inner)).is_some_and(|call| {
                is_jit(call.path())
                    || call.name() == "partial"
                        && call.positional().first().is_some_and(|first| is_jit(function.source.of(*first)))
            })
    })
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

fn tuple(places: &[usize]) -> String {
    match places {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
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

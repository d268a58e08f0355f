//! JAX and Flax: what is computed again in the backward pass instead of being kept for it.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::literals::{listed, string};
use crate::program::Program;
use crate::scopes::parameters;
use crate::source::{At, around, function_of, within};

use super::super::{cannot, own};
use super::alias;
use super::traced::{in_loop, jitted, tuple};

/// Each block of a model is computed again in the backward pass.
pub fn checkpointing(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
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
        nnx_blocks(draft);
    }
    if draft.is_empty() {
        scans(draft)?;
    }
    if draft.is_empty() {
        repeated_functions(draft)?;
    }
    if draft.is_empty() {
        losses(draft)?;
    }
    if draft.is_empty() {
        return cannot("neither a repeated block of the model nor a function that gradients are taken of was found");
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

/// Modules of Flax NNX that are made in a loop, whose method is decorated: `@nnx.remat` above `def __call__(self, x)`.
fn nnx_blocks(draft: &mut Draft<'_>) {
    let program = draft.program;
    for call in program.calls() {
        let is_each = |node: Node<'_>| matches!(node.kind(), "list_comprehension" | "generator_expression");
        let is_repeated = in_loop(call.at.node) || around(call.at.node).any(is_each);
        let is_class = call.function.kind() == "identifier" && is_repeated;
        let Some(method) = class_of(program, call.path()).filter(|_| is_class) else { continue };
        let source = method.source;
        let Some(nnx) = alias(source, "flax.nnx") else { continue };
        // What Python decides on cannot be traced, and such modules are often given it by name.
        let decides = parameters(method).into_iter().any(|(name, default)| is_decided(name, default));
        if decides || method.node.parent().is_some_and(|around| around.kind() == "decorated_definition") {
            continue;
        }
        let line = format!("{}@{nnx}.remat{}", source.indentation(method.node), source.newline());
        let edit = Edit::insert(source.line_start(method.node.start_byte()), line);
        draft.edit_once(method.file, Way::Code, edit);
    }
}

/// Whether an argument is one that Python decides on.
fn is_decided(name: &str, default: Option<At<'_>>) -> bool {
    ["train", "training", "deterministic", "is_training", "eval", "decode", "testing"].contains(&name)
        || default.is_some_and(|at| matches!(at.text(), "True" | "False"))
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
    let all = parameters(function).into_iter().enumerate();
    all.filter(|(place, (name, default))| *place > 0 && *place <= given && is_decided(name, *default))
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
            let fixed = match fixed_places(&call, &names_fixed_anywhere(program)).as_slice() {
                [] => String::new(),
                places => format!(", static_argnums={}", tuple(places)),
            };
            let edit = Edit::replace(call.function, format!("{jax}.checkpoint({}{fixed})", call.path()));
            draft.edit(at.file, Way::Code, edit);
        }
    }
    Ok(())
}

/// Of the function that gradients are taken of, only the products of matrices with weights are kept:
/// `jax.value_and_grad(loss)` becomes `jax.value_and_grad(jax.checkpoint(loss, policy=...))`.
fn losses(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    // A program may call its own gradient `grad`.
    let is_of_jax =
        |call: &Call<'_>| call.object().is_some() || alias(call.at.source, &format!("jax.{}", call.name())).is_some();
    let gradients = |call: &Call<'_>| matches!(call.name(), "grad" | "value_and_grad") && is_of_jax(call);
    for call in program.calls().into_iter().filter(gradients) {
        let (Some(loss), Some(jax)) = (call.argument("fun", 0), alias(call.at.source, "jax")) else { continue };
        if !matches!(loss.node.kind(), "identifier" | "attribute") {
            continue;
        }
        let policy = format!("policy={jax}.checkpoint_policies.dots_with_no_batch_dims_saveable");
        let fixed = match fixed_arguments(program, &call).as_slice() {
            [] => String::new(),
            places => format!(", static_argnums={}", tuple(places)),
        };
        let text = format!("{jax}.checkpoint({}, {policy}{fixed})", loss.text());
        draft.edit(loss.file, Way::Code, Edit::replace(loss.node, text));
    }
    Ok(())
}

/// The places of arguments that are plain values of Python where gradients are taken, `jax.value_and_grad(loss)(params, x,
/// heads)`: the function around it was compiled for each of their values.
fn fixed_arguments(program: &Program, gradient: &Call<'_>) -> Vec<usize> {
    let at = gradient.at;
    // The call may be made at once, or by a name.
    let outer = at.node.parent().and_then(|node| Call::of(at.with(node))).filter(|outer| outer.function == at.node);
    let named = || {
        let target = at.node.parent().filter(|node| node.kind() == "assignment")?.child_by_field_name("left")?;
        program.calls().into_iter().find(|call| call.path() == at.source.of(target))
    };
    let Some(outer) = outer.or_else(named) else { return Vec::new() };
    let fixed = function_of(outer.at.node).map(|function| fixed_names(outer.at.with(function))).unwrap_or_default();
    fixed_places(&outer, &fixed)
}

/// The places of a call's arguments that are plain values of Python: written out, or names that are known to be.
fn fixed_places(call: &Call<'_>, fixed: &[String]) -> Vec<usize> {
    let is_fixed = |node: &Node<'_>| {
        let text = call.at.source.of(*node);
        matches!(node.kind(), "integer" | "true" | "false" | "none" | "string") || fixed.iter().any(|name| name == text)
    };
    let given = call.positional().into_iter().enumerate();
    given.filter(|(_, node)| is_fixed(node)).map(|(place, _)| place).collect()
}

/// The names of what any compiled function of the program takes as a plain value: the functions that it hands it on to call
/// it the same.
fn names_fixed_anywhere(program: &Program) -> Vec<String> {
    program.all("function_definition").into_iter().flat_map(fixed_names).collect()
}

/// The arguments that a compiled function takes as plain values: `static_argnums` and `static_argnames` of its decorator.
fn fixed_names(function: At<'_>) -> Vec<String> {
    let given = jitted(function).and_then(|decorator| decorator.named_child(0)).map(|node| function.with(node));
    let Some(call) = given.and_then(Call::of) else { return Vec::new() };
    let mut names: Vec<String> = match call.value("static_argnames") {
        Some(one) if one.node.kind() == "string" => string(one).into_iter().collect(),
        Some(several) => listed(several),
        None => Vec::new(),
    };
    if let Some(places) = call.value("static_argnums") {
        let all = parameters(function);
        let numbers = within(places.node).filter(|node| node.kind() == "integer");
        let places = numbers.filter_map(|node| function.source.of(node).parse::<usize>().ok());
        names.extend(places.filter_map(|place| all.get(place).map(|(name, _)| (*name).to_owned())));
    }
    names
}

//! What a function of JAX makes of its samples: a mean, a sum, several means, or something for each of them.

use tree_sitter::Node;

use crate::calls::Call;
use crate::program::Program;
use crate::source::{At, around, within};

/// How a function reduces its samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// To their mean.
    Mean,
    /// To their sum.
    Sum,
    /// To several means, in a tuple or a dictionary; the gradient of a mean is one.
    Means,
}

/// Through how many functions a value is followed.
const DEPTH: usize = 3;

/// The function of the program that a call runs, also where a compiled one has a name of its own: `f = jax.jit(g)`.
pub fn function_of<'a>(program: &'a Program, call: &Call<'_>) -> Option<At<'a>> {
    let named = |name: &str| {
        program.all("function_definition").into_iter().find(|function| {
            function.node.child_by_field_name("name").is_some_and(|node| function.source.of(node) == name)
        })
    };
    if call.function.kind() != "identifier" {
        return None;
    }
    named(call.path()).or_else(|| {
        let made = program.assigned(call.path()).into_iter().filter_map(Call::of);
        made.filter(|made| matches!(made.name(), "jit" | "pjit" | "function"))
            .find_map(|made| named(made.argument("fun", 0)?.text()))
    })
}

/// What is given to a function with the samples, and has none: weights, states, keys.
pub fn is_state(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "param",
        "state",
        "model",
        "variables",
        "weight",
        "key",
        "rng",
        "opt",
        "config",
        "args",
        "stats",
        "layers",
        "cfg",
        "metric",
    ];
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// How a function reduces its samples; `None` where it gives something for each of them, or where that is not seen.
pub fn reduced(program: &Program, function: At<'_>) -> Option<Reduced> {
    let value = returned(function)?;
    match Call::of(function.with(value)).map(|call| (call.name(), is_over_all(&call))) {
        Some(("mean", true)) => return Some(Reduced::Mean),
        Some(("sum", true)) => return Some(Reduced::Sum),
        _ => {}
    }
    are_means(program, function, value, DEPTH).then_some(Reduced::Means)
}

/// What the last `return` of a function itself gives.
pub fn returned(function: At<'_>) -> Option<Node<'_>> {
    let own = |node: &Node<'_>| {
        let inner = around(*node).find(|node| matches!(node.kind(), "function_definition" | "lambda"));
        node.kind() == "return_statement" && inner == Some(function.node)
    };
    within(function.node).filter(own).last()?.named_child(0)
}

/// Whether a mean or a sum is taken of all values, and not along an axis: `x.mean()`, `jnp.mean(x)`.
fn is_over_all(call: &Call<'_>) -> bool {
    let of_module = call.object().is_some_and(|object| matches!(call.at.source.of(object), "jnp" | "np" | "jax.numpy"));
    call.positional().len() == usize::from(of_module) && call.keyword("axis").is_none()
}

/// Whether every part of a value is a mean over the samples.
fn are_means(program: &Program, function: At<'_>, value: Node<'_>, depth: usize) -> bool {
    let at = function.with(value);
    let all = |nodes: Vec<Node<'_>>| {
        !nodes.is_empty() && nodes.into_iter().all(|node| are_means(program, function, node, depth))
    };
    let children = || (0..value.named_child_count()).filter_map(|place| value.named_child(place));
    match value.kind() {
        "tuple" | "expression_list" => all(children().collect()),
        "dictionary" => all(children().filter_map(|pair| pair.child_by_field_name("value")).collect()),
        "call" => Call::of(at).is_some_and(|call| {
            if call.name() == "mean" && is_over_all(&call) {
                return true;
            }
            // `dict(loss=loss, accuracy=accuracy)`
            if call.path() == "dict" && call.positional().is_empty() {
                let given =
                    (0..call.arguments.named_child_count()).filter_map(|place| call.arguments.named_child(place));
                return all(given.filter_map(|node| node.child_by_field_name("value")).collect());
            }
            depth > 0
                && function_of(program, &call).is_some_and(|inner| {
                    returned(inner).is_some_and(|value| are_means(program, inner, value, depth - 1))
                })
        }),
        "identifier" if depth > 0 => is_mean_by_name(program, function, at.text(), depth - 1),
        _ => false,
    }
}

/// Whether a name has a mean in a function: its value, or a loss and its gradients where the loss is a mean.
fn is_mean_by_name(program: &Program, function: At<'_>, name: &str, depth: usize) -> bool {
    let assigned = within(function.node)
        .filter(|node| node.kind() == "assignment")
        .filter_map(|node| Some((node.child_by_field_name("left")?, node.child_by_field_name("right")?)));
    let mut last = false;
    for (left, right) in assigned {
        if function.source.of(left) == name && are_means(program, function, right, depth) {
            last = true;
            continue;
        }
        let named: Vec<&str> =
            within(left).filter(|node| node.kind() == "identifier").map(|node| function.source.of(node)).collect();
        if named.contains(&name) {
            last = is_of_a_gradient(program, function, (left, right), name);
        }
    }
    last
}

/// Whether a name is the loss or the gradients of `(loss, logits), grads = jax.value_and_grad(loss_fn)(params)` whose loss
/// is a mean; what else the loss function gives is not.
fn is_of_a_gradient(program: &Program, function: At<'_>, (left, right): (Node<'_>, Node<'_>), name: &str) -> bool {
    let text = |node: Node<'_>| function.source.of(node);
    let Some(outer) = Call::of(function.with(right)) else { return false };
    let direct = Call::of(function.with(outer.function));
    let made = direct.or_else(|| {
        let made = within(function.node).filter(|node| node.kind() == "assignment");
        let mut made =
            made.filter(|node| node.child_by_field_name("left").is_some_and(|left| text(left) == outer.path()));
        Call::of(function.with(made.next()?.child_by_field_name("right")?))
    });
    let Some(made) = made.filter(|made| matches!(made.name(), "grad" | "value_and_grad")) else { return false };
    let Some(loss) = made.argument("fun", 0) else { return false };
    let is_loss = |node: &Node<'_>| {
        node.kind() == "function_definition"
            && node.child_by_field_name("name").is_some_and(|name| loss.source.of(name) == loss.text())
    };
    let all = program.all("function_definition").into_iter();
    let Some(loss) = all.into_iter().find(|at| at.file == loss.file && is_loss(&at.node)) else { return false };
    let first = returned(loss).map(|value| match value.kind() {
        "tuple" | "expression_list" => value.named_child(0).unwrap_or(value),
        _ => value,
    });
    if !first.is_some_and(|value| are_means(program, loss, value, 1)) {
        return false;
    }
    // The place of the name: the gradients come last, and the loss comes first, alone or before what else is given.
    let parts: Vec<Node<'_>> = (0..left.named_child_count()).filter_map(|place| left.named_child(place)).collect();
    match (made.name(), parts.as_slice()) {
        ("grad", []) => true,
        ("grad", [gradients, ..]) => text(*gradients) == name,
        (_, [value, gradients]) => {
            let first = value.named_child(0).filter(|_| value.kind() != "identifier").unwrap_or(*value);
            text(*gradients) == name || text(first) == name
        }
        _ => false,
    }
}

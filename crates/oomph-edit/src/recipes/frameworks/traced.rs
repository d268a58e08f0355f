//! Functions that JAX compiles, and where in them a place is.

use tree_sitter::Node;

use crate::calls::Call;
use crate::source::{At, around, function_of};

/// Whether a call of this path compiles a function.
pub fn is_jit(path: &str) -> bool {
    matches!(path, "jax.jit" | "jit" | "pjit" | "jax.pjit")
}

/// The decorator that compiles a function: `@jax.jit` or `@partial(jax.jit, ...)`.
pub fn jitted(function: At<'_>) -> Option<Node<'_>> {
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

/// Whether a place is in a loop of its function.
pub fn in_loop(node: Node<'_>) -> bool {
    let function = function_of(node);
    around(node).take_while(|node| Some(*node) != function).any(|node| node.kind() == "for_statement")
}

/// Numbers as Python writes a tuple of them.
pub fn tuple(places: &[usize]) -> String {
    match places {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

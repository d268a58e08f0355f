//! Compiles the lines that ran out of memory as one function of JAX's: what they compute one by one lies whole on the card, and
//! what XLA computes as one is never there.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::{At, around, function_of, is_statement, within};

use super::super::cannot;
use super::alias;
use super::reduced::function_of as own_function;
use super::traced::jitted;

/// `d = norm(x[:, None] - x[None])` becomes `d = jax.jit(lambda x: norm(x[:, None] - x[None]))(x)`, and takes the next statement with
/// it where that is all that uses `d`.
pub fn jax(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let place = draft.facts.died_at.as_ref().and_then(|(file, line)| {
        let (file, source) = program.file(file)?;
        Some(At { file, source, node: source.statements_at(*line).pop()? })
    });
    let Some((statement, first)) = place.and_then(|at| Some((at, value(at.node)?))) else {
        return cannot("the line that ran out is not known, or computes no single value");
    };
    let source = statement.source;
    let Some(name) = alias(source, "jax") else { return cannot("the file does not import jax") };
    let inside = |node: &Node<'_>| node.kind() == "function_definition" && jitted(statement.with(*node)).is_some();
    if around(statement.node).any(|node| inside(&node)) {
        return cannot("the line that ran out is compiled already");
    }
    let mut body = source.of(first).to_owned();
    let (mut parts, mut target) = (vec![first], first);
    if let Some((kept, next)) = only_use(statement) {
        (body, target) = (with_instead(next, kept, &body), next.node);
        parts.push(next.node);
    }
    if parts.iter().any(|part| calls_its_own(program, statement.with(*part))) {
        return cannot("the line that ran out calls what the program defines or compiles itself");
    }
    let given = arguments(program, statement, &parts, (target != first).then(|| kept_name(statement)).flatten());
    if given.is_empty() {
        return cannot("the line that ran out takes no array of the program's");
    }
    let given = given.join(", ");
    let text = format!("{name}.jit(lambda {given}: {body})({given})");
    if target != first {
        let Some(range) = source.whole_lines(statement.node, statement.node) else {
            return cannot("the line that ran out holds other statements too");
        };
        draft.edit(statement.file, Way::Code, Edit { range, text: String::new() });
    }
    draft.edit(statement.file, Way::Code, Edit::replace(target, text));
    Ok(())
}

/// What a statement computes: the right side of its assignment, what it returns, or its expression.
fn value(statement: Node<'_>) -> Option<Node<'_>> {
    let inner = statement.named_child(0)?;
    match (statement.kind(), inner.kind()) {
        ("expression_statement", "assignment") => inner.child_by_field_name("right"),
        ("expression_statement" | "return_statement", _) => Some(inner),
        _ => None,
    }
}

/// The one name that a statement gives a value.
fn kept_name(statement: At<'_>) -> Option<&str> {
    let assignment = statement.node.named_child(0).filter(|node| node.kind() == "assignment")?;
    let left = assignment.child_by_field_name("left").filter(|left| left.kind() == "identifier")?;
    Some(statement.source.of(left))
}

/// The name that a statement gives its value, and the value of the next statement, where that alone uses it.
fn only_use<'a>(statement: At<'a>) -> Option<(&'a str, At<'a>)> {
    let kept = kept_name(statement)?;
    let next = std::iter::successors(statement.node.next_named_sibling(), Node::next_named_sibling)
        .find(|node| is_statement(*node))?;
    let value = value(next)?;
    let scope = function_of(statement.node).unwrap_or(statement.source.root());
    let uses = |node: Node<'a>| {
        let after = within(node).filter(|node| node.kind() == "identifier" && statement.source.of(*node) == kept);
        after.filter(|node| node.start_byte() >= statement.node.end_byte()).count()
    };
    let used = uses(value);
    (used > 0 && used == uses(scope)).then(|| (kept, statement.with(value)))
}

/// The text of an expression with another in the place of a name.
fn with_instead(at: At<'_>, name: &str, instead: &str) -> String {
    let mut text = at.text().to_owned();
    let places: Vec<Node<'_>> = within(at.node).filter(|node| is_name(at, *node, name)).collect();
    for node in places.into_iter().rev() {
        let start = node.start_byte() - at.node.start_byte();
        text.replace_range(start..start + name.len(), &format!("({instead})"));
    }
    text
}

fn is_name(at: At<'_>, node: Node<'_>, name: &str) -> bool {
    node.kind() == "identifier" && at.source.of(node) == name
}

/// Whether an expression calls a function of the program, or a variable: what those do is not known here.
fn calls_its_own(program: &Program, at: At<'_>) -> bool {
    within(at.node).filter(|node| node.kind() == "call").filter_map(|node| Call::of(at.with(node))).any(|call| {
        own_function(program, &call).is_some()
            || call.function.kind() == "identifier" && !program.assigned(call.path()).is_empty()
            || call.function.kind() == "call"
    })
}

/// The variables that some expressions read and that may be arrays, in the order in which they come; numbers that shapes are made
/// of stay what they are.
fn arguments<'a>(program: &Program, statement: At<'a>, parts: &[Node<'a>], kept: Option<&str>) -> Vec<&'a str> {
    let source = statement.source;
    let mut found: Vec<&str> = Vec::new();
    for node in parts.iter().flat_map(|part| within(*part)).filter(|node| node.kind() == "identifier") {
        let name = source.of(node);
        let parent = node.parent();
        let is_part = parent.is_some_and(|parent| {
            parent.kind() == "attribute" && parent.child_by_field_name("attribute") == Some(node)
                || parent.kind() == "keyword_argument" && parent.child_by_field_name("name") == Some(node)
        });
        let made = program.assigned(name);
        let is_number = made.iter().any(|made| {
            let text = made.text();
            text.starts_with(|first: char| first.is_ascii_digit())
                || ["int(", "len(", "argv", "args.", ".shape"].iter().any(|word| text.contains(word))
        });
        let is_parameter = || {
            let function = function_of(statement.node).and_then(|node| node.child_by_field_name("parameters"));
            function.is_some_and(|node| within(node).any(|node| source.of(node) == name))
        };
        if !is_part
            && Some(name) != kept
            && !is_number
            && (!made.is_empty() || is_parameter())
            && !found.contains(&name)
        {
            found.push(name);
        }
    }
    found
}

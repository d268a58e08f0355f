//! Finds the values that names get within a function or a file: parameters and assignments.

use tree_sitter::Node;

use crate::source::{At, around, function_of, within};

/// The parameters of a function with their defaults.
pub(crate) fn parameters(function: At<'_>) -> Vec<(&str, Option<At<'_>>)> {
    let Some(list) = function.node.child_by_field_name("parameters") else { return Vec::new() };
    let count = list.named_child_count();
    let nodes = (0..count).filter_map(|place| list.named_child(place));
    nodes
        .filter_map(|node| {
            let name = match node.kind() {
                "identifier" => Some(node),
                "typed_parameter" => node.named_child(0),
                _ => node.child_by_field_name("name"),
            }?;
            let default = node.child_by_field_name("value").map(|value| function.with(value));
            Some((function.source.of(name), default))
        })
        .collect()
}

/// What is assigned to a name in a function or a file, without the functions inside it.
pub(crate) fn assigned<'a>(scope: At<'a>, name: &str) -> Vec<At<'a>> {
    let own = |node: &Node<'_>| match function_of(*node) {
        Some(function) => function == scope.node,
        None => scope.node.kind() == "module",
    };
    within(scope.node)
        .filter(|node| node.kind() == "assignment" && own(node))
        .filter(|node| !around(*node).any(|node| node.kind() == "class_definition") || scope.node.kind() != "module")
        .filter_map(|node| {
            let (left, right) = (node.child_by_field_name("left")?, node.child_by_field_name("right")?);
            if scope.source.of(left) == name {
                return Some(scope.with(right));
            }
            // `batch, epochs = 16, 3`
            let count = left.named_child_count();
            let several = left.kind() == "pattern_list" && right.kind() == "expression_list";
            let place =
                (0..count).find(|place| left.named_child(*place).is_some_and(|one| scope.source.of(one) == name))?;
            (several && right.named_child_count() == count)
                .then(|| right.named_child(place).map(|one| scope.with(one)))?
        })
        .collect()
}

/// What is assigned to an expression like `self.x` anywhere below a node.
pub(crate) fn assigned_text<'a>(scope: At<'a>, text: &str) -> Vec<At<'a>> {
    within(scope.node)
        .filter(|node| node.kind() == "assignment")
        .filter(|node| node.child_by_field_name("left").is_some_and(|left| scope.source.of(left) == text))
        .filter_map(|node| node.child_by_field_name("right").map(|right| scope.with(right)))
        .collect()
}

//! Finds the calls that make batches, and the loops over them.

use tree_sitter::Node;

use crate::calls::Call;
use crate::program::Program;
use crate::scopes::parameters;
use crate::source::{At, around, function_of};

/// The calls that make a loader with a batch size of its own.
pub(crate) fn loaders(program: &Program) -> Vec<Call<'_>> {
    let makes = |call: &Call<'_>| {
        (call.name().ends_with("DataLoader") || call.name() == "dataloader") && call.argument("batch_size", 1).is_some()
    };
    program.calls().into_iter().filter(makes).collect()
}

/// What a loader is called where it is made: `train_loader`, `self.loader`.
pub(crate) fn name_of<'a>(call: &Call<'a>) -> Option<&'a str> {
    let assignment = around(call.at.node).find(|node| node.kind() == "assignment")?;
    assignment.child_by_field_name("left").map(|left| call.at.source.of(left))
}

/// Whether an expression names something: `enumerate(tqdm(loader))` names `loader`.
pub(crate) fn names(text: &str, name: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric() && !"_.".contains(letter)).any(|word| word == name)
}

/// The loaders that a `for` loop goes over; where its function is given them, those of all its callers.
pub(crate) fn gone_over<'a>(program: &'a Program, at: At<'a>) -> Vec<Call<'a>> {
    let Some(right) = at.node.child_by_field_name("right").map(|right| at.source.of(right)) else { return Vec::new() };
    let mut texts = vec![right];
    if let Some(function) = function_of(at.node) {
        let function = at.with(function);
        let called = function.node.child_by_field_name("name").map(|node| at.source.of(node)).unwrap_or_default();
        let method = parameters(function).first().is_some_and(|(first, _)| *first == "self");
        for (place, (parameter, _)) in parameters(function).into_iter().enumerate() {
            if names(right, parameter) {
                let place = if method { place.saturating_sub(1) } else { place };
                let callers = program.calls().into_iter().filter(|call| call.name() == called);
                texts.extend(callers.filter_map(|call| call.argument(parameter, place)).map(At::text));
            }
        }
    }
    let is = |call: &Call<'a>| name_of(call).is_some_and(|name| texts.iter().any(|text| names(text, name)));
    loaders(program).into_iter().filter(is).collect()
}

/// The innermost `for` loop around a line that goes over a loader.
pub(crate) fn loop_at<'a>(program: &'a Program, at: At<'a>) -> Vec<Call<'a>> {
    let loops =
        std::iter::once(at.node).chain(around(at.node)).filter(|node: &Node<'a>| node.kind() == "for_statement");
    loops.map(|node| gone_over(program, at.with(node))).find(|found| !found.is_empty()).unwrap_or_default()
}

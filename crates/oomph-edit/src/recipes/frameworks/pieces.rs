//! Gives the call that ran out of memory its samples in pieces, where it is given a whole data set at once.
//!
//! The results are joined again, so that what follows gets what it got before. A call that trains is left alone: its
//! result does not come of the pieces.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, import};
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::{At, Source, around, unused, within};

use super::super::cannot;
use super::alias;
use super::reduced::{Reduced, function_of, is_state, reduced};

/// The names that a piece gets: the number of its samples, and the first of them.
struct Names {
    count: &'static str,
    first: &'static str,
}

impl Names {
    /// Names that the file does not use.
    fn fresh(source: &Source) -> Option<Self> {
        let count = unused(source, &["rows", "at_once", "piece_rows"])?;
        Some(Self { count, first: unused(source, &["row", "begin", "piece_start"])? })
    }

    /// The samples of a piece: `row:row + rows`.
    fn slice(&self) -> String {
        format!("{0}:{0} + {1}", self.first, self.count)
    }

    /// The loop over the pieces of some data.
    fn over(&self, data: &str) -> String {
        format!("for {} in range(0, len({data}), {})", self.first, self.count)
    }
}

/// What takes the place of an expression, and the data that is cut.
struct Cut<'a> {
    place: Node<'a>,
    text: String,
    data: &'a str,
}

/// `session.run(names, {"pixels": images})` becomes a run for each piece; the results are joined output by output.
pub fn onnx_runtime(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let (statement, names) = dying(draft)?;
    let source = statement.source;
    let known = alias(source, "numpy");
    let numpy = known.unwrap_or("numpy");
    let found = calls(statement).find_map(|call| {
        let feed =
            call.argument("input_feed", 1).filter(|feed| call.name() == "run" && feed.node.kind() == "dictionary")?;
        let count = feed.node.named_child_count();
        let pairs: Vec<Node<'_>> = (0..count).filter_map(|place| feed.node.named_child(place)).collect();
        let values: Vec<Node<'_>> = pairs.iter().filter_map(|pair| pair.child_by_field_name("value")).collect();
        let whole = values.len() == pairs.len() && values.iter().all(|value| is_data(source, *value));
        let data = source.of(*values.first().filter(|_| whole)?);
        let run = cut(call, &values, &names);
        let text = format!("[{numpy}.concatenate(parts) for parts in zip(*({run} {}))]", names.over(data));
        Some(Cut { place: call.at.node, text, data })
    });
    let Some(found) = found else { return cannot("the line that ran out gives no session a whole array") };
    if known.is_none() {
        let Some(edit) = import(source, "import numpy") else {
            return cannot("the imports of the program were not found");
        };
        draft.edit_once(statement.file, Way::Code, edit);
    }
    write(draft, statement, &names, &found)
}

/// `logits = model(images)` becomes a call for each piece.
pub fn tensorflow(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let (statement, names) = dying(draft)?;
    let Some(tensorflow) = alias(statement.source, "tensorflow") else {
        return cannot("the file does not import TensorFlow");
    };
    let taped = around(statement.node)
        .any(|node| node.kind() == "with_statement" && statement.source.of(node).contains("GradientTape"));
    if taped {
        return cannot("the line that ran out is recorded for a gradient");
    }
    let join = |text: String| format!("{tensorflow}.concat([{text}], axis=0)");
    let found = calls(statement).find_map(|call| {
        let trains = call.value("training").is_some_and(|value| value.text() == "True");
        let first = call.positional().first().copied().filter(|first| is_data(statement.source, *first))?;
        if trains || !is_model(draft.program, &call) {
            return None;
        }
        let data = statement.source.of(first);
        let text = join(format!("{} {}", cut(call, &[first], &names), names.over(data)));
        Some(Cut { place: call.at.node, text, data })
    });
    let Some(found) = found.or_else(|| pairs(statement, &names, join)) else {
        return cannot("the line that ran out gives no model a whole set");
    };
    write(draft, statement, &names, &found)
}

/// `features = embed(params, images)` becomes a call for each piece; a mean over all is the weighted mean of theirs.
pub fn jax(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let (statement, names) = dying(draft)?;
    let source = statement.source;
    let Some(numpy) = alias(source, "jax.numpy") else { return cannot("the file does not import jax.numpy") };
    let join = |text: String| format!("{numpy}.concatenate([{text}])");
    let found = calls(statement).find_map(|call| {
        let function = function_of(draft.program, &call)?;
        let given = call.positional();
        let samples: Vec<Node<'_>> =
            given.into_iter().filter(|node| is_data(source, *node) && !is_state(source.of(*node))).collect();
        let data = source.of(*samples.first()?);
        // What a step of a training gives back replaces what it was given.
        let target = around(call.at.node)
            .find(|node| node.kind() == "assignment")
            .and_then(|node| node.child_by_field_name("left"));
        let replaces = target.is_some_and(|target| {
            let names: Vec<&str> = once_and_within(target).map(|node| source.of(node)).collect();
            call.positional().iter().any(|node| names.contains(&source.of(*node)))
        });
        let reduced = reduced(draft.program, function);
        if replaces || function.text().contains("grad(") && reduced != Some(Reduced::Means) {
            return None;
        }
        let (one, over) = (cut(call, &samples, &names), names.over(data));
        let size = format!("len({data}[{}])", names.slice());
        let text = match (reduced, alias(source, "jax")) {
            (Some(Reduced::Mean), _) => format!("sum({one} * {size} {over}) / len({data})"),
            (Some(Reduced::Sum), _) => format!("sum({one} {over})"),
            (Some(Reduced::Means), Some(jax)) => format!(
                "{jax}.tree.map(lambda *parts: sum(parts), \
                 *({jax}.tree.map(lambda part: part * {size} / len({data}), {one}) {over}))"
            ),
            (Some(Reduced::Means), None) => return None,
            (None, _) => join(format!("{one} {over}")),
        };
        Some(Cut { place: call.at.node, text, data })
    });
    let Some(found) = found.or_else(|| pairs(statement, &names, join)) else {
        return cannot("the line that ran out gives no function a whole set");
    };
    write(draft, statement, &names, &found)
}

/// The statement that ran out of memory, and names for its pieces.
fn dying<'a>(draft: &Draft<'a>) -> Result<(At<'a>, Names), CannotPlace> {
    let program = draft.program;
    let place = draft.facts.died_at.as_ref().and_then(|(file, line)| {
        let (file, source) = program.file(file)?;
        let node = source.statements_at(*line).pop()?;
        Some(At { file, source, node })
    });
    let Some(statement) = place.filter(|at| matches!(at.node.kind(), "expression_statement" | "return_statement"))
    else {
        return cannot("the line that ran out is not known, or holds no single expression");
    };
    match Names::fresh(statement.source) {
        Some(names) => Ok((statement, names)),
        None => cannot("no name for the pieces is free"),
    }
}

/// The calls of a statement, the outermost first; those of functions that it defines are not among them.
fn calls(statement: At<'_>) -> impl Iterator<Item = Call<'_>> {
    within(statement.node).filter(|node| node.kind() == "call").filter_map(move |node| Call::of(statement.with(node)))
}

fn once_and_within(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    within(node).filter(|node| node.kind() == "identifier")
}

/// The text of a call with a slice of each of these arguments.
fn cut(call: Call<'_>, arguments: &[Node<'_>], names: &Names) -> String {
    let mut text = call.at.text().to_owned();
    let start = call.at.node.start_byte();
    for node in arguments.iter().rev() {
        text.insert_str(node.end_byte() - start, &format!("[{}]", names.slice()));
    }
    text
}

/// Whether a call is that of something that the program made and that is not a function of its own: a model.
fn is_model(program: &Program, call: &Call<'_>) -> bool {
    call.function.kind() == "identifier"
        && !program.assigned(call.path()).is_empty()
        && function_of(program, call).is_none()
}

/// Whether an argument may be samples: a name, an attribute, or an entry of a dictionary such as `test["image"]`.
fn is_data(source: &Source, node: Node<'_>) -> bool {
    let is_name = |node: Node<'_>| matches!(node.kind(), "identifier" | "attribute");
    let is_entry = || {
        let (Some(value), Some(key)) = (node.child_by_field_name("value"), node.child_by_field_name("subscript"))
        else {
            return false;
        };
        is_name(value) && key.kind() == "string" && source.of(key).len() > 2
    };
    is_name(node) || node.kind() == "subscript" && is_entry()
}

/// `norm(x[:, None] - y[None])` compares each with each: the rows of the first are cut, and the rows of the result joined.
fn pairs<'a>(statement: At<'a>, names: &Names, join: impl Fn(String) -> String) -> Option<Cut<'a>> {
    let assignment = statement.node.named_child(0).filter(|node| node.kind() == "assignment")?;
    let place = assignment.child_by_field_name("right")?;
    let source = statement.source;
    let cut = within(place).filter(|node| node.kind() == "subscript").find_map(|node| {
        let value = node.child_by_field_name("value").filter(|value| value.kind() == "identifier")?;
        let (rows, new) = (node.named_child(1)?, node.named_child(2)?);
        let is_new = source.of(new) == "None" || source.of(new).ends_with("newaxis");
        (source.of(rows) == ":" && is_new).then_some((value, rows))
    });
    let (value, rows) = cut?;
    let data = source.of(value);
    let mut text = source.of(place).to_owned();
    let start = place.start_byte();
    text.replace_range(rows.start_byte() - start..rows.end_byte() - start, &names.slice());
    Some(Cut { place, text: join(format!("{text} {}", names.over(data))), data })
}

/// Writes the pieces, and above them how many samples there are in each.
fn write(draft: &mut Draft<'_>, statement: At<'_>, names: &Names, cut: &Cut<'_>) -> Result<(), CannotPlace> {
    let by = draft.amount.by.unwrap_or(4).max(2);
    let source = statement.source;
    let Some(lines) = source.whole_lines(statement.node, statement.node) else {
        return cannot("the line that ran out holds other statements too");
    };
    let indentation = source.indentation(statement.node);
    let line = format!("{indentation}{} = len({}) // {by} + 1{}", names.count, cut.data, source.newline());
    draft.edit(statement.file, Way::Code, Edit::insert(lines.start, line));
    draft.edit(statement.file, Way::Code, Edit::replace(cut.place, cut.text.clone()));
    Ok(())
}

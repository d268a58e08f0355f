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
use crate::scopes::parameters;
use crate::source::{At, Source, around, unused, within};

use super::super::cannot;
use super::alias;
use super::reduced::{Reduced, function_of, is_state, reduced, returned};

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

    /// The loop over the pieces of so many samples.
    fn over(&self, length: &str) -> String {
        format!("for {} in range(0, {length}, {})", self.first, self.count)
    }
}

/// What takes the place of an expression, and how many samples are cut: `len(images)`.
struct Cut<'a> {
    place: Node<'a>,
    text: String,
    length: String,
}

/// How many samples some data has.
fn length_of(data: &str) -> String {
    format!("len({data})")
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
        let length = length_of(source.of(*values.first().filter(|_| whole)?));
        let run = cut(call, &values, &names);
        let text = format!("[{numpy}.concatenate(parts) for parts in zip(*({run} {}))]", names.over(&length));
        Some(Cut { place: call.at.node, text, length })
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
        let length = length_of(statement.source.of(first));
        let text = join(format!("{} {}", cut(call, &[first], &names), names.over(&length)));
        Some(Cut { place: call.at.node, text, length })
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
        let mut samples: Vec<Node<'_>> =
            given.iter().copied().filter(|node| is_data(source, *node) && !is_state(source.of(*node))).collect();
        // Weights have all kinds of names, as `lora` and `base`.
        if samples.iter().any(|node| is_called_data(source.of(*node))) {
            samples.retain(|node| is_called_data(source.of(*node)));
        }
        // What is taken by names, there or in a function that it is handed to, as `batch["image"]`, has its samples in each of its entries.
        let (functions, parameters) = (draft.program.all("function_definition"), parameters(function));
        let by_name = |node: &&Node<'_>| {
            let parameter = given.iter().position(|one| one == *node).and_then(|at| parameters.get(at));
            parameter.is_some_and(|(parameter, _)| functions.iter().any(|one| takes_by_name(one.text(), parameter)))
        };
        let named: Vec<Node<'_>> = samples.iter().filter(by_name).copied().collect();
        let array = samples.iter().find(|node| !named.contains(node)).map(|node| source.of(*node));
        // What a step of a training gives back replaces what it was given.
        let target = around(call.at.node)
            .find(|node| node.kind() == "assignment")
            .and_then(|node| node.child_by_field_name("left"));
        let replaces = target.is_some_and(|target| {
            let names: Vec<&str> = once_and_within(target).map(|node| source.of(node)).collect();
            call.positional().iter().any(|node| names.contains(&source.of(*node)))
        });
        let reduced = reduced(draft.program, function);
        if replaces || trains(function.text()) || function.text().contains("grad(") && reduced != Some(Reduced::Means) {
            return None;
        }
        // Pieces of several results do not join as those of one do, and what gives nothing has none.
        let many = || returned(function).is_none_or(|value| matches!(value.kind(), "tuple" | "expression_list"));
        if reduced.is_none() && many() {
            return None;
        }
        let jax = alias(source, "jax");
        let (length, size) = match (array, jax) {
            (Some(data), _) => (length_of(data), format!("len({data}[{}])", names.slice())),
            (None, Some(jax)) => {
                let length = length_of(&format!("{jax}.tree.leaves({})[0]", source.of(*samples.first()?)));
                (length.clone(), format!("min({}, {length} - {})", names.count, names.first))
            }
            (None, None) => return None,
        };
        let whole = |node: &Node<'_>| named.contains(node).then_some(jax).flatten();
        let (one, over) = (cut_trees(call, &samples, &names, whole), names.over(&length));
        let text = match (reduced, jax) {
            (Some(Reduced::Mean), _) => format!("sum({one} * {size} {over}) / {length}"),
            (Some(Reduced::Sum), _) => format!("sum({one} {over})"),
            (Some(Reduced::Means), Some(jax)) => format!(
                "{jax}.tree.map(lambda *parts: sum(parts), \
                 *({jax}.tree.map(lambda part: part * {size} / {length}, {one}) {over}))"
            ),
            (Some(Reduced::Means), None) => return None,
            (None, _) => join(format!("{one} {over}")),
        };
        Some(Cut { place: call.at.node, text, length })
    });
    let Some(found) = found.or_else(|| pairs(statement, &names, join)) else {
        return cannot("the line that ran out gives no function a whole set");
    };
    write(draft, statement, &names, &found)
}

/// Whether a function's text is that of a step of a training, which may change the model in place as those of Flax NNX do: a
/// step for each piece is another training.
fn trains(function: &str) -> bool {
    let says = |words: &str| function.contains(words);
    says("apply_updates(") || says("apply_gradients(") || says("grad(") && says(".update(")
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
    cut_trees(call, arguments, names, |_| None)
}

/// The same, where `tree` names the module `jax` for an argument of which each entry is to be cut.
fn cut_trees<'a>(
    call: Call<'_>,
    arguments: &[Node<'_>],
    names: &Names,
    tree: impl Fn(&Node<'_>) -> Option<&'a str>,
) -> String {
    let mut text = call.at.text().to_owned();
    let start = call.at.node.start_byte();
    for node in arguments.iter().rev() {
        let place = node.start_byte() - start..node.end_byte() - start;
        match tree(node) {
            Some(jax) => {
                let data = &text[place.clone()];
                let map = format!("{jax}.tree.map(lambda part: part[{}], {data})", names.slice());
                text.replace_range(place, &map);
            }
            None => text.insert_str(place.end, &format!("[{}]", names.slice())),
        }
    }
    text
}

/// Whether a name says that it is samples.
fn is_called_data(name: &str) -> bool {
    const WHOLE: [&str; 6] = ["x", "y", "xs", "ys", "ids", "obs"];
    const PARTS: [&str; 12] =
        ["batch", "input", "data", "image", "token", "label", "example", "sample", "test", "mask", "grid", "text"];
    let name = name.to_lowercase();
    WHOLE.contains(&name.as_str()) || PARTS.iter().any(|part| name.contains(part))
}

/// Whether a function's text takes entries of this by their names: `batch["image"]`.
fn takes_by_name(function: &str, parameter: &str) -> bool {
    ['"', '\''].iter().any(|quote| function.contains(&format!("{parameter}[{quote}")))
}

/// Whether a call is that of something that the program made and that is not a function of its own: a model. So is what is
/// asked whether it trains, as `self.model(images, training=False)` of a callback.
fn is_model(program: &Program, call: &Call<'_>) -> bool {
    let made = call.function.kind() == "identifier" && !program.assigned(call.path()).is_empty();
    (made || call.value("training").is_some()) && function_of(program, call).is_none()
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
    let length = length_of(source.of(value));
    let mut text = source.of(place).to_owned();
    let start = place.start_byte();
    text.replace_range(rows.start_byte() - start..rows.end_byte() - start, &names.slice());
    Some(Cut { place, text: join(format!("{text} {}", names.over(&length))), length })
}

/// How many samples each of `by` pieces has; the last may have fewer.
pub fn rows_of_a_piece(length: &str, by: u64) -> String {
    format!("({length} + {}) // {by}", by - 1)
}

/// Writes the pieces, and above them how many samples there are in each.
fn write(draft: &mut Draft<'_>, statement: At<'_>, names: &Names, cut: &Cut<'_>) -> Result<(), CannotPlace> {
    let by = draft.amount.by.unwrap_or(4).max(2);
    let source = statement.source;
    let Some(lines) = source.whole_lines(statement.node, statement.node) else {
        return cannot("the line that ran out holds other statements too");
    };
    let indentation = source.indentation(statement.node);
    let rows = rows_of_a_piece(&cut.length, by);
    let line = format!("{indentation}{} = {rows}{}", names.count, source.newline());
    draft.edit(statement.file, Way::Code, Edit::insert(lines.start, line));
    draft.edit(statement.file, Way::Code, Edit::replace(cut.place, cut.text.clone()));
    Ok(())
}

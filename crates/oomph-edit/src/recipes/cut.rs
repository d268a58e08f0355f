//! Cuts each batch of a training loop into parts, within the loop. What surrounds the gradient, such as the optimizer's step, a
//! scheduler, a counter or clipping, stays outside of the parts and runs once for each batch, as before.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::Edit;
use crate::error::CannotPlace;
use crate::models::{calls_model, model_names};
use crate::source::{At, Source, around, function_of, within};

use super::accumulation::{Round, is_of_the_step, loss_of};
use super::{cannot, imports_torch};

/// What the parts are made by. It is written into the program, so that the patch needs nothing else.
const HELPER: &str = r#"def micro_batches(batch, count):
    """Cut a batch into `count` parts or fewer; give each, and its share of the samples."""
    sizes = []

    def cut(value, part):
        if hasattr(value, "shape") and len(value.shape):
            sizes.append(len(value))
            return value[part] if len(value) == sizes[0] else value
        if isinstance(value, (list, tuple)):
            if sizes and len(value) == sizes[0] and not any(hasattr(one, "shape") for one in value):
                return value[part]
            return type(value)(cut(one, part) for one in value)
        if hasattr(value, "keys") and hasattr(value, "copy"):
            few = value.copy()
            for key in value.keys():
                few[key] = cut(value[key], part)
            return few
        return value

    cut(batch, slice(0))
    length = -(-sizes[0] // count)
    for start in range(0, sizes[0], length):
        yield cut(batch, slice(start, start + length)), min(length, sizes[0] - start) / sizes[0]
"#;

/// The batch of the only training loop is cut into `by` parts.
pub(super) fn cut(draft: &mut Draft<'_>, by: u64) -> Result<(), CannotPlace> {
    let program = draft.program;
    let round = Round::of(program)?;
    let (at, source) = (round.backward.at, round.backward.at.source);
    if source.slice(0..source.text().len()).contains("def micro_batches(") {
        return cannot("its batches are cut already");
    }
    let models = model_names(program);
    let first = (0..=round.middle).find(|place| calls_model(at.with(round.statements[*place]), &models));
    let Some(first) = first else { return cannot("where the model is called was not found") };
    let scope = function_of(round.node).unwrap_or_else(|| source.root());
    let batch = batch_names(at, &round, first, &models);
    if batch.is_empty() {
        return cannot("what a batch is made of was not found");
    }
    let stays = staying(at, &round, first, &batch, &models);
    let inner: Vec<Node<'_>> =
        (first..=round.middle).filter(|place| !stays.contains(place)).map(|place| round.statements[place]).collect();
    let loss = loss_of(&round.backward).ok_or_else(|| CannotPlace("the loss was not found".into()))?;
    let made = made_in(source, &inner);
    let names_of = |several: &[Node<'_>]| {
        let mut read = BTreeSet::new();
        several.iter().for_each(|node| read.extend(read_in(source, *node)));
        read
    };
    // What one batch hands to the next would be handed from part to part.
    let carried = made.iter().find(|name| !batch.contains(name) && is_read_before_made(source, &inner, name));
    if let Some(name) = carried {
        return cannot(format!("`{name}` is carried from batch to batch"));
    }
    let rest: Vec<Node<'_>> = round.statements[round.middle + 1..].to_vec();
    let is_after =
        |node: &Node<'_>| node.start_byte() > round.node.end_byte() && function_of(*node) == function_of(round.node);
    let beyond: Vec<Node<'_>> =
        within(scope).filter(|node| crate::source::is_statement(*node) && is_after(node)).collect();
    let mut later = names_of(&rest);
    later.extend(names_of(&beyond));
    // A batch that is made outside of the loop is cut again in the next round.
    let in_loop = made_in(source, &round.statements);
    let target = round.node.child_by_field_name("left");
    let is_new = |name: &String| {
        in_loop.contains(name) || target.is_some_and(|left| within(left).any(|node| source.of(node) == name))
    };
    let restored: Vec<&String> = batch.iter().filter(|name| later.contains(*name) || !is_new(name)).collect();
    let words = Words::of(source, by, &loss, made.iter().any(|name| *name == source.of(loss)));
    let mut gathered = Vec::new();
    for name in made.iter().filter(|name| later.contains(*name) && !batch.contains(name)) {
        if *name == source.of(loss) || is_summed(source, &inner, name) {
            continue;
        }
        let uses: Vec<Node<'_>> = rest.iter().chain(&beyond).copied().collect();
        if is_number(source, &uses, name) {
            gathered.push(Gathered::Number(name));
        } else if imports_torch(source) {
            gathered.push(Gathered::Samples(name));
        } else {
            return cannot(format!("`{name}` is used after the backward pass"));
        }
    }
    let last = round.statements[round.middle];
    let Some(lines) = source.whole_lines(round.statements[first], last) else {
        return cannot("the loop's statements share a line with other code");
    };
    let in_range = |node: &Node<'_>| node.start_byte() >= lines.start && node.end_byte() <= lines.end;
    let long = |node: &Node<'_>| node.start_position().row != node.end_position().row;
    if within(round.node).any(|node| node.kind() == "string" && in_range(&node) && long(&node)) {
        return cannot("a text over several lines would be indented");
    }
    let before: Vec<Node<'_>> = stays.iter().map(|place| round.statements[*place]).collect();
    let loss_is_used = later.contains(source.of(loss));
    let text = words.text(&round, first, &before, (&batch, &restored, &gathered), loss_is_used)?;
    draft.edit(at.file, Way::Code, Edit { range: lines, text });
    if let Some(edit) = words.helper(round.node) {
        draft.edit(at.file, Way::Code, edit);
    }
    Ok(())
}

/// A name that the parts make and that is used after them.
enum Gathered<'n> {
    /// A mean over the samples.
    Number(&'n str),
    /// A row for each sample.
    Samples(&'n str),
}

/// Lines of a block.
struct Lines<'a> {
    text: String,
    indentation: &'a str,
    unit: String,
    newline: &'static str,
}

impl<'a> Lines<'a> {
    /// None yet, of the block of a statement.
    fn like(source: &'a Source, statement: Node<'a>) -> Self {
        let (unit, newline) = (source.unit(), source.newline());
        Self { text: String::new(), indentation: source.indentation(statement), unit, newline }
    }

    fn add(&mut self, line: &str) {
        self.text.push_str(&format!("{}{line}{}", self.indentation, self.newline));
    }

    /// A line in a block of this one.
    fn add_deeper(&mut self, line: &str) {
        self.text.push_str(&format!("{}{}{line}{}", self.indentation, self.unit, self.newline));
    }

    /// Lines of this block, which go into a block of it.
    fn indent(&mut self, lines: &str) {
        for line in lines.split_inclusive('\n') {
            if !line.trim().is_empty() {
                self.text.push_str(&self.unit);
            }
            self.text.push_str(line);
        }
        if !self.text.ends_with('\n') {
            self.text.push_str(self.newline);
        }
    }
}

/// What is written.
struct Words<'a> {
    source: &'a Source,
    by: u64,
    loss: Node<'a>,
    /// Whether the loss is a name that the loop gives it.
    is_named: bool,
}

impl<'a> Words<'a> {
    fn of(source: &'a Source, by: u64, loss: &Node<'a>, is_named: bool) -> Self {
        Self { source, by, loss: *loss, is_named: is_named && loss.kind() == "identifier" }
    }

    /// The statements of the parts, and what goes before and after them.
    fn text(
        &self,
        round: &Round<'a>,
        first: usize,
        before: &[Node<'a>],
        (batch, restored, gathered): (&[String], &[&String], &[Gathered<'_>]),
        loss_is_used: bool,
    ) -> Result<String, CannotPlace> {
        let source = self.source;
        let loss = source.of(self.loss);
        let mut lines = Lines::like(source, round.statements[first]);
        before.iter().for_each(|statement| lines.add(source.of(*statement)));
        let restored = restored.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        if !restored.is_empty() {
            lines.add(&format!("whole_batch = {restored}"));
        }
        let total = self.is_named && loss_is_used;
        if total {
            lines.add(&format!("whole_{loss} = 0.0"));
        }
        for one in gathered {
            lines.add(&match one {
                Gathered::Number(name) => format!("whole_{name} = 0.0"),
                Gathered::Samples(name) => format!("whole_{name} = []"),
            });
        }
        let names = if let [one] = batch { one.clone() } else { format!("({})", batch.join(", ")) };
        lines.add(&format!("for {names}, share in micro_batches({names}, {}):", self.by));
        let is_scaled = self.parts(&mut lines, round, first, before)?;
        if total {
            let share = if is_scaled { "" } else { " * share" };
            lines.add_deeper(&format!("whole_{loss} += {loss}.detach(){share}"));
        }
        for one in gathered {
            lines.add_deeper(&match one {
                Gathered::Number(name) => format!("whole_{name} += {name}.detach() * share"),
                Gathered::Samples(name) => format!("whole_{name}.append({name}.detach())"),
            });
        }
        if !restored.is_empty() {
            lines.add(&format!("{restored} = whole_batch"));
        }
        if total {
            lines.add(&format!("{loss} = whole_{loss}"));
        }
        for one in gathered {
            lines.add(&match one {
                Gathered::Number(name) => format!("{name} = whole_{name}"),
                Gathered::Samples(name) => format!("{name} = torch.cat(whole_{name})"),
            });
        }
        Ok(lines.text)
    }

    /// The statements that run for each part, in which the loss counts for its share. Whether it has its share from where it is made on,
    /// and not in the backward pass alone.
    fn parts(
        &self,
        to: &mut Lines<'a>,
        round: &Round<'a>,
        first: usize,
        before: &[Node<'a>],
    ) -> Result<bool, CannotPlace> {
        let source = self.source;
        let loss = source.of(self.loss);
        let makes = |place: &usize| made_in(source, &[round.statements[*place]]).iter().any(|name| name == loss);
        let scaled = (first..round.middle).rev().find(makes).filter(|_| self.is_named);
        let mut position = source.line_start(round.statements[first].start_byte());
        for place in first..=round.middle {
            let statement = round.statements[place];
            let Some(lines) = source.whole_lines(statement, statement) else {
                return cannot("the loop's statements share a line with other code");
            };
            // The comments above a statement go with it.
            let lines = position..lines.end;
            position = lines.end;
            if before.contains(&statement) {
                continue;
            }
            let mut body = source.slice(lines.clone()).to_owned();
            if place == round.middle && scaled.is_none() {
                let from = self.loss.start_byte() - lines.start;
                let simple = matches!(self.loss.kind(), "identifier" | "attribute" | "call" | "subscript");
                let inner = if simple { loss.to_owned() } else { format!("({loss})") };
                body.replace_range(from..from + loss.len(), &format!("({inner} * share)"));
            }
            to.indent(&body);
            if scaled == Some(place) {
                to.add_deeper(&format!("{loss} = {loss} * share"));
            }
        }
        Ok(scaled.is_some())
    }

    /// The function that cuts, above what it is used in.
    fn helper(&self, node: Node<'a>) -> Option<Edit> {
        let top = std::iter::once(node).chain(around(node)).filter(|node| crate::source::is_statement(*node)).last()?;
        // A function's decorators are a part of it.
        let place = self.source.line_start(top.start_byte());
        let (unit, newline) = (self.source.unit(), self.source.newline());
        let text = HELPER.replace("    ", &unit).replace('\n', newline);
        let gap = if place == 0 { String::new() } else { newline.to_owned() };
        Some(Edit::insert(place, format!("{gap}{text}{newline}{newline}")))
    }
}

/// The names by which the parts know the batch: what the loop gives and what is made of it before the model is called; in a loop that
/// only counts, what is made in each round, and what the model is given.
fn batch_names(at: At<'_>, round: &Round<'_>, first: usize, models: &BTreeSet<String>) -> Vec<String> {
    let source = at.source;
    let inner = &round.statements[first..=round.middle];
    let mut known: BTreeSet<String> = BTreeSet::new();
    let counts = |node: Node<'_>| Call::of(at.with(node)).is_some_and(|call| matches!(call.path(), "range" | "trange"));
    let over = round.node.child_by_field_name("right");
    if let (Some(left), Some(right)) = (round.node.child_by_field_name("left"), over)
        && !counts(right)
    {
        let counter =
            Call::of(at.with(right)).filter(|call| call.path() == "enumerate").and_then(|_| left.named_child(0));
        let of_counter = |node: &Node<'_>| counter.is_some_and(|counter| counter.byte_range() == node.byte_range());
        let names = within(left).filter(|node| node.kind() == "identifier" && !of_counter(node));
        known.extend(names.map(|node| source.of(node).to_owned()));
    }
    let from_loader = !known.is_empty();
    for statement in &round.statements[..first] {
        let made = made_in(source, &[*statement]);
        if !from_loader || read_in(source, *statement).iter().any(|name| known.contains(name)) {
            known.extend(made);
        }
    }
    let mut read = BTreeSet::new();
    inner.iter().for_each(|node| read.extend(read_in(source, *node)));
    let place = |name: &String| {
        within(round.node)
            .find(|node| node.kind() == "identifier" && source.of(*node) == name)
            .map(|node| node.start_byte())
    };
    let mut found: Vec<String> =
        known.into_iter().filter(|name| read.contains(name) && !models.contains(name)).collect();
    // In the order in which the loop names them.
    found.sort_by_key(place);
    if found.is_empty() {
        // The same tensors in each round.
        let calls = inner.iter().flat_map(|node| within(*node)).filter_map(|node| Call::of(at.with(node)));
        let given = calls.filter(|call| calls_model(call.at, models)).flat_map(|call| call.positional());
        let made = made_in(source, &round.statements);
        let plain = given.filter(|node| node.kind() == "identifier").map(|node| source.of(node).to_owned());
        found.extend(plain.filter(|name| !models.contains(name) && !made.contains(name)));
        found.sort();
        found.dedup();
    }
    found
}

/// What of the statements up to the backward pass has nothing to do with the batch, and runs once: gradients that are set to zero, a
/// counter, a learning rate.
fn staying(
    at: At<'_>,
    round: &Round<'_>,
    first: usize,
    batch: &[String],
    models: &BTreeSet<String>,
) -> BTreeSet<usize> {
    let source = at.source;
    let mut known: BTreeSet<String> = batch.iter().cloned().collect();
    let mut stays = BTreeSet::new();
    for place in first..round.middle {
        let statement = round.statements[place];
        let depends = calls_model(at.with(statement), models)
            || read_in(source, statement).iter().any(|name| known.contains(name));
        if depends && !is_of_the_step(at.with(statement)) {
            known.extend(made_in(source, &[statement]));
        } else {
            stays.insert(place);
        }
    }
    stays
}

/// Whether all that a name gets in these statements is added to it.
fn is_summed(source: &Source, statements: &[Node<'_>], name: &str) -> bool {
    let makes = |node: &Node<'_>| {
        matches!(node.kind(), "assignment" | "named_expression" | "for_statement" | "with_statement")
            && node.child_by_field_name("left").is_some_and(|left| within(left).any(|inner| source.of(inner) == name))
    };
    !statements.iter().flat_map(|statement| within(*statement)).any(|node| makes(&node))
}

/// The names that statements give something.
fn made_in(source: &Source, statements: &[Node<'_>]) -> Vec<String> {
    let mut made = Vec::new();
    for node in statements.iter().flat_map(|statement| within(*statement)) {
        let target = match node.kind() {
            "assignment" | "augmented_assignment" | "for_statement" => node.child_by_field_name("left"),
            "named_expression" => node.child_by_field_name("name"),
            "as_pattern_target" => Some(node),
            _ => None,
        };
        let names = target.into_iter().flat_map(|target| {
            let plain = |node: &Node<'_>| {
                node.kind() == "identifier"
                    && !around(*node)
                        .take_while(|outer| {
                            outer.start_byte() >= target.start_byte() && outer.end_byte() <= target.end_byte()
                        })
                        .any(|outer| matches!(outer.kind(), "attribute" | "subscript"))
            };
            within(target).filter(plain).collect::<Vec<_>>()
        });
        for name in names {
            let name = source.of(name).to_owned();
            if !made.contains(&name) {
                made.push(name);
            }
        }
    }
    made
}

/// The names that a statement reads. The target of an assignment is not one of them.
fn read_in(source: &Source, statement: Node<'_>) -> BTreeSet<String> {
    let is_target = |node: Node<'_>| {
        around(node).find(|outer| outer.kind() == "assignment").is_some_and(|outer| {
            let left = outer.child_by_field_name("left");
            left.is_some_and(|left| {
                let inside = node.start_byte() >= left.start_byte() && node.end_byte() <= left.end_byte();
                inside && !within(left).any(|inner| matches!(inner.kind(), "attribute" | "subscript"))
            })
        })
    };
    let is_name = |node: &Node<'_>| {
        let parent = node.parent();
        let attribute = parent.filter(|parent| parent.kind() == "attribute");
        let keyword = parent.filter(|parent| parent.kind() == "keyword_argument");
        node.kind() == "identifier"
            && attribute.is_none_or(|parent| parent.child_by_field_name("attribute") != Some(*node))
            && keyword.is_none_or(|parent| parent.child_by_field_name("name") != Some(*node))
            && !is_target(*node)
    };
    within(statement).filter(is_name).map(|node| source.of(node).to_owned()).collect()
}

/// Whether statements read a name before they give it something; `total += x` reads what it gives, and sums.
fn is_read_before_made(source: &Source, statements: &[Node<'_>], name: &str) -> bool {
    for statement in statements {
        let sums = within(*statement).any(|node| {
            node.kind() == "augmented_assignment"
                && node.child_by_field_name("left").is_some_and(|left| source.of(left) == name)
        });
        let makes = made_in(source, &[*statement]).iter().any(|made| made == name);
        if sums {
            return false;
        }
        let read = read_in(source, *statement).contains(name);
        if read && makes {
            // A block, such as `with autocast():`, may give it and read it then.
            let inner = statement.child_by_field_name("body").map(crate::source::statements);
            return inner.is_none_or(|inner| is_read_before_made(source, &inner, name));
        }
        if read || makes {
            return read;
        }
    }
    false
}

/// Whether a name is used as a number alone: `loss.item()`, `float(loss)`, `f"{loss:.3f}"`.
fn is_number(source: &Source, statements: &[Node<'_>], name: &str) -> bool {
    let mut uses = statements
        .iter()
        .flat_map(|statement| within(*statement))
        .filter(|node| node.kind() == "identifier" && source.of(*node) == name)
        .peekable();
    uses.peek().is_some()
        && uses.all(|node| {
            let Some(parent) = node.parent() else { return false };
            match parent.kind() {
                "attribute" => parent
                    .child_by_field_name("attribute")
                    .is_some_and(|attribute| matches!(source.of(attribute), "item" | "detach")),
                "argument_list" => parent
                    .parent()
                    .and_then(|call| call.child_by_field_name("function"))
                    .is_some_and(|function| source.of(function) == "float"),
                "interpolation" => true,
                _ => false,
            }
        })
}

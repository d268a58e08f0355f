//! Writes gradient accumulation into a training loop that has none.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, wrapped};
use crate::error::CannotPlace;
use crate::loaders::{loaders, name_of, names};
use crate::loops::{Pass, passes, statement};
use crate::program::Program;
use crate::scopes::assigned;
use crate::source::{At, Source, function_of, statements, within};

use super::cannot;

/// Gradient accumulation, written into the only training loop.
pub(super) fn accumulate(draft: &mut Draft<'_>, by: u64) -> Result<(), CannotPlace> {
    let round = Round::of(draft.program)?;
    let (node, at) = (round.node, round.backward.at);
    let (number, from_one, counting) = count(at.source, node, at)?;
    ends_by_counter(draft, &round.statements, at, &number, by)?;
    draft.edits(at.file, Way::Code, counting);
    let inner = node.child_by_field_name("right").map(|right| counted(at.with(right))).unwrap_or_default();
    let plain = !inner.is_empty() && inner.chars().all(|letter| letter.is_alphanumeric() || "_.".contains(letter));
    // How many batches were seen, at the end of a round.
    let seen = if from_one { number.clone() } else { format!("{number} + 1") };
    let last = if plain { format!(" or {seen} == len({inner})") } else { String::new() };
    let is_first = if from_one { format!("if {number} % {by} == 1:") } else { format!("if {number} % {by} == 0:") };
    let is_last =
        if from_one { format!("if {seen} % {by} == 0{last}:") } else { format!("if ({seen}) % {by} == 0{last}:") };
    let divided = divided(&round.backward, by)?;
    draft.edit(at.file, Way::Code, divided);
    for edits in round.under_conditions(&is_first, &is_last)? {
        draft.edits(at.file, Way::Code, edits);
    }
    schedules(draft, by, plain);
    Ok(())
}

/// One round of the training loop: what it does with a batch.
pub(super) struct Round<'a> {
    /// The loop.
    pub(super) node: Node<'a>,
    /// The backward pass.
    pub(super) backward: Call<'a>,
    /// The statements of the loop.
    pub(super) statements: Vec<Node<'a>>,
    /// The place of the backward pass among them.
    pub(super) middle: usize,
    /// What the loop counts its steps in, and the place of the statement that does so.
    counter: Option<(String, usize)>,
}

impl<'a> Round<'a> {
    pub(super) fn of(program: &'a Program) -> Result<Self, CannotPlace> {
        let passes = passes(program);
        let [Pass { at_loop: Some(node), backwards }] = passes.as_slice() else {
            return cannot("the training loop could not be identified");
        };
        let [backward] = backwards.as_slice() else {
            return cannot("the loop makes several backward passes");
        };
        let (node, at) = (*node, backward.at);
        let (Some(body), "for_statement") = (node.child_by_field_name("body"), node.kind()) else {
            return cannot("the training loop is not over batches");
        };
        let Some(backward_statement) = statement(backward).filter(|found| found.parent() == Some(body)) else {
            return cannot("the backward pass is made under a condition");
        };
        let statements = statements(body);
        let Some(middle) = statements.iter().position(|node| *node == backward_statement) else {
            return cannot("the backward pass was not found in its loop");
        };
        if statements.iter().any(|node| node.kind() != "expression_statement" && steps(at.with(*node))) {
            return cannot("the optimizer steps under a condition");
        }
        if !statements[middle..].iter().any(|node| is_of_the_step(at.with(*node))) {
            return cannot("the optimizer's step is not in the loop");
        }
        let counter = step_counter(node, at, &statements[middle..]);
        let last_step = statements.iter().rposition(|node| is_of_the_step(at.with(*node))).unwrap_or(middle);
        let counter = counter.and_then(|name| {
            let counts = |place: &usize| counted_by_one(at.with(statements[*place])).is_some_and(|found| found == name);
            let place = (last_step + 1..statements.len()).find(counts)?;
            Some((name, place))
        });
        Ok(Self { node, backward: *backward, statements, middle, counter })
    }

    /// Whether a statement belongs to the step of the optimizer.
    fn belongs(&self, place: usize) -> bool {
        let (node, source) = (self.statements[place], self.backward.at.source);
        // A step that is counted is one of the optimizer, and what asks for that number (a limit, a log, an evaluation) is
        // asked once a step.
        let counted = || {
            let Some((name, first)) = &self.counter else { return false };
            place >= *first && within(node).any(|inner| source.of(inner) == name && is_whole(inner))
        };
        is_of_the_step(self.backward.at.with(node)) || counted()
    }

    /// Puts what belongs to the step of the optimizer under conditions: that of the first batch of a step where it comes
    /// before the backward pass, else that of the last.
    fn under_conditions(&self, is_first: &str, is_last: &str) -> Result<Vec<Vec<Edit>>, CannotPlace> {
        let all = &self.statements;
        let mut found = Vec::new();
        let mut position = 0;
        while position < all.len() {
            if !self.belongs(position) || position == self.middle {
                position += 1;
                continue;
            }
            let end = (position..all.len()).take_while(|&next| self.belongs(next) && next != self.middle).last();
            let end = end.unwrap_or(position);
            let head = if position < self.middle { is_first } else { is_last };
            let Some(edits) = wrapped(self.backward.at.source, all[position], all[end], head) else {
                return cannot("the optimizer's step shares its line with other code");
            };
            found.push(edits);
            position = end + 1;
        }
        Ok(found)
    }
}

/// Whether a statement is a part of the optimizer's step: the step itself, what clips or scales for it, and what zeroes
/// the gradients.
pub(super) fn is_of_the_step(at: At<'_>) -> bool {
    let is = |call: Call<'_>| {
        matches!(
            call.name(),
            "step" | "zero_grad" | "unscale_" | "clip_grad_norm_" | "clip_grad_value_" | "clip_grad_norm"
        ) || call.name() == "update" && call.object().is_some_and(|object| at.source.of(object).contains("scal"))
    };
    at.node.kind() == "expression_statement" && within(at.node).filter_map(|inner| Call::of(at.with(inner))).any(is)
}

/// Whether something in a statement steps the optimizer or zeroes its gradients.
fn steps(at: At<'_>) -> bool {
    within(at.node).filter_map(|inner| Call::of(at.with(inner))).any(|call| {
        call.name() == "zero_grad"
            || call.name() == "step" && call.object().is_some_and(|object| at.source.of(object).contains("opt"))
    })
}

/// What the backward pass begins with.
pub(super) fn loss_of<'a>(backward: &Call<'a>) -> Option<Node<'a>> {
    let (at, source) = (backward.at, backward.at.source);
    match backward.object().filter(|_| backward.name() == "backward") {
        Some(object) => match Call::of(at.with(object)).filter(|call| call.name() == "scale") {
            Some(scale) => scale.positional().first().copied(),
            None if source.of(object).contains("accelerator") => backward.positional().first().copied(),
            None => Some(object),
        },
        None => backward.positional().first().copied(),
    }
}

/// The loss of a part counts for its share.
fn divided(backward: &Call<'_>, by: u64) -> Result<Edit, CannotPlace> {
    let source = backward.at.source;
    let Some(part) = loss_of(backward) else { return cannot("the loss was not found") };
    let text = source.of(part);
    let simple = matches!(part.kind(), "identifier" | "attribute" | "call" | "subscript");
    let text = if simple { text.to_owned() } else { format!("({text})") };
    let whole = Some(part) == backward.object();
    Ok(Edit::replace(part, if whole { format!("({text} / {by})") } else { format!("{text} / {by}") }))
}

/// What the loop counts its steps in, `global_step` of `global_step += 1`: a name that says so and that nothing is divided by,
/// for a sum over the batches is divided by their number.
fn step_counter<'a>(node: Node<'a>, at: At<'a>, after: &[Node<'a>]) -> Option<String> {
    let scope = function_of(node).unwrap_or_else(|| at.source.root());
    let says = |name: &String| {
        let lower = name.to_lowercase();
        ["step", "update", "iter"].into_iter().any(|word| lower.contains(word))
    };
    let divides = |name: &String| {
        within(scope).any(|inner| {
            matches!(inner.kind(), "binary_operator" | "augmented_assignment")
                && inner.child_by_field_name("operator").is_some_and(|sign| matches!(at.source.of(sign), "/" | "/="))
                && inner.child_by_field_name("right").is_some_and(|right| names(at.source.of(right), name))
        })
    };
    after.iter().filter_map(|node| counted_by_one(at.with(*node))).find(|name| says(name) && !divides(name))
}

/// The name that a statement counts up by one.
fn counted_by_one(at: At<'_>) -> Option<String> {
    let statement = at.node.named_child(0).filter(|_| at.node.kind() == "expression_statement")?;
    let (left, right) = (statement.child_by_field_name("left")?, statement.child_by_field_name("right")?);
    let sign = statement.child_by_field_name("operator").filter(|_| statement.kind() == "augmented_assignment")?;
    let is_one = at.source.of(sign) == "+=" && at.source.of(right) == "1";
    (is_one && matches!(left.kind(), "identifier" | "attribute")).then(|| at.source.of(left).to_owned())
}

/// Whether a node is not part of a longer name: `step` of `self.step` is.
fn is_whole(node: Node<'_>) -> bool {
    matches!(node.kind(), "identifier" | "attribute")
        && node.parent().is_none_or(|parent| parent.kind() != "attribute" && parent.kind() != "keyword_argument")
}

/// A loop that ends once its own counter reaches a number goes over as many samples as before.
fn ends_by_counter(
    draft: &mut Draft<'_>,
    statements: &[Node<'_>],
    at: At<'_>,
    number: &str,
    by: u64,
) -> Result<(), CannotPlace> {
    let ends =
        |node: &Node<'_>| within(*node).any(|inner| matches!(inner.kind(), "break_statement" | "return_statement"));
    for node in statements.iter().filter(|node| node.kind() == "if_statement" && ends(node)) {
        let Some(condition) = node.child_by_field_name("condition") else { continue };
        if !names(at.source.of(condition), number) {
            continue;
        }
        let compared = at.with(condition);
        let (left, right) = match (condition.kind(), condition.named_child(0), condition.named_child(1)) {
            ("comparison_operator", Some(left), Some(right)) if condition.named_child_count() == 2 => (left, right),
            _ => return cannot("the loop ends by its counter in a way that is not known"),
        };
        let sign = condition.child_by_field_name("operators").map(|sign| at.source.of(sign)).unwrap_or_default();
        let counts = match at.source.of(left) {
            text if text == number => sign == ">=",
            text if text == format!("{number} + 1") => matches!(sign, ">=" | "=="),
            _ => false,
        };
        if !counts {
            return cannot("the loop ends by its counter in a way that is not known");
        }
        let limit = compared.with(right);
        let simple = matches!(right.kind(), "identifier" | "attribute" | "integer" | "call" | "subscript");
        let text = if simple { limit.text().to_owned() } else { format!("({})", limit.text()) };
        draft.edit(at.file, Way::Code, Edit::replace(right, format!("{text} * {by}")));
    }
    Ok(())
}

/// A schedule of the learning rate that counts the batches of an epoch counts fewer steps now: `len(loader)` of its
/// arguments is divided, and so it is in a number that was computed from it. Where the last batches of an epoch make a
/// step of their own, the count is rounded up: `OneCycleLR` raises in the first step beyond the number that it was
/// given.
fn schedules(draft: &mut Draft<'_>, by: u64, last_steps: bool) {
    let program = draft.program;
    let loader_names: Vec<&str> = loaders(program).iter().filter_map(name_of).collect();
    let counts = |at: At<'_>| {
        Call::of(at).is_some_and(|call| {
            call.path() == "len"
                && call.positional().first().is_some_and(|of| {
                    let text = at.source.of(*of);
                    loader_names.iter().any(|name| names(text, name)) || text.to_lowercase().ends_with("loader")
                })
        })
    };
    let divided = |count: &str| {
        if last_steps { format!("({count} + {}) // {by}", by - 1) } else { format!("{count} // {by}") }
    };
    // The value of a name that was computed from a count, with the count divided in it.
    let computed = |value: At<'_>| {
        let mut text = value.text().to_owned();
        let inner: Vec<_> = within(value.node).filter(|node| counts(value.with(*node))).collect();
        for node in inner.iter().rev() {
            let start = node.start_byte() - value.node.start_byte();
            let count = value.source.of(*node);
            text.replace_range(start..start + count.len(), &format!("({})", divided(count)));
        }
        (!inner.is_empty()).then_some(text)
    };
    for call in program.calls().into_iter().filter(|call| is_schedule(call.name())) {
        let scope = function_of(call.at.node).unwrap_or_else(|| call.at.source.root());
        let Some(arguments) = call.at.node.child_by_field_name("arguments") else { continue };
        for node in within(arguments) {
            let here = call.at.with(node);
            let whole =
                node.parent().is_some_and(|parent| matches!(parent.kind(), "argument_list" | "keyword_argument"));
            let is_name = node.kind() == "identifier"
                && !node.parent().is_some_and(|parent| parent.child_by_field_name("name") == Some(node));
            let text = if counts(here) {
                Some(divided(here.text()))
            } else if is_name {
                match assigned(call.at.with(scope), here.text()).as_slice() {
                    [value] => computed(*value),
                    // One of several values: which of them counts is not known, but that it counts batches is.
                    several => several.iter().any(|value| computed(*value).is_some()).then(|| divided(here.text())),
                }
            } else {
                None
            };
            if let Some(text) = text {
                let text = if whole { text } else { format!("({text})") };
                draft.edit(call.at.file, Way::Code, Edit::replace(node, text));
            }
        }
    }
}

/// Whether a call makes a schedule of the learning rate.
fn is_schedule(name: &str) -> bool {
    name.ends_with("LR") || name.ends_with("Scheduler") || name.starts_with("get_") && name.contains("schedule")
}

/// What a loop goes over, without what counts it or shows its progress: `loader` of `enumerate(tqdm(loader))`.
fn counted(at: At<'_>) -> &str {
    const SHOWING: &[&str] = &["enumerate", "tqdm", "trange", "track", "progress_bar"];
    let mut at = at;
    while let Some(call) = Call::of(at).filter(|call| SHOWING.contains(&call.name())) {
        let Some(inner) = call.positional().first().copied() else { break };
        at = at.with(inner);
    }
    at.text()
}

/// The name of the loop's counter, whether it counts from 1, and the edits that give it one.
fn count(source: &Source, node: Node<'_>, at: At<'_>) -> Result<(String, bool, Vec<Edit>), CannotPlace> {
    let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right")) else {
        return cannot("the training loop is not over batches");
    };
    if let Some(call) = Call::of(at.with(right)).filter(|call| call.path() == "enumerate") {
        let from_one = match call.argument("start", 1).map(At::text) {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => return cannot("the loop counts neither from 0 nor from 1"),
        };
        let first = left.named_child(0).filter(|first| first.kind() == "identifier" && left.kind() != "identifier");
        let Some(first) = first else { return cannot("the loop's counter was not found") };
        if source.of(first) != "_" {
            return Ok((source.of(first).to_owned(), from_one, Vec::new()));
        }
        return Ok(("micro_step".to_owned(), from_one, vec![Edit::replace(first, "micro_step")]));
    }
    let scope = function_of(node).unwrap_or_else(|| source.root());
    // `optimizer.step` is another thing than a variable of that name.
    let is_variable = |node: &Node<'_>| {
        let whole = node.parent().filter(|parent| parent.kind() == "attribute");
        node.kind() == "identifier" && whole.is_none_or(|whole| whole.child_by_field_name("attribute") != Some(*node))
    };
    let taken = |name: &str| within(scope).any(|inner| is_variable(&inner) && source.of(inner) == name);
    let name =
        ["step", "micro_step", "micro_batch_index"].into_iter().find(|name| !taken(name)).unwrap_or("oomph_step");
    let bare = matches!(left.kind(), "pattern_list");
    let target = if bare { format!("({})", source.of(left)) } else { source.of(left).to_owned() };
    let edits = vec![
        Edit::replace(left, format!("{name}, {target}")),
        Edit::replace(right, format!("enumerate({})", source.of(right))),
    ];
    Ok((name.to_owned(), false, edits))
}

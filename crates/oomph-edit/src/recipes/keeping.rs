//! Detaches tensors that are kept with their graphs from step to step: in lists, totals, states, metrics, hooks.

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, lines_after};
use crate::error::CannotPlace;
use crate::facts::KeptAt;
use crate::loops::without_graph;
use crate::program::Program;
use crate::scopes::parameters;
use crate::source::{At, around, function_of, statement_of, within};

use super::cannot;
use super::graphs::{Graphs, Names, children, lets_go};

/// Every place that keeps a tensor with its graph from step to step keeps what is needed of it.
pub fn detach(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let graphs = Graphs::of(program);
    for at in program.all("for_statement").into_iter().chain(program.all("while_statement")) {
        for statement in own_statements(at) {
            let_go(draft, &graphs, statement, at);
        }
    }
    // A method that is called in each step keeps what it computes without a loop of its own.
    for function in program.all("function_definition") {
        let statements = own_statements(function);
        let graphs_at =
            |at: &At<'_>| draft.facts.kept.iter().any(|kept| kept.kind != "results" && is_line_of(kept, *at));
        if statements.iter().any(graphs_at) {
            for statement in statements {
                let_go(draft, &graphs, statement, function);
            }
        }
    }
    hooks(draft, &graphs);
    if draft.is_empty() {
        return cannot("no line was found that keeps tensors with their graphs");
    }
    neighbours(draft, &graphs);
    Ok(())
}

/// The same without waiting for the card: a tensor is kept, without its graph, in the place of its number.
pub fn detach_tensors(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    detach(draft)?;
    if !draft.replace_in_edits(".item()", ".detach()") {
        return cannot("no number is kept");
    }
    Ok(())
}

/// Whether a loop gives a recurrent network its own state again, with backward passes that retain their graphs: each step
/// then holds the graphs of all steps before it, under one name.
pub fn retains_a_state(program: &Program) -> bool {
    let graphs = Graphs::of(program);
    let loops = program.all("for_statement").into_iter().chain(program.all("while_statement"));
    loops.filter(|round| retained_state(program, *round).is_some()).any(|round| {
        let carried = |at: &At<'_>| {
            graphs.gives_of(*at)
                && keeping(*at).iter().any(|one| one.how == How::Carried && !begins_in(round, root_of(one.target)))
        };
        own_statements(round).iter().any(carried)
    })
}

/// What one statement keeps, and under which name.
struct Keeping<'a> {
    /// What grows: `losses`, `self.history['loss']`.
    target: &'a str,
    /// The values that it is given, one by one.
    parts: Vec<Node<'a>>,
    how: How,
}

/// In which way a statement keeps something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// In a container: `kept.append(x)`, `kept[i] = x`, `kept += [x]`.
    Stored,
    /// In a sum: `total += x`, `mean = 0.9 * mean + 0.1 * x`, `bank = torch.cat([bank, x])`.
    Added,
    /// In a state that a model is given again: `out, h = model(x, h)`.
    Carried,
}

/// What a run calls sums and states that hold the graph of the step before.
const SUMS: &[&str] = &["running-total", "carried-state"];

/// The loop or the function that a statement belongs to.
fn owner(node: Node<'_>) -> Option<Node<'_>> {
    around(node).find(|outer| matches!(outer.kind(), "for_statement" | "while_statement" | "function_definition"))
}

/// The nodes of a loop or a function that may keep something, without those of loops and functions in it.
fn own_statements(at: At<'_>) -> Vec<At<'_>> {
    let Some(body) = at.node.child_by_field_name("body") else { return Vec::new() };
    let keeps = |node: &Node<'_>| matches!(node.kind(), "augmented_assignment" | "assignment" | "call");
    within(body).filter(keeps).filter(|node| owner(*node) == Some(at.node)).map(|node| at.with(node)).collect()
}

/// What a statement keeps.
fn keeping(at: At<'_>) -> Vec<Keeping<'_>> {
    let source = at.source;
    match at.node.kind() {
        "call" => {
            let Some(call) = Call::of(at).filter(is_keeper) else { return Vec::new() };
            let Some(object) = call.object() else { return Vec::new() };
            let mut values = call.positional();
            values.extend(children(call.arguments).filter(|node| node.kind() == "keyword_argument"));
            let parts = values.into_iter().flat_map(|node| parts(at.with(node))).collect();
            vec![Keeping { target: source.of(object), parts, how: How::Stored }]
        }
        "augmented_assignment" => {
            let (Some(left), Some(right)) = sides(at.node) else { return Vec::new() };
            let listed = matches!(right.kind(), "list" | "tuple");
            let (parts, how) = if listed { (parts(at.with(right)), How::Stored) } else { (vec![right], How::Added) };
            vec![Keeping { target: source.of(left), parts, how }]
        }
        "assignment" => {
            let (Some(left), Some(right)) = sides(at.node) else { return Vec::new() };
            let lefts: Vec<Node<'_>> = match left.kind() {
                "pattern_list" | "tuple_pattern" => children(left).collect(),
                _ => vec![left],
            };
            let kept = lefts.into_iter().filter_map(|left| {
                let target = source.of(left);
                let root = root_of(target);
                let again = mentions(at.with(right), root);
                if again && matches!(left.kind(), "identifier" | "attribute" | "subscript") {
                    let added = addends(at.with(right), root);
                    let how = if added.is_empty() { How::Carried } else { How::Added };
                    return Some(Keeping { target, parts: added, how });
                }
                (left.kind() == "subscript").then(|| Keeping { target, parts: parts(at.with(right)), how: How::Stored })
            });
            kept.collect()
        }
        _ => Vec::new(),
    }
}

fn sides(node: Node<'_>) -> (Option<Node<'_>>, Option<Node<'_>>) {
    (node.child_by_field_name("left"), node.child_by_field_name("right"))
}

fn is_name(node: Node<'_>) -> bool {
    matches!(node.kind(), "identifier" | "attribute")
}

/// `self.history` of `self.history["loss"]`.
fn root_of(target: &str) -> &str {
    target.split('[').next().unwrap_or(target)
}

fn is_keeper(call: &Call<'_>) -> bool {
    matches!(
        call.name(),
        "append" | "extend" | "add" | "insert" | "appendleft" | "extendleft" | "setdefault" | "update" | "put"
    )
}

/// The values in a tuple, a list, a dictionary or a record.
fn parts(at: At<'_>) -> Vec<Node<'_>> {
    match at.node.kind() {
        "tuple" | "list" | "set" | "dictionary" => children(at.node).flat_map(|node| parts(at.with(node))).collect(),
        "pair" | "keyword_argument" => {
            at.node.child_by_field_name("value").map_or(Vec::new(), |node| parts(at.with(node)))
        }
        "list_splat" | "dictionary_splat" => children(at.node).collect(),
        "call" => {
            let record = Call::of(at).filter(|call| {
                call.path() == "dict" || call.object().is_none() && call.name().starts_with(char::is_uppercase)
            });
            match record {
                Some(call) => children(call.arguments).flat_map(|node| parts(at.with(node))).collect(),
                None => vec![at.node],
            }
        }
        "comment" | "string" | "integer" | "float" => Vec::new(),
        _ => vec![at.node],
    }
}

/// What is added to a name in an expression that has it: `x` of `0.9 * name + 0.1 * x` and of `torch.cat([name, x])`.
fn addends<'a>(at: At<'a>, name: &str) -> Vec<Node<'a>> {
    let has = |node: Node<'a>| mentions(at.with(node), name);
    let node = at.node;
    match node.kind() {
        "binary_operator" | "parenthesized_expression" | "list" | "tuple" | "conditional_expression" => {
            children(node).flat_map(|child| addends(at.with(child), name)).collect()
        }
        "subscript" => {
            let value = node.child_by_field_name("value").filter(|value| has(*value));
            value.map_or_else(|| vec![node], |value| addends(at.with(value), name))
        }
        "call" if has(node) => {
            let Some(call) = Call::of(at) else { return Vec::new() };
            // `totals.get(key, 0)` and `name.clone()` are the name itself.
            let library = call.object().is_some_and(|object| matches!(at.source.of(object), "torch" | "F" | "np"));
            let joins = library || matches!(call.path(), "sum" | "max" | "min");
            let positional = if joins { call.positional() } else { Vec::new() };
            positional.into_iter().flat_map(|node| addends(at.with(node), name)).collect()
        }
        _ if has(node) => Vec::new(),
        "identifier" | "attribute" | "call" => vec![node],
        _ => Vec::new(),
    }
}

/// The values that a node stores in a container.
pub(super) fn stored(at: At<'_>) -> Vec<Node<'_>> {
    keeping(at).into_iter().filter(|one| one.how == How::Stored).flat_map(|one| one.parts).collect()
}

/// Whether a line that a run saw keeping tensors is that of a statement, or one of another that keeps them by the same name.
fn is_line_of(kept: &KeptAt, at: At<'_>) -> bool {
    if kept.file != at.file {
        return false;
    }
    if kept.line == at.node.start_position().row + 1 {
        return true;
    }
    let known = root_of(&kept.name);
    let own = known.rsplit_once('.').map(|(_, attribute)| format!("self.{attribute}"));
    keeping(at).iter().any(|one| {
        let root = root_of(one.target);
        !root.is_empty() && (root == known || own.as_deref() == Some(root))
    })
}

/// Takes the graphs from what one statement keeps in each round of a loop, or in each call of a function.
fn let_go<'a>(draft: &mut Draft<'a>, graphs: &Graphs<'a>, at: At<'a>, round: At<'a>) {
    if without_graph(at) {
        return;
    }
    let program = draft.program;
    let seen: Vec<&KeptAt> =
        draft.facts.kept.iter().filter(|kept| kept.kind != "results" && is_line_of(kept, at)).collect();
    let names = graphs.around(at);
    for one in keeping(at) {
        let root = root_of(one.target);
        // What starts over in each round holds the graph of one round.
        if begins_in(round, root) {
            continue;
        }
        if one.how == How::Carried {
            let several = match seen.iter().map(|kept| kept.kind.as_str()).find(|kind| SUMS.contains(kind)) {
                Some(kind) => Some(kind == "carried-state"),
                None if graphs.gives_of(at) => retained_state(program, round),
                None => None,
            };
            if let Some(several) = several {
                carried(draft, at, root, several, round);
            }
            continue;
        }
        if goes_back(program, at, root) {
            continue;
        }
        let is_loss = seen.iter().any(|kept| kept.kind == "loss-history");
        let style = Style { added: one.how == How::Added, root, is_loss };
        let carrying: Vec<Node<'_>> =
            one.parts.iter().copied().filter(|part| graphs.carries(at.with(*part), &names)).collect();
        if !carrying.is_empty() {
            for part in carrying {
                cut(draft, at.with(part), &style.text(at.with(part)));
            }
            if one.how == How::Stored {
                companions(draft, graphs, at, &one.parts, &names);
            }
        } else if !seen.is_empty() && !by_callers(draft, graphs, at, &one.parts, style.moved()) {
            // A run saw that it keeps graphs, wherever they come from.
            for part in one.parts.iter().filter(|part| is_value(**part) && !lets_go(at.with(**part))) {
                cut(draft, at.with(*part), &style.text(at.with(*part)));
            }
        }
    }
}

/// How what is kept is written without its graph.
struct Style<'s> {
    added: bool,
    root: &'s str,
    is_loss: bool,
}

impl Style<'_> {
    /// What a caller gives in place of a tensor that is not a loss.
    fn moved(&self) -> &'static str {
        if self.added { ".detach()" } else { ".detach().cpu()" }
    }

    fn text(&self, part: At<'_>) -> String {
        let later = is_tensor_later(part, self.root);
        if self.added {
            let number = is_number(part, self.root) && !later;
            return if number { ".item()" } else { ".detach()" }.into();
        }
        let loss = part.text().to_lowercase().contains("loss") && part.node.kind() == "identifier" || self.is_loss;
        if loss && !later { ".item()" } else { ".detach().cpu()" }.into()
    }
}

/// What is kept together lies together: tensors on the card that are kept with ones that go to host memory are moved as
/// well.
fn companions<'a>(draft: &mut Draft<'a>, graphs: &Graphs<'a>, at: At<'a>, parts: &[Node<'a>], names: &Names<'a>) {
    for part in parts.iter().map(|part| at.with(*part)) {
        if is_value(part.node) && !graphs.carries(part, names) && graphs.is_on_card(part, names) {
            cut(draft, part, ".cpu()");
        }
    }
}

/// Takes the graphs from what callers give for the parameters that a statement keeps. Whether there were any.
pub(super) fn by_callers<'a>(
    draft: &mut Draft<'a>,
    graphs: &Graphs<'a>,
    at: At<'a>,
    parts: &[Node<'a>],
    text: &str,
) -> bool {
    let Some(function) = function_of(at.node).map(|node| at.with(node)) else { return false };
    let mut any = false;
    let all = parameters(function);
    let method = all.first().is_some_and(|(name, _)| matches!(*name, "self" | "cls"));
    for part in parts {
        let names: Vec<&str> = operands(*part).into_iter().map(|node| at.source.of(node)).collect();
        for call in graphs.calls_of(function) {
            let given = given(function, &call, &names, &all, usize::from(method));
            let local = graphs.around(call.at);
            for value in
                given.into_iter().flat_map(|node| self::parts(call.at.with(node))).map(|node| call.at.with(node))
            {
                if without_graph(value) {
                    continue;
                }
                if graphs.carries(value, &local) {
                    let loss = value.text().to_lowercase().contains("loss") && value.node.kind() == "identifier";
                    cut(draft, value, if loss { ".item()" } else { text });
                    any = true;
                } else if text == ".cpu()" && is_value(value.node) && graphs.is_on_card(value, &local) {
                    cut(draft, value, text);
                    any = true;
                }
            }
        }
    }
    any
}

/// The names that an expression is made of, where it does no more than reckon with them.
fn operands(node: Node<'_>) -> Vec<Node<'_>> {
    match node.kind() {
        "identifier" => vec![node],
        "binary_operator" | "parenthesized_expression" => children(node).flat_map(operands).collect(),
        _ => Vec::new(),
    }
}

/// What a call gives for some parameters of a function, or for the lists of those that it has no names for.
fn given<'a>(
    function: At<'a>,
    call: &Call<'a>,
    names: &[&str],
    all: &[(&str, Option<At<'a>>)],
    skipped: usize,
) -> Vec<Node<'a>> {
    let mut found = Vec::new();
    for (place, (name, _)) in all.iter().enumerate().skip(skipped) {
        if names.contains(name) {
            found.extend(call.argument(name, place - skipped).map(|at| at.node));
        }
    }
    let Some(list) = function.node.child_by_field_name("parameters") else { return found };
    for splat in children(list) {
        let named = splat.named_child(0).is_some_and(|name| names.contains(&function.source.of(name)));
        match splat.kind() {
            "list_splat_pattern" if named => found.extend(call.positional()),
            "dictionary_splat_pattern" if named => {
                let keywords = children(call.arguments).filter(|node| node.kind() == "keyword_argument");
                found.extend(keywords.filter_map(|node| node.child_by_field_name("value")));
            }
            _ => {}
        }
    }
    found
}

/// A state that a model is given again in each round of a loop with a backward pass of its own.
fn carried(draft: &mut Draft<'_>, at: At<'_>, name: &str, several: bool, round: At<'_>) {
    let Some(statement) = statement_of(at.node) else { return };
    let backward = within(round.node)
        .filter(|node| Call::of(round.with(*node)).is_some_and(|call| call.name() == "backward"))
        .find_map(statement_of);
    let Some(backward) = backward else { return };
    // A loss that is computed of the state itself needs its graph until the backward pass is made.
    let outside =
        |node: &Node<'_>| node.start_byte() >= statement.end_byte() && node.end_byte() <= round.node.end_byte();
    let used = within(round.node).filter(outside).any(|node| is_name(node) && at.source.of(node) == name);
    let last = if used { backward } else { statement };
    if last.parent() != statement.parent() {
        return;
    }
    let line = if several {
        format!("{name} = tuple(state.detach() for state in {name})")
    } else {
        format!("{name} = {name}.detach()")
    };
    if let Some(edit) = lines_after(at.source, last, &[line]) {
        draft.edit(at.file, Way::Code, edit);
    }
}

/// What a run saw being kept on the card in the same classes and functions as graphs goes to host memory with those.
fn neighbours<'a>(draft: &mut Draft<'a>, graphs: &Graphs<'a>) {
    let program = draft.program;
    let place = |kept: &KeptAt| {
        let (_, source) = program.file(&kept.file)?;
        let statement = source.statements_at(kept.line).first().copied()?;
        around(statement)
            .filter(|node| matches!(node.kind(), "class_definition" | "function_definition"))
            .last()
            .map(|node| node.id())
    };
    let of_graphs: Vec<_> =
        draft.facts.kept.iter().filter(|kept| kept.kind != "results").map(|kept| (&kept.file, place(kept))).collect();
    let results = draft.facts.kept.iter().filter(|kept| kept.kind == "results");
    let close: Vec<KeptAt> = results.filter(|kept| of_graphs.contains(&(&kept.file, place(kept)))).cloned().collect();
    for kept in close {
        let Some((file, source)) = program.file(&kept.file) else { continue };
        for statement in source.statements_at(kept.line) {
            for at in within(statement).map(|node| At { file, source, node }) {
                for one in keeping(at).into_iter().filter(|one| one.how == How::Stored) {
                    let names = graphs.around(at);
                    if !by_callers(draft, graphs, at, &one.parts, ".cpu()") {
                        companions(draft, graphs, at, &one.parts, &names);
                    }
                }
            }
        }
    }
}

/// Whether the state of a recurrent network that goes through a loop is a pair, as that of an LSTM; `None` where backward
/// passes of the loop do not retain their graphs, so that none can go through the state, and where the network is unknown.
fn retained_state(program: &Program, round: At<'_>) -> Option<bool> {
    let retains = within(round.node)
        .filter_map(|node| Call::of(round.with(node)))
        .any(|call| call.name() == "backward" && call.value("retain_graph").is_some_and(|at| at.text() == "True"));
    let calls = program.calls();
    let has = |names: &[&str]| calls.iter().any(|call| names.contains(&call.name()));
    match (retains, has(&["LSTM", "LSTMCell"]), has(&["GRU", "GRUCell", "RNN", "RNNCell"])) {
        (true, true, false) => Some(true),
        (true, false, true) => Some(false),
        _ => None,
    }
}

/// Whether a name is given a value in the round before it is added to, so that it does not grow from round to round.
fn begins_in(round: At<'_>, name: &str) -> bool {
    let Some(body) = round.node.child_by_field_name("body") else { return false };
    within(body).filter(|node| node.kind() == "assignment").any(|node| {
        let is = node.child_by_field_name("left").is_some_and(|left| round.source.of(left) == name);
        let from_itself = node
            .child_by_field_name("right")
            .is_some_and(|right| within(right).any(|inner| round.source.of(inner) == name));
        is && !from_itself && owner(node) == Some(round.node)
    })
}

/// Whether a backward pass goes through what is kept, so that its graph is needed.
fn goes_back(program: &Program, at: At<'_>, name: &str) -> bool {
    let scope = function_of(at.node).unwrap_or_else(|| at.source.root());
    // An attribute is used by other methods, under the same name.
    let scope = if name.contains('.') { at.source.root() } else { scope };
    let mut derived = vec![name.to_owned()];
    for node in within(scope).filter(|node| node.kind() == "assignment") {
        let (Some(left), Some(right)) = sides(node) else { continue };
        if left.kind() == "identifier" && uses(at.with(right), &derived) {
            derived.push(at.source.of(left).to_owned());
        }
    }
    let backward = |call: &Call<'_>| call.at.file == at.file && call.name() == "backward";
    program
        .calls()
        .iter()
        .filter(|call| {
            backward(call)
                && call.at.node.start_byte() >= scope.start_byte()
                && call.at.node.end_byte() <= scope.end_byte()
        })
        .any(|call| {
            let object = call.object().into_iter().chain(call.positional());
            object.into_iter().any(|node| uses(at.with(node), &derived))
        })
}

/// Whether an expression has one of some names in it with its graph.
fn uses(at: At<'_>, names: &[String]) -> bool {
    !lets_go(at)
        && (is_name(at.node) && names.iter().any(|name| name == at.text())
            || values(at.node).any(|child| uses(at.with(child), names)))
}

/// Whether an expression has a name in it.
fn mentions(at: At<'_>, name: &str) -> bool {
    is_name(at.node) && at.text() == name || values(at.node).any(|child| mentions(at.with(child), name))
}

/// The nodes below one that have values: neither `mean` of `x.mean` nor that of `f(mean=x)` is one.
fn values(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let own = match node.kind() {
        "attribute" => node.child_by_field_name("attribute"),
        "keyword_argument" => node.child_by_field_name("name"),
        _ => None,
    };
    children(node).filter(move |child| Some(*child) != own)
}

/// Whether a name begins as a number.
fn is_number(at: At<'_>, name: &str) -> bool {
    at.source.all("assignment").into_iter().any(|node| {
        node.child_by_field_name("left").is_some_and(|left| at.source.of(left) == name)
            && node.child_by_field_name("right").is_some_and(|right| matches!(right.kind(), "integer" | "float"))
    })
}

/// Whether the program later uses what is kept as a tensor.
fn is_tensor_later(at: At<'_>, name: &str) -> bool {
    let scope = function_of(at.node).filter(|_| !name.contains('.')).unwrap_or_else(|| at.source.root());
    within(scope).any(|node| {
        let Some(call) = Call::of(at.with(node)) else { return false };
        let is = |node: Node<'_>| at.source.of(node) == name;
        let keeps = is_keeper(&call) || matches!(call.name(), "clear" | "pop" | "get" | "items" | "values" | "keys");
        call.object().is_some_and(is) && !keeps
            || call.path().starts_with("torch.")
                && call.positional().into_iter().any(|node| within(node).any(is))
                && !within(call.at.node).any(|inner| inner == at.node)
    })
}

/// Whether an expression may be a tensor, by its form.
pub(super) fn is_value(node: Node<'_>) -> bool {
    matches!(
        node.kind(),
        "identifier" | "attribute" | "call" | "subscript" | "binary_operator" | "parenthesized_expression"
    )
}

/// Adds a call to an expression that lets go of its graph.
pub(super) fn cut(draft: &mut Draft<'_>, at: At<'_>, call: &str) {
    let text = at.text();
    let simple =
        matches!(at.node.kind(), "identifier" | "attribute" | "call" | "subscript" | "parenthesized_expression");
    let text = if simple { format!("{text}{call}") } else { format!("({text}){call}") };
    draft.edit_once(at.file, Way::Code, Edit::replace(at.node, text));
}

/// Forward hooks that keep what a module gave.
fn hooks<'a>(draft: &mut Draft<'a>, graphs: &Graphs<'a>) {
    let program = draft.program;
    for register in program.calls().into_iter().filter(|call| call.name() == "register_forward_hook") {
        let Some(given) = register.positional().first().map(|node| register.at.with(*node)) else { continue };
        let functions = program.all("function_definition").into_iter();
        let named =
            |at: At<'a>, name: &str| at.node.child_by_field_name("name").is_some_and(|node| at.source.of(node) == name);
        let function = match given.node.kind() {
            "lambda" => Some(given),
            "identifier" | "attribute" => {
                let name = given.text().rsplit('.').next().unwrap_or_default();
                functions.into_iter().find(|at| at.file == given.file && named(*at, name))
            }
            // `make_hook(name)` gives a function that it defines.
            "call" => Call::of(given).and_then(|call| {
                functions
                    .into_iter()
                    .find(|at| function_of(at.node).is_some_and(|outer| named(at.with(outer), call.name())))
            }),
            _ => None,
        };
        let Some(function) = function else { continue };
        let Some(output) = last_parameter(function) else { continue };
        let names = Names::one(output);
        for at in within(function.node).map(|node| function.with(node)).filter(|at| !without_graph(*at)) {
            for one in keeping(at).into_iter().filter(|one| one.how == How::Stored) {
                for part in one.parts.into_iter().filter(|part| graphs.carries(at.with(*part), &names)) {
                    cut(draft, at.with(part), ".detach().cpu()");
                }
            }
        }
    }
}

/// The name of the last parameter of a function: of a forward hook, what the module gave.
fn last_parameter(function: At<'_>) -> Option<&str> {
    let list = function.node.child_by_field_name("parameters")?;
    let last = (0..list.named_child_count()).rev().find_map(|place| list.named_child(place))?;
    let name = if last.kind() == "identifier" { last } else { last.named_child(0)? };
    (name.kind() == "identifier").then(|| function.source.of(name))
}

//! Letting go of what is kept too long: graphs, outputs, and gradients.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::calls::Call;
use crate::edit::{Edit, wrapped};
use crate::facts::KeptAt;
use crate::loops::{calls_model, evaluations, model_names, without_graph};
use crate::program::{At, CannotPlace, Draft, Program, Way};
use crate::source::{around, function_of, within};

use super::cannot;

/// Evaluation without a graph: a decorator where a function only evaluates, else a `with` around the loop.
pub fn no_grad(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let found = evaluations(program);
    if found.is_empty() {
        return cannot("no loop evaluates with gradients");
    }
    let mut decorated: BTreeSet<(std::path::PathBuf, usize)> = BTreeSet::new();
    for evaluation in found {
        let at = evaluation.at;
        let file = at.file.to_owned();
        if !at.source.text().contains("import torch") && !at.source.text().contains(", torch") {
            return cannot("the file of the evaluation does not import torch");
        }
        let eval_only = evaluation.function.filter(|function| {
            let name = function.child_by_field_name("name").map(|node| at.source.of(node).to_lowercase());
            let speaks =
                |name: &str| ["eval", "valid", "test", "predict", "infer"].iter().any(|word| name.contains(word));
            name.is_some_and(|name| speaks(&name))
        });
        if let Some(function) = eval_only {
            let first =
                around(function).next().filter(|node| node.kind() == "decorated_definition").unwrap_or(function);
            if decorated.insert((file.clone(), first.start_byte())) {
                let indentation = at.source.indentation(first).to_owned();
                let place = at.source.line_start(first.start_byte());
                let text = format!("{indentation}@torch.no_grad(){}", at.source.newline());
                draft.edit(&file, Way::Code, Edit::insert(place, text));
            }
            continue;
        }
        let Some(edits) = wrapped(at.source, at.node, at.node, "with torch.no_grad():") else {
            return cannot("the evaluation shares its lines with other code");
        };
        draft.edits(&file, Way::Code, edits);
    }
    Ok(())
}

/// Every place that keeps a tensor with its graph from step to step keeps what is needed of it.
pub fn detach(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let models = model_names(program);
    for at in program.all("for_statement").into_iter().chain(program.all("while_statement")) {
        in_body(draft, at, &models);
    }
    // A method that is called in each step keeps what it computes without a loop of its own.
    for at in program.all("function_definition") {
        if draft.facts.kept.iter().any(|kept| is_inside(at, kept)) {
            in_body(draft, at, &models);
        }
    }
    hooks(draft);
    if !draft.is_empty() {
        return Ok(());
    }
    cannot("no line was found that keeps tensors with their graphs")
}

/// Whether a run saw tensors with their graphs kept on a line of a function.
fn is_inside(function: At<'_>, kept: &KeptAt) -> bool {
    let lines = function.node.start_position().row + 1..=function.node.end_position().row + 1;
    kept.kind != "results" && kept.file == function.file && lines.contains(&kept.line)
}

/// The loop or the function that a statement belongs to.
fn owner(node: Node<'_>) -> Option<Node<'_>> {
    around(node).find(|outer| matches!(outer.kind(), "for_statement" | "while_statement" | "function_definition"))
}

/// Detaches what one loop, or one function that is called in a loop, keeps.
fn in_body(draft: &mut Draft<'_>, at: At<'_>, models: &BTreeSet<String>) {
    let program = draft.program;
    let Some(body) = at.node.child_by_field_name("body") else { return };
    let carrying = graphs(at, body, models);
    let summed: Vec<usize> = draft
        .facts
        .kept
        .iter()
        .filter(|kept| kept.kind == "running-total" && kept.file == at.file)
        .map(|kept| kept.line)
        .collect();
    for node in within(body).filter(|node| owner(*node) == Some(at.node)) {
        let here = at.with(node);
        if without_graph(here) {
            continue;
        }
        match node.kind() {
            "augmented_assignment" => {
                let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right"))
                else {
                    continue;
                };
                // A total that begins anew in each round holds the graph of one round.
                let name = at.source.of(left);
                let root = name.split(['[', '.']).next().unwrap_or(name);
                // What another function gives may carry a graph as well: a run saw whether it does.
                let grows = summed.contains(&(node.start_position().row + 1)) && !lets_go(here.with(right));
                let adds = grows || carries(here.with(right), &carrying);
                if begins_in(at, body, name) || !adds || goes_back(program, at, root) {
                    continue;
                }
                let total = is_number(at, root) && !is_tensor_later(at, root);
                let_go(draft, here.with(right), if total { ".item()" } else { ".detach()" });
            }
            "assignment" => {
                // `total = total + loss`, `kept[i] = out`
                let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right"))
                else {
                    continue;
                };
                let name = at.source.of(left);
                let sum = right.kind() == "binary_operator"
                    && right.child_by_field_name("left").is_some_and(|first| at.source.of(first) == name);
                if sum && !begins_in(at, body, name) && !goes_back(program, at, name) {
                    if let Some(added) =
                        right.child_by_field_name("right").filter(|node| carries(here.with(*node), &carrying))
                    {
                        let_go(draft, here.with(added), ".detach()");
                    }
                } else if left.kind() == "subscript" && carries(here.with(right), &carrying) {
                    let root = name.split('[').next().unwrap_or(name);
                    if !begins_in(at, body, root) && !goes_back(program, at, root) && !root.contains('.') {
                        let_go(draft, here.with(right), ".detach().cpu()");
                    }
                }
            }
            "call" => {
                let Some(call) = Call::of(here).filter(|call| is_keeper(call)) else { continue };
                let Some(object) = call.object().map(|object| at.source.of(object)) else { continue };
                let root = object.split('[').next().unwrap_or(object);
                if begins_in(at, body, root) || goes_back(program, at, root) {
                    continue;
                }
                for kept in call.positional() {
                    let parts: Vec<Node<'_>> = match kept.kind() {
                        "tuple" | "list" => {
                            (0..kept.named_child_count()).filter_map(|place| kept.named_child(place)).collect()
                        }
                        _ => vec![kept],
                    };
                    for part in parts.into_iter().filter(|part| carries(here.with(*part), &carrying)) {
                        let scalar = at.source.of(part).to_lowercase().contains("loss") && part.kind() == "identifier";
                        let number = scalar && !is_tensor_later(at, root);
                        let text = if number {
                            ".item()"
                        } else if scalar {
                            ".detach()"
                        } else {
                            ".detach().cpu()"
                        };
                        let_go(draft, here.with(part), text);
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_keeper(call: &Call<'_>) -> bool {
    matches!(call.name(), "append" | "extend" | "add" | "insert" | "appendleft" | "setdefault")
}

/// What carries a graph.
struct Carrying<'a> {
    /// Names of tensors.
    names: BTreeSet<&'a str>,
    /// Names of models, whose calls give tensors with a graph.
    models: Option<&'a BTreeSet<String>>,
}

/// The names that carry a graph in a loop: what a model gave, and what is computed of that.
fn graphs<'a>(at: At<'a>, body: Node<'a>, models: &'a BTreeSet<String>) -> Carrying<'a> {
    let mut carrying = Carrying { names: BTreeSet::new(), models: Some(models) };
    let assignments: Vec<(Node<'a>, Node<'a>)> = within(body)
        .filter(|node| node.kind() == "assignment")
        .filter_map(|node| Some((node.child_by_field_name("left")?, node.child_by_field_name("right")?)))
        .collect();
    // Twice, because a loop comes round again.
    for _ in 0..2 {
        for (left, right) in &assignments {
            let value = at.with(*right);
            let gives = calls_model(value, models) && !lets_go(value) || carries(value, &carrying);
            if gives {
                carrying
                    .names
                    .extend(within(*left).filter(|node| node.kind() == "identifier").map(|node| at.source.of(node)));
            }
        }
    }
    // What `.backward()` is called on has a graph, whoever computed it.
    for call in within(body).filter_map(|node| Call::of(at.with(node))).filter(|call| call.name() == "backward") {
        let object = call.object().filter(|object| object.kind() == "identifier");
        carrying.names.extend(object.map(|object| at.source.of(object)));
    }
    carrying
}

/// Whether an expression gives a tensor with a graph.
fn carries(at: At<'_>, carrying: &Carrying<'_>) -> bool {
    if lets_go(at) {
        return false;
    }
    match at.node.kind() {
        "identifier" => carrying.names.contains(at.text()),
        "attribute" => {
            let name = at.node.child_by_field_name("attribute").map(|node| at.source.of(node)).unwrap_or_default();
            !matches!(name, "shape" | "data" | "device" | "dtype" | "grad")
                && at.node.child_by_field_name("object").is_some_and(|object| carries(at.with(object), carrying))
        }
        "call" => {
            let Some(call) = Call::of(at) else { return false };
            if matches!(
                call.name(),
                "size" | "len" | "dim" | "numel" | "isnan" | "range" | "print" | "format" | "argmax" | "eq"
            ) {
                return false;
            }
            carrying.models.is_some_and(|models| models.contains(call.path()))
                || call.object().is_some_and(|object| carries(at.with(object), carrying))
                || call.positional().into_iter().any(|node| carries(at.with(node), carrying))
        }
        "comparison_operator" | "string" | "lambda" => false,
        _ => (0..at.node.named_child_count())
            .filter_map(|place| at.node.named_child(place))
            .any(|child| carries(at.with(child), carrying)),
    }
}

/// Whether an expression ends in what has no graph.
fn lets_go(at: At<'_>) -> bool {
    let Some(call) = Call::of(at) else {
        return at.node.kind() == "attribute" && at.text().ends_with(".data");
    };
    if matches!(call.path(), "float" | "int" | "len" | "bool" | "str")
        || matches!(call.name(), "item" | "detach" | "tolist" | "numpy" | "argmax")
    {
        return true;
    }
    // `x.detach().cpu()`, `x.detach().mean()`
    call.object().is_some_and(|object| lets_go(at.with(object)))
}

/// Whether a name is given a value in the body before it is added to, so that it does not grow from round to round.
fn begins_in(at: At<'_>, body: Node<'_>, name: &str) -> bool {
    within(body).filter(|node| node.kind() == "assignment").any(|node| {
        let is = node.child_by_field_name("left").is_some_and(|left| at.source.of(left) == name);
        let from_itself = node
            .child_by_field_name("right")
            .is_some_and(|right| within(right).any(|inner| at.source.of(inner) == name));
        is && !from_itself && owner(node) == Some(at.node)
    })
}

/// Whether a backward pass goes through what is kept, so that its graph is needed.
fn goes_back(program: &Program, at: At<'_>, name: &str) -> bool {
    let calls = program.calls();
    let mut derived: BTreeSet<String> = BTreeSet::from([name.to_owned()]);
    for node in at.source.all("assignment") {
        let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right")) else {
            continue;
        };
        let uses = within(right).any(|inner| inner.kind() == "identifier" && derived.contains(at.source.of(inner)));
        if uses && left.kind() == "identifier" && !lets_go(at.with(right)) {
            derived.insert(at.source.of(left).to_owned());
        }
    }
    calls.iter().filter(|call| call.at.file == at.file && call.name() == "backward").any(|call| {
        within(call.at.node).any(|node| {
            node.kind() == "identifier" && derived.contains(at.source.of(node)) || at.source.of(node) == name
        })
    })
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
    let scope = function_of(at.node).unwrap_or_else(|| at.source.root());
    within(scope).any(|node| {
        let Some(call) = Call::of(at.with(node)) else { return false };
        let of_it = |node: Node<'_>| at.source.of(node) == name;
        call.object().is_some_and(of_it) && !is_keeper(&call) && !matches!(call.name(), "clear" | "pop")
            || call.path().starts_with("torch.") && call.positional().into_iter().any(of_it)
    })
}

/// Adds a call to an expression that lets go of its graph.
fn let_go(draft: &mut Draft<'_>, at: At<'_>, call: &str) {
    let text = at.text();
    let simple =
        matches!(at.node.kind(), "identifier" | "attribute" | "call" | "subscript" | "parenthesized_expression");
    let text = if simple { format!("{text}{call}") } else { format!("({text}){call}") };
    draft.edit(at.file, Way::Code, Edit::replace(at.node, text));
}

/// Forward hooks that keep what a module gave.
fn hooks(draft: &mut Draft<'_>) {
    let program = draft.program;
    for register in program.calls().into_iter().filter(|call| call.name() == "register_forward_hook") {
        let Some(given) = register.positional().first().map(|node| register.at.with(*node)) else { continue };
        let function = match given.node.kind() {
            "lambda" => Some(given),
            "identifier" | "attribute" => {
                let name = given.text().rsplit('.').next().unwrap_or_default();
                program.all("function_definition").into_iter().find(|at| {
                    at.file == given.file
                        && at.node.child_by_field_name("name").is_some_and(|node| at.source.of(node) == name)
                })
            }
            // `make_hook(name)` gives a function that it defines.
            "call" => Call::of(given).and_then(|call| {
                program.all("function_definition").into_iter().find(|at| {
                    function_of(at.node)
                        .and_then(|outer| outer.child_by_field_name("name"))
                        .is_some_and(|node| at.source.of(node) == call.name())
                })
            }),
            _ => None,
        };
        let Some(function) = function else { continue };
        let Some(output) = last_parameter(function) else { continue };
        for node in within(function.node) {
            let here = function.with(node);
            if without_graph(here) {
                continue;
            }
            let carrying = Carrying { names: BTreeSet::from([output]), models: None };
            if let Some(call) = Call::of(here).filter(is_keeper) {
                for kept in call.positional().into_iter().filter(|kept| carries(here.with(*kept), &carrying)) {
                    let_go(draft, here.with(kept), ".detach().cpu()");
                }
            } else if node.kind() == "assignment"
                && let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right"))
                && matches!(left.kind(), "subscript")
                && carries(here.with(right), &carrying)
            {
                let_go(draft, here.with(right), ".detach().cpu()");
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

/// Backward passes that free their graphs. Whether a second pass needs one is seen when the edited program is run.
pub fn retain_graph(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let mut any = false;
    for call in
        program.calls().into_iter().filter(|call| matches!(call.name(), "backward" | "grad" | "manual_backward"))
    {
        if call.value("retain_graph").is_some_and(|at| at.text() != "False")
            && let Some(edit) = call.without("retain_graph")
        {
            draft.edit(call.at.file, Way::Code, edit);
            any = true;
        }
    }
    if any { Ok(()) } else { cannot("no backward pass retains its graph") }
}

/// Gradients that are freed in place of being filled with zeros.
pub fn zero_grad(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let mut any = false;
    for call in program.calls().into_iter().filter(|call| call.name() == "zero_grad") {
        if call.value("set_to_none").is_some_and(|at| at.text() == "False")
            && let Some(edit) = call.without("set_to_none")
        {
            draft.edit(call.at.file, Way::Code, edit);
            any = true;
        }
    }
    if any { Ok(()) } else { cannot("gradients are freed already") }
}

/// Whether an expression may be a tensor, by its form.
fn is_value(node: Node<'_>) -> bool {
    matches!(
        node.kind(),
        "identifier" | "attribute" | "call" | "subscript" | "binary_operator" | "parenthesized_expression"
    )
}

/// Results that a loop keeps on the card go to host memory: those at the lines where a run saw them kept.
pub fn results_to_host(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let places = draft.facts.kept.clone();
    let mut any = false;
    for kept in places.iter().filter(|kept| kept.kind == "results") {
        let Some((file, source)) = program.file(&kept.file) else { continue };
        for statement in source.statements_at(kept.line) {
            let at = At { file, source, node: statement };
            let calls = within(statement).filter_map(|node| Call::of(at.with(node))).filter(is_keeper);
            let appended = calls.flat_map(|call| call.positional());
            // `bank[i] = features`
            let stored = within(statement)
                .filter(|node| node.kind() == "assignment")
                .filter(|node| node.child_by_field_name("left").is_some_and(|left| left.kind() == "subscript"))
                .filter_map(|node| node.child_by_field_name("right"));
            let parts = appended.chain(stored).flat_map(|part| match part.kind() {
                "tuple" => (0..part.named_child_count()).filter_map(|place| part.named_child(place)).collect(),
                _ => vec![part],
            });
            for part in parts.filter(|part| is_value(*part) && !source.of(*part).contains(".cpu()")) {
                let_go(draft, at.with(part), ".cpu()");
                any = true;
            }
        }
    }
    if any { Ok(()) } else { cannot("the line that keeps the results was not found") }
}

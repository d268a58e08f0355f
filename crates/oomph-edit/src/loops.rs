//! The loops of a program: those that train, and those that only evaluate.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::calls::Call;
use crate::models::{calls_model, is_name, model_names};
use crate::program::{At, Program};
use crate::source::{around, function_of, statement_of, within};

/// A block of statements in which a backward pass is made.
pub(crate) struct Pass<'a> {
    /// The innermost loop around it, if it stands in one.
    pub at_loop: Option<Node<'a>>,
    /// The calls of `.backward()`, in order.
    pub backwards: Vec<Call<'a>>,
}

/// The places where backward passes are made: one for each loop, or function without one.
pub(crate) fn passes(program: &Program) -> Vec<Pass<'_>> {
    let mut found: Vec<Pass<'_>> = Vec::new();
    let calls = program
        .calls()
        .into_iter()
        .filter(|call| call.name() == "backward" && call.object().is_some() || call.name() == "manual_backward");
    for call in calls {
        let function = function_of(call.at.node);
        let at_loop = around(call.at.node)
            .take_while(|node| Some(*node) != function)
            .find(|node| matches!(node.kind(), "for_statement" | "while_statement"));
        let same = |pass: &&mut Pass<'_>| {
            let first = &pass.backwards[0];
            first.at.file == call.at.file && pass.at_loop == at_loop && function_of(first.at.node) == function
        };
        match found.iter_mut().find(same) {
            Some(pass) => pass.backwards.push(call),
            None => found.push(Pass { at_loop, backwards: vec![call] }),
        }
    }
    found
}

/// The models that an optimizer is made for, in the order in which they are named.
pub(crate) fn trained_names(program: &Program) -> Vec<String> {
    let mut names = Vec::new();
    for call in program.calls() {
        if matches!(call.name(), "parameters" | "named_parameters")
            && let Some(object) = call.object()
            && around(call.at.node).any(|node| is_optimizer(call.at.with(node)))
        {
            let name = call.at.source.of(object).to_owned();
            if is_name(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() {
        // The parameters may be put into a list first.
        let all = program.calls().into_iter().filter(|call| matches!(call.name(), "parameters" | "named_parameters"));
        for call in all {
            let counted = around(call.at.node).any(|node| {
                Call::of(call.at.with(node))
                    .is_some_and(|outer| matches!(outer.name(), "sum" | "clip_grad_norm_" | "print"))
            });
            let name = call.object().map(|node| call.at.source.of(node).to_owned()).unwrap_or_default();
            if !counted && is_name(&name) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn is_optimizer(at: At<'_>) -> bool {
    Call::of(at).is_some_and(|call| optimizer_class(call.name()).is_some())
}

/// The plain name of an optimizer's class, if it is one.
pub(crate) fn optimizer_class(name: &str) -> Option<&str> {
    const KNOWN: &[&str] = &[
        "Adam",
        "AdamW",
        "SGD",
        "RMSprop",
        "Adagrad",
        "NAdam",
        "RAdam",
        "Adamax",
        "Adadelta",
        "Lion",
        "Adafactor",
        "AdamW8bit",
        "Adam8bit",
        "PagedAdamW8bit",
        "Muon",
        "LAMB",
        "FusedAdam",
        "DeepSpeedCPUAdam",
    ];
    KNOWN.contains(&name).then_some(name)
}

/// The statements of the block of a statement that are between two of them, both included.
pub(crate) fn between<'a>(first: Node<'a>, last: Node<'a>) -> Vec<Node<'a>> {
    let Some(block) = first.parent() else { return Vec::new() };
    crate::source::statements(block)
        .into_iter()
        .filter(|node| node.start_byte() >= first.start_byte() && node.end_byte() <= last.end_byte())
        .collect()
}

/// A loop that calls a model and makes no backward pass, or statements that do so outside of loops.
pub(crate) struct Evaluation<'a> {
    /// The loop, or the first statement.
    pub at: At<'a>,
    /// The last statement, which is the same for a loop.
    pub last: Node<'a>,
    /// The function that holds it, where no backward pass is made in that either.
    pub function: Option<Node<'a>>,
}

/// Calls that belong to training.
fn trains(at: At<'_>) -> bool {
    within(at.node)
        .filter_map(|node| Call::of(at.with(node)))
        .any(|call| matches!(call.name(), "backward" | "step" | "manual_backward" | "zero_grad"))
}

/// The loops and statements that evaluate with the graph on.
pub(crate) fn evaluations(program: &Program) -> Vec<Evaluation<'_>> {
    let models = model_names(program);
    let mut found: Vec<Evaluation<'_>> = Vec::new();
    let is_known = |found: &[Evaluation<'_>], at: At<'_>| {
        let holds = |known: &Evaluation<'_>| {
            known.at.file == at.file
                && known.at.node.start_byte() <= at.node.start_byte()
                && at.node.end_byte() <= known.last.end_byte()
        };
        found.iter().any(holds)
    };
    for at in program.all("for_statement") {
        if is_known(&found, at) || trains(at) || !calls_model(at, &models) || without_graph(at) {
            continue;
        }
        let function = function_of(at.node).filter(|function| !trains(at.with(*function)));
        found.push(Evaluation { at, last: at.node, function });
    }
    for call in program.calls().into_iter().filter(|call| call.name() == "eval" && call.object().is_some()) {
        let Some((at, last)) = behind_eval(&call, &models) else { continue };
        if !is_known(&found, at) && !is_known(&found, at.with(last)) && !without_graph(at) {
            let function = function_of(at.node).filter(|function| !trains(at.with(*function)));
            found.push(Evaluation { at, last, function });
        }
    }
    found
}

/// The statements behind `model.eval()` in its block that call a model, from the first to the last, up to
/// `model.train()`. A model that is trained in evaluation mode, as for a style transfer, has none.
fn behind_eval<'a>(call: &Call<'a>, models: &BTreeSet<String>) -> Option<(At<'a>, Node<'a>)> {
    let statement = statement_of(call.at.node)?;
    let block = crate::source::statements(statement.parent()?);
    let behind = block.into_iter().filter(|node| node.start_byte() > statement.start_byte());
    let ends = |node: &Node<'a>| {
        let at = call.at.with(*node);
        within(*node).filter_map(|node| Call::of(at.with(node))).any(|call| call.name() == "train")
            || matches!(node.kind(), "function_definition" | "class_definition" | "decorated_definition")
    };
    let behind: Vec<Node<'a>> = behind.take_while(|node| !ends(node)).collect();
    if behind.iter().any(|node| trains(call.at.with(*node))) {
        return None;
    }
    let calling = |node: &&Node<'a>| calls_model(call.at.with(**node), models);
    let first = behind.iter().find(calling)?;
    let last = behind.iter().rev().find(calling)?;
    Some((call.at.with(*first), *last))
}

/// Whether code runs without a graph: inside `with torch.no_grad()`, or in a function that is decorated so.
pub(crate) fn without_graph(at: At<'_>) -> bool {
    let says = |text: &str| {
        text.contains("no_grad") || text.contains("inference_mode") || text.contains("set_grad_enabled(False")
    };
    around(at.node).any(|node| match node.kind() {
        "with_statement" => {
            let body = node.child_by_field_name("body").map_or(node.end_byte(), |body| body.start_byte());
            says(at.source.slice(node.start_byte()..body))
        }
        "decorated_definition" => {
            let body = node.child_by_field_name("definition").map_or(node.end_byte(), |body| body.start_byte());
            says(at.source.slice(node.start_byte()..body))
        }
        "function_definition" => within(node).any(|inner| {
            inner.kind() == "call"
                && inner.end_byte() < at.node.start_byte()
                && at.source.of(inner).contains("set_grad_enabled(False")
        }),
        _ => false,
    })
}

/// The statement of a call.
pub(crate) fn statement<'a>(call: &Call<'a>) -> Option<Node<'a>> {
    statement_of(call.at.node)
}

//! Finds the loops of a program: those that train, and those that only evaluate.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::calls::Call;
use crate::models::{calls_model, calls_model_itself, is_name, model_names};
use crate::program::Program;
use crate::source::{At, around, function_of, statement_of, within};

/// A block of statements in which a backward pass is made.
pub(crate) struct Pass<'a> {
    /// The innermost loop around it, if it is in one.
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

/// The program's own functions that matter for the question what a loop does, by name.
struct Functions<'a> {
    /// What the program calls its models: `model.train()` is not a call of its function `train`.
    models: &'a BTreeSet<String>,
    /// Those that train, by themselves or by what they call.
    training: BTreeSet<&'a str>,
    /// Those that loop over a model, or run without a graph: what they evaluate is found in them.
    looping: BTreeSet<&'a str>,
    /// The others that call a model, by themselves or by what they call: `_step` of `for batch in loader: self._step(batch)`.
    calling: BTreeSet<&'a str>,
}

impl<'a> Functions<'a> {
    fn of(program: &'a Program, models: &'a BTreeSet<String>) -> Self {
        let all: Vec<(&'a str, At<'a>)> = program
            .all("function_definition")
            .into_iter()
            .filter_map(|at| Some((at.source.of(at.node.child_by_field_name("name")?), at)))
            .collect();
        let nothing = BTreeSet::new;
        let mut functions = Self { models, training: nothing(), looping: nothing(), calling: nothing() };
        while let Some(name) =
            functions.next(&all, |known, name, at| !known.training.contains(name) && known.trains(at))
        {
            functions.training.insert(name);
        }
        let loops = |at: At<'a>| {
            let mut loops = within(at.node).filter(|node| node.kind() == "for_statement");
            loops.any(|node| calls_model(at.with(node), models))
        };
        let body = |at: At<'a>| at.node.child_by_field_name("body").map_or(at, |body| at.with(body));
        let looping = all.iter().filter(|(_, at)| loops(*at) || without_graph(body(*at)));
        functions.looping = looping.map(|(name, _)| *name).collect();
        let is_new = |known: &Self, name: &str| {
            !(known.calling.contains(name) || known.looping.contains(name) || known.training.contains(name))
        };
        while let Some(name) = functions.next(&all, |known, name, at| is_new(known, name) && known.evaluates(at)) {
            functions.calling.insert(name);
        }
        functions
    }

    /// The next function of which something holds.
    fn next(&self, all: &[(&'a str, At<'a>)], holds: impl Fn(&Self, &str, At<'a>) -> bool) -> Option<&'a str> {
        all.iter().find(|(name, at)| holds(self, name, *at)).map(|(name, _)| *name)
    }

    /// Whether code makes a step of training, or calls a function of the program that does.
    fn trains(&self, at: At<'_>) -> bool {
        within(at.node).filter_map(|node| Call::of(at.with(node))).any(|call| {
            let of_model = || call.object().is_some_and(|object| self.models.contains(at.source.of(object)));
            matches!(call.name(), "backward" | "step" | "manual_backward" | "zero_grad")
                || self.training.contains(call.name()) && !of_model()
        })
    }

    /// Whether code calls a model with a graph, other than through a function that has a loop of its own.
    fn evaluates(&self, at: At<'_>) -> bool {
        let mut calls = within(at.node).filter_map(|node| Call::of(at.with(node)));
        calls.any(|call| {
            let itself = !self.looping.contains(call.name()) && calls_model_itself(&call, self.models);
            (itself || self.calling.contains(call.name())) && !without_graph(call.at)
        })
    }
}

/// The loops and statements that evaluate with the graph on.
pub(crate) fn evaluations(program: &Program) -> Vec<Evaluation<'_>> {
    let models = model_names(program);
    let functions = Functions::of(program, &models);
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
        if is_known(&found, at) || functions.trains(at) || !functions.evaluates(at) || without_graph(at) {
            continue;
        }
        let function = function_of(at.node).filter(|function| !functions.trains(at.with(*function)));
        found.push(Evaluation { at, last: at.node, function });
    }
    for call in program.calls().into_iter().filter(|call| call.name() == "eval" && call.object().is_some()) {
        let Some((at, last)) = behind_eval(&call, &functions) else { continue };
        if !is_known(&found, at) && !is_known(&found, at.with(last)) && !without_graph(at) {
            let function = function_of(at.node).filter(|function| !functions.trains(at.with(*function)));
            found.push(Evaluation { at, last, function });
        }
    }
    found
}

/// The statements behind `model.eval()` in its block that call a model, from the first to the last, up to
/// `model.train()`. A model that is trained in evaluation mode, as for a style transfer, has none.
fn behind_eval<'a>(call: &Call<'a>, functions: &Functions<'_>) -> Option<(At<'a>, Node<'a>)> {
    let statement = statement_of(call.at.node)?;
    let block = crate::source::statements(statement.parent()?);
    let behind = block.into_iter().filter(|node| node.start_byte() > statement.start_byte());
    let ends = |node: &Node<'a>| {
        let at = call.at.with(*node);
        within(*node).filter_map(|node| Call::of(at.with(node))).any(|call| call.name() == "train")
            || matches!(node.kind(), "function_definition" | "class_definition" | "decorated_definition")
    };
    let behind: Vec<Node<'a>> = behind.take_while(|node| !ends(node)).collect();
    if behind.iter().any(|node| functions.trains(call.at.with(*node))) {
        return None;
    }
    let calling = |node: &&Node<'a>| functions.evaluates(call.at.with(**node));
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

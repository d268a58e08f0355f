//! Releases what is kept too long: graphs, outputs, and gradients.

use std::collections::BTreeSet;

use tree_sitter::Node;

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, import, wrapped};
use crate::error::CannotPlace;
use crate::loops::{evaluations, optimizer_class, trained_names};
use crate::source::{At, around, is_statement, within};

use super::graphs::Graphs;
use super::keeping::{by_callers, cut, is_value, stored};
use super::{cannot, imports_torch};

/// Evaluation without a graph: a decorator where a function only evaluates, else a `with` around the loop.
pub fn no_grad(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let found = evaluations(program);
    if found.is_empty() {
        return everywhere(draft);
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
        let Some(edits) = wrapped(at.source, at.node, evaluation.last, "with torch.no_grad():") else {
            return cannot("the evaluation shares its lines with other code");
        };
        draft.edits(&file, Way::Code, edits);
    }
    Ok(())
}

/// No graphs at all, for a program that makes no backward pass anywhere.
fn everywhere(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    const LINE: &str = "torch.set_grad_enabled(False)";
    let program = draft.program;
    let trains = |call: &Call<'_>| {
        matches!(call.name(), "backward" | "manual_backward" | "grad" | "fit" | "no_grad" | "inference_mode")
            || call.name() == "set_grad_enabled"
            || call.name().ends_with("Trainer")
            || optimizer_class(call.name()).is_some()
    };
    if program.calls().iter().any(trains) {
        return cannot("no loop evaluates with gradients");
    }
    let Some((file, source)) = program.file(program.script()) else { return cannot("the script was not read") };
    if !imports_torch(source) {
        return cannot("the script does not import torch");
    }
    let Some(edit) = import(source, LINE) else { return cannot("gradients are off already") };
    draft.edit(file, Way::Code, edit);
    Ok(())
}

/// The statements that call a model which is not trained, each under `torch.no_grad()`.
pub fn untrained_no_grad(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let trained = trained_names(program);
    if draft.facts.untrained.is_empty() {
        return cannot("no line of the program's code calls a model that is not trained");
    }
    for (path, line) in &draft.facts.untrained {
        let Some((file, source)) = program.file(path) else { return cannot("the file of the call was not read") };
        if !imports_torch(source) {
            return cannot("the file of the call does not import torch");
        }
        let on =
            |node: &Node<'_>| (node.start_position().row..=node.end_position().row).contains(&line.saturating_sub(1));
        let Some(statement) = within(source.root()).filter(|node| is_statement(*node) && on(node)).last() else {
            return cannot("the statement of the call was not found");
        };
        let at = At { file, source, node: statement };
        let calls_trained = within(statement)
            .filter_map(|node| Call::of(at.with(node)))
            .any(|call| trained.iter().any(|name| source.of(call.function) == name));
        if statement.kind() != "expression_statement" || calls_trained {
            return cannot("the line of the call does more than that");
        }
        let Some(edits) = wrapped(source, statement, statement, "with torch.no_grad():") else {
            return cannot("the call shares its line with other code");
        };
        draft.edits(file, Way::Code, edits);
    }
    Ok(())
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

/// Results that a loop keeps on the card go to host memory: those at the lines where a run saw them kept.
pub fn results_to_host(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let graphs = Graphs::of(program);
    let mut any = false;
    for kept in draft.facts.kept.iter().filter(|kept| kept.kind == "results") {
        let Some((file, source)) = program.file(&kept.file) else { continue };
        let statements = source.statements_at(kept.line);
        for at in statements.iter().flat_map(|statement| within(*statement)).map(|node| At { file, source, node }) {
            for part in stored(at) {
                any |= to_host(draft, &graphs, at, part);
            }
        }
    }
    if any { Ok(()) } else { cannot("the line that keeps the results was not found") }
}

/// Moves what is kept to host memory. Whether there was something to move.
fn to_host<'a>(draft: &mut Draft<'a>, graphs: &Graphs<'a>, at: At<'a>, part: Node<'a>) -> bool {
    let value = at.with(part);
    // The weights of a model by their names.
    if value.node.kind() == "call" && value.text().trim_end_matches(')').ends_with("state_dict(") {
        let inner = Call::of(value).filter(|call| call.name() == "deepcopy").and_then(|call| call.argument("x", 0));
        let states = inner.unwrap_or(value).text();
        // Host memory is another copy already.
        let text = format!("{{name: value.cpu() for name, value in {states}.items()}}");
        draft.edit_once(at.file, Way::Code, Edit::replace(part, text));
        return true;
    }
    if !is_value(part) || value.text().contains(".cpu()") {
        return false;
    }
    if !by_callers(draft, graphs, at, &[part], ".cpu()") {
        cut(draft, value, ".cpu()");
    }
    true
}

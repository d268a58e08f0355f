//! Pipelines of diffusers.

use crate::calls::Call;
use crate::edit::{Edit, lines_after};
use crate::program::{At, CannotPlace, Draft, Program, Way};
use crate::source::statement_of;

use super::{cannot, own};

/// The only pipeline of a program: its name, and the statement that makes it.
fn pipeline(program: &Program) -> Option<(String, At<'_>, Call<'_>)> {
    let is = |call: &Call<'_>| {
        matches!(call.name(), "from_pretrained" | "from_single_file" | "from_config" | "from_pipe")
            && call.object().is_some_and(|object| {
                let text = call.at.source.of(object);
                text.ends_with("Pipeline") || text.contains("AutoPipeline") || text.contains("PipelineFor")
            })
            || call.name().ends_with("Pipeline") && call.object().is_none() && !call.arguments.byte_range().is_empty()
    };
    let mut calls = program.calls().into_iter().filter(is);
    let (Some(call), None) = (calls.next(), calls.next()) else { return None };
    let statement = statement_of(call.at.node)?;
    let assignment = statement.named_child(0).filter(|node| node.kind() == "assignment")?;
    let name = call.at.source.of(assignment.child_by_field_name("left")?).to_owned();
    Some((name, call.at.with(statement), call))
}

/// A call of the pipeline's, after it is made.
pub fn after_pipeline(draft: &mut Draft<'_>, call: &str) -> Result<(), CannotPlace> {
    let squeezed = call.trim_end_matches("()").replace(['.', '_'], "").replace("enable", "");
    if own::switch_on(draft, |name| name.contains(&squeezed) || squeezed == *name) {
        return Ok(());
    }
    let Some((name, statement, _)) = pipeline(draft.program) else {
        return cannot("where the pipeline is made could not be told for certain");
    };
    match lines_after(statement.source, statement.node, &[format!("{name}.{call}")]) {
        Some(edit) => {
            draft.edit(statement.file, Way::Argument, edit);
            Ok(())
        }
        None => cannot("the pipeline is made on a line with other code"),
    }
}

/// Offloading, in place of moving the whole pipeline to the card.
pub fn offload(draft: &mut Draft<'_>, call: &str) -> Result<(), CannotPlace> {
    let program = draft.program;
    let Some((name, statement, made)) = pipeline(program) else {
        return cannot("where the pipeline is made could not be told for certain");
    };
    let file = statement.file;
    let moves = |call: &Call<'_>| {
        matches!(call.name(), "to" | "cuda")
            && (call.name() == "cuda"
                || call.positional().first().is_some_and(|node| {
                    let text = call.at.source.of(*node);
                    text.contains("cuda") || text.contains("device")
                }))
    };
    let mut replaced = false;
    for moving in program.calls().into_iter().filter(moves) {
        let Some(object) = moving.object() else { continue };
        if moving.at.file != file {
            continue;
        }
        if object == made.at.node {
            // `pipe = Pipeline.from_pretrained(...).to("cuda")`
            draft.edit(
                file,
                Way::Argument,
                Edit { range: object.end_byte()..moving.at.node.end_byte(), text: String::new() },
            );
        } else if moving.at.source.of(object) == name {
            let Some(moving_statement) = statement_of(moving.at.node) else { continue };
            // Its line becomes the line of the offload, so that what stands between stays as it is.
            let text = format!("{name}.{call}");
            draft.edit(file, Way::Argument, Edit::replace(moving_statement, text));
            replaced = true;
        }
    }
    if !replaced {
        let Some(edit) = lines_after(statement.source, statement.node, &[format!("{name}.{call}")]) else {
            return cannot("the pipeline is made on a line with other code");
        };
        draft.edit(file, Way::Argument, edit);
    }
    Ok(())
}

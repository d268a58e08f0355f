//! Pipelines of diffusers.

use crate::calls::{Call, removed};
use crate::draft::{Draft, Way};
use crate::edit::{Edit, import, lines_after};
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::{At, statement_of, within};

use super::{cannot, imports_torch, own};

/// What is quantised of the pipelines whose name holds a text: the denoiser, and the text encoder where it is large.
const LARGE_PARTS: &[(&str, &str)] = &[
    ("flux", "[\"transformer\", \"text_encoder_2\"]"),
    ("stablediffusion3", "[\"transformer\", \"text_encoder_3\"]"),
    ("stablediffusion", "[\"unet\"]"),
    ("pixart", "[\"transformer\", \"text_encoder\"]"),
    ("sana", "[\"transformer\", \"text_encoder\"]"),
    ("wan", "[\"transformer\", \"text_encoder\"]"),
    ("ltx", "[\"transformer\", \"text_encoder\"]"),
    ("cogvideo", "[\"transformer\", \"text_encoder\"]"),
    ("hunyuanvideo", "[\"transformer\", \"text_encoder\"]"),
    ("qwenimage", "[\"transformer\", \"text_encoder\"]"),
];

/// Whether a class is a pipeline, by its name.
pub fn is_pipeline(class: &str) -> bool {
    class.ends_with("Pipeline") || class.contains("AutoPipeline") || class.contains("PipelineFor")
}

/// The only pipeline of a program: its name, and the statement that makes it.
fn pipeline(program: &Program) -> Option<(String, At<'_>, Call<'_>)> {
    let is = |call: &Call<'_>| {
        matches!(call.name(), "from_pretrained" | "from_single_file" | "from_config" | "from_pipe")
            && call.object().is_some_and(|object| is_pipeline(call.at.source.of(object)))
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
        return cannot("the line that creates the pipeline could not be identified");
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
        return cannot("the line that creates the pipeline could not be identified");
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
            if let [device, _] = moving.positional().as_slice() {
                // `pipe.to("cuda", torch.float16)` changes the type as well.
                draft.edit(file, Way::Argument, removed(moving.at.source, *device));
                let Some(edit) = lines_after(moving.at.source, moving_statement, &[format!("{name}.{call}")]) else {
                    return cannot("the pipeline is moved on a line with other code");
                };
                draft.edit(file, Way::Argument, edit);
                replaced = true;
                continue;
            }
            // Its line becomes the line of the offload, so that the lines between stay unchanged.
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

/// Groups of layers that are brought to the card ahead of their turn.
pub fn group_offload(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let Some((_, statement, made)) = pipeline(draft.program) else {
        return cannot("the line that creates the pipeline could not be identified");
    };
    // SDXL decodes in 32 bits what was loaded in 16, and groups would bring back the 16 bits.
    let text = statement.text();
    let upcasts = text.to_lowercase().contains("xl") && made.at.text().contains("float16");
    let kept = if upcasts { ", exclude_modules=[\"vae\"]" } else { "" };
    let call = format!(
        "enable_group_offload(onload_device=torch.device(\"cuda\"), offload_type=\"leaf_level\", use_stream=True{kept})"
    );
    offload(draft, &call)?;
    if !imports_torch(statement.source)
        && let Some(edit) = import(statement.source, "import torch")
    {
        draft.edit(statement.file, Way::Code, edit);
    }
    Ok(())
}

/// The configuration that quantises the large parts of a pipeline; `kind` is what is computed in where the program
/// does not say it.
pub fn quantization(call: &Call<'_>, bits: u8, kind: &str) -> Result<String, CannotPlace> {
    let statement = statement_of(call.at.node).map_or("", |node| call.at.source.of(node));
    let name = statement.to_lowercase().replace(['-', '_', ' '], "");
    let Some((_, parts)) = LARGE_PARTS.iter().find(|(part, _)| name.contains(part)) else {
        return cannot("which parts of the pipeline are large is not known");
    };
    let kind = ["torch_dtype", "dtype"].iter().find_map(|name| call.value(name)).map_or(kind, |at| {
        // A name may stand for anything.
        if at.text().starts_with("torch.") { at.text() } else { kind }
    });
    let options = match bits {
        4 => format!(
            "\"bitsandbytes_4bit\", quant_kwargs={{\"load_in_4bit\": True, \"bnb_4bit_quant_type\": \"nf4\", \
             \"bnb_4bit_compute_dtype\": {kind}}}"
        ),
        _ => "\"bitsandbytes_8bit\", quant_kwargs={\"load_in_8bit\": True}".to_owned(),
    };
    Ok(format!("PipelineQuantizationConfig(quant_backend={options}, components_to_quantize={parts})"))
}

/// The only call for images, as many calls for one.
pub fn one_image(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let Some((name, statement, _)) = pipeline(program) else {
        return cannot("the line that creates the pipeline could not be identified");
    };
    let runs = |call: &Call<'_>| call.at.file == statement.file && call.path() == name;
    let calls: Vec<Call<'_>> = program.calls().into_iter().filter(runs).collect();
    let [call] = calls.as_slice() else { return cannot("the pipeline is called in several places, or in none") };
    let source = call.at.source;
    let images = call.at.node.parent().filter(|outer| {
        outer.kind() == "attribute"
            && outer.child_by_field_name("attribute").is_some_and(|node| source.of(node) == "images")
    });
    let Some(images) = images else { return cannot("what is done with the images of the call was not understood") };
    for given in ["latents", "prompt_embeds", "image", "negative_prompt", "generator"] {
        let whole = |at: &At<'_>| {
            let inline = within(at.node).any(|node| matches!(node.kind(), "call" | "list" | "list_comprehension"));
            given == "latents" || given == "prompt_embeds" || inline
        };
        if call.value(given).filter(whole).is_some() {
            return cannot(format!("the call gives `{given}` for all images at once"));
        }
    }
    let count = call.value("num_images_per_prompt").filter(|at| at.text() != "1");
    let prompt = call.argument("prompt", 0);
    let text = |edits: &[(std::ops::Range<usize>, String)]| {
        let start = images.start_byte();
        let mut text = source.of(images).to_owned();
        let mut edits = edits.to_vec();
        edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
        for (range, new) in edits {
            text.replace_range(range.start - start..range.end - start, &new);
        }
        text
    };
    let prompts = prompt.filter(|at| is_list(program, *at));
    let each = prompts.map(|at| (at.node.byte_range(), "one_prompt".to_owned()));
    let one = count.map(|at| (at.node.byte_range(), "1".to_owned()));
    let edits: Vec<_> = each.into_iter().chain(one).collect();
    let mut rounds = String::new();
    if let Some(at) = prompts {
        rounds.push_str(&format!(" for one_prompt in {}", at.text()));
    }
    if let Some(at) = count {
        rounds.push_str(&format!(" for _ in range({})", at.text()));
    }
    if rounds.is_empty() {
        return cannot("the number of images per call could not be determined");
    }
    let text = format!("[image{rounds} for image in {}]", text(&edits));
    draft.edit(call.at.file, Way::Code, Edit::replace(images, text));
    Ok(())
}

/// Whether an expression is a list, or a name that was given one.
fn is_list(program: &Program, at: At<'_>) -> bool {
    let plain = |text: &str| text.starts_with('[');
    plain(at.text())
        || at.node.kind() == "identifier" && program.assigned(at.text()).iter().any(|value| plain(value.text()))
}

/// What the dose of tiles divides, in pixels: a side of 1024, 512 or 256.
const LARGEST_TILE: u64 = 2048;

/// The program's own option for the side of the tiles in which it works on an image; 0 or nothing is the whole image.
pub fn own_tiles(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let Some(option) = own::tile(draft) else { return cannot("the program has no option for tiles") };
    let side = LARGEST_TILE / draft.amount.by.unwrap_or(4).clamp(2, 32);
    let now = option.value_in(draft.program.arguments()).filter(|value| !value.is_empty() && value != "None");
    match now.as_deref().map(str::parse::<u64>) {
        None | Some(Ok(0)) => {}
        Some(Ok(now)) if now > side => {}
        Some(Ok(_)) => return cannot("the program's tiles are as small already"),
        Some(Err(_)) => return cannot("the program's option for tiles does not take a number of pixels"),
    }
    draft.set_option(&option, &side.to_string());
    Ok(())
}

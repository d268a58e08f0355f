//! Weights of a model that is loaded by name: in fewer bits, or in part elsewhere than on the card.

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{Edit, import, without_statement};
use crate::error::CannotPlace;
use crate::program::Program;
use crate::source::statement_of;

use super::{cannot, images, imports_torch, precision};

/// Weights in 4 or 8 bits, by bitsandbytes.
pub fn quantized(draft: &mut Draft<'_>, bits: u8) -> Result<(), CannotPlace> {
    let Some(call) = precision::loading(draft.program) else {
        return cannot("the line that loads the model could not be identified");
    };
    if ["quantization_config", "load_in_4bit", "load_in_8bit"].iter().any(|name| call.keyword(name).is_some()) {
        return cannot("the weights are quantised already");
    }
    if bits == 4 && !imports_torch(call.at.source) {
        return cannot("the file does not import torch");
    }
    let kind = if draft.facts.capability.0 >= 8 { "torch.bfloat16" } else { "torch.float16" };
    let (config, line) = if call.object().is_some_and(|object| images::is_pipeline(call.at.source.of(object))) {
        (images::quantization(&call, bits, kind)?, "from diffusers.quantizers import PipelineQuantizationConfig")
    } else {
        unmoved(draft, &call);
        let config = match bits {
            4 => format!(
                "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_compute_dtype={kind})"
            ),
            _ => "BitsAndBytesConfig(load_in_8bit=True)".to_owned(),
        };
        (config, "from transformers import BitsAndBytesConfig")
    };
    draft.edit(call.at.file, Way::Argument, call.adding("quantization_config", &config));
    if let Some(edit) = import(call.at.source, line) {
        draft.edit(call.at.file, Way::Code, edit);
    }
    Ok(())
}

/// As many layers on the card as fit, and the others in host memory.
pub fn device_map(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let Some(call) = precision::loading(draft.program) else {
        return cannot("the line that loads the model could not be identified");
    };
    if call.object().is_some_and(|object| images::is_pipeline(call.at.source.of(object))) {
        return cannot("pipelines have offloading of their own");
    }
    if call.value("device_map").is_some_and(|at| at.text().contains("auto")) {
        return cannot("the program asks for it already");
    }
    unmoved(draft, &call);
    draft.edit(call.at.file, Way::Argument, call.setting("device_map", "\"auto\""));
    Ok(())
}

/// An argument that says how the attention of a model that is loaded by name is computed.
pub fn attention(draft: &mut Draft<'_>, kind: &str) -> Result<(), CannotPlace> {
    let Some(call) = precision::loading(draft.program) else {
        return cannot("the line that loads the model could not be identified");
    };
    if call.object().is_some_and(|object| images::is_pipeline(call.at.source.of(object))) {
        return cannot("it is an argument of models");
    }
    let value = format!("\"{kind}\"");
    if call.value("attn_implementation").is_some_and(|at| at.text() == value) {
        return cannot("the program asks for it already");
    }
    draft.edit(call.at.file, Way::Argument, call.setting("attn_implementation", &value));
    Ok(())
}

/// An argument by which a model that is loaded by name computes its feed-forward layers for a few tokens at a time.
pub fn chunked_feed_forward(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    const NAME: &str = "chunk_size_feed_forward";
    let Some(call) = precision::loading(draft.program) else {
        return cannot("the line that loads the model could not be identified");
    };
    let class = call.object().map_or("", |object| call.at.source.of(object));
    if images::is_pipeline(class) {
        return cannot("it is an argument of models");
    }
    // A trial of it would cost a run and show nothing: it is an argument of encoders.
    if class.ends_with("ForCausalLM") || class.ends_with("LMHeadModel") {
        return cannot("models that generate text take no such argument");
    }
    if call.value(NAME).is_some_and(|at| at.text() != "0") {
        return cannot("the program asks for it already");
    }
    draft.edit(call.at.file, Way::Argument, call.setting(NAME, "64"));
    Ok(())
}

/// Whether a method moves a model, or changes the type of its weights.
fn moves(name: &str) -> bool {
    matches!(name, "to" | "cuda" | "half" | "bfloat16" | "float")
}

/// Takes out what moves a model that is loaded, or changes its type: the library does both.
fn unmoved(draft: &mut Draft<'_>, loaded: &Call<'_>) {
    let (file, source) = (loaded.at.file, loaded.at.source);
    // `AutoModel.from_pretrained(...).half().to(device)`
    let mut node = loaded.at.node;
    while let Some(outer) = node.parent().and_then(|attribute| attribute.parent())
        && let Some(call) = Call::of(loaded.at.with(outer))
        && call.object() == Some(node)
    {
        if moves(call.name()) {
            draft.edit(file, Way::Argument, Edit { range: node.end_byte()..outer.end_byte(), text: String::new() });
        }
        node = outer;
    }
    let Some(assignment) = node.parent().filter(|node| node.kind() == "assignment") else { return };
    let Some(name) = assignment.child_by_field_name("left").map(|node| source.of(node)) else { return };
    for call in moved(draft.program, loaded, name) {
        let (Some(statement), Some(object)) = (statement_of(call.at.node), call.object()) else { continue };
        let text = source.of(statement);
        let whole = source.of(call.at.node);
        let alone =
            text == whole || text.strip_prefix(name).is_some_and(|rest| rest.trim_start_matches([' ', '=']) == whole);
        let edit = if alone {
            without_statement(source, statement)
        } else {
            Edit { range: object.end_byte()..call.at.node.end_byte(), text: String::new() }
        };
        draft.edit(file, Way::Argument, edit);
    }
}

/// The calls that move what has this name.
fn moved<'a>(program: &'a Program, loaded: &Call<'a>, name: &str) -> Vec<Call<'a>> {
    let is = |call: &Call<'a>| {
        moves(call.name())
            && call.at.file == loaded.at.file
            && call.object().is_some_and(|object| call.at.source.of(object) == name)
    };
    program.calls().into_iter().filter(is).collect()
}

//! Adapters: small matrices that are trained next to frozen weights.

use crate::calls::Call;
use crate::draft::{Draft, Way};
use crate::edit::{import, lines_after};
use crate::error::CannotPlace;
use crate::source::At;
use crate::trainers;

use super::{cannot, imports_torch, precision, trainer};

/// LoRA over all linear layers, of rank 16.
pub fn lora(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let Some(task) = draft.facts.models.first().and_then(|model| trainer::task(&model.class)) else {
        return cannot("the model is not one of words");
    };
    let config = format!("LoraConfig(r=16, target_modules=\"all-linear\", task_type=\"{task}\")");
    // TRL's Trainers take the adapter as an argument, and see to what else it needs.
    let trl = |call: &Call<'_>| call.name().ends_with("Trainer") && trainers::arguments_are_of_trl(draft.program);
    if let Some(call) = trainers::trainer(draft.program).filter(trl) {
        if call.keyword("peft_config").is_some() {
            return cannot("the program trains an adapter already");
        }
        draft.edit(call.at.file, Way::Argument, call.adding("peft_config", &config));
        imported(draft, call.at, "from peft import LoraConfig");
        return Ok(());
    }
    let (name, statement) = trainer::language_model(draft)?;
    if statement.source.text().contains("peft") {
        return cannot("the program trains an adapter already");
    }
    let line = format!("{name} = get_peft_model({name}, {config})");
    let Some(edit) = lines_after(statement.source, statement.node, &[line]) else {
        return cannot("the model is made on a line with other code");
    };
    draft.edit(statement.file, Way::Code, edit);
    imported(draft, statement, "from peft import LoraConfig, get_peft_model");
    Ok(())
}

/// LoRA over weights that are loaded in 4 bits.
pub fn qlora(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let Some(call) = precision::loading(draft.program) else {
        return cannot("the line that loads the model could not be identified");
    };
    if call.keyword("quantization_config").is_some() {
        return cannot("the weights are quantised already");
    }
    if !imports_torch(call.at.source) {
        return cannot("the file does not import torch");
    }
    let config =
        "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_compute_dtype=torch.bfloat16)";
    draft.edit(call.at.file, Way::Argument, call.adding("quantization_config", config));
    imported(draft, call.at, "from transformers import BitsAndBytesConfig");
    lora(draft)
}

fn imported(draft: &mut Draft<'_>, at: At<'_>, line: &str) {
    if let Some(edit) = import(at.source, line) {
        draft.edit(at.file, Way::Code, edit);
    }
}

//! Training on several cards.

use crate::draft::{Draft, Way};
use crate::edit::{Edit, import};
use crate::error::CannotPlace;
use crate::literals::string;
use crate::trainers;

use super::cannot;

/// Gradients in DDP's own buckets: where the model is wrapped, or where Lightning's Trainer gets its strategy.
pub fn bucket_view(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    const NAME: &str = "gradient_as_bucket_view";
    let program = draft.program;
    let wraps = |name: &str| matches!(name, "DistributedDataParallel" | "DDP" | "DDPStrategy");
    for call in program.calls().into_iter().filter(|call| wraps(call.name())) {
        if call.value(NAME).is_none_or(|at| at.text() != "True") {
            draft.edit(call.at.file, Way::Argument, call.setting(NAME, "True"));
        }
    }
    if !draft.is_empty() {
        return Ok(());
    }
    let Some(call) = trainers::lightning(program) else { return cannot("the program wraps no model in DDP") };
    let Some(strategy) = call.value("strategy").filter(|at| string(*at).as_deref() == Some("ddp")) else {
        return cannot("the strategy is not written as \"ddp\"");
    };
    let source = call.at.source;
    let package = if source.text().contains("pytorch_lightning") { "pytorch_lightning" } else { "lightning.pytorch" };
    if let Some(edit) = import(source, &format!("from {package}.strategies import DDPStrategy")) {
        draft.edit(call.at.file, Way::Code, edit);
    }
    draft.edit(call.at.file, Way::Argument, Edit::replace(strategy.node, format!("DDPStrategy({NAME}=True)")));
    Ok(())
}

//! Places each remedy in a program.

mod accumulation;
mod adapters;
mod batch;
mod checkpointing;
mod contrast;
mod cut;
mod evaluation;
mod frameworks;
mod graphs;
mod images;
mod keeping;
mod lifetime;
mod optimizers;
pub(crate) mod own;
mod parallel;
mod precision;
pub(crate) mod shares;
mod trainer;
mod weights;

use std::collections::BTreeMap;

use crate::draft::{Draft, Placed};
use crate::error::CannotPlace;
use crate::facts::{Amount, Facts};
use crate::program::Program;

pub(crate) use frameworks::without_layers;

type Recipe = fn(&mut Draft<'_>) -> Result<(), CannotPlace>;

/// Every remedy that can be placed, by its id in the catalogue.
const RECIPES: &[(&str, Recipe)] = &[
    ("micro-batch", batch::micro_batch),
    ("smaller-batch", batch::smaller_batch),
    ("smaller-training-batch", batch::smaller_batch),
    ("cached-contrast", contrast::cached),
    ("shorter-sequence", batch::shorter_sequence),
    ("packing-off", |draft| trainer::set(draft, &[("packing", "False")])),
    ("gradient-checkpointing", checkpointing::checkpointing),
    ("checkpointing-every-n-layers", checkpointing::every_nth),
    ("selective-checkpointing", checkpointing::selective),
    ("autocast", precision::autocast),
    ("activation-offload", precision::activation_offload),
    ("pure-bf16", precision::pure_bf16),
    ("half-weights", precision::half_weights),
    ("lora", adapters::lora),
    ("qlora", adapters::qlora),
    ("adam-8bit", |draft| optimizers::replaced(draft, "adamw_bnb_8bit", "8bit")),
    ("paged-adam-8bit", |draft| optimizers::replaced(draft, "paged_adamw_8bit", "Paged")),
    ("adafactor", |draft| trainer::set(draft, &[("optim", "\"adafactor\"")])),
    ("lion-8bit", |draft| trainer::set(draft, &[("optim", "\"lion_8bit\"")])),
    ("sgd", |draft| trainer::set(draft, &[("optim", "\"sgd\"")])),
    ("fused-optimizer", |draft| optimizers::stepping(draft, "fused", "True")),
    ("foreach-off", |draft| optimizers::stepping(draft, "foreach", "False")),
    ("no-grad", lifetime::no_grad),
    ("untrained-no-grad", lifetime::untrained_no_grad),
    ("detach-losses", keeping::detach),
    ("detach-tensors", keeping::detach_tensors),
    ("collect-on-host", lifetime::results_to_host),
    ("retain-graph-off", lifetime::retain_graph),
    ("zero-grad-none", lifetime::zero_grad),
    ("eval-accumulation", evaluation::accumulation),
    ("logits-preprocessing", evaluation::preprocessing),
    ("prediction-loss-only", |draft| trainer::set(draft, &[("prediction_loss_only", "True")])),
    ("eval-batch", evaluation::smaller_batch),
    ("fewer-evaluation-batches", evaluation::fewer_batches),
    ("vae-slicing", |draft| images::after_pipeline(draft, "vae.enable_slicing()")),
    ("vae-tiling", |draft| images::after_pipeline(draft, "vae.enable_tiling()")),
    ("model-cpu-offload", |draft| images::offload(draft, "enable_model_cpu_offload()")),
    ("sequential-cpu-offload", |draft| images::offload(draft, "enable_sequential_cpu_offload()")),
    ("group-offload", images::group_offload),
    ("attention-slicing", |draft| images::after_pipeline(draft, "enable_attention_slicing()")),
    ("one-image-at-a-time", images::one_image),
    ("own-tiles", images::own_tiles),
    ("weights-nf4", |draft| weights::quantized(draft, 4)),
    ("weights-int8", |draft| weights::quantized(draft, 8)),
    ("device-map", weights::device_map),
    ("sdpa", |draft| weights::attention(draft, "sdpa")),
    ("chunked-feed-forward", weights::chunked_feed_forward),
    ("trim-cache-every-steps", |draft| trainer::set(draft, &[("torch_empty_cache_steps", "4")])),
    ("gradient-bucket-view", parallel::bucket_view),
    ("fused-cross-entropy", |draft| trainer::set(draft, &[("use_liger_kernel", "True")])),
];

/// Whether a remedy can be placed in some programs.
pub fn has_recipe(remedy: &str) -> bool {
    RECIPES.iter().any(|(id, _)| *id == remedy)
}

/// The ids of all remedies that can be placed.
pub fn ids() -> impl Iterator<Item = &'static str> {
    RECIPES.iter().map(|(id, _)| *id)
}

impl Program {
    /// Places a remedy.
    ///
    /// # Errors
    /// Where its place is not certain.
    pub fn apply(&self, remedy: &str, amount: Amount, facts: &Facts) -> Result<Placed, CannotPlace> {
        let mut draft = Draft::of(self, facts, amount);
        place(remedy, &mut draft)?;
        draft.finish()
    }

    /// Whether a loop carries the graphs of all its steps along in the state of a recurrent network.
    pub fn retains_a_state(&self) -> bool {
        keeping::retains_a_state(self)
    }

    /// Whether the program has an option for the side of the tiles in which it works on an image.
    pub fn takes_tiles(&self) -> bool {
        own::tile(&Draft::of(self, &Facts::default(), Amount::default())).is_some()
    }

    /// Whether a module of Lightning's steps its optimizers itself, so that its Trainer refuses to accumulate.
    pub fn steps_by_hand(&self) -> bool {
        crate::trainers::steps_by_hand(self)
    }

    /// The library by which the program serves a language model (`vllm`, `llama_cpp`), and the plain values of the
    /// arguments of its only engine, by their names; the model is `model` where it has none.
    pub fn served(&self) -> Option<(&'static str, BTreeMap<String, String>)> {
        frameworks::served(self)
    }
}

fn place(remedy: &str, draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    if let Some(recipe) = frameworks::recipe(draft.program, remedy) {
        return recipe(draft);
    }
    match RECIPES.iter().find(|(id, _)| *id == remedy) {
        Some((_, recipe)) => recipe(draft),
        None => Err(CannotPlace("it is not written into code".into())),
    }
}

/// Refuses.
fn cannot<T>(why: impl Into<String>) -> Result<T, CannotPlace> {
    Err(CannotPlace(why.into()))
}

/// Whether a file has torch under its own name.
fn imports_torch(source: &crate::source::Source) -> bool {
    crate::source::within(source.root()).filter(|node| node.kind() == "import_statement").any(|node| {
        let mut cursor = node.walk();
        node.children_by_field_name("name", &mut cursor).any(|name| {
            let name = source.of(name);
            name == "torch" || name.starts_with("torch.") && !name.contains(" as ")
        })
    })
}

//! The models that oomph knows by name, from their public configurations, without any file.
//!
//! `data/models/*.toml` holds one entry a model: its names, where its configuration is from, and the values of it that
//! say how large it is. A 0 stands for a value that the configuration leaves empty.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::spelling::{Format, own, readings, squeezed};
use crate::{Architecture, Component, Dtype, Layout, Model, Tensor};

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(include_str!(concat!(env!("OUT_DIR"), "/", $name, ".json"))),*]
    };
}

const FILES: &[&str] = files![
    "deepseek", "encoders", "gemma", "gpt", "images", "llama", "mistral", "open", "pairs", "phi", "qwen", "vqgan",
];

static BUILT_IN: LazyLock<Library> = LazyLock::new(|| {
    let mut library = Library::default();
    for text in FILES {
        // The texts are part of the program, and a test reads each; a fault in one is no reason to stop.
        if let Ok(file) = serde_json::from_str::<File>(text) {
            library.entries.extend(file.model);
            library.networks.extend(file.network);
        }
    }
    library
});

/// Models by name.
#[derive(Debug, Default)]
pub struct Library {
    entries: Vec<Entry>,
    networks: Vec<Network>,
}

/// One model of the library.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its short name, in lower case.
    pub name: String,
    /// Other names, such as the ones on a hub.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Where the values are from.
    pub source: String,
    /// The type of the published weights, as PyTorch names it.
    pub dtype: String,
    /// The configuration of a model that is one network.
    #[serde(default)]
    config: Value,
    /// The networks of a pipeline: what each is for, and which it is.
    #[serde(default)]
    networks: Vec<[String; 2]>,
}

/// A network that several pipelines share.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Network {
    name: String,
    config: Value,
    /// The library that builds it, where that is neither transformers nor diffusers.
    #[serde(default, rename = "library")]
    _library: Option<String>,
    /// The type that it keeps whatever the pipeline's is.
    dtype: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    model: Vec<Entry>,
    #[serde(default)]
    network: Vec<Network>,
}

/// There is no model of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no model {name:?} is built in{}", hint(nearest))]
pub struct UnknownModel {
    /// What was asked for.
    pub name: String,
    /// The names that are most like it, the nearest first.
    pub nearest: Vec<String>,
}

fn hint(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}

impl Library {
    /// The models that are part of this program.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &BUILT_IN
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a name or an alias in any spelling: case, the owner before a slash and the marks between words do
    /// not matter, nor does what distinguishes a tuned variant from its base, which has the same shape (`-instruct`,
    /// `-chat`, `-it`, `-hf`), or a quantized copy from its origin (`-AWQ`, `-GPTQ-Int4`, `-bnb-4bit`).
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Entry> {
        self.read(name).map(|(entry, _)| entry)
    }

    /// The entry of a name, and the format of its weights where the name says one.
    fn read(&self, name: &str) -> Option<(&Entry, Option<Format>)> {
        // A name that is written out with its owner means nothing else.
        let literal = |entry: &&Entry| entry.names().any(|known| known.eq_ignore_ascii_case(name.trim()));
        if let Some(entry) = self.entries.iter().find(literal) {
            return Some((entry, None));
        }
        readings(name).into_iter().find_map(|(wanted, format)| {
            let mut entries = self.entries.iter().filter(|entry| format.is_none() || entry.networks.is_empty());
            let entry = entries.find(|entry| entry.names().any(|known| squeezed(&own(known)) == wanted))?;
            Some((entry, format))
        })
    }

    /// The model of a name, with the tensors that its configuration gives it.
    ///
    /// # Errors
    /// When no entry has the name; the error holds the nearest ones.
    pub fn model(&self, name: &str) -> Result<Model, UnknownModel> {
        let (entry, format) = self.read(name).ok_or_else(|| self.unknown(name))?;
        let dtype = Dtype::of_torch(&entry.dtype);
        let mut model = Model { name: entry.name.clone(), layout: Layout::BuiltIn, ..Model::default() };
        if entry.networks.is_empty() {
            let mut config = entry.config.clone();
            if let Some((settings, note)) = format.map(Format::usual) {
                if let (Some(settings), Value::Object(entries)) = (settings, &mut config) {
                    entries.insert("quantization_config".into(), settings);
                }
                model.notes.push(note);
            }
            model.components.push(Component::of_config("model", config, &dtype));
        }
        for [role, network] in &entry.networks {
            let Some((config, kept)) = self.part(network) else { continue };
            let kept = kept.map(Dtype::of_torch);
            model.components.push(Component::of_config(role, config.clone(), kept.as_ref().unwrap_or(&dtype)));
        }
        Ok(model)
    }

    /// The configuration of a pipeline's part, and the type that it keeps. A part may be a model of its own.
    fn part(&self, name: &str) -> Option<(&Value, Option<&str>)> {
        let shared = self.networks.iter().find(|network| network.name == name);
        let shared = shared.map(|network| (&network.config, network.dtype.as_deref()));
        shared.or_else(|| Some((&self.entries.iter().find(|entry| entry.name == name)?.config, None)))
    }

    /// Every configuration of the library, by name: the models that are one network and the parts of pipelines.
    pub fn networks(&self) -> impl Iterator<Item = (&str, Option<Architecture>)> {
        let models = self.entries.iter().filter(|entry| entry.networks.is_empty());
        let models = models.map(|entry| (entry.name.as_str(), &entry.config));
        let parts = self.networks.iter().map(|network| (network.name.as_str(), &network.config));
        models.chain(parts).map(|(name, config)| (name, Architecture::of_config(config).ok()))
    }

    /// The architecture of a network of a pipeline's file, identified by its number of parameters.
    #[must_use]
    pub fn architecture_of(&self, role: &str, tensors: &[Tensor]) -> Option<Architecture> {
        let classes: &[&str] = match role {
            "unet" => &["UNet2D"],
            "controlnet" => &["ControlNet"],
            "vae" => &["Autoencoder"],
            "transformer" => &["Transformer2D", "Transformer3D"],
            // A denoiser alone in a file.
            "model" => &["UNet2D", "ControlNet", "Transformer2D", "Transformer3D"],
            _ if role.starts_with("text_encoder") => &["TextModel", "T5EncoderModel"],
            _ => return None,
        };
        let floats = tensors.iter().filter(|tensor| tensor.dtype.is_float());
        let count = floats.fold(0_u64, |sum, tensor| sum.saturating_add(tensor.elements()));
        let configs = self.networks.iter().map(|network| &network.config);
        let configs = configs.chain(self.entries.iter().map(|entry| &entry.config));
        let named = configs.filter(|config| {
            let name = config.get("_class_name").or_else(|| config.pointer("/architectures/0")).and_then(Value::as_str);
            name.is_some_and(|name| classes.iter().any(|class| name.contains(class)))
        });
        // A scale of logits or the like may accompany a text encoder.
        named
            .filter_map(|config| Architecture::of_config(config).ok())
            .find(|architecture| architecture.parameter_count().abs_diff(count) <= 4)
    }

    fn unknown(&self, name: &str) -> UnknownModel {
        let wanted = own(name);
        let mut likeness: Vec<(f64, &str)> = self
            .entries
            .iter()
            .map(|entry| {
                let best = entry.names().map(|name| strsim::jaro_winkler(&own(name), &wanted)).fold(0.0, f64::max);
                (best, entry.name.as_str())
            })
            .collect();
        likeness.sort_by(|one, other| other.0.total_cmp(&one.0));
        let nearest = likeness.iter().take(4).filter(|(likeness, _)| *likeness > 0.75);
        UnknownModel { name: name.to_owned(), nearest: nearest.map(|(_, name)| (*name).to_owned()).collect() }
    }
}

impl Entry {
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    /// What its configuration says, for a model that is one network.
    #[must_use]
    pub fn architecture(&self) -> Option<Architecture> {
        Architecture::of_config(&self.config).ok()
    }
}

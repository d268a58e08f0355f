//! Describes a network from its configuration alone.
//!
//! [`Architecture::of_config`] reads `config.json` of transformers and diffusers. [`Architecture::parameters`] then
//! names every tensor of the network with its shape, so that counts are exact where no weights are at hand.

mod builder;
mod config;
mod diffusion;
mod gguf;
mod parameter;
mod transformer;

pub use diffusion::{Autoencoder, DiffusionTransformer, Level, LtxSide, UNet};
pub use parameter::{Form, Parameter, Role};
pub use transformer::{
    AudioInput, Experts, Head, ImageInput, Kind, LatentAttention, Norm, Positions, QueryKeyNorm, Transformer,
};

use serde::Serialize;
use serde_json::Value;

use crate::Tensor;
use config::Config;

/// What a network is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Layers of attention over text, images or sound.
    Transformer(Box<Transformer>),
    /// A convolutional denoiser, or its ControlNet.
    UNet(UNet),
    /// A denoiser made of transformer layers.
    DiffusionTransformer(DiffusionTransformer),
    /// Between pixels and latents.
    Autoencoder(Autoencoder),
}

/// Why a configuration describes no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureError {
    /// A count or a width that must be there is not.
    #[error("the configuration (of type {family}) has no {key} that is a number above 0")]
    Missing {
        /// The name under which it was looked for first.
        key: String,
        /// The model type or class.
        family: String,
    },
    /// A count is beyond any real model's.
    #[error("the configuration asks for {count} {what}, more than any model has")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// It is the configuration of something that is not a network, or of one that is not described here.
    #[error("the configuration is of a kind that is not known here: {0}")]
    Unknown(String),
}

impl Architecture {
    /// Reads a `config.json` of transformers (any `model_type`; one that is not known is read as a Llama with these
    /// widths and is marked so) or of a component of diffusers.
    ///
    /// # Errors
    /// When widths or counts are missing or absurd, or a class of diffusers is not known.
    pub fn of_config(config: &Value) -> Result<Self, ArchitectureError> {
        if let Some(class) = config.get("_class_name").and_then(Value::as_str) {
            return diffusion::network(Config::new(config), class);
        }
        transformer::transformer(Config::new(config)).map(|model| Self::Transformer(Box::new(model)))
    }

    /// Reads the settings of a GGUF file, as JSON under their own names, and what its tensors tell of the vocabulary.
    ///
    /// # Errors
    /// When the settings name no architecture, or counts are missing or absurd.
    pub fn of_gguf(settings: &Value, tensors: &[Tensor]) -> Result<Self, ArchitectureError> {
        let config = gguf::config(settings, tensors)?;
        transformer::transformer(Config::new(&config)).map(|model| Self::Transformer(Box::new(model)))
    }

    /// Every parameter and buffer of the network, tied ones once.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        match self {
            Self::Transformer(model) => transformer::parameters(model),
            Self::UNet(model) => model.parameters(),
            Self::DiffusionTransformer(model) => model.parameters(),
            Self::Autoencoder(model) => model.parameters(),
        }
    }

    /// How many numbers its parameters hold, without buffers.
    #[must_use]
    pub fn parameter_count(&self) -> u64 {
        let parameters = self.parameters();
        let trained = parameters.iter().filter(|parameter| !parameter.is_buffer());
        trained.fold(0, |sum, parameter| sum.saturating_add(parameter.elements()))
    }

    /// The transformer, where it is one.
    #[must_use]
    pub fn transformer(&self) -> Option<&Transformer> {
        match self {
            Self::Transformer(model) => Some(model),
            _ => None,
        }
    }
}

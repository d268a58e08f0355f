//! A model as its files describe it.

use serde::Serialize;
use serde_json::Value;

use crate::{Dtype, Tensor};

/// A model: one network, or several that work together (a diffusion pipeline).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Model {
    /// What the user calls it: the folder's or the file's name.
    pub name: String,
    /// Where it came from.
    pub layout: Layout,
    /// The networks.
    pub components: Vec<Component>,
    /// What the reader wants the user to know, one sentence each, lowercase.
    pub notes: Vec<String>,
}

/// How a model's files are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// A folder with `config.json`, as Hugging Face's libraries write it.
    #[default]
    HuggingFace,
    /// A folder with `model_index.json`: a pipeline of diffusers.
    Diffusers,
    /// A folder with `adapter_config.json`: a LoRA adapter.
    Adapter,
    /// A safetensors file by itself.
    Safetensors,
    /// A GGUF file, or the parts of one.
    Gguf,
}

/// One network.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Component {
    /// Its name in the pipeline (`unet`, `vae`), or `model`.
    pub name: String,
    /// The class that the configuration names (`LlamaForCausalLM`, `UNet2DConditionModel`).
    pub class: Option<String>,
    /// Its configuration as written; GGUF settings appear under their own names.
    pub config: Value,
    /// Its tensors as the files hold them.
    pub tensors: Vec<Tensor>,
}

impl Component {
    /// Bytes of the tensors in the files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.bytes))
    }

    /// Numbers in the tensors, each name once. Packed formats hold fewer than the weights that they stand for.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.elements()))
    }

    /// Bytes by type, the most first.
    #[must_use]
    pub fn by_dtype(&self) -> Vec<(Dtype, u64)> {
        let mut sums: Vec<(Dtype, u64)> = Vec::new();
        for tensor in &self.tensors {
            match sums.iter_mut().find(|(dtype, _)| *dtype == tensor.dtype) {
                Some((_, bytes)) => *bytes = bytes.saturating_add(tensor.bytes),
                None => sums.push((tensor.dtype.clone(), tensor.bytes)),
            }
        }
        sums.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        sums
    }
}

//! The description of a model, as its files give it.

use serde::Serialize;
use serde_json::Value;

use crate::{Architecture, Dtype, Tensor};

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
    /// A single safetensors file.
    Safetensors,
    /// A GGUF file, or the parts of one.
    Gguf,
    /// An ONNX file.
    Onnx,
    /// A checkpoint of PyTorch.
    Torch,
    /// No files: a model that this program knows by name.
    BuiltIn,
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
    /// Its tensors as the files hold them; of a model without files, as its configuration gives them.
    pub tensors: Vec<Tensor>,
    /// What it is made of, where its configuration could be understood.
    pub architecture: Option<Architecture>,
}

impl Component {
    /// A network that is known from its configuration alone; its tensors have the given type where they have none of
    /// their own.
    #[must_use]
    pub fn of_config(name: &str, config: Value, dtype: &Dtype) -> Self {
        let architecture = Architecture::of_config(&config).ok();
        let class = config.pointer("/architectures/0").or_else(|| config.get("_class_name"));
        let class = class.and_then(Value::as_str).map(str::to_owned);
        let parameters = architecture.as_ref().map(Architecture::parameters).unwrap_or_default();
        let tensors = parameters.into_iter().map(|parameter| parameter.into_tensor(dtype)).collect();
        Self { name: name.to_owned(), class, config, tensors, architecture }
    }

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

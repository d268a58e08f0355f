//! Opens models on disk: a folder or a file, recognised by its contents.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::model::{Component, Layout, Model};
use crate::{Architecture, Dtype, FileSource, ModelError, Source, Tensor, gguf, onnx, safetensors, single_file, torch};

/// Configurations are small; a file larger than this, in bytes, is not one.
const LARGEST_CONFIG: u64 = 64 << 20;
/// Files in a folder that are looked at; no model has as many parts.
const MOST_FILES: usize = 20_000;

/// Why a model cannot be read: which file, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
pub struct OpenError {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong.
    #[source]
    pub cause: OpenCause,
}

/// What is wrong with a file or folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenCause {
    /// The system could not open it.
    #[error("cannot open it: {0}")]
    Io(#[from] io::Error),
    /// The header is not what it says it is.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A configuration is not JSON of the expected form.
    #[error("not the JSON that is expected here: {0}")]
    Json(#[from] serde_json::Error),
    /// There is no model in it.
    #[error("{0}")]
    NoModel(&'static str),
}

impl OpenError {
    fn of<C: Into<OpenCause>>(path: &Path) -> impl FnOnce(C) -> Self {
        let path = path.to_owned();
        move |cause| Self { path, cause: cause.into() }
    }
}

/// Reads a model: a folder of Hugging Face or diffusers, an adapter's folder, a safetensors, ONNX or PyTorch file, or a
/// GGUF file (also the first part of several).
///
/// # Errors
/// When there is none at `path`, or a file of it is damaged.
pub fn open(path: &Path) -> Result<Model, OpenError> {
    let metadata = fs::metadata(path).map_err(OpenError::of(path))?;
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    let mut model = if metadata.is_dir() { folder(path)? } else { file(path)? };
    model.name = name;
    Ok(model)
}

fn file(path: &Path) -> Result<Model, OpenError> {
    let mut source = FileSource::open(path).map_err(OpenError::of(path))?;
    let mut start = [0; 9];
    let peek = start.len().min(usize::try_from(source.len()).unwrap_or(usize::MAX));
    source.read_at(0, &mut start[..peek]).map_err(OpenError::of(path))?;
    if start.starts_with(b"GGUF") {
        return gguf_parts(path);
    }
    // A header's length and the brace that its JSON begins with.
    if start[8] == b'{' {
        let header = safetensors::read(&mut source).map_err(OpenError::of(path))?;
        let components = single_file::components(header.tensors);
        return Ok(Model { layout: Layout::Safetensors, components, ..Model::default() });
    }
    if start.starts_with(b"PK\x03\x04") {
        return checkpoint(path, &mut source);
    }
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("onnx")) {
        let graph = onnx::read(&mut source).map_err(OpenError::of(path))?;
        let component = Component { name: "model".into(), tensors: graph.tensors, ..Component::default() };
        let notes = match graph.external {
            0 => Vec::new(),
            count => vec![format!("{count} of its weights lie in other files")],
        };
        return Ok(Model { layout: Layout::Onnx, components: vec![component], notes, ..Model::default() });
    }
    let cause = OpenCause::NoModel(
        "this is not a model file that is known; give a safetensors, GGUF, ONNX or PyTorch file, or a model's folder",
    );
    Err(OpenError { path: path.to_owned(), cause })
}

/// A PyTorch checkpoint, which may hold more than the model.
fn checkpoint(path: &Path, source: &mut FileSource) -> Result<Model, OpenError> {
    let checkpoint = torch::read(source).map_err(OpenError::of(path))?;
    let mut notes = Vec::new();
    if !checkpoint.extras.is_empty() {
        notes.push(format!("in addition to the model it holds {}", checkpoint.extras.join(", ")));
    }
    if checkpoint.shared > 0 {
        notes.push(format!("{} names stand for tensors that have another name too", checkpoint.shared));
    }
    let components = single_file::components(checkpoint.tensors);
    Ok(Model { layout: Layout::Torch, components, notes, ..Model::default() })
}

fn folder(path: &Path) -> Result<Model, OpenError> {
    let index = path.join("model_index.json");
    if index.is_file() {
        return diffusers(path, &json(&index)?);
    }
    let adapter = path.join("adapter_config.json");
    if adapter.is_file() {
        let config = json(&adapter)?;
        let mut component = component(path, "adapter", &["adapter_model"])?.0;
        (component.config, component.architecture) = (config, None);
        return Ok(Model { layout: Layout::Adapter, components: vec![component], ..Model::default() });
    }
    if path.join("config.json").is_file()
        || !listed(path, ".safetensors")?.is_empty()
        || !listed(path, ".bin")?.is_empty()
    {
        let (component, notes) = component(path, "model", &["model", "diffusion_pytorch_model", "consolidated"])?;
        return Ok(Model { layout: Layout::HuggingFace, components: vec![component], notes, ..Model::default() });
    }
    if let Some(first) = listed(path, ".gguf")?.first() {
        return gguf_parts(first);
    }
    let cause =
        OpenCause::NoModel("there is no config.json, model_index.json, safetensors or GGUF file in this folder");
    Err(OpenError { path: path.to_owned(), cause })
}

/// A pipeline: every component of `model_index.json` that has a folder with weights.
fn diffusers(path: &Path, index: &Value) -> Result<Model, OpenError> {
    let mut model = Model { layout: Layout::Diffusers, ..Model::default() };
    let entries = index.as_object().into_iter().flatten().filter(|(name, _)| !name.starts_with('_'));
    for (name, entry) in entries {
        // An entry is [library, class]; a component that was left out is [null, null]. The name must stay in the folder.
        let class = entry.get(1).and_then(Value::as_str);
        let folder = path.join(name);
        let inside = !name.contains(['/', '\\']) && name != "..";
        if class.is_none() || !inside || !folder.is_dir() {
            continue;
        }
        let weights = [".safetensors", ".bin"].iter().try_fold(0, |sum, end| Ok(sum + listed(&folder, end)?.len()))?;
        if weights == 0 && !folder.join("config.json").is_file() {
            // Tokenizers, schedulers and feature extractors have no weights.
            continue;
        }
        let (mut component, notes) = component(&folder, name, &["diffusion_pytorch_model", "model"])?;
        component.class = component.class.or(class.map(str::to_owned));
        model.notes.extend(notes.into_iter().map(|note| format!("{name}: {note}")));
        model.components.push(component);
    }
    Ok(model)
}

/// One network's folder: its configuration, and the tensors of its safetensors files.
fn component(path: &Path, name: &str, stems: &[&str]) -> Result<(Component, Vec<String>), OpenError> {
    let mut notes = Vec::new();
    let config_path = path.join("config.json");
    let config = if config_path.is_file() { json(&config_path)? } else { Value::Null };
    let class = config
        .pointer("/architectures/0")
        .or_else(|| config.get("_class_name"))
        .and_then(Value::as_str)
        .map(str::to_owned);
    let architecture = Architecture::of_config(&config).ok();
    let mut component = Component { name: name.to_owned(), class, config, architecture, ..Component::default() };
    let files = weights(path, stems, &mut notes)?;
    for file in &files {
        let mut source = FileSource::open(file).map_err(OpenError::of(file))?;
        if file.extension().is_some_and(|extension| extension == "safetensors") {
            component.tensors.extend(safetensors::read(&mut source).map_err(OpenError::of(file))?.tensors);
        } else {
            component.tensors.extend(torch::read(&mut source).map_err(OpenError::of(file))?.tensors);
        }
    }
    if files.is_empty() && component.architecture.is_some() {
        notes.push("no weights are here; the tensors are those that its configuration gives it".into());
        let dtype = configured_dtype(&component.config).unwrap_or(Dtype::Float32);
        let of_config = Component::of_config(name, std::mem::take(&mut component.config), &dtype);
        component = Component { class: component.class, ..of_config };
    } else if files.is_empty() {
        notes.push("no weights are here, only the configuration".into());
    }
    drop_tied(&mut component, &mut notes);
    Ok((component, notes))
}

/// Leaves out an output layer that is the embedding once more: once loaded, there is one of them.
fn drop_tied(component: &mut Component, notes: &mut Vec<String>) {
    let tied =
        component.architecture.as_ref().and_then(Architecture::transformer).is_some_and(|model| model.tied_embeddings);
    let Some(at) = component.tensors.iter().position(|tensor| tensor.name == "lm_head.weight") else { return };
    let shape = &component.tensors[at].shape;
    let embedding = |tensor: &Tensor| {
        tensor.shape == *shape && ["embed_tokens.weight", "wte.weight"].iter().any(|name| tensor.name.ends_with(name))
    };
    if tied && component.tensors.iter().any(embedding) {
        component.tensors.remove(at);
        notes.push("lm_head.weight is the embedding once more and is counted once".into());
    }
}

/// The `*.index.json` next to sharded weights.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}

/// The weight files of a folder: those of an index where there is one, else the one of a known name, else all. Of
/// variants (`model.fp16.safetensors`) the plain one is taken where it is there.
fn weights(path: &Path, stems: &[&str], notes: &mut Vec<String>) -> Result<Vec<PathBuf>, OpenError> {
    for stem in stems {
        let index_path = path.join(format!("{stem}.safetensors.index.json"));
        if index_path.is_file() {
            let text = read(&index_path)?;
            let index: ShardIndex = serde_json::from_slice(&text).map_err(OpenError::of(&index_path))?;
            let mut shards: Vec<&String> =
                index.weight_map.values().filter(|shard| !shard.contains(['/', '\\'])).collect();
            shards.sort();
            shards.dedup();
            let (here, missing): (Vec<PathBuf>, Vec<PathBuf>) =
                shards.iter().map(|shard| path.join(shard)).partition(|shard| shard.is_file());
            if !missing.is_empty() {
                notes.push(format!("{} of {} weight files are missing", missing.len(), shards.len()));
            }
            return Ok(here);
        }
        let single = path.join(format!("{stem}.safetensors"));
        if single.is_file() {
            return Ok(vec![single]);
        }
    }
    let all = listed(path, ".safetensors")?;
    if all.is_empty() {
        // Older models have PyTorch checkpoints; what a trainer puts next to them does not count.
        let mut checkpoints = listed(path, ".bin")?;
        let named = |file: &PathBuf, start: &str| {
            file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start))
        };
        let starts = ["pytorch_model", "diffusion_pytorch_model", "adapter_model"];
        checkpoints.retain(|file| starts.iter().any(|start| named(file, start)));
        return Ok(checkpoints);
    }
    // Of several variants any one is a whole model; half precision is what people load.
    for variant in ["fp16", "bf16"] {
        let marked: Vec<PathBuf> = all.iter().filter(|file| is_variant(file, variant)).cloned().collect();
        if !marked.is_empty() {
            return Ok(marked);
        }
    }
    Ok(all)
}

fn is_variant(file: &Path, variant: &str) -> bool {
    file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains(&format!(".{variant}")))
}

/// All parts of a GGUF model: `NAME-00001-of-00003.gguf` and its siblings, or the one file.
fn gguf_parts(path: &Path) -> Result<Model, OpenError> {
    let mut notes = Vec::new();
    let mut parts = vec![path.to_owned()];
    if let Some((stem, count)) = split_name(path) {
        parts = (1..=count).map(|part| path.with_file_name(format!("{stem}-{part:05}-of-{count:05}.gguf"))).collect();
        let missing = parts.iter().filter(|part| !part.is_file()).count();
        if missing > 0 {
            notes.push(format!("{missing} of {count} files of the model are missing"));
            parts.retain(|part| part.is_file());
        }
    }
    let mut component = Component { name: "model".into(), ..Component::default() };
    let mut settings = serde_json::Map::new();
    for part in &parts {
        let mut source = FileSource::open(part).map_err(OpenError::of(part))?;
        let header = gguf::read(&mut source).map_err(OpenError::of(part))?;
        component.class = component
            .class
            .or_else(|| header.setting("general.architecture").and_then(gguf::Value::as_text).map(str::to_owned));
        for (name, value) in &header.settings {
            settings.entry(name.clone()).or_insert_with(|| value.to_json());
        }
        component.tensors.extend(header.tensors);
    }
    component.config = Value::Object(settings);
    component.architecture = Architecture::of_gguf(&component.config, &component.tensors).ok();
    Ok(Model { layout: Layout::Gguf, components: vec![component], notes, ..Model::default() })
}

/// The name before `-00001-of-00003.gguf`, and the number of parts.
fn split_name(path: &Path) -> Option<(String, u32)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(part) || !digits(count) {
        return None;
    }
    let count = count.parse().ok().filter(|count| (1..=10_000).contains(count))?;
    Some((stem.to_owned(), count))
}

/// Files of a folder with this ending, by name.
fn listed(path: &Path, ending: &str) -> Result<Vec<PathBuf>, OpenError> {
    let entries = fs::read_dir(path).map_err(OpenError::of(path))?;
    let mut files: Vec<PathBuf> = entries
        .take(MOST_FILES)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(ending)))
        .filter(|file| file.is_file())
        .collect();
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    let mut source = FileSource::open(path).map_err(OpenError::of(path))?;
    if source.len() > LARGEST_CONFIG {
        return Err(OpenError {
            path: path.to_owned(),
            cause: OpenCause::NoModel("it is too large to be a configuration"),
        });
    }
    let mut text = vec![0; usize::try_from(source.len()).unwrap_or(0)];
    source.read_at(0, &mut text).map_err(OpenError::of(path))?;
    Ok(text)
}

fn json(path: &Path) -> Result<Value, OpenError> {
    serde_json::from_slice(&read(path)?).map_err(OpenError::of(path))
}

/// The type that a configuration says its weights have.
#[must_use]
pub fn configured_dtype(config: &Value) -> Option<Dtype> {
    let named = config.get("dtype").or_else(|| config.get("torch_dtype")).and_then(Value::as_str)?;
    Some(Dtype::of_torch(named))
}

/// The tensors of a component by name.
#[must_use]
pub fn by_name(tensors: &[Tensor]) -> BTreeMap<&str, &Tensor> {
    tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safetensors_file(path: &Path, tensors: &[(&str, &str, &[u64], u64)]) {
        let mut at = 0;
        let entries: Vec<String> = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                let entry =
                    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{at},{}]}}"#, at + bytes);
                at += bytes;
                entry
            })
            .collect();
        let header = format!("{{{}}}", entries.join(","));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn a_sharded_folder_is_one_model() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::write(path.join("config.json"), r#"{"architectures":["LlamaForCausalLM"],"dtype":"bfloat16"}"#).unwrap();
        let map = r#"{"metadata":{},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-3.safetensors"}}"#;
        fs::write(path.join("model.safetensors.index.json"), map).unwrap();
        safetensors_file(&path.join("model-1.safetensors"), &[("a", "BF16", &[2, 3], 12)]);
        safetensors_file(&path.join("model-2.safetensors"), &[("b", "F32", &[5], 20)]);
        let model = open(path).unwrap();
        assert_eq!(model.notes, ["1 of 3 weight files are missing"]);
        let component = &model.components[0];
        assert_eq!(
            (component.class.as_deref(), component.bytes(), component.elements()),
            (Some("LlamaForCausalLM"), 32, 11)
        );
        assert_eq!(component.by_dtype(), [(Dtype::Float32, 20), (Dtype::Bfloat16, 12)]);
        assert_eq!(configured_dtype(&component.config), Some(Dtype::Bfloat16));
    }

    #[test]
    fn a_pipeline_has_its_networks_and_not_its_tokenizers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let index = r#"{"_class_name":"StableDiffusionPipeline","unet":["diffusers","UNet2DConditionModel"],
            "tokenizer":["transformers","CLIPTokenizer"],"safety_checker":[null,null],"../x":["a","b"]}"#;
        fs::write(path.join("model_index.json"), index).unwrap();
        for name in ["unet", "tokenizer"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        safetensors_file(&path.join("unet/diffusion_pytorch_model.fp16.safetensors"), &[("a", "F16", &[4], 8)]);
        let model = open(path).unwrap();
        assert_eq!(model.layout, Layout::Diffusers);
        assert_eq!(model.components.len(), 1);
        assert_eq!((model.components[0].name.as_str(), model.components[0].bytes()), ("unet", 8));
        assert_eq!(model.components[0].class.as_deref(), Some("UNet2DConditionModel"));
    }

    #[test]
    fn a_configuration_alone_gives_the_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":2,
            "hidden_size":64,"intermediate_size":128,"num_attention_heads":4,"vocab_size":100,"dtype":"bfloat16",
            "tie_word_embeddings":true}"#;
        fs::write(folder.path().join("config.json"), config).unwrap();
        let model = open(folder.path()).unwrap();
        let component = &model.components[0];
        // Embedding, 2 layers of 4 projections, 3 of the MLP and 2 norms, last norm; and twice 8 frequencies.
        let parameters = 100 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64;
        assert_eq!(component.elements(), parameters + 2 * 8);
        assert_eq!(component.bytes(), parameters * 2 + 2 * 8 * 4);
        assert!(model.notes[0].contains("configuration gives it"));

        // With weights that hold the tied layer twice, it counts once.
        let tensors = [
            ("model.embed_tokens.weight", "BF16", &[100_u64, 64][..], 12_800),
            ("lm_head.weight", "BF16", &[100, 64], 12_800),
        ];
        safetensors_file(&folder.path().join("model.safetensors"), &tensors);
        let model = open(folder.path()).unwrap();
        assert_eq!(model.components[0].bytes(), 12_800);
        assert!(model.notes[0].contains("counted once"));
    }

    #[test]
    fn checkpoints_of_pytorch_stand_in_for_safetensors() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), r#"{"model_type":"strange"}"#).unwrap();
        fs::write(folder.path().join("pytorch_model.bin"), include_bytes!("torch/fixtures/plain.pt")).unwrap();
        fs::write(folder.path().join("training_args.bin"), "not a checkpoint").unwrap();
        let model = open(folder.path()).unwrap();
        assert_eq!((model.components[0].bytes(), model.components[0].architecture.is_none()), (48, true));
        let model = open(&folder.path().join("pytorch_model.bin")).unwrap();
        assert_eq!((model.layout, model.components[0].bytes()), (Layout::Torch, 48));
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(open(folder.path()).unwrap_err().to_string().contains("no config.json"));
        let path = folder.path().join("weights.bin");
        fs::write(&path, "hello").unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("weights.bin: this is not a model file"));
        assert!(open(&folder.path().join("gone")).unwrap_err().to_string().contains("gone: cannot open it"));
    }

    #[test]
    fn the_parts_of_a_gguf_model_are_found_by_name() {
        assert_eq!(split_name(Path::new("/x/m-q4-00002-of-00003.gguf")), Some(("m-q4".into(), 3)));
        assert_eq!(split_name(Path::new("m.gguf")), None);
        assert_eq!(split_name(Path::new("m-1-of-3.gguf")), None);
    }
}

//! Resolves the model that the command line names.

use std::path::{Path, PathBuf};

use anyhow::Result;
use oomph_model::architecture::{Form, Head, Kind, Transformer};
use oomph_model::gguf::Recipe;
use oomph_model::{Architecture, Component, Http, Layout, Library, Model, ResolveError, Resolver, is_offline};
use oomph_plan::pipeline::Pipeline;
use oomph_plan::{Stored, Subject};
use serde_json::Value;

use crate::failure::hinted;
use crate::output;

/// A model that was found.
pub struct Found {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub subject: Subject,
    /// Where it is.
    pub origin: Origin,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Where a model is, for a program that loads it.
pub enum Origin {
    /// Known by name: what it is called on a hub, and its configuration (of a model that is one network).
    BuiltIn {
        /// Its name on a hub.
        hub: String,
        /// Its configuration.
        config: Value,
    },
    /// A folder, or a file in one that Python's libraries load as such.
    Folder(PathBuf),
    /// A name on a hub, in the local cache or on the network.
    Hub {
        /// The name.
        name: String,
    },
    /// A single file.
    File,
}

/// Finds a model: a path that exists, a folder of the local cache, a built-in name, or a name on a hub.
///
/// # Errors
/// When there is none, or it cannot be read, or its architecture is not known.
pub fn find(name: &str, quiet: bool) -> Result<Found> {
    let path = Path::new(name);
    let (model, origin) = match Resolver::offline().resolve(name) {
        Ok(model) => {
            let origin = match model.layout {
                _ if path.is_dir() => Origin::Folder(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
                _ if path.exists() => Origin::File,
                Layout::BuiltIn => built_in(&model),
                _ => Origin::Hub { name: name.to_owned() },
            };
            (model, origin)
        }
        Err(ResolveError::Open(error)) => return Err(error.into()),
        Err(ResolveError::Unknown { nearest, .. }) => match on_a_hub(name, quiet) {
            Some(Ok(model)) => (model, Origin::Hub { name: name.to_owned() }),
            answer => return Err(unknown(name, &nearest, answer.and_then(Result::err))),
        },
        Err(error) => return Err(error.into()),
    };
    subject(model, origin)
}

/// Asks a hub for the headers of a model whose name could be one there; `None` where it was not asked.
fn on_a_hub(name: &str, quiet: bool) -> Option<std::result::Result<Model, String>> {
    let could_be = name.split('/').count() == 2 && !name.starts_with(['.', '/', '~']) && !name.contains('\\');
    if is_offline() || !could_be || Path::new(name).extension().is_some_and(|end| end == "gguf") {
        return None;
    }
    output::tell(&format!("oomph: asking the hub for the headers of {}", oomph_report::clean(name)), quiet);
    let http = Http::default();
    let resolver = Resolver { cache: None, network: Some(&http), ..Resolver::offline() };
    Some(resolver.resolve(name).map_err(|error| match error {
        ResolveError::Unknown { network: Some(answer), .. } => answer,
        error => error.to_string(),
    }))
}

fn unknown(name: &str, nearest: &[String], hub: Option<String>) -> anyhow::Error {
    let asked = hub.map_or_else(String::new, |answer| format!(" ({answer})"));
    let hint = match nearest {
        [] => {
            "name a folder or a file of a model, a model on the Hub as OWNER/NAME, or a model that is built in".into()
        }
        nearest => format!("did you mean {}? a folder or a file works too", nearest.join(", ")),
    };
    hinted(format!("there is no model `{}` here{asked}", oomph_report::clean(name)), hint)
}

fn built_in(model: &Model) -> Origin {
    let entry = Library::builtin().find(&model.name);
    let hub = entry.and_then(|entry| entry.aliases.iter().find(|alias| alias.contains('/')));
    let config = match model.components.as_slice() {
        [part] => part.config.clone(),
        _ => Value::Null,
    };
    Origin::BuiltIn { hub: hub.unwrap_or(&model.name).clone(), config }
}

fn subject(model: Model, origin: Origin) -> Result<Found> {
    let name = model.name.clone();
    let notes = model.notes.clone();
    if let [part] = model.components.as_slice()
        && let Some(Architecture::Transformer(shape)) = &part.architecture
    {
        let mut shape = shape.clone();
        // A configuration without a head is planned as what it was made for.
        if shape.head == Head::None && shape.kind == Kind::Decoder {
            shape.head = Head::Language;
        }
        let stored = stored(model.layout, part, &shape);
        let subject = Subject::Transformer { shape, stored };
        return Ok(Found { name, subject, origin, notes });
    }
    let pipeline = Pipeline::of(&model.components);
    if pipeline.denoises() || pipeline.is_guided() {
        let mut notes = notes;
        if let [_] = model.components.as_slice()
            && matches!(model.layout, Layout::Safetensors | Layout::Torch)
        {
            notes.push("the file holds the denoiser alone; text encoders and the autoencoder come on top".into());
        }
        return Ok(Found { name, subject: Subject::Pipeline(Box::new(pipeline)), origin, notes });
    }
    Err(match model.layout {
        Layout::Adapter => adapter(&model),
        _ if is_adapter(&model) => adapter(&model),
        _ => {
            let config = model.components.first().map(|part| &part.config).filter(|config| config.is_object());
            let why = config.and_then(|config| Architecture::of_config(config).err());
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            hinted(
                format!("the architecture of `{}` is not known{why}", oomph_report::clean(&name)),
                "pass a folder with config.json, a GGUF file or a built-in name",
            )
        }
    })
}

/// Weights whose size their files tell, because no precision does: GGUF, and what is quantized otherwise.
fn stored(layout: Layout, part: &Component, shape: &Transformer) -> Option<Stored> {
    if layout == Layout::Gguf {
        let table = part.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
        let (most, _) = part.by_dtype().into_iter().next()?;
        return Some(Stored {
            bytes: part.bytes(),
            format: format!("GGUF, mostly {most}"),
            llama_cpp: Some(table.map_or(0, |table| table.bytes)),
        });
    }
    let quantization = part.quantization()?;
    let format = serde_json::to_value(quantization.method).ok()?.as_str()?.to_owned();
    let of_files = part.tensors.iter().any(|tensor| !tensor.dtype.is_float());
    let bytes = if of_files {
        part.bytes()
    } else {
        // A configuration alone: its own rule says how many bits which weights have.
        let dtype = oomph_model::configured_dtype(&part.config).unwrap_or(oomph_model::Dtype::Bfloat16);
        let parameters = Architecture::Transformer(Box::new(shape.clone())).parameters();
        parameters.iter().fold(0, |sum: u64, one| sum.saturating_add(quantization.bytes(one, &dtype)))
    };
    Some(Stored { bytes, format, llama_cpp: None })
}

/// The model as the GGUF file that llama.cpp would make of it.
///
/// # Errors
/// When llama.cpp cannot serve the model, or it is quantized already.
pub fn as_gguf(found: Found, recipe: Recipe) -> Result<Found> {
    match found.subject {
        Subject::Transformer { shape, stored: None } if oomph_plan::serves(&shape) => {
            let parameters = Architecture::Transformer(shape.clone()).parameters();
            let table = parameters.iter().find(|one| one.form == Form::Table);
            let table = table.and_then(|table| recipe.kind(table, &shape).bytes(table.elements()));
            let stored = Stored { bytes: recipe.bytes(&shape), format: recipe.name.to_owned(), llama_cpp: table };
            Ok(Found { subject: Subject::Transformer { shape, stored: Some(stored) }, ..found })
        }
        Subject::Transformer { stored: Some(_), .. } => {
            Err(hinted(format!("`{}` is quantized already", oomph_report::clean(&found.name)), "leave out --gguf"))
        }
        _ => Err(hinted(
            format!("`{}` is not a language model that llama.cpp supports", oomph_report::clean(&found.name)),
            "leave out --gguf",
        )),
    }
}

/// A pipeline whose UNet has a ControlNet.
///
/// # Errors
/// When the one is not a pipeline of a UNet, or the other is not a ControlNet.
pub fn with_control(found: Found, control: Found) -> Result<Found> {
    let [name, other] = [&found.name, &control.name].map(|name| oomph_report::clean(name).to_string());
    match (found.subject, control.subject) {
        (Subject::Pipeline(mut pipeline), Subject::Pipeline(control)) if control.is_control() => {
            pipeline.networks.extend(control.networks);
            let name = format!("{name} with {other}");
            Ok(Found { name, subject: Subject::Pipeline(pipeline), ..found })
        }
        (Subject::Pipeline(_), _) => {
            Err(hinted(format!("`{other}` is not a ControlNet"), "such as controlnet-sd15 or controlnet-sdxl"))
        }
        _ => Err(hinted(format!("`{name}` makes no images"), "leave out --controlnet")),
    }
}

/// Whether a single file holds the matrices of LoRA and nothing else, as their names say.
fn is_adapter(model: &Model) -> bool {
    let mut names =
        model.components.iter().flat_map(|part| &part.tensors).map(|tensor| tensor.name.as_str()).peekable();
    names.peek().is_some() && names.all(|name| name.contains("lora_") || name.ends_with(".alpha"))
}

/// An adapter names its base model, which is what has to be planned.
fn adapter(model: &Model) -> anyhow::Error {
    let part = model.components.first();
    let text = |name: &str| part.and_then(|part| part.config.get(name)).and_then(Value::as_str).unwrap_or_default();
    let rank = part.and_then(|part| part.config.get("r")).and_then(Value::as_u64).unwrap_or(16);
    let bytes = part.map_or(0, oomph_model::Component::bytes);
    let base = oomph_report::clean(text("base_model_name_or_path"));
    let size = if bytes > 0 { format!(" of {}", oomph_gpu::size::format(bytes)) } else { String::new() };
    let message = format!("`{}` is a LoRA adapter{size}, not a model", oomph_report::clean(&model.name));
    if base.is_empty() {
        return hinted(message, "plan the model that it was trained on, with --task lora");
    }
    hinted(message, format!("plan its base model: oomph plan {base} --task lora --lora-rank {rank}"))
}

//! The model that was named.

use std::path::Path;

use anyhow::Result;
use oomph_model::architecture::Head;
use oomph_model::{Architecture, Layout, Library, Model};
use oomph_plan::Subject;
use oomph_plan::pipeline::Pipeline;

use crate::failure::hinted;

/// A model that was found.
pub struct Found {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub subject: Subject,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Finds a model: a path that exists, else a built-in name.
///
/// # Errors
/// When there is none, or it cannot be read, or its architecture is not known.
pub fn find(name: &str) -> Result<Found> {
    let path = Path::new(name);
    let model = if path.exists() { oomph_model::open(path)? } else { built_in(name)? };
    subject(model)
}

fn built_in(name: &str) -> Result<Model> {
    Library::builtin().model(name).map_err(|unknown| {
        let hint = match unknown.nearest.as_slice() {
            [] => "name a folder or a file of a model, or a model that is built in".to_owned(),
            nearest => format!("did you mean {}? a folder or a file works too", nearest.join(", ")),
        };
        hinted(format!("there is no model `{}` here", oomph_report::clean(name)), hint)
    })
}

fn subject(model: Model) -> Result<Found> {
    let files = matches!(model.layout, Layout::Gguf);
    let bytes = model.components.iter().fold(0_u64, |sum, part| sum.saturating_add(part.bytes()));
    let name = model.name.clone();
    let notes = model.notes.clone();
    if let [part] = model.components.as_slice()
        && let Some(Architecture::Transformer(shape)) = &part.architecture
    {
        let mut shape = shape.clone();
        // A configuration without a head is planned as what it was made for.
        if shape.head == Head::None && shape.kind == oomph_model::architecture::Kind::Decoder {
            shape.head = Head::Language;
        }
        let subject = Subject::Transformer { shape, file_bytes: files.then_some(bytes) };
        return Ok(Found { name, subject, notes });
    }
    let pipeline = Pipeline::of(&model.components);
    if pipeline.denoises() {
        return Ok(Found { name, subject: Subject::Pipeline(Box::new(pipeline)), notes });
    }
    Err(hinted(
        format!("the architecture of `{}` is not known", oomph_report::clean(&name)),
        "a folder with config.json, a GGUF file or a built-in name tells it",
    ))
}

//! Reads a model's headers from a hub like Hugging Face's, by HTTP ranges: no weights are downloaded.

use std::io;

use serde_json::Value;

use crate::{Component, Layout, Model, ModelError, Source, safetensors};

/// The hub that names belong to unless `HF_ENDPOINT` says otherwise.
pub(crate) const ENDPOINT: &str = "https://huggingface.co";
/// Configurations are small; a file larger than this, in bytes, is not one.
const LARGEST_CONFIG: u64 = 64 << 20;
/// The least that is asked for of a file of weights: most headers fit.
const PIECE: u64 = 64 << 10;
/// More files of weights than any model has.
const MOST_SHARDS: usize = 1000;

/// How a server is asked. Tests and programs with a client of their own bring their own.
pub trait Network {
    /// Asks for a part of what is at an address: `length` bytes from `start`, or fewer where it ends before. A server
    /// may send the whole where it is shorter than that.
    ///
    /// # Errors
    /// When there is no connection, no answer in time, or no bytes in it.
    fn get(&self, url: &str, start: u64, length: u64) -> Result<Answer, NetworkError>;
}

/// What a server sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The bytes that were asked for.
    pub bytes: Vec<u8>,
    /// The length of the whole, in bytes.
    pub total: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// The server says no.
    #[error("the hub answers {status}{}", advice(*status))]
    Status {
        /// The HTTP status.
        status: u16,
    },
    /// There is no server, or it does not speak.
    #[error("the hub cannot be reached ({0})")]
    Unreachable(String),
    /// It sent something that cannot be used.
    #[error("the hub sent what cannot be read: {0}")]
    Unreadable(String),
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => ", for a model that needs a token: set HF_TOKEN",
        404 => ", it has no such model",
        _ => "",
    }
}

/// Reads a model's configuration and the headers of its weights.
pub(crate) fn read(network: &dyn Network, endpoint: &str, name: &str) -> Result<Model, NetworkError> {
    let hub = Hub { network, base: format!("{endpoint}/{name}/resolve/main") };
    let mut model = Model { name: name.to_owned(), ..Model::default() };
    if let Some(index) = hub.json("model_index.json")? {
        model.layout = Layout::Diffusers;
        for (part, entry) in index.as_object().into_iter().flatten() {
            let class = entry.get(1).and_then(Value::as_str);
            let plain = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let (Some(class), true, false) = (class, plain, part.starts_with('_')) else { continue };
            let Some(config) = hub.json(&format!("{part}/config.json"))? else { continue };
            let mut component = hub.component(part, &format!("{part}/"), config)?;
            component.class = component.class.or_else(|| Some(class.to_owned()));
            model.components.push(component);
        }
        return Ok(model);
    }
    let config = hub.json("config.json")?.ok_or(NetworkError::Status { status: 404 })?;
    model.components.push(hub.component("model", "", config)?);
    Ok(model)
}

struct Hub<'a> {
    network: &'a dyn Network,
    base: String,
}

impl Hub<'_> {
    /// A JSON file; `None` where there is none.
    fn json(&self, file: &str) -> Result<Option<Value>, NetworkError> {
        let answer = match self.network.get(&format!("{}/{file}", self.base), 0, LARGEST_CONFIG) {
            Err(NetworkError::Status { status: 404 }) => return Ok(None),
            answer => answer?,
        };
        let unreadable = |error: serde_json::Error| NetworkError::Unreadable(format!("{file} is not JSON ({error})"));
        serde_json::from_slice(&answer.bytes).map(Some).map_err(unreadable)
    }

    /// One network: the tensors of its files where they are safetensors, else those that its configuration gives it.
    fn component(&self, name: &str, folder: &str, config: Value) -> Result<Component, NetworkError> {
        let dtype = crate::configured_dtype(&config).unwrap_or(crate::Dtype::Float32);
        let mut component = Component::of_config(name, config, &dtype);
        let stems = ["model", "diffusion_pytorch_model"];
        let mut files = Vec::new();
        for stem in stems {
            if let Some(index) = self.json(&format!("{folder}{stem}.safetensors.index.json"))? {
                let shards = index.get("weight_map").and_then(Value::as_object).into_iter().flatten();
                files = shards.filter_map(|(_, shard)| shard.as_str().map(str::to_owned)).collect();
                files.sort();
                files.dedup();
                files.retain(|file| !file.contains(['/', '\\', '?', '#', '%']));
                files.truncate(MOST_SHARDS);
                break;
            }
        }
        if files.is_empty() {
            files = stems.iter().map(|stem| format!("{stem}.safetensors")).collect();
        }
        let mut tensors = Vec::new();
        for file in files {
            match self.header(&format!("{}/{folder}{file}", self.base)) {
                Ok(found) => tensors.extend(found),
                // Where there are no safetensors, the configuration has to do.
                Err(NetworkError::Status { status: 404 }) => {}
                Err(error) => return Err(error),
            }
        }
        if !tensors.is_empty() {
            component.tensors = tensors;
        }
        Ok(component)
    }

    fn header(&self, url: &str) -> Result<Vec<crate::Tensor>, NetworkError> {
        let first = self.network.get(url, 0, PIECE)?;
        let mut source = Remote { network: self.network, url, total: first.total, start: 0, buffer: first.bytes };
        let header = safetensors::read(&mut source);
        let unreadable = |error: ModelError| NetworkError::Unreadable(format!("{url}: {error}"));
        header.map(|header| header.tensors).map_err(unreadable)
    }
}

/// A file on a server, of which one piece is held.
struct Remote<'a> {
    network: &'a dyn Network,
    url: &'a str,
    total: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl Source for Remote<'_> {
    fn len(&self) -> u64 {
        self.total
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let held = |this: &Self| {
            let from = usize::try_from(offset.checked_sub(this.start)?).ok()?;
            this.buffer.get(from..from.checked_add(buffer.len())?).map(<[u8]>::to_vec)
        };
        let bytes = match held(self) {
            Some(bytes) => bytes,
            None => {
                let answer = self.network.get(self.url, offset, PIECE.max(buffer.len() as u64));
                (self.start, self.buffer) = (offset, answer.map_err(io::Error::other)?.bytes);
                held(self).ok_or(io::ErrorKind::UnexpectedEof)?
            }
        };
        buffer.copy_from_slice(&bytes);
        Ok(())
    }
}

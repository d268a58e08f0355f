//! Resolves what a user calls a model: a path, a folder of the local Hugging Face cache, headers from a hub, or a
//! built-in name, in this order.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::hub::{self, Network};
use crate::{Library, Model, OpenError, folder};

/// Where models are looked for.
pub struct Resolver<'a> {
    /// The folder with `models--OWNER--NAME` folders.
    pub cache: Option<PathBuf>,
    /// How a hub is asked; `None` stays offline.
    pub network: Option<&'a dyn Network>,
    /// The hub's address, without a slash at its end.
    pub endpoint: String,
    /// The models that are known by name.
    pub library: &'a Library,
}

/// Why a name leads to no model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// There is something of this name, and it cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is nothing of this name.
    #[error("no model {name:?}: {}it is not a path, not in the local cache, {}", why(network), built_in(nearest))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What the hub answered, where it was asked.
        network: Option<String>,
        /// The built-in names that are most like it.
        nearest: Vec<String>,
    },
}

fn why(network: &Option<String>) -> String {
    network.as_ref().map_or_else(String::new, |answer| format!("{answer}; "))
}

fn built_in(nearest: &[String]) -> String {
    match nearest {
        [] => "and not built in; give a path to its files, or a name as the hub has it".to_owned(),
        names => format!("and not built in; the nearest built-in names are {}", names.join(", ")),
    }
}

impl Resolver<'static> {
    /// A resolver that stays offline: paths, the cache that the environment names, and built-in models.
    #[must_use]
    pub fn offline() -> Self {
        let endpoint = env::var("HF_ENDPOINT").ok().filter(|endpoint| !endpoint.is_empty());
        Self {
            cache: cache_folder(),
            network: None,
            endpoint: endpoint.unwrap_or_else(|| hub::ENDPOINT.to_owned()).trim_end_matches('/').to_owned(),
            library: Library::builtin(),
        }
    }
}

/// Whether the environment forbids to ask a hub, as Hugging Face's libraries have it.
#[must_use]
pub fn is_offline() -> bool {
    ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].iter().any(|name| {
        env::var(name).is_ok_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
    })
}

/// The cache of Hugging Face's libraries: `$HF_HUB_CACHE`, `$HF_HOME/hub`, or `~/.cache/huggingface/hub`.
#[must_use]
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HF_HUB_CACHE")
        .or_else(|| Some(set("HF_HOME")?.join("hub")))
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("huggingface/hub")))
        .or_else(|| Some(env::home_dir()?.join(".cache/huggingface/hub")))
}

impl Resolver<'_> {
    /// Finds the model of a name.
    ///
    /// # Errors
    /// When there is none, or its files are damaged.
    pub fn resolve(&self, name: &str) -> Result<Model, ResolveError> {
        let path = Path::new(name);
        if path.exists() {
            return Ok(self.described(folder::open(path)?));
        }
        if let Some(snapshot) = self.cached(name) {
            let mut model = self.described(folder::open(&snapshot)?);
            name.clone_into(&mut model.name);
            return Ok(model);
        }
        let mut answer = None;
        if let Some(network) = self.network.filter(|_| is_hub_name(name)) {
            match hub::read(network, &self.endpoint, name) {
                Ok(model) => return Ok(model),
                Err(error) => answer = Some(error.to_string()),
            }
        }
        self.library.model(name).map_err(|unknown| ResolveError::Unknown {
            name: name.to_owned(),
            network: answer,
            nearest: unknown.nearest,
        })
    }

    /// The newest snapshot of a model in the cache: the one that `refs/main` names, else any that is there.
    fn cached(&self, name: &str) -> Option<PathBuf> {
        if !is_hub_name(name) && !is_plain(name) {
            return None;
        }
        let folder = self.cache.as_ref()?.join(format!("models--{}", name.replace('/', "--")));
        let snapshots = folder.join("snapshots");
        let named = fs::read_to_string(folder.join("refs/main")).ok();
        let named = named.map(|commit| commit.trim().to_owned()).filter(|commit| is_plain(commit));
        let named = named.map(|commit| snapshots.join(commit)).filter(|snapshot| snapshot.is_dir());
        let snapshot = named.or_else(|| {
            let mut found: Vec<PathBuf> =
                fs::read_dir(&snapshots).ok()?.take(1000).filter_map(|entry| Some(entry.ok()?.path())).collect();
            found.sort();
            found.into_iter().rfind(|snapshot| snapshot.is_dir())
        })?;
        // A tokenizer may have been downloaded alone.
        ["config.json", "model_index.json", "adapter_config.json"]
            .iter()
            .any(|file| snapshot.join(file).is_file())
            .then_some(snapshot)
    }

    /// Adds what the library knows to a model of files that say nothing of their architecture: a pipeline in one file
    /// has networks that their number of parameters identifies.
    fn described(&self, mut model: Model) -> Model {
        for component in &mut model.components {
            if component.architecture.is_none() && component.config == Value::Null && !component.tensors.is_empty() {
                component.architecture = self.library.architecture_of(&component.name, &component.tensors);
            }
        }
        model
    }
}

/// `owner/name`, of the letters that a hub allows.
fn is_hub_name(name: &str) -> bool {
    name.split_once('/').is_some_and(|(owner, own)| is_plain(owner) && is_plain(own))
}

fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 96 && !name.starts_with('.') && !name.contains("..") && name.bytes().all(allowed)
}

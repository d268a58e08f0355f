//! Reads model files, or only their names, into tensors and architectures.
//!
//! A model of the built-in list; nothing is downloaded:
//!
//! ```
//! use oomph_model::Library;
//!
//! let model = Library::builtin().model("gpt2")?;
//! let network = &model.components[0];
//! assert_eq!(network.elements(), 124_439_808);
//! assert!(network.architecture.is_some());
//! # Ok::<(), oomph_model::UnknownModel>(())
//! ```
//!
//! Design constraints:
//! - Only headers are read: the tensors of a model of 140 GB are known in milliseconds, from a file on disk or through
//!   any other [`Source`] that can be asked for a range of bytes.
//! - Files are hostile. Every length is bounded before it is believed, and an error names the file's offset.
//! - A type of tensor that this version does not know is kept under its name, with the bytes that the file gives it.
#![forbid(unsafe_code)]

pub mod architecture;
pub mod gguf;
pub mod onnx;
pub mod safetensors;
pub mod torch;

mod dtype;
mod error;
mod folder;
#[cfg(feature = "network")]
mod http;
mod hub;
mod library;
mod model;
mod quantization;
mod resolve;
mod single_file;
mod source;
mod spelling;

mod tensor;

pub use architecture::Architecture;
pub use dtype::Dtype;
pub use error::ModelError;
pub use folder::{OpenCause, OpenError, by_name, configured_dtype, open};
#[cfg(feature = "network")]
pub use http::Http;
pub use hub::{Answer, Network, NetworkError};
pub use library::{Entry, Library, UnknownModel};
pub use model::{Component, Layout, Model};
pub use quantization::{Method, Quantization};
pub use resolve::{ResolveError, Resolver, cache_folder, is_offline};
pub use source::{FileSource, Source};
pub use tensor::Tensor;

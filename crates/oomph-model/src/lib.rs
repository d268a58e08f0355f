//! Model files to tensors, and a workload on them to bytes.
//!
//! Design constraints:
//! - Only headers are read: the tensors of a model of 140 GB are known in milliseconds, from a file on disk or through
//!   any other [`Source`] that can be asked for a range of bytes.
//! - Files are hostile. Every length is bounded before it is believed, and an error names the file's offset.
//! - A type of tensor that this version does not know is kept under its name, with the bytes that the file gives it.
#![forbid(unsafe_code)]

pub mod gguf;
pub mod safetensors;

mod dtype;
mod error;
mod folder;
mod model;
mod source;
mod tensor;

pub use dtype::Dtype;
pub use error::ModelError;
pub use folder::{OpenCause, OpenError, by_name, configured_dtype, open};
pub use model::{Component, Layout, Model};
pub use source::{FileSource, Source};
pub use tensor::Tensor;

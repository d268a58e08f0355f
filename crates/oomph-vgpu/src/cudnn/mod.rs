//! cuDNN.
//!
//! - `backend`: the graph API, by which frameworks ask for convolutions and attention. Its `descriptors` are made by the
//!   program's own libcudnn (`crate::libcudnn`), which is given a description of the `card` instead of a handle; where none
//!   can be asked (`source`), `model` makes them.
//! - The older API, by which frameworks still ask for recurrent networks (`rnn`, `rnn_v6`, `rnn_sizes`), batch
//!   normalization (`norm`), classification losses (`loss`) and some convolutions (`convolution`, and `algorithm`, which
//!   asks the graph API through `graph`). Its descriptors are structures of this library (`object`, `tensor`, `layers`,
//!   `attention`).
//! - `library`: versions, handles, errors.

#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuDNN's headers")]

mod algorithm;
mod attention;
mod backend;
mod card;
mod convolution;
mod descriptors;
mod graph;
mod layers;
mod library;
mod loss;
mod model;
mod norm;
mod object;
mod rnn;
mod rnn_sizes;
mod rnn_v6;
mod source;
mod tensor;

pub use algorithm::*;
pub use attention::*;
pub use backend::*;
pub use convolution::*;
pub use layers::*;
pub use library::*;
pub use loss::*;
pub use norm::*;
pub use rnn::*;
pub use rnn_v6::*;
pub use tensor::*;

#[cfg(test)]
mod tests;

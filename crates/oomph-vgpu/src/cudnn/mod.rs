//! cuDNN.
//!
//! - `backend`: the graph API, by which frameworks ask for convolutions and attention. Its `descriptors` are made by the
//!   program's own libcudnn (`real`, in its own `namespace`), which is given a description of the card (`props`) instead of
//!   a handle; where none can be asked (`source`), `model` makes them. `attribute` has what is passed, `plans` and
//!   `computations` what is remembered of it.
//! - The older API, by which frameworks still ask for recurrent networks (`rnn`, `rnn_v6`, `rnn_sizes`), batch
//!   normalization (`norm`), classification losses (`loss`) and some convolutions (`convolution`, and `algorithm`, which
//!   asks the graph API through `graph`). Its descriptors are structures of this library (`object`, `tensor`, `layers`,
//!   `attention`).
//! - `library`: versions, handles, errors; `status`: what calls answer; `state`: what is kept between them.

#![allow(clippy::too_many_arguments, reason = "the parameters are those of cuDNN's headers")]

mod algorithm;
mod attention;
mod attribute;
mod backend;
mod computations;
mod convolution;
mod descriptors;
mod graph;
mod layers;
mod library;
mod loss;
mod model;
pub mod namespace;
mod norm;
mod object;
mod plans;
mod props;
mod real;
mod rnn;
mod rnn_sizes;
mod rnn_v6;
mod source;
mod state;
mod status;
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

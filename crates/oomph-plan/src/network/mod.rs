//! Networks, executed on sizes.

pub mod decode;
mod parts;
mod transformer;

pub use parts::{Trained, Weights};
pub use transformer::Stack;

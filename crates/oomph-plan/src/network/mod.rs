//! Networks, executed on sizes.

mod attend;
pub mod autoencoder;
mod denoiser;
mod parts;
mod transformer;
mod unet;

pub(crate) use denoiser::Denoiser;
pub use parts::{Trained, Weights};
pub use transformer::Stack;
pub(crate) use unet::{Step, UNet};

//! Executes networks on sizes.

mod attend;
pub mod autoencoder;
mod denoiser;
mod parts;
mod transformer;
mod unet;
mod video;
mod vqgan;

pub(crate) use denoiser::Denoiser;
pub use parts::{Trained, Weights};
pub use transformer::{Part, Stack};
pub(crate) use unet::{Step, UNet};
pub(crate) use vqgan::Vqgan;

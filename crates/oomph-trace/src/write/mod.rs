//! Writes traces in the formats of other tools.

mod curve;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod pickle;
mod speedscope;
mod tensorboard;

pub use curve::{Sample, curve};
#[cfg(feature = "parquet")]
pub use parquet::parquet;
pub use perfetto::perfetto;
pub use pickle::{StackSharing, snapshot};
pub use speedscope::{Holding, speedscope};
pub use tensorboard::{EventWriter, tensorboard};

use crate::{Device, DeviceKind};

/// A device as PyTorch names it.
fn device_name(device: &Device) -> String {
    match device.kind {
        DeviceKind::Cuda => format!("cuda:{}", device.index),
        DeviceKind::PinnedHost => "pinned host".to_owned(),
        DeviceKind::Host => "cpu".to_owned(),
    }
}

//! Files inside the executable: the virtual GPU, put here by `build.rs`, and the Python hook.

use oomph_launch::RuntimeFiles;

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The runtime to unpack; `None` where this build has none, because its target is not Linux.
pub fn runtime() -> Option<RuntimeFiles<'static>> {
    VGPU_LIBRARY.map(|vgpu_library| RuntimeFiles { vgpu_library, python: oomph_hook::FILES })
}

//! Files inside the executable: the virtual GPU and the Python hook, packed by `build.rs`.

use std::io::Read;
use std::sync::LazyLock;

use flate2::read::DeflateDecoder;
use oomph_launch::RuntimeFiles;

// `LIBRARY` and `PYTHON` are the lengths of the files, in the order in which they lie in `PACKED`.
include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/embedded.deflate"));

struct Files {
    library: Option<&'static [u8]>,
    python: Vec<(&'static str, &'static [u8])>,
}

/// The files unpacked, which is done once and takes some milliseconds.
static FILES: LazyLock<Files> = LazyLock::new(|| {
    let mut bytes = Vec::with_capacity(UNPACKED);
    // They are part of the program and a test reads them, so this cannot fail in a program that was released.
    DeflateDecoder::new(PACKED).read_to_end(&mut bytes).expect("what the build packed can be unpacked");
    let mut rest: &'static [u8] = bytes.leak();
    let mut next = |length: usize| {
        let (file, behind) = rest.split_at(length);
        rest = behind;
        file
    };
    Files {
        library: LIBRARY.map(&mut next),
        python: PYTHON.iter().map(|&(name, length)| (name, next(length))).collect(),
    }
});

/// The runtime to unpack; `None` where this build has none, because its target is not Linux.
pub fn runtime() -> Option<RuntimeFiles<'static>> {
    FILES.library.map(|vgpu_library| RuntimeFiles { vgpu_library, python: python() })
}

/// The Python hook: paths below the folder that goes on `PYTHONPATH`, and contents.
pub fn python() -> &'static [(&'static str, &'static [u8])] {
    &FILES.python
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_what_is_unpacked() {
        assert_eq!(python(), oomph_hook::FILES);
        #[cfg(target_os = "linux")]
        assert!(runtime().expect("a library for Linux").vgpu_library.starts_with(b"\x7fELF"));
        let library = runtime().map_or(0, |runtime| runtime.vgpu_library.len());
        assert_eq!(library + python().iter().map(|(_, content)| content.len()).sum::<usize>(), UNPACKED);
    }
}

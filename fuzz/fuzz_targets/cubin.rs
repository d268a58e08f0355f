//! Images of kernels that a program hands to the driver.
#![no_main]

// The virtual GPU is a library of CUDA's and libc's own symbols, which must not be linked into the fuzzer; its reader
// of images is compiled alone.
#[path = "../../crates/oomph-vgpu/src/cubin.rs"]
#[allow(dead_code)]
mod cubin;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(code) = cubin::code(bytes) {
        assert!(code.kernels.values().all(|kernel| (1..=1024).contains(&kernel.max_threads)));
        let size = code.globals.size;
        assert!(code.globals.named.values().all(|(at, length)| at.checked_add(*length).is_some_and(|end| end <= size)));
        assert!(code.globals.contents.iter().all(|(at, bytes)| at + bytes.len() <= size));
    }
    if let Some(end) = cubin::table_end(bytes) {
        assert!(cubin::elf_bytes(bytes).is_none_or(|size| size >= end));
    }
    for (arch, _) in cubin::architectures(bytes) {
        assert!(arch < 256);
    }
});

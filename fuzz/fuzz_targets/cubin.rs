//! Images of kernels that a program hands to the driver.
#![no_main]

// The virtual GPU is a library of CUDA's and libc's own symbols, which must not be linked into the fuzzer; its reader
// of images stands for itself.
#[path = "../../crates/oomph-vgpu/src/cubin.rs"]
#[allow(dead_code)]
mod cubin;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(kernels) = cubin::kernels(bytes) {
        assert!(kernels.values().all(|kernel| (1..=1024).contains(&kernel.max_threads)));
    }
    if let Some(end) = cubin::table_end(bytes) {
        assert!(cubin::elf_bytes(bytes).is_none_or(|size| size >= end));
    }
    for (arch, _) in cubin::architectures(bytes) {
        assert!(arch < 256);
    }
});

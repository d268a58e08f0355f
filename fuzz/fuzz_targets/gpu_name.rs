//! A card as somebody types it, and as a driver names it.
#![no_main]

use oomph_gpu::Catalogue;

libfuzzer_sys::fuzz_target!(|input: (&str, u64)| {
    let (text, total_bytes) = input;
    let catalogue = Catalogue::builtin();
    match catalogue.find(text) {
        Ok(gpu) => assert_eq!(catalogue.find(&gpu.id).ok().map(|found| &found.id), Some(&gpu.id)),
        Err(unknown) => assert!(unknown.nearest.len() <= 3),
    }
    if let Some(gpu) = catalogue.matching(text, total_bytes) {
        assert!(gpu.capacity_bytes.abs_diff(total_bytes) <= gpu.capacity_bytes / 10);
    }
});

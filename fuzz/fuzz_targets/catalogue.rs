//! A catalogue of GPUs, and the questions that a valid one must be able to answer.
#![no_main]

use oomph_gpu::Catalogue;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(catalogue) = Catalogue::parse(text) else { return };
    for gpu in catalogue.iter() {
        assert_eq!(catalogue.find(&gpu.id).ok().map(|found| &found.id), Some(&gpu.id));
        assert!(gpu.capacity_low_bytes <= gpu.capacity_bytes && gpu.capacity_bytes <= gpu.capacity_high_bytes);
        let _ = catalogue.matching(&gpu.name, gpu.capacity_bytes);
    }
    assert!(catalogue.smallest_that_hold(0).count() == catalogue.len());
});

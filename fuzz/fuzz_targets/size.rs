//! Sizes as people write them.
#![no_main]

use oomph_gpu::size;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match size::parse(text) {
        Ok(bytes) => assert_eq!(size::parse(&bytes.to_string()), Ok(bytes)),
        Err(error) => assert!(error.to_string().len() < 300),
    }
});

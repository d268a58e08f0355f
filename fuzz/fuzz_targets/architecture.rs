//! Configurations of networks: any JSON is answered, and its tensors are counted without overflow.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(config) = serde_json::from_slice(data) else { return };
    let _ = oomph_model::Quantization::of_config(&config);
    let _ = oomph_model::Architecture::of_gguf(&config, &[]);
    if let Ok(architecture) = oomph_model::Architecture::of_config(&config) {
        let _ = architecture.parameter_count();
    }
});

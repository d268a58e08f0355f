//! The reader of model files of this kind: any bytes are answered, and what is read is no more than the file explains.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut source = data;
    let _ = oomph_model::onnx::read(&mut source);
});

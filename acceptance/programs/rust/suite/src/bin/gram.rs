//! The Gram matrix of all samples, which is too large for a small card: `gram [SAMPLES]`.

use cudarc::driver::{CudaContext, CudaSlice};

fn main() {
    let samples: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(40_000);
    if let Err(error) = run(samples) {
        eprintln!("Error: failed to compute the Gram matrix: {error}");
        std::process::exit(1);
    }
}

fn run(samples: usize) -> Result<(), Box<dyn std::error::Error>> {
    let stream = CudaContext::new(0)?.new_stream()?;
    let features: CudaSlice<f32> = stream.alloc_zeros(samples * 128)?;
    let gram: CudaSlice<f32> = stream.alloc_zeros(samples * samples)?;
    stream.synchronize()?;
    println!("entries={} features={}", gram.len(), features.len());
    Ok(())
}

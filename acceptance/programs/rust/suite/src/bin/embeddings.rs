//! Computes embeddings in batches and keeps each on the card for a search at the end: `embeddings [BATCHES]`.

use cudarc::driver::{CudaContext, CudaSlice, DriverError};

const BATCH: usize = 16384;
const WIDTH: usize = 1024;

fn main() -> Result<(), DriverError> {
    let batches = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(100);
    let stream = CudaContext::new(0)?.default_stream();
    let weights = stream.alloc_zeros::<f32>(WIDTH * WIDTH)?;
    let mut index: Vec<CudaSlice<f32>> = Vec::new();
    let texts = vec![1_f32; BATCH * WIDTH];
    for _ in 0..batches {
        let inputs = stream.clone_htod(&texts)?;
        let mut embedded = stream.alloc_zeros::<f32>(BATCH * WIDTH)?;
        stream.memcpy_dtod(&inputs, &mut embedded)?;
        index.push(embedded);
    }
    stream.synchronize()?;
    println!("vectors={} weights={}", index.len() * BATCH, weights.len());
    Ok(())
}

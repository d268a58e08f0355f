//! Trains in small batches and then validates all samples at once: `trainer [BATCH] [SAMPLES] [STEPS]`.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};

const WIDTH: usize = 4096;

struct Network {
    stream: Arc<CudaStream>,
    weights: Vec<CudaSlice<f32>>,
}

impl Network {
    fn new(stream: Arc<CudaStream>, layers: usize) -> Result<Self, DriverError> {
        let weights = (0..layers).map(|_| stream.alloc_zeros(WIDTH * WIDTH)).collect::<Result<_, _>>()?;
        Ok(Self { stream, weights })
    }

    fn forward(&self, samples: usize) -> Result<Vec<CudaSlice<f32>>, DriverError> {
        let mut activations = Vec::new();
        for _ in &self.weights {
            activations.push(self.stream.alloc_zeros::<f32>(samples * WIDTH)?);
        }
        Ok(activations)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let mut next = |ordinary| words.next().unwrap_or(Ok(ordinary));
    let (batch, samples, steps) = (next(512)?, next(40_000)?, next(20)?);
    let network = Network::new(CudaContext::new(0)?.default_stream(), 8)?;
    for _ in 0..steps {
        let activations = network.forward(batch)?;
        network.stream.synchronize()?;
        drop(activations);
    }
    println!("trained");
    let outputs = network.forward(samples)?;
    network.stream.synchronize()?;
    println!("validated={}", outputs.len());
    Ok(())
}

//! Trains a small network on the card, with burn.
//!
//!     burn_mlp WIDTH BATCH STEPS
//!
//! Each step sends its batch and reads its loss back. burn takes its memory in pages through CubeCL, which says how much it
//! holds; that and what the program counts itself is printed as `key=value` lines, for the test that compares them with
//! the report.

use burn::backend::cuda::CudaDevice;
use burn::backend::{Autodiff, Cuda};
use burn::module::Module;
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::activation::relu;
use burn::tensor::backend::Backend;
use burn::tensor::{ElementConversion, Tensor, TensorData};
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;

type Trained = Autodiff<Cuda>;

const FEATURES: usize = 512;
const LABELS: usize = 16;

/// Layers with a non-linear function between them.
#[derive(Module, Debug)]
struct Network<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    third: Linear<B>,
}

impl<B: Backend> Network<B> {
    fn new(width: usize, device: &B::Device) -> Self {
        Self {
            first: LinearConfig::new(FEATURES, width).init(device),
            second: LinearConfig::new(width, width).init(device),
            third: LinearConfig::new(width, LABELS).init(device),
        }
    }

    fn forward(&self, input: Tensor<B, 2>) -> Tensor<B, 2> {
        let values = relu(self.first.forward(input));
        let values = relu(self.second.forward(values));
        self.third.forward(values)
    }
}

/// Numbers that differ from each other and from those of another step.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 31 + seed * 7919) % 9973) as f32 / 9973.0).collect()
}

/// What CubeCL's pools hold of the card, in bytes.
fn reserved(device: &CudaDevice) -> Result<u64, Box<dyn std::error::Error>> {
    Ok(CudaRuntime::client(device).memory_usage()?.bytes_reserved)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<usize> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [width, batch, steps] = words.as_slice() else { return Err("usage: burn_mlp WIDTH BATCH STEPS".into()) };
    let device = CudaDevice::new(0);
    let mut network = Network::<Trained>::new(*width, &device);
    let parameters = network.num_params() * size_of::<f32>();
    let mut optimizer = AdamWConfig::new().init::<Trained, Network<Trained>>();

    let (mut sent, mut read, mut most_reserved) = (0, 0, 0);
    for step in 0..*steps {
        let (inputs, targets) = (numbers(batch * FEATURES, 2 * step), numbers(batch * LABELS, 2 * step + 1));
        sent += size_of_val(inputs.as_slice()) + size_of_val(targets.as_slice());
        let inputs = Tensor::<Trained, 2>::from_data(TensorData::new(inputs, [*batch, FEATURES]), &device);
        let targets = Tensor::<Trained, 2>::from_data(TensorData::new(targets, [*batch, LABELS]), &device);
        let outputs = network.forward(inputs);
        let loss = MseLoss::new().forward(outputs, targets, Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &network);
        network = optimizer.step(1e-3, network, gradients);
        read += size_of::<f32>();
        let _: f32 = loss.into_scalar().elem();
        most_reserved = most_reserved.max(reserved(&device)?);
    }

    println!("steps={steps}\nparameter_bytes={parameters}");
    // AdamW keeps two moments of each parameter.
    println!("state_bytes={}", 2 * parameters);
    println!("sent_bytes={sent}\nread_bytes={read}\nreserved_bytes={most_reserved}");
    Ok(())
}

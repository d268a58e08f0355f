//! Trains a small network on the card, with candle.
//!
//!     candle_mlp read|kept WIDTH BATCH STEPS
//!
//! `read` reads the loss of each step back immediately. `kept` keeps the losses on the card, to read
//! them together at the end: with a loss candle keeps every tensor that it was computed from, so that each step adds
//! its activations to those of all before it.
//!
//! Each counts what it does where it does it and prints that as `key=value` lines, for the test that compares them with
//! the report.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap};

const FEATURES: usize = 512;
const LABELS: usize = 16;
const LAYERS: usize = 3;

/// Layers with a non-linear function between them.
struct Network {
    layers: Vec<Linear>,
}

impl Network {
    fn new(width: usize, variables: &VarBuilder) -> Result<Self> {
        let widths: Vec<usize> =
            std::iter::once(FEATURES).chain([width; LAYERS - 1]).chain(std::iter::once(LABELS)).collect();
        let layers = widths
            .windows(2)
            .enumerate()
            .map(|(index, pair)| candle_nn::linear(pair[0], pair[1], variables.pp(format!("layer{index}"))))
            .collect::<Result<_>>()?;
        Ok(Self { layers })
    }

    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut values = input.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            values = layer.forward(&values)?;
            if index + 1 < self.layers.len() {
                values = values.relu()?;
            }
        }
        Ok(values)
    }
}

/// Numbers that differ from each other and from those of another step.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| ((index * 31 + seed * 7919) % 9973) as f32 / 9973.0).collect()
}

fn train(keeps: bool, width: usize, batch: usize, steps: usize) -> Result<()> {
    let device = Device::new_cuda(0)?;
    let variables = VarMap::new();
    let network = Network::new(width, &VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let parameters: usize = variables.all_vars().iter().map(|one| one.elem_count() * size_of::<f32>()).sum();
    let mut optimizer = AdamW::new(variables.all_vars(), ParamsAdamW::default())?;

    let (mut sent, mut read, mut losses) = (0, 0, Vec::new());
    for step in 0..steps {
        let (inputs, targets) = (numbers(batch * FEATURES, 2 * step), numbers(batch * LABELS, 2 * step + 1));
        sent += size_of_val(inputs.as_slice()) + size_of_val(targets.as_slice());
        let inputs = Tensor::from_slice(&inputs, (batch, FEATURES), &device)?;
        let targets = Tensor::from_slice(&targets, (batch, LABELS), &device)?;
        let outputs = network.forward(&inputs)?;
        let loss = candle_nn::loss::mse(&outputs, &targets)?;
        optimizer.backward_step(&loss)?;
        if keeps {
            losses.push(loss);
        } else {
            read += size_of::<f32>();
            loss.to_scalar::<f32>()?;
        }
    }
    for loss in &losses {
        read += size_of::<f32>();
        loss.to_scalar::<f32>()?;
    }

    println!("steps={steps}\nparameter_bytes={parameters}");
    // AdamW keeps two moments of each parameter.
    println!("state_bytes={}", 2 * parameters);
    println!("sent_bytes={sent}\nto_host_bytes={read}\nto_host_calls={}", read / size_of::<f32>());
    // What a step's loss keeps: the batch; what each layer but the last made of it, before and after the bias and after
    // what is not linear; what the last one made; the differences, their squares, the sum of those and its mean.
    let per_row = FEATURES + LABELS + (LAYERS - 1) * 3 * width + 2 * LABELS + 2 * LABELS;
    println!("graph_bytes={}", (batch * per_row + 2) * size_of::<f32>());
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [way, width, batch, steps] = words.as_slice() else {
        return Err("usage: candle_mlp read|kept WIDTH BATCH STEPS".into());
    };
    let keeps = match way.as_str() {
        "kept" => true,
        "read" => false,
        _ => return Err(format!("{way} is neither read nor kept").into()),
    };
    Ok(train(keeps, width.parse()?, batch.parse()?, steps.parse()?)?)
}

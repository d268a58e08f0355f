//! The operations on maps: images and videos of features, with channels.
//!
//! Convolutions are cuDNN's, which may take a workspace from PyTorch's allocator while they run.

use smallvec::smallvec;

use super::{Few, Kind, Tape, TapeOwner, Tensor};

/// A convolution and its bias.
#[derive(Clone)]
pub struct Convolution {
    /// Channels in.
    pub inputs: u64,
    /// Channels out.
    pub outputs: u64,
    /// Numbers of its window: 9 for 3 x 3.
    pub taps: u64,
    /// The windows.
    pub weight: Tensor,
    /// The bias.
    pub bias: Option<Tensor>,
}

/// How many maps of which size, whatever their channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Maps (samples).
    pub samples: u64,
    /// Places of a map: pixels, or pixels times frames.
    pub places: u64,
}

impl Extent {
    /// Numbers of so many channels of these maps.
    #[must_use]
    pub fn numbers(self, channels: u64) -> u64 {
        self.samples.saturating_mul(self.places).saturating_mul(channels)
    }

    /// The same maps with twice the width and height.
    #[must_use]
    pub fn doubled(self) -> Self {
        Self { places: self.places.saturating_mul(4), ..self }
    }

    /// The same maps with half the width and height.
    #[must_use]
    pub fn halved(self) -> Self {
        Self { places: self.places.div_ceil(4), ..self }
    }
}

impl Tape {
    /// A convolution of maps into maps of the extent `to`.
    ///
    /// For one sample cuDNN turns both maps into its own layout, in a workspace; for several it takes an algorithm that
    /// needs none (answers of cuDNN 9 for compute capability 9.0, `calibration/README.md`).
    pub fn convolve(&self, layer: &Convolution, x: &Tensor, to: Extent) -> Tensor {
        let x = self.cast_for_product(x);
        let weight = self.cast_for_product(&layer.weight);
        let bias = layer.bias.as_ref().map(|bias| self.cast_for_product(bias));
        let mut out = self.empty(to.numbers(layer.outputs), x.kind);
        let (from_count, to_count, kind) = (x.count, out.count, x.kind);
        let (weights, windowed) = (weight.count, layer.taps > 1);
        let workspace = move |tape: &Tape| {
            if to.samples == 1 && windowed {
                let numbers = from_count.saturating_add(to_count).saturating_add(weights);
                drop(tape.owned(TapeOwner::Workspaces, || tape.empty(numbers, kind)));
            }
        };
        workspace(self);
        // One formula gives all gradients, so both are kept whichever of them is wanted: frozen windows keep their input too.
        let saved = (x.detach(), weight.detach());
        let mut inputs: Few<&Tensor> = smallvec![&x, &weight];
        inputs.extend(&bias);
        let wants: Few<(u64, Kind, bool)> = inputs.iter().map(|t| (t.count, t.kind, t.requires_grad())).collect();
        self.record(&mut out, &inputs, || {
            Box::new(move |tape, grads| {
                let results = wants
                    .into_iter()
                    .map(|(count, kind, wanted)| {
                        wanted.then(|| {
                            let result = tape.empty(count, kind);
                            workspace(tape);
                            result
                        })
                    })
                    .collect();
                drop((saved, grads));
                results
            })
        });
        out
    }

    /// `torch.group_norm`: the input and two numbers a sample and group are kept.
    pub fn group_norm(&self, x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, rows: u64) -> Tensor {
        self.layer_norm(x, weight, bias, x.count / rows.max(1))
    }

    /// Maps made larger or smaller without weights (`interpolate`), whose gradient is made again.
    pub fn resized(&self, x: &Tensor, count: u64) -> Tensor {
        let mut out = self.empty(count, x.kind);
        let (whole, kind) = (x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(whole, kind))]));
        out
    }

    /// The mean squared difference of two tensors of fp32: the difference is kept.
    pub fn squared_error(&self, x: &Tensor, target: &Tensor) -> Tensor {
        let x = self.cast(x, Kind::Single);
        let target = self.cast(target, Kind::Single);
        let mut loss = self.empty(1, Kind::Single);
        let saved = (x.detach(), target.detach());
        let count = x.count;
        self.record(&mut loss, &[&x], || {
            Box::new(move |tape, grads| {
                let result = tape.empty(count, Kind::Single);
                drop((saved, grads));
                smallvec![Some(result)]
            })
        });
        loss
    }
}

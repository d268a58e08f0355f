//! The parts that networks are made of, and the weights that they hold.

use oomph_remedy::effect;

use crate::tape::{Adapter, Convolution, Kind, Linear, Tape, TapeOwner, Tensor};
use crate::workload::{Objective, Precision, Targets, Task, Workload};

/// What a weight is to the optimizer and to LoRA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A matrix of a layer that PEFT adapts by default.
    Adapted,
    /// Another matrix of a layer.
    Matrix,
    /// A table of embeddings.
    Table,
    /// The output layer.
    Head,
    /// A norm, a bias or a bare tensor.
    Other,
}

/// A weight that is trained.
#[derive(Clone)]
pub struct Trained {
    /// It.
    pub tensor: Tensor,
    /// Its rows, where it is a matrix.
    pub rows: u64,
    /// Its columns; 0 where it is a vector.
    pub columns: u64,
    /// Whether it is a table of embeddings.
    pub is_table: bool,
    /// How many of its numbers the optimizer moves on this card, and their kind: a share of them where they are sharded.
    pub share: (u64, Kind),
}

/// Makes the weights of a network as a workload wants them.
pub struct Weights<'a> {
    /// The tape that they lie on.
    pub tape: &'a Tape,
    workload: &'a Workload,
    /// Everything that is trained, in the order of the network.
    pub trained: Vec<Trained>,
    /// Numbers of the network, adapters not counted.
    pub parameters: u64,
    frozen: Vec<Tensor>,
}

/// A norm's weights.
#[derive(Clone)]
pub struct Norm {
    /// The scale.
    pub weight: Option<Tensor>,
    /// The shift.
    pub bias: Option<Tensor>,
    /// Its width.
    pub width: u64,
    /// What it computes.
    pub style: NormStyle,
}

/// What a norm computes, step by step, which decides what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormStyle {
    /// PyTorch's own layer norm.
    Layer,
    /// Llama's root mean square: down to the input's type before the weight.
    Llama,
    /// Gemma's: in fp32 to the end.
    Gemma,
    /// T5's: the input is not made fp32.
    T5,
}

impl<'a> Weights<'a> {
    /// Nothing yet.
    pub fn new(tape: &'a Tape, workload: &'a Workload) -> Self {
        Self { tape, workload, trained: Vec::new(), parameters: 0, frozen: Vec::new() }
    }

    /// The kind of weights that are not quantized.
    pub fn kind(&self) -> Kind {
        // TRL loads the base model of adapters in fp32, where nothing quantizes it.
        let trl = self.workload.task == Task::Lora && self.workload.objective != Objective::Labels;
        let adapters = matches!(self.workload.task, Task::Lora | Task::Qlora) && !trl;
        match self.workload.precision {
            Precision::Fp32 => Kind::Single,
            Precision::AmpBf16 | Precision::AmpFp16
                if (self.workload.task.trains() || self.workload.task == Task::Evaluate) && !adapters =>
            {
                Kind::Single
            }
            _ => Kind::Half,
        }
    }

    fn is_trained(&self, place: Use) -> bool {
        match self.workload.task {
            Task::Full => true,
            Task::Freeze => place == Use::Head,
            _ => false,
        }
    }

    fn make(&mut self, rows: u64, columns: u64, place: Use, kind: Kind) -> Tensor {
        let count = rows.saturating_mul(columns.max(1));
        self.parameters = self.parameters.saturating_add(count);
        let cards = self.tape.cards();
        let share = (count.div_ceil(cards), kind);
        let mut tensor = self.tape.owned(TapeOwner::Weights, || self.tape.empty(share.0, share.1));
        if cards > 1 {
            // What a card holds is a share; what works is the whole of it, of the type that is computed with.
            let kind = if self.workload.precision.is_amp() { Kind::Half } else { kind };
            (tensor.count, tensor.kind) = (count, kind);
        }
        if !self.is_trained(place) {
            self.tape.join_unit(&tensor, share.1);
            self.frozen.push(tensor.clone());
            return tensor;
        }
        let tensor = self.tape.leaf(&tensor);
        self.tape.join_unit(&tensor, share.1);
        self.trained.push(Trained { tensor: tensor.clone(), rows, columns, is_table: place == Use::Table, share });
        tensor
    }

    /// A bare weight: a vector, or a matrix that is neither quantized nor adapted.
    pub fn bare(&mut self, rows: u64, columns: u64, place: Use) -> Tensor {
        let kind = if self.workload.task == Task::Qlora && self.workload.prepared { Kind::Single } else { self.kind() };
        self.make(rows, columns, place, kind)
    }

    /// A buffer of fp32, which is not a parameter.
    pub fn buffer(&mut self, count: u64) {
        let tensor = self.tape.owned(TapeOwner::Weights, || self.tape.empty(count, Kind::Single));
        self.frozen.push(tensor);
    }

    /// A linear layer.
    pub fn linear(&mut self, inputs: u64, outputs: u64, bias: bool, place: Use) -> Linear {
        let workload = self.workload;
        let in_layer = matches!(place, Use::Adapted | Use::Matrix);
        let four = workload.task == Task::Qlora || workload.precision == Precision::Nf4;
        let quantized = in_layer && (four || workload.precision == Precision::Int8);
        let weight = if quantized {
            let count = inputs.saturating_mul(outputs);
            self.parameters = self.parameters.saturating_add(count);
            self.quantized(count, four)
        } else {
            self.bare(outputs, inputs, place)
        };
        let bias = bias.then(|| self.bare(outputs, 0, Use::Other));
        let adapts = matches!(workload.task, Task::Lora | Task::Qlora)
            && (place == Use::Adapted || place == Use::Matrix && workload.lora.targets == Targets::AllLinear);
        let adapter = adapts.then(|| {
            let rank = workload.lora.rank;
            Adapter {
                down: Box::new(self.adapter(inputs, rank)),
                up: Box::new(self.adapter(rank, outputs)),
                dropout: workload.lora.dropout,
            }
        });
        Linear { inputs, outputs, weight, bias, quantized, adapter }
    }

    /// A convolution with a window of so many numbers.
    pub fn convolution(&mut self, inputs: u64, outputs: u64, taps: u64) -> Convolution {
        let weight = self.bare(outputs, inputs.saturating_mul(taps), Use::Other);
        let bias = Some(self.bare(outputs, 0, Use::Other));
        Convolution { inputs, outputs, taps, weight, bias }
    }

    /// LoRA's matrices for the experts of a layer, packed into one tensor: `count` matrices, each of them with a rank of
    /// its own. Where two matrices are fused, the rank is doubled (PEFT's `ParamWrapper`).
    pub fn expert_adapter(&mut self, count: u64, inputs: u64, outputs: u64, fused: bool) -> Option<(Tensor, Tensor)> {
        let workload = self.workload;
        let adapts = matches!(workload.task, Task::Lora | Task::Qlora) && workload.lora.targets == Targets::AllLinear;
        adapts.then(|| {
            let rank = count.saturating_mul(workload.lora.rank).saturating_mul(if fused { 2 } else { 1 });
            (self.adapter(inputs, rank).weight, self.adapter(rank, outputs).weight)
        })
    }

    /// One of LoRA's matrices: fp32 whatever the model is, as PEFT has it (`autocast_adapter_dtype`).
    fn adapter(&mut self, inputs: u64, outputs: u64) -> Linear {
        let count = inputs.saturating_mul(outputs);
        let share = (count.div_ceil(self.tape.cards()), Kind::Single);
        let mut tensor = self.tape.owned(TapeOwner::Weights, || self.tape.empty(share.0, share.1));
        tensor.count = count;
        let tensor = self.tape.leaf(&tensor);
        self.tape.join_unit(&tensor, share.1);
        self.trained.push(Trained { tensor: tensor.clone(), rows: outputs, columns: inputs, is_table: false, share });
        Linear { inputs, outputs, weight: tensor, bias: None, quantized: false, adapter: None }
    }

    /// The bytes of a matrix of so many numbers in bitsandbytes' formats: the packed numbers, and their scales.
    fn quantized(&mut self, count: u64, four: bool) -> Tensor {
        let tape = self.tape;
        tape.owned(TapeOwner::Weights, || {
            if !four {
                self.frozen.push(tape.bytes((count / 4096).saturating_mul(4)));
                return tape.bytes(count);
            }
            let blocks = count.div_ceil(64);
            if self.workload.double_quantization {
                self.frozen.push(tape.bytes(blocks));
                self.frozen.push(tape.bytes(blocks.div_ceil(256) * 4));
                self.frozen.extend([tape.bytes(1024), tape.bytes(4)]);
            } else {
                self.frozen.push(tape.bytes((count as f64 * (effect::NF4 - 0.5)) as u64));
            }
            self.frozen.push(tape.bytes(64));
            tape.bytes(count.div_ceil(2))
        })
    }

    /// A norm.
    pub fn norm(&mut self, width: u64, style: NormStyle, weight: bool, bias: bool) -> Norm {
        let weight = weight.then(|| self.bare(width, 0, Use::Other));
        let bias = bias.then(|| self.bare(width, 0, Use::Other));
        Norm { weight, bias, width, style }
    }

    /// Keeps weights alive that no layer refers to, and says what is trained.
    pub fn finish(self) -> (Vec<Trained>, Vec<Tensor>, u64) {
        (self.trained, self.frozen, self.parameters)
    }
}

impl Norm {
    /// The norm of a tensor.
    pub fn forward(&self, tape: &Tape, x: &Tensor) -> Tensor {
        let rows = x.count / self.width.max(1);
        match (self.style, &self.weight) {
            (NormStyle::Layer, _) | (_, None) => {
                tape.layer_norm(x, self.weight.as_ref(), self.bias.as_ref(), self.width)
            }
            (NormStyle::Llama, Some(weight)) => {
                let mut hidden = tape.cast(x, Kind::Single);
                let mut variance = tape.reduced(&tape.keeping_input(&hidden), rows);
                variance = tape.keeping_output(&variance);
                hidden = tape.mul(&hidden, &variance);
                hidden = tape.cast(&hidden, x.kind);
                tape.mul(weight, &hidden)
            }
            (NormStyle::Gemma, Some(weight)) => {
                let hidden = tape.cast(x, Kind::Single);
                let variance = tape.keeping_output(&tape.reduced(&tape.keeping_input(&hidden), rows));
                let mut output = tape.mul(&hidden, &variance);
                drop((hidden, variance));
                let scale = tape.keeping_nothing(&tape.cast(weight, Kind::Single));
                output = tape.mul(&output, &scale);
                tape.cast(&output, x.kind)
            }
            (NormStyle::T5, Some(weight)) => {
                let variance = tape.reduced(&tape.keeping_input(&tape.cast(x, Kind::Single)), rows);
                let mut hidden = tape.mul(x, &tape.keeping_output(&variance));
                drop(variance);
                if weight.kind == Kind::Half {
                    hidden = tape.cast(&hidden, Kind::Half);
                }
                tape.mul(weight, &hidden)
            }
        }
    }
}

/// An activation function, by the name in the configuration.
pub fn activate(tape: &Tape, name: &str, x: &Tensor) -> Tensor {
    match name {
        "relu" | "sigmoid" | "tanh" => tape.keeping_output(x),
        "gelu_new" => {
            // Written out in Python: 0.5 x (1 + tanh(c (x + 0.044715 x^3))).
            let half = tape.keeping_nothing(x);
            let mut inner =
                tape.keeping_input(&if tape.is_autocast() { tape.cast(x, Kind::Single) } else { x.clone() });
            inner = tape.keeping_nothing(&inner);
            inner = tape.add(x, &inner);
            inner = tape.keeping_nothing(&inner);
            inner = tape.keeping_output(&inner);
            inner = tape.keeping_shared(&inner);
            tape.mul(&half, &inner)
        }
        _ => tape.keeping_input(x),
    }
}

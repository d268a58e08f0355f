//! The arithmetic of recurrent networks: where cuDNN puts their weights, and what it needs in addition to them.
//!
//! cuDNN documents none of this, and its size functions want a handle, which wants a GPU. The formulas were fitted to
//! what cuDNN 9.26 and 9.1 answer (both alike) over some ten thousand shapes: weights, their addresses and the reserve
//! space agree to the byte; the workspace of the standard algorithm agrees to the byte in single precision and within
//! 256 bytes in half precision. Not exact: the workspace of LSTMs with projections (within 9 %), and that of the
//! persistent algorithms, which depends on the card and is taken to be the standard one's. In the shapes that were
//! tried it was up to 12 MiB more for small hidden states, and up to 100 MiB more for the static algorithm, which
//! PyTorch chooses for single layers in half precision only.
#![deny(unsafe_code)]

const LSTM: i32 = 2;
const GRU: i32 = 3;

const SINGLE_INPUT_BIAS: i32 = 1;
const DOUBLE_BIAS: i32 = 2;
const SINGLE_RECURRENT_BIAS: i32 = 3;

/// What cuBLASLt is given by each layer and direction, in bytes.
const MATMUL_WORKSPACE: u64 = 8 << 20;
/// The workspace of a step of gates is bounded by so many steps.
const MOST_STEPS: u64 = 256;

/// A recurrent network, as far as sizes go.
#[derive(Clone, Debug)]
pub struct Shape {
    /// `cudnnRNNMode_t`
    pub cell: i32,
    /// `cudnnRNNBiasMode_t`
    pub bias: i32,
    /// 1 or 2.
    pub directions: u64,
    /// Layers of one direction.
    pub layers: u64,
    /// Numbers per input.
    pub input: u64,
    /// Numbers per hidden state.
    pub hidden: u64,
    /// Numbers per output of a direction; the same as `hidden` where nothing is projected.
    pub projection: u64,
    /// Whether the first layer takes its input unchanged.
    pub skips_input: bool,
    /// Bytes per number.
    pub element: u64,
    /// Whether outputs are dropped between layers.
    pub drops: bool,
    /// Whether sequences of different lengths may lie padded.
    pub padded: bool,
}

/// A batch of sequences.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The longest.
    pub steps: u64,
    /// How many.
    pub sequences: u64,
    /// All lengths together.
    pub total: u64,
}

/// A matrix or a bias among the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Rows.
    pub rows: u64,
    /// Columns; 1 for a bias.
    pub columns: u64,
}

impl Shape {
    /// Gates of a cell.
    pub fn gates(&self) -> u64 {
        match self.cell {
            LSTM => 4,
            GRU => 3,
            _ => 1,
        }
    }

    fn projects(&self) -> bool {
        self.projection != self.hidden
    }

    /// Numbers that a layer's cells read.
    fn layer_input(&self, layer: u64) -> u64 {
        match layer {
            0 if self.skips_input => 0,
            0 => self.input,
            _ => self.directions * self.projection,
        }
    }

    /// Numbers in the matrices of one direction of a layer.
    fn matrices_of(&self, layer: u64) -> u64 {
        let recurrent = self.gates() * self.hidden * (self.layer_input(layer) + self.projection);
        recurrent + if self.projects() { self.hidden * self.projection } else { 0 }
    }

    /// Numbers in all matrices.
    fn matrices(&self) -> u64 {
        (0..self.layers).map(|layer| self.directions * self.matrices_of(layer)).sum()
    }

    /// Biases of one direction of a layer.
    fn biases(&self) -> u64 {
        self.gates()
            * match self.bias {
                SINGLE_INPUT_BIAS | SINGLE_RECURRENT_BIAS => 1,
                DOUBLE_BIAS => 2,
                _ => 0,
            }
    }

    /// The bytes of all weights: the matrices of every layer, then the biases of every layer, without gaps.
    pub fn weights(&self) -> u64 {
        (self.matrices() + self.layers * self.directions * self.biases() * self.hidden) * self.element
    }

    /// The matrix `id` of a pseudo-layer (a direction of a layer): the gates' input matrices, their recurrent matrices,
    /// then the projection. `None` where there is none.
    pub fn matrix(&self, pseudo_layer: u64, id: u64) -> Option<Part> {
        let layer = self.layer_of(pseudo_layer)?;
        let gates = self.gates();
        let before: u64 = (0..pseudo_layer).map(|other| self.matrices_of(other / self.directions)).sum();
        let input = self.layer_input(layer);
        let (offset, rows, columns) = if id < gates {
            (id * self.hidden * input, self.hidden, input)
        } else if id < 2 * gates {
            let inputs = gates * self.hidden * input;
            (inputs + (id - gates) * self.hidden * self.projection, self.hidden, self.projection)
        } else if id == 2 * gates && self.projects() {
            (gates * self.hidden * (input + self.projection), self.projection, self.hidden)
        } else {
            return None;
        };
        (columns > 0).then_some(Part { offset: (before + offset) * self.element, rows, columns })
    }

    /// The bias that goes with the matrix `id` of a pseudo-layer. `None` where there is none.
    pub fn bias(&self, pseudo_layer: u64, id: u64) -> Option<Part> {
        self.layer_of(pseudo_layer)?;
        let gates = self.gates();
        let index = match self.bias {
            DOUBLE_BIAS => (id < 2 * gates).then_some(id),
            SINGLE_INPUT_BIAS => (id < gates).then_some(id),
            SINGLE_RECURRENT_BIAS => id.checked_sub(gates).filter(|index| *index < gates),
            _ => None,
        }?;
        let offset = self.matrices() + (pseudo_layer * self.biases() + index) * self.hidden;
        Some(Part { offset: offset * self.element, rows: self.hidden, columns: 1 })
    }

    fn layer_of(&self, pseudo_layer: u64) -> Option<u64> {
        (pseudo_layer < self.layers * self.directions).then(|| pseudo_layer / self.directions)
    }

    /// The bytes that a training step keeps for its backward pass: what every cell computed, the output between
    /// layers, and the dropout's masks.
    pub fn reserve(&self, batch: Batch) -> u64 {
        let kept = match self.cell {
            LSTM if self.projects() => 6 * self.hidden + self.projection,
            LSTM => 5 * self.hidden,
            GRU => 6 * self.hidden,
            _ => self.hidden,
        };
        let between = self.layers.saturating_sub(1);
        let numbers = self.directions * batch.total * (self.layers * kept + between * self.hidden);
        let mask = (batch.total * self.directions * self.hidden).div_ceil(8).next_multiple_of(32);
        numbers * self.element + 256 + if self.drops { between * self.directions * mask } else { 0 }
    }

    /// The bytes of scratch memory that every call asks for.
    pub fn workspace(&self, batch: Batch) -> u64 {
        let Batch { steps, sequences, total } = batch;
        let (gates, hidden, layers) = (self.gates(), self.hidden, self.layers);
        let cell = u64::from(self.cell == LSTM);
        let widest = self.input.max(hidden);
        // One phase holds the gates, another the gradients of inputs and outputs; the larger one counts.
        let (mut phase_gates, mut phase_gradients) = if self.directions == 1 {
            let chunk = if layers > 1 { steps.min(chunk(sequences, layers)) * sequences } else { total };
            (
                total.min(MOST_STEPS * sequences) * gates * hidden + sequences * layers * (gates + 2 * cell) * hidden,
                total * widest + chunk * hidden + sequences * layers * (1 + 2 * cell) * hidden,
            )
        } else {
            let between = if layers > 1 { 4 } else { 2 };
            (
                total * (2 * gates + 4) * hidden + sequences * layers * (2 * gates + 4 + 4 * cell) * hidden,
                total * (4 * widest + between * hidden) + sequences * layers * (6 + 4 * cell) * hidden,
            )
        };
        let mut bytes = MATMUL_WORKSPACE * layers * self.directions + 256;
        if self.padded {
            // Padded sequences are sorted and packed on their way in and out, and so are the states.
            let states = (2 + 2 * cell) * layers * self.directions * sequences * hidden;
            let packed = total * (self.input + self.directions * hidden) + states;
            phase_gates += packed;
            phase_gradients += 2 * packed;
            bytes += (8 * sequences).next_multiple_of(32);
        }
        if self.drops && self.directions == 1 && layers > 1 {
            phase_gates += total * hidden;
        }
        bytes + (self.matrices() + phase_gates.max(phase_gradients)) * self.element
    }
}

/// How many steps several layers of one direction work on at a time.
fn chunk(sequences: u64, layers: u64) -> u64 {
    match sequences {
        0 | 1 => 32 * (layers + 1),
        2..=8 => 16 * (layers + 1),
        9..=16 => 8 * (layers + 1),
        17..=96 => 4 * (layers + 2),
        _ => 2 * (layers + 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(cell: i32, directions: u64, layers: u64, input: u64, hidden: u64, element: u64) -> Shape {
        Shape {
            cell,
            bias: DOUBLE_BIAS,
            directions,
            layers,
            input,
            hidden,
            projection: hidden,
            skips_input: false,
            element,
            drops: false,
            padded: true,
        }
    }

    fn batch(steps: u64, sequences: u64) -> Batch {
        Batch { steps, sequences, total: steps * sequences }
    }

    #[test]
    fn weights_lie_where_cudnn_puts_them() {
        // Two layers of a bidirectional LSTM, 8 inputs, 16 hidden, single precision; figures from cuDNN 9.26.
        let lstm = shape(LSTM, 2, 2, 8, 16, 4);
        assert_eq!(lstm.weights(), 38_912);
        assert_eq!(lstm.matrix(0, 4), Some(Part { offset: 2048, rows: 16, columns: 16 }));
        assert_eq!(lstm.matrix(2, 0), Some(Part { offset: 12_288, rows: 16, columns: 32 }));
        assert_eq!(lstm.matrix(3, 7), Some(Part { offset: 35_840, rows: 16, columns: 16 }));
        assert_eq!(lstm.bias(0, 0), Some(Part { offset: 36_864, rows: 16, columns: 1 }));
        assert_eq!(lstm.bias(3, 7).map(|part| part.offset), Some(38_848));
        assert_eq!((lstm.matrix(4, 0), lstm.matrix(0, 8), lstm.bias(0, 8)), (None, None, None));
        let gru = shape(GRU, 1, 2, 8, 16, 4);
        assert_eq!((gru.weights(), gru.matrix(1, 5).map(|part| part.offset)), (11_520, Some(9728)));
        let projected = Shape { projection: 4, ..shape(LSTM, 1, 2, 8, 16, 4) };
        assert_eq!(projected.weights(), 6656);
        assert_eq!(projected.matrix(0, 8), Some(Part { offset: 3072, rows: 4, columns: 16 }));
        assert_eq!(projected.matrix(1, 8).map(|part| part.offset), Some(5376));
        let single = Shape { bias: SINGLE_RECURRENT_BIAS, ..shape(0, 1, 1, 3, 5, 4) };
        assert_eq!((single.weights(), single.bias(0, 0)), (180, None));
        assert_eq!(single.bias(0, 1).map(|part| part.offset), Some(160));
    }

    #[test]
    fn reserve_space_is_what_cudnn_answers() {
        assert_eq!(shape(LSTM, 1, 1, 128, 256, 4).reserve(batch(50, 16)), 4_096_256);
        assert_eq!(shape(LSTM, 1, 8, 128, 256, 4).reserve(batch(50, 16)), 38_502_656);
        assert_eq!(shape(LSTM, 2, 2, 128, 256, 4).reserve(batch(50, 16)), 18_022_656);
        assert_eq!(shape(LSTM, 1, 2, 128, 256, 2).reserve(batch(50, 16)), 4_505_856);
        assert_eq!(shape(GRU, 1, 2, 128, 256, 4).reserve(batch(50, 16)), 10_649_856);
        assert_eq!(shape(0, 1, 2, 128, 256, 4).reserve(batch(50, 16)), 2_457_856);
        let dropping = Shape { drops: true, ..shape(LSTM, 1, 2, 128, 256, 4) };
        assert_eq!(dropping.reserve(batch(50, 16)), 9_037_056);
        let packed = Batch { steps: 10, sequences: 4, total: 34 };
        assert_eq!(shape(LSTM, 1, 2, 32, 64, 4).reserve(packed), 96_000);
        let projected = Shape { projection: 32, ..shape(LSTM, 1, 2, 32, 64, 4) };
        assert_eq!(projected.reserve(batch(10, 4)), 143_616);
        let both = Shape { drops: true, ..shape(LSTM, 2, 3, 32, 99, 4) };
        let kept = Shape { drops: false, ..both.clone() };
        assert_eq!(both.reserve(batch(17, 6)) - kept.reserve(batch(17, 6)), 10_112);
    }

    #[test]
    fn workspace_is_what_cudnn_answers() {
        assert_eq!(shape(LSTM, 1, 1, 128, 256, 4).workspace(batch(50, 16)), 14_631_296);
        assert_eq!(shape(LSTM, 1, 2, 128, 256, 4).workspace(batch(50, 16)), 25_280_896);
        assert_eq!(shape(LSTM, 1, 20, 128, 256, 4).workspace(batch(50, 16)), 216_973_696);
        assert_eq!(shape(LSTM, 2, 2, 128, 256, 4).workspace(batch(50, 16)), 55_656_832);
        assert_eq!(shape(LSTM, 1, 2, 128, 256, 2).workspace(batch(50, 16)), 21_029_248);
        assert_eq!(shape(GRU, 1, 2, 128, 256, 4).workspace(batch(50, 16)), 23_380_352);
        assert_eq!(shape(0, 1, 2, 128, 256, 4).workspace(batch(50, 16)), 21_528_960);
        let packed = Shape { padded: false, ..shape(LSTM, 1, 2, 128, 256, 4) };
        assert_eq!(packed.workspace(batch(50, 16)), 23_920_896);
        let dropping = Shape { drops: true, ..shape(LSTM, 1, 2, 128, 256, 4) };
        assert_eq!(dropping.workspace(batch(50, 16)), 26_100_096);
    }
}

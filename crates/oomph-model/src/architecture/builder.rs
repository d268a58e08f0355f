//! Lists the tensors of a network, part by part.

use super::parameter::{Form, Parameter, Role};
use crate::Dtype;

/// Collects parameters under a prefix.
#[derive(Default)]
pub(super) struct Builder {
    parameters: Vec<Parameter>,
    /// What precedes every name.
    pub(super) prefix: String,
    /// The layer that is being written.
    pub(super) layer: Option<u64>,
}

impl Builder {
    pub(super) fn finish(self) -> Vec<Parameter> {
        self.parameters
    }

    /// Runs `write` with more of a prefix.
    pub(super) fn within(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        let length = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        write(self);
        self.prefix.truncate(length);
    }

    /// Runs `write` for each of the layers of a list.
    pub(super) fn layers(&mut self, name: &str, count: u64, mut write: impl FnMut(&mut Self, u64)) {
        for layer in 0..count {
            self.layer = Some(layer);
            self.within(&format!("{name}.{layer}"), |builder| write(builder, layer));
        }
        self.layer = None;
    }

    fn push(&mut self, name: &str, shape: &[u64], role: Role, form: Form) {
        let name = format!("{}{name}", self.prefix);
        self.parameters.push(Parameter {
            name,
            shape: shape.to_vec(),
            role,
            form,
            layer: self.layer,
            kept_dtype: None,
        });
    }

    /// An `nn.Linear`.
    pub(super) fn linear(&mut self, name: &str, outputs: u64, inputs: u64, bias: bool, role: Role) {
        self.push(&format!("{name}.weight"), &[outputs, inputs], role, Form::Linear);
        if bias {
            self.push(&format!("{name}.bias"), &[outputs], role, Form::Vector);
        }
    }

    /// GPT-2's `Conv1D`: a linear layer whose matrix is stored the other way round.
    pub(super) fn transposed(&mut self, name: &str, outputs: u64, inputs: u64, bias: bool, role: Role) {
        self.push(&format!("{name}.weight"), &[inputs, outputs], role, Form::Linear);
        if bias {
            self.push(&format!("{name}.bias"), &[outputs], role, Form::Vector);
        }
    }

    /// An `nn.Embedding`.
    pub(super) fn table(&mut self, name: &str, rows: u64, width: u64) {
        self.push(&format!("{name}.weight"), &[rows, width], Role::Embedding, Form::Table);
    }

    /// A norm with a weight, and perhaps a bias.
    pub(super) fn norm(&mut self, name: &str, width: u64, bias: bool) {
        self.push(&format!("{name}.weight"), &[width], Role::Norm, Form::Vector);
        if bias {
            self.push(&format!("{name}.bias"), &[width], Role::Norm, Form::Vector);
        }
    }

    /// A convolution with this kernel, as long as the dimensions it has.
    pub(super) fn convolution(
        &mut self,
        name: &str,
        outputs: u64,
        inputs: u64,
        kernel: &[u64],
        bias: bool,
        role: Role,
    ) {
        let shape: Vec<u64> = [outputs, inputs].iter().chain(kernel).copied().collect();
        self.push(&format!("{name}.weight"), &shape, role, Form::Kernel);
        if bias {
            self.push(&format!("{name}.bias"), &[outputs], role, Form::Vector);
        }
    }

    /// A parameter that is not part of any of these.
    pub(super) fn bare(&mut self, name: &str, shape: &[u64], role: Role) {
        self.push(name, shape, role, Form::Bare);
    }

    /// A buffer; without a type of its own it has the network's.
    pub(super) fn buffer(&mut self, name: &str, shape: &[u64], dtype: Option<Dtype>) {
        self.push(name, shape, Role::Buffer, Form::Bare);
        if let Some(buffer) = self.parameters.last_mut() {
            buffer.kept_dtype = dtype;
        }
    }
}

//! The operations: what each allocates, saves and does in its backward pass.
//!
//! Each follows `derivatives.yaml` of PyTorch and the kernel that runs on a CUDA card.

use smallvec::smallvec;

use super::{Edge, Few, Kind, Tape, TapeOwner, Tensor, product};

/// A matrix and its bias, with whatever quantization or adapter wraps it.
#[derive(Clone)]
pub struct Linear {
    /// Numbers in.
    pub inputs: u64,
    /// Numbers out.
    pub outputs: u64,
    /// The matrix, or its packed bytes where it is quantized.
    pub weight: Tensor,
    /// The bias.
    pub bias: Option<Tensor>,
    /// Whether the matrix is NF4 or int8 of bitsandbytes, which is made 16-bit again in the backward pass.
    pub quantized: bool,
    /// Its LoRA.
    pub adapter: Option<Adapter>,
}

/// LoRA's two matrices (arXiv 2106.09685).
#[derive(Clone)]
pub struct Adapter {
    /// From the input down to the rank.
    pub down: Box<Linear>,
    /// From the rank up to the output.
    pub up: Box<Linear>,
    /// Whether there is dropout before it.
    pub dropout: bool,
}

/// What attention is made of, in numbers of things.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Samples.
    pub batch: u64,
    /// Query positions.
    pub queries: u64,
    /// Key positions.
    pub keys: u64,
    /// Query heads.
    pub heads: u64,
    /// Key heads.
    pub kv_heads: u64,
    /// Width of a query's and key's head.
    pub width: u64,
    /// Width of a value's head.
    pub value_width: u64,
    /// Dropout of the probabilities.
    pub dropout: bool,
    /// Whether a mask is given.
    pub masked: bool,
}

impl Tape {
    /// Another kind of the same numbers; the tensor itself where it has that kind already.
    pub fn cast(&self, x: &Tensor, kind: Kind) -> Tensor {
        if x.kind == kind {
            return x.clone();
        }
        let mut out = self.empty(x.count, kind);
        let (count, from) = (x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(count, from))]));
        out
    }

    /// What a matrix product does to its input under autocast. The copy of a weight that is trained is kept and shared.
    pub(super) fn cast_for_product(&self, x: &Tensor) -> Tensor {
        if !self.is_autocast() || x.kind != Kind::Single {
            return x.clone();
        }
        let Some(Edge::Leaf(leaf)) = x.edge else { return self.cast(x, Kind::Half) };
        if let Some(Some(known)) = self.cast_weights.borrow().get(leaf) {
            return known.clone();
        }
        let copy = self.with_grad(|| self.cast(x, Kind::Half));
        self.keep_copy(x, copy.clone());
        copy
    }

    /// Keeps a copy of a weight until autocast ends.
    pub(super) fn keep_copy(&self, weight: &Tensor, copy: Tensor) {
        let Some(Edge::Leaf(leaf)) = weight.edge else { return };
        let mut kept = self.cast_weights.borrow_mut();
        if kept.len() <= leaf {
            kept.resize(leaf + 1, None);
        }
        kept[leaf] = Some(copy);
    }

    /// What an operation that autocast runs in fp32 does to its input.
    fn cast_up(&self, x: &Tensor) -> Tensor {
        if self.is_autocast() { self.cast(x, Kind::Single) } else { x.clone() }
    }

    /// A new tensor from one whose backward pass needs the input (`gelu`, `silu`, `pow`).
    pub fn keeping_input(&self, x: &Tensor) -> Tensor {
        let mut out = self.empty(x.count, x.kind);
        let saved = x.detach();
        self.record(&mut out, &[x], || {
            Box::new(move |tape, grads| {
                let result = tape.empty(saved.count, saved.kind);
                drop((saved, grads));
                smallvec![Some(result)]
            })
        });
        out
    }

    /// A new tensor from one whose backward pass needs the output (`tanh`, `relu`, `sigmoid`, `rsqrt`).
    pub fn keeping_output(&self, x: &Tensor) -> Tensor {
        let mut out = self.empty(x.count, x.kind);
        let saved = out.detach();
        self.record(&mut out, &[x], || {
            Box::new(move |tape, grads| {
                let result = tape.empty(saved.count, saved.kind);
                drop((saved, grads));
                smallvec![Some(result)]
            })
        });
        out
    }

    /// A new tensor from one whose backward pass needs neither (a product with a constant, `neg`, a copy).
    pub fn keeping_nothing(&self, x: &Tensor) -> Tensor {
        let mut out = self.empty(x.count, x.kind);
        let (count, kind) = (x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(count, kind))]));
        out
    }

    /// A sum with a constant: new memory, and the gradient goes through unchanged.
    pub fn keeping_shared(&self, x: &Tensor) -> Tensor {
        self.contiguous(x)
    }

    /// A copy in another order, whose gradient is a view.
    pub fn contiguous(&self, x: &Tensor) -> Tensor {
        let mut out = self.empty(x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |_, grads| grads));
        out
    }

    /// The mean of squares and the like: a small tensor from a large one.
    pub fn reduced(&self, x: &Tensor, count: u64) -> Tensor {
        let mut out = self.empty(count, x.kind);
        let (whole, kind) = (x.count, x.kind);
        // The gradient is expanded, which is a view, and divided, which is not.
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(whole, kind))]));
        out
    }

    /// The sum of two tensors; the smaller one is expanded.
    pub fn add(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let (count, kind) = (a.count.max(b.count), a.kind.max(b.kind));
        let mut out = self.empty(count, kind);
        let shapes = [(a.count, a.requires_grad()), (b.count, b.requires_grad())];
        self.record(&mut out, &[a, b], || {
            Box::new(move |tape, grads| {
                let grad = grads.into_iter().next().flatten();
                shapes
                    .into_iter()
                    .map(|(own, wanted)| {
                        let grad = grad.as_ref().filter(|_| wanted)?;
                        Some(if own == count { grad.clone() } else { tape.empty(own, kind) })
                    })
                    .collect()
            })
        });
        out
    }

    /// The product of two tensors, number by number; the smaller one is expanded.
    pub fn mul(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let (count, kind) = (a.count.max(b.count), a.kind.max(b.kind));
        let mut out = self.empty(count, kind);
        let saved = [b.requires_grad().then(|| a.detach()), a.requires_grad().then(|| b.detach())];
        let shapes = [(a.count, a.requires_grad(), a.kind), (b.count, b.requires_grad(), b.kind)];
        self.record(&mut out, &[a, b], || {
            Box::new(move |tape, grads| {
                let results = shapes
                    .into_iter()
                    .map(|(own, wanted, own_kind)| {
                        let whole = wanted.then(|| tape.empty(count, kind))?;
                        let whole = if own_kind == kind { whole } else { tape.empty(count, own_kind) };
                        Some(if own == count { whole } else { tape.empty(own, own_kind) })
                    })
                    .collect();
                drop((saved, grads));
                results
            })
        });
        out
    }

    /// One of several equal parts of a tensor along a dimension, as a view each (`split`, `chunk`). The gradient of the
    /// whole is made once from those of the parts.
    pub fn split(&self, x: &Tensor, parts: &[u64]) -> Vec<Tensor> {
        let (whole, kind) = (x.count, x.kind);
        let sizes = parts.to_vec();
        let node = self.node(parts.len(), &[x], || {
            Box::new(move |tape, grads| {
                let zeros: Vec<_> = grads
                    .iter()
                    .zip(&sizes)
                    .filter(|(grad, _)| grad.is_none())
                    .map(|(_, &n)| tape.empty(n, kind))
                    .collect();
                let result = tape.empty(whole, kind);
                drop((zeros, grads));
                smallvec![Some(result)]
            })
        });
        let view = |(output, &count): (usize, &u64)| Tensor {
            edge: node.map(|node| Edge::Node { node, output }),
            ..x.viewed(count)
        };
        parts.iter().enumerate().map(view).collect()
    }

    /// A slice of a tensor, as a view, whose gradient is the whole with zeros around it.
    pub fn slice(&self, x: &Tensor, count: u64) -> Tensor {
        let mut out = x.viewed(count);
        out.edge = None;
        let (whole, kind) = (x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(whole, kind))]));
        out
    }

    /// Tensors behind one another in a new one; gradients are views.
    pub fn cat(&self, parts: &[&Tensor]) -> Tensor {
        let count = parts.iter().map(|part| part.count).fold(0, u64::saturating_add);
        let kind = parts.iter().map(|part| part.kind).max().unwrap_or(Kind::Half);
        let mut out = self.empty(count, kind);
        let sizes: Vec<u64> = parts.iter().map(|part| part.count).collect();
        self.record(&mut out, parts, || {
            Box::new(move |_, grads| {
                let grad = grads.into_iter().next().flatten();
                sizes.into_iter().map(|size| grad.as_ref().map(|grad| grad.viewed(size))).collect()
            })
        });
        out
    }

    /// A smaller tensor repeated to a larger one in new memory (`repeat_kv`).
    pub fn repeat(&self, x: &Tensor, times: u64) -> Tensor {
        if times <= 1 {
            return x.clone();
        }
        let mut out = self.empty(x.count.saturating_mul(times), x.kind);
        let (count, kind) = (x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(count, kind))]));
        out
    }

    /// A sum that is written over its first part.
    pub fn add_in_place(&self, a: &Tensor, b: &Tensor) -> Tensor {
        let mut out = a.detach();
        self.record(&mut out, &[a, b], || {
            Box::new(move |_, grads| {
                let grad = grads.into_iter().next().flatten();
                smallvec![grad.clone(), grad]
            })
        });
        out
    }

    /// Rows picked from a tensor into a new one; the gradient is added up in zeros as large as the whole.
    pub fn gather(&self, x: &Tensor, count: u64) -> Tensor {
        let mut out = self.empty(count, x.kind);
        let (whole, kind) = (x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(whole, kind))]));
        out
    }

    /// Numbers picked from each row by place: the row and the places are kept (`torch.gather`).
    pub fn gather_along(&self, x: &Tensor, places: &Tensor, count: u64) -> Tensor {
        let mut out = self.empty(count, x.kind);
        // Places that are repeated for every row are written out while the kernel runs.
        drop(self.empty(count, places.kind));
        let saved = (x.detach(), places.detach());
        self.record(&mut out, &[x], || {
            Box::new(move |tape, grads| {
                let result = tape.empty(saved.0.count, saved.0.kind);
                drop((saved, grads));
                smallvec![Some(result)]
            })
        });
        out
    }

    /// The largest of each row, in another kind.
    pub fn slice_copy(&self, x: &Tensor, count: u64, kind: Kind) -> Tensor {
        let picked = self.gather(x, count);
        let _places = self.empty(count, Kind::Long);
        self.cast(&picked, kind)
    }

    /// A sum over neighbours, whose gradient is a view.
    pub fn reduced_to(&self, x: &Tensor, count: u64) -> Tensor {
        let mut out = self.empty(count, x.kind);
        let whole = x.count;
        self.record(&mut out, &[x], || {
            Box::new(move |_, grads| smallvec![grads.into_iter().next().flatten().map(|grad| grad.viewed(whole))])
        });
        out
    }

    /// A view that repeats a tensor, whose gradient is summed.
    pub fn expanded(&self, x: &Tensor, times: u64) -> Tensor {
        let mut out = x.viewed(x.count.saturating_mul(times));
        out.edge = None;
        let (count, kind) = (x.count, x.kind);
        self.record(&mut out, &[x], || Box::new(move |tape, _| smallvec![Some(tape.empty(count, kind))]));
        out
    }

    /// What was there and what is new, in new memory of a kind.
    pub fn joined(&self, old: Option<&Tensor>, new: &Tensor, kind: Kind) -> Tensor {
        let count = old.map_or(0, |old| old.count).saturating_add(new.count);
        let mut out = self.empty(count, kind);
        self.record(&mut out, &[new], || Box::new(move |_, grads| grads));
        out
    }

    /// Dropout: a mask of a byte a number is kept.
    pub fn dropout(&self, x: &Tensor, on: bool) -> Tensor {
        if !on {
            return x.clone();
        }
        let mut out = self.empty(x.count, x.kind);
        if !self.is_grad() || !x.requires_grad() {
            // Without a graph the fused kernel makes its mask all the same.
            let _mask = self.empty(x.count, Kind::Byte);
            return out;
        }
        let mask = self.empty(x.count, Kind::Byte);
        let (count, kind) = (x.count, x.kind);
        self.record(&mut out, &[x], || {
            Box::new(move |tape, grads| {
                let result = tape.empty(count, kind);
                drop((mask, grads));
                smallvec![Some(result)]
            })
        });
        out
    }

    /// A table looked up.
    pub fn embedding(&self, table: &Tensor, tokens: u64, width: u64) -> Tensor {
        let mut out = self.empty(tokens.saturating_mul(width), table.kind);
        let (count, kind) = (table.count, table.kind);
        self.record(&mut out, &[table], || {
            Box::new(move |tape, grads| {
                let result = tape.empty(count, kind);
                // The backward kernel sorts the tokens: four arrays of 64-bit integers.
                let _sorted = [0; 4].map(|_| tape.empty(tokens, Kind::Long));
                drop(grads);
                smallvec![Some(result)]
            })
        });
        out
    }

    /// `torch.layer_norm`: the input and two numbers a row are kept.
    pub fn layer_norm(&self, x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, width: u64) -> Tensor {
        let x = self.cast_up(x);
        let weight = weight.map(|weight| self.cast_up(weight));
        let bias = bias.map(|bias| self.cast_up(bias));
        let rows = x.count / width.max(1);
        let mut out = self.empty(x.count, x.kind);
        let statistics = [self.empty(rows, Kind::Single), self.empty(rows, Kind::Single)];
        let inputs: Few<&Tensor> = std::iter::once(&x).chain(&weight).chain(&bias).collect();
        let saved = (x.detach(), weight.as_ref().map(Tensor::detach));
        let wants: Few<(u64, Kind, bool)> = inputs.iter().map(|t| (t.count, t.kind, t.requires_grad())).collect();
        self.record(&mut out, &inputs, || {
            Box::new(move |tape, grads| {
                let results =
                    wants.into_iter().map(|(count, kind, wanted)| wanted.then(|| tape.empty(count, kind))).collect();
                drop((saved, statistics, grads));
                results
            })
        });
        out
    }

    /// `torch.softmax` into a kind of its own: the output is kept.
    pub fn softmax(&self, x: &Tensor, kind: Kind) -> Tensor {
        let kind = if self.is_autocast() { Kind::Single } else { kind };
        // The kernel reads 16 bits and writes 32 without a copy between them; autocast makes that copy.
        let x = if self.is_autocast() { self.cast(x, Kind::Single) } else { x.clone() };
        let mut out = self.empty(x.count, kind);
        let saved = out.detach();
        let input = x.kind;
        self.record(&mut out, &[&x], || {
            Box::new(move |tape, grads| {
                let result = tape.empty(saved.count, input);
                drop((saved, grads));
                smallvec![Some(result)]
            })
        });
        out
    }

    /// A batch of matrix products; both inputs are kept.
    pub fn matmul(&self, a: &Tensor, b: &Tensor, count: u64) -> Tensor {
        let (a, b) = (self.cast_for_product(a), self.cast_for_product(b));
        let mut out = self.empty(count, a.kind);
        self.multiply();
        let (wanted_a, wanted_b) = (a.requires_grad(), b.requires_grad());
        let saved = (wanted_b.then(|| a.detach()), wanted_a.then(|| b.detach()));
        let sizes = [(a.count, a.kind), (b.count, b.kind)];
        self.record(&mut out, &[&a, &b], || {
            Box::new(move |tape, grads| {
                let results = smallvec![
                    wanted_a.then(|| tape.empty(sizes[0].0, sizes[0].1)),
                    wanted_b.then(|| tape.empty(sizes[1].0, sizes[1].1)),
                ];
                tape.multiply();
                drop((saved, grads));
                results
            })
        });
        out
    }

    /// `nn.Linear`, with what wraps it.
    pub fn linear(&self, layer: &Linear, x: &Tensor) -> Tensor {
        let rows = x.count / layer.inputs.max(1);
        let result = if layer.quantized { self.dequantized(layer, x, rows) } else { self.product(layer, x, rows) };
        let Some(adapter) = &layer.adapter else { return result };
        let kind = result.kind;
        let mut x = x.clone();
        let mut result = result;
        let convert = if layer.quantized {
            // bitsandbytes may return a view, so PEFT copies it.
            result = self.contiguous(&result);
            !self.is_autocast()
        } else {
            true
        };
        if convert {
            x = self.cast(&x, adapter.down.weight.kind);
        }
        let mut delta = self.dropout(&x, adapter.dropout);
        delta = self.linear(&adapter.down, &delta);
        delta = self.linear(&adapter.up, &delta);
        delta = self.keeping_nothing(&delta);
        if layer.quantized && convert {
            delta = self.cast(&delta, kind);
        }
        result = self.add(&result, &delta);
        drop(delta);
        if !layer.quantized {
            result = self.cast(&result, kind);
        }
        result
    }

    fn product(&self, layer: &Linear, x: &Tensor, rows: u64) -> Tensor {
        let x = self.cast_for_product(x);
        let weight = self.cast_for_product(&layer.weight);
        let bias = layer.bias.as_ref().map(|bias| self.cast_for_product(bias));
        let mut out = self.empty(rows.saturating_mul(layer.outputs), x.kind);
        self.multiply();
        let (wanted_x, wanted_weight) = (x.requires_grad(), weight.requires_grad());
        let saved = (wanted_weight.then(|| x.detach()), wanted_x.then(|| weight.detach()));
        let mut inputs: Few<&Tensor> = smallvec![&x, &weight];
        inputs.extend(&bias);
        let wants: Few<(u64, Kind, bool)> = inputs.iter().map(|t| (t.count, t.kind, t.requires_grad())).collect();
        self.record(&mut out, &inputs, || {
            Box::new(move |tape, grads| {
                let results =
                    wants.into_iter().map(|(count, kind, wanted)| wanted.then(|| tape.empty(count, kind))).collect();
                tape.multiply();
                drop((saved, grads));
                results
            })
        });
        out
    }

    /// A product with a quantized matrix, which has no gradient: the packed bytes are multiplied as they are, and made
    /// 16-bit for a moment in the backward pass (bitsandbytes' `MatMul4Bit`).
    fn dequantized(&self, layer: &Linear, x: &Tensor, rows: u64) -> Tensor {
        let given = x.kind;
        let x = self.cast(x, Kind::Half);
        let mut out = self.empty(rows.saturating_mul(layer.outputs), x.kind);
        let (count, kind, weights) = (x.count, x.kind, layer.inputs.saturating_mul(layer.outputs));
        self.record(&mut out, &[&x], || {
            Box::new(move |tape, grads| {
                let whole = tape.empty(weights, Kind::Half);
                let result = tape.empty(count, kind);
                tape.multiply();
                drop((whole, grads));
                smallvec![Some(result)]
            })
        });
        // The result has the type of what was given, which a layer norm under autocast makes fp32.
        self.cast(&out, given)
    }

    /// Fused attention (`scaled_dot_product_attention`): inputs, output and one number a query and head are kept. In 16
    /// bits without a mask FlashAttention runs, otherwise the memory-efficient kernel.
    ///
    /// With `bias` a score is added for every head and pair of positions, which is kept for so many samples.
    pub fn sdpa(&self, q: &Tensor, k: &Tensor, v: &Tensor, heads: Heads, bias: Option<u64>) -> Tensor {
        let (q, k, v) = (self.cast_for_product(q), self.cast_for_product(k), self.cast_for_product(v));
        let count = product([heads.batch, heads.heads, heads.queries, heads.value_width]);
        let mut out = self.empty(count, q.kind);
        let flash = q.kind == Kind::Half
            && !heads.masked
            && bias.is_none()
            && heads.width <= 256
            && heads.width == heads.value_width;
        let rows = product([heads.batch, heads.heads]);
        let normalizers = if flash { heads.queries } else { heads.queries.next_multiple_of(32) };
        // A mask of bytes becomes one of numbers, for every call again.
        let pairs = product([heads.queries, heads.keys.next_multiple_of(8)]);
        let mask = match bias {
            Some(samples) => Some(self.empty(product([samples, heads.heads, pairs]), q.kind)),
            None => heads.masked.then(|| self.empty(product([heads.batch, pairs]), q.kind)),
        };
        let saved = (
            q.detach(),
            k.detach(),
            v.detach(),
            out.detach(),
            mask,
            self.empty(product([rows, normalizers]), Kind::Single),
        );
        let inputs = [(q.count, q.kind), (k.count, k.kind), (v.count, v.kind)];
        let grouped = heads.heads / heads.kv_heads.max(1) > 1 && k.count < q.count;
        self.record(&mut out, &[&q, &k, &v], || {
            Box::new(move |tape, grads| {
                let results = inputs.iter().map(|&(count, kind)| Some(tape.empty(count, kind))).collect();
                if flash {
                    // FlashAttention 2: dq in fp32, the rows' sums, and dk and dv for every query head.
                    let rounded = heads.queries.next_multiple_of(128);
                    let width = heads.width.next_multiple_of(if heads.width <= 128 { 32 } else { 64 });
                    let _sums = tape.empty(product([rows, rounded]), Kind::Single);
                    let _dq = tape.empty(product([rows, rounded, width]), Kind::Single);
                    let _expanded = grouped
                        .then(|| [0; 2].map(|_| tape.empty(product([rows, heads.keys, heads.width]), Kind::Half)));
                    drop((saved, grads));
                } else {
                    let _delta = tape.empty(product([rows, normalizers]), Kind::Single);
                    drop((saved, grads));
                }
                results
            })
        });
        out
    }

    /// Logits to a loss: a copy in fp32, its logarithms, and in the backward pass as much again twice
    /// (`ForCausalLMLoss` of transformers, `cross_entropy` of PyTorch).
    pub fn cross_entropy(&self, logits: &Tensor, upcast: bool) -> Tensor {
        self.owned(TapeOwner::Logits, || {
            let x = if upcast { self.cast(logits, Kind::Single) } else { logits.clone() };
            let x = self.cast_up(&x);
            let mut logarithms = self.empty(x.count, x.kind);
            let (count, kind) = (x.count, x.kind);
            let saved = logarithms.detach();
            self.record(&mut logarithms, &[&x], || {
                Box::new(move |tape, grads| {
                    let result = tape.owned(TapeOwner::Logits, || tape.empty(count, kind));
                    drop((saved, grads));
                    smallvec![Some(result)]
                })
            });
            let mut loss = self.empty(1, Kind::Single);
            let saved = logarithms.detach();
            self.record(&mut loss, &[&logarithms], || {
                Box::new(move |tape, grads| {
                    let result = tape.owned(TapeOwner::Logits, || tape.empty(count, kind));
                    drop((saved, grads));
                    smallvec![Some(result)]
                })
            });
            loss
        })
    }
}

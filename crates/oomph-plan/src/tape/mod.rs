//! PyTorch's autograd on tensors that have only a size.
//!
//! What a training step needs at its peak is a matter of lifetimes: which tensors a node of the graph saves, when a
//! Python variable lets go of its tensor, in which order the backward pass runs. A formula per layer gets some of these
//! wrong; so the step is executed, on sizes. A [`Tensor`] counts its references as Python does, and gives its bytes back
//! when the last one goes; an operation saves what PyTorch's saves, and gradients flow as its engine lets them flow
//! (`derivatives.yaml` and `engine.cpp` of PyTorch). A step of a 7 B model is some ten thousand operations and takes
//! about a millisecond.

mod again;
mod maps;
mod memory;
mod ops;
mod scores;
mod shards;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

pub use again::{Mark, Passed, Twin};
pub use maps::{Convolution, Extent};
pub use memory::{GRAIN, Memory, Owners, Storage, TapeOwner, TapePhase, Usage};
pub use ops::{Adapter, Heads, Linear};
pub use shards::Sharding;

/// The type of a tensor's numbers, as far as sizes depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One byte: masks, 8-bit states.
    Byte,
    /// fp16 or bf16.
    Half,
    /// fp32.
    Single,
    /// 64-bit integers.
    Long,
}

impl Kind {
    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Kind::Byte => 1,
            Kind::Half => 2,
            Kind::Single => 4,
            Kind::Long => 8,
        }
    }
}

/// A tensor: so many numbers of a kind, in a storage that other tensors may share.
#[derive(Clone)]
pub struct Tensor {
    storage: Rc<Storage>,
    /// How many numbers.
    pub count: u64,
    /// Their kind.
    pub kind: Kind,
    edge: Option<Edge>,
}

impl Tensor {
    /// Whether gradients flow to it.
    #[must_use]
    pub fn requires_grad(&self) -> bool {
        self.edge.is_some()
    }

    /// The same tensor without the graph behind it.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self { edge: None, ..self.clone() }
    }

    /// A view of the same storage with another count, for what is a view in PyTorch too and has no copy in backward.
    #[must_use]
    pub fn viewed(&self, count: u64) -> Self {
        Self { count, ..self.clone() }
    }

    /// Says whose bytes they are.
    pub fn belongs_to(&self, owner: TapeOwner) {
        self.storage.belongs_to(owner);
    }

    fn is_unique(&self) -> bool {
        Rc::strong_count(&self.storage) == 1
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// An output of a node.
    Node { node: usize, output: usize },
    /// A leaf: its gradient is kept.
    Leaf(usize),
}

/// Something of each input or output of a node. Nearly all nodes have at most three, and nodes are made by the hundred
/// thousand, so these lie in place.
type Few<T> = SmallVec<[T; 3]>;

/// Gradients, where there are any.
type Grads = Few<Option<Tensor>>;

/// What a node does with the gradients of its outputs: it gives those of its inputs.
type Backward = Box<dyn FnOnce(&Tape, Grads) -> Grads>;

struct Node {
    /// Where the gradient of each input goes, and the type that it has there.
    inputs: Few<(Option<Edge>, Kind)>,
    /// The gradients of its outputs that have arrived.
    grads: Grads,
    /// Whether any has.
    reached: bool,
    backward: Backward,
}

struct Leaf {
    /// The parameter, to know the kind of its gradient.
    kind: Kind,
    grad: Option<Tensor>,
}

/// A leaf that a backward pass has not done with.
#[derive(Default)]
struct Awaited {
    /// How many gradients are still to come.
    uses: u32,
    /// The sum of those that came.
    sum: Option<Tensor>,
}

/// The graph of one process, its memory and its modes.
pub struct Tape {
    /// The memory.
    pub memory: Memory,
    nodes: RefCell<Vec<Option<Node>>>,
    leaves: RefCell<Vec<Leaf>>,
    grad: Cell<bool>,
    autocast: Cell<bool>,
    /// By leaf: its copy in 16 bits under autocast.
    cast_weights: RefCell<Vec<Option<Tensor>>>,
    owner: Cell<TapeOwner>,
    stream: Cell<u64>,
    pub(crate) card: CardTraits,
    /// Whether layers may stand for others that are like them.
    skips: bool,
    /// How the parameters are spread over cards.
    shards: Option<shards::Shards>,
}

/// What of the card decides which kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardTraits {
    /// Compute capability times ten: 89 for 8.9.
    pub capability: u32,
}

impl Tape {
    /// An empty tape on a card.
    #[must_use]
    pub fn new(memory: Memory, card: CardTraits) -> Self {
        Self {
            memory,
            nodes: RefCell::default(),
            leaves: RefCell::default(),
            grad: Cell::new(true),
            autocast: Cell::new(false),
            cast_weights: RefCell::default(),
            owner: Cell::new(TapeOwner::Activations),
            stream: Cell::new(0),
            card,
            skips: true,
            shards: None,
        }
    }

    /// The same, with every layer gone through, however many are alike.
    #[cfg(test)]
    pub(crate) fn walking(self) -> Self {
        Self { skips: false, ..self }
    }

    /// A new tensor that nobody has used.
    pub fn empty(&self, count: u64, kind: Kind) -> Tensor {
        Tensor {
            storage: self.memory.take_on(count.saturating_mul(kind.bytes()), self.owner.get(), self.stream.get()),
            count,
            kind,
            edge: None,
        }
    }

    /// A tensor of so many bytes.
    pub fn bytes(&self, bytes: u64) -> Tensor {
        self.empty(bytes, Kind::Byte)
    }

    /// A leaf: a tensor whose gradient is kept.
    pub fn leaf(&self, tensor: &Tensor) -> Tensor {
        let mut leaves = self.leaves.borrow_mut();
        leaves.push(Leaf { kind: tensor.kind, grad: None });
        Tensor { edge: Some(Edge::Leaf(leaves.len() - 1)), ..tensor.clone() }
    }

    /// Does something with another owner for what is allocated.
    pub fn owned<T>(&self, owner: TapeOwner, what: impl FnOnce() -> T) -> T {
        let before = self.owner.replace(owner);
        let result = what();
        self.owner.set(before);
        result
    }

    /// Does something on another stream.
    fn on_stream<T>(&self, stream: u64, what: impl FnOnce() -> T) -> T {
        let before = self.stream.replace(stream);
        let result = what();
        self.stream.set(before);
        result
    }

    /// Does something without keeping a graph.
    pub fn no_grad<T>(&self, what: impl FnOnce() -> T) -> T {
        let before = self.grad.replace(false);
        let result = what();
        self.grad.set(before);
        result
    }

    /// Does something with a graph.
    fn with_grad<T>(&self, what: impl FnOnce() -> T) -> T {
        let before = self.grad.replace(true);
        let result = what();
        self.grad.set(before);
        result
    }

    /// Does something under autocast to 16 bits, where `on`. Copies of weights are kept until it ends.
    pub fn autocast<T>(&self, on: bool, what: impl FnOnce() -> T) -> T {
        let before = self.autocast.replace(on);
        let result = what();
        self.autocast.set(before);
        if !before {
            self.cast_weights.borrow_mut().clear();
        }
        result
    }

    /// Whether autocast is on.
    pub fn is_autocast(&self) -> bool {
        self.autocast.get()
    }

    /// Whether a graph is kept.
    pub fn is_grad(&self) -> bool {
        self.grad.get()
    }

    /// A matrix product runs: cuBLAS is given a workspace for it, from PyTorch's own allocator, and gives it back.
    pub(crate) fn multiply(&self) {
        drop(self.memory.take(cublas_workspace(self.card.capability), TapeOwner::Workspaces));
    }

    /// Puts a node behind an output, where a graph is kept and an input needs gradients. `backward` gives one gradient per
    /// input.
    fn record(&self, output: &mut Tensor, inputs: &[&Tensor], backward: impl FnOnce() -> Backward) {
        if let Some(node) = self.node(1, inputs, backward) {
            output.edge = Some(Edge::Node { node, output: 0 });
        }
    }

    fn node(&self, outputs: usize, inputs: &[&Tensor], backward: impl FnOnce() -> Backward) -> Option<usize> {
        if !self.grad.get() || !inputs.iter().any(|input| input.requires_grad()) {
            return None;
        }
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(Some(Node {
            inputs: inputs.iter().map(|input| (input.edge, input.kind)).collect(),
            grads: smallvec![None; outputs],
            reached: false,
            backward: backward(),
        }));
        Some(nodes.len() - 1)
    }

    /// The backward pass from a tensor, whose gradient is given. Gradients of leaves are kept in them.
    pub fn backward(&self, from: &Tensor, grad: Tensor) {
        let Some(root) = from.edge else { return };
        let owner = self.owner.replace(TapeOwner::Temporaries);
        let before = self.grad.replace(false);
        let mut leaves = self.awaited(root);
        // Nodes that have a gradient and have not given theirs yet.
        let mut waiting = 0_usize;
        let mut arrive = |edge: Edge, grad: Tensor| match edge {
            Edge::Leaf(leaf) => {
                let awaited = &mut leaves[leaf];
                let sum = self.accumulated(awaited.sum.take(), grad);
                awaited.uses = awaited.uses.saturating_sub(1);
                if awaited.uses == 0 {
                    self.keep_grad(leaf, || sum);
                } else {
                    awaited.sum = Some(sum);
                }
                0
            }
            Edge::Node { node, output } => {
                let mut nodes = self.nodes.borrow_mut();
                let Some(node) = &mut nodes[node] else { return 0 };
                let slot = &mut node.grads[output];
                *slot = Some(self.accumulated(slot.take(), grad));
                usize::from(!std::mem::replace(&mut node.reached, true))
            }
        };
        waiting += arrive(root, grad);
        // Nodes are numbered as they were made, so the highest number that has a gradient has all of its gradients. A part
        // that is computed again makes nodes of higher numbers still, and walks no further than those.
        let mut number = self.nodes.borrow().len();
        while waiting > 0 && number > 0 {
            number -= 1;
            let node = self.nodes.borrow_mut()[number].take_if(|node| node.reached);
            let Some(node) = node else { continue };
            waiting -= 1;
            let results = (node.backward)(self, node.grads);
            for ((edge, kind), result) in node.inputs.into_iter().zip(results) {
                if let (Some(edge), Some(mut grad)) = (edge, result) {
                    if grad.kind != kind {
                        // The engine gives a gradient the type of its tensor.
                        grad = self.empty(grad.count, kind);
                    }
                    waiting += arrive(edge, grad);
                }
            }
        }
        self.grad.set(before);
        self.owner.set(owner);
    }

    /// How often each leaf is reached from here.
    fn awaited(&self, root: Edge) -> Vec<Awaited> {
        let nodes = self.nodes.borrow();
        let mut leaves = Vec::new();
        leaves.resize_with(self.leaves.borrow().len(), Awaited::default);
        let mut seen = vec![false; nodes.len()];
        let mut stack = vec![root];
        while let Some(edge) = stack.pop() {
            match edge {
                Edge::Leaf(leaf) => leaves[leaf].uses += 1,
                Edge::Node { node, .. } => {
                    let first = !std::mem::replace(&mut seen[node], true);
                    if let (true, Some(node)) = (first, &nodes[node]) {
                        stack.extend(node.inputs.iter().filter_map(|(edge, _)| *edge));
                    }
                }
            }
        }
        leaves
    }

    /// The sum of two gradients: in place where nobody else has the first.
    fn accumulated(&self, old: Option<Tensor>, new: Tensor) -> Tensor {
        match old {
            None => new,
            Some(old) if old.is_unique() => old,
            Some(old) => self.empty(old.count, old.kind),
        }
    }

    /// A gradient reaches its parameter: it is taken over where nobody else has it, and copied otherwise.
    fn keep_grad(&self, leaf: usize, new: impl FnOnce() -> Tensor) {
        let (has, kind) = {
            let leaves = self.leaves.borrow();
            (leaves[leaf].grad.is_some(), leaves[leaf].kind)
        };
        if has {
            return;
        }
        let new = new();
        let kept = if new.is_unique() && new.kind == kind { new } else { self.empty(new.count, kind) };
        kept.belongs_to(TapeOwner::Gradients);
        self.leaves.borrow_mut()[leaf].grad = Some(kept);
    }

    /// Whether a parameter has a gradient.
    pub fn has_grad(&self, parameter: &Tensor) -> bool {
        matches!(parameter.edge, Some(Edge::Leaf(leaf)) if self.leaves.borrow()[leaf].grad.is_some())
    }

    /// Drops all gradients, as `zero_grad(set_to_none=True)` does.
    pub fn zero_grad(&self) {
        let grads: Vec<_> = self.leaves.borrow_mut().iter_mut().map(|leaf| leaf.grad.take()).collect();
        drop(grads);
    }

    /// Drops what is left of the graph.
    pub fn forget_graph(&self) {
        self.nodes.borrow_mut().clear();
    }

    /// A part of the network whose inside is not kept but computed again in the backward pass
    /// (`torch.utils.checkpoint`). Autocast is restored for it, with copies of weights of its own.
    pub fn checkpoint(&self, inputs: &[&Tensor], part: Part) -> Tensor {
        let detached: Vec<Tensor> = inputs.iter().map(|input| input.detach()).collect();
        if !self.grad.get() {
            return part(self, &detached);
        }
        let mut output = self.no_grad(|| part(self, &detached)).detach();
        let autocast = self.autocast.get();
        let wanted: Vec<bool> = inputs.iter().map(|input| input.requires_grad()).collect();
        // A node is needed even where no input needs gradients, because the parameters inside do.
        let marker = self.leaf(&Tensor { storage: self.memory.take(0, TapeOwner::Temporaries), ..output.clone() });
        let mut edges: Vec<&Tensor> = vec![&marker];
        edges.extend(inputs);
        self.record(&mut output, &edges, || {
            Box::new(move |tape, mut grads| {
                let grad = grads.pop().flatten();
                let entries: Vec<Tensor> = detached
                    .into_iter()
                    .zip(&wanted)
                    .map(|(input, &wanted)| if wanted { tape.leaf(&input) } else { input })
                    .collect();
                let again = tape.owned(TapeOwner::Activations, || {
                    tape.with_grad(|| tape.autocast(autocast, || part(tape, &entries)))
                });
                // What comes last is computed and dropped: recomputation stops at what was saved last.
                let end = Tensor { storage: tape.memory.take(0, TapeOwner::Temporaries), ..again };
                let leaves: Vec<Option<usize>> = entries
                    .into_iter()
                    .map(|entry| if let Some(Edge::Leaf(leaf)) = entry.edge { Some(leaf) } else { None })
                    .collect();
                let grad = grad.unwrap_or_else(|| tape.empty(end.count, end.kind));
                tape.backward(&end, grad);
                let take = |leaf: usize| {
                    let grad = tape.leaves.borrow_mut()[leaf].grad.take();
                    if let Some(grad) = &grad {
                        grad.belongs_to(TapeOwner::Temporaries);
                    }
                    grad
                };
                let mut results: Grads = smallvec![None];
                results.extend(
                    leaves.into_iter().zip(wanted).map(|(leaf, wanted)| leaf.filter(|_| wanted).and_then(take)),
                );
                results
            })
        });
        output
    }
}

/// A product that stays at the largest number where it would be beyond it: a setting may be absurd.
#[must_use]
pub fn product<const N: usize>(factors: [u64; N]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// A part of a network that can be computed again.
pub type Part = Rc<dyn Fn(&Tape, &[Tensor]) -> Tensor>;

/// The workspace that PyTorch gives cuBLAS, in bytes: 32 MiB on compute capability 9.0 and 10.0, else 4096 KiB twice and
/// 16 KiB eight times (`CUDABlas` of PyTorch).
#[must_use]
pub fn cublas_workspace(capability: u32) -> u64 {
    match capability {
        90 | 100 | 103 => 32 << 20,
        _ => 2 * (4096 << 10) + 8 * (16 << 10),
    }
}

//! What a program computes and moves: products, convolutions and attention with their operations and bytes, other kernels
//! with the bytes that they are taken to move, and copies by direction.
//!
//! The figures are for the price of a remedy: the work of one step before and after it, from which the roofline of a card
//! (`oomph_gpu::roofline`) gives a ratio of times. The hook cuts the count at optimizer steps (`oomph_work_cut`).
//!
//! A launch carries no shapes. Those of PyTorch's own kernels that make up most of a step are known by name, and their
//! arguments or grid say how many elements they touch (`kernel.rs`). All others count with [`BYTES_PER_THREAD`].

pub mod kernel;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::{Mutex, Rank};
use kernel::Forwards;

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// From the host to a card.
    ToCard,
    /// From a card to the host.
    ToHost,
    /// Between two places on cards.
    OnCard,
}

impl Way {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 3] = [Self::ToCard, Self::ToHost, Self::OnCard];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToCard => "to_card",
            Self::ToHost => "to_host",
            Self::OnCard => "on_card",
        }
    }
}

/// What a thread of an unknown kernel moves, in bytes: 16 read, which is the widest load, and half as much written.
pub const BYTES_PER_THREAD: u64 = 24;

/// Different products that are distinguished; what finds no place is added to the last one of its type.
const MOST_PRODUCTS: usize = 2048;

/// The numbers that a product is computed with, by what the card has units for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// 64-bit floating point.
    F64,
    /// 32-bit floating point.
    F32,
    /// 32-bit floating point, of which tensor cores use 19 bits.
    Tf32,
    /// 16-bit floating point of either kind.
    F16,
    /// 8-bit floating point.
    F8,
    /// 8-bit integers.
    I8,
}

impl Number {
    fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::F8 => "f8",
            Self::I8 => "i8",
        }
    }

    /// The numbers of a `cudaDataType_t`, and how many bytes one takes. `tensor` says that 32-bit products may use tensor
    /// cores.
    pub fn of_cuda(kind: u64, tensor: bool) -> (Self, u64) {
        match kind {
            2 | 6 | 14 | 15 => (Self::F16, 2),
            1 | 5 => (Self::F64, 8),
            3 | 7 | 8 | 9 => (Self::I8, 1),
            28..=33 => (Self::F8, 1),
            _ if tensor => (Self::Tf32, 4),
            _ => (Self::F32, 4),
        }
    }
}

/// What one product computes and moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Product {
    /// The numbers it is computed with.
    pub number: Number,
    /// Additions and multiplications.
    pub operations: u64,
    /// Bytes read and written, each operand once.
    pub bytes: u64,
}

impl Product {
    /// `batch` products of an `m` by `k` and a `k` by `n` matrix, whose elements take so many bytes.
    pub fn of_matrices(number: Number, [m, n, k, batch]: [u64; 4], [a, b, c]: [u64; 3]) -> Self {
        let times = |one: u64, other: u64| one.saturating_mul(other).saturating_mul(batch);
        let bytes = times(m, k).saturating_mul(a).saturating_add(times(k, n).saturating_mul(b));
        Self {
            number,
            operations: times(m, n).saturating_mul(k).saturating_mul(2),
            bytes: bytes.saturating_add(times(m, n).saturating_mul(c)),
        }
    }
}

/// Kernels by the bytes that they move, in powers of two: what is small costs its launch, what is large its bytes.
struct Kernels {
    calls: [AtomicU64; 64],
    bytes: [AtomicU64; 64],
}

/// What was computed and moved since the last cut.
pub struct Work {
    kernels: Kernels,
    products: Mutex<BTreeMap<Product, u64>>,
    /// Calls and bytes of copies in the order of [`Way::ALL`].
    copies: [[AtomicU64; 2]; 3],
    forwards: Forwards,
}

impl Work {
    /// No work.
    pub const fn new() -> Self {
        Self {
            kernels: Kernels { calls: [const { AtomicU64::new(0) }; 64], bytes: [const { AtomicU64::new(0) }; 64] },
            products: Mutex::new(Rank::Products, BTreeMap::new()),
            copies: [const { [const { AtomicU64::new(0) }; 2] }; 3],
            forwards: Forwards::new(),
        }
    }

    /// Counts a product, a convolution or an attention.
    pub fn product(&self, product: Product) {
        let mut products = self.products.lock();
        if products.len() >= MOST_PRODUCTS && !products.contains_key(&product) {
            // The work stays true in sum; only that it was several launches is lost.
            let last = products.keys().rev().find(|known| known.number == product.number).copied();
            let Some(last) = last else { return };
            let times = product.operations.div_ceil(last.operations.max(1));
            *products.entry(last).or_default() += times;
            return;
        }
        *products.entry(product).or_default() += 1;
    }

    /// Counts a kernel that moves so many bytes.
    #[inline]
    pub fn kernel(&self, bytes: u64) {
        let place = (63 - (bytes | 1).leading_zeros()) as usize;
        if let (Some(calls), Some(sum)) = (self.kernels.calls.get(place), self.kernels.bytes.get(place)) {
            calls.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a copy.
    pub fn copied(&self, way: Way, bytes: u64) {
        if let Some([calls, sum]) =
            Way::ALL.iter().position(|known| *known == way).and_then(|place| self.copies.get(place))
        {
            calls.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The work since the last cut, as JSON, and begins to count anew.
    pub fn cut(&self) -> String {
        self.forwards.step_ended();
        let taken = |number: &AtomicU64| number.swap(0, Ordering::Relaxed);
        let mut text = String::from("{\"products\":[");
        let mut comma = "";
        for (product, times) in std::mem::take(&mut *self.products.lock()) {
            let Product { number, operations, bytes } = product;
            let _ = write!(text, "{comma}[\"{}\",{operations},{bytes},{times}]", number.name());
            comma = ",";
        }
        text.push_str("],\"kernels\":[");
        comma = "";
        for (calls, bytes) in self.kernels.calls.iter().zip(&self.kernels.bytes) {
            let (calls, bytes) = (taken(calls), taken(bytes));
            if calls > 0 {
                let _ = write!(text, "{comma}[{calls},{bytes}]");
                comma = ",";
            }
        }
        text.push_str("],\"copies\":{");
        comma = "";
        for (way, [calls, bytes]) in Way::ALL.into_iter().zip(&self.copies) {
            let _ = write!(text, "{comma}\"{}\":[{},{}]", way.name(), taken(calls), taken(bytes));
            comma = ",";
        }
        text.push_str("}}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_gives_what_was_counted_and_begins_anew() {
        let work = Work::new();
        work.product(Product::of_matrices(Number::F16, [128, 256, 64, 3], [2, 2, 4]));
        work.product(Product::of_matrices(Number::F16, [128, 256, 64, 3], [2, 2, 4]));
        work.kernel(1000);
        work.kernel(1020);
        work.copied(Way::ToHost, 7);
        let operations = 2 * 128 * 256 * 64 * 3;
        let bytes = 3 * (128 * 64 * 2 + 64 * 256 * 2 + 128 * 256 * 4);
        let copies = r#""copies":{"to_card":[0,0],"to_host":[1,7],"on_card":[0,0]}"#;
        let text = work.cut();
        assert_eq!(text, format!(r#"{{"products":[["f16",{operations},{bytes},2]],"kernels":[[2,2020]],{copies}}}"#));
        assert!(work.cut().starts_with(r#"{"products":[],"kernels":[]"#));
    }
}

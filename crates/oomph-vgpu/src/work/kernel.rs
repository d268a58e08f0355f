//! How much a launched kernel touches, by its name, its grid and its first arguments.
//!
//! Names are looked at once for each kernel. They are those of PyTorch's own kernels from 1.13 to 2.15; kernels of other
//! names, or of a later PyTorch's, count by their threads.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::{BYTES_PER_THREAD, Number, Product, Work};
use crate::boundary::Memory;

/// A launch as the program asked for it.
pub struct Launch<'a> {
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block in each direction.
    pub block: [u32; 3],
    /// The addresses of the arguments; null where they are given in another way.
    pub arguments: Memory<'a>,
}

/// How the elements of a kernel are counted. The numbers are kept in four bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Count {
    /// By its threads.
    Threads = 0,
    /// The first argument says how many there are.
    First = 1,
    /// A block for each row, whose length is the first argument.
    Rows = 2,
    /// A block for each row, whose length is the third argument.
    RowsThird = 3,
    /// A block for each row, whose length is the fourth argument.
    RowsFourth = 4,
    /// Rows are the third argument, their length is the fifth.
    ThirdByFifth = 5,
    /// Rows are the fourth argument, their length is the sixth.
    FourthBySixth = 6,
    /// A block for each chunk of 65,536 elements.
    Chunks = 7,
    /// The forward pass of FlashAttention: blocks of queries, samples, heads.
    Flash = 8,
    /// The forward pass of the memory-efficient attention: blocks of queries, heads, samples.
    Efficient = 9,
    /// The backward pass of either.
    AttentionBackward = 10,
}

const COUNTS: [Count; 11] = [
    Count::Threads,
    Count::First,
    Count::Rows,
    Count::RowsThird,
    Count::RowsFourth,
    Count::ThirdByFifth,
    Count::FourthBySixth,
    Count::Chunks,
    Count::Flash,
    Count::Efficient,
    Count::AttentionBackward,
];

/// Elements of a chunk of `multi_tensor_apply`.
const CHUNK: u64 = 65_536;
/// The backward pass of attention makes five products for the two of the forward pass.
const BACKWARD_TIMES_TWO: u64 = 5;
/// Of more forward passes in a step the oldest are forgotten.
const MOST_FORWARDS: usize = 1024;

/// Forward passes of attention whose backward pass may come: the backward kernels do not say what they compute, and come in
/// the opposite order.
pub(super) struct Forwards {
    operations: [AtomicU64; MOST_FORWARDS],
    depth: AtomicUsize,
}

impl Forwards {
    pub(super) const fn new() -> Self {
        Self { operations: [const { AtomicU64::new(0) }; MOST_FORWARDS], depth: AtomicUsize::new(0) }
    }

    /// A step has ended, and with it what was computed without a backward pass.
    pub(super) fn step_ended(&self) {
        self.depth.store(0, Ordering::Relaxed);
    }

    fn push(&self, operations: u64) {
        let place = self.depth.fetch_add(1, Ordering::Relaxed) % MOST_FORWARDS;
        self.operations[place].store(operations, Ordering::Relaxed);
    }

    /// What the last forward pass computed whose backward pass has not come; the first one's where all have.
    fn pop(&self) -> u64 {
        let less = |depth: usize| depth.checked_sub(1);
        let depth = self.depth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(1);
        self.operations[(depth - 1) % MOST_FORWARDS].load(Ordering::Relaxed)
    }
}

/// How a kernel is counted: what to look at in its lowest four bits, and further up the bytes of an element, or for attention
/// the block of queries, the size of a head, whether it is causal, and whether its numbers have 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe(pub u64);

impl Recipe {
    fn new(count: Count, detail: u64) -> Self {
        Self(detail << 4 | count as u64)
    }

    /// What to look at in a launch, as a number below 16.
    pub fn tag(self) -> usize {
        (self.0 & 15) as usize
    }

    /// How a kernel of this mangled name is counted.
    pub fn of(name: &str) -> Self {
        let has = |part: &str| name.contains(part);
        let size: u64 = if has("BFloat16") || has("4Half") { 2 } else { 4 };
        if has("elementwise_kernel") {
            // The pointers of its operands, where it has them in an array.
            let operands = numbers_after(name, "IPcLm").first().or(numbers_after(name, "IPcLi").first()).copied();
            return Self::new(Count::First, size * operands.unwrap_or(3).clamp(1, 8));
        }
        if has("multi_tensor_apply_kernel") {
            let lists = numbers_after(name, "TensorListMetadataILi").first().copied().unwrap_or(2).clamp(1, 8);
            // All lists are read and about half of them are written.
            return Self::new(Count::Chunks, (size * lists * 3).div_ceil(2));
        }
        if has("flash_fwd_kernel") {
            let sizes = numbers_after(name, "kernel_traitsILi");
            let more = numbers_after(name.split_once("kernel_traits").map_or("", |(_, rest)| rest), "Li");
            let (head, rows) = (sizes.first().copied().unwrap_or(64), more.get(1).copied().unwrap_or(64));
            // Two flags belong to the traits; then come dropout and causal.
            let causal = numbers_after(name, "Lb").get(3).copied().unwrap_or(0).min(1);
            return Self::new(Count::Flash, rows.min(1023) | head.min(1023) << 10 | causal << 20);
        }
        if has("fmha_cutlassF") {
            let sizes = numbers_after(name, "Li");
            let (rows, head) = (sizes.first().copied().unwrap_or(64), sizes.get(2).copied().unwrap_or(64));
            // The variant for heads of any size says 65,536.
            let head = if head > 1023 { 128 } else { head };
            let wide = u64::from(has("_f32_"));
            return Self::new(Count::Efficient, rows.min(1023) | head << 10 | wide << 21);
        }
        if has("flash_bwd_dq_dk_dv") || has("fmha_cutlassB") {
            return Self::new(Count::AttentionBackward, u64::from(has("_f32_")) << 21);
        }
        let rows = if has("softmax_warp_forward") {
            (Count::ThirdByFifth, 2)
        } else if has("softmax_warp_backward") {
            (Count::FourthBySixth, 3)
        } else if has("cunn_SoftMaxForward") {
            (Count::RowsThird, 2)
        } else if has("cunn_SoftMaxBackward") {
            (Count::RowsFourth, 3)
        } else if has("vectorized_layer_norm_kernel") {
            (Count::Rows, 2)
        } else {
            return Self::new(Count::Threads, BYTES_PER_THREAD);
        };
        Self::new(rows.0, rows.1 * size)
    }
}

/// The numbers that stand right behind a part of a name, in their order.
fn numbers_after(name: &str, part: &str) -> Vec<u64> {
    let number = |rest: &str| {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..digits)?.parse().ok()
    };
    name.match_indices(part).filter_map(|(at, _)| number(name.get(at + part.len()..)?)).collect()
}

fn product_of(sides: [u32; 3]) -> u64 {
    sides.iter().fold(1, |product, &side| product.saturating_mul(u64::from(side)))
}

impl Work {
    /// Counts a launch of a kernel of which nothing is known, by its threads.
    pub fn by_threads(&self, grid: [u32; 3], block: [u32; 3]) {
        let threads = product_of(grid).saturating_mul(product_of(block));
        self.kernel(threads.saturating_mul(BYTES_PER_THREAD));
    }

    /// Counts a launch of a kernel.
    ///
    /// # Safety
    /// The recipe is that of the kernel, and the arguments are those of CUDA's contract: an address for each parameter, or null.
    #[inline]
    pub unsafe fn launched(&self, recipe: Recipe, launch: &Launch<'_>) {
        let arguments = launch.arguments.address().cast::<*mut c_void>();
        let detail = recipe.0 >> 4;
        let count = COUNTS.get(recipe.tag()).copied().unwrap_or(Count::Threads);
        // SAFETY: the caller's promise, for all arms: kernels of these names have that many parameters, of 4 bytes or more.
        let argument = |place: usize| unsafe { number_at(arguments, place) };
        let rows = u64::from(launch.grid[0]);
        let elements = match count {
            Count::Threads => return self.by_threads(launch.grid, launch.block),
            Count::First => argument(0),
            Count::Rows => argument(0).map(|length| length.saturating_mul(rows)),
            Count::RowsThird => argument(2).map(|length| length.saturating_mul(rows)),
            Count::RowsFourth => argument(3).map(|length| length.saturating_mul(rows)),
            Count::ThirdByFifth => argument(2).zip(argument(4)).map(|(rows, length)| rows.saturating_mul(length)),
            Count::FourthBySixth => argument(3).zip(argument(5)).map(|(rows, length)| rows.saturating_mul(length)),
            Count::Chunks => Some(rows.saturating_mul(CHUNK)),
            Count::Flash | Count::Efficient => {
                // SAFETY: the kernels' only parameter is a structure of more than `MOST_WORDS` words in every version of
                // PyTorch that has them.
                let words = unsafe { words_of(arguments) };
                return self.attention(count, detail, launch.grid, words.unwrap_or([0; MOST_WORDS]));
            }
            Count::AttentionBackward => {
                let operations = self.forwards.pop() / 2 * BACKWARD_TIMES_TWO;
                return self.product(Product { number: attends_with(detail), operations, bytes: 0 });
            }
        };
        match elements {
            Some(elements) => self.kernel(elements.saturating_mul(detail)),
            None => self.by_threads(launch.grid, launch.block),
        }
    }

    /// Counts a forward pass of attention.
    fn attention(&self, count: Count, detail: u64, grid: [u32; 3], words: [u32; MOST_WORDS]) {
        let (rows, head, causal) = (detail & 1023, detail >> 10 & 1023, detail >> 20 & 1);
        let [blocks, second, third] = grid;
        let queries = u64::from(blocks).saturating_mul(rows);
        let keys = keys(count, &words, head, rows, grid);
        let heads = u64::from(second).saturating_mul(u64::from(third));
        let scores = queries.saturating_mul(keys).saturating_mul(heads) >> causal;
        let operations = scores.saturating_mul(head).saturating_mul(4);
        self.forwards.push(operations);
        // Queries and the output, keys and values.
        let (number, size) = (attends_with(detail), if detail >> 21 & 1 == 1 { 4 } else { 2 });
        let bytes = queries.saturating_add(keys).saturating_mul(heads).saturating_mul(head).saturating_mul(2 * size);
        self.product(Product { number, operations, bytes });
    }
}

/// An argument that is a count, read as 32 bits: counts beyond that have the same low half, which no launch of one kernel
/// reaches. `None` where it is not a count.
///
/// # Safety
/// `arguments` is null or has an address at this place, which can be read for 4 bytes.
unsafe fn number_at(arguments: *mut *mut c_void, place: usize) -> Option<u64> {
    if arguments.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let address = unsafe { arguments.add(place).read_unaligned() };
    // SAFETY: as above.
    let number = (!address.is_null()).then(|| unsafe { address.cast::<i32>().read_unaligned() })?;
    u64::try_from(number).ok()
}

/// Attention of 32-bit numbers does not use tensor cores at their full speed.
fn attends_with(detail: u64) -> Number {
    if detail >> 21 & 1 == 1 { Number::F32 } else { Number::F16 }
}

/// Words of 32 bits of an attention's parameters that are looked at.
const MOST_WORDS: usize = 54;

/// The first words of a kernel's only parameter.
///
/// # Safety
/// `arguments` is null, or its first address is null or can be read for `MOST_WORDS` words.
unsafe fn words_of(arguments: *mut *mut c_void) -> Option<[u32; MOST_WORDS]> {
    if arguments.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let address = unsafe { arguments.read_unaligned() };
    // SAFETY: as above.
    (!address.is_null()).then(|| unsafe { address.cast::<[u32; MOST_WORDS]>().read_unaligned() })
}

/// How many keys there are to the queries of `blocks` blocks: the parameters have both lengths one after the other, behind
/// the sizes of a head (memory-efficient attention) or the number of samples (FlashAttention). As many as queries where
/// that is not found.
fn keys(count: Count, words: &[u32], head: u64, rows: u64, [blocks, samples, _]: [u32; 3]) -> u64 {
    let all = u64::from(blocks).saturating_mul(rows);
    let is_length = |queries: u32| queries > 0 && u64::from(queries).div_ceil(rows.max(1)) == u64::from(blocks);
    let is_head = |size: u32| size > 0 && u64::from(size) <= head;
    let found = match count {
        Count::Flash => words.windows(3).find(|seen| seen[0] == samples && is_length(seen[1])).map(|seen| seen[2]),
        _ => {
            let is = |seen: &&[u32]| is_head(seen[0]) && is_head(seen[1]) && is_length(seen[2]);
            words.windows(4).find(is).map(|seen| seen[3])
        }
    };
    found.filter(|&keys| keys > 0 && keys <= 1 << 24).map_or(all, u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a launch of such a kernel moves, in bytes, or `None` where it is a product.
    fn recipe(name: &str) -> (Count, u64) {
        let recipe = Recipe::of(name);
        (COUNTS[recipe.tag()], recipe.0 >> 4)
    }

    #[test]
    fn the_keys_of_a_cross_attention_are_found_in_its_parameters() {
        let mut words = [0u32; MOST_WORDS];
        assert_eq!(keys(Count::Efficient, &words, 64, 64, [64, 8, 8]), 4096);
        words[20..24].copy_from_slice(&[40, 40, 4096, 77]);
        assert_eq!(keys(Count::Efficient, &words, 64, 64, [64, 8, 8]), 77);
        words[46..50].copy_from_slice(&[4, 4096, 1024, 1024]);
        assert_eq!(keys(Count::Flash, &words, 64, 128, [32, 4, 8]), 1024);
    }

    #[test]
    fn backward_passes_come_in_the_opposite_order() {
        let forwards = Forwards::new();
        for operations in [10, 20, 30] {
            forwards.push(operations);
        }
        assert_eq!([forwards.pop(), forwards.pop(), forwards.pop(), forwards.pop()], [30, 20, 10, 10]);
    }

    #[test]
    fn kernels_are_known_by_the_names_that_pytorch_gives_them() {
        let add =
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_";
        assert_eq!(recipe(add), (Count::First, 12));
        let half = "_ZN2at6native29vectorized_elementwise_kernelILi8EZZZNS0_16gelu_kernel_cudaERKNS_10TensorBaseEENKUlvE_clEvEUlN3c108BFloat16EE_St5arrayIPcLm2EEEEviT0_T1_";
        assert_eq!(recipe(half), (Count::First, 4));
        let adam = "_ZN2at6native25multi_tensor_apply_kernelINS1_32FusedOptimizerTensorListMetadataILi4EEENS1_20FusedAdamMathFunctorIfLi4ELNS0_9ADAM_MODEE0ELb0EEEJEEEvT_T0_DpT1_";
        assert_eq!(recipe(adam), (Count::Chunks, 24));
        let softmax = "_ZN43_GLOBAL__N__f71e7945_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi8ELb0ELb1ELi32EEEvPT0_PKT_iiiPKbib";
        assert_eq!(recipe(softmax), (Count::ThirdByFifth, 8));
        let flash = "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi64ELi128ELi128ELi4ELb0ELb0EN7cutlass10bfloat16_tE19Flash_kernel_traitsILi64ELi128ELi128ELi4ES3_EELb0ELb1ELb0ELb0ELb1ELb1ELb0ELb0EEEvNS_16Flash_fwd_paramsE";
        assert_eq!(recipe(flash), (Count::Flash, 128 | 64 << 10 | 1 << 20));
        let efficient = "_Z40fmha_cutlassF_bf16_aligned_64x64_rf_sm80N22PyTorchMemEffAttention15AttentionKernelIN7cutlass10bfloat16_tENS1_4arch4Sm80ELb1ELi64ELi64ELi64ELb1ELb1EE6ParamsE";
        assert_eq!(recipe(efficient), (Count::Efficient, 64 | 64 << 10));
        assert_eq!(recipe("_Z6mykernelPf"), (Count::Threads, BYTES_PER_THREAD));
    }
}

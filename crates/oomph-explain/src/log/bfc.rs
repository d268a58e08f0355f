//! The dump that the BFC allocator of TensorFlow and XLA prints when it fails, read into a map of its heap.
//!
//! The form is that of `bfc_allocator.cc`: one line a bin, one a chunk (`InUse at 7f.. of size 1280 next 4`, `Free  at ..`,
//! in old releases `Chunk at ..`), a summary by size, statistics, and a line of 100 characters that shows the heap.

use std::collections::BTreeMap;

use serde::Serialize;

use super::size;

/// The most distinct chunk sizes that are counted one by one.
const MOST_SIZES: usize = 4096;

/// A heap at the time of its failure. All sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heap {
    /// Regions that the allocator got from the driver.
    pub regions: u64,
    /// Their sum.
    pub region_bytes: u64,
    /// Chunks in use.
    pub in_use_chunks: u64,
    /// Their sum.
    pub in_use_bytes: u64,
    /// Free chunks.
    pub free_chunks: u64,
    /// Their sum.
    pub free_bytes: u64,
    /// The largest free chunk: the largest request that could be served without a new region.
    pub largest_free_bytes: u64,
    /// Free memory outside the largest free chunk, as a share of the free memory: 0 is one piece.
    pub fragmentation: f64,
    /// The limit of the allocator.
    pub limit_bytes: Option<u64>,
    /// The most that was in use.
    pub most_in_use_bytes: Option<u64>,
    /// The bins that hold chunks.
    pub bins: Vec<Bin>,
    /// The sizes that hold the most memory, largest sum first.
    pub largest: Vec<SizeClass>,
    /// The allocator's own picture of the heap: `*` used, `x` slack in chunks, `_` free.
    pub picture: Option<String>,
    /// The first line of the dump in the log.
    pub line: u64,
}

/// A bin of the allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bin {
    /// The smallest chunk of the bin, in bytes.
    pub from_bytes: u64,
    /// Chunks in it.
    pub chunks: u64,
    /// Of these in use.
    pub in_use: u64,
    /// Bytes of all its chunks.
    pub bytes: u64,
}

/// Chunks of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SizeClass {
    /// The size.
    pub size_bytes: u64,
    /// Chunks in use of this size.
    pub chunks: u64,
    /// Their sum.
    pub bytes: u64,
}

/// Collects a dump line by line.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    heap: Heap,
    sizes: BTreeMap<u64, u64>,
    last_line: u64,
}

impl Collector {
    /// Takes a line of the allocator.
    pub fn line(&mut self, line: &str, number: u64) {
        let words = line.split_once(']').map_or(line, |(_, words)| words).trim();
        if words.starts_with("BFCAllocator dump") {
            *self = Self::default();
        }
        if self.heap.line == 0 {
            self.heap.line = number;
        }
        self.last_line = number;
        if let Some(rest) = words.strip_prefix("Bin (") {
            self.bin(rest);
        } else if let Some(rest) = words.strip_prefix("Next region of size ") {
            self.heap.regions = self.heap.regions.saturating_add(1);
            self.heap.region_bytes = self.heap.region_bytes.saturating_add(number_at(rest));
        } else if let Some((_, rest)) = words.split_once(" of size ") {
            let bytes = number_at(rest);
            if words.starts_with("InUse at") || words.starts_with("Chunk at") {
                self.in_use(bytes, 1);
            } else if words.starts_with("Free") {
                self.heap.free_chunks = self.heap.free_chunks.saturating_add(1);
                self.heap.free_bytes = self.heap.free_bytes.saturating_add(bytes);
                self.heap.largest_free_bytes = self.heap.largest_free_bytes.max(bytes);
            } else if words.contains("Chunks of size") && self.heap.regions == 0 {
                // A summary whose chunks were cut off from the log.
                self.in_use(bytes, number_at(words));
            }
        } else if words.len() >= 50 && words.bytes().all(|byte| matches!(byte, b'*' | b'x' | b'_' | b'+')) {
            self.heap.picture = Some(words.chars().take(100).collect());
        }
    }

    fn bin(&mut self, rest: &str) {
        let Some((from, rest)) = rest.split_once(')') else { return };
        let after = |label: &str| rest.split_once(label).map_or(0, |(_, value)| number_at(value));
        let bytes = rest
            .split_once("Chunks in use:")
            .and_then(|(_, value)| value.split_once(". "))
            .and_then(|(_, value)| value.split_once(" allocated"))
            .and_then(|(figure, _)| size::parse(figure))
            .unwrap_or(0);
        let bin =
            Bin { from_bytes: number_at(from), chunks: after("Total Chunks:"), in_use: after("Chunks in use:"), bytes };
        if bin.chunks > 0 && self.heap.bins.len() < 64 {
            self.heap.bins.push(bin);
        }
    }

    fn in_use(&mut self, bytes: u64, count: u64) {
        self.heap.in_use_chunks = self.heap.in_use_chunks.saturating_add(count);
        self.heap.in_use_bytes = self.heap.in_use_bytes.saturating_add(bytes.saturating_mul(count));
        if self.sizes.len() < MOST_SIZES || self.sizes.contains_key(&bytes) {
            let chunks = self.sizes.entry(bytes).or_default();
            *chunks = chunks.saturating_add(count);
        }
    }

    /// Takes the statistics that end a dump.
    pub fn statistics(&mut self, text: &str) {
        let after = |label: &str| text.split_once(label).and_then(|(_, value)| figure_at(value));
        self.heap.limit_bytes = after("Limit:");
        self.heap.most_in_use_bytes = after("MaxInUse:");
        if let Some(largest) = after("LargestFreeBlock:") {
            self.heap.largest_free_bytes = self.heap.largest_free_bytes.max(largest);
        }
    }

    /// The last line that was taken.
    pub fn last_line(&self) -> u64 {
        self.last_line
    }

    /// The heap, if a dump was seen; the collector is empty afterwards.
    pub fn take(&mut self) -> Option<Heap> {
        let Self { mut heap, sizes, .. } = std::mem::take(self);
        if heap.in_use_chunks == 0 && heap.free_chunks == 0 && heap.bins.is_empty() {
            return None;
        }
        if heap.free_bytes > 0 {
            heap.fragmentation = 1.0 - heap.largest_free_bytes.min(heap.free_bytes) as f64 / heap.free_bytes as f64;
        }
        let mut largest: Vec<SizeClass> = sizes
            .into_iter()
            .map(|(size_bytes, chunks)| SizeClass { size_bytes, chunks, bytes: size_bytes.saturating_mul(chunks) })
            .collect();
        largest.sort_by_key(|class| std::cmp::Reverse(class.bytes));
        largest.truncate(8);
        heap.largest = largest;
        Some(heap)
    }
}

/// The bytes of the figure at the start of a text, which has a unit or is a whole number.
fn figure_at(text: &str) -> Option<u64> {
    size::parse(text.split_whitespace().next()?)
}

/// The whole number at the start of a text, 0 if there is none.
fn number_at(text: &str) -> u64 {
    let text = text.trim_start();
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_have_units_or_none() {
        let mut collector = Collector::default();
        collector.line("I bfc_allocator.cc:4] InUse at 7f0000000000 of size 1280 next 1", 1);
        collector.statistics("Stats: \nLimit:   10.13GiB\nInUse:  9.9GiB\nMaxInUse:  1024\nLargestFreeBlock: 2.5MiB");
        let heap = collector.take().unwrap();
        assert_eq!((heap.limit_bytes, heap.most_in_use_bytes), (Some(10_877_004_677), Some(1024)));
        assert_eq!(heap.largest_free_bytes, 2_621_440);
    }

    #[test]
    fn a_dump_becomes_a_heap() {
        let dump = "I bfc_allocator.cc:1] BFCAllocator dump for GPU_0_bfc
I bfc_allocator.cc:2] Bin (256): \tTotal Chunks: 4, Chunks in use: 3. 1.0KiB allocated for chunks. 768B in use in bin. 12B client-requested in use in bin.
I bfc_allocator.cc:2] Bin (512): \tTotal Chunks: 0, Chunks in use: 0. 0B allocated for chunks. 0B in use in bin. 0B client-requested in use in bin.
I bfc_allocator.cc:3] Next region of size 4096
I bfc_allocator.cc:4] InUse at 7f0000000000 of size 1280 next 1
I bfc_allocator.cc:4] InUse at 7f0000000500 of size 1280 next 2
I bfc_allocator.cc:4] Free  at 7f0000000a00 of size 512 next 3
I bfc_allocator.cc:4] InUse at 7f0000000c00 of size 256 next 4
I bfc_allocator.cc:4] Free  at 7f0000000d00 of size 768 next 18446744073709551615
W bfc_allocator.cc:5] ****************************************************__________xxxxx_________________________________";
        let mut collector = Collector::default();
        for (index, line) in dump.lines().enumerate() {
            collector.line(line, index as u64 + 10);
        }
        collector.statistics("Stats: Limit: 8192 InUse: 2816 MaxInUse: 3000 LargestFreeBlock: 0");
        let heap = collector.take().unwrap();
        assert_eq!((heap.regions, heap.region_bytes), (1, 4096));
        assert_eq!((heap.in_use_chunks, heap.in_use_bytes), (3, 2816));
        assert_eq!((heap.free_chunks, heap.free_bytes, heap.largest_free_bytes), (2, 1280, 768));
        assert_eq!(heap.in_use_bytes + heap.free_bytes, heap.region_bytes);
        assert!((heap.fragmentation - 0.4).abs() < 1e-9);
        assert_eq!(heap.bins, [Bin { from_bytes: 256, chunks: 4, in_use: 3, bytes: 1024 }]);
        assert_eq!(heap.largest[0], SizeClass { size_bytes: 1280, chunks: 2, bytes: 2560 });
        assert_eq!((heap.limit_bytes, heap.most_in_use_bytes), (Some(8192), Some(3000)));
        assert!(heap.picture.unwrap().starts_with("****"));
        assert_eq!(heap.line, 10);
        assert!(collector.take().is_none());
    }
}

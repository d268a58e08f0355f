//! Address space: where blocks lie, and which block an address belongs to.
//!
//! Addresses come from large mappings that are readable and writable but never committed. They are cut and joined
//! here, because one `mmap` and `munmap` for each `cudaMalloc` would cost more than the whole call may.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::ptr;

use oomph_ledger::Kind;

/// The driver's granularity for device memory, in bytes.
pub const GRANULE: usize = 2 << 20;
/// Requests up to this share a granule, as the driver lets them; in bytes.
pub const SMALL: usize = 1 << 20;
/// Alignment of what shares a granule, in bytes.
pub const SMALL_ALIGNMENT: usize = 512;
/// Address space that is reserved at once, in bytes; larger requests reserve their own.
const CHUNK: usize = 64 << 30;

/// Free ranges of addresses, joined with their neighbours, searched best fit first.
#[derive(Default)]
pub struct FreeRanges {
    by_start: BTreeMap<usize, usize>,
    by_size: BTreeSet<(usize, usize)>,
    /// Ranges are not joined across multiples of this, in bytes; 0 where they always are.
    boundary: usize,
}

impl FreeRanges {
    /// No range at all.
    pub const EMPTY: Self = Self::within(0);

    /// No range at all, of ranges that never reach across a granule's end.
    pub const WITHIN_GRANULES: Self = Self::within(GRANULE);

    const fn within(boundary: usize) -> Self {
        Self { by_start: BTreeMap::new(), by_size: BTreeSet::new(), boundary }
    }

    /// Takes `size` bytes from the smallest range that holds them, the lowest of equal ones.
    pub fn take(&mut self, size: usize) -> Option<usize> {
        let &(length, start) = self.by_size.range((size, 0)..).next()?;
        self.by_size.remove(&(length, start));
        self.by_start.remove(&start);
        if length > size {
            self.insert(start + size, length - size);
        }
        Some(start)
    }

    /// Gives a range back and returns the free range that it is now part of, as start and size.
    pub fn give(&mut self, mut start: usize, mut size: usize) -> (usize, usize) {
        if let Some((&before, &length)) = self.by_start.range(..start).next_back()
            && before + length == start
            && self.may_join_at(start)
        {
            self.remove(before, length);
            start = before;
            size += length;
        }
        if let Some(&length) = self.by_start.get(&(start + size))
            && self.may_join_at(start + size)
        {
            self.remove(start + size, length);
            size += length;
        }
        self.insert(start, size);
        (start, size)
    }

    /// Removes a free range that [`give`](Self::give) returned.
    pub fn remove(&mut self, start: usize, size: usize) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }

    /// The free range that ends at an address, as start and size.
    pub fn ending_at(&self, end: usize) -> Option<(usize, usize)> {
        let (&start, &size) = self.by_start.range(..end).next_back()?;
        (start + size == end).then_some((start, size))
    }

    /// Takes exactly these addresses, if all of them are free.
    pub fn take_exact(&mut self, start: usize, size: usize) -> bool {
        let Some((&at, &length)) = self.by_start.range(..=start).next_back() else { return false };
        if at + length < start + size {
            return false;
        }
        self.remove(at, length);
        if at < start {
            self.insert(at, start - at);
        }
        if at + length > start + size {
            self.insert(start + size, at + length - start - size);
        }
        true
    }

    fn may_join_at(&self, address: usize) -> bool {
        self.boundary == 0 || !address.is_multiple_of(self.boundary)
    }

    fn insert(&mut self, start: usize, size: usize) {
        self.by_start.insert(start, size);
        self.by_size.insert((size, start));
    }
}

/// What lies at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Device memory, charged as this kind.
    Device(Kind),
    /// Device memory of a stream-ordered pool, whose charge the pool keeps.
    Pool(usize),
    /// Device memory that another process allocated and is charged for ([`crate::ipc`]).
    Shared,
    /// Page-locked memory that CUDA allocated on the host.
    Host,
    /// The program's own memory that it registered with CUDA.
    Registered,
    /// A range of addresses to which device memory may be mapped.
    Reserved,
}

/// One block of addresses.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First address.
    pub start: usize,
    /// Size as the program asked for it, in bytes.
    pub size: usize,
    /// Bytes that it takes from the address space.
    pub span: usize,
    /// What lies there.
    pub place: Place,
    /// Ledger index of the card it is on, or was allocated for.
    pub card: usize,
    /// Ordinal of that card in this process.
    pub ordinal: usize,
    /// A number that no other block of this process ever has.
    pub id: u64,
}

/// All blocks of the process and the addresses that are free.
#[derive(Default)]
pub struct Space {
    blocks: BTreeMap<usize, Block>,
    free: FreeRanges,
    next_id: u64,
}

impl Space {
    /// No block, and no address.
    pub const fn new() -> Self {
        Self { blocks: BTreeMap::new(), free: FreeRanges::EMPTY, next_id: 0 }
    }

    /// Takes `span` bytes of readable and writable address space, aligned to [`GRANULE`]. `span` is a multiple of it.
    /// `None` where the host gives no more (see [`host_limit`]).
    pub fn take(&mut self, span: usize) -> Option<usize> {
        if let Some(start) = self.free.take(span) {
            return Some(start);
        }
        let (start, size) = reserve(span.max(CHUNK)).or_else(|| reserve(span))?;
        self.free.give(start, size);
        self.free.take(span)
    }

    /// Takes exactly these addresses, as [`take`](Self::take) does, if nothing else has them.
    pub fn take_at(&mut self, start: usize, span: usize) -> bool {
        self.free.take_exact(start, span)
    }

    /// Gives address space back and lets go of the pages behind it.
    pub fn give(&mut self, start: usize, span: usize) {
        forget(start, span);
        self.free.give(start, span);
    }

    /// Enters a block, whose id this sets.
    pub fn insert(&mut self, mut block: Block) {
        self.next_id += 1;
        block.id = self.next_id;
        self.blocks.insert(block.start, block);
    }

    /// Removes the block that starts at an address.
    pub fn remove(&mut self, start: usize) -> Option<Block> {
        self.blocks.remove(&start)
    }

    /// The block that an address lies in.
    pub fn find(&self, address: usize) -> Option<Block> {
        let (_, block) = self.blocks.range(..=address).next_back()?;
        (address < block.start + block.size.max(1)).then_some(*block)
    }
}

/// Lets go of the pages behind a range. What the program wrote there is gone, as after `cudaFree`.
pub fn forget(start: usize, span: usize) {
    // SAFETY: the range lies in a mapping that `reserve` made, and no block lives in it any more. A failure leaves the
    // pages in memory, which is harmless.
    unsafe { libc::madvise(start as *mut c_void, span, libc::MADV_DONTNEED) };
}

/// The limit of the host that leaves no addresses, if there is one: that is not the card's, and the program's real card
/// would have had the memory.
pub fn host_limit() -> Option<String> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call writes to a structure of its type.
    unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    if limit.rlim_cur != libc::RLIM_INFINITY {
        return Some(format!("ulimit -v is {} KiB", limit.rlim_cur / 1024));
    }
    let overcommit = std::fs::read("/proc/sys/vm/overcommit_memory");
    overcommit.is_ok_and(|setting| setting.starts_with(b"2")).then(|| "vm.overcommit_memory is 2".to_owned())
}

/// Reserves address space aligned to [`GRANULE`].
fn reserve(size: usize) -> Option<(usize, usize)> {
    let padded = size.checked_add(GRANULE)?;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            padded,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return None;
    }
    // Huge pages would make one touched byte cost 2 MiB of the host's memory.
    // SAFETY: the range is the mapping just made.
    unsafe { libc::madvise(at, padded, libc::MADV_NOHUGEPAGE) };
    // SAFETY: as above; a core dump of hundreds of GiB of nothing helps nobody.
    unsafe { libc::madvise(at, padded, libc::MADV_DONTDUMP) };
    Some(((at as usize).next_multiple_of(GRANULE), size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_and_joined() {
        let mut ranges = FreeRanges::default();
        ranges.give(0x1000, 0x4000);
        let first = ranges.take(0x1000);
        let second = ranges.take(0x1000);
        assert_eq!((first, second), (Some(0x1000), Some(0x2000)));
        assert_eq!(ranges.take(0x3000), None);
        ranges.give(0x2000, 0x1000);
        assert_eq!(ranges.give(0x1000, 0x1000), (0x1000, 0x4000));
        assert_eq!(ranges.take(0x4000), Some(0x1000));
        assert_eq!(ranges.take(1), None);
    }

    #[test]
    fn pieces_of_two_granules_are_not_joined() {
        let mut ranges = FreeRanges::WITHIN_GRANULES;
        ranges.give(GRANULE - 0x1000, 0x1000);
        assert_eq!(ranges.give(GRANULE, 0x1000), (GRANULE, 0x1000));
        assert_eq!(ranges.take(0x2000), None);
    }

    #[test]
    fn the_smallest_range_that_fits_is_taken() {
        let mut ranges = FreeRanges::default();
        ranges.give(0x10_000, 0x3000);
        ranges.give(0x20_000, 0x1000);
        assert_eq!(ranges.take(0x1000), Some(0x20_000));
    }

    #[test]
    fn an_address_finds_its_block_and_memory_is_real() {
        let mut space = Space::default();
        let start = space.take(GRANULE).unwrap_or(0);
        assert!(start != 0 && start % GRANULE == 0);
        // SAFETY: the space was just handed out.
        unsafe { ptr::write_volatile(start as *mut u8, 7) };
        let block =
            Block { start, size: 100, span: GRANULE, place: Place::Device(Kind::Malloc), card: 0, ordinal: 0, id: 0 };
        space.insert(block);
        assert_eq!(space.find(start + 99).map(|block| block.start), Some(start));
        assert!(space.find(start + 100).is_none());
        assert!(space.remove(start).is_some());
        space.give(start, GRANULE);
        // SAFETY: the mapping stays; only its contents are gone.
        assert_eq!(unsafe { ptr::read_volatile(start as *const u8) }, 0);
    }
}

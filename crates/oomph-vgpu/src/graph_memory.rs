//! Memory that graphs own: what their allocation nodes hand out.
//!
//! The driver takes it from the card when a graph is first launched and keeps it while an executable of the graph lives.
//! Here it is taken when the node is added, which is earlier and never less, and kept while the graph or an executable
//! of it lives.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use oomph_ledger::Kind;

use crate::gpu::{PARAMETERS, Piece, gpu};
use crate::status::INVALID_DEVICE;
use crate::{device, memory};

/// Where the members of `cudaMemAllocNodeParams` are, in bytes.
const LOCATION_ID: usize = 12;
const SIZE: usize = 104;
const POINTER: usize = 112;

/// Counters by the numbers that both APIs give them: bytes in use and reserved, now and at most.
const USED: i32 = 0;
const USED_HIGH: i32 = 1;
const RESERVED: i32 = 2;
const RESERVED_HIGH: i32 = 3;

impl Drop for Piece {
    fn drop(&mut self) {
        memory::free(self.start as *mut c_void);
        if let Some(held) = gpu().graph_memory.held.get(self.ordinal) {
            held.fetch_sub(self.size, Ordering::Relaxed);
        }
    }
}

/// Allocates for a node of a graph, and writes the address into its parameters.
///
/// # Safety
/// `parameters` must point to `cudaMemAllocNodeParams`, as CUDA requires.
pub unsafe fn allocate(graph: *mut c_void, node: *mut c_void, parameters: *mut c_void) -> Result<(), u32> {
    let parameters = parameters.cast::<[u8; PARAMETERS]>();
    // SAFETY: the caller's promise.
    let mut known = unsafe { parameters.read_unaligned() };
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| known[at + byte]));
    // The lower half of the word is the member; what follows it is another one.
    let ordinal = (word(LOCATION_ID) & 0xffff_ffff) as usize;
    let size = word(SIZE) as usize;
    let device = i32::try_from(ordinal).ok().and_then(device::get).ok_or(INVALID_DEVICE)?;
    let start = memory::allocate_on(device, ordinal, size, Kind::Pool)? as usize;
    let size = size as u64;
    let memory = &gpu().graph_memory;
    if let (Some(held), Some(high)) = (memory.held.get(ordinal), memory.held_high.get(ordinal)) {
        let now = held.fetch_add(size, Ordering::Relaxed) + size;
        high.fetch_max(now, Ordering::Relaxed);
    }
    known[POINTER..].copy_from_slice(&(start as u64).to_le_bytes());
    // SAFETY: as above.
    unsafe { parameters.write_unaligned(known) };
    let mut owners = gpu().graph_memory.owners.lock();
    owners.pieces.entry(graph as usize).or_default().push(Arc::new(Piece { start, size, ordinal }));
    owners.nodes.insert(node as usize, known);
    Ok(())
}

/// Lets an executable, or a copy of a graph, keep what a graph keeps, and nothing else.
pub fn share(from: *mut c_void, to: *mut c_void) {
    let mut owners = gpu().graph_memory.owners.lock();
    let _replaced = match owners.pieces.get(&(from as usize)).cloned() {
        Some(pieces) => owners.pieces.insert(to as usize, pieces),
        None => owners.pieces.remove(&(to as usize)),
    };
    // What is freed is freed after the lock was given back.
    drop(owners);
}

/// A graph or an executable is gone.
pub fn forget(owner: *mut c_void) {
    let _pieces = gpu().graph_memory.owners.lock().pieces.remove(&(owner as usize));
}

/// The parameters of an allocation node, for its getter.
///
/// # Safety
/// `to` must be null or point to `cudaMemAllocNodeParams`.
pub unsafe fn parameters(node: *mut c_void, to: *mut c_void) -> bool {
    let known = gpu().graph_memory.owners.lock().nodes.get(&(node as usize)).copied();
    if let (Some(known), false) = (known, to.is_null()) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[u8; PARAMETERS]>().write_unaligned(known) };
    }
    known.is_some()
}

/// A counter of a card.
pub fn attribute(ordinal: i32, attribute: i32) -> Option<u64> {
    let ordinal = usize::try_from(ordinal).ok()?;
    let counters = match attribute {
        USED | RESERVED => &gpu().graph_memory.held,
        USED_HIGH | RESERVED_HIGH => &gpu().graph_memory.held_high,
        _ => return None,
    };
    Some(counters.get(ordinal)?.load(Ordering::Relaxed))
}

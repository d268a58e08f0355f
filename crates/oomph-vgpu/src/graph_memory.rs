//! Memory that graphs own: what their allocation nodes hand out, and the lists of their conditional nodes.
//!
//! The driver takes it from the card when a graph is first launched and keeps it while an executable of the graph lives.
//! Here it is taken when the node is added, which is earlier and never less, and kept while the graph or an executable
//! of it lives.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use oomph_ledger::Kind;

use crate::boundary::Record;
pub use crate::gpu::PARAMETERS;
use crate::gpu::{Piece, gpu};
use crate::status::CudaStatus;
use crate::{capture, device, memory};

/// Where the members of `cudaMemAllocNodeParams` are, in bytes.
const LOCATION_ID: usize = 12;
const SIZE: usize = 104;
const POINTER: usize = 112;

/// Size of `cudaConditionalNodeParams`, in bytes, and where its members are: how many graphs, and the address of their list.
pub const CONDITIONAL: usize = 32;
const CONDITIONAL_SIZE: usize = 12;
const CONDITIONAL_GRAPHS: usize = 16;
/// More branches than any program has; a number above it was never meant as one.
const MOST_BODIES: u32 = 1 << 16;

/// Counters by the numbers that both APIs give them: bytes in use and reserved, now and at most.
const USED: i32 = 0;
const USED_HIGH: i32 = 1;
const RESERVED: i32 = 2;
const RESERVED_HIGH: i32 = 3;

impl Drop for Piece {
    fn drop(&mut self) {
        // A program may have freed it itself.
        let _ = memory::free(self.start as *mut c_void);
        if let Some(held) = gpu().graph_memory.held.get(self.ordinal) {
            held.fetch_sub(self.size, Ordering::Relaxed);
        }
    }
}

/// Allocates for a node of a graph, and writes the address into its parameters.
pub fn allocate(graph: *mut c_void, node: *mut c_void, parameters: Record<'_, PARAMETERS>) -> Result<(), CudaStatus> {
    let ordinal: i32 = parameters.read(LOCATION_ID).ok_or(CudaStatus::INVALID_VALUE)?;
    let size: u64 = parameters.read(SIZE).ok_or(CudaStatus::INVALID_VALUE)?;
    let device = device::get(ordinal).ok_or(CudaStatus::INVALID_DEVICE)?;
    let ordinal = ordinal as usize;
    let start = memory::allocate_on(device, ordinal, size as usize, Kind::Pool)? as usize;
    let memory = &gpu().graph_memory;
    if let (Some(held), Some(high)) = (memory.held.get(ordinal), memory.held_high.get(ordinal)) {
        let now = held.fetch_add(size, Ordering::Relaxed) + size;
        high.fetch_max(now, Ordering::Relaxed);
    }
    parameters.write(POINTER, start);
    let answered = parameters.read(0).unwrap_or([0; PARAMETERS]);
    let mut owners = gpu().graph_memory.owners.lock();
    owners.pieces.entry(graph as usize).or_default().push(Arc::new(Piece { start, size, ordinal }));
    owners.nodes.insert(node as usize, answered);
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
    let mut owners = gpu().graph_memory.owners.lock();
    let _pieces = owners.pieces.remove(&(owner as usize));
    let bodies = owners.bodies.remove(&(owner as usize));
    // What is freed is freed after the lock was given back.
    drop(owners);
    for body in bodies.iter().flatten().flat_map(|list| list.iter()) {
        capture::destroy_graph(*body as *mut c_void);
        forget(*body as *mut c_void);
    }
}

/// Makes the graphs that a conditional node of a graph runs, and writes the address of their list into its parameters.
pub fn add_bodies(graph: *mut c_void, parameters: Record<'_, CONDITIONAL>) -> Result<(), CudaStatus> {
    let count: u32 = parameters.read(CONDITIONAL_SIZE).ok_or(CudaStatus::INVALID_VALUE)?;
    if count == 0 || count > MOST_BODIES {
        return Err(CudaStatus::INVALID_VALUE);
    }
    let made: Box<[usize]> = (0..count).map(|_| capture::create_graph() as usize).collect();
    // The list stays where it is when the box moves.
    parameters.write(CONDITIONAL_GRAPHS, made.as_ptr() as usize);
    gpu().graph_memory.owners.lock().bodies.entry(graph as usize).or_default().push(made);
    Ok(())
}

/// The parameters of an allocation node, as they were answered.
pub fn parameters(node: *mut c_void) -> Option<[u8; PARAMETERS]> {
    gpu().graph_memory.owners.lock().nodes.get(&(node as usize)).copied()
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

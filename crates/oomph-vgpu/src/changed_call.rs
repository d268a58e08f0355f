//! Allocates as a call of the program would if its author had changed it.

use std::ffi::c_void;

use oomph_ledger::Kind;
use oomph_protocol::calls::Change;

use crate::changed::Changed;
use crate::device::{self, Device};
use crate::gpu::gpu;
use crate::space::{Block, GRANULE, Place, SMALL, SMALL_ALIGNMENT};
use crate::status::CudaStatus;

/// The change of the call that is under way, if there is one.
pub fn under_way() -> Option<Changed> {
    gpu().changed.of_call(|| gpu().activity.places_of_call())
}

/// Allocates as a changed call would.
pub fn allocate(device: Device, size: usize, call: Changed) -> Result<*mut c_void, CudaStatus> {
    let gpu = gpu();
    let wanted = match call.change {
        Change::Managed => 0,
        Change::Newest => {
            if let Some((card, bytes)) = gpu.changed.let_go(call) {
                gpu.release(card, Kind::Malloc, bytes);
            }
            size
        }
        Change::Parts(parts) => size.div_ceil(usize::try_from(parts).unwrap_or(usize::MAX).max(1)),
    };
    let unit = if wanted <= SMALL { SMALL_ALIGNMENT } else { GRANULE };
    let bytes = wanted.checked_next_multiple_of(unit).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    if bytes > 0 && !gpu.charge(device.card, Kind::Malloc, bytes as u64) {
        gpu.log_refusal(device.card, bytes);
        return Err(CudaStatus::OUT_OF_MEMORY);
    }
    let span = size.checked_next_multiple_of(GRANULE).ok_or(CudaStatus::OUT_OF_MEMORY)?;
    let Some(start) = gpu.take_addresses(span) else {
        gpu.release(device.card, Kind::Malloc, bytes as u64);
        return Err(CudaStatus::OUT_OF_MEMORY);
    };
    let (place, ordinal) = (Place::Device(Kind::Malloc), device::current_ordinal());
    gpu.space.lock().insert(Block { start, size, span, place, card: device.card, ordinal, id: 0 });
    gpu.changed.add(call, start, (device.card, bytes as u64));
    Ok(start as *mut c_void)
}

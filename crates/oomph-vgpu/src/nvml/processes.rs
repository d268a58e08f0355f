//! Which processes hold memory on a card. PyTorch names them in its out-of-memory message.

use std::ffi::{c_uint, c_void};

use crate::boundary::{InOut, Out, Room};
use crate::gpu::gpu;
use crate::nvml::{NvmlStatus, find};

/// Bytes of a process in the first interface (pid, memory) and in the later ones (and two instances of a sliced card).
const FIRST: usize = 16;
const LATER: usize = 24;
/// "No instance": the card is not sliced.
const NO_INSTANCE: u32 = u32::MAX;

/// One process as the structures hold it.
fn record(pid: u32, bytes: u64) -> [u8; LATER] {
    let mut record = [0; LATER];
    let fields = [(0, u64::from(pid)), (8, bytes), (16, u64::from(NO_INSTANCE) << 32 | u64::from(NO_INSTANCE))];
    for (offset, value) in fields {
        for (place, byte) in record.iter_mut().skip(offset).zip(value.to_le_bytes()) {
            *place = byte;
        }
    }
    record
}

/// Writes processes in NVML's two steps: with too little room it says how much is needed.
fn list<const SIZE: usize>(
    processes: &[(u32, u64)],
    count: InOut<'_, c_uint>,
    to: Room<'_, [u8; SIZE]>,
) -> Result<(), NvmlStatus> {
    count.given().ok_or(NvmlStatus::INVALID_ARGUMENT)?.set(processes.len() as c_uint);
    if processes.is_empty() {
        return Ok(());
    }
    if processes.len() > to.count() || to.is_null() {
        return Err(NvmlStatus::INSUFFICIENT_SIZE);
    }
    to.fill(processes.iter().map(|(pid, bytes)| {
        let mut shown = [0; SIZE];
        for (place, byte) in shown.iter_mut().zip(record(*pid, *bytes)) {
            *place = byte;
        }
        shown
    }));
    Ok(())
}

fn compute<const SIZE: usize>(
    handle: *mut c_void,
    count: InOut<'_, c_uint>,
    to: Room<'_, [u8; SIZE]>,
) -> Result<(), NvmlStatus> {
    let card = find(handle)?;
    gpu().forget_dead();
    list(&gpu().holders(card.index), count, to)
}

/// Nobody draws on a virtual card, and no server shares it.
fn none<const SIZE: usize>(
    handle: *mut c_void,
    count: InOut<'_, c_uint>,
    to: Room<'_, [u8; SIZE]>,
) -> Result<(), NvmlStatus> {
    find(handle)?;
    list(&[], count, to)
}

/// Defines the versions of one function.
macro_rules! lists {
    ($($name:ident = $which:ident($size:ident);)*) => {$(
        /// Lists processes.
        pub fn $name(
            handle: *mut c_void,
            count: InOut<'_, c_uint>,
            to: Room<'_, [u8; $size]>,
        ) -> Result<(), NvmlStatus> {
            $which(handle, count, to)
        }
    )*};
}
lists! {
    nvmlDeviceGetComputeRunningProcesses = compute(FIRST);
    nvmlDeviceGetComputeRunningProcesses_v2 = compute(LATER);
    nvmlDeviceGetComputeRunningProcesses_v3 = compute(LATER);
    nvmlDeviceGetGraphicsRunningProcesses = none(FIRST);
    nvmlDeviceGetGraphicsRunningProcesses_v2 = none(LATER);
    nvmlDeviceGetGraphicsRunningProcesses_v3 = none(LATER);
    nvmlDeviceGetMPSComputeRunningProcesses = none(FIRST);
    nvmlDeviceGetMPSComputeRunningProcesses_v2 = none(LATER);
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = none(LATER);
}

/// Samples of what each process used the card for: there are none.
pub fn nvmlDeviceGetProcessUtilization(
    handle: *mut c_void,
    _samples: *mut c_void,
    count: Out<'_, c_uint>,
    _since: u64,
) -> Result<(), NvmlStatus> {
    find(handle)?;
    count.set(0);
    Err(NvmlStatus::NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_listed_in_two_steps() {
        let processes = [(7, 1 << 30), (9, 2 << 30)];
        let mut count = 0;
        let answer = list::<LATER>(&processes, InOut::to(&mut count), Room::null(0));
        assert_eq!((answer, count), (Err(NvmlStatus::INSUFFICIENT_SIZE), 2));
        assert_eq!(list::<LATER>(&processes, InOut::null(), Room::null(0)), Err(NvmlStatus::INVALID_ARGUMENT));
        let mut room = [[0_u8; LATER]; 2];
        assert_eq!(list(&processes, InOut::to(&mut count), Room::to(&mut room)), Ok(()));
        assert_eq!(room[1][..4], 9_u32.to_ne_bytes());
        assert_eq!(room[1][8..16], (2_u64 << 30).to_ne_bytes());
        assert_eq!(room[1][16..], [0xff; 8], "no instances");
        let mut room = [[0_u8; FIRST]; 2];
        assert_eq!(list(&processes, InOut::to(&mut count), Room::to(&mut room)), Ok(()));
        assert_eq!(room[1][..4], 9_u32.to_ne_bytes());
        let answer = list(&processes, InOut::to(&mut count), Room::to(&mut room[..1]));
        assert_eq!(answer, Err(NvmlStatus::INSUFFICIENT_SIZE));
        assert_eq!(list::<FIRST>(&[], InOut::to(&mut count), Room::null(2)), Ok(()));
        assert_eq!(count, 0);
    }
}

//! Collectives under the rule that all ranks are like this one.
//!
//! A rank receives what it would if every rank held what it holds itself: a sum is its own share times the number of
//! ranks, a gathering repeats its own share. Frameworks compare what they gather (DDP its parameters' shapes), count
//! ranks by summing ones, and read such numbers back; contents of tensors do not matter. Only small buffers are moved
//! for real.
//!
//! Within a group nothing is moved before its end, because two kinds of group are one collective in disguise:
//! broadcasts from every rank are a gathering (PyTorch's `all_gather` of a list of tensors), and sends with receives
//! are an exchange of everything with everyone.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use crate::nccl::{Communicator, INVALID_ARGUMENT, SUCCESS, answer, get};
use crate::transfer;

/// `ncclSum`
const SUM: c_int = 0;
/// Sums of more bytes than this are not computed: nobody counts in them.
const SUMMED: usize = 1 << 16;

/// Something that a group still has to do. Addresses are kept as numbers: another thread's are not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// A broadcast from this rank (`own`) or another one.
    Broadcast {
        own: bool,
        from: usize,
        to: usize,
        bytes: usize,
    },
    Send {
        peer: c_int,
        from: usize,
        bytes: usize,
    },
    Receive {
        peer: c_int,
        to: usize,
        bytes: usize,
    },
}

/// What the groups of all threads still have to do, with the thread's mark.
static PENDING: Mutex<Vec<(usize, Pending)>> = Mutex::new(Vec::new());

thread_local! {
    // `const` and without a destructor. Its address marks the thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

fn mark() -> usize {
    DEPTH.with(|depth| std::ptr::from_ref(depth) as usize)
}

/// A copy to make: from, to, bytes.
type Copy = (usize, usize, usize);

/// What a group's operations come to.
fn resolve(group: &[Pending]) -> Vec<Copy> {
    let mut copies = Vec::new();
    for pending in group {
        match *pending {
            // What another rank would send is what this one sends, if it sends as much; a buffer that is given on both
            // sides holds nothing of the other rank's.
            Pending::Broadcast { own: false, from, to, bytes } => {
                let mine = group.iter().find_map(|other| match *other {
                    Pending::Broadcast { own: true, from, bytes: size, .. } if size == bytes => Some(from),
                    _ => None,
                });
                copies.push((mine.unwrap_or(from), to, bytes));
            }
            Pending::Broadcast { own: true, from, to, bytes } => copies.push((from, to, bytes)),
            Pending::Receive { peer, to, bytes } => {
                let sent = |wanted: &dyn Fn(c_int) -> bool| {
                    group.iter().find_map(|other| match *other {
                        Pending::Send { peer, from, bytes: size } if size == bytes && wanted(peer) => Some(from),
                        _ => None,
                    })
                };
                if let Some(from) = sent(&|other| other == peer).or_else(|| sent(&|_| true)) {
                    copies.push((from, to, bytes));
                }
            }
            Pending::Send { .. } => {}
        }
    }
    copies
}

/// Makes copies.
unsafe fn make(copies: Vec<Copy>) {
    for (from, to, bytes) in copies {
        if from != to {
            // SAFETY: NCCL's contract: the buffers of an operation stay valid until it is done.
            unsafe { transfer::copy(to as *mut c_void, from as *const c_void, bytes) };
        }
    }
}

/// Does something now, or at the end of the group.
unsafe fn defer(pending: Pending) {
    if DEPTH.get() > 0 {
        PENDING.lock().unwrap_or_else(PoisonError::into_inner).push((mark(), pending));
    } else {
        // SAFETY: the caller's promise.
        unsafe { make(resolve(&[pending])) };
    }
}

pub unsafe fn ncclGroupStart() -> u32 {
    DEPTH.set(DEPTH.get().saturating_add(1));
    SUCCESS
}

pub unsafe fn ncclGroupEnd() -> u32 {
    let depth = DEPTH.get().saturating_sub(1);
    DEPTH.set(depth);
    if depth > 0 {
        return SUCCESS;
    }
    let mark = mark();
    let mut group = Vec::new();
    PENDING.lock().unwrap_or_else(PoisonError::into_inner).retain(|(thread, pending)| {
        if *thread == mark {
            group.push(*pending);
        }
        *thread != mark
    });
    // SAFETY: NCCL's contract: the buffers of a group stay valid until its work is done.
    unsafe { make(resolve(&group)) };
    SUCCESS
}

/// Ends a group without doing it, and says how long it would take: no time.
pub unsafe fn ncclGroupSimulateEnd(info: *mut c_void) -> u32 {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    let mark = mark();
    PENDING.lock().unwrap_or_else(PoisonError::into_inner).retain(|(thread, _)| *thread != mark);
    if !info.is_null() {
        // SAFETY: NCCL's contract: a `ncclSimInfo_t`: size, magic number, version, estimated time.
        unsafe { info.cast::<u8>().add(16).cast::<f32>().write_unaligned(0.0) };
    }
    SUCCESS
}

/// Bytes of an element by its `ncclDataType_t`.
fn element(kind: c_int) -> Option<usize> {
    Some(match kind {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// The communicator, connected for collectives, and the bytes of `count` elements.
unsafe fn begin<'a>(address: *mut c_void, count: usize, kind: c_int) -> Result<(&'a Communicator, usize), u32> {
    // SAFETY: NCCL's contract is that of `get`.
    let communicator = unsafe { get(address) }?;
    let bytes = element(kind).and_then(|element| count.checked_mul(element)).ok_or(INVALID_ARGUMENT)?;
    communicator.connect()?;
    Ok((communicator, bytes))
}

/// Multiplies every number of a small buffer by the number of ranks.
unsafe fn multiply(at: *mut c_void, count: usize, kind: c_int, ranks: usize) {
    /// Multiplies numbers of one type.
    macro_rules! each {
        ($number:ty, $by:expr, $times:expr) => {
            for index in 0..count {
                // SAFETY: the caller's promise: `count` numbers that may be read and written.
                unsafe {
                    let place = at.cast::<$number>().add(index);
                    place.write_unaligned($times(place.read_unaligned(), $by));
                }
            }
        };
    }
    match kind {
        0 | 1 => each!(u8, ranks as u8, u8::wrapping_mul),
        2 | 3 => each!(u32, ranks as u32, u32::wrapping_mul),
        4 | 5 => each!(u64, ranks as u64, u64::wrapping_mul),
        7 => each!(f32, ranks as f32, |value: f32, by: f32| value * by),
        8 => each!(f64, ranks as f64, |value: f64, by: f64| value * by),
        // A bfloat16 is the upper half of a single.
        9 => each!(u16, ranks as f32, |value: u16, by: f32| {
            ((f32::from_bits(u32::from(value) << 16) * by).to_bits() >> 16) as u16
        }),
        // Nobody counts in the other types.
        _ => {}
    }
}

/// Reduces what all ranks hold: `from` to `to`.
unsafe fn reduce(
    communicator: &Communicator,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    operator: c_int,
    bytes: usize,
) {
    // SAFETY: NCCL's contract: both buffers hold `bytes`.
    unsafe {
        transfer::copy(to, from, bytes);
        if operator == SUM && communicator.ranks > 1 && bytes <= SUMMED && !to.is_null() {
            multiply(to, count, kind, communicator.ranks);
        }
    }
}

/// The place of one rank's share in a buffer of all ranks'.
fn share(buffer: *mut c_void, rank: usize, bytes: usize) -> *mut c_void {
    buffer.cast::<u8>().wrapping_add(rank.saturating_mul(bytes)).cast()
}

/// Copies one share into every rank's place, as far as copies are real at all.
unsafe fn repeat(from: *const c_void, to: *mut c_void, bytes: usize, ranks: usize) {
    for rank in 0..ranks {
        let place = share(to, rank, bytes);
        if !std::ptr::eq(place, from) {
            // SAFETY: NCCL's contract: the buffer holds a share for every rank.
            unsafe { transfer::copy(place, from, bytes) };
        }
    }
}

pub unsafe fn ncclAllReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    operator: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `begin` and `reduce`.
    answer(unsafe { begin(address, count, kind) }.map(|(communicator, bytes)| unsafe {
        reduce(communicator, from, to, count, kind, operator, bytes);
    }))
}

/// What the root receives; the other ranks' buffers are left alone.
pub unsafe fn ncclReduce(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    operator: c_int,
    root: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: as above.
    answer(unsafe { begin(address, count, kind) }.map(|(communicator, bytes)| unsafe {
        if usize::try_from(root) == Ok(communicator.rank) {
            reduce(communicator, from, to, count, kind, operator, bytes);
        }
    }))
}

pub unsafe fn ncclReduceScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    operator: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: as above; the input holds a share for every rank.
    answer(unsafe { begin(address, count, kind) }.map(|(communicator, bytes)| unsafe {
        let own = share(from.cast_mut(), communicator.rank, bytes);
        reduce(communicator, own, to, count, kind, operator, bytes);
    }))
}

pub unsafe fn ncclAllGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `begin` and `repeat`.
    answer(unsafe { begin(address, count, kind) }.map(|(communicator, bytes)| unsafe {
        repeat(from, to, bytes, communicator.ranks);
    }))
}

pub unsafe fn ncclGather(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    root: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: as above; only the root has a buffer for it.
    answer(unsafe { begin(address, count, kind) }.map(|(communicator, bytes)| unsafe {
        if usize::try_from(root) == Ok(communicator.rank) {
            repeat(from, to, bytes, communicator.ranks);
        }
    }))
}

/// A rank that is not the root receives nothing that is known here.
pub unsafe fn ncclScatter(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    root: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `begin`; the root's input holds a share for every rank.
    answer(unsafe { begin(address, count, kind) }.map(|(communicator, bytes)| unsafe {
        if usize::try_from(root) == Ok(communicator.rank) && !from.is_null() {
            transfer::copy(to, share(from.cast_mut(), communicator.rank, bytes), bytes);
        }
    }))
}

/// Every rank sends this one what this one sends to the rank of that number.
pub unsafe fn ncclAlltoAll(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `begin`; both buffers hold a share for every rank.
    answer(unsafe { begin(address, count, kind) }.and_then(|(communicator, bytes)| {
        for rank in 0..communicator.ranks {
            communicator.connect_with(rank)?;
            // SAFETY: as above.
            unsafe { transfer::copy(share(to, rank, bytes), share(from.cast_mut(), rank, bytes), bytes) };
        }
        Ok(())
    }))
}

pub unsafe fn ncclBroadcast(
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    kind: c_int,
    root: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `begin` and `defer`.
    answer(unsafe { begin(address, count, kind) }.map(|(communicator, bytes)| unsafe {
        let own = usize::try_from(root) == Ok(communicator.rank);
        // Ranks other than the root may pass no input.
        let from = if from.is_null() { to.cast_const() } else { from };
        defer(Pending::Broadcast { own, from: from as usize, to: to as usize, bytes });
    }))
}

/// In place: the root has it, and the others have what is like it.
pub unsafe fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    kind: c_int,
    root: c_int,
    address: *mut c_void,
    stream: *mut c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `ncclBroadcast`.
    unsafe { ncclBroadcast(buffer, buffer, count, kind, root, address, stream) }
}

/// Begins an exchange with one peer.
unsafe fn begin_with(address: *mut c_void, count: usize, kind: c_int, peer: c_int) -> Result<usize, u32> {
    // SAFETY: NCCL's contract is that of `get`.
    let communicator = unsafe { get(address) }?;
    let peer = usize::try_from(peer).ok().filter(|peer| *peer < communicator.ranks).ok_or(INVALID_ARGUMENT)?;
    let bytes = element(kind).and_then(|element| count.checked_mul(element)).ok_or(INVALID_ARGUMENT)?;
    communicator.connect_with(peer)?;
    Ok(bytes)
}

pub unsafe fn ncclSend(
    from: *const c_void,
    count: usize,
    kind: c_int,
    peer: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: NCCL's contract is that of `begin_with` and `defer`.
    answer(unsafe { begin_with(address, count, kind, peer) }.map(|bytes| unsafe {
        defer(Pending::Send { peer, from: from as usize, bytes });
    }))
}

pub unsafe fn ncclRecv(
    to: *mut c_void,
    count: usize,
    kind: c_int,
    peer: c_int,
    address: *mut c_void,
    _stream: *mut c_void,
) -> u32 {
    // SAFETY: as above.
    answer(unsafe { begin_with(address, count, kind, peer) }.map(|bytes| unsafe {
        defer(Pending::Receive { peer, to: to as usize, bytes });
    }))
}

/// Defines the functions with a configuration, which changes nothing here.
macro_rules! configured {
    ($($name:ident = $plain:ident($($parameter:ident: $kind:ty),*);)*) => {$(
        /// The same with a configuration.
        pub unsafe fn $name($($parameter: $kind,)* _config: *const c_void) -> u32 {
            // SAFETY: NCCL's contract is that of the plain function.
            unsafe { $plain($($parameter),*) }
        }
    )*};
}
type From = *const c_void;
type To = *mut c_void;
type Count = usize;
configured! {
    ncclAllReduceConfig = ncclAllReduce(from: From, to: To, n: Count, kind: c_int, op: c_int, comm: To, stream: To);
    ncclReduceConfig
        = ncclReduce(from: From, to: To, n: Count, kind: c_int, op: c_int, root: c_int, comm: To, stream: To);
    ncclReduceScatterConfig
        = ncclReduceScatter(from: From, to: To, n: Count, kind: c_int, op: c_int, comm: To, stream: To);
    ncclAllGatherConfig = ncclAllGather(from: From, to: To, n: Count, kind: c_int, comm: To, stream: To);
    ncclGatherConfig = ncclGather(from: From, to: To, n: Count, kind: c_int, root: c_int, comm: To, stream: To);
    ncclScatterConfig = ncclScatter(from: From, to: To, n: Count, kind: c_int, root: c_int, comm: To, stream: To);
    ncclAlltoAllConfig = ncclAlltoAll(from: From, to: To, n: Count, kind: c_int, comm: To, stream: To);
    ncclBroadcastConfig = ncclBroadcast(from: From, to: To, n: Count, kind: c_int, root: c_int, comm: To, stream: To);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_from_every_rank_are_a_gathering() {
        // Rank 1 of 3 gathers: it broadcasts its input and receives into the others' outputs in place.
        let group = [
            Pending::Broadcast { own: false, from: 100, to: 100, bytes: 8 },
            Pending::Broadcast { own: true, from: 500, to: 200, bytes: 8 },
            Pending::Broadcast { own: false, from: 300, to: 300, bytes: 8 },
        ];
        assert_eq!(resolve(&group), [(500, 100, 8), (500, 200, 8), (500, 300, 8)]);
        let uneven = [group[1], Pending::Broadcast { own: false, from: 300, to: 300, bytes: 16 }];
        assert_eq!(resolve(&uneven), [(500, 200, 8), (300, 300, 16)], "a share of another size stays as it is");
    }

    #[test]
    fn a_lone_broadcast_leaves_a_receiver_with_its_own() {
        assert_eq!(resolve(&[Pending::Broadcast { own: false, from: 7, to: 7, bytes: 4 }]), [(7, 7, 4)]);
    }

    #[test]
    fn sends_meet_receives() {
        let group = [
            Pending::Send { peer: 0, from: 10, bytes: 4 },
            Pending::Send { peer: 1, from: 20, bytes: 4 },
            Pending::Receive { peer: 1, to: 60, bytes: 4 },
            Pending::Receive { peer: 2, to: 70, bytes: 4 },
            Pending::Receive { peer: 0, to: 80, bytes: 64 },
        ];
        assert_eq!(resolve(&group), [(20, 60, 4), (10, 70, 4)], "what nobody sends is not received");
    }

    #[test]
    fn a_group_of_this_thread_is_done_at_its_end() {
        let from = [1_u8, 2, 3, 4];
        let mut to = [0_u8; 4];
        // SAFETY: the buffers outlive the group.
        unsafe {
            assert_eq!(ncclGroupStart(), SUCCESS);
            defer(Pending::Receive { peer: 0, to: to.as_mut_ptr() as usize, bytes: 4 });
            defer(Pending::Send { peer: 0, from: from.as_ptr() as usize, bytes: 4 });
            assert_eq!(ncclGroupEnd(), SUCCESS);
        }
        assert_eq!(to, from);
    }

    #[test]
    fn a_sum_counts_the_ranks() {
        let mut numbers = [1_f32, 2.0];
        // 1.0 and 3.0 as bfloat16.
        let mut halves = [0x3f80_u16, 0x4040];
        let mut integers = [3_i64];
        // SAFETY: the counts are those of the arrays.
        unsafe {
            multiply(numbers.as_mut_ptr().cast(), 2, 7, 4);
            multiply(halves.as_mut_ptr().cast(), 2, 9, 2);
            multiply(integers.as_mut_ptr().cast(), 1, 4, 8);
        }
        assert_eq!((numbers, halves, integers), ([4.0, 8.0], [0x4000, 0x40c0], [24]));
    }

    #[test]
    fn a_gathering_repeats_the_own_share() {
        let own = [5_u8, 6];
        let mut all = [0_u8; 6];
        // SAFETY: the buffer holds three shares.
        unsafe { repeat(own.as_ptr().cast(), all.as_mut_ptr().cast(), 2, 3) };
        assert_eq!(all, [5, 6, 5, 6, 5, 6]);
    }
}

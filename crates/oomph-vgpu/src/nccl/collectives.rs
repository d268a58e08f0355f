//! Collectives among ranks that run, and ranks that are like this one.
//!
//! Small buffers are exchanged with the ranks that run as other processes (see [`exchange`]). Of all others,
//! and in larger buffers, a rank receives what it would if every rank held what it holds itself: a sum is its own share
//! times the number of ranks, a gathering repeats its own share. Frameworks compare what they gather (DDP its
//! parameters' shapes), count ranks by summing ones, and read such numbers back; contents of tensors do not matter.
//!
//! Where nothing comes from another rank, a group is looked at as a whole at its end, because two kinds of group are one
//! collective in disguise: broadcasts from every rank are a gathering (PyTorch's `all_gather` of a list of tensors), and
//! sends with receives are an exchange of everything with everyone.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use crate::boundary::{Any, Handle, Memory, Record, pass};
use crate::gpu::{GroupCall, gpu};
use crate::nccl::{Communicator, NcclStatus, arithmetic, exchange, known};
use crate::transfer;

thread_local! {
    // NCCL has groups for each thread. `const` and without a destructor. Its address marks the thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

fn mark() -> usize {
    DEPTH.with(|depth| std::ptr::from_ref(depth) as usize)
}

/// A copy to make: from, to, bytes.
type Copy = (usize, usize, usize);

/// What a group's operations come to.
fn resolve(group: &[GroupCall]) -> Vec<Copy> {
    let mut copies = Vec::new();
    for pending in group {
        match *pending {
            // What another rank would send is what this one sends, if it sends as much; a buffer that is given on both
            // sides holds nothing of the other rank's.
            GroupCall::Broadcast { own: false, from, to, bytes } => {
                let mine = group.iter().find_map(|other| match *other {
                    GroupCall::Broadcast { own: true, from, bytes: size, .. } if size == bytes => Some(from),
                    _ => None,
                });
                copies.push((mine.unwrap_or(from), to, bytes));
            }
            GroupCall::Broadcast { own: true, from, to, bytes } => copies.push((from, to, bytes)),
            GroupCall::Receive { peer, to, bytes, .. } => {
                let sent = |wanted: &dyn Fn(c_int) -> bool| {
                    group.iter().find_map(|other| match *other {
                        GroupCall::Send { peer, from, bytes: size } if size == bytes && wanted(peer) => Some(from),
                        _ => None,
                    })
                };
                if let Some(from) = sent(&|other| other == peer).or_else(|| sent(&|_| true)) {
                    copies.push((from, to, bytes));
                }
            }
            GroupCall::Send { .. } => {}
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

/// Does a group: what other ranks that run have sent is received, and the rest comes from this rank itself.
unsafe fn finish(group: &[GroupCall]) {
    // SAFETY: NCCL's contract: the communicators and buffers of a group stay valid until its work is done.
    unsafe {
        make(resolve(group));
        for pending in group {
            let GroupCall::Receive { peer, to, bytes, exchanged: Some(communicator) } = *pending else { continue };
            let handle = pass::<Any, Handle<'_, Communicator>>(communicator as *mut c_void);
            let Ok(communicator) = known(&handle) else { continue };
            let Ok(peer) = usize::try_from(peer) else { continue };
            if let Some(message) = communicator.meeting.receive(peer).filter(|message| message.len() == bytes) {
                transfer::copy(to as *mut c_void, message.as_ptr().cast(), bytes);
            }
        }
    }
}

/// Does something now, or at the end of the group.
unsafe fn defer(pending: GroupCall) {
    if DEPTH.get() > 0 {
        gpu().libraries.group_calls.lock().push((mark(), pending));
    } else {
        // SAFETY: the caller's promise.
        unsafe { finish(&[pending]) };
    }
}

pub fn ncclGroupStart() -> Result<(), NcclStatus> {
    DEPTH.set(DEPTH.get().saturating_add(1));
    Ok(())
}

pub fn ncclGroupEnd() -> Result<(), NcclStatus> {
    let depth = DEPTH.get().saturating_sub(1);
    DEPTH.set(depth);
    if depth > 0 {
        return Ok(());
    }
    let mark = mark();
    let mut group = Vec::new();
    gpu().libraries.group_calls.lock().retain(|(thread, pending)| {
        if *thread == mark {
            group.push(*pending);
        }
        *thread != mark
    });
    // SAFETY: NCCL's contract: the buffers of a group stay valid until its work is done.
    unsafe { finish(&group) };
    Ok(())
}

/// Ends a group without doing it, and says how long it would take: no time.
///
/// A `ncclSimInfo_t` is size, magic number, version, estimated time.
pub fn ncclGroupSimulateEnd(info: Record<'_, 20>) -> Result<(), NcclStatus> {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    let mark = mark();
    gpu().libraries.group_calls.lock().retain(|(thread, _)| *thread != mark);
    info.write(16, 0.0_f32);
    Ok(())
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

/// A communicator among the parameters.
type Comm<'a> = Handle<'a, Communicator>;

/// The communicator, connected for collectives, and the bytes of `count` elements.
fn begin<'a>(handle: &'a Comm<'_>, count: usize, kind: c_int) -> Result<(&'a Communicator, usize), NcclStatus> {
    let communicator = known(handle)?;
    let bytes = element(kind).and_then(|element| count.checked_mul(element)).ok_or(NcclStatus::INVALID_ARGUMENT)?;
    communicator.connect()?;
    Ok((communicator, bytes))
}

/// A rank of a communicator as a call names it.
fn rank_of(root: c_int) -> Result<usize, NcclStatus> {
    usize::try_from(root).map_err(|_| NcclStatus::INVALID_ARGUMENT)
}

/// What a buffer of the program's holds, where it is exchanged with other ranks.
unsafe fn held<'a>(buffer: *const c_void, kind: c_int, bytes: usize) -> Option<&'a [u8]> {
    // SAFETY: NCCL's contract: the buffer holds `bytes`; device memory is memory that can be read.
    (!buffer.is_null() && exchange::is_exchanged(kind, bytes))
        .then(|| unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), bytes) })
}

/// The part of a rank's contribution that belongs to one share.
fn part(whole: &[u8], rank: usize, bytes: usize) -> Option<&[u8]> {
    let start = rank.checked_mul(bytes)?;
    whole.get(start..start.checked_add(bytes)?)
}

/// Writes what all ranks hold together, reduced: this rank's own from `from`, and what others sent.
unsafe fn reduce(
    communicator: &Communicator,
    from: *const c_void,
    to: *mut c_void,
    (kind, operator, bytes): (c_int, c_int, usize),
    heard: &[&[u8]],
) {
    // SAFETY: NCCL's contract: both buffers hold `bytes`.
    unsafe { transfer::copy(to, from, bytes) };
    if communicator.ranks > 1 && !to.is_null() && exchange::is_exchanged(1, bytes) {
        // SAFETY: as above, and nobody else uses the buffer during the call.
        let own = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
        arithmetic::reduce(own, heard, communicator.ranks.saturating_sub(heard.len()), kind, operator);
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

pub fn ncclAllReduce(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    operator: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: NCCL's contract is that of `begin`, `held` and `reduce`.
    unsafe {
        let heard = held(from, kind, bytes).map(|own| communicator.meeting.share(own)).unwrap_or_default();
        let heard: Vec<&[u8]> = heard.iter().flatten().map(Vec::as_slice).collect();
        reduce(communicator, from, to, (kind, operator, bytes), &heard);
    }
    Ok(())
}

/// What the root receives; the other ranks' buffers are left alone.
pub fn ncclReduce(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    operator: c_int,
    root: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: as above.
    unsafe {
        let root = rank_of(root)?;
        let heard = held(from, kind, bytes).and_then(|own| communicator.meeting.gather(own, root)).unwrap_or_default();
        if root == communicator.rank {
            let heard: Vec<&[u8]> = heard.iter().flatten().map(Vec::as_slice).collect();
            reduce(communicator, from, to, (kind, operator, bytes), &heard);
        }
    }
    Ok(())
}

pub fn ncclReduceScatter(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    operator: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: as above; the input holds a share for every rank.
    unsafe {
        let whole = bytes.saturating_mul(communicator.ranks);
        let heard = held(from, kind, whole).map(|own| communicator.meeting.share(own)).unwrap_or_default();
        let heard: Vec<&[u8]> =
            heard.iter().flatten().filter_map(|whole| part(whole, communicator.rank, bytes)).collect();
        let own = share(from, communicator.rank, bytes);
        reduce(communicator, own, to, (kind, operator, bytes), &heard);
    }
    Ok(())
}

pub fn ncclAllGather(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: NCCL's contract is that of `begin`, `held` and `place`.
    unsafe {
        let heard = held(from, kind, bytes).map(|own| communicator.meeting.share(own));
        repeat(from, to, bytes, communicator.ranks);
        place(to, bytes, &heard.unwrap_or_default());
    }
    Ok(())
}

/// Writes what other ranks sent into their places.
unsafe fn place(to: *mut c_void, bytes: usize, heard: &[Option<Vec<u8>>]) {
    for (rank, part) in heard.iter().enumerate() {
        if let Some(part) = part.as_ref().filter(|part| part.len() == bytes) {
            // SAFETY: NCCL's contract: the buffer holds a share for every rank.
            unsafe { transfer::copy(share(to, rank, bytes), part.as_ptr().cast(), bytes) };
        }
    }
}

pub fn ncclGather(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    root: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: as above; only the root has a buffer for it.
    unsafe {
        let root = rank_of(root)?;
        let heard = held(from, kind, bytes).and_then(|own| communicator.meeting.gather(own, root));
        if root == communicator.rank {
            repeat(from, to, bytes, communicator.ranks);
            place(to, bytes, &heard.unwrap_or_default());
        }
    }
    Ok(())
}

/// A rank that is not the root receives its share where the root runs, and nothing that is known where it does not.
pub fn ncclScatter(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    root: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: NCCL's contract is that of `begin`; the root's input holds a share for every rank.
    unsafe {
        let root = rank_of(root)?;
        let whole = bytes.saturating_mul(communicator.ranks);
        let own = root == communicator.rank && !from.is_null();
        if own {
            transfer::copy(to, share(from, communicator.rank, bytes), bytes);
        }
        if exchange::is_exchanged(kind, whole) {
            let given = if own { held(from, kind, whole).unwrap_or_default() } else { &[] };
            let heard = communicator.meeting.spread(given, root);
            if let Some(mine) = heard.as_ref().and_then(|whole| part(whole, communicator.rank, bytes)) {
                transfer::copy(to, mine.as_ptr().cast(), bytes);
            }
        }
    }
    Ok(())
}

/// Where it sent nothing, every rank sends this one what this one sends to the rank of that number.
pub fn ncclAlltoAll(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: NCCL's contract is that of `begin`; both buffers hold a share for every rank.
    unsafe {
        for rank in 0..communicator.ranks {
            communicator.connect_with(rank)?;
        }
        let whole = bytes.saturating_mul(communicator.ranks);
        let heard = held(from, kind, whole).map(|own| communicator.meeting.share(own)).unwrap_or_default();
        for rank in 0..communicator.ranks {
            let theirs = heard.get(rank).and_then(Option::as_ref).and_then(|all| part(all, communicator.rank, bytes));
            let source = theirs.map_or(share(from, rank, bytes).cast_const(), |part| part.as_ptr().cast());
            transfer::copy(share(to, rank, bytes), source, bytes);
        }
    }
    Ok(())
}

pub fn ncclBroadcast(
    from: Memory<'_>,
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    root: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, bytes) = begin(&comm, count, kind)?;
    let (from, to) = (from.address(), to.address());
    // SAFETY: NCCL's contract is that of `begin`, `held` and `defer`.
    unsafe {
        let root = rank_of(root)?;
        let own = root == communicator.rank;
        // Ranks other than the root may pass no input.
        let from = if from.is_null() { to } else { from };
        match held(from, kind, bytes).and_then(|held| communicator.meeting.spread(held, root)) {
            Some(heard) if heard.len() == bytes => transfer::copy(to, heard.as_ptr().cast(), bytes),
            _ => defer(GroupCall::Broadcast { own, from: from as usize, to: to as usize, bytes }),
        }
    }
    Ok(())
}

/// In place: the root has it, and the others have what is like it.
pub fn ncclBcast(
    buffer: Memory<'_>,
    count: usize,
    kind: c_int,
    root: c_int,
    comm: Comm<'_>,
    stream: *mut c_void,
) -> Result<(), NcclStatus> {
    ncclBroadcast(buffer, buffer, count, kind, root, comm, stream)
}

/// Begins an exchange with one peer: the communicator, the peer, and the bytes.
fn begin_with<'a>(
    handle: &'a Comm<'_>,
    count: usize,
    kind: c_int,
    peer: c_int,
) -> Result<(&'a Communicator, usize, usize), NcclStatus> {
    let communicator = known(handle)?;
    let other = rank_of(peer)?;
    if other >= communicator.ranks {
        return Err(NcclStatus::INVALID_ARGUMENT);
    }
    let bytes = element(kind).and_then(|element| count.checked_mul(element)).ok_or(NcclStatus::INVALID_ARGUMENT)?;
    communicator.connect_with(other)?;
    Ok((communicator, other, bytes))
}

pub fn ncclSend(
    from: Memory<'_>,
    count: usize,
    kind: c_int,
    peer: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, to, bytes) = begin_with(&comm, count, kind, peer)?;
    let from = from.address();
    // SAFETY: NCCL's contract is that of `begin_with`, `held` and `defer`.
    unsafe {
        if let Some(message) = held(from, kind, bytes).filter(|_| to != communicator.rank) {
            communicator.meeting.send(to, message);
        }
        defer(GroupCall::Send { peer, from: from as usize, bytes });
    }
    Ok(())
}

pub fn ncclRecv(
    to: Memory<'_>,
    count: usize,
    kind: c_int,
    peer: c_int,
    comm: Comm<'_>,
    _stream: *mut c_void,
) -> Result<(), NcclStatus> {
    let (communicator, from, bytes) = begin_with(&comm, count, kind, peer)?;
    let address = to.address();
    // SAFETY: as above.
    unsafe {
        let is_exchanged = held(address, kind, bytes).is_some() && from != communicator.rank;
        let exchanged = is_exchanged.then_some(comm.address());
        defer(GroupCall::Receive { peer, to: address as usize, bytes, exchanged });
    }
    Ok(())
}

/// Defines the functions with a configuration, which changes nothing here.
macro_rules! configured {
    ($($name:ident = $plain:ident($($parameter:ident: $kind:ty),*);)*) => {$(
        /// The same with a configuration.
        pub fn $name($($parameter: $kind,)* _config: *const c_void) -> Result<(), NcclStatus> {
            $plain($($parameter),*)
        }
    )*};
}
type Stream = *mut c_void;
type Count = usize;
configured! {
    ncclAllReduceConfig = ncclAllReduce(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, op: c_int, comm: Comm<'_>, stream: Stream);
    ncclReduceConfig
        = ncclReduce(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, op: c_int, root: c_int, comm: Comm<'_>, stream: Stream);
    ncclReduceScatterConfig
        = ncclReduceScatter(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, op: c_int, comm: Comm<'_>, stream: Stream);
    ncclAllGatherConfig = ncclAllGather(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, comm: Comm<'_>, stream: Stream);
    ncclGatherConfig = ncclGather(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, root: c_int, comm: Comm<'_>, stream: Stream);
    ncclScatterConfig = ncclScatter(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, root: c_int, comm: Comm<'_>, stream: Stream);
    ncclAlltoAllConfig = ncclAlltoAll(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, comm: Comm<'_>, stream: Stream);
    ncclBroadcastConfig = ncclBroadcast(from: Memory<'_>, to: Memory<'_>, n: Count, kind: c_int, root: c_int, comm: Comm<'_>, stream: Stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasts_from_every_rank_are_a_gathering() {
        // Rank 1 of 3 gathers: it broadcasts its input and receives into the others' outputs in place.
        let group = [
            GroupCall::Broadcast { own: false, from: 100, to: 100, bytes: 8 },
            GroupCall::Broadcast { own: true, from: 500, to: 200, bytes: 8 },
            GroupCall::Broadcast { own: false, from: 300, to: 300, bytes: 8 },
        ];
        assert_eq!(resolve(&group), [(500, 100, 8), (500, 200, 8), (500, 300, 8)]);
        let uneven = [group[1], GroupCall::Broadcast { own: false, from: 300, to: 300, bytes: 16 }];
        assert_eq!(resolve(&uneven), [(500, 200, 8), (300, 300, 16)], "a share of another size stays unchanged");
    }

    #[test]
    fn a_lone_broadcast_leaves_a_receiver_with_its_own() {
        assert_eq!(resolve(&[GroupCall::Broadcast { own: false, from: 7, to: 7, bytes: 4 }]), [(7, 7, 4)]);
    }

    #[test]
    fn sends_meet_receives() {
        let group = [
            GroupCall::Send { peer: 0, from: 10, bytes: 4 },
            GroupCall::Send { peer: 1, from: 20, bytes: 4 },
            GroupCall::Receive { peer: 1, to: 60, bytes: 4, exchanged: None },
            GroupCall::Receive { peer: 2, to: 70, bytes: 4, exchanged: None },
            GroupCall::Receive { peer: 0, to: 80, bytes: 64, exchanged: None },
        ];
        assert_eq!(resolve(&group), [(20, 60, 4), (10, 70, 4)], "what nobody sends is not received");
    }

    #[test]
    fn a_group_of_this_thread_is_done_at_its_end() {
        let from = [1_u8, 2, 3, 4];
        let mut to = [0_u8; 4];
        // SAFETY: the buffers outlive the group.
        unsafe {
            assert_eq!(ncclGroupStart(), Ok(()));
            defer(GroupCall::Receive { peer: 0, to: to.as_mut_ptr() as usize, bytes: 4, exchanged: None });
            defer(GroupCall::Send { peer: 0, from: from.as_ptr() as usize, bytes: 4 });
            assert_eq!(ncclGroupEnd(), Ok(()));
        }
        assert_eq!(to, from);
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

//! Why the memory ran out: causes that the figures, the words and the traceback speak for, ranked.
//!
//! Confidences are independent of each other: several causes can hold at once. A cause that the figures exclude is not
//! listed at all; above all, `fragmentation` only when the unused part of the reserved memory covers the request.

use oomph_remedy::{Cause, Operation};

use super::kind::Kind;
use super::report::{Derived, Facts, RankedCause};
use super::size::show;

/// What the causes are judged from.
pub(crate) struct Evidence<'a> {
    pub facts: &'a Facts,
    pub derived: &'a Derived,
    pub kind: Option<Kind>,
    pub operation: Option<Operation>,
    /// The message, for a reader.
    pub message: &'a str,
    /// Causes that the words themselves name, with a confidence and the words.
    pub named: &'a [(Cause, f64, String)],
    /// The figures of a steady growth before the failure, as a sentence.
    pub growth: Option<String>,
    /// The error came from CUDA itself, not from a framework's allocator.
    pub outside_allocator: bool,
    /// The limit may be that of a pool that takes most of a card on its own: TensorFlow's, JAX's.
    pub has_pool: bool,
}

const MIB: u64 = 1 << 20;
/// Memory of a process outside PyTorch's allocator that is nothing unusual: the context with its modules, cuBLAS.
const USUAL_NON_FRAMEWORK: u64 = 1536 * MIB;

/// The causes, the likeliest first; never empty for a failure of memory.
pub(crate) fn rank(evidence: &Evidence<'_>) -> Vec<RankedCause> {
    let mut causes = Causes { list: Vec::new() };
    match evidence.kind {
        None => gpu(evidence, &mut causes),
        Some(Kind::Killed | Kind::ContainerLimit | Kind::HostMemory | Kind::SharedMemory) => {
            causes.add(Cause::HostMemory, 0.9, evidence.facts.requested_bytes, evidence.message.to_owned());
        }
        Some(_) => return Vec::new(),
    }
    causes.list.sort_by(|one, other| other.confidence.total_cmp(&one.confidence));
    causes.list
}

struct Causes {
    list: Vec<RankedCause>,
}

impl Causes {
    fn add(&mut self, cause: Cause, confidence: f64, bytes: Option<u64>, because: String) {
        let confidence = (confidence.clamp(0.0, 0.99) * 100.0).round() / 100.0;
        match self.list.iter_mut().find(|known| known.cause == cause) {
            Some(known) if known.confidence >= confidence => known.bytes = known.bytes.or(bytes),
            Some(known) => *known = RankedCause { cause, confidence, bytes: bytes.or(known.bytes), because },
            None => self.list.push(RankedCause { cause, confidence, bytes, because }),
        }
    }

    fn most(&self) -> f64 {
        self.list.iter().map(|cause| cause.confidence).fold(0.0, f64::max)
    }
}

fn gpu(evidence: &Evidence<'_>, causes: &mut Causes) {
    let Evidence { facts, derived, .. } = evidence;
    for (cause, confidence, words) in evidence.named {
        let bytes = match cause {
            Cause::KvCache | Cause::ContextLength => facts.requested_bytes,
            Cause::Limit => facts.limit_bytes,
            Cause::OtherProcess => derived.other_tenants_bytes,
            _ => None,
        };
        causes.add(*cause, *confidence, bytes, words.clone());
    }
    let in_pieces = evidence.has_pool && pool_in_pieces(facts, derived, causes);
    if !in_pieces {
        too_large(facts, evidence.has_pool, causes);
    }
    limit(facts, evidence.has_pool, causes);
    if let Some(spilled) = derived.spilled_bytes {
        let because = format!(
            "{} is allocated on a card of {}: the driver has moved {} into host memory, as it does on Windows",
            show(facts.allocated_bytes.unwrap_or(0)),
            show(facts.capacity_bytes.unwrap_or(0)),
            show(spilled)
        );
        causes.add(Cause::DriverSpill, 0.92, Some(spilled), because);
    }
    other_process(facts, derived, causes);
    graph_pools(facts, derived, causes);
    fragmentation(facts, derived, causes);
    non_framework(facts, derived, causes);
    kv_cache(evidence, causes);
    if let Some(growth) = &evidence.growth {
        causes.add(Cause::Leak, 0.8, None, growth.clone());
    }
    refused_though_free(facts, derived, causes);
    // What is allocated and what was requested fit the pool together, so that "more than it has" would be wrong.
    if !in_pieces {
        full(evidence, causes);
    }
}

/// Whether a pool had room for the request by its figures, so that only the pieces of what was free were too small.
fn pool_in_pieces(facts: &Facts, derived: &Derived, causes: &mut Causes) -> bool {
    let (Some(requested), Some(allocated), Some(limit)) =
        (facts.requested_bytes, facts.allocated_bytes, facts.limit_bytes)
    else {
        return false;
    };
    let roof = facts.capacity_bytes.map_or(limit, |capacity| capacity.min(limit));
    let free = roof.saturating_sub(allocated);
    // Printed figures are rounded to two decimals, so that less than that much of room is none.
    if requested == 0 || free < requested.saturating_add(roof / 512) {
        return false;
    }
    // A dump whose regions were cut off from the log says nothing of the pool's pieces.
    let heap = derived.heap.as_ref().filter(|heap| heap.regions > 0 && heap.free_chunks > 0);
    let mut largest = None;
    if let Some(heap) = heap {
        // A pool that may still grow by the request was refused that by the driver: others hold the card.
        if roof.saturating_sub(heap.region_bytes) >= requested || heap.largest_free_bytes >= requested {
            return false;
        }
        largest = Some(heap.largest_free_bytes);
    }
    let pieces = match largest {
        Some(largest) => format!("the largest free piece is {}", show(largest)),
        None => "no free piece of it was large enough".to_owned(),
    };
    let because = format!(
        "{} of the {} that the pool may take is not in use, more than the {} requested, but {pieces}",
        show(free),
        show(roof),
        show(requested)
    );
    causes.add(Cause::Fragmentation, if heap.is_some() { 0.9 } else { 0.75 }, Some(free), because);
    true
}

fn too_large(facts: &Facts, has_pool: bool, causes: &mut Causes) {
    // Where the card's size is unknown, that of a pool that takes most of it is used.
    let capacity = facts.capacity_bytes.or(facts.limit_bytes.filter(|_| has_pool));
    let (Some(requested), Some(capacity)) = (facts.requested_bytes, capacity) else { return };
    if facts.utilization.is_some() {
        // A server's budget for everything, not one request.
        return;
    }
    let roof = facts.limit_bytes.unwrap_or(capacity).min(capacity);
    let whole = if facts.capacity_bytes.is_some() { "on a card that has" } else { "from a pool that may take" };
    if requested > roof {
        let because = format!("one request of {} {whole} {} in all", show(requested), show(roof));
        causes.add(Cause::TooLarge, 0.97, Some(requested), because);
    } else if requested > roof / 10 * 7 {
        let whose = if facts.capacity_bytes.is_some() { "card" } else { "pool" };
        let because = format!("one request of {}, most of the {whose}'s {}", show(requested), show(roof));
        causes.add(Cause::TooLarge, 0.75, Some(requested), because);
    } else if requested > roof / 10 * 3 && facts.allocated_bytes.is_some_and(|held| held < roof / 2) {
        let because = format!(
            "one request of {} while only {} is allocated {whole} {}",
            show(requested),
            show(facts.allocated_bytes.unwrap_or(0)),
            show(roof)
        );
        causes.add(Cause::TooLarge, 0.6, Some(requested), because);
    }
}

fn limit(facts: &Facts, has_pool: bool, causes: &mut Causes) {
    let Some(limit) = facts.limit_bytes else { return };
    let held = facts.allocated_bytes.unwrap_or(0).saturating_add(facts.unallocated_bytes.unwrap_or(0));
    let requested = facts.requested_bytes.unwrap_or(0);
    // A pool leaves up to a quarter of the card to others by default.
    let least = if has_pool { 70 } else { 98 };
    let below_card = match facts.capacity_bytes {
        Some(capacity) => limit < capacity / 100 * least,
        None => !has_pool,
    };
    if !below_card {
        return;
    }
    let over = held.saturating_add(requested) > limit;
    // Without the card's size a figure that nothing exceeds is how large a pool may grow, which need be nobody's limit.
    if !over && facts.capacity_bytes.is_none() {
        return;
    }
    let room = facts.free_bytes.is_none_or(|free| free >= requested);
    let because = format!("a limit allows {} to this process, of which {} is taken", show(limit), show(held));
    let confidence = match (over, room) {
        (true, true) => 0.95,
        (true, false) => 0.7,
        (false, true) => 0.5,
        (false, false) => 0.3,
    };
    causes.add(Cause::Limit, confidence, Some(limit), because);
}

fn other_process(facts: &Facts, derived: &Derived, causes: &mut Causes) {
    let Some(others) = derived.other_tenants_bytes else { return };
    let capacity = facts.capacity_bytes.unwrap_or(u64::MAX);
    // Without this process's own figure the first of the listed processes may be this one: a container hides whose is
    // whose. What the allocator holds is then taken off.
    let own_among = facts.process_bytes.is_none();
    let held = derived.reserved_bytes.unwrap_or(0);
    let mut listed: Vec<_> = facts.other_processes.iter().filter_map(|other| Some((other.bytes?, other.pid))).collect();
    listed.sort_unstable_by(|one, other| other.cmp(one));
    if own_among && !listed.is_empty() {
        let own = listed
            .iter()
            .position(|(bytes, _)| *bytes >= held && *bytes < held.saturating_add(held / 8).saturating_add(1 << 30));
        if let (Some(own), true) = (own, held > 0) {
            listed.remove(own);
        }
    }
    let named: u64 = listed.iter().fold(0, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let others = if listed.is_empty() && !facts.other_processes.is_empty() { 0 } else { others.max(named) };
    let others = if own_among && !facts.other_processes.is_empty() { named } else { others };
    // Messages without this process's own figure count its context among the others.
    let others = if own_among && listed.is_empty() { others.saturating_sub(USUAL_NON_FRAMEWORK) } else { others };
    if others < 256 * MIB || others < capacity / 25 {
        return;
    }
    let share = others as f64 / capacity.min(1 << 50) as f64;
    let helps = derived.shortfall_bytes.is_none_or(|shortfall| shortfall <= others);
    let mut confidence = 0.45 + 0.6 * share.min(0.85);
    if !helps {
        confidence = confidence.min(0.45);
    }
    let because = match listed.first() {
        Some((bytes, pid)) if listed.len() == 1 => {
            format!("process {pid} holds {} of the card's {}", show(*bytes), show(capacity))
        }
        Some((bytes, pid)) => format!(
            "{} other processes hold {} of the card's {} (process {pid} alone {})",
            listed.len(),
            show(named),
            show(capacity),
            show(*bytes)
        ),
        None => format!(
            "{} of the card's {} is neither free nor this process's: other programs, the desktop or the driver hold it",
            show(others),
            show(capacity)
        ),
    };
    // Unnamed memory is a weaker sign: the driver itself keeps some, and older messages do not tell whose it is.
    let confidence = if listed.is_empty() && facts.process_bytes.is_none() { confidence - 0.1 } else { confidence };
    causes.add(Cause::OtherProcess, confidence, Some(others), because);
}

fn graph_pools(facts: &Facts, derived: &Derived, causes: &mut Causes) {
    let Some(pools) = facts.private_pools_bytes.filter(|pools| *pools >= 16 * MIB) else { return };
    let capacity = facts.capacity_bytes.unwrap_or(u64::MAX);
    let share = pools as f64 / capacity as f64;
    let covers = derived.shortfall_bytes.is_some_and(|shortfall| shortfall > 0 && shortfall <= pools);
    let confidence = match share {
        share if share > 0.4 => 0.9,
        share if share > 0.1 => 0.7,
        _ if covers => 0.45,
        _ => 0.15,
    };
    let because = format!("{} lies in private pools (CUDA graphs, MemPool), which nothing else may use", show(pools));
    causes.add(Cause::GraphPools, confidence, Some(pools), because);
}

fn fragmentation(facts: &Facts, derived: &Derived, causes: &mut Causes) {
    let (Some(slack), Some(requested)) = (derived.slack_bytes, facts.requested_bytes) else { return };
    // The printed 20 MiB stands for a request of 1 MiB at least; what has to be found in one piece is the tensor.
    let needed = derived.request.map_or(requested, |range| range.at_least_bytes.max(requested / 2));
    if slack < requested || needed == 0 || derived.heap.is_some() {
        return;
    }
    let capacity = facts.capacity_bytes.or(derived.reserved_bytes).unwrap_or(u64::MAX);
    let share = slack as f64 / capacity as f64;
    // Every allocator has some such pieces; a few of them are no explanation.
    let little = if slack < 256 * MIB { 0.15 } else { 0.0 };
    let confidence = 0.4 - little + (share * 4.0).min(0.5);
    let because = format!(
        "{} is reserved but not in use, more than the {} requested, yet no free piece of it was large enough",
        show(slack),
        show(requested)
    );
    causes.add(Cause::Fragmentation, confidence, Some(slack), because);
}

fn non_framework(facts: &Facts, derived: &Derived, causes: &mut Causes) {
    let Some(bytes) = derived.non_framework_bytes.filter(|bytes| *bytes > USUAL_NON_FRAMEWORK) else { return };
    let capacity = facts.capacity_bytes.unwrap_or(u64::MAX);
    let share = bytes as f64 / capacity as f64;
    let because = format!(
        "this process holds {} outside the framework's allocator (context, NCCL, cuBLAS, other libraries)",
        show(bytes)
    );
    causes.add(Cause::NonFrameworkMemory, 0.35 + share.min(0.6), Some(bytes), because);
}

fn kv_cache(evidence: &Evidence<'_>, causes: &mut Causes) {
    if evidence.operation == Some(Operation::KvCacheInit) {
        let bytes = evidence.facts.requested_bytes;
        causes.add(Cause::KvCache, 0.75, bytes, evidence.message.to_owned());
        causes.add(Cause::ContextLength, 0.6, bytes, evidence.message.to_owned());
    }
    if evidence.operation == Some(Operation::GraphCapture) {
        causes.add(Cause::GraphPools, 0.7, evidence.facts.private_pools_bytes, evidence.message.to_owned());
    }
    if evidence.operation == Some(Operation::AttentionScores) {
        let because = "the scores of eager attention grow with the square of the sequence or image length".to_owned();
        causes.add(Cause::ContextLength, 0.6, evidence.facts.requested_bytes, because);
    }
}

/// More is free than was asked for, no limit is in the way, and yet it failed.
fn refused_though_free(facts: &Facts, derived: &Derived, causes: &mut Causes) {
    let (Some(free), Some(requested)) = (facts.free_bytes, facts.requested_bytes) else { return };
    if free < requested.saturating_add(64 * MIB) || facts.limit_bytes.is_some() || derived.spilled_bytes.is_some() {
        return;
    }
    if facts.kv_cache_available_bytes.is_some() || causes.most() > 0.9 {
        return;
    }
    let because = format!(
        "{} was free when the request of {} was refused: the memory was freed an instant too late, is in pieces, or a \
         pool could not grow; the same request often succeeds at once when repeated",
        show(free),
        show(requested)
    );
    causes.add(Cause::SpuriousRetry, 0.6, Some(free), because);
    // PyTorch 2.4 and older refuse a request beyond the fraction without a word about the limit.
    let because = format!(
        "{} was free when {} was refused: a limit on this process (`set_per_process_memory_fraction`), which older \
         releases do not print, would explain it too",
        show(free),
        show(requested)
    );
    causes.add(Cause::Limit, 0.45, None, because);
}

fn full(evidence: &Evidence<'_>, causes: &mut Causes) {
    let Evidence { facts, derived, .. } = evidence;
    let roof = match (facts.limit_bytes, facts.capacity_bytes) {
        (Some(limit), Some(capacity)) => Some(limit.min(capacity)),
        (limit, capacity) => limit.or(capacity),
    };
    let held = facts.allocated_bytes;
    if let (Some(roof), Some(held)) = (roof, held) {
        let share = held as f64 / roof.max(1) as f64;
        let bytes = derived.reserved_bytes.or(Some(held)).and_then(|held| held.checked_add(facts.requested_bytes?));
        let card = match facts.limit_bytes {
            Some(limit) if limit <= roof => format!("of {} allowed", show(roof)),
            _ => format!("on a card of {}", show(roof)),
        };
        let because = match facts.requested_bytes {
            Some(requested) => {
                format!("{} is in use by live tensors and {} more was requested, {card}", show(held), show(requested))
            }
            None => format!("{} is in use by live tensors {card}", show(held)),
        };
        let confidence = match share {
            share if share >= 0.85 => 0.92,
            share if share >= 0.7 => 0.82,
            share if share >= 0.5 => 0.6,
            share if share >= 0.3 => 0.45,
            _ => 0.2,
        };
        // What others hold, or a limit, explains a card that is full although this process holds little.
        causes.add(Cause::Full, confidence, bytes, because);
    } else if let (Some(roof), Some(process)) = (roof, facts.process_bytes.filter(|_| !derived.process_unknown)) {
        let share = process as f64 / roof.max(1) as f64;
        let because = format!("this process holds {} of the card's {}", show(process), show(roof));
        causes.add(Cause::Full, (share * 0.95).min(0.85), Some(process), because);
    } else if causes.most() < 0.6 {
        let in_use = match held {
            Some(held) => format!("with {} in use; the log does not say how large the card is", show(held)),
            None => "and not available; the log does not say what is in use".to_owned(),
        };
        let because = match facts.requested_bytes {
            Some(requested) => format!("{} was requested {in_use}", show(requested)),
            None => format!("the log gives no figures: {}", evidence.message),
        };
        causes.add(Cause::Full, 0.5, facts.requested_bytes, because);
        if evidence.outside_allocator {
            let because = "the error came from CUDA itself, outside the framework's allocator: another process, a second \
                           library or the context may hold the card";
            causes.add(Cause::NonFrameworkMemory, 0.35, None, because.to_owned());
            causes.add(Cause::OtherProcess, 0.35, None, because.to_owned());
        }
    }
    if causes.most() < 0.5 {
        causes.add(Cause::Unknown, 0.5, None, "the figures point to no single cause".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::identities;

    const GIB: u64 = 1 << 30;

    fn first(facts: Facts) -> (Cause, Vec<Cause>) {
        first_of(facts, false)
    }

    fn first_of(facts: Facts, has_pool: bool) -> (Cause, Vec<Cause>) {
        let derived = identities::derive(&facts, Some("pytorch"), Some("2.4-2.15"));
        let evidence = Evidence {
            facts: &facts,
            derived: &derived,
            kind: None,
            operation: None,
            message: "CUDA out of memory.",
            named: &[],
            growth: None,
            outside_allocator: false,
            has_pool,
        };
        let causes = rank(&evidence);
        (causes[0].cause, causes.iter().map(|cause| cause.cause).collect())
    }

    fn card(requested: u64, free: u64, allocated: u64, unallocated: u64) -> Facts {
        Facts {
            requested_bytes: Some(requested),
            capacity_bytes: Some(24 * GIB),
            free_bytes: Some(free),
            allocated_bytes: Some(allocated),
            unallocated_bytes: Some(unallocated),
            process_bytes: Some(allocated + unallocated + GIB / 2),
            ..Facts::default()
        }
    }

    #[test]
    fn one_request_beyond_the_card() {
        assert_eq!(first(card(60 * GIB, 20 * GIB, 3 * GIB, GIB)).0, Cause::TooLarge);
    }

    #[test]
    fn a_card_full_of_live_tensors() {
        assert_eq!(first(card(GIB, GIB / 2, 22 * GIB, GIB / 4)).0, Cause::Full);
    }

    #[test]
    fn fragmentation_only_where_the_slack_covers_the_request() {
        let (cause, _) = first(card(2 * GIB, GIB / 2, 14 * GIB, 9 * GIB));
        assert_eq!(cause, Cause::Fragmentation);
        // The guides' message: 21.58 allocated, 22.00 reserved, 2.00 asked for.
        let (_, all) = first(card(2 * GIB, GIB / 2, 21 * GIB + 594 * MIB, 430 * MIB));
        assert!(!all.contains(&Cause::Fragmentation));
    }

    #[test]
    fn another_process() {
        let mut facts = card(GIB, GIB / 8, 5 * GIB, GIB / 8);
        facts.other_processes.push(crate::log::report::OtherProcess { pid: 7, bytes: Some(18 * GIB), line: 1 });
        let (cause, _) = first(facts);
        assert_eq!(cause, Cause::OtherProcess);
    }

    #[test]
    fn a_limit_with_room_on_the_card() {
        let mut facts = card(GIB, 18 * GIB, 3 * GIB, 0);
        facts.limit_bytes = Some(4 * GIB - 1);
        assert_eq!(first(facts).0, Cause::Limit);
    }

    #[test]
    fn what_a_pool_leaves_to_others_is_no_limit_of_the_users() {
        let mut facts = Facts { requested_bytes: Some(GIB), allocated_bytes: Some(10 * GIB), ..Facts::default() };
        facts.limit_bytes = Some(10 * GIB + 133 * MIB);
        assert!(!first_of(facts.clone(), true).1.contains(&Cause::Limit), "the card is not known");
        let large = Facts { requested_bytes: Some(12 * GIB), ..facts.clone() };
        assert_eq!(first_of(large, true).0, Cause::TooLarge);
        facts.capacity_bytes = Some(12 * GIB);
        assert!(!first_of(facts.clone(), true).1.contains(&Cause::Limit), "most of the card");
        facts.capacity_bytes = Some(24 * GIB);
        assert_eq!(first_of(facts, true).0, Cause::Limit);
    }

    #[test]
    fn a_pool_with_room_for_the_request_is_in_pieces() {
        let heap = |regions: u64, largest: u64| crate::log::Heap {
            regions: 7,
            region_bytes: regions,
            free_chunks: 10,
            free_bytes: 2 * GIB,
            largest_free_bytes: largest,
            ..crate::log::Heap::default()
        };
        let facts = Facts {
            requested_bytes: Some(3 * GIB),
            allocated_bytes: Some(6 * GIB),
            limit_bytes: Some(10 * GIB),
            ..Facts::default()
        };
        let of = |facts: &Facts, heap: Option<crate::log::Heap>| -> Vec<Cause> {
            let derived = Derived { heap, ..identities::derive(facts, Some("tensorflow"), None) };
            let evidence = Evidence {
                facts,
                derived: &derived,
                kind: None,
                operation: None,
                message: "ran out of memory",
                named: &[],
                growth: None,
                outside_allocator: false,
                has_pool: true,
            };
            rank(&evidence).iter().map(|cause| cause.cause).collect()
        };
        assert_eq!(of(&facts, Some(heap(8 * GIB + GIB / 2, GIB))), [Cause::Fragmentation]);
        assert_eq!(of(&facts, None), [Cause::Fragmentation], "a dump that was cut off");
        assert!(!of(&facts, Some(heap(6 * GIB + GIB / 2, GIB / 4))).contains(&Cause::Fragmentation), "it could grow");
        let more = Facts { allocated_bytes: Some(8 * GIB), ..facts };
        assert_eq!(of(&more, Some(heap(9 * GIB, GIB)))[0], Cause::Full);
    }

    #[test]
    fn a_refusal_although_there_is_room() {
        let (cause, _) = first(card(GIB, 19 * GIB, 4 * GIB, 0));
        assert_eq!(cause, Cause::SpuriousRetry);
    }

    #[test]
    fn a_driver_that_spills() {
        let mut facts = card(4 * GIB, 0, 30 * GIB, 0);
        facts.process_bytes = Some(u64::MAX);
        assert_eq!(first(facts).0, Cause::DriverSpill);
    }
}

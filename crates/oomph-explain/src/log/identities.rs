//! What follows from the figures of a message, by identities that hold in the allocators' sources.
//!
//! PyTorch from 2.1 on prints allocated X, unallocated U and, for the process, M (from NVML): reserved = X + U, memory
//! outside the allocator = M - reserved, other tenants = T - F - M with total T and free F. From 1.4 to 2.0 it prints
//! reserved itself; from 1.0 to 1.3 the figure called "cached" is reserved minus allocated.

use super::report::{Derived, Facts, Range};

/// NVML says 2^64 - 1 for "not available" (always so under Windows' and WSL's driver model); a figure from here on is
/// not a measurement.
pub(crate) const UNKNOWN_FROM: u64 = 1 << 60;

const MIB: u64 = 1 << 20;

/// Whether the words are of the PyTorch releases whose last figure is the cached part alone.
pub(crate) fn is_cached_era(era: Option<&str>) -> bool {
    era == Some("1.0-1.3")
}

/// The identities.
pub(crate) fn derive(facts: &Facts, framework: Option<&str>, era: Option<&str>) -> Derived {
    let of_pytorch = matches!(framework, Some("pytorch" | "tch"));
    let reserved = if is_cached_era(era) {
        sum(facts.allocated_bytes, facts.reserved_bytes)
    } else {
        facts.reserved_bytes.or_else(|| sum(facts.allocated_bytes, facts.unallocated_bytes))
    };
    let process_unknown = facts.process_bytes.is_some_and(|bytes| bytes >= UNKNOWN_FROM);
    let process = facts.process_bytes.filter(|_| !process_unknown);
    let listed: Option<u64> = (!facts.other_processes.is_empty())
        .then(|| facts.other_processes.iter().try_fold(0u64, |sum, other| sum.checked_add(other.bytes?)))
        .flatten();
    // Without the process's own figure, a container's process is among the listed ones: then only a lower bound holds.
    let other_tenants = match (facts.capacity_bytes, facts.free_bytes, process) {
        (Some(capacity), Some(free), Some(process)) => {
            Some(capacity.saturating_sub(free).saturating_sub(process)).max(listed)
        }
        (Some(capacity), Some(free), None) if of_pytorch && !process_unknown => {
            let used = capacity.saturating_sub(free);
            reserved.map(|reserved| used.saturating_sub(reserved)).or(listed)
        }
        _ => listed,
    };
    Derived {
        reserved_bytes: reserved,
        slack_bytes: facts.unallocated_bytes.or(difference(reserved, facts.allocated_bytes)),
        non_framework_bytes: difference(process, reserved).filter(|_| of_pytorch),
        other_tenants_bytes: other_tenants,
        shortfall_bytes: shortfall(facts),
        // Only messages of CUDA's allocator print what is free; on a Mac the second figure is a limit, not the card.
        spilled_bytes: match (facts.allocated_bytes, facts.capacity_bytes) {
            (Some(allocated), Some(capacity))
                if allocated > capacity && facts.limit_bytes.is_none() && facts.free_bytes.is_some() =>
            {
                Some(allocated - capacity)
            }
            _ => None,
        },
        tensor_bytes: tensor_bytes(facts),
        request: facts.requested_bytes.filter(|_| of_pytorch).and_then(request_range),
        process_unknown,
        heap: None,
    }
}

/// What is missing for the request: on the card, or below the limit where that is nearer.
fn shortfall(facts: &Facts) -> Option<u64> {
    let requested = facts.requested_bytes?;
    if let Some(available) = facts.kv_cache_available_bytes {
        return Some(requested.saturating_sub(available));
    }
    let on_card = facts.free_bytes.map(|free| requested.saturating_sub(free));
    let below_limit = match (facts.limit_bytes, facts.allocated_bytes) {
        (Some(limit), Some(allocated)) => {
            let held = allocated.saturating_add(facts.unallocated_bytes.unwrap_or(0));
            Some(requested.saturating_add(held).saturating_sub(limit))
        }
        _ => None,
    };
    on_card.max(below_limit)
}

/// PyTorch's figure is the segment that it needed: 2 MiB for any request up to 1 MiB, 20 MiB for requests between 1 and
/// 10 MiB, else the request rounded up to 2 MiB (CUDACachingAllocator.cpp, with default settings). A request of 18 to
/// 20 MiB prints as 20 MiB too, which is rare enough to leave out.
fn request_range(requested: u64) -> Option<Range> {
    match requested {
        0 => None,
        bytes if bytes == 2 * MIB => Some(Range { at_least_bytes: 1, at_most_bytes: MIB }),
        bytes if bytes == 20 * MIB => Some(Range { at_least_bytes: MIB + 1, at_most_bytes: 10 * MIB }),
        bytes if bytes > 10 * MIB && bytes < 1024 * MIB && bytes % (2 * MIB) == 0 => {
            Some(Range { at_least_bytes: bytes - 2 * MIB + 1, at_most_bytes: bytes })
        }
        _ => None,
    }
}

fn tensor_bytes(facts: &Facts) -> Option<u64> {
    let count = facts.shape.as_ref()?.iter().try_fold(1u64, |product, side| product.checked_mul(*side))?;
    let width = match facts.dtype.as_deref()? {
        "float" | "float32" | "int32" | "uint32" => 4,
        "double" | "float64" | "int64" | "uint64" | "complex64" => 8,
        "half" | "float16" | "bfloat16" | "int16" | "uint16" => 2,
        "bool" | "int8" | "uint8" => 1,
        "complex128" => 16,
        _ => return None,
    };
    count.checked_mul(width)
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one?.checked_add(other?)
}

fn difference(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_sub(other?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_identities_of_the_new_message() {
        let facts = Facts {
            requested_bytes: Some(20 * MIB),
            capacity_bytes: Some(80 * GIB),
            free_bytes: Some(GIB),
            process_bytes: Some(50 * GIB),
            allocated_bytes: Some(40 * GIB),
            unallocated_bytes: Some(8 * GIB),
            ..Facts::default()
        };
        let derived = derive(&facts, Some("pytorch"), Some("2.4-2.15"));
        assert_eq!(derived.reserved_bytes, Some(48 * GIB));
        assert_eq!(derived.slack_bytes, Some(8 * GIB));
        assert_eq!(derived.non_framework_bytes, Some(2 * GIB));
        assert_eq!(derived.other_tenants_bytes, Some(29 * GIB));
        assert_eq!(derived.shortfall_bytes, Some(0));
        assert_eq!(derived.request, Some(Range { at_least_bytes: MIB + 1, at_most_bytes: 10 * MIB }));
    }

    #[test]
    fn cached_of_the_first_era_is_on_top_of_the_allocated() {
        let facts = Facts { allocated_bytes: Some(3 * GIB), reserved_bytes: Some(GIB), ..Facts::default() };
        assert_eq!(derive(&facts, Some("pytorch"), Some("1.0-1.3")).reserved_bytes, Some(4 * GIB));
        assert_eq!(derive(&facts, Some("pytorch"), Some("1.4-1.9")).reserved_bytes, Some(GIB));
    }

    #[test]
    fn a_figure_that_the_driver_cannot_give_is_not_used() {
        let facts = Facts {
            capacity_bytes: Some(4 * GIB),
            free_bytes: Some(0),
            allocated_bytes: Some(16 * GIB),
            process_bytes: Some(u64::MAX),
            ..Facts::default()
        };
        let derived = derive(&facts, Some("pytorch"), None);
        assert!(derived.process_unknown);
        assert_eq!((derived.other_tenants_bytes, derived.non_framework_bytes), (None, None));
        assert_eq!(derived.spilled_bytes, Some(12 * GIB));
    }
}

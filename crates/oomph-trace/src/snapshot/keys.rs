//! The words of a snapshot, interned first so that they are compared as numbers.

use crate::{StringId, Strings};

macro_rules! words {
    ($($name:ident = $text:literal,)*) => {
        /// The words in the order of their ids; the empty string has the id before the first.
        const WORDS: &[&str] = &[$($text),*];
        words!(@ids 1u32; $($name)*);
    };
    (@ids $id:expr; $name:ident $($rest:ident)*) => {
        pub(super) const $name: StringId = StringId($id);
        words!(@ids $id + 1; $($rest)*);
    };
    (@ids $id:expr;) => {};
}

words! {
    // An event.
    ACTION = "action",
    ADDR = "addr",
    SIZE = "size",
    STREAM = "stream",
    TIME_US = "time_us",
    FRAMES = "frames",
    POOL_ID = "pool_id",
    USER_METADATA = "user_metadata",
    COMPILE_CONTEXT = "compile_context",
    INTERNAL_METADATA = "internal_metadata",
    CATEGORY = "category",
    DEVICE_FREE = "device_free",
    NOT_APPLICABLE = "N/A",
    // Actions.
    ALLOC = "alloc",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    OOM = "oom",
    SNAPSHOT = "snapshot",
    ANNOTATE = "annotate",
    // A frame.
    NAME = "name",
    FILENAME = "filename",
    LINE = "line",
    // A segment.
    DEVICE = "device",
    ADDRESS = "address",
    TOTAL_SIZE = "total_size",
    SEGMENT_TYPE = "segment_type",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",
    BLOCKS = "blocks",
    LARGE = "large",
    // A block.
    REQUESTED_SIZE = "requested_size",
    STATE = "state",
    HISTORY = "history",
    REAL_SIZE = "real_size",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    // What the documentation calls it, which no version writes.
    ACTIVE_AWAITING_FREE = "active_awaiting_free",
    // An annotation.
    STAGE = "stage",
    START = "START",
    END = "END",
    // The whole.
    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    HOST_SEGMENTS = "host_segments",
    HOST_TRACES = "host_traces",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    ALLOCATOR_SETTINGS = "allocator_settings",
    // Settings.
    PYTORCH_CUDA_ALLOC_CONF = "PYTORCH_CUDA_ALLOC_CONF",
    MAX_SPLIT_SIZE = "max_split_size",
    GARBAGE_COLLECTION_THRESHOLD = "garbage_collection_threshold",
    EXPANDABLE_SEGMENTS = "expandable_segments",
    ROUNDUP_POWER2_DIVISIONS = "roundup_power2_divisions",
}

/// A table of strings that holds the words at their ids.
pub(super) fn strings() -> Strings {
    let mut strings = Strings::default();
    for word in WORDS {
        strings.intern(word);
    }
    strings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_ids_that_the_constants_say() {
        let strings = strings();
        assert_eq!(strings.get(ACTION), "action");
        assert_eq!(strings.get(ALLOC), "alloc");
        assert_eq!(strings.get(ROUNDUP_POWER2_DIVISIONS), "roundup_power2_divisions");
        assert_eq!(strings.len(), WORDS.len() + 1);
    }
}

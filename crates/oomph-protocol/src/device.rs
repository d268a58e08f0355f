//! What the virtual GPU leaves of a process's calls: `device/PID.json` and `device/PID.refused.json`, which
//! `docs/internals/run-folder.md` describes.

use serde::{Deserialize, Serialize};

use crate::{Document, Schema};

crate::schema!(ActivitySchema, crate::DEVICE_ACTIVITY.text);
crate::schema!(RefusalSchema, crate::DEVICE_REFUSAL.text);

/// The memory calls of one process. Every field may be missing: a process may die at any time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Activity {
    /// Name and version of this document.
    pub schema: ActivitySchema,
    /// The process.
    pub pid: u32,
    /// What it took straight from the card.
    pub allocations: Allocations,
    /// What it took from stream-ordered pools.
    pub pooled: Allocations,
    /// How often such a pool took memory of the card.
    pub pools_grew: u64,
    /// How often a pool took memory that it had given back at a synchronisation.
    pub pools_regrew: u64,
    /// What it copied.
    pub transfers: Transfers,
}

impl Document for Activity {
    const SCHEMA: Schema = crate::DEVICE_ACTIVITY;
}

impl Document for Refusal {
    const SCHEMA: Schema = crate::DEVICE_REFUSAL;
}

/// Allocations and frees of device memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Allocations {
    /// Allocations.
    pub calls: u64,
    /// Frees.
    pub frees: u64,
    /// The most that was held at once, in bytes as the program asked for them.
    pub most_held_bytes: u64,
    /// What was held in the end, in bytes.
    pub held_bytes: u64,
    /// In how many blocks.
    pub held_blocks: u64,
    /// What a pool would have made of it.
    pub pool: Pool,
    /// By call site, the largest first.
    pub sites: Vec<AllocationSite>,
}

/// A pool that keeps what is freed and serves requests of the same size from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Pool {
    /// Calls that it would have answered without the driver.
    pub calls_saved: u64,
    /// What it would have held at its peak, in bytes.
    pub peak_bytes: u64,
}

/// A place of the program's machine code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CodePlace {
    /// The program or library; empty where it is not known.
    pub module: String,
    /// The address in the file's own terms, counted from its first byte in memory; of a Python file the line.
    pub offset: u64,
    /// The function as the symbols name it.
    pub function: Option<String>,
}

/// The last allocation that a card refused to a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Refusal {
    /// Name and version of this document.
    pub schema: RefusalSchema,
    /// The process.
    pub pid: u32,
    /// The card, by its place in the books.
    pub card: usize,
    /// What the process asked for, in bytes.
    pub bytes: u64,
    /// What was free on the card then, in bytes.
    pub free_bytes: u64,
    /// The calls that led to it, the innermost first; empty where they are not known.
    pub frames: Vec<CodePlace>,
}

/// What was allocated at one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct AllocationSite {
    /// The calls that led to it, the innermost first; empty where they are not known.
    pub frames: Vec<CodePlace>,
    /// Allocations.
    pub calls: u64,
    /// How many of them were freed again.
    pub freed: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Bytes that were held in the end.
    pub held_bytes: u64,
    /// The most that was held at once, in bytes.
    pub most_held_bytes: u64,
    /// Sizes in bytes, and how often each was asked for.
    pub sizes: Vec<(u64, u64)>,
    /// Blocks and bytes that were held when a card refused a request; null where nothing was held, where nothing was
    /// refused, or where the process was granted memory afterwards.
    pub at_refusal: Option<(u64, u64)>,
}

/// Copies between host and card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Transfers {
    /// From the host to the card.
    pub to_card: Traffic,
    /// From the card to the host.
    pub to_host: Traffic,
    /// From card to card.
    pub on_card: Traffic,
    /// The most bytes that lay on the card twice at once, as far as they were sent by the host.
    pub most_doubled_bytes: u64,
    /// By call site, the largest first.
    pub sites: Vec<TransferSite>,
}

/// Copies of one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Traffic {
    /// Copies.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Copies whose host side is not page-locked.
    pub pageable_calls: u64,
    /// Their bytes.
    pub pageable_bytes: u64,
    /// Copies of bytes that had been sent before, to whatever place.
    pub resent_calls: u64,
    /// Their bytes.
    pub resent_bytes: u64,
    /// The largest copy whose bytes lay elsewhere on the card as well.
    pub doubled_bytes: u64,
}

/// What was copied at one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TransferSite {
    /// The calls that led to it, the innermost first; empty where they are not known.
    pub frames: Vec<CodePlace>,
    /// `to_card`, `to_host` or `on_card`.
    pub way: String,
    /// The copies.
    #[serde(flatten)]
    pub traffic: Traffic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_virtual_gpu_is_read() {
        let activity: Activity = serde_json::from_str(
            r#"{"pid":7,"allocations":{"calls":2,"frees":1,"most_held_bytes":30,"held_bytes":10,"held_blocks":1,
                "pool":{"calls_saved":0,"peak_bytes":1024},
                "sites":[{"frames":[{"module":"/a","offset":16,"function":"main"}],"calls":2,"freed":1,"bytes":30,"held_bytes":10,
                          "most_held_bytes":30,"sizes":[[10,1],[20,1]]}]},
              "transfers":{"most_doubled_bytes":0,"to_card":{"calls":1,"bytes":8,"pageable_calls":1,"pageable_bytes":8,
                "resent_calls":0,"resent_bytes":0},"to_host":{},"on_card":{},
                "sites":[{"frames":[{"module":"/a","offset":32,"function":null}],"way":"to_card","calls":1,"bytes":8}]}}"#,
        )
        .unwrap();
        assert_eq!(activity.allocations.sites[0].sizes, [(10, 1), (20, 1)]);
        assert_eq!(activity.allocations.sites[0].frames[0].function.as_deref(), Some("main"));
        assert_eq!((activity.transfers.to_card.bytes, activity.transfers.sites[0].traffic.bytes), (8, 8));
        assert_eq!(serde_json::from_str::<Activity>("{}").unwrap(), Activity::default());
    }
}

//! The result types for doubtful or void answers: sizes that nothing computed, and a host whose memory ran out.

use oomph_protocol::Verdict;
use serde::{Deserialize, Serialize};

use crate::site::Site;

/// An answer that depends on sizes that were not computed: their smallest and largest values give different answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unsure {
    /// Where those sizes arise.
    pub sizes: Vec<UnknownSize>,
    /// The run in which each is next to the least that it can be.
    pub least: End,
    /// The run in which each is the most that it can be, which all other figures are of.
    pub most: End,
}

/// A program that was ended while it waited: what it would have done with what it waits for is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waiting {
    /// For how long nothing had been computed, in seconds.
    pub seconds: f64,
    /// The line of the program at which its main thread waits; `null` where that is not known.
    pub site: Option<Site>,
    /// What that line called, such as `queue.get`; `null` where it waits in a function of the interpreter's.
    pub called: Option<String>,
}

/// What can be done about a program that waits.
pub const GIVE_IT_WORK: &str = "start what gives it work in the same command (oomph dry-run ... -- sh -c 'python server.py & python \
                                client.py'), pipe its input in, or let it wait with --until-exit; Ctrl-C answers for what it did so far";

/// What one of the two runs came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct End {
    /// Its verdict.
    pub verdict: Verdict,
    /// What the fullest card had to hold, in bytes; `null` where that is not known.
    pub need_bytes: Option<u64>,
}

/// A size that depends on values that were never computed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UnknownSize {
    /// The operation, like `nonzero`.
    pub operation: String,
    /// The line that called it.
    pub site: Option<Site>,
    /// The fewest elements that there can be.
    pub low: u64,
    /// The most elements that there can be.
    pub high: u64,
}

/// A card that the program asked for and that the virtual machine lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissingCard {
    /// The number by which the program asked, as the process counts its cards; `null` where its list names a card that is not
    /// there.
    pub ordinal: Option<u32>,
    /// The process's `CUDA_VISIBLE_DEVICES`; `null` where it has none.
    pub list: Option<String>,
    /// How many cards the run had.
    pub cards: u32,
    /// How many cards it would need; `null` where no number of cards is enough, because the list leaves the card out.
    pub needs: Option<u32>,
    /// The line of the program that the error came through.
    pub site: Option<Site>,
}

/// Why oomph could not run a program: something of its own died, or the program failed after an answer that a real driver
/// would not have given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// The functions that it called and that the virtual GPU does not support; empty where its error alone shows it.
    pub asked: Vec<String>,
    /// The error that ended it; empty where that is not known.
    pub message: String,
    /// The file that has the CUDA runtime linked in statically, so that its calls do not reach the virtual GPU; `null` where
    /// that is not the cause.
    #[serde(default)]
    pub static_runtime: Option<String>,
    /// The line where the program read a value that was never computed, and by which it ended itself; `null` where that is
    /// not the cause.
    #[serde(default)]
    pub read_at: Option<Site>,
    /// The loop whose iterations oomph had abridged when the program failed in one of them; `null` where that is not the cause.
    #[serde(default)]
    pub abridged: Option<Site>,
    /// The line of oomph's own in which something died, in any process of the run, which was ended for it; `null` where that
    /// is not the cause.
    #[serde(default)]
    pub own: Option<Site>,
    /// Where in oomph's own code a process of the program died of a signal; `null` where that is not the cause.
    #[serde(default)]
    pub crashed_at: Option<String>,
}

/// The memory of the host that ran out, which says nothing of the card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostShortage {
    /// What was requested, in bytes; `null` where that is not known.
    pub requested_bytes: Option<u64>,
    /// What the host has in all, in bytes; `null` where that cannot be read.
    pub total_bytes: Option<u64>,
    /// Whether the kernel killed a process to get memory.
    pub killed: bool,
    /// The line of the user's program.
    pub site: Option<Site>,
    /// The error's words.
    pub message: String,
}

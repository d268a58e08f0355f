//! What the user asks for.

use oomph_allocator::Version;
use oomph_trace::Trace;

/// The moment to explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// When the card was fullest: reserved memory at its highest and, of these moments, memory in use.
    Peak,
    /// When memory in use was at its highest, whatever was reserved then.
    InUse,
    /// Just before the allocation whose failure ends the recording; the peak where it ends otherwise.
    #[default]
    Death,
    /// Just before the last allocation that failed, whether or not the program got past it; the peak where none did.
    Oom,
    /// The state when the file was written.
    End,
    /// Microseconds on the recording's clock.
    Time(i64),
    /// After this many events.
    Event(u64),
}

/// Not a moment.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a moment; use peak, in-use, oom, end, or a time in microseconds as the recording counts them")]
pub struct AtError(String);

impl std::str::FromStr for At {
    type Err = AtError;

    fn from_str(text: &str) -> Result<Self, AtError> {
        match text {
            "peak" => Ok(At::Peak),
            "in-use" => Ok(At::InUse),
            "oom" => Ok(At::Oom),
            "end" => Ok(At::End),
            _ => match text.strip_prefix("event:") {
                Some(index) => index.parse().map(At::Event).map_err(|_| AtError(text.to_owned())),
                None => text.parse().map(At::Time).map_err(|_| AtError(text.to_owned())),
            },
        }
    }
}

/// A card for the what-if table. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its name.
    pub name: String,
    /// Its memory, as CUDA reports it.
    pub capacity_bytes: u64,
    /// What the process takes of it outside of PyTorch's allocator.
    pub context_bytes: u64,
}

/// How to explain a recording.
#[derive(Clone, Debug)]
pub struct Options {
    /// The moment.
    pub at: At,
    /// The memory of the card that the program ran on, in bytes. A snapshot does not say it.
    pub capacity: Option<u64>,
    /// What the process took outside of PyTorch's allocator, in bytes.
    pub context_bytes: Option<u64>,
    /// The version of PyTorch that ran, where it is known. A snapshot does not say it.
    pub version: Option<Version>,
    /// Whether to replay the recording under other settings and on other cards.
    pub what_if: bool,
    /// The cards of the what-if table, besides the one that the program ran on.
    pub cards: Vec<Card>,
    /// How many stacks and pinned segments to list.
    pub top: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            at: At::default(),
            capacity: None,
            context_bytes: None,
            version: None,
            what_if: true,
            cards: Vec::new(),
            top: 10,
        }
    }
}

impl Options {
    /// The version of PyTorch, or what a snapshot's settings show of it: two of them appeared in 2.13.
    pub(super) fn version(&self, trace: &Trace) -> Version {
        self.version.unwrap_or_else(|| {
            let newest = |(name, _): &(String, String)| name == "max_round_threshold" || name == "max_cached_size";
            if trace.settings.others.iter().any(newest) { Version::NEWEST } else { Version::LAST_BY_ADDRESS }
        })
    }
}

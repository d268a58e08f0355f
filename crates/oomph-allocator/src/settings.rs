//! The settings of `PYTORCH_CUDA_ALLOC_CONF`.

mod parse;

use std::fmt;

use oomph_trace::Settings as RecordedSettings;

pub use parse::SettingsError;

/// One mebibyte, the unit of every `_mb` key.
pub(crate) const MIB: u64 = 1 << 20;

/// How many intervals `roundup_power2_divisions` knows: 1 MiB, 2 MiB, 4 MiB and so on.
pub const INTERVALS: usize = 16;

/// PyTorch's allocator settings that change where memory goes, with the defaults of PyTorch 2.15.
///
/// Text is read with [`str::parse`] and written with [`ToString`]; what is written is read back as the same settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `backend`: who allocates.
    pub backend: Backend,
    /// `max_split_size_mb` in bytes: a block of this size or more is never split. `u64::MAX` is unlimited.
    pub max_split_size: u64,
    /// `max_non_split_rounding_mb` in bytes: how much larger than the request an unsplittable block may be.
    pub max_non_split_rounding: u64,
    /// `large_segment_size_mb` in bytes: the segment that serves requests from 1 MiB up to 10 MiB.
    pub large_segment_size: u64,
    /// `garbage_collection_threshold`: the share of the allowed memory above which unused blocks are given back.
    /// 0 is off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions` for requests from 1 MiB (the first entry, which serves smaller ones as well), 2 MiB,
    /// and so on up to 32 GiB and above. 0 and 1 are off.
    pub roundup_power2_divisions: [u64; INTERVALS],
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `expandable_segments_reserve`: the address space of an expandable segment; `None` is 9/8 of the card's memory.
    pub expandable_segments_reserve: Option<Reserve>,
    /// `per_process_memory_fraction`, also `torch.cuda.set_per_process_memory_fraction`; 1 means no limit.
    pub per_process_memory_fraction: f64,
    /// `throw_on_cudamalloc_oom`: refuse beforehand what exceeds the fraction.
    pub throw_on_cudamalloc_oom: bool,
    /// Keys that PyTorch knows and that do not change where device memory goes, with their values as written.
    pub others: Vec<(String, String)>,
}

/// Who allocates device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backend {
    /// PyTorch's own caching allocator.
    #[default]
    Native,
    /// `cudaMallocAsync`: the driver's stream-ordered pool.
    CudaMallocAsync,
}

/// How much address space an expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reserve {
    /// A share of the card's memory.
    Fraction(f64),
    /// Gibibytes (2^30 bytes).
    Gibibytes(f64),
}

impl Reserve {
    /// The reserve in bytes on a card of `total` bytes.
    pub fn bytes(self, total: u64) -> u64 {
        // A float that is too large saturates, and one that is not a number becomes 0, when it is cast.
        match self {
            Reserve::Fraction(share) => (share * total as f64) as u64,
            Reserve::Gibibytes(gibibytes) => (gibibytes * (1u64 << 30) as f64) as u64,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backend: Backend::Native,
            max_split_size: u64::MAX,
            max_non_split_rounding: 20 * MIB,
            large_segment_size: 20 * MIB,
            garbage_collection_threshold: 0.0,
            roundup_power2_divisions: [0; INTERVALS],
            expandable_segments: false,
            expandable_segments_reserve: None,
            per_process_memory_fraction: 1.0,
            throw_on_cudamalloc_oom: false,
            others: Vec::new(),
        }
    }
}

impl Settings {
    /// The settings that a snapshot records, as far as it does. The single fields win over the text, because they hold
    /// what was changed while the program ran; a text that cannot be read is left out.
    pub fn recorded(recorded: &RecordedSettings) -> Self {
        let mut settings: Settings = recorded.conf.as_deref().and_then(|text| text.parse().ok()).unwrap_or_default();
        if let Some(size) = recorded.max_split_size {
            settings.max_split_size = if size == 0 { u64::MAX } else { size };
        }
        if let Some(threshold) = recorded.garbage_collection_threshold {
            settings.garbage_collection_threshold = if threshold > 0.0 && threshold < 1.0 { threshold } else { 0.0 };
        }
        if let Some(expandable) = recorded.expandable_segments {
            settings.expandable_segments = expandable;
        }
        for &(mebibytes, divisions) in &recorded.roundup_power2_divisions {
            if mebibytes.is_power_of_two() {
                let index = (mebibytes.trailing_zeros() as usize).min(INTERVALS - 1);
                settings.roundup_power2_divisions[index] = divisions;
            }
        }
        settings
    }
}

impl fmt::Display for Settings {
    /// Writes only what differs from the defaults; nothing at all for the defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Settings::default();
        let mut parts: Vec<String> = Vec::new();
        if self.backend == Backend::CudaMallocAsync {
            parts.push("backend:cudaMallocAsync".into());
        }
        // The size of large segments comes first, because it bounds the two keys after it.
        for (key, value, usual) in [
            ("large_segment_size_mb", self.large_segment_size, default.large_segment_size),
            ("max_split_size_mb", self.max_split_size, default.max_split_size),
            ("max_non_split_rounding_mb", self.max_non_split_rounding, default.max_non_split_rounding),
        ] {
            if value != usual {
                parts.push(format!("{key}:{}", value / MIB));
            }
        }
        if self.garbage_collection_threshold > 0.0 {
            parts.push(format!("garbage_collection_threshold:{}", self.garbage_collection_threshold));
        }
        if self.roundup_power2_divisions != default.roundup_power2_divisions {
            parts.push(format!("roundup_power2_divisions:{}", Divisions(&self.roundup_power2_divisions)));
        }
        if self.expandable_segments {
            parts.push("expandable_segments:True".into());
        }
        match self.expandable_segments_reserve {
            Some(Reserve::Fraction(share)) => parts.push(format!("expandable_segments_reserve:{share}")),
            Some(Reserve::Gibibytes(size)) => parts.push(format!("expandable_segments_reserve:{size}G")),
            None => {}
        }
        if self.per_process_memory_fraction != 1.0 {
            parts.push(format!("per_process_memory_fraction:{}", self.per_process_memory_fraction));
        }
        if self.throw_on_cudamalloc_oom {
            parts.push("throw_on_cudamalloc_oom:True".into());
        }
        parts.extend(self.others.iter().map(|(key, value)| format!("{key}:{value}")));
        f.write_str(&parts.join(","))
    }
}

/// The table of divisions as short as PyTorch reads it.
struct Divisions<'a>(&'a [u64; INTERVALS]);

impl fmt::Display for Divisions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0;
        if table[0] != 0 && table.iter().all(|&divisions| divisions == table[0]) {
            return write!(f, "{}", table[0]);
        }
        // The first entry fills everything below it and the last one, ">", everything above the one before it.
        let first = table.iter().take_while(|&&divisions| divisions == table[0]).count() - 1;
        let tail = table.iter().rev().take_while(|&&divisions| divisions == table[INTERVALS - 1]).count();
        let last = (INTERVALS - tail).max(first + 1);
        f.write_str("[")?;
        for (index, divisions) in table.iter().enumerate().take(last).skip(first) {
            write!(f, "{}:{divisions},", 1u64 << index)?;
        }
        write!(f, ">:{}]", table[INTERVALS - 1])
    }
}

//! Reads `PYTORCH_CUDA_ALLOC_CONF` as PyTorch 2.15 does, with errors that say what to write instead.

use std::str::FromStr;

use super::{Backend, INTERVALS, MIB, Reserve, Settings};
use crate::version::Version;

/// Why a text is not valid as allocator settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A key that PyTorch 2.15 does not know; PyTorch raises on it.
    #[error(
        "unknown allocator setting {key:?}: PyTorch refuses it; check the spelling, keys and values are joined by ':' and separated by ','"
    )]
    UnknownKey {
        /// The key as written.
        key: String,
    },
    /// A key without a value, or a value that is cut short.
    #[error("allocator setting {key} has no complete value: write {key}:{example}")]
    Missing {
        /// The key.
        key: &'static str,
        /// A value that would be valid.
        example: &'static str,
    },
    /// A value that PyTorch refuses.
    #[error("allocator setting {key} cannot be {value:?}: it must be {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value as written.
        value: String,
        /// What PyTorch takes.
        expected: String,
    },
    /// Something other than the separator that has to be there.
    #[error("expected {expected:?} but found {found:?} after {after:?} in the allocator settings")]
    Separator {
        /// What has to be there.
        expected: char,
        /// What is there.
        found: String,
        /// The token before it.
        after: String,
    },
}

/// Keys whose values have no effect on where device memory goes, and an example for each.
const WITHOUT_EFFECT: [(&str, &str); 10] = [
    ("release_lock_on_cudamalloc", "True"),
    ("release_lock_on_hipmalloc", "True"),
    ("graph_capture_record_stream_reuse", "True"),
    ("pinned_use_cuda_host_register", "True"),
    ("pinned_use_hip_host_register", "True"),
    ("pinned_use_background_threads", "True"),
    ("pinned_free_catch_all", "True"),
    ("pinned_num_register_threads", "8"),
    ("pinned_reserve_segment_size_mb", "64"),
    ("pinned_max_round_threshold_mb", "64"),
];

const PINNED_MAX_CACHED: &str = "pinned_max_cached_size_mb";
const RESERVE_BY_CLASS: &str = "expandable_segments_reserve_by_class";
/// The most threads that PyTorch lets register pinned memory.
const MAX_REGISTER_THREADS: u64 = 128;
/// The least `large_segment_size_mb`, exclusive: requests of up to 10 MiB have to fit.
const LEAST_LARGE_SEGMENT: u64 = 10;

impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        Settings::read(text, Version::NEWEST)
    }
}

impl Settings {
    /// Reads `PYTORCH_CUDA_ALLOC_CONF` as a version of PyTorch understands it. Keys that only a newer version knows are
    /// read all the same.
    ///
    /// # Errors
    /// What PyTorch refuses, with the key and the value.
    pub fn read(text: &str, version: Version) -> Result<Self, SettingsError> {
        let mut tokens = Tokens::new(text);
        let mut settings = Settings::default();
        while let Some(key) = tokens.next() {
            settings.read_key(&key, &mut tokens, version)?;
            if !tokens.is_empty() {
                tokens.separator(',')?;
            }
        }
        settings.check_sizes()?;
        Ok(settings)
    }

    fn read_key(&mut self, key: &str, tokens: &mut Tokens, version: Version) -> Result<(), SettingsError> {
        match key {
            "backend" => {
                let value = tokens.value("backend", "native")?;
                self.backend = match value.as_str() {
                    "native" => Backend::Native,
                    "cudaMallocAsync" => Backend::CudaMallocAsync,
                    _ => return Err(wrong("backend", value, "native or cudaMallocAsync")),
                };
            }
            "max_split_size_mb" => self.max_split_size = tokens.mebibytes("max_split_size_mb", "128")?,
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding = tokens.mebibytes("max_non_split_rounding_mb", "20")?;
            }
            "large_segment_size_mb" => {
                let key = "large_segment_size_mb";
                self.large_segment_size = tokens.mebibytes(key, "20")?;
                if self.large_segment_size <= LEAST_LARGE_SEGMENT * MIB {
                    let value = (self.large_segment_size / MIB).to_string();
                    return Err(wrong(key, value, format!("more than {LEAST_LARGE_SEGMENT}")));
                }
            }
            "garbage_collection_threshold" => {
                let key = "garbage_collection_threshold";
                let value = tokens.value(key, "0.8")?;
                self.garbage_collection_threshold = value
                    .parse()
                    .ok()
                    .filter(|&threshold: &f64| threshold > 0.0 && threshold < 1.0)
                    .ok_or_else(|| wrong(key, value, "between 0 and 1, both excluded"))?;
            }
            "per_process_memory_fraction" => {
                let key = "per_process_memory_fraction";
                let value = tokens.value(key, "0.9")?;
                self.per_process_memory_fraction = value
                    .parse()
                    .ok()
                    .filter(|fraction: &f64| (0.0..=1.0).contains(fraction))
                    .ok_or_else(|| wrong(key, value, "from 0 to 1"))?;
            }
            "roundup_power2_divisions" => self.roundup_power2_divisions = divisions(tokens, version)?,
            "expandable_segments" => self.expandable_segments = tokens.boolean("expandable_segments")?,
            "throw_on_cudamalloc_oom" => self.throw_on_cudamalloc_oom = tokens.boolean("throw_on_cudamalloc_oom")?,
            "expandable_segments_reserve" => {
                // PyTorch warns of a value that it cannot read and keeps the default.
                self.expandable_segments_reserve = reserve(&tokens.value("expandable_segments_reserve", "0.5")?);
            }
            RESERVE_BY_CLASS => {
                let value = tokens.list(RESERVE_BY_CLASS, "[serving:0.5]")?;
                self.others.push((key.into(), value));
            }
            PINNED_MAX_CACHED => {
                tokens.mebibytes(PINNED_MAX_CACHED, "64").map(|size| self.keep(PINNED_MAX_CACHED, size / MIB))?;
            }
            _ => {
                let &(key, example) = WITHOUT_EFFECT
                    .iter()
                    .find(|(known, _)| *known == key)
                    .ok_or_else(|| SettingsError::UnknownKey { key: key.into() })?;
                self.read_without_effect(key, example, tokens)?;
            }
        }
        Ok(())
    }

    fn read_without_effect(
        &mut self,
        key: &'static str,
        example: &'static str,
        tokens: &mut Tokens,
    ) -> Result<(), SettingsError> {
        if example == "True" {
            let value = tokens.boolean(key)?;
            self.keep(key, if value { "True" } else { "False" });
            return Ok(());
        }
        let value = tokens.number(key, example)?;
        match key {
            "pinned_num_register_threads" if !value.is_power_of_two() || value > MAX_REGISTER_THREADS => {
                Err(wrong(key, value.to_string(), format!("a power of two, at most {MAX_REGISTER_THREADS}")))
            }
            "pinned_reserve_segment_size_mb" if value == 0 => Err(wrong(key, "0", "greater than 0")),
            _ => {
                self.keep(key, value);
                Ok(())
            }
        }
    }

    fn keep(&mut self, key: &str, value: impl ToString) {
        self.others.push((key.into(), value.to_string()));
    }

    /// PyTorch refuses sizes below that of the segments whose blocks they would forbid to split.
    fn check_sizes(&self) -> Result<(), SettingsError> {
        let least = self.large_segment_size;
        for (key, size) in
            [("max_split_size_mb", self.max_split_size), ("max_non_split_rounding_mb", self.max_non_split_rounding)]
        {
            let by_default = key == "max_non_split_rounding_mb" && size == Settings::default().max_non_split_rounding;
            if size < least && !by_default {
                return Err(wrong(key, (size / MIB).to_string(), format!("at least {}", least / MIB)));
            }
        }
        Ok(())
    }
}

fn wrong(key: &'static str, value: impl Into<String>, expected: impl Into<String>) -> SettingsError {
    SettingsError::Value { key, value: value.into(), expected: expected.into() }
}

/// `4`, or `[256:1,512:2,>:4]`: the first entry fills everything below it, ">" everything above the one before it, and
/// what no entry names is off.
fn divisions(tokens: &mut Tokens, version: Version) -> Result<[u64; INTERVALS], SettingsError> {
    const KEY: &str = "roundup_power2_divisions";
    const EXAMPLE: &str = "[256:1,512:2,>:4]";
    let mut table = [0; INTERVALS];
    let value = tokens.value(KEY, EXAMPLE)?;
    if value != "[" {
        let divisions = number(KEY, &value)?;
        if !divisions.is_power_of_two() {
            return Err(wrong(KEY, value, "a power of two"));
        }
        return Ok([divisions; INTERVALS]);
    }
    let mut last = None;
    loop {
        let interval = tokens.next().ok_or(SettingsError::Missing { key: KEY, example: EXAMPLE })?;
        if interval == "]" {
            return Ok(table);
        }
        let value = tokens.value(KEY, EXAMPLE)?;
        let divisions = number(KEY, &value)?;
        if divisions != 0 && !divisions.is_power_of_two() {
            return Err(wrong(KEY, value, "a power of two, or 0 to turn rounding off"));
        }
        if interval == ">" {
            let first = last.unwrap_or(0) + usize::from(!version.replaces_last_interval());
            table.iter_mut().skip(first).for_each(|entry| *entry = divisions);
        } else {
            let mebibytes = number(KEY, &interval)?;
            if !mebibytes.is_power_of_two() {
                return Err(wrong(KEY, interval, "given for intervals that are powers of two"));
            }
            let index = (mebibytes.trailing_zeros() as usize).min(INTERVALS - 1);
            if last.is_none() {
                table.iter_mut().take(index).for_each(|entry| *entry = divisions);
            }
            table[index] = divisions;
            last = Some(index);
        }
        if tokens.peek().is_some_and(|token| token != "]") {
            tokens.separator(',')?;
        }
    }
}

/// A share such as `0.5`, or a size in GiB such as `40G`.
fn reserve(value: &str) -> Option<Reserve> {
    let (digits, wrap): (&str, fn(f64) -> Reserve) = match value.strip_suffix(['G', 'g']) {
        Some(digits) => (digits, Reserve::Gibibytes),
        None => (value, Reserve::Fraction),
    };
    digits.parse().ok().filter(|&number: &f64| number.is_finite() && number > 0.0).map(wrap)
}

/// The number that a value begins with: PyTorch takes `128MB` for 128, and a negative number for a huge one.
fn number(key: &'static str, value: &str) -> Result<u64, SettingsError> {
    let (negative, digits) = match value.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, value.strip_prefix('+').unwrap_or(value)),
    };
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    let number: u64 = digits[..end].parse().map_err(|_| wrong(key, value, "a number that fits in 64 bits"))?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

/// The words of the text and the signs `,`, `:`, `[` and `]`, without spaces.
struct Tokens {
    tokens: std::iter::Peekable<std::vec::IntoIter<String>>,
    last: String,
}

impl Tokens {
    fn new(text: &str) -> Self {
        let mut tokens: Vec<String> = Vec::new();
        let mut word = String::new();
        for character in text.chars() {
            match character {
                ',' | ':' | '[' | ']' => {
                    if !word.is_empty() {
                        tokens.push(std::mem::take(&mut word));
                    }
                    tokens.push(character.into());
                }
                ' ' => {}
                _ => word.push(character),
            }
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        Self { tokens: tokens.into_iter().peekable(), last: String::new() }
    }

    fn next(&mut self) -> Option<String> {
        let token = self.tokens.next()?;
        self.last.clone_from(&token);
        Some(token)
    }

    fn peek(&mut self) -> Option<&str> {
        self.tokens.peek().map(String::as_str)
    }

    fn is_empty(&mut self) -> bool {
        self.tokens.peek().is_none()
    }

    fn separator(&mut self, expected: char) -> Result<(), SettingsError> {
        let after = self.last.clone();
        let found = self.next().unwrap_or_default();
        if found.chars().eq([expected]) {
            return Ok(());
        }
        Err(SettingsError::Separator { expected, found, after })
    }

    fn value(&mut self, key: &'static str, example: &'static str) -> Result<String, SettingsError> {
        if self.is_empty() {
            return Err(SettingsError::Missing { key, example });
        }
        self.separator(':')?;
        match self.next() {
            Some(value) if value != "," => Ok(value),
            _ => Err(SettingsError::Missing { key, example }),
        }
    }

    fn boolean(&mut self, key: &'static str) -> Result<bool, SettingsError> {
        let value = self.value(key, "True")?;
        match value.as_str() {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(wrong(key, value, "True or False, with a capital letter")),
        }
    }

    fn number(&mut self, key: &'static str, example: &'static str) -> Result<u64, SettingsError> {
        let value = self.value(key, example)?;
        number(key, &value)
    }

    /// A size in MiB, as bytes; a size that would not fit in 64 bits is the largest that does.
    fn mebibytes(&mut self, key: &'static str, example: &'static str) -> Result<u64, SettingsError> {
        Ok(self.number(key, example)?.saturating_mul(MIB))
    }

    /// A list in brackets, as it is written.
    fn list(&mut self, key: &'static str, example: &'static str) -> Result<String, SettingsError> {
        let mut list = self.value(key, example)?;
        if list != "[" {
            return Err(wrong(key, list, format!("a list such as {example}")));
        }
        while let Some(token) = self.next() {
            list.push_str(&token);
            if token == "]" {
                return Ok(list);
            }
        }
        Err(SettingsError::Missing { key, example })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, SettingsError> {
        text.parse()
    }

    #[test]
    fn every_key_of_pytorch_is_read() {
        let settings = parse(
            "max_split_size_mb:128 , garbage_collection_threshold:0.8,roundup_power2_divisions:4,\
             expandable_segments:True,per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True,\
             large_segment_size_mb:32,max_non_split_rounding_mb:64,expandable_segments_reserve:40G,\
             expandable_segments_reserve_by_class:[a:0.5,b:40G],pinned_use_background_threads:True,backend:native,",
        )
        .unwrap();
        assert_eq!(settings.max_split_size, 128 * MIB);
        assert_eq!(settings.large_segment_size, 32 * MIB);
        assert_eq!(settings.max_non_split_rounding, 64 * MIB);
        assert_eq!(settings.roundup_power2_divisions, [4; INTERVALS]);
        assert_eq!(settings.expandable_segments_reserve, Some(Reserve::Gibibytes(40.0)));
        assert!(settings.expandable_segments && settings.throw_on_cudamalloc_oom);
        assert_eq!(settings.others.len(), 2);
        assert_eq!(settings.to_string().parse::<Settings>().unwrap(), settings);
    }

    /// What PyTorch 2.15 makes of these texts, as its own snapshot shows it.
    #[test]
    fn divisions_are_those_of_pytorch() {
        let table = |text: &str| parse(&format!("roundup_power2_divisions:{text}")).unwrap().roundup_power2_divisions;
        assert_eq!(table("[256:1,512:2,1024:4,>:8]"), [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(table("[256:1,512:2]"), [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(table("[>:8]"), [0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]);
        assert_eq!(table("[64:8,1:2]"), [2, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(table("[131072:8]"), [8; INTERVALS]);
        assert_eq!(table("[]"), [0; INTERVALS]);
        assert_eq!(table("[256:1,]")[9], 0);
        let old = Settings::read("roundup_power2_divisions:[1:2,>:4]", Version { major: 2, minor: 9 }).unwrap();
        assert_eq!(old.roundup_power2_divisions, [4; INTERVALS]);
    }

    #[test]
    fn errors_name_the_key_and_the_value() {
        for (text, expected) in [
            ("max_split_size_mb:19", "allocator setting max_split_size_mb cannot be \"19\": it must be at least 20"),
            (
                "max_split_size_mb",
                "allocator setting max_split_size_mb has no complete value: write max_split_size_mb:128",
            ),
            (
                "max_split_size_mb:",
                "allocator setting max_split_size_mb has no complete value: write max_split_size_mb:128",
            ),
            (
                "expandable_segments:true",
                "allocator setting expandable_segments cannot be \"true\": it must be True or False, with a capital letter",
            ),
            (
                "large_segment_size_mb:10",
                "allocator setting large_segment_size_mb cannot be \"10\": it must be more than 10",
            ),
            (
                "large_segment_size_mb:64,max_split_size_mb:20",
                "allocator setting max_split_size_mb cannot be \"20\": it must be at least 64",
            ),
            (
                "garbage_collection_threshold:1.0",
                "allocator setting garbage_collection_threshold cannot be \"1.0\": it must be between 0 and 1, both excluded",
            ),
            ("backend:foo", "allocator setting backend cannot be \"foo\": it must be native or cudaMallocAsync"),
            (
                "max_split_size_mb:128 expandable_segments:True",
                "expected ',' but found \":\" after \"128expandable_segments\" in the allocator settings",
            ),
            (
                "roundup_power2_divisions:3",
                "allocator setting roundup_power2_divisions cannot be \"3\": it must be a power of two",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        }
        let unknown = parse("max_split_size_mb=128").unwrap_err();
        assert_eq!(unknown, SettingsError::UnknownKey { key: "max_split_size_mb=128".into() });
    }

    #[test]
    fn values_are_as_lenient_as_in_pytorch() {
        assert_eq!(parse("max_split_size_mb:128MB").unwrap().max_split_size, 128 * MIB);
        assert_eq!(parse("max_split_size_mb:-1").unwrap().max_split_size, u64::MAX);
        assert_eq!(parse("").unwrap(), Settings::default());
        assert_eq!(parse("expandable_segments_reserve:abc").unwrap().expandable_segments_reserve, None);
    }
}

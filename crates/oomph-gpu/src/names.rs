//! Normalises names of cards for comparison.
//!
//! Case, spaces and punctuation do not matter, the maker and the line ("NVIDIA", "GeForce", "RTX", "Tesla") may be left
//! out at the start, and words that say nothing ("GPU", "Generation") anywhere. Several cards may share the name that
//! CUDA prints (the RTX 3060 exists with 8 and 12 GB); then the one that the file lists first is meant, which is the most
//! common one, and a size picks another: "3060 8gb".

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::gpu::Gpu;

/// An id or alias that two cards answer to.
#[derive(Debug)]
pub(crate) struct SharedName {
    /// The normalised name.
    pub(crate) key: String,
    /// The id of the card that came first.
    pub(crate) first: String,
    /// The id of the card that came second.
    pub(crate) second: String,
}

/// The words of a name that tell cards apart, in lower case.
pub(crate) fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let mut words: Vec<String> = lower
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty() && !matches!(*word, "gpu" | "generation" | "edition"))
        .map(|word| match word {
            "mobile" => "laptop".to_string(),
            _ => word.to_string(),
        })
        .collect();
    while words.len() > 1 && matches!(words[0].as_str(), "nvidia" | "geforce" | "tesla" | "rtx" | "gtx") {
        words.remove(0);
    }
    if let Some(first) = words.first_mut() {
        for line in ["rtx", "gtx"] {
            if let Some(rest) = first.strip_prefix(line)
                && !rest.is_empty()
            {
                *first = rest.to_string();
                break;
            }
        }
    }
    for word in &mut words {
        if let Some(size) = size_in_gb(word) {
            *word = format!("{size}gb");
        }
    }
    words
}

/// The number of a word such as "8gb", "8gib" or "8g".
pub(crate) fn size_in_gb(word: &str) -> Option<u32> {
    let digits = ["gib", "gb", "g"].iter().find_map(|unit| word.strip_suffix(unit))?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A name in the form in which names are compared.
pub(crate) fn key(text: &str) -> String {
    words(text).concat()
}

/// The normalised names of all cards, with the position of the card that each one means.
///
/// # Errors
/// When two cards have an id or an alias in common.
pub(crate) fn keys(gpus: &[Gpu]) -> Result<HashMap<String, usize>, SharedName> {
    let mut keys = HashMap::new();
    for (position, gpu) in gpus.iter().enumerate() {
        for text in std::iter::once(&gpu.id).chain(&gpu.aliases) {
            match keys.entry(key(text)) {
                Entry::Vacant(vacant) => {
                    vacant.insert(position);
                }
                Entry::Occupied(taken) if *taken.get() == position => {}
                Entry::Occupied(taken) => {
                    return Err(SharedName {
                        key: taken.key().clone(),
                        first: gpus[*taken.get()].id.clone(),
                        second: gpu.id.clone(),
                    });
                }
            }
        }
    }
    // Names as CUDA prints them come last: they may be shared, and then belong to the card that is listed first.
    for (position, gpu) in gpus.iter().enumerate() {
        keys.entry(key(&gpu.name)).or_insert(position);
    }
    Ok(keys)
}

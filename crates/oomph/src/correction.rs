//! Corrections to the catalogue that `oomph calibrate` measured on this machine, kept in the cache for later dry runs.

use std::path::PathBuf;
use std::{fs, io};

use anyhow::{Context, Result};
use oomph_gpu::{ContextCost, Gpu, nvml, size};
use oomph_launch::CacheDir;
use oomph_report::{CardCorrection, CardReadings};

/// Programs that load modules which most programs never touch: their context says little about others.
const UNUSUAL: &[&str] = &["solver", "transform"];

/// Differences below this are the driver's own, in bytes.
const SAME: u64 = 1 << 20;

/// The correction that follows from two runs, if the figures differ.
pub fn of(gpu: &Gpu, taken_on: &str, card: &CardReadings, twin: &CardReadings) -> Option<CardCorrection> {
    let context = match (outside(card), outside(twin)) {
        (Some(real), Some(virtual_)) if real.abs_diff(virtual_) >= SAME => {
            (gpu.context.expected_bytes + real).saturating_sub(virtual_)
        }
        _ => gpu.context.expected_bytes,
    };
    let is_same = card.capacity_bytes == gpu.capacity_bytes && context == gpu.context.expected_bytes;
    (!is_same).then(|| CardCorrection {
        gpu: gpu.id.clone(),
        driver: card.driver.clone(),
        taken_on: taken_on.to_owned(),
        capacity_bytes: card.capacity_bytes,
        context_bytes: context,
        catalogue_capacity_bytes: gpu.capacity_bytes,
        catalogue_context_bytes: gpu.context.expected_bytes,
    })
}

/// The most that an ordinary program held outside PyTorch's allocator, in bytes.
fn outside(readings: &CardReadings) -> Option<u64> {
    let usual = readings.readings.iter().filter(|one| !UNUSUAL.contains(&one.program.as_str()));
    usual.filter_map(|one| one.outside_bytes).max()
}

/// The card with what was measured.
pub fn applied(gpu: &Gpu, correction: &CardCorrection) -> Gpu {
    let source = format!("measured by oomph calibrate on {}", correction.taken_on);
    let context = correction.context_bytes;
    Gpu {
        capacity_source: source.clone(),
        context: ContextCost {
            low_bytes: gpu.context.low_bytes.min(context),
            expected_bytes: context,
            high_bytes: gpu.context.high_bytes.max(context),
            source,
        },
        ..gpu.with_capacity(correction.capacity_bytes)
    }
}

/// What was kept for a card. Figures that were read with another driver than this machine's are left alone, with a word.
pub fn kept(id: &str) -> Option<CardCorrection> {
    let path = path(id)?;
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn(&format!("cannot read {}: {error}", path.display()));
            return None;
        }
    };
    let correction: CardCorrection = match serde_json::from_str(&text) {
        Ok(correction) => correction,
        Err(error) => {
            warn(&format!("{} is damaged ({error}); run oomph calibrate again", path.display()));
            return None;
        }
    };
    match (&correction.driver, nvml::driver_version()) {
        (Some(then), Some(now)) if *then != now => {
            warn(&format!(
                "what oomph calibrate found of {id} is not used: driver {then} was there, now it is {now}; run it again"
            ));
            None
        }
        _ => Some(correction),
    }
}

/// Keeps a correction for later dry runs, or removes what was kept if there is none.
///
/// # Errors
/// When the cache cannot be written.
pub fn keep(gpu: &Gpu, correction: Option<&CardCorrection>) -> Result<()> {
    let path = path(&gpu.id).context("there is no cache folder to keep it in")?;
    let failed = || format!("cannot write {}", path.display());
    let Some(correction) = correction else {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).with_context(failed),
            _ => Ok(()),
        };
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let text = serde_json::to_string_pretty(correction).context("cannot write the correction as JSON")?;
    let new = path.with_extension("new");
    fs::write(&new, text + "\n").and_then(|()| fs::rename(&new, &path)).with_context(failed)
}

/// Forgets all that was kept. Gives the cards.
///
/// # Errors
/// When a file cannot be removed.
pub fn forget() -> Result<Vec<String>> {
    let folder = CacheDir::locate()?.path().join("corrections");
    let mut forgotten = Vec::new();
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(forgotten),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", folder.display())),
    };
    for entry in entries.flatten() {
        let path = entry.path();
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        if path.extension().is_some_and(|extension| extension == "json") {
            forgotten.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    forgotten.sort();
    Ok(forgotten)
}

fn path(id: &str) -> Option<PathBuf> {
    Some(CacheDir::locate().ok()?.path().join("corrections").join(format!("{id}.json")))
}

fn warn(line: &str) {
    crate::output::say(&format!("oomph: warning: {line}"));
}

/// A correction in a line on stderr.
pub fn announced(correction: &CardCorrection) -> String {
    format!(
        "dry runs of {} on this machine now take a total of {} and {} outside PyTorch",
        correction.gpu,
        size::format(correction.capacity_bytes),
        size::format(correction.context_bytes)
    )
}

#[cfg(test)]
mod tests {
    use oomph_gpu::Catalogue;
    use oomph_report::ProgramReading;

    use super::*;

    fn readings(capacity: u64, outside: &[(&str, u64)]) -> CardReadings {
        let reading = |(program, bytes): &(&str, u64)| ProgramReading {
            program: (*program).into(),
            outside_bytes: Some(*bytes),
            ..ProgramReading::default()
        };
        CardReadings {
            capacity_bytes: capacity,
            readings: outside.iter().map(reading).collect(),
            ..CardReadings::default()
        }
    }

    #[test]
    fn only_what_differs_is_corrected() {
        let gpu = Catalogue::builtin().get("rtx-4090").unwrap();
        let capacity = gpu.capacity_bytes;
        let twin = readings(capacity, &[("start", 400 << 20), ("matmul", 450 << 20), ("solver", 450 << 20)]);
        assert_eq!(of(gpu, "2026-11-25", &twin, &twin), None);
        // A solver's module is not what other programs load, and half a MiB is the driver's rounding.
        let near = [("start", 300 << 20), ("matmul", (450 << 20) + (1 << 19)), ("solver", 900 << 20)];
        assert_eq!(of(gpu, "2026-11-25", &readings(capacity, &near), &twin), None);

        let card = readings(capacity - (96 << 20), &[("start", 400 << 20), ("matmul", 550 << 20)]);
        let found = of(gpu, "2026-11-25", &card, &twin).unwrap();
        assert_eq!(found.context_bytes, gpu.context.expected_bytes + (100 << 20));
        assert_eq!(found.capacity_bytes, capacity - (96 << 20));
        let corrected = applied(gpu, &found);
        assert_eq!(
            (corrected.capacity_bytes, corrected.context.expected_bytes),
            (found.capacity_bytes, found.context_bytes)
        );
        assert!(
            corrected.context.low_bytes <= found.context_bytes && found.context_bytes <= corrected.context.high_bytes
        );
    }

    #[test]
    fn without_the_drivers_word_on_processes_only_the_total_is_corrected() {
        let gpu = Catalogue::builtin().get("rtx-4090").unwrap();
        let silent = readings(gpu.capacity_bytes + 1, &[]);
        let found = of(gpu, "2026-11-25", &silent, &silent).unwrap();
        assert_eq!(found.context_bytes, gpu.context.expected_bytes);
    }
}

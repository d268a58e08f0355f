//! Measures how often the interval of a dry run holds: some replays of a recording set it, and the others test it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use oomph_allocator::{Capacity, Spread, Unlike};
use oomph_explain::snapshot::{Options, Requests, requests};
use oomph_trace::ReadOptions;

/// Seeds of replays that set no interval.
const OTHERS: std::ops::Range<u64> = 1_000_000..1_000_200;

/// What one card of a recording has shown.
struct Row {
    name: String,
    requests: usize,
    reserved: u64,
    low: u64,
    high: u64,
    below_high: usize,
    above_low: usize,
    others: usize,
}

impl Row {
    fn width_percent(&self) -> f64 {
        (self.high - self.low) as f64 * 100.0 / self.reserved.max(1) as f64
    }
}

/// With `workspaces` cuDNN may take other algorithms than were recorded. Replays recordings, prints a row for each, and says how many of the replays lay within the interval.
///
/// # Errors
/// When a recording cannot be read.
pub fn measure(paths: &[PathBuf], workspaces: bool, csv: Option<&Path>) -> Result<()> {
    let mut rows = Vec::new();
    for path in paths {
        let trace = oomph_trace::read(path, &ReadOptions::default()).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for requests in requests(&trace, &Options::default(), None) {
            if requests.truncated || requests.firm.is_empty() {
                eprintln!("{name}: the recording lacks its beginning, and is left out");
                continue;
            }
            rows.push(row(name.clone(), &requests, workspaces));
        }
    }
    ensure!(!rows.is_empty(), "no recording has a whole history; `oomph dry-run --snapshot FILE` writes one");
    let mut table = String::from(
        "recording,requests,reserved_bytes,low_bytes,high_bytes,width_percent,others,at_most_high,at_least_low\n",
    );
    for row in &rows {
        let width = row.width_percent();
        let Row { name, requests, reserved, low, high, below_high, above_low, others } = row;
        writeln!(table, "{name},{requests},{reserved},{low},{high},{width:.2},{others},{below_high},{above_low}")?;
    }
    print!("{table}");
    if let Some(csv) = csv {
        std::fs::write(csv, &table).with_context(|| format!("cannot write {}", csv.display()))?;
    }
    let sum = |count: fn(&Row) -> usize| rows.iter().map(count).sum::<usize>();
    let all = sum(|row| row.others) as f64;
    let mut widths: Vec<f64> = rows.iter().map(Row::width_percent).collect();
    widths.sort_by(f64::total_cmp);
    eprintln!(
        "{} recordings: {:.2} % at most the upper end, {:.2} % at least the lower; width {:.2} % in the median, {:.2} % at most",
        rows.len(),
        sum(|row| row.below_high) as f64 * 100.0 / all,
        sum(|row| row.above_low) as f64 * 100.0 / all,
        widths[widths.len() / 2],
        widths[widths.len() - 1]
    );
    Ok(())
}

fn row(name: String, requests: &Requests, workspaces: bool) -> Row {
    let script = requests.yielding.as_ref().unwrap_or(&requests.firm);
    let spread = |seeds: std::ops::Range<u64>| -> Spread {
        let unlike = Unlike { step_ends: &requests.step_ends, workspaces };
        script.spread(&requests.model, Capacity::UNLIMITED, &unlike, seeds)
    };
    let set = spread(0..script.affordable_replays().into());
    let others = spread(OTHERS);
    Row {
        name,
        requests: script.len(),
        reserved: set.recorded,
        low: set.low(),
        high: set.high(),
        below_high: others.replays.iter().filter(|&&bytes| bytes <= set.high()).count(),
        above_low: others.replays.iter().filter(|&&bytes| bytes >= set.low()).count(),
        others: others.replays.len(),
    }
}

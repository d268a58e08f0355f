//! Writes recordings in the formats of other tools, chosen by the file name's ending.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use oomph_explain::snapshot::{self, At, Names, Options, Owner};
use oomph_trace::{DeviceKind, Trace, write};

use crate::failure::hinted;

/// Moments at which the owners are looked at for a curve.
const MOMENTS: usize = 96;
/// Events that a look at the owners may cost in all: a long recording is looked at less often.
const REPLAYED_EVENTS: usize = 8_000_000;

/// A curve: its name, and (microseconds, GiB).
type Series = (String, Vec<(i64, f64)>);

/// The endings that are known; none is a folder.
const ENDINGS: [&str; 5] = ["parquet", "json", "pickle", "pkl", ""];

/// Names that end so are for speedscope, and not for Perfetto.
const SPEEDSCOPE: &str = ".speedscope.json";

/// Finds out whether a recording can be written under this name, before there is one.
///
/// # Errors
/// When no tool is known for the ending.
pub fn known(path: &Path) -> Result<()> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    if ENDINGS.contains(&ending) { Ok(()) } else { Err(unknown(ending)) }
}

fn unknown(ending: &str) -> anyhow::Error {
    hinted(
        format!("`.{ending}` is not a format that recordings can be written in"),
        "use .parquet, .json (Perfetto), .speedscope.json, .pickle (PyTorch's viewer) or a folder without an ending \
         (TensorBoard)",
    )
}

/// Writes a recording to `path`: Parquet, Chrome/Perfetto JSON, speedscope's JSON (what was live at the death or the peak,
/// by stack), PyTorch's own pickle, or a folder for TensorBoard (with the
/// owners over time).
///
/// # Errors
/// When the ending is not known, or the file cannot be written.
pub fn write(trace: &Trace, names: Option<&Names>, path: &Path) -> Result<()> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    let context = || format!("cannot write {}", path.display());
    let create = || -> Result<BufWriter<File>> { Ok(BufWriter::new(File::create(path).with_context(context)?)) };
    match ending {
        "parquet" => write::parquet(trace, create()?).with_context(context),
        "json" if path.to_string_lossy().ends_with(SPEEDSCOPE) => {
            write::speedscope(trace, &live(trace, names), create()?).with_context(context)
        }
        "json" => {
            let mut file = create()?;
            write::perfetto(trace, &mut file).and_then(|()| file.flush()).with_context(context)
        }
        "pickle" | "pkl" => {
            let mut file = create()?;
            write::snapshot(trace, write::StackSharing::All, &mut file)
                .and_then(|()| file.flush())
                .with_context(context)
        }
        "" => {
            fs::create_dir_all(path).with_context(context)?;
            let mut file = BufWriter::new(File::create(path.join("events.out.tfevents.oomph")).with_context(context)?);
            write::tensorboard(trace, &owners_over_time(trace, names), &mut file)
                .and_then(|()| file.flush())
                .with_context(context)
        }
        other => Err(unknown(other)),
    }
}

/// What each stack holds at the moment of the explanation, on every card.
fn live(trace: &Trace, names: Option<&Names>) -> Vec<write::Holding> {
    let histories = snapshot::history(trace, &Options::default(), names);
    let of = |history: &snapshot::History| {
        let lives = |block: &&snapshot::HistoryBlock| block.birth <= history.moment && history.moment < block.death;
        let rows = history.blocks.iter().filter(lives).map(|block| (block.stack, block.requested));
        (format!("cuda:{}", history.index), rows.collect())
    };
    histories.iter().map(of).collect()
}

/// What each owner holds over time, on the first card of a recording.
fn owners_over_time(trace: &Trace, names: Option<&Names>) -> Vec<Series> {
    let Some(device) = trace.devices.iter().find(|device| device.kind == DeviceKind::Cuda) else { return Vec::new() };
    let events = device.events.len();
    let moments = MOMENTS.min(REPLAYED_EVENTS / events.max(1)).min(events);
    let mut curves: Vec<(Owner, Vec<(i64, f64)>)> = Vec::new();
    for moment in 0..moments {
        let event = events * (moment + 1) / moments;
        let options = Options { at: At::Event(event as u64), what_if: false, top: 0, ..Options::default() };
        let explanation = snapshot::explain(trace, &options, names);
        let Some(explained) = explanation.devices.iter().find(|found| found.index == device.index) else { continue };
        let Some(time) = explained.peak.time_us else { continue };
        for row in &explained.owners {
            let point = (time, row.bytes as f64 / f64::from(1 << 30));
            match curves.iter_mut().find(|(owner, _)| *owner == row.owner) {
                Some((_, points)) => points.push(point),
                None => curves.push((row.owner, vec![point])),
            }
        }
    }
    let name = |owner: Owner| serde_json::to_value(owner).ok().and_then(|name| name.as_str().map(str::to_owned));
    let title = |owner| format!("cuda:{}/owners/{} GiB", device.index, name(owner).unwrap_or_default());
    curves.into_iter().map(|(owner, points)| (title(owner), points)).collect()
}

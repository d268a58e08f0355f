//! Recordings in the formats of other tools, chosen by the name's ending.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use oomph_trace::{Trace, write};

use crate::failure::hinted;

/// Values over time of one owner: its name, and (microseconds, bytes).
pub type Series = (String, Vec<(i64, f64)>);

/// The endings that are known; none is a folder.
const ENDINGS: [&str; 5] = ["parquet", "json", "pickle", "pkl", ""];

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
        format!("`.{ending}` is no format that recordings can be written in"),
        "use .parquet, .json (Perfetto), .pickle (PyTorch's viewer) or a folder without an ending (TensorBoard)",
    )
}

/// Writes a recording to `path`: Parquet, Chrome/Perfetto JSON, PyTorch's own pickle, or a folder for TensorBoard.
///
/// # Errors
/// When the ending is not known, or the file cannot be written.
pub fn write(trace: &Trace, owners: Option<&[Series]>, path: &Path) -> Result<()> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    let context = || format!("cannot write {}", path.display());
    let create = || -> Result<BufWriter<File>> { Ok(BufWriter::new(File::create(path).with_context(context)?)) };
    match ending {
        "parquet" => write::parquet(trace, create()?).with_context(context),
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
            let owners = owners.unwrap_or(&[]);
            write::tensorboard(trace, owners, &mut file).and_then(|()| file.flush()).with_context(context)
        }
        other => Err(unknown(other)),
    }
}

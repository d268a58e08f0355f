//! `cargo run -p xtask -- calibrate`: compares plans with readings.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use oomph_plan::calibration::{self, Errors};

/// Prints the errors of plans by family, and writes the widths of their intervals.
/// With `measured`, a file of published measurements, it prints their errors by family instead.
///
/// # Errors
/// When a file cannot be read or written, or, with `check`, when the widths would change.
pub fn run(check: bool, rows: bool, measured: Option<&Path>) -> Result<()> {
    if let Some(path) = measured {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        print!("{}", calibration::measured::table(&calibration::measured::read(&text)));
        return Ok(());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| {
        let path = root.join("calibration").join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let comparison = calibration::compare(&read("text.csv")?, &read("images.csv")?, &read("training.csv")?);
    if rows {
        for row in &comparison.rows {
            let percent = |ratio: f64| 100.0 * (1.0 / ratio - 1.0);
            let (allocated, reserved) = (percent(row.allocated), percent(row.reserved));
            println!(
                "{:20} {:10} allocated {allocated:+7.2} %  reserved {reserved:+7.2} %",
                row.model,
                row.task.name()
            );
        }
    }
    for reason in &comparison.left_out {
        println!("left out: {reason}");
    }
    print!("{}", comparison.table());
    let quantiles = comparison.quantiles();
    let covered = comparison.rows.iter().filter(|row| {
        let own = |entry: &&oomph_plan::Quantiles| entry.family == row.family && entry.task == row.task.name();
        quantiles.iter().find(own).is_some_and(|entry| row.ratio() <= entry.high)
    });
    println!("{} of {} readings are at most the high bound", covered.count(), comparison.rows.len());
    if let Some(held) = comparison.held_out() {
        let Errors { rows, median, p95, worst } = held.errors;
        println!("each family left out in turn: median {median:.2} %, p95 {p95:.2} %, worst {worst:.2} %");
        println!("  {} of {rows} readings are at most the high bound, {} within both", held.below_high, held.within);
        for line in held.missed {
            println!("  above it: {line}");
        }
    }
    let path = root.join("crates/oomph-plan/data/intervals.toml");
    let file = comparison.file();
    let before = fs::read_to_string(&path).unwrap_or_default();
    if check && before != file {
        bail!("{} is not what the readings give: run `cargo run -p xtask -- calibrate`", path.display());
    }
    if before != file {
        fs::write(&path, file).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

//! Writes the page of frameworks from recorded readings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use oomph_gpu::size;
use serde::Deserialize;

/// One run of one program under `oomph dry-run`.
#[derive(Debug, Clone, Deserialize)]
struct Reading {
    date: String,
    framework: String,
    version: String,
    python: String,
    program: String,
    card: String,
    verdict: String,
    allocated_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
    process_bytes: Option<u64>,
    seconds: Option<f64>,
    host_bytes: Option<u64>,
    note: String,
}

/// One run of one program whose CUDA runtime is, or could be, linked in statically.
#[derive(Debug, Clone, Deserialize)]
struct StaticReading {
    date: String,
    family: String,
    version: String,
    program: String,
    /// How the runtime is linked: `static`, `shared`, `none`, or `driver` for a program that calls the driver alone.
    runtime: String,
    exit_status: i32,
    /// The first line of what oomph says, without its line breaks.
    message: String,
    /// What of its memory is in the books.
    accounted: String,
    exact: String,
    advice: String,
}

/// Writes `docs/frameworks.md` from `acceptance/readings/frameworks.csv` and `static.csv`.
///
/// # Errors
/// When a file cannot be read or written, or, with `check`, when the page would change.
pub fn run(check: bool) -> Result<()> {
    let made = page(&readings("frameworks.csv")?) + &static_section(&readings("static.csv")?);
    let path = at("docs/frameworks.md");
    let before = fs::read_to_string(&path).unwrap_or_default();
    if check && before != made {
        bail!("{} is not what the readings give: run `cargo run -p xtask -- frameworks`", path.display());
    }
    if before != made {
        fs::write(&path, made).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn readings<R: for<'row> Deserialize<'row>>(file: &str) -> Result<Vec<R>> {
    let path = at("acceptance/readings").join(file);
    let mut reader = csv::Reader::from_path(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut readings: Vec<R> = Vec::new();
    for (index, row) in reader.deserialize().enumerate() {
        // The first row is the file's second line.
        readings.push(row.with_context(|| format!("{}, line {}", path.display(), index + 2))?);
    }
    Ok(readings)
}

fn page(readings: &[Reading]) -> String {
    let mut text = String::from(
        "# What has run on the virtual GPU\n\n\
         Made by `cargo run -p xtask -- frameworks` from `acceptance/readings/frameworks.csv`. Each row is one program, \
         unmodified,\nunder `oomph dry-run` on a machine without a GPU. Sizes are peaks in binary units (GiB is 2^30 \
         bytes): *reserved* is what\nthe framework's own allocator held, where it has one and reports it, *process* is what \
         `nvidia-smi` would show of the process.\n*Time* is that of the whole run and *host* the most memory of the \
         machine that any one of its processes held. The\nmachine had 2 cores and other work at the same time.\n",
    );
    let mut frameworks: BTreeMap<&str, BTreeMap<_, &Reading>> = BTreeMap::new();
    for reading in readings {
        // A later reading of the same thing takes the place of an earlier one.
        let key = (&reading.program, &reading.card, &reading.version);
        frameworks.entry(&reading.framework).or_default().insert(key, reading);
    }
    for (framework, rows) in frameworks {
        let versions: BTreeSet<String> = rows.values().map(|row| versions(row)).collect();
        let dates: BTreeSet<&str> = rows.values().map(|row| row.date.as_str()).collect();
        let _ = write!(
            text,
            "\n## {}\n\n{}. Read on {}.\n\n| program | card | answer | reserved | process | time | host | |\n\
             |---|---|---|---|---|---|---|---|\n",
            cell(framework),
            versions.into_iter().collect::<Vec<_>>().join("; "),
            dates.into_iter().collect::<Vec<_>>().join(", "),
        );
        for row in rows.values() {
            let reserved = row.reserved_bytes.or(row.allocated_bytes);
            let seconds = row.seconds.map_or_else(String::new, |seconds| format!("{seconds:.0} s"));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {seconds} | {} | {} |",
                cell(&row.program),
                cell(&row.card),
                answer(&row.verdict),
                bytes(reserved),
                bytes(row.process_bytes),
                bytes(row.host_bytes),
                cell(&row.note),
            );
        }
    }
    text
}

/// The section about programs with a static CUDA runtime.
fn static_section(readings: &[StaticReading]) -> String {
    let mut text = String::from(
        "\n## Programs with a static CUDA runtime\n\n\
         Made from `acceptance/readings/static.csv`; the programs are in `acceptance/programs/static`. A CUDA runtime that \
         is linked in statically\n(nvcc's default) reaches the virtual GPU only by the driver. Of CUDA 13.2 it was seen to \
         call `cuDriverGetVersion`, to look up\n474 functions with `cuGetProcAddress`, to call `cuInit`, and to ask twice for \
         a table with `cuGetExportTable`. These tables are\nundocumented, and oomph does not imitate them. Without them the \
         runtime answers each call with \"named symbol not found\" and calls\nnone of the functions that it looked up, so \
         that no memory call arrives. oomph then names the file and ends with status 2, also if\nthe program goes on with \
         the CPU. Where a library links the shared runtime, or a program calls the driver itself, every allocation\nis \
         accounted. *Exact* says how the figure was checked.\n",
    );
    let mut families: BTreeMap<&str, BTreeMap<_, &StaticReading>> = BTreeMap::new();
    for reading in readings {
        // A later reading of the same thing takes the place of an earlier one.
        families.entry(&reading.family).or_default().insert((&reading.program, &reading.version), reading);
    }
    for (family, rows) in families {
        let versions: BTreeSet<&str> = rows.values().map(|row| row.version.as_str()).collect();
        let dates: BTreeSet<&str> = rows.values().map(|row| row.date.as_str()).collect();
        let advice: BTreeSet<&str> =
            rows.values().map(|row| row.advice.as_str()).filter(|advice| !advice.is_empty()).collect();
        let _ = write!(
            text,
            "\n### {}\n\n{}. Read on {}.\n\n| program | runtime | status | first line | accounted | exact |\n\
             |---|---|---|---|---|---|\n",
            cell(family),
            cell(&versions.into_iter().collect::<Vec<_>>().join("; ")),
            dates.into_iter().collect::<Vec<_>>().join(", "),
        );
        for row in rows.values() {
            let cells = [&row.message, &row.accounted, &row.exact].map(|text| cell(text));
            let [message, accounted, exact] = cells;
            let (program, runtime, status) = (cell(&row.program), cell(&row.runtime), row.exit_status);
            let _ = writeln!(text, "| {program} | {runtime} | {status} | {message} | {accounted} | {exact} |");
        }
        for one in advice {
            let _ = write!(text, "\n{}\n", cell(one));
        }
    }
    text
}

fn versions(row: &Reading) -> String {
    let python = if row.python.is_empty() { String::new() } else { format!(", Python {}", cell(&row.python)) };
    format!("{}{python}", cell(&row.version))
}

fn answer(verdict: &str) -> String {
    match verdict {
        "oom" => "does not fit".to_owned(),
        "no-gpu-use" => "does not use the GPU".to_owned(),
        other => cell(other),
    }
}

fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, size::format)
}

/// A text that is not a table's border.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_readings_give() {
        run(true).unwrap();
    }

    #[test]
    fn readings_are_of_days_and_answers_that_there_are() {
        for row in readings::<Reading>("frameworks.csv").unwrap() {
            let numbers: Vec<&str> = row.date.split('-').collect();
            assert!(numbers.len() == 3 && numbers[0].len() == 4, "no date: {row:?}");
            assert!(["fits", "oom", "failed", "no-gpu-use"].contains(&row.verdict.as_str()), "no answer: {row:?}");
            let (reserved, process) = (row.reserved_bytes.unwrap_or(0), row.process_bytes.unwrap_or(u64::MAX));
            assert!(reserved <= process, "more reserved than the process had: {row:?}");
        }
    }

    #[test]
    fn static_readings_agree_with_themselves() {
        for row in readings::<StaticReading>("static.csv").unwrap() {
            assert!(["static", "shared", "none", "driver"].contains(&row.runtime.as_str()), "no runtime: {row:?}");
            let refused = row.message.contains("has the CUDA runtime linked in statically");
            assert_eq!(refused, row.exit_status == 2, "one message and one status: {row:?}");
            assert!(!refused || row.runtime == "static", "nothing to name: {row:?}");
            let program = row.program.split(' ').next().unwrap();
            assert!(at("acceptance/programs/static").join(program).is_file(), "no such program: {row:?}");
        }
    }

    #[test]
    fn a_later_reading_takes_an_earlier_ones_place() {
        let reading = |process_bytes: u64| Reading {
            date: "2026-01-01".into(),
            framework: "f".into(),
            version: "1".into(),
            python: String::new(),
            program: "p | q".into(),
            card: "rtx-4090".into(),
            verdict: "oom".into(),
            allocated_bytes: None,
            reserved_bytes: None,
            process_bytes: Some(process_bytes),
            seconds: Some(1.4),
            host_bytes: None,
            note: String::new(),
        };
        let page = page(&[reading(1 << 30), reading(2 << 30)]);
        assert!(page.contains("| p \\| q | rtx-4090 | does not fit |  | 2.00 GiB | 1 s |  |  |"), "{page}");
        assert!(!page.contains("1.00 GiB"), "{page}");
    }
}

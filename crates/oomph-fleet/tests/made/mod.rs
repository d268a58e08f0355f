//! A small fleet: logs, snapshots, a report, a journal, tar files, and what cannot be read.

// Each test file uses some of it.
#![allow(dead_code)]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use oomph_trace::write::{StackSharing, snapshot};
use serde_json::Value;

use crate::recording::programs::{fragmented, training};
use crate::recording::{MIB, Recording};

/// A log of a job that died on line `line` of `train.py`, with so much requested; each day it reserves a little more.
pub fn log(day: u32, line: u32, mib: u32) -> String {
    format!(
        "$ python train.py --model org/model-{line}\n2026-11-{day:02} 10:00:00 INFO step 1\nTraceback (most recent call last):\n  \
         File \"/home/ada/train.py\", line {line}, in <module>\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. \
         Tried to allocate {mib}.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 7.00 MiB is free. Process 7 has 23.62 \
         GiB memory in use. Of the allocated memory 21.{:02} GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but \
         unallocated.\n",
        day * 4
    )
}

/// A snapshot of a job that leaks so many steps, as PyTorch writes it.
pub fn leaking(steps: u64) -> Vec<u8> {
    let mut recording = Recording::default();
    training(&mut recording, steps as usize, &mut |_| true);
    let stack = recording.stack(&[("train.py", "<module>")]);
    recording.oom(512 * MIB, 20 * MIB, stack);
    pickled(&recording.finish())
}

/// A trace as PyTorch writes it.
pub fn pickled(trace: &oomph_trace::Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot(trace, StackSharing::All, &mut bytes).unwrap();
    bytes
}

/// The answer of a dry run that fits, of a card that is larger than it needs.
pub fn report() -> Value {
    serde_json::json!({
        "schema": "oomph.dry-run/1", "verdict": "fits", "exit_status": 0, "stopped": "exit", "steps": 3,
        "elapsed_seconds": 5.5, "frameworks": {"torch": "2.15.0"},
        "devices": [{
            "index": 0, "gpu": "h100", "capacity_bytes": 85_000_000_000_u64, "oom": null,
            "peak": {"process_bytes": 9_000_000_000_u64, "reserved_bytes": 8_000_000_000_u64,
                "allocated_bytes": 7_000_000_000_u64, "context_bytes": 500_000_000, "other_bytes": 0,
                "low_bytes": 8_900_000_000_u64, "high_bytes": 9_100_000_000_u64},
            "whose": {"at": "peak", "by_line": [], "by_module": [], "by_dtype": [], "by_phase": [], "owners": [
                {"owner": "parameters", "bytes": 6_000_000_000_u64, "blocks": 9, "confidence": 1.0, "source": "named",
                    "named_bytes": 6_000_000_000_u64},
                {"owner": "cached-split", "bytes": 2_000_000_000_u64, "blocks": 0, "confidence": 1.0,
                    "source": "recorded", "named_bytes": 0}]}
        }],
        "loops": [{"file": "train.py", "line": 12, "kind": "training", "iterations": 20, "of": 101, "shortened": false,
            "growth": {"device": 0, "bytes_per_iteration": 11_000_000, "peak_bytes": 500_000_000, "at_end_bytes": null,
                "full_in_iteration": null, "full_in_step": null, "site": null, "holders": [
                    {"name": "losses", "kind": "loss-history", "file": "train.py", "line": 14}]}}],
        "fits_on": ["rtx-3060"], "warnings": [], "command": ["python", "train.py", "--model", "org/model-7"],
        "smallest": [{"gpu": "rtx-3060", "gpu_name": "NVIDIA GeForce RTX 3060", "kind": "consumer",
            "capacity_bytes": 12_600_000_000_u64, "spare_bytes": 3_600_000_000_u64}]
    })
}

/// The lines of a journal: a run whose first attempt dies and whose second holds; `ended` says whether that is known.
pub fn journal(ended: bool) -> String {
    let head = r#""schema":"oomph.journal/1","run":"20261120-7""#;
    let mut lines = vec![
        format!(
            r#"{{{head},"at":"2026-11-20T10:00:00.000Z","event":"start","command":["python","train.py","--model","org/model-7"],"gpu":"NVIDIA GeForce RTX 4090","rehearsal":false,"free_bytes":1}}"#
        ),
        format!(
            r#"{{{head},"at":"2026-11-20T10:00:01.000Z","event":"attempt","number":1,"remedies":[],"checkpoint":null,"step":null,"repeated_steps":0,"predicted_peak_bytes":20000000000}}"#
        ),
        format!(
            r#"{{{head},"at":"2026-11-20T11:00:01.000Z","event":"end","number":1,"exit_status":1,"seconds":3600.0,"reserved_peak_bytes":21000000000,"steps":90,"resumed_at_step":null,"effective_batch":32,"signs":[],"out_of_memory":{{"requested_bytes":1048576,"reserved_bytes":21000000000,"phase":"backward","step":90,"file":"train.py","line":7,"rank":null,"recording":null}}}}"#
        ),
        format!(
            r#"{{{head},"at":"2026-11-20T11:00:02.000Z","event":"decision","remedies":["gradient-checkpointing"],"reason":"the cheapest that fits","searched_seconds":9.0}}"#
        ),
        format!(
            r#"{{{head},"at":"2026-11-20T11:00:03.000Z","event":"attempt","number":2,"remedies":["gradient-checkpointing"],"checkpoint":"c","step":80,"repeated_steps":10,"predicted_peak_bytes":15000000000}}"#
        ),
    ];
    if ended {
        lines.push(format!(r#"{{{head},"at":"2026-11-20T12:00:01.000Z","event":"end","number":2,"exit_status":0,"seconds":3500.0,"reserved_peak_bytes":15000000000,"steps":900,"resumed_at_step":80,"effective_batch":32,"signs":[],"out_of_memory":null}}"#));
    }
    lines.join("\n") + "\n"
}

/// Writes the fleet: `logs` logs, a fifth of them in a tar file, and one of everything else.
pub fn fleet(folder: &Path, logs: u32) {
    fs::create_dir_all(folder.join("logs")).unwrap();
    let archive = GzEncoder::new(File::create(folder.join("logs.tar.gz")).unwrap(), Compression::fast());
    let mut archive = tar::Builder::new(archive);
    for number in 0..logs {
        let text = log(1 + number % 20, 10 + number % 7, 100 + number);
        if number % 5 == 0 {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(1_795_000_000);
            archive.append_data(&mut header, format!("job-{number}/train.log"), text.as_bytes()).unwrap();
        } else {
            fs::write(folder.join(format!("logs/{number}.log")), text).unwrap();
        }
    }
    archive.into_inner().unwrap().finish().unwrap();
    fs::write(folder.join("leak.pickle"), leaking(8)).unwrap();
    fs::write(folder.join("fragmented.pickle"), pickled(&fragmented(0))).unwrap();
    fs::write(folder.join("report.json"), report().to_string()).unwrap();
    // With a line that a full disk cut short.
    fs::write(folder.join("journal.jsonl"), journal(true) + "{\"schema\":\"oomph.jou\n").unwrap();
    fs::write(folder.join("quiet.log"), "epoch 1\nepoch 2\ndone\n").unwrap();
    let cut = leaking(9);
    fs::write(folder.join("cut.pickle"), &cut[..cut.len() / 2]).unwrap();
    fs::write(folder.join("evil.pickle"), b"\x80\x04cposix\nsystem\n(X\x04\x00\x00\x00truetR.").unwrap();
    fs::write(folder.join("empty.log"), "").unwrap();
    fs::write(folder.join("program"), b"\x7fELF\x02\x01\x01\0\0\0\0\x01\x03\x3e\x07\x02\x09").unwrap();
    written_on_the_last_day(folder);
}

/// What has no time of its own has that of its file. Were that today's, the logs would leave the last two weeks of the
/// fleet as the calendar moves on.
fn written_on_the_last_day(folder: &Path) {
    for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        let file = File::options().write(true).open(file).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(LAST_DAY)).unwrap();
    }
}

/// Noon of the last day of which [`fleet`] has logs, 2026-11-20, in seconds.
const LAST_DAY: u64 = 1_795_176_000;

/// How many files of [`fleet`] cannot be read.
pub const BAD: u64 = 4;

/// The program.
pub fn oomph_fleet(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oomph-fleet"));
    command.args(words);
    command
}

/// Runs it, and it ends well.
pub fn run(words: &[&str]) -> Output {
    let out = oomph_fleet(words).output().unwrap();
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// The summary of a collect.
pub fn collect(sources: &[&str], into: &str, options: &[&str]) -> Value {
    let words = [&["-q", "collect"], sources, &["--into", into, "--format", "json"], options].concat();
    serde_json::from_slice(&run(&words).stdout).unwrap()
}

/// The rows of an answer, each a list of values in the order of the columns.
pub fn rows(sql: &str, dataset: &str) -> Vec<Vec<Value>> {
    let out = run(&["query", sql, dataset, "--format", "json"]).stdout;
    let answer: Value = serde_json::from_slice(&out).unwrap();
    let columns = answer["columns"].as_array().unwrap();
    let values = |row: &Value| columns.iter().map(|column| row[column.as_str().unwrap()].clone()).collect();
    answer["rows"].as_array().unwrap().iter().map(values).collect()
}

/// The one number of an answer.
pub fn number(sql: &str, dataset: &str) -> i64 {
    rows(sql, dataset)[0][0].as_i64().unwrap()
}

/// The contents of all tables, in an order of their own.
pub fn everything(dataset: &str) -> Vec<String> {
    let mut all = Vec::new();
    for table in oomph_fleet::schema::TABLES {
        let sql = format!("SELECT * FROM {}", table.name);
        let mut found: Vec<String> =
            rows(&sql, dataset).into_iter().map(|row| format!("{} {row:?}", table.name)).collect();
        found.sort();
        all.extend(found);
    }
    all
}

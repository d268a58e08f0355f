//! Tests `oomph sweep`: a cell is what a dry run of its command says, a killed sweep resumes where it was, an answer
//! holds until a file that the run read changes, and the tasks of a written job give the same table.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::TORCH_2_15;

/// Names an interpreter whose environment has PyTorch.
const PYTHON: &str = "OOMPH_ANSWERS";

/// Two cards and three widths, of which the largest does not fit.
const CELLS: usize = 6;

type Test = fn() -> Result<()>;

/// The tests.
pub fn trials() -> Vec<Trial> {
    let all: [(&str, Test); 3] = [
        ("sweeping::cells-equal-dry-runs", cells_equal_dry_runs),
        ("sweeping::a-killed-sweep-goes-on", a_killed_sweep_goes_on),
        ("sweeping::tasks-give-the-same-table", tasks_give_the_same_table),
    ];
    all.into_iter()
        .map(|(name, test)| tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}")))))
        .collect()
}

/// A folder with a program, a module of its own that it imports, and a sweep of it.
fn folder(widths: &str) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for name in ["mlp.py", "common.py"] {
        fs::copy(binary::programs().join(name), folder.path().join(name))?;
    }
    let (python, with) = match std::env::var(PYTHON) {
        Ok(python) => (python, String::new()),
        Err(_) => {
            let requirements: Vec<&str> = TORCH_2_15.requirements.lines().collect();
            ("python".to_owned(), format!("with: {}\n", serde_json::to_string(&requirements)?))
        }
    };
    let text = format!(
        "program: {python} mlp.py --width {{width}} --batch-size 64\nmatrix:\n  gpu: [t4, rtx-3060]\n  width: {widths}\n\
         vram: 3GiB\n{with}"
    );
    fs::write(folder.path().join("sweep.yaml"), text)?;
    Ok(folder)
}

fn oomph(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(binary::oomph());
    command.args(words).current_dir(folder).stdin(Stdio::null());
    for name in ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "OOMPH_RUN"] {
        command.env_remove(name);
    }
    command
}

fn said(output: &Output) -> String {
    format!(
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The answer of a sweep, whose cells all have one.
fn swept(folder: &Path, words: &[&str]) -> Result<Value> {
    let output = oomph(folder, &[&["sweep", "sweep.yaml", "--format", "json"], words].concat()).output()?;
    ensure!(output.status.code() == Some(0), "not all cells have an answer: {}", said(&output));
    serde_json::from_slice(&output.stdout).with_context(|| said(&output))
}

fn cells(report: &Value) -> Result<&Vec<Value>> {
    report["cells"].as_array().context("the answer has no cells")
}

/// How many lines each cell has in the file of results.
fn lines(folder: &Path) -> Result<BTreeMap<String, usize>> {
    let text = fs::read_to_string(folder.join("sweep.sweep/results.jsonl")).unwrap_or_default();
    let mut count = BTreeMap::new();
    // The last line is half-written where the process was killed as it wrote.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let line: Value = serde_json::from_str(line)?;
        *count.entry(line["cell"]["id"].as_str().context("a cell has a name")?.to_owned()).or_default() += 1;
    }
    Ok(count)
}

fn cells_equal_dry_runs() -> Result<()> {
    let folder = folder("[256, 1024, 6000]")?;
    let report = swept(folder.path(), &[])?;
    ensure!(report["schema"] == "oomph.sweep/1" && report["ran"] == CELLS && report["forked"] == true, "{report}");
    let verdicts: Vec<&Value> = cells(&report)?.iter().map(|cell| &cell["verdict"]).collect();
    ensure!(verdicts == ["fits", "fits", "oom", "fits", "fits", "oom"], "{verdicts:?}");
    for cell in cells(&report)? {
        let id = cell["id"].as_str().context("a cell has a name")?;
        let path = folder.path().join(format!("sweep.sweep/reports/{id}.json"));
        let kept: Value = serde_json::from_slice(&fs::read(&path)?)?;
        let words: Vec<&str> =
            kept["command"].as_array().context("no command")?.iter().filter_map(Value::as_str).collect();
        let gpu = cell["values"]["gpu"].as_str().context("a cell has a card")?;
        let mut options =
            vec!["dry-run", "--no-probe", "--no-owners", "--format", "json", "--gpu", gpu, "--vram", "3GiB"];
        if std::env::var(PYTHON).is_err() {
            options.extend(TORCH_2_15.requirements.lines().flat_map(|one| ["--with", one]));
        }
        options.push("--");
        let output = oomph(folder.path(), &[options.as_slice(), &words].concat()).output()?;
        let dry: Value = serde_json::from_slice(&output.stdout).with_context(|| said(&output))?;
        for place in
            ["/verdict", "/exit_status", "/steps", "/devices/0/peak", "/devices/0/capacity_bytes", "/devices/0/oom"]
        {
            let (one, other) = (kept.pointer(place), dry.pointer(place));
            ensure!(one.is_some() && one == other, "{place} of {words:?}: {one:?} in the sweep, {other:?} alone");
        }
        ensure!(cell["peak_bytes"] == dry["devices"][0]["peak"]["process_bytes"], "{cell}");
    }
    Ok(())
}

fn a_killed_sweep_goes_on() -> Result<()> {
    let folder = folder("[256, 512, 1024]")?;
    let mut child = oomph(folder.path(), &["sweep", "sweep.yaml", "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let begun = Instant::now();
    while lines(folder.path())?.len() < 2 {
        ensure!(begun.elapsed() < Duration::from_secs(600), "no cell was answered");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    let before = lines(folder.path())?;
    ensure!(before.len() < CELLS, "it was done before it was killed");
    let report = swept(folder.path(), &[])?;
    ensure!(
        report["ran"] == CELLS - before.len() && report["known"] == before.len(),
        "{} known: {report}",
        before.len()
    );
    let after = lines(folder.path())?;
    ensure!(after.len() == CELLS && after.values().all(|count| *count == 1), "{after:?}");
    ensure!(swept(folder.path(), &[])?["ran"] == 0, "a known cell was run again");
    // What the program imports is a part of it.
    let path = folder.path().join("common.py");
    fs::write(&path, fs::read_to_string(&path)? + "\n# changed\n")?;
    ensure!(swept(folder.path(), &[])?["ran"] == CELLS, "the answers of another program were taken for this one's");
    Ok(())
}

/// The script of a job array runs as it is written, with a shell in Slurm's place.
fn tasks_give_the_same_table() -> Result<()> {
    let folder = folder("[256, 1024]")?;
    let written = ["sweep", "sweep.yaml", "--write", "slurm", "jobs", "--per-task", "3"];
    let output = oomph(folder.path(), &written).output()?;
    ensure!(output.status.success(), "{}", said(&output));
    for task in ["0", "1"] {
        let mut shell = Command::new("sh");
        shell.arg("jobs/sweep.sbatch").current_dir(folder.path()).env("SLURM_ARRAY_TASK_ID", task);
        let output = shell.output()?;
        ensure!(output.status.success(), "task {task}: {}", said(&output));
    }
    let collected = swept(folder.path(), &["--collect"])?;
    ensure!(collected["ran"] == 0 && collected["known"] == 4, "{collected}");
    // The same by this machine's cores.
    let here = swept(folder.path(), &["--fresh"])?;
    for (one, other) in cells(&collected)?.iter().zip(cells(&here)?) {
        for field in ["id", "verdict", "peak_bytes", "high_bytes"] {
            ensure!(one[field] == other[field], "{field}: {one} and {other}");
        }
    }
    // A job that was written for another matrix runs nothing.
    let path = folder.path().join("sweep.yaml");
    fs::write(&path, fs::read_to_string(&path)?.replace("[256, 1024]", "[256, 1000]"))?;
    let mut shell = Command::new("sh");
    shell.arg("jobs/sweep.sbatch").current_dir(folder.path()).env("SLURM_ARRAY_TASK_ID", "0");
    let output = shell.output()?;
    ensure!(
        output.status.code() == Some(2) && said(&output).contains("the matrix is not the one"),
        "{}",
        said(&output)
    );
    Ok(())
}

//! Compares the report on the memory calls of a CUDA program with what the program counts itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{CUDA_13_2, Finished, Run};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let heat = |way: &'static str| {
        tried(format!("calls::heat-{way}"), move || heat(way).map_err(|error| format!("{error:#}").into()))
    };
    let relax = |way: &'static str| {
        tried(format!("calls::relax-{way}"), move || relax(way).map_err(|error| format!("{error:#}").into()))
    };
    let frames = tried("calls::frames", || frames().map_err(|error| format!("{error:#}").into()));
    vec![frames, heat("naive"), heat("lean"), relax("careless"), relax("careful")]
}

/// A figure in the report must be the one that the program prints under this name.
pub fn same(finished: &Finished, name: &str, reported: &Value) -> Result<()> {
    let own = finished.printed_number(name)?;
    finished.ensure(reported.as_u64() == Some(own), format!("{name}: {reported} is reported, {own} counted"))
}

/// What both kinds of program count of their copies.
fn same_transfers(finished: &Finished, transfers: &Value) -> Result<()> {
    same(finished, "to_card_bytes", &transfers["to_card"]["bytes"])?;
    same(finished, "to_host_bytes", &transfers["to_host"]["bytes"])?;
    same(finished, "resent_bytes", &transfers["to_card"]["resent_bytes"])?;
    same(finished, "doubled_bytes", &transfers["most_doubled_bytes"])?;
    let pageable = |way: &str| transfers[way]["pageable_bytes"].as_u64().unwrap_or(0);
    same(finished, "pageable_bytes", &Value::from(pageable("to_card") + pageable("to_host")))
}

fn remarks(report: &Value) -> Vec<&str> {
    report["activity"]["remarks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `file:line` of the line of a source that holds this text.
pub fn place(source: &Path, text: &str) -> Result<String> {
    let lines = std::fs::read_to_string(source)?;
    let line = lines.lines().position(|line| line.contains(text)).with_context(|| format!("no line has {text:?}"))?;
    let name = source.file_name().context("a source has a name")?.to_string_lossy();
    Ok(format!("{name}:{}", line + 1))
}

/// A solver in CUDA C++, built with nvcc: every figure is the program's own, and only the wasteful one gets a remark.
fn heat(way: &str) -> Result<()> {
    let run = Run::dry_run()?.args(["--gpu", "rtx-4090", "--format", "json"]).with(CUDA_13_2);
    let program = run.folder().join("heat");
    let program = program.to_str().context("the temporary folder has no plain name")?;
    let mut run = run.program(&["acceptance/programs/cuda/build.py", "heat.cu", program, way, "2048", "100"]);
    let finished = run.finish()?;
    let report = finished.report()?;
    // It is compiled for compute capability 8.0, with text for what is newer.
    let holds = |gpu: &str| report["fits_on"].as_array().into_iter().flatten().any(|known| known == gpu);
    finished.ensure(holds("rtx-3060") && holds("rtx-5090") && !holds("rtx-2060"), "the wrong cards can run it")?;
    let allocations = &report["activity"]["allocations"];
    same(&finished, "allocations", &allocations["calls"])?;
    same(&finished, "frees", &allocations["frees"])?;
    same(&finished, "most_held_bytes", &allocations["most_held_bytes"])?;
    same(&finished, "never_freed_bytes", &allocations["never_freed_bytes"])?;
    same_transfers(&finished, &report["activity"]["transfers"])?;

    let remarks = remarks(&report);
    if way == "lean" {
        ensure!(remarks.is_empty(), "there is nothing to remark on: {remarks:#?}");
        return Ok(());
    }
    // The two allocations of the loop are named by their lines, with what a pool would save of them.
    ensure!(allocations["pool_saves_calls"] == 2 * 100 - 2, "{allocations:#}");
    let loops = place(&binary::programs().join("cuda/heat.cu"), "cudaMalloc(&change, bytes)")?;
    for word in [loops, "never freed".into(), "twice".into(), "sent before".into(), "page-locked".into()] {
        ensure!(remarks.iter().any(|remark| remark.contains(&word)), "nothing says {word:?}: {remarks:#?}");
    }
    Ok(())
}

/// A program that keeps a buffer for each frame dies: the line, how much each frame adds, and this before all else.
fn frames() -> Result<()> {
    // What it builds is run again.
    let options = ["--gpu", "rtx-3060", "--no-probe", "--allow-writes", "--format", "json"];
    let run = Run::dry_run()?.args(options).with(CUDA_13_2);
    let program = run.folder().join("frames");
    let program = program.to_str().context("the temporary folder has no plain name")?;
    let mut run = run.program(&["acceptance/programs/cuda/build.py", "frames.cu", program]);
    let finished = run.finish()?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "oom", "it fits")?;
    let line = place(&binary::programs().join("cuda/frames.cu"), "cudaMalloc(&buffer, bytes)")?;
    let first = remarks(&report).first().map(|remark| (*remark).to_owned()).unwrap_or_default();
    let wanted = format!("memory grows by 64.00 MiB with each allocation at {line}");
    finished.ensure(first.starts_with(&wanted), format!("{first:?} comes first"))?;
    frames_are_freed(program)
}

/// What its author can do about it: a buffer at a time, of which the peak is what one frame needs.
fn frames_are_freed(program: &str) -> Result<()> {
    const ONE_FRAME: u64 = (256 + 128 + 64) << 20;
    let mut run =
        Run::command("fix")?.args(["--gpu", "rtx-3060", "--format", "json", "--max-time", "60s", "--", program]);
    let finished = run.finish()?;
    let report = finished.report()?;
    let fixes = report["fixes"].as_array().context("no fixes in the answer")?;
    let freed = fixes.iter().find(|fix| fix["remedies"][0] == "free-before-next").context("no buffer at a time")?;
    finished.ensure(freed["verified"] == true && freed["verdict"] == "fits", "it was not run")?;
    let beyond = freed["peak_bytes"].as_u64().unwrap_or(0).saturating_sub(ONE_FRAME);
    finished.ensure(
        (1..1 << 30).contains(&beyond),
        format!("its peak is not that of one frame and the context: {freed:#}"),
    )?;
    finished.ensure(freed["apply"].to_string().contains("frames.cu:"), format!("no line is named: {freed:#}"))
}

/// A Rust program that loads the driver at run time and takes its memory from the driver's pool: likewise, and the lines
/// are its own, not those of the crate that it calls CUDA through.
fn relax(way: &str) -> Result<()> {
    const STEPS: u64 = 120;
    // 40 MiB a plate: more than a pool takes of the card at once, so that each plate is given back for itself.
    const CELLS: &str = "10485760";
    let crate_folder = binary::programs().join("rust/relax");
    let program = built(&crate_folder)?;
    let run = Run::dry_run()?.args(["--gpu", "rtx-4090", "--format", "json", "--"]);
    let mut run = run.args([program.as_os_str(), way.as_ref(), CELLS.as_ref(), STEPS.to_string().as_ref()]);
    let finished = run.finish()?;
    let report = finished.report()?;
    let pooled = &report["activity"]["pooled"];
    same(&finished, "pooled_allocations", &pooled["calls"])?;
    same(&finished, "pooled_frees", &pooled["frees"])?;
    same(&finished, "pooled_most_held_bytes", &pooled["most_held_bytes"])?;
    same(&finished, "pooled_never_freed_bytes", &pooled["never_freed_bytes"])?;
    same(&finished, "pools_regrew", &pooled["regrew"])?;
    same_transfers(&finished, &report["activity"]["transfers"])?;

    let remarks = remarks(&report);
    if way == "careful" {
        return finished.ensure(remarks.is_empty(), format!("there is nothing to remark on: {remarks:#?}"));
    }
    let source = crate_folder.join("src/main.rs");
    let (allocating, sending) = (place(&source, "stream.alloc(self.cells)")?, place(&source, "memcpy_htod(data, to)")?);
    let words =
        [allocating.as_str(), &sending, "never freed", "twice", "sent before", "page-locked", "ReleaseThreshold"];
    for word in words {
        finished.ensure(
            remarks.iter().any(|remark| remark.contains(word)),
            format!("nothing says {word:?}: {remarks:#?}"),
        )?;
    }
    Ok(())
}

/// The executable of a crate of `acceptance/programs/rust`. Its target folder stays, so that it is built once.
fn built(crate_folder: &Path) -> Result<PathBuf> {
    let name = crate_folder.file_name().context("a crate has a name")?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(crate_folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_TARGET_DIR")
        .status()?;
    ensure!(status.success(), "{} was not built: {status}", crate_folder.display());
    Ok(target.join("release").join(name))
}

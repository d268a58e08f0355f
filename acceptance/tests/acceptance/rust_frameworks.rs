//! Tests candle and burn, frameworks in Rust: the report against what their programs count.
//!
//! They are built with NVIDIA's compiler and libraries from Python packages; candle's kernels alone take a quarter of an
//! hour. So these are tests of `frameworks.rs`, which run where `OOMPH_FRAMEWORKS` names them: `candle,burn`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::binary;
use crate::calls::{place, same};
use crate::frameworks::{finish, number};
use crate::run::{CUDA_13_2_DEVEL, Finished, Run};

const MIB: u64 = 1 << 20;

/// The report has everything that a training step sends, reads back and frees, by the program's own lines.
pub fn candle_fits() -> Result<()> {
    let (program, toolkit) = built("candle_mlp")?;
    let (finished, report) = run(&program, &toolkit, &["--gpu", "rtx-4090"], &["read", "1024", "256", "20"])?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    let pooled = &report["activity"]["pooled"];
    ensure!(pooled["calls"] == pooled["frees"] && pooled["never_freed_bytes"] == 0, "{pooled:#}");
    holds_its_state(&finished, &report)?;

    let transfers = &report["activity"]["transfers"];
    same(&finished, "to_host_bytes", &transfers["to_host"]["bytes"])?;
    same(&finished, "to_host_calls", &transfers["to_host"]["calls"])?;
    let source = source("candle_mlp");
    // candle itself sends the shapes of tensors whose elements do not lie in order, at other lines.
    let own = [place(&source, "from_slice(&inputs")?, place(&source, "from_slice(&targets")?];
    let sites = transfers["sites"].as_array().into_iter().flatten();
    let sent = sites.filter(|site| own.iter().any(|place| site["place"] == **place && site["way"] == "to_card"));
    same(&finished, "sent_bytes", &sent.map(|site| site["bytes"].as_u64().unwrap_or(0)).sum::<u64>().into())?;
    same(&finished, "steps", &(number(&report, "/activity/transfers/to_host/calls")?.into()))
}

/// A loss that is kept keeps what it was computed from: each step adds that to the byte.
pub fn candle_graphs_are_kept() -> Result<()> {
    const STEPS: [u64; 2] = [4, 10];
    let (program, toolkit) = built("candle_mlp")?;
    let mut held = Vec::new();
    let mut graph = 0;
    for steps in STEPS {
        let arguments = ["kept", "1024", "256", &steps.to_string()];
        let (finished, report) = run(&program, &toolkit, &["--gpu", "rtx-4090"], &arguments)?;
        held.push(number(&report, "/activity/pooled/most_held_bytes")?);
        graph = finished.printed_number("graph_bytes")?;
        holds_its_state(&finished, &report)?;
    }
    let grown = held[1] - held[0];
    ensure!(grown == (STEPS[1] - STEPS[0]) * graph, "{grown} more bytes are held after {STEPS:?} steps of {graph}");
    Ok(())
}

/// The line that asked for too much and how much it was; and the need is true.
pub fn candle_oom() -> Result<()> {
    const WIDTH: u64 = 8192;
    const BATCH: u64 = 65536;
    let (program, toolkit) = built("candle_mlp")?;
    let arguments = ["read", &WIDTH.to_string(), &BATCH.to_string(), "2"];
    let (finished, report) = run(&program, &toolkit, &["--gpu", "rtx-4090", "--vram", "2560MiB"], &arguments)?;
    finished.ensure(report["verdict"] == "oom", "it is not reported that it does not fit")?;
    let oom = &report["devices"][0]["oom"];
    ensure!(oom["requested_bytes"] == WIDTH * BATCH * 4, "{oom:#}");
    ensure!(oom["free_bytes"].as_u64().is_some_and(|free| free < WIDTH * BATCH * 4), "{oom:#}");
    let site = &oom["site"];
    let found = format!("main.rs:{}", site["line"]);
    ensure!(found == place(&source("candle_mlp"), "values = layer.forward")?, "{site:#}");
    ensure!(site["text"].as_str().is_some_and(|text| text.contains("layer.forward")), "{site:#}");

    let need = number(&report, "/devices/0/oom/would_need_bytes")?;
    let vram = format!("{}MiB", need.div_ceil(MIB));
    let (finished, again) = run(&program, &toolkit, &["--gpu", "rtx-4090", "--vram", &vram], &arguments)?;
    finished.ensure(again["verdict"] == "fits", format!("it needs {need} bytes and does not fit in {vram}"))
}

/// burn allocates, copies and launches from a thread of its own, so no line of the program's is known; the totals are.
pub fn burn_fits() -> Result<()> {
    let (program, toolkit) = built("burn_mlp")?;
    let (finished, report) = run(&program, &toolkit, &["--gpu", "rtx-4090"], &["1024", "256", "5"])?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    holds_its_state(&finished, &report)?;
    // CubeCL's own figure was 1440 bytes more than what it asked the driver for.
    let (reserved, held) =
        (finished.printed_number("reserved_bytes")?, number(&report, "/activity/pooled/most_held_bytes")?);
    finished.ensure(reserved.abs_diff(held) < 4096, format!("{held} bytes are reported, {reserved} counted"))?;
    let transfers = &report["activity"]["transfers"];
    // CubeCL sends the shapes of tensors as well.
    let sent = finished.printed_number("sent_bytes")?;
    ensure!(transfers["to_card"]["bytes"].as_u64() >= Some(sent), "{sent} bytes were sent: {transfers:#}");
    same(&finished, "read_bytes", &transfers["to_host"]["bytes"])
}

/// CubeCL's thread dies of a full card and burn's program ends with 0, so that the report warns of what was refused.
pub fn burn_full_card() -> Result<()> {
    let (program, toolkit) = built("burn_mlp")?;
    let options = ["--gpu", "rtx-4090", "--vram", "1GiB"];
    let (finished, report) = run(&program, &toolkit, &options, &["4096", "32768", "2"])?;
    let warned = report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let said = warned.filter(|warning| warning.contains("the card refused") && warning.contains("it does not fit"));
    finished.ensure(report["verdict"] == "oom" || said.count() == 1, format!("nothing is said: {report:#}"))
}

/// Parameters and what the optimizer keeps of them were on the card at once, and the card was charged for them.
fn holds_its_state(finished: &Finished, report: &Value) -> Result<()> {
    let state = finished.printed_number("parameter_bytes")? + finished.printed_number("state_bytes")?;
    let held = number(report, "/activity/pooled/most_held_bytes")?;
    let charged = number(report, "/devices/0/peak/process_bytes")? - number(report, "/devices/0/peak/context_bytes")?;
    finished
        .ensure((state..=charged).contains(&held), format!("{state} bytes of state, {held} held, {charged} charged"))
}

/// A program with the libraries that it was built against in reach, as its users have them: burn compiles its kernels
/// with NVRTC, which needs no card, and with the toolkit's headers.
fn run(program: &Path, toolkit: &Path, options: &[&str], arguments: &[&str]) -> Result<(Finished, Value)> {
    let (program, toolkit) = (program.as_os_str(), toolkit.to_str().context("the toolkit's path is text")?);
    finish(
        Run::dry_run()?
            .args(options)
            .args(["--format", "json", "--"])
            .args([program])
            .args(arguments)
            .env("CUDA_PATH", toolkit)
            .env("LD_LIBRARY_PATH", &format!("{toolkit}/lib")),
    )
}

fn source(name: &str) -> PathBuf {
    binary::programs().join("rust").join(name).join("src/main.rs")
}

/// A program of `acceptance/programs/rust`, and the toolkit that it was built with. Both stay for the next time.
fn built(name: &str) -> Result<(PathBuf, PathBuf)> {
    // Building is not for two at once: cargo would wait, but the toolkit's folder is made again each time.
    static BUILDING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _building = BUILDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let toolkit = temporary.join("cuda-13.2");
    let folder = toolkit.to_str().context("the target folder has a plain name")?;
    let made = Run::dry_run()?
        .args(["--gpu", "rtx-4090", "--format", "json", "--allow-writes"])
        .with(CUDA_13_2_DEVEL)
        .program(&["acceptance/programs/rust/toolkit.py", folder])
        .finish()?;
    made.ensure(made.status.success(), "the toolkit's folder was not made")?;

    let mut path = toolkit.join("bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let target = temporary.join("rust");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(binary::programs().join("rust").join(name).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_TARGET_DIR")
        .env("CUDA_HOME", &toolkit)
        .env("PATH", path)
        // Without a card there is no nvidia-smi to ask. Cards from Ampere on run it, compiling what is in PTX.
        .env("CUDA_COMPUTE_CAP", "86")
        .status()?;
    ensure!(status.success(), "{name} was not built: {status}");
    Ok((target.join("release").join(name), toolkit))
}

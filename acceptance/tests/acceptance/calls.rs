//! What the report tells the author of a CUDA program about its memory calls, against what the program counts itself.

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::run::{CUDA_13_2, Run};

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let heat = |way: &'static str| {
        Trial::test(format!("calls::heat-{way}"), move || heat(way).map_err(|error| format!("{error:#}").into()))
    };
    vec![heat("naive"), heat("lean")]
}

/// A solver in CUDA C++, built with nvcc: every figure is the program's own, and only the wasteful one is told so.
fn heat(way: &str) -> Result<()> {
    let run = Run::dry_run()?.args(["--gpu", "rtx-4090", "--format", "json"]).with(CUDA_13_2);
    let program = run.folder().join("heat");
    let program = program.to_str().context("the temporary folder has no plain name")?;
    let mut run = run.program(&["acceptance/programs/cuda/build.py", "heat.cu", program, way, "2048", "100"]);
    let finished = run.finish()?;
    let report = finished.report()?;
    let printed = String::from_utf8_lossy(&finished.stderr).into_owned();
    let own = |key: &str| -> Result<u64> {
        let line = printed.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.with_context(|| format!("no line {key}= in:\n{printed}"))?.parse().context("not a number")
    };
    let (allocations, transfers) = (&report["activity"]["allocations"], &report["activity"]["transfers"]);
    let told = |value: &Value| value.as_u64().with_context(|| format!("{report:#}"));
    for (key, figure) in [
        ("allocations", &allocations["calls"]),
        ("frees", &allocations["frees"]),
        ("most_held_bytes", &allocations["most_held_bytes"]),
        ("never_freed_bytes", &allocations["never_freed_bytes"]),
        ("to_card_bytes", &transfers["to_card"]["bytes"]),
        ("to_host_bytes", &transfers["to_host"]["bytes"]),
        ("resent_bytes", &transfers["to_card"]["resent_bytes"]),
        ("doubled_bytes", &transfers["most_doubled_bytes"]),
    ] {
        ensure!(told(figure)? == own(key)?, "{key}: {figure} is told, {} counted", own(key)?);
    }
    let pageable = told(&transfers["to_card"]["pageable_bytes"])? + told(&transfers["to_host"]["pageable_bytes"])?;
    ensure!(pageable == own("pageable_bytes")?, "{pageable} bytes are told to be pageable");

    let remarks: Vec<&str> =
        report["activity"]["remarks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if way == "lean" {
        ensure!(remarks.is_empty(), "there is nothing to remark on: {remarks:#?}");
        return Ok(());
    }
    // The two allocations of the loop are named by their lines, with what a pool would save of them.
    ensure!(allocations["pool_saves_calls"] == 2 * 100 - 2, "{allocations:#}");
    let lines = std::fs::read_to_string(crate::binary::programs().join("cuda/heat.cu"))?;
    let line = lines.lines().position(|line| line.contains("cudaMalloc(&change, bytes)")).context("no such line")? + 1;
    for word in
        [format!("heat.cu:{line}"), "never freed".into(), "twice".into(), "sent before".into(), "page-locked".into()]
    {
        ensure!(remarks.iter().any(|remark| remark.contains(&word)), "nothing says {word:?}: {remarks:#?}");
    }
    Ok(())
}

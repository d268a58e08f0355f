//! `oomph doctor`: reports what is installed, what works here, and what to do about the rest.
//!
//! What can be tried is tried: what keeps a program's writes away, the network that is cut off and the virtual GPU itself
//! are looked at by dry runs of small programs, so that the answer is what a user's own program will meet.

mod python;
mod runs;

use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_gpu::{nvml, size};
use oomph_launch::{CacheDir, host_memory_bytes};
use oomph_report::{Check, CheckState, DoctorReport, DoctorSchema, clean_json, render_doctor};

use crate::cli::{DoctorArgs, Format};
use crate::status;
use crate::{embedded, output};

/// What an environment with PyTorch and its CUDA wheels takes on disk, in bytes.
const ENVIRONMENT_BYTES: u64 = 8 << 30;

/// With less memory than this in bytes, importing PyTorch and building a model of some size is slow or fails.
const LEAST_MEMORY: u64 = 4 << 30;

/// Checks what is here and says so.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(args: &DoctorArgs, quiet: bool) -> Result<ExitCode> {
    let mut checks = vec![platform()];
    let python = python::checks(args.python.as_deref(), &mut checks);
    if embedded::runtime().is_some() {
        runs::protection(&mut checks);
        if let (Some(python), false) = (&python, args.no_run) {
            output::tell("oomph: running a small program on the virtual GPU", quiet);
            checks.push(runs::small_program(python));
        }
    }
    checks.extend([gpus(), cache(), disk(), memory()]);
    let works = checks.iter().all(|check| check.state != CheckState::Broken);
    let report = DoctorReport { schema: DoctorSchema, version: env!("CARGO_PKG_VERSION").into(), works, checks };
    output::data(&match args.format {
        Format::Text => render_doctor(&report, output::style()),
        Format::Json => {
            let document = serde_json::to_string_pretty(&report).context("cannot write the answer as JSON")?;
            clean_json(&document).into_owned() + "\n"
        }
    })?;
    Ok(ExitCode::from(if works { status::DONE } else { status::DOES_NOT_FIT }))
}

/// A check that found all to be well.
fn well(id: &str, found: impl Into<String>) -> Check {
    Check { id: id.into(), state: CheckState::Works, found: found.into(), why: None, todo: None }
}

/// A check that found less.
fn less(id: &str, state: CheckState, found: impl Into<String>, why: impl Into<String>, todo: &str) -> Check {
    let todo = (!todo.is_empty()).then(|| todo.to_owned());
    Check { id: id.into(), state, found: found.into(), why: Some(why.into()), todo }
}

fn platform() -> Check {
    let found = format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH);
    if embedded::runtime().is_some() {
        return well("platform", format!("{found}; this build carries the virtual GPU"));
    }
    less(
        "platform",
        CheckState::Broken,
        found,
        "programs can be run on the virtual GPU on Linux only; plan, explain and gpus work here",
        "use WSL2 on Windows, or a Linux container elsewhere",
    )
}

fn gpus() -> Check {
    match nvml::installed() {
        Ok(found) if found.is_empty() => Check {
            id: "gpus".into(),
            state: CheckState::Absent,
            found: "no NVIDIA card or no driver; none is needed".into(),
            why: None,
            todo: None,
        },
        Ok(found) => {
            let cards: Vec<String> = found
                .iter()
                .map(|card| match &card.memory {
                    Ok(memory) => format!("{} ({})", card.name, size::format(memory.total_bytes)),
                    Err(_) => card.name.clone(),
                })
                .collect();
            well("gpus", format!("{}; programs of dry runs do not use them", cards.join(", ")))
        }
        Err(error) => {
            let todo = "dry-run needs --gpu or --vram until the driver works";
            less("gpus", CheckState::Limited, "a driver that does not answer", error.to_string(), todo)
        }
    }
}

fn cache() -> Check {
    let unpacked = CacheDir::locate().and_then(|cache| {
        let unpacked = embedded::runtime().map(|files| files.unpack(&cache)).transpose();
        unpacked.map(|_| cache)
    });
    match unpacked {
        Ok(cache) => well("cache", format!("{} can be written and loaded from", cache.path().display())),
        Err(error) => {
            let todo = "set OOMPH_CACHE_DIR to a folder that you can write and that is not mounted noexec";
            less("cache", CheckState::Broken, "the cache cannot be used", error.to_string(), todo)
        }
    }
}

fn disk() -> Check {
    let Some(free) = CacheDir::locate().ok().and_then(|cache| cache.free_bytes()) else {
        return Check {
            id: "disk".into(),
            state: CheckState::Absent,
            found: "the free space is not known".into(),
            why: None,
            todo: None,
        };
    };
    let found = format!("{} free where the cache is", size::format(free));
    if free >= ENVIRONMENT_BYTES {
        return well("disk", found);
    }
    let why = format!("an environment with PyTorch takes up to {}", size::format(ENVIRONMENT_BYTES));
    let todo = "`oomph cache clean` makes room; OOMPH_CACHE_DIR names another disk";
    less("disk", CheckState::Limited, found, why, todo)
}

fn memory() -> Check {
    match host_memory_bytes() {
        Some(bytes) if bytes < LEAST_MEMORY => {
            let why =
                "a model that a program builds in the host's memory before it moves it to the card is really there";
            let found = format!("{} of memory", size::format(bytes));
            less("memory", CheckState::Limited, found, why, "run large models on a machine with more memory")
        }
        Some(bytes) => well("memory", format!("{} of memory", size::format(bytes))),
        None => Check {
            id: "memory".into(),
            state: CheckState::Absent,
            found: "the memory is not known".into(),
            why: None,
            todo: None,
        },
    }
}

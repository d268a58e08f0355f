//! `oomph dry-run`: the program on the virtual GPU, and the answer.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_launch::{CacheDir, InstallerOutput, Output, Request, handle_signals, newest_cudnn, prepare};
use oomph_report::{CardThatHolds, DryRunReport, NextStep, Site, Verdict, render_dry_run};

use crate::assemble::assemble;
use crate::cli::{DryRunArgs, Format};
use crate::failure::{hinted, status};
use crate::plan::{Card, DryRunPlan};
use crate::stage::{Ended, Stage};
use crate::{embedded, export, output, whose};

/// A source file longer than this is not searched for a line.
const LONGEST_SOURCE: u64 = 8 << 20;

/// Runs the program and answers.
///
/// # Errors
/// When something that is needed is missing: a card of that name, the program, a torch that can use the virtual GPU.
pub fn run(args: DryRunArgs, quiet: bool) -> Result<ExitCode> {
    let plan = DryRunPlan::new(args)?;
    let Some(files) = embedded::runtime() else {
        return Err(hinted(
            "programs can be run on the virtual GPU on Linux only",
            "use WSL2 on Windows, or a Linux container elsewhere",
        ));
    };
    let tell = |line: &str| {
        if !quiet {
            output::say(line);
        }
    };
    // A report that cannot be written is better found out before the run than after it.
    for path in [&plan.report, &plan.snapshot].into_iter().flatten() {
        writable(path)?;
    }
    if let Some(path) = &plan.trace {
        export::known(path)?;
    }
    handle_signals()?;
    let directory = std::env::current_dir().context("cannot tell the current folder")?;
    let cache = CacheDir::locate()?;
    let prepared = prepare(&Request {
        command: &plan.command,
        with: &plan.with,
        directory: &directory,
        cache: &cache,
        installer_output: if quiet { InstallerOutput::Quiet } else { InstallerOutput::of_stderr() },
        notify: &tell,
    })?;
    if let Some(problem) = &prepared.problem {
        return Err(anyhow::anyhow!("{problem}"));
    }
    let runtime = files.unpack(&cache)?;
    let stage = Stage { plan: &plan, prepared: &prepared, runtime: &runtime, cudnn: newest_cudnn(&cache) };

    let output = match plan.format {
        Format::Text => Output::Inherit,
        Format::Json => Output::StdoutToStderr,
    };
    let first = match stage.observe(&plan.cards, output, plan.snapshot.as_deref())? {
        Ended::Observed(observation) => observation,
        Ended::Interrupted(signal) => return Ok(interrupted(signal)),
    };
    let mut report = assemble(&plan.cards, &first, None);
    let limited = plan.cards.iter().any(|card| !card.unbounded);
    if report.verdict == Verdict::Oom && plan.probe && limited {
        tell("oomph: it does not fit; running it once more on cards without a limit, to learn what it needs");
        let cards: Vec<Card> = plan.cards.iter().map(Card::without_limit).collect();
        match stage.observe(&cards, Output::Discard, None)? {
            Ended::Observed(probe) => report = assemble(&plan.cards, &first, Some(&probe)),
            Ended::Interrupted(signal) => return Ok(interrupted(signal)),
        }
    }
    for device in &mut report.devices {
        device.whose = whose::owners(device, &first);
    }
    if let Some(path) = &plan.trace {
        whose::export(&first.memory, path)?;
    }
    report.command = plan.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    report.next = next_steps(&plan, &report);
    for device in &mut report.devices {
        for site in device.oom.iter_mut().chain(&mut device.caught_ooms).filter_map(|oom| oom.site.as_mut()) {
            site.text = source_line(&directory, site);
        }
    }
    answer(&plan, &report)
}

fn interrupted(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX))
}

/// Writes the answer, and says it in the exit status.
fn answer(plan: &DryRunPlan, report: &DryRunReport) -> Result<ExitCode> {
    let document = || -> Result<String> {
        let text = serde_json::to_string_pretty(report).context("cannot write the answer as JSON")?;
        Ok(text + "\n")
    };
    if let Some(path) = &plan.report {
        fs::write(path, document()?).with_context(|| format!("cannot write the report to {}", path.display()))?;
    }
    match plan.format {
        Format::Json => output::data(&document()?)?,
        // The empty line sets the answer off from the program's output.
        Format::Text => output::data(&format!("\n{}", render_dry_run(report, output::style())))?,
    }
    Ok(ExitCode::from(match report.verdict {
        Verdict::Fits | Verdict::NoGpuUse => status::DONE,
        Verdict::Oom => status::DOES_NOT_FIT,
        Verdict::Failed => status::PROGRAM_FAILED,
    }))
}

/// Finds out whether a file can be written, without changing one that is there.
fn writable(path: &Path) -> Result<()> {
    let existed = path.exists();
    fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if !existed {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// What one would run next. Only what the figures show can help.
fn next_steps(plan: &DryRunPlan, report: &DryRunReport) -> Vec<NextStep> {
    let step = |why: &str, command: String| NextStep { why: why.into(), command };
    let mut next = Vec::new();
    if report.verdict == Verdict::Oom {
        let fragmented = report.oom_device().is_some_and(|(device, oom)| {
            let cached = oom.reserved_bytes.unwrap_or(0).saturating_sub(oom.allocated_bytes.unwrap_or(0));
            let free = oom.free_bytes.unwrap_or(0);
            // Joining the pieces gives back no more than is cached, so a need beyond that is not met by it.
            let in_reach = |capacity| oom.would_need_bytes.is_none_or(|need| need.saturating_sub(cached) <= capacity);
            device.capacity_bytes.is_some_and(in_reach) && cached.saturating_add(free) >= oom.requested_bytes
        });
        let set = |name: &str| std::env::var(name).is_ok_and(|value| value.contains("expandable_segments"));
        if fragmented && !set("PYTORCH_CUDA_ALLOC_CONF") && !set("PYTORCH_ALLOC_CONF") {
            next.push(step(
                "the memory was there, but in pieces; see whether this helps",
                format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {}", plan.command_line(&plan.card_options)),
            ));
        }
        // A slice of a card or a board that shares the host's memory is rarely what one would try next.
        let ordinary = |card: &&CardThatHolds| !matches!(card.kind, oomph_gpu::Kind::Mig | oomph_gpu::Kind::Jetson);
        match report.smallest.iter().find(ordinary).or(report.smallest.first()) {
            Some(card) => {
                next.push(step("see it run on a card that holds it", plan.command_line(&plan.as_many_of(&card.gpu))))
            }
            None if !plan.probe => {
                next.push(step("learn which cards hold it", plan.command_line(&[])));
            }
            None => {}
        }
    }
    next
}

/// The text of a line of the program.
fn source_line(directory: &Path, site: &Site) -> Option<String> {
    let path = directory.join(&site.file);
    let file = fs::File::open(&path).ok()?;
    // A pipe or a device of that name must not be read.
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_SOURCE).read_to_end(&mut bytes).ok()?;
    let index = usize::try_from(site.line.checked_sub(1)?).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').nth(index)?;
    let line = String::from_utf8_lossy(line).trim().to_owned();
    (!line.is_empty() && line.len() < 4096).then_some(line)
}

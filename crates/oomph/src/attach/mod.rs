//! `oomph attach`: inspects the GPU memory of a running program from inside it.
//!
//! `oomph-attach` gets a script run in the process; [`visit`] is the conversation with it, and what it left is explained
//! by the engine of `oomph explain`. All processes are visited at once, each from a thread of its own, so that the ranks
//! of a job are seen in the same step.

mod answer;
mod files;
mod visit;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_report::{AttachReport, AttachSchema, AttachedProcess, clean_json, render_attach};

use crate::cli::{AttachArgs, Format};
use crate::status;
use crate::{output, recordings};

use visit::{Action, Visit};

/// How long a program may take to get to a script.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a recording may take.
const RECORDING: Duration = Duration::from_secs(300);

/// Attaches as the options say.
///
/// # Errors
/// When a file cannot be written, or the answer cannot be written.
pub fn run(args: &AttachArgs, quiet: bool) -> Result<ExitCode> {
    let timeout = args.timeout.unwrap_or(if args.record.is_some() { RECORDING } else { TIMEOUT });
    if let Some(file) = &args.snapshot {
        output::writable(file)?;
    }
    let dump = args.dump_at_oom.as_deref().map(std::path::absolute).transpose();
    let dump = dump.context("cannot make --dump-at-oom an absolute path")?;
    let pids = processes(args);
    let words: Vec<String> = pids.iter().map(|pid| visit::word(*pid)).collect();
    let each = |file: Option<&std::path::Path>| -> Vec<Option<std::path::PathBuf>> {
        match file {
            Some(file) => recordings::targets(file, words.iter().cloned()).map(Some).collect(),
            None => vec![None; pids.len()],
        }
    };
    let (snapshots, dumps) = (each(args.snapshot.as_deref()), each(dump.as_deref()));
    let visits: Vec<Visit> = pids
        .iter()
        .zip(snapshots.into_iter().zip(dumps))
        .map(|(pid, (snapshot, dump))| Visit {
            pid: *pid,
            action: match (args.check, args.stop, args.record, dump) {
                (true, ..) => Action::Check,
                (_, true, ..) => Action::Stop,
                (_, _, Some(steps), _) => Action::Record(steps),
                (_, _, _, Some(dump)) => Action::Watch(dump),
                _ => Action::Look,
            },
            snapshot,
            entries: args.entries,
            timeout,
        })
        .collect();
    if let Some(steps) = args.record {
        let plural = if pids.len() == 1 { "process" } else { "processes" };
        let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        output::tell(&format!("oomph: recording {steps} steps of {plural} {list}"), quiet);
    }
    let mut is_late = false;
    let processes: Vec<AttachedProcess> = std::thread::scope(|scope| {
        let threads: Vec<_> = visits.iter().map(|visit| scope.spawn(|| visit.made())).collect();
        let ended = threads.into_iter().zip(&pids).map(|(thread, pid)| {
            let broken = || (AttachedProcess { pid: *pid, failed: true, ..AttachedProcess::default() }, false);
            let (process, late) = thread.join().unwrap_or_else(|_| broken());
            is_late |= late;
            process
        });
        ended.collect()
    });
    let has_failed = processes.iter().any(|process| process.failed);
    let action = visits.first().map_or("look", |visit| visit.action.name());
    let report = AttachReport { schema: AttachSchema, action, processes };
    // One process that could not be attached to is an error of one line, as of any command.
    if let ([process], Format::Text, true, false) = (report.processes.as_slice(), args.format, has_failed, args.check) {
        output::say(&format!("error: {}", process.reason.as_deref().unwrap_or("the process could not be attached to")));
        if let Some(hint) = &process.hint {
            output::say(&format!("hint: {hint}"));
        }
    } else {
        match args.format {
            Format::Json => {
                let text = serde_json::to_string_pretty(&report).context("cannot write the answer as JSON")?;
                output::data(&(clean_json(&text).into_owned() + "\n"))?;
            }
            Format::Text => output::data(&render_attach(&report, output::style()))?,
        }
    }
    Ok(ExitCode::from(match (is_late, has_failed) {
        (true, _) => status::OUT_OF_TIME,
        (_, true) => status::USAGE,
        _ => status::DONE,
    }))
}

/// The processes that are meant.
fn processes(args: &AttachArgs) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    for pid in &args.pids {
        let job = if args.job { oomph_attach::siblings(*pid) } else { vec![*pid] };
        for pid in job {
            if !all.contains(&pid) {
                all.push(pid);
            }
        }
    }
    if args.job {
        all.sort_by_key(|pid| (visit::rank(*pid), *pid));
    }
    all
}

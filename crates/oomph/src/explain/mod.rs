//! `oomph explain`: finds out why memory ran out, from what a crash left behind.

mod inputs;

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_explain::log::{self, Failure, Report};
use oomph_explain::snapshot::{self, Card, DeviceExplanation, Explanation, Names, Options, Outcome};
use oomph_gpu::{Catalogue, Gpu, Kind};
use oomph_report::{ExplainKind, ExplainReport, ExplainSchema, render_explain};
use oomph_trace::{ReadOptions, Trace};

use crate::cli::{ExplainArgs, ReadingArgs};
use crate::failure::hinted;
use crate::html::{self, Shown, Writing};
use crate::output::Form;
use crate::recordings::names_path;
use crate::status;
use crate::{export, output};

pub use inputs::{Input, open, recording};

/// The sizes of cards that the what-if table tries, in GB as they are sold, with a card that many people have.
const LADDER: [&str; 9] =
    ["rtx-4060", "rtx-3060", "rtx-4080", "rtx-4090", "rtx-5090", "l40s", "h100", "rtx-pro-6000", "h200"];

/// Reads the files and answers.
///
/// # Errors
/// When a file cannot be read or written, or options do not suit the files.
pub fn run(args: &ExplainArgs, quiet: bool) -> Result<ExitCode> {
    let options = options(&args.reading);
    if args.follow {
        return follow(args);
    }
    let reading = args.reading.options();
    html::writable(&args.page)?;
    let mut logs: Vec<Report> = Vec::new();
    let mut recordings: Vec<(String, Explanation)> = Vec::new();
    let mut shown: Vec<Shown> = Vec::new();
    for path in &args.files {
        let name = path.display().to_string();
        match open(path, reading.any_growth)? {
            Input::Log(reader) => logs
                .push(log::explain(reader, &log::Options::default()).with_context(|| format!("cannot read {name}"))?),
            Input::Recording(reader) => {
                let trace = recording(reader, &name, &reading)?;
                let names = names_of(&args.reading, path)?;
                if let Some(file) = &args.export {
                    export::write(&trace, names.as_ref(), file)?;
                }
                let explanation = snapshot::explain(&trace, &options, names.as_ref());
                recordings.push((name.clone(), explanation.clone()));
                if args.page.html.is_some() {
                    shown.push(Shown { name, trace, names, explanation });
                }
            }
        }
    }
    if let (Some(_), true) = (&args.export, recordings.len() != 1) {
        return Err(hinted("--export writes one recording", "give exactly one snapshot or trace"));
    }
    if !quiet && options.capacity.is_none() && recordings.iter().any(|(_, found)| lacks_card(found)) {
        output::say("oomph: the recording does not include the card's size; pass --gpu NAME or --vram SIZE");
    }
    let report = report(args, logs, recordings);
    if let Some(path) = &args.page.html {
        let title = args.files.iter().map(|path| html::last_part(path)).collect::<Vec<_>>().join(", ");
        let writing = Writing { title, path, private: args.page.private, compare: false };
        html::write(&writing, html::explain(&report), &shown, &options)?;
    }
    answer(args.format.form(), &report)
}

/// What a dry run named of a recording: the file that the user names, or the one next to the recording.
///
/// # Errors
/// When it cannot be read.
pub fn names_of(args: &ReadingArgs, recording: &Path) -> Result<Option<Names>> {
    let companion = names_path(recording);
    let path = args.names.clone().or_else(|| companion.is_file().then_some(companion));
    path.as_deref().map(names).transpose()
}

/// Whether some card of the recording is not known to hold or not to hold it.
fn lacks_card(explanation: &Explanation) -> bool {
    explanation.devices.iter().any(|device| device.card.is_none())
}

/// What was asked for.
pub fn options(args: &ReadingArgs) -> Options {
    Options {
        at: args.at.unwrap_or_default(),
        capacity: args.vram.map(|size| size.0).or(args.gpu.map(|gpu| gpu.capacity_bytes)),
        context_bytes: args.gpu.map(|gpu| gpu.context.expected_bytes),
        what_if: !args.no_what_if,
        cards: ladder(Catalogue::builtin(), args.gpu),
        ..Options::default()
    }
}

/// Cards of the usual sizes for the what-if table, without the one that the program ran on.
pub fn ladder(catalogue: &Catalogue, own: Option<&Gpu>) -> Vec<Card> {
    let ordinary = |gpu: &&Gpu| !matches!(gpu.kind, Kind::Mig | Kind::Jetson);
    LADDER
        .iter()
        .filter_map(|name| catalogue.get(name))
        .filter(ordinary)
        .filter(|gpu| own.is_none_or(|own| own.memory_gb != gpu.memory_gb))
        .map(|gpu| Card {
            name: gpu.id.clone(),
            capacity_bytes: gpu.capacity_bytes,
            context_bytes: gpu.context.expected_bytes,
        })
        .collect()
}

fn names(path: &Path) -> Result<Names> {
    let mut text = Vec::new();
    oomph_trace::open(path)
        .and_then(|mut file| file.read_to_end(&mut text))
        .with_context(|| format!("cannot read {}", path.display()))?;
    Names::parse(&text).with_context(|| format!("cannot use {}", path.display()))
}

/// Puts the answers of all files together.
fn report(args: &ExplainArgs, logs: Vec<Report>, mut recordings: Vec<(String, Explanation)>) -> ExplainReport {
    let kind = match (logs.is_empty(), recordings.is_empty()) {
        (false, true) => ExplainKind::Log,
        (true, _) => ExplainKind::Snapshot,
        (false, false) => ExplainKind::LogAndSnapshot,
    };
    let mut notes = Vec::new();
    for (name, explanation) in &recordings {
        let several = recordings.len() > 1;
        notes.extend(
            explanation.notes.iter().map(|note| if several { format!("{name}: {note}") } else { note.clone() }),
        );
    }
    let ranks = (recordings.len() > 1).then(|| snapshot::ranks(&recordings));
    let shown = ranks.as_ref().and_then(|ranks| ranks.worst).or(recordings.len().checked_sub(1));
    let shown = shown.filter(|index| *index < recordings.len()).map(|index| recordings.swap_remove(index));
    let mut failures: Option<Vec<Failure>> = None;
    let mut run = None;
    for log in logs {
        // Of several logs the first with a failure shows the cause.
        failures.get_or_insert_default().extend(log.failures);
        run.get_or_insert(log.settings);
    }
    let (snapshot, explanation) = match shown {
        Some((name, explanation)) => (Some(name), Some(explanation)),
        None => (None, None),
    };
    ExplainReport {
        schema: ExplainSchema,
        kind,
        files: args.files.iter().map(|path| path.display().to_string()).collect(),
        failures,
        run,
        snapshot,
        settings: explanation.as_ref().map(|explanation| explanation.settings.clone()),
        pinned_host: explanation.as_ref().and_then(|explanation| explanation.pinned_host.clone()),
        devices: explanation.map(|explanation| explanation.devices),
        ranks,
        notes,
    }
}

fn answer(form: Form, report: &ExplainReport) -> Result<ExitCode> {
    output::answer(report, form, None, || render_explain(report, output::style()))?;
    let died = |device: &DeviceExplanation| device.verdict.outcome == Outcome::Oom;
    let oom = report.failures.iter().flatten().any(Failure::ended_it) || report.devices.iter().flatten().any(died);
    Ok(ExitCode::from(if oom { status::DOES_NOT_FIT } else { status::DONE }))
}

/// Waits for failures in a log that is still being written, and answers at each.
fn follow(args: &ExplainArgs) -> Result<ExitCode> {
    let [path] = args.files.as_slice() else {
        return Err(hinted("--follow reads one log", "give one file, or - for a pipe"));
    };
    let reader = inputs::following(path)?;
    let say = |report: &Report| {
        let report = self::report(args, vec![report.clone()], Vec::new());
        answer(args.format.form(), &report)
    };
    let mut problem = None;
    let report = log::follow(reader, &log::Options::default(), |report| {
        if let Err(error) = say(report) {
            problem.get_or_insert(error);
        }
    })
    .with_context(|| format!("cannot read {}", path.display()))?;
    if let Some(error) = problem {
        return Err(error);
    }
    if report.failures.is_empty() {
        return say(&report);
    }
    Ok(ExitCode::from(if report.failures.first().is_some_and(Failure::ended_it) {
        status::DOES_NOT_FIT
    } else {
        status::DONE
    }))
}

/// Reads a recording for the commands that compare.
///
/// # Errors
/// When the file is not a recording, or cannot be read.
pub fn read(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let name = path.display().to_string();
    match open(path, options.any_growth)? {
        Input::Recording(reader) => recording(reader, &name, options),
        Input::Log(_) => Err(hinted(
            format!("{name} is a text, not a recording of memory"),
            "give a snapshot (torch.cuda.memory._dump_snapshot) or a trace; `oomph explain` reads logs",
        )),
    }
}

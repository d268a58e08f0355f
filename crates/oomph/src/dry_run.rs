//! `oomph dry-run`: runs the program on the virtual GPU and reports the result.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use oomph_explain::snapshot::{self, Options};
use oomph_gpu::Catalogue;
use oomph_launch::{Limits, Output};
use oomph_report::{CardThatHolds, DryRunReport, NextStep, Site, Verdict, WriteFloor, render_dry_run};

use crate::assemble::{assemble, used_a_gpu, worst};
use crate::changes::Changes;
use crate::cli::DryRunArgs;
use crate::html::{self, Shown, Writing};
use crate::observation::Observation;
use crate::output::Form;
use crate::program::Program;
use crate::recordings::{self, ProcessMemory};
use crate::run_context::{Ended, RunContext, RunRequest};
use crate::source_lines::source_line;
use crate::status;
use crate::trial::Stop;
use crate::{activity, cells, explain, export, grown, needs, output, recovered, unsure, whole_pool, whose};

/// The signal of Ctrl-C.
const SIGINT: i32 = 2;

/// The signal of `timeout`, of job schedulers and of containers.
const SIGTERM: i32 = 15;

/// Whether what was seen until a signal is still said: who sends SIGHUP or SIGQUIT does not wait for it.
const fn wants_an_answer(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGTERM)
}

/// Runs the program and answers.
///
/// # Errors
/// When something that is needed is missing: a card of that name, the program, a torch that can use the virtual GPU.
pub fn run(args: DryRunArgs, quiet: bool) -> Result<ExitCode> {
    let program = Program {
        history: !args.no_owners,
        device_log: args.snapshot.is_some() || args.trace.is_some(),
        ..Program::new(args.program)?
    };
    for path in [&args.report, &args.snapshot].into_iter().flatten() {
        output::writable(path)?;
    }
    if let Some(path) = &args.trace {
        export::known(path)?;
    }
    html::writable(&args.page)?;
    let context = RunContext::new(program, quiet)?;
    let program = &context.program;

    let form = args.format.form();
    let output = if form == Form::Text { Output::Inherit } else { Output::StdoutToStderr };
    let tell = |line: &str| output::tell(&format!("oomph: {line}"), quiet);
    let (mut first, mut signal) = match first_run(&context, output, args.snapshot.as_deref(), &tell)? {
        Ok(seen) => seen,
        Err(signal) => return Ok(status::interrupted(signal)),
    };
    if first.memory.is_empty() && (args.snapshot.is_some() || args.trace.is_some()) {
        first.warnings.push("no process used the GPU, so no recording was written".into());
    }
    let mut report = assemble(&program.cards, &first, None);
    let mut probed = !args.no_probe && signal.is_none();
    if probed {
        match needs::answer(&context, &first, &report, &tell) {
            Ok(answered) => report = answered,
            // What the first run showed is known.
            Err(Stop::Interrupted(ended)) if wants_an_answer(ended) => {
                signal = Some(ended);
                probed = false;
            }
            Err(Stop::Interrupted(signal)) => return Ok(status::interrupted(signal)),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    if probed {
        match unsure::ask(&context, &first, &mut report, &tell) {
            Ok(()) => {}
            Err(Stop::Interrupted(ended)) if wants_an_answer(ended) => signal = Some(ended),
            Err(Stop::Interrupted(signal)) => return Ok(status::interrupted(signal)),
            Err(Stop::Failed(error)) => return Err(error),
        }
    }
    complete(&mut report, &first, program, &context.directory, probed);
    if args.verbose {
        output::say(&floor(&report));
    }
    // The empty line sets the answer off from the program's output.
    let text = || format!("\n{}", render_dry_run(&report, output::style()));
    let answered = output::answer(&report, form, args.report.as_deref(), text);
    // Each is written, whatever became of the others.
    let exported = args.trace.as_ref().map_or(Ok(()), |path| recordings::export(&first.memory, path));
    let kept = first.unkept.take().map_or(Ok(()), |reason| Err(anyhow::anyhow!(reason)));
    let shown = match &args.page.html {
        Some(path) => page(path, args.page.private, &report, first.memory),
        None => Ok(()),
    };
    answered.and(exported).and(kept).and(shown)?;
    if let Some(signal) = signal {
        return Ok(status::interrupted(signal));
    }
    Ok(ExitCode::from(match report.verdict {
        Verdict::Fits | Verdict::NoGpuUse => status::DONE,
        Verdict::Oom | Verdict::Recovered | Verdict::Unsure => status::DOES_NOT_FIT,
        // What oomph cannot run is not the program's failure.
        Verdict::Failed if report.fault.as_ref().is_some_and(|fault| fault.own.is_none()) => status::USAGE,
        Verdict::Failed => status::PROGRAM_FAILED,
    }))
}

/// The run that the answer is about, with the signal that ended it, if one did; the signal alone where there is nothing to
/// answer. Its recordings are copied to `keep`.
type FirstRun = std::result::Result<(Box<Observation>, Option<i32>), i32>;

fn first_run(
    context: &RunContext,
    output: Output,
    keep: Option<&Path>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<FirstRun> {
    let program = &context.program;
    let first = match context.observe(&program.cards, output, keep)? {
        Ended::Observed(observation) => observation,
        // A server goes on until it is interrupted, so that this is how one asks for its answer.
        Ended::Interrupted(signal, Some(seen)) if wants_an_answer(signal) && used_a_gpu(&seen) => {
            return Ok(Ok((seen, Some(signal))));
        }
        Ended::Interrupted(signal, _) => return Ok(Err(signal)),
    };
    let changes = Changes::none(&program.command);
    let request = RunRequest {
        changes: &changes,
        cards: &program.cards,
        output,
        limits: Limits::of_user(program.timeout),
        history: program.history,
        keep,
        writes: false,
    };
    match whole_pool::instead_of(&first, context, &request, tell) {
        Ok(run) => Ok(Ok((run.map_or(first, Box::new), None))),
        Err(Stop::Interrupted(signal)) if wants_an_answer(signal) => {
            // What the first run showed is known, and what it did not show is said.
            let mut seen = first;
            seen.warnings.push(
                "Stopped before it was run with the framework's own settings for its pool, with which it may fit."
                    .into(),
            );
            Ok(Ok((seen, Some(signal))))
        }
        Err(Stop::Interrupted(signal)) => Ok(Err(signal)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// What the program died of, where that was a request of one of its lines.
fn refused(report: &DryRunReport) -> Option<activity::Refused> {
    report.devices.iter().find_map(|device| {
        let oom = device.oom.as_ref()?;
        let site = oom.site.as_ref()?;
        let name = Path::new(&site.file).file_name()?.to_string_lossy();
        let place = format!("{name}:{}", site.line);
        Some(activity::Refused { place, bytes: oom.requested_bytes, capacity: device.capacity_bytes? })
    })
}

/// Adds to an answer what is known in addition to the verdict and the need: causes, owners, places, and what to do
/// next.
pub fn complete(report: &mut DryRunReport, run: &Observation, program: &Program, directory: &Path, probed: bool) {
    recovered::tell(report, run);
    grown::tell(report, run);
    for device in &mut report.devices {
        device.whose = whose::owners(device, run);
    }
    cells::tell(report, run, directory);
    report.worst = worst(&report.devices, run);
    // With Numba the program's own lines allocate.
    let framework = report.frameworks.keys().any(|name| name != "numba");
    report.activity = activity::tell(&run.activities, framework, refused(report).as_ref());
    report.command = program.shown();
    report.next = next_steps(program, probed, report);
    for device in &mut report.devices {
        let ooms = device.oom.iter_mut().chain(&mut device.caught_ooms);
        for site in ooms.flat_map(|oom| oom.site.iter_mut().chain(&mut oom.library_site)) {
            place(site, directory);
        }
    }
    if let Some(site) = report.waits.as_mut().and_then(|waits| waits.site.as_mut()) {
        place(site, directory);
    }
    for growth in report.loops.iter_mut().filter_map(|one| one.growth.as_mut()) {
        if let Some(site) = &mut growth.site {
            place(site, directory);
        }
    }
}

/// What keeps the program's writes away from the user's files on this machine.
fn floor(report: &DryRunReport) -> String {
    let Some(writes) = &report.writes else { return "oomph: the program's writes went where it says".into() };
    let by = match writes.kept_away_by {
        WriteFloor::Kernel => "the kernel kept the program's writes away from your files".to_owned(),
        WriteFloor::UserNamespace => {
            "the kernel kept the program's writes away from your files (user namespace)".to_owned()
        }
        WriteFloor::Fence => {
            let reason = writes.reason.as_deref().unwrap_or("no reason is known");
            format!(
                "Python's writes went to a folder of the run, and the kernel refused all others (Landlock); it gave no \
                 private view: {reason}"
            )
        }
        WriteFloor::Hook => {
            let reason = writes.reason.as_deref().unwrap_or("no reason is known");
            format!("only what Python wrote was kept away from your files; the kernel refused more: {reason}")
        }
    };
    format!("oomph: {by}; {} files, {} bytes", writes.count, writes.bytes)
}

/// Writes the answer as a page, with what the program's processes recorded.
fn page(path: &Path, private: bool, report: &DryRunReport, memory: Vec<ProcessMemory>) -> Result<()> {
    let device = report.devices.first();
    let options = Options {
        capacity: device.and_then(|device| device.capacity_bytes),
        context_bytes: device.map(|device| device.peak.context_bytes),
        cards: explain::ladder(Catalogue::builtin(), None),
        ..Options::default()
    };
    let several = memory.len() > 1;
    let shown: Vec<Shown> = memory
        .into_iter()
        .map(|ProcessMemory { pid, trace, names }| {
            let explanation = snapshot::explain(&trace, &options, names.as_ref());
            let name = if several { format!("process {pid}") } else { "the run".to_owned() };
            Shown { name, trace, names, explanation }
        })
        .collect();
    let title = format!("oomph dry-run: {}", html::short(&report.command));
    let writing = Writing { title, path, private, compare: false };
    let mut answer = html::dry_run(report);
    if private {
        // The text of the answer quotes lines of the program.
        answer.sections.retain(|section| section.title != html::WHOLE);
    }
    html::write(&writing, Some(answer), &shown, &options)
}

/// What one would run next. Only what the figures show can help.
fn next_steps(program: &Program, probed: bool, report: &DryRunReport) -> Vec<NextStep> {
    let step = |why: &str, command: String| NextStep { why: why.into(), command };
    let mut next = Vec::new();
    if let Some((missing, needs)) = report.missing_card.as_ref().and_then(|missing| Some((missing, missing.needs?))) {
        let command = program.dry_run(&program.with_cards(needs as usize));
        // What was set for this command only would be missing from the next.
        let set = std::env::var("CUDA_VISIBLE_DEVICES").ok().filter(|set| missing.list.as_ref() == Some(set));
        let before = set.map(|list| format!("CUDA_VISIBLE_DEVICES={} ", crate::shell_words::quoted(&list)));
        next.push(step("run it with as many cards as it names", before.unwrap_or_default() + &command));
    }
    if report.verdict == Verdict::Oom {
        let fragmented = report.oom_device().is_some_and(|(device, oom)| {
            let cached = oom.reserved_bytes.unwrap_or(0).saturating_sub(oom.allocated_bytes.unwrap_or(0));
            let free = oom.free_bytes.unwrap_or(0);
            // Joining the pieces gives back no more than is cached, so a need beyond that is not met by it.
            let in_reach = |capacity| oom.would_need_bytes.is_none_or(|need| need.saturating_sub(cached) <= capacity);
            // The setting below is PyTorch's, whose allocator says what it reserved.
            device.pool.is_none()
                && oom.reserved_bytes.is_some()
                && device.capacity_bytes.is_some_and(in_reach)
                && cached.saturating_add(free) >= oom.requested_bytes
        });
        let set = |name: &str| std::env::var(name).is_ok_and(|value| value.contains("expandable_segments"));
        if fragmented && !set("PYTORCH_CUDA_ALLOC_CONF") && !set("PYTORCH_ALLOC_CONF") {
            next.push(step(
                "the memory was there, but in pieces; see whether this helps",
                format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {}", program.dry_run(&program.card_options)),
            ));
        }
        // A slice of a card or a board that shares the host's memory is rarely what one would try next.
        let ordinary = |card: &&CardThatHolds| !matches!(card.kind, oomph_gpu::Kind::Mig | oomph_gpu::Kind::Jetson);
        match report.smallest.iter().find(ordinary).or(report.smallest.first()) {
            Some(card) => {
                next.push(step("see it run on a card that holds it", program.dry_run(&program.as_many_of(&card.gpu))))
            }
            None if !probed => {
                next.push(step("learn which cards hold it", program.dry_run(&[])));
            }
            None => {}
        }
    }
    next
}

/// Gives a line its text and a name that is no longer than is needed.
fn place(site: &mut Site, directory: &Path) {
    // The text of a notebook's cell is in no file.
    if site.cell.is_none() {
        site.text = source_line(directory, site);
    }
    // Debug information names files from the root; below the user's folder that is more than is needed.
    let below = Path::new(&site.file).strip_prefix(directory).ok().and_then(Path::to_str);
    if let Some(below) = below.map(str::to_owned) {
        site.file = below;
    }
}

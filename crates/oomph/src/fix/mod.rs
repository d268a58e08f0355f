//! `oomph fix`: finds the cheapest changes that make a program fit; each is run before it is offered.

mod answer;
mod apply;
mod baseline;
mod bench;
mod edits;
mod evaluation;
mod in_place;
pub mod list;
mod phases;
mod price;
mod serving;
mod situation;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use oomph_explain::snapshot::At;
use oomph_gpu::roofline::Slowdown;
use oomph_gpu::size;
use oomph_launch::{HookOom, HookProgram, ProgramKind};
use oomph_remedy::search::{self, Fix, Forecast, Found, Mix, Wishes};
use oomph_remedy::{Catalogue, Cause, Operation, Remedy, Sameness, Task};
use oomph_report::{DryRunReport, FixVerdict, Verdict, render_fix};

use crate::assemble::{Evidence, Observation, assemble, assemble_with};
use crate::cards::Card;
use crate::cli::{FixArgs, Form, Prefer};
use crate::dry_run::interrupted;
use crate::failure::{hinted, status};
use crate::fork_runner::ForkRunner;
use crate::program::{self, Program, quoted};
use crate::progress::Progress;
use crate::run_context::RunContext;
use crate::trial::{Changes, Runner, Stop};
use crate::{html, needs, output, pool, whose};

pub use answer::{Answer, Applied};
use baseline::{Baseline, Seen, observed};
use bench::{Applier, Means, VirtualBench};
use edits::Edits;
use evaluation::Evaluation;
use price::Priced;
use serving::Serving;
use situation::Known;

/// How long is searched where nobody says how long.
const LEAST_TIME: Duration = Duration::from_secs(60);

/// Who waited for a program that takes long waits for this many more runs of it: fewer say little about what would help.
const RUNS: u32 = 4;

/// What was asked for, in addition to the program.
pub struct Wanted {
    /// The cards with what the program may take of them.
    pub cards: Vec<Card>,
    /// Which remedies may be tried.
    pub wishes: Wishes,
    /// How many different fixes are looked for.
    pub fixes: usize,
    /// How many trials may run at a time.
    pub jobs: usize,
    /// How long it is searched, once it is known what the program needs, where that was said.
    pub max_time: Option<Duration>,
    /// Whether a program fits that runs out of memory, catches the error and goes on.
    pub accept_recovered: bool,
    /// The options that say what fits, as typed, ready for a shell.
    pub options: Vec<String>,
}

/// Searches and answers.
///
/// # Errors
/// When an option makes no sense, or something that is needed is missing.
pub fn run(args: FixArgs, quiet: bool) -> Result<ExitCode> {
    let start = Instant::now();
    let catalogue = Catalogue::builtin();
    let form = args.format.form();
    if args.list {
        return list::print(catalogue, form);
    }
    in_place::can_ask(args.in_place, args.yes)?;
    let program = Program::new(args.program)?;
    let write = apply::target(&args.write, &program.command)?;
    let wanted = Wanted {
        cards: limited(&program.cards, args.target.as_deref(), args.margin.as_deref())?,
        wishes: Wishes {
            prefer: match args.prefer {
                Prefer::Speed => search::Prefer::Speed,
                Prefer::Quality => search::Prefer::Quality,
                Prefer::Memory => search::Prefer::Memory,
            },
            allow: list::allowed(catalogue, &args.allow)?,
            forbid: list::ids(catalogue, "--forbid", &args.forbid)?,
        },
        // What is to be applied or written has to be found first.
        fixes: args
            .fixes
            .max(args.apply.unwrap_or(0))
            .max(args.in_place.unwrap_or(0))
            .max(write.as_ref().map_or(0, |(number, _)| *number)),
        jobs: args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        max_time: args.max_time.as_deref().map(|text| program::duration("--max-time", text)).transpose()?,
        accept_recovered: args.accept_recovered,
        options: [("--target", &args.target), ("--margin", &args.margin)]
            .into_iter()
            .filter_map(|(name, value)| Some([name.to_owned(), quoted(value.as_deref()?)]))
            .flatten()
            .collect(),
    };
    if let Some(path) = &args.report {
        output::writable(path)?;
    }
    html::writable(&args.page)?;
    if args.real {
        apply::needs_a_gpu()?;
    }
    let context = RunContext::new(program, quiet)?;
    let progress = Progress::new(quiet);
    let runner = ForkRunner::new(&context, args.jobs);
    let searched = search(&context, &runner, catalogue, &wanted, start, &|what| progress.tell(what));
    progress.finish();
    let answer = match searched {
        Ok(answer) => answer,
        Err(Stop::Interrupted(signal)) => return Ok(interrupted(signal)),
        Err(Stop::Failed(error)) => return Err(error),
    };
    if answer.report.verdict == FixVerdict::Failed {
        output::say(&format!("oomph: the end of the program's messages:\n{}", answer.messages.trim_end()));
    }
    let report = &answer.report;
    html::answered(&args.page, format!("oomph fix: {}", html::short(&report.command)), || html::fix(report))?;
    output::answer(report, form, args.report.as_deref(), || render_fix(report, output::style()))?;
    if let Some(signal) = answer.stopped {
        output::tell("oomph: stopped; this is what was found until then", quiet);
        return Ok(interrupted(signal));
    }
    if report.verdict == FixVerdict::Fixed {
        if let Some((number, path)) = &write {
            output::tell(&apply::write(&answer, *number, path)?, quiet);
        }
        if let Some(number) = args.in_place {
            output::tell(&in_place::change(&answer, number, args.yes)?, quiet);
        }
        if let Some(number) = args.apply {
            return apply::run(&context, &answer, number, args.real, (form != Form::Text, quiet));
        }
    } else if write.is_some() || args.apply.is_some() || args.in_place.is_some() {
        output::say("oomph: there is no fix to write or to apply");
    }
    Ok(ExitCode::from(match report.verdict {
        FixVerdict::FitsAlready | FixVerdict::Fixed => status::DONE,
        FixVerdict::NothingFits if report.out_of_time => status::OUT_OF_TIME,
        FixVerdict::NothingFits => status::DOES_NOT_FIT,
        FixVerdict::Failed => status::PROGRAM_FAILED,
    }))
}

/// Searches without an answer for people.
///
/// # Errors
/// When a run cannot be set up, or a signal ends the search before anything is found.
pub fn find(context: &RunContext, wanted: &Wanted, tell: &(dyn Fn(&str) + Sync)) -> Result<Answer, Stop> {
    let runner = ForkRunner::new(context, Some(wanted.jobs));
    search(context, &runner, Catalogue::builtin(), wanted, Instant::now(), tell)
}

/// The whole search: the unmodified program, what it needs, and what makes it fit.
fn search<'a>(
    context: &RunContext,
    runner: &dyn Runner,
    catalogue: &'a Catalogue,
    wanted: &Wanted,
    start: Instant,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Answer, Stop> {
    let command = &context.program.command;
    let unlimited: Vec<Card> = wanted.cards.iter().map(Card::without_limit).collect();
    let unchanged = Changes::none(command);
    let timeout = context.program.timeout;
    let accept_recovered = wanted.accept_recovered;
    let baseline = Baseline {
        runner,
        changes: &unchanged,
        cards: &wanted.cards,
        unlimited: &unlimited,
        timeout,
        accept_recovered,
    };
    let Seen { first, probe, time_limit } = baseline.see(tell)?;
    let Some(probe) = probe else {
        let baseline = assemble(&wanted.cards, &first, None);
        return Ok(answer::without_fixes(context, wanted, &baseline, &first, start));
    };
    let needed = assemble(&unlimited, &probe, None);
    let fullest = fullest(&needed);
    let of_probe = needed.devices.get(fullest).filter(|_| !probe.takes_a_share());
    let of_probe = of_probe.and_then(|device| whose::owners_at(device, &probe, At::InUse));
    let probed = of_probe.is_some();
    let needs = needs::Search {
        runner,
        changes: &unchanged,
        cards: &wanted.cards,
        unlimited: &probe,
        died: true,
        timeout,
        hurry: true,
        tell,
    };
    let assembled = |smallest: Option<&needs::Found>| {
        assemble_with(&wanted.cards, &first, &Evidence { probe: Some(&probe), found: smallest, ..Evidence::default() })
    };
    // The search starts from the run without a limit; what the program needs to the last byte is asked for after it.
    let smallest = if probed { None } else { needs.run()? };
    let full = assembled(smallest.as_ref());
    // A run that was cut short left no recording: then the owners are those of the death, and the peak is what was
    // there with what was asked for.
    let owners = of_probe.or_else(|| full.devices.get(fullest).and_then(|device| whose::owners(device, &first)));
    let owners = owners.map(|whose| whose.owners).unwrap_or_default();
    let program = phases::with_growth(described(&first, &probe), &first.hooks);
    let program = phases::with_growth(program, &probe.hooks);
    let card = wanted
        .cards
        .get(fullest)
        .or(wanted.cards.first())
        .ok_or_else(|| Stop::Failed(anyhow::anyhow!("there is no card")))?;
    let line = bench::line_of(command, &context.directory);
    let capability = card.gpu.compute_capability();
    let known = Known {
        line: line.as_ref(),
        program: &program,
        versions: &full.frameworks,
        oom: fatal(&first),
        owners: &owners,
        peak_bytes: full
            .devices
            .iter()
            .filter_map(|device| device.need())
            .map(|need| need.process_bytes)
            .max()
            .unwrap_or_else(|| if probe.takes_a_share() { at_death(card, &first) } else { bench::peak(&needed) }),
        limit_bytes: card.gpu.capacity_bytes,
        capability: (capability.major, capability.minor),
        cards: wanted.cards.len(),
        own_limit: full.devices.get(fullest).and_then(|device| pool::own_limit(device, card.gpu.capacity_bytes)),
    };
    let mut situation = known.situation();
    let mut moments = known.moments();
    // From inside the hook changes programs of PyTorch only.
    let hook = matches!(context.kind(), ProgramKind::Python { .. }) && !others_only(&full.frameworks);
    let mut edits = Edits::of(command, &context.directory, &known);
    if let Some(serving) = Serving::of(
        line.as_ref(),
        edits.as_ref(),
        &card.gpu,
        known.peak_bytes,
        known.oom.map(|oom| oom.message.as_str()),
    ) {
        serving.describe(&mut situation);
        moments = serving.moments();
        if let Some(edits) = &mut edits {
            edits.learn(&serving);
        }
    }
    if others_only(&full.frameworks) && situation.settings.batch_size.is_none() {
        situation.settings.batch_size = edits.as_ref().and_then(Edits::batch_size);
    }
    // Nothing grows in number there, so no search of the program's objects finds it.
    if edits.as_ref().is_some_and(|edits| edits.program.retains_a_state()) {
        situation.causes.insert(0, Cause::Leak.into());
    }
    let situation = situation;
    let lacks = |remedy: &&Remedy| remedy.package.as_ref().is_some_and(|package| program.missing.contains(package));
    let missing: BTreeSet<String> = catalogue.remedies().iter().filter(lacks).map(|remedy| remedy.id.clone()).collect();
    let applier = Applier { command, line: line.clone(), situation: &situation, hook, edits, refused: missing.into() };
    let mut candidates = catalogue.candidates(&situation, &moments, &wanted.wishes, |remedy| {
        // Only trainers that cut what is longer have an argument for it.
        let cuts = program.trainer.as_ref().is_some_and(|trainer| trainer.arguments.max_length.is_some());
        applier.can_apply(remedy) && (cuts || remedy.knob.as_ref().is_none_or(|knob| knob.of.is_none()))
    });
    if !candidates.iter().any(|candidate| candidate.remedy.id == "no-grad") && known.task() == Some(Task::Training) {
        candidates.extend(phases::evaluation_without_graph(catalogue, &situation, &wanted.wishes, &applier));
    }
    let candidates = phases::ordered(candidates, &applier);
    let at_death = at_death(card, &first);
    let limit = card.gpu.capacity_bytes;
    let forecast = if probed {
        Forecast::new(situation.clone(), known.peak_bytes.max(limit), limit)
    } else {
        Forecast::new(situation.clone(), at_death, limit).at_least()
    };
    let mut bench = VirtualBench {
        runner,
        applier: &applier,
        cards: &wanted.cards,
        jobs: wanted.jobs,
        // The program itself may take long, and is not part of the search.
        deadline: Instant::now() + wanted.max_time.unwrap_or_else(|| (probe.elapsed * RUNS).max(LEAST_TIME)),
        stopped: OnceLock::new(),
        accept_recovered,
        unreached: needed.unreached.iter().map(|part| part.part.clone()).collect(),
        before: &full,
        seen: Default::default(),
        ran: Default::default(),
        always: Mix::default(),
        tell,
    };
    let mut always = Mix::default();
    if !moments.contains(&Operation::Evaluation) {
        let evaluation = Evaluation {
            catalogue,
            situation: &situation,
            wishes: &wanted.wishes,
            applier: &applier,
            runner,
            unlimited: &unlimited,
            limit_bytes: limit,
            time_limit,
            deadline: bench.deadline,
            tell,
        };
        always = evaluation.answer(&needed)?;
        bench.always = always.clone();
    }
    let causes =
        phases::first(&candidates, &situation, moments.contains(&Operation::Evaluation) && known.oom.is_some());
    let mut found = if causes.is_empty() {
        Found::default()
    } else {
        search::search(catalogue, &causes, &forecast, wanted.fixes, &mut bench)?
    };
    let by_cause = found.fixes.iter().any(|fix| !fix.tight);
    if !by_cause && (causes.is_empty() || !found.out_of_time) {
        found = search::search(catalogue, &candidates, &forecast, wanted.fixes, &mut bench)?;
    }
    let stopped = bench.stopped.get().copied();
    if let Some(signal) = stopped {
        if found.fixes.is_empty() {
            return Err(Stop::Interrupted(signal));
        }
        found.out_of_time = true;
    }
    let lowers = |fix: &Fix<'_>| fix.mix.doses.iter().any(|dose| phases::is_batch(&dose.remedy.id));
    if !by_cause && !found.out_of_time && !found.fixes.iter().any(lowers) {
        let batch = phases::own_batch(&candidates, &applier);
        let more = search::search(catalogue, &batch, &forecast, 1, &mut bench)?;
        found.fixes.extend(more.fixes.into_iter().filter(|fix| !fix.tight));
    }
    evaluation::named(&always, &mut found);
    let priced = Priced { gpu: &card.gpu, before: price::of_run(&probe.hooks) };
    let means = |fix: &Fix<'_>| applier.ready(&fix.mix).map_or(Means::Hook, |ready| ready.means);
    price::order(
        &mut found.fixes,
        wanted.wishes.prefer,
        |fix| {
            // As in the order of the search: another result is no reason to take the program's own means first.
            let changes = fix.mix.sameness() == Sameness::ChangesTheResult;
            match means(fix) {
                Means::Hook => (fix.tight, 2),
                Means::Own if !changes => (fix.tight, 0),
                // A variable that costs nothing is better than an edit that slows the program down.
                _ => (fix.tight, 1),
            }
        },
        |fix| means(fix),
        |fix| priced.of(fix, &bench.seen, &applier).ok().map(Slowdown::middle),
    );
    if wanted.wishes.prefer == search::Prefer::Memory {
        found.fixes.sort_by_key(|fix| fix.peak_bytes);
    }
    let least = least(runner, &applier, &found, (&unlimited, time_limit), tell)?;
    let smallest = if probed && stopped.is_none() { needs.run()? } else { smallest };
    Ok(answer::Parts {
        context,
        wanted,
        full: &assembled(smallest.as_ref()),
        first: &first,
        known: &known,
        applier: &applier,
        seen: &bench.seen,
        priced,
        found,
        least,
        start,
        stopped,
    }
    .answer())
}

/// The peak of the strongest mix on cards without a limit, in bytes, where nothing fits.
fn least(
    runner: &dyn Runner,
    applier: &Applier<'_>,
    found: &Found<'_>,
    (unlimited, time_limit): (&[Card], Duration),
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Option<u64>, Stop> {
    let strongest: &Mix<'_> = match &found.strongest {
        Some(mix) if found.fixes.is_empty() => mix,
        _ => return Ok(None),
    };
    let Ok(changes) = applier.changes(strongest) else { return Ok(None) };
    tell("the least that it needs with everything applied");
    let run = observed(runner.run(&changes, unlimited, Some(time_limit)).map_err(Stop::Failed)?)?;
    let report = assemble(unlimited, &run, None);
    Ok((report.verdict == Verdict::Fits && run.is_done()).then(|| bench::peak(&report)))
}

/// Whether a program computes with other frameworks than PyTorch.
fn others_only(frameworks: &std::collections::BTreeMap<String, String>) -> bool {
    let has = |name: &str| frameworks.contains_key(name);
    !has("torch") && ["tensorflow", "jax", "onnxruntime", "numba", "llama.cpp"].into_iter().any(has)
}

/// What the hook says of the program: the run without a limit has seen all of it. What the program was holding on to is
/// seen where it died; a run that came to its end has let go of it.
fn described(first: &Observation, probe: &Observation) -> HookProgram {
    let (dying, whole) = (situation::described(&first.hooks), situation::described(&probe.hooks));
    if whole == HookProgram::default() {
        return dying;
    }
    let mut kept = dying.kept;
    let also = whole
        .kept
        .into_iter()
        .filter(|one| !kept.iter().any(|known| (&known.file, &known.name) == (&one.file, &one.name)));
    let also: Vec<_> = also.collect();
    kept.extend(also);
    HookProgram { kept, ..whole }
}

fn fatal(run: &Observation) -> Option<&HookOom> {
    let all = || run.hooks.reports.iter().filter_map(|hook| hook.oom.as_ref());
    // A program that caught its error is to be made to fit as it is written.
    all().find(|oom| oom.fatal).or_else(|| all().next())
}

/// What the program would have held at least, had the card not refused it: the card and what was requested, in bytes.
fn at_death(card: &Card, run: &Observation) -> u64 {
    card.gpu.capacity_bytes.saturating_add(fatal(run).map_or(0, |oom| oom.requested_bytes))
}

/// The card that is filled most.
fn fullest(report: &DryRunReport) -> usize {
    let most = report.devices.iter().enumerate().max_by_key(|(_, device)| device.peak.process_bytes);
    most.map_or(0, |(index, _)| index)
}

/// The cards with what the program may take of them.
pub fn limited(cards: &[Card], target: Option<&str>, margin: Option<&str>) -> Result<Vec<Card>> {
    let target = target
        .map(|text| size::parse(text).map_err(|error| hinted(format!("--target: {error}"), "write --target 10GiB")))
        .transpose()?;
    if target == Some(0) {
        return Err(hinted("--target 0 leaves no memory to fit into", "write --target 10GiB"));
    }
    cards
        .iter()
        .map(|card| {
            let capacity = match (card.capacity_bytes(), target) {
                (Some(capacity), Some(target)) => capacity.min(target),
                (Some(capacity), None) => capacity,
                (None, Some(target)) => target,
                (None, None) => {
                    return Err(hinted(
                        "on a card without a limit everything fits",
                        "name a card with --gpu, or a size with --vram or --target",
                    ));
                }
            };
            let margin = margin.map(|text| margin_of(text, capacity)).transpose()?.unwrap_or(0);
            let limit = capacity.checked_sub(margin).filter(|limit| *limit > 0).ok_or_else(|| {
                hinted(
                    format!("--margin leaves nothing of {}", size::format(capacity)),
                    "write --margin 512MiB or --margin 10%",
                )
            })?;
            if Some(limit) == card.capacity_bytes() {
                return Ok(card.clone());
            }
            Ok(Card { gpu: card.gpu.with_capacity(limit), unbounded: false, ..card.clone() })
        })
        .collect()
}

/// A margin in bytes, given as a size or as a share of the capacity.
pub fn margin_of(text: &str, capacity: u64) -> Result<u64> {
    let wrong = || {
        hinted(
            format!("--margin `{}` is not a size", oomph_report::clean(text)),
            "write --margin 512MiB or --margin 10%",
        )
    };
    match text.trim().strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.trim().parse().map_err(|_| wrong())?;
            if !(0.0..100.0).contains(&percent) {
                return Err(wrong());
            }
            Ok((capacity as f64 * percent / 100.0) as u64)
        }
        None => size::parse(text).map_err(|_| wrong()),
    }
}

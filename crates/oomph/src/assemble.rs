//! Makes the report from what a run left behind. Nothing here touches the system: everything comes in as values.
//!
//! Two sources are put together. The ledger knows every byte that was taken from a card, by whom, and survives any
//! death; the hook's files know what the framework made of it, and may be missing. Neither is trusted to agree with
//! the other to the byte, because a process may die at any instruction.

use std::collections::{BTreeMap, BTreeSet};

use oomph_launch::{HookBatch, HookBatches, HookOom, HookReport, HookReports, HookSite};
use oomph_report::{
    BatchPeak, BatchRange, Batches, CompiledProgram, DeviceReport, DryRunReport, DryRunSchema, Oom, Phase, Site,
    Stopped, Verdict, WorstCard,
};

use crate::cards::Card;
use crate::evidence::Evidence;
use crate::observation::{Cut, Observation, device_map};
use crate::{activity, followed, grown, waits};

mod blame;
mod fault;
mod holding;
mod host;
mod missing;
mod peaks;
mod probe;
mod statics;
mod weaknesses;

use holding::{holding, smallest};
use peaks::device;
use probe::{add_computed, add_foretold, add_found, add_probe, widen};
use weaknesses::weaknesses;

/// How many of the largest compiled programs are reported.
const MOST_COMPILED: usize = 8;

/// What vLLM raises in a program whose engine has died in a process of its own: a class, and the words of an error at the start.
const ENGINE_DIED: (&str, &str) = ("EngineDeadError", "Engine core initialization failed");

/// Makes the answer, without `command` and `next`. `probe` is the second run on cards without a limit.
pub fn assemble(cards: &[Card], run: &Observation, probe: Option<&Observation>) -> DryRunReport {
    assemble_with(cards, run, &Evidence { probe, ..Evidence::default() })
}

/// As [`assemble`], with all that is known of what the program needs.
pub fn assemble_with(cards: &[Card], run: &Observation, evidence: &Evidence<'_>) -> DryRunReport {
    let (verdict, fatal) = judge(run);
    let mut warnings = Vec::new();
    let mut devices: Vec<DeviceReport> =
        cards.iter().enumerate().map(|(index, card)| device(index, card, run, &mut warnings)).collect();
    place_errors(&mut devices, run, &fatal, &mut warnings);
    if verdict == Verdict::Oom && devices.iter().all(|device| device.oom.is_none()) {
        oom_of_the_ledger(&mut devices, run, &mut warnings);
    }
    answered_for(&mut devices, run);
    match (verdict, evidence.found, evidence.probe) {
        (Verdict::Oom | Verdict::Recovered, None, Some(probe)) => {
            add_probe(&mut devices, cards, probe, evidence, &mut warnings);
        }
        (Verdict::Fits | Verdict::Oom | Verdict::Recovered, Some(found), probe) => {
            add_found(&mut devices, found, probe.unwrap_or(run));
        }
        (Verdict::Fits, None, _) => {
            add_foretold(&mut devices, evidence.foretold);
            add_computed(&mut devices, cards, run);
            for (device, spread) in devices.iter_mut().zip(evidence.spreads) {
                widen(&mut device.peak, spread.as_ref());
            }
        }
        _ => {}
    }
    let loops = followed::loops(run, &devices, &[]);
    let foreseen = if verdict == Verdict::Fits { grown::foresee(run, &devices, &loops) } else { Vec::new() };
    let loops = if foreseen.is_empty() { loops } else { followed::loops(run, &devices, &foreseen) };
    let verdict = followed::judge(verdict, &mut devices, &loops, &foreseen);
    // What was left out for certain may take more than all that ran.
    let left_out = run.hooks.reports.iter().flat_map(|hook| &hook.unreached).any(|one| one.certain);
    let verdict = if verdict == Verdict::Fits && left_out { Verdict::Unsure } else { verdict };
    weaknesses(run, verdict, &devices, cards, &mut warnings);
    let holding = match verdict {
        Verdict::Fits | Verdict::Oom | Verdict::Recovered => holding(&devices, cards, run, evidence.run_on),
        Verdict::Failed | Verdict::Unsure | Verdict::NoGpuUse => Vec::new(),
    };
    if takes_the_most(run) {
        at_most(&mut devices);
    }
    let tight = verdict == Verdict::Fits && devices.iter().any(is_tight);
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    let stopped = stopped(run, verdict);
    // What ended on its own has done all that it does.
    let early = matches!(
        stopped,
        Stopped::Budget | Stopped::Steps | Stopped::Timeout | Stopped::Interrupted | Stopped::Waiting
    );
    let unreached = followed::unreached(run, early);
    DryRunReport {
        schema: DryRunSchema,
        verdict,
        exit_status: run.exit_status,
        stopped,
        steps: run.hooks.reports.iter().map(|hook| hook.optimizer_steps).max().unwrap_or(0),
        elapsed_seconds: (run.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
        frameworks: frameworks(&run.hooks),
        devices,
        fits_on: holding.iter().map(|card| card.gpu.clone()).collect(),
        activity: None,
        warnings,
        command: Vec::new(),
        smallest: smallest(holding),
        next: Vec::new(),
        batches: batches(&run.hooks),
        compiled: compiled(&run.hooks),
        worst: None,
        loops,
        unreached,
        tight,
        unsure: None,
        waits: waits::of(run).filter(|_| verdict == Verdict::Unsure),
        host: (verdict == Verdict::Failed).then(|| host::shortage(run)).flatten(),
        writes: run.writes.clone(),
        fault: (verdict == Verdict::Failed).then(|| fault::of(run)).flatten(),
        fallback: fallback(run).filter(|_| verdict == Verdict::Failed).map(str::to_owned),
        missing_card: missing::of(run, verdict),
    }
}

/// Puts the errors that frameworks raised with the cards that refused. Those of the processes in `fatal` ended the program.
fn place_errors(devices: &mut [DeviceReport], run: &Observation, fatal: &BTreeSet<u32>, warnings: &mut Vec<String>) {
    let refused_on = |card: usize| run.ledger.devices().get(card).map_or(0, |books| books.refused_bytes);
    for hook in &run.hooks.reports {
        let Some(oom) = &hook.oom else { continue };
        let is_fatal = fatal.contains(&hook.pid);
        // Another process may have raised it, which names its card and its line.
        let (raiser, oom) = if is_fatal { blame::origin(hook, oom, run) } else { (hook, oom) };
        let index = device_map(raiser, &run.ledger).get(&oom.device).copied().unwrap_or(oom.device as usize);
        let Some(device) = devices.get_mut(index) else { continue };
        if is_fatal {
            // Of several ranks that died, the first shows the cause.
            let oom = device.oom.get_or_insert_with(|| oom_of(oom, refused_on(index)));
            // A process of a library's was forked at the line that started it; where it was used is the program's to say.
            if let Some(site) = used_at(run, hook.pid) {
                oom.site = Some(site_of(site));
            }
            continue;
        }
        if blame::was_relayed(hook, run, fatal) {
            continue;
        }
        if oom.fatal {
            warnings.push(format!(
                "a process of the program (pid {}) died of an out-of-memory error, and the program went on",
                hook.pid
            ));
        }
        device.caught_ooms.push(oom_of(oom, refused_on(index)));
    }
}

/// The user's line at which the program learnt that an engine had died, where that is another process than the engine's.
fn used_at(run: &Observation, engine: u32) -> Option<&HookSite> {
    let others = run.hooks.reports.iter().filter(|hook| hook.pid != engine);
    let failures = others.filter_map(|hook| hook.failure.as_ref());
    let (class, words) = ENGINE_DIED;
    let of_engine = failures.filter(|failure| failure.kind == class || failure.message.starts_with(words));
    of_engine.filter_map(|failure| failure.site.as_ref()).next()
}

/// Marks the cards of ranks that did not run with the card that they are like: that of the rank before them.
fn answered_for(devices: &mut [DeviceReport], run: &Observation) {
    let running = run.hooks.reports.iter().flat_map(|hook| &hook.ranks_run);
    let Some(last) = running.max() else { return };
    let world = run.hooks.reports.iter().filter_map(|hook| hook.world_size).max().unwrap_or(0).max(last + 1);
    let mut like = None;
    for device in devices {
        if device.processes > 0 {
            like = Some(device.index);
        } else if device.index < world {
            device.as_device = like;
        }
    }
}

/// Whether the run took the most that there can be for a size that was not computed.
fn takes_the_most(run: &Observation) -> bool {
    run.hooks.reports.iter().flat_map(|hook| &hook.unknown_sizes).any(|size| size.taken > size.low)
}

/// Says of the cards that were used that no more was needed than was seen, and nothing of how much less.
fn at_most(devices: &mut [DeviceReport]) {
    for device in devices.iter_mut().filter(|device| device.processes > 0) {
        device.peak_is_maximum = true;
        device.peak.low_bytes = 0;
        if let Some(needed) = &mut device.needed {
            needed.low_bytes = 0;
        }
    }
}

/// Whether a card has less left than the upper end of the interval asks for.
fn is_tight(device: &DeviceReport) -> bool {
    device.processes > 0 && device.capacity_bytes.is_some_and(|capacity| device.peak.high_bytes > capacity)
}

/// Which of several cards decides, with its ranks. It takes into account whose memory it was, where that is known.
pub fn worst(devices: &[DeviceReport], run: &Observation) -> Option<WorstCard> {
    let mut worst = WorstCard::of(devices)?;
    let on_it = |hook: &&HookReport| {
        let map = device_map(hook, &run.ledger);
        hook.devices.iter().any(|device| {
            device.reserved_peak_bytes.is_some_and(|bytes| bytes > 0)
                && map.get(&device.index) == Some(&(worst.index as usize))
        })
    };
    let ranks: BTreeSet<u32> = run.hooks.reports.iter().filter(on_it).filter_map(|hook| hook.rank).collect();
    let all: BTreeSet<u32> = run.hooks.reports.iter().filter_map(|hook| hook.rank).collect();
    // A program of one process calls itself rank 0, which is of no use to anybody.
    if all.len() > 1 {
        worst.ranks = ranks.into_iter().collect();
    }
    Some(worst)
}

/// The verdict, and the processes that an out-of-memory error ended for the whole program.
fn judge(run: &Observation) -> (Verdict, BTreeSet<u32>) {
    let reports = &run.hooks.reports;
    // Whatever the others did afterwards, nothing is known of what this process would have done.
    if run.hooks.crashed_at.is_some() {
        return (Verdict::Failed, BTreeSet::new());
    }
    let ended_well = run.exit_status == 0 && run.cut.is_none();
    let dead: BTreeSet<u32> =
        reports.iter().filter(|hook| hook.oom.as_ref().is_some_and(|oom| oom.fatal)).map(|hook| hook.pid).collect();
    // A rank that died can make the others wait for it until the time is up. A program that ended well although a
    // process of it died has recovered.
    let unread = || reports.iter().any(|hook| hook.oom.as_ref().is_some_and(|oom| oom.unread));
    if (!ended_well || unread()) && !dead.is_empty() {
        return (Verdict::Oom, dead);
    }
    if fault::own(run).is_some() {
        return (Verdict::Failed, BTreeSet::new());
    }
    if run.cut.is_some() || run.exit_status == 0 {
        let caught = reports.iter().any(|hook| hook.oom.is_some());
        let verdict = match used_a_gpu(run) {
            _ if caught => Verdict::Recovered,
            // What would have come is not known.
            _ if waits::is_unsure(run) => Verdict::Unsure,
            // What the CPU did says nothing of the card.
            _ if fallback(run).is_some() => Verdict::Failed,
            // It asked for a card with a CUDA runtime of its own, and went on without one.
            _ if statics::to_blame(run).is_some() => Verdict::Failed,
            true => Verdict::Fits,
            false => Verdict::NoGpuUse,
        };
        return (verdict, BTreeSet::new());
    }
    let blamed = blame::processes(run);
    if !blamed.is_empty() {
        return (Verdict::Oom, blamed);
    }
    if unexplained_refusal(run) { (Verdict::Oom, BTreeSet::new()) } else { (Verdict::Failed, BTreeSet::new()) }
}

/// Why something other than the cards did the work.
fn fallback(run: &Observation) -> Option<&str> {
    run.hooks.reports.iter().find_map(|hook| hook.fallback.as_deref())
}

/// Whether a program came as far as the memory of a card.
pub fn used_a_gpu(run: &Observation) -> bool {
    run.ledger.processes().iter().any(|process| process.devices.iter().any(|books| books.peak_bytes > 0))
}

/// Whether the card refused something to a process whose end no framework reported. Where one did, refusals
/// alone prove nothing: PyTorch's allocator gives its cache back and asks again. A process that was refused even its
/// context has no allocator yet.
fn unexplained_refusal(run: &Observation) -> bool {
    run.ledger.processes().iter().any(|process| {
        let refused = process.devices.iter().any(|books| books.refusals > 0);
        if refused && process.devices.iter().all(|books| books.peak_bytes == 0) {
            return true;
        }
        let reported = run.hooks.reports.iter().filter(|hook| hook.pid == process.pid).any(reports_its_end);
        refused && !reported
    })
}

/// Whether a framework was there whose out-of-memory errors the hook knows.
fn reports_its_end(hook: &HookReport) -> bool {
    ["torch", "jax", "tensorflow", "onnxruntime"].iter().any(|name| hook.frameworks.contains_key(*name))
}

/// How batches differ, by the process that saw the largest.
fn batches(hooks: &HookReports) -> Option<Batches> {
    let largest = |batches: &&HookBatches| batches.longest.as_ref().map_or(batches.seen.max, |batch| batch.elements);
    let batches = hooks.reports.iter().filter_map(|hook| hook.batches.as_ref()).max_by_key(largest)?;
    let peak = |batch: &HookBatch| BatchPeak {
        step: batch.step,
        elements: batch.elements,
        shape: batch.shape.clone(),
        peak_allocated: batch.peak_allocated,
        peak_reserved: batch.peak_reserved,
    };
    let seen = &batches.seen;
    Some(Batches {
        seen: BatchRange { min: seen.min, max: seen.max, unit: seen.unit.clone() },
        longest: batches.longest.as_ref().map(peak),
        usual: batches.usual.as_ref().map(peak),
    })
}

/// The largest compiled programs of any process.
fn compiled(hooks: &HookReports) -> Vec<CompiledProgram> {
    let mut all: Vec<CompiledProgram> = hooks
        .reports
        .iter()
        .flat_map(|hook| &hook.compiled)
        .map(|program| CompiledProgram {
            name: program.name.clone(),
            argument_bytes: program.argument_bytes,
            output_bytes: program.output_bytes,
            alias_bytes: program.alias_bytes,
            temp_bytes: program.temp_bytes,
        })
        .collect();
    all.sort_by_key(|program| std::cmp::Reverse(program.need_bytes()));
    all.dedup();
    all.truncate(MOST_COMPILED);
    all
}

fn stopped(run: &Observation, verdict: Verdict) -> Stopped {
    if verdict == Verdict::Oom {
        return Stopped::Oom;
    }
    match run.cut {
        Some(Cut::TimeUp) => return Stopped::Timeout,
        Some(Cut::Interrupted) => return Stopped::Interrupted,
        Some(Cut::Listening) => return Stopped::Listening,
        Some(Cut::Waiting) => return Stopped::Waiting,
        None => {}
    }
    let said = run.hooks.reports.iter().find_map(|hook| hook.stopped);
    match said {
        Some(why @ (Stopped::Budget | Stopped::PeakStable | Stopped::Steps)) if verdict != Verdict::Failed => why,
        _ => Stopped::Exit,
    }
}

fn frameworks(hooks: &HookReports) -> BTreeMap<String, String> {
    // The order of the reports is by rank; the first one to name a framework is heard.
    let mut all = BTreeMap::new();
    for (name, version) in hooks.reports.iter().flat_map(|hook| &hook.frameworks) {
        all.entry(name.clone()).or_insert_with(|| version.clone());
    }
    all
}

/// The framework's error. Where its own words do not tell the size (PyTorch 2.3 with cudaMallocAsync), it is `refused`:
/// what the card refused last.
fn oom_of(oom: &HookOom, refused: u64) -> Oom {
    Oom {
        requested_bytes: if oom.requested_bytes > 0 { oom.requested_bytes } else { refused },
        allocated_bytes: oom.allocated_bytes,
        reserved_bytes: oom.reserved_bytes,
        free_bytes: Some(oom.free_bytes),
        message: oom.message.clone(),
        step: (oom.step > 0).then_some(oom.step),
        phase: oom.phase,
        site: oom.site.as_ref().map(site_of),
        would_need_bytes: None,
        forecast: false,
        instead: None,
        library_site: oom.library_site.as_ref().map(site_of),
        module: oom.module.clone(),
        model: oom.model.clone(),
    }
}

pub fn site_of(site: &HookSite) -> Site {
    Site {
        file: site.file.clone(),
        line: site.line.into(),
        function: site.function.clone(),
        text: site.text.clone(),
        cell: site.cell.map(u64::from),
    }
}

/// Where no framework reported the error, the last refusal is all that is known of it.
fn oom_of_the_ledger(devices: &mut [DeviceReport], run: &Observation, warnings: &mut Vec<String>) {
    let mut refused = run.ledger.devices().iter().zip(devices).enumerate();
    let Some((index, (books, device))) = refused.find(|(_, (books, _))| books.refusals > 0) else { return };
    // The books round up to what the card hands out.
    let last = run.refusals.iter().find(|refusal| refusal.card == index);
    let requested_bytes = last.map_or(books.refused_bytes, |refusal| refusal.bytes);
    let size = oomph_gpu::size::format(requested_bytes);
    let site = match last.map(|refusal| activity::own_line(&refusal.frames)) {
        Some(Err(function)) => {
            let place = function.map(|name| format!(" in {name}")).unwrap_or_default();
            warnings.push(format!(
                "source line of the failed allocation{place} unknown: build with line tables (-g; debug = \
                 \"line-tables-only\" in Cargo's profile)"
            ));
            None
        }
        known => known.and_then(Result::ok),
    };
    device.oom = Some(Oom {
        requested_bytes,
        allocated_bytes: None,
        reserved_bytes: None,
        free_bytes: last.map(|refusal| refusal.free_bytes),
        message: format!("the card refused an allocation of {size}"),
        step: None,
        phase: Phase::Other,
        site,
        would_need_bytes: None,
        forecast: false,
        library_site: None,
        module: None,
        model: None,
        instead: None,
    });
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;

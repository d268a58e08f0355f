//! From what a run left behind to the answer. Nothing here touches the system: everything comes in as values.
//!
//! Two sources are put together. The ledger knows every byte that was taken from a card, by whom, and survives any
//! death; the hook's files know what the framework made of it, and may be missing. Neither is trusted to agree with
//! the other to the byte, because a process may die at any instruction.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oomph_gpu::Catalogue;
use oomph_launch::{HookOom, HookReport, HookReports};
use oomph_ledger::{Kind, Ledger};
use oomph_report::{
    CardThatHolds, CompiledProgram, DeviceReport, DryRunReport, DryRunSchema, ModelledTerm, Oom, Peak, Phase, Pool,
    Site, Stopped, Verdict, WorstCard,
};

use crate::cards::Card;
use crate::whose::ProcessMemory;
use crate::{activity, architectures, pool};

/// How many of the smallest cards are named in the text.
const SMALLEST: usize = 5;
/// How many of them may be slices of cards, laptops' cards or modules.
const SMALLEST_SPECIAL: usize = 2;

/// How many of the largest compiled programs are reported.
const MOST_COMPILED: usize = 8;

/// Processes count as being on a card at the same time while their peaks add up to no more than this part of the
/// card's peak beyond it, in percent: two that run together seldom peak in the very same instant.
const TOGETHER_PERCENT: u64 = 105;

/// What a run left behind.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The books.
    pub ledger: Ledger,
    /// What the hook saw.
    pub hooks: HookReports,
    /// The memory over time of the processes that left a recording.
    pub memory: Vec<ProcessMemory>,
    /// The memory calls of the processes that ended in good order.
    pub activities: Vec<oomph_launch::activity::Activity>,
    /// What the cards refused last to each process, as far as the calls that led to it are known.
    pub refusals: Vec<oomph_launch::activity::Refusal>,
    /// What could not be read of what was left.
    pub warnings: Vec<String>,
    /// The exit status, as a shell shows it.
    pub exit_status: i32,
    /// What ended it before it was done.
    pub cut: Option<Cut>,
    /// How long it ran.
    pub elapsed: Duration,
    /// The end of its standard error, where that was captured.
    pub stderr_tail: String,
}

/// Why a run was ended before it was done. What it took until then is known all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Its time was up.
    TimeUp,
    /// The user, or the system, sent a signal: a server goes on until somebody does.
    Interrupted,
}

/// Makes the answer, without `command` and `next`. `probe` is the second run on cards without a limit.
pub fn assemble(cards: &[Card], run: &Observation, probe: Option<&Observation>) -> DryRunReport {
    let (verdict, fatal) = judge(run);
    let mut warnings = Vec::new();
    let mut devices: Vec<DeviceReport> =
        cards.iter().enumerate().map(|(index, card)| device(index, card, run, &mut warnings)).collect();
    let refused_on = |card: usize| run.ledger.devices().get(card).map_or(0, |books| books.refused_bytes);
    for hook in &run.hooks.reports {
        let Some(oom) = &hook.oom else { continue };
        let index = device_map(hook, &run.ledger).get(&oom.device).copied().unwrap_or(oom.device as usize);
        let Some(device) = devices.get_mut(index) else { continue };
        if fatal.contains(&hook.pid) {
            // Of several ranks that died, the first tells the story.
            device.oom.get_or_insert_with(|| oom_of(oom, refused_on(index)));
        } else {
            if oom.fatal {
                warnings.push(format!(
                    "a process of the program (pid {}) died of an out-of-memory error, and the program went on",
                    hook.pid
                ));
            }
            device.caught_ooms.push(oom_of(oom, refused_on(index)));
        }
    }
    if verdict == Verdict::Oom && devices.iter().all(|device| device.oom.is_none()) {
        oom_of_the_ledger(&mut devices, run, &mut warnings);
    }
    if let (Verdict::Oom, Some(probe)) = (verdict, probe) {
        add_probe(&mut devices, cards, probe, &mut warnings);
    }
    weaknesses(run, verdict, &devices, cards, &mut warnings);
    let holding =
        if matches!(verdict, Verdict::Fits | Verdict::Oom) { holding(&devices, cards, run) } else { Vec::new() };
    let mut seen = BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    DryRunReport {
        schema: DryRunSchema,
        verdict,
        exit_status: run.exit_status,
        stopped: stopped(run, verdict),
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
        compiled: compiled(&run.hooks),
        worst: None,
    }
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
    // A program of one process calls itself rank 0, which tells nobody anything.
    if all.len() > 1 {
        worst.ranks = ranks.into_iter().collect();
    }
    Some(worst)
}

/// The verdict, and the processes that an out-of-memory error ended for the whole program.
fn judge(run: &Observation) -> (Verdict, BTreeSet<u32>) {
    let reports = &run.hooks.reports;
    let ended_well = run.exit_status == 0 && run.cut.is_none();
    let dead: BTreeSet<u32> =
        reports.iter().filter(|hook| hook.oom.as_ref().is_some_and(|oom| oom.fatal)).map(|hook| hook.pid).collect();
    // A rank that died can make the others wait for it until the time is up. A program that ended well although a
    // process of it died has got over it.
    if !ended_well && !dead.is_empty() {
        return (Verdict::Oom, dead);
    }
    if run.cut.is_some() || run.exit_status == 0 {
        return (if used_a_gpu(run) { Verdict::Fits } else { Verdict::NoGpuUse }, BTreeSet::new());
    }
    if unexplained_refusal(run) { (Verdict::Oom, BTreeSet::new()) } else { (Verdict::Failed, BTreeSet::new()) }
}

/// Whether a program came as far as the memory of a card.
pub fn used_a_gpu(run: &Observation) -> bool {
    run.ledger.processes().iter().any(|process| process.devices.iter().any(|books| books.peak_bytes > 0))
}

/// Whether the card refused something to a process of which no framework told how it ended. Where one did, refusals
/// alone prove nothing: PyTorch's allocator gives its cache back and asks again. A process that was refused even its
/// context has no allocator yet.
fn unexplained_refusal(run: &Observation) -> bool {
    run.ledger.processes().iter().any(|process| {
        let refused = process.devices.iter().any(|books| books.refusals > 0);
        if refused && process.devices.iter().all(|books| books.peak_bytes == 0) {
            return true;
        }
        let told = run.hooks.reports.iter().filter(|hook| hook.pid == process.pid).any(tells_its_end);
        refused && !told
    })
}

/// Whether a framework was there whose out-of-memory errors the hook knows.
fn tells_its_end(hook: &HookReport) -> bool {
    ["torch", "jax", "tensorflow", "onnxruntime"].iter().any(|name| hook.frameworks.contains_key(*name))
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
        None => {}
    }
    let said = run.hooks.reports.iter().find_map(|hook| hook.stopped.as_deref());
    match said {
        Some("peak-stable") if verdict != Verdict::Failed => Stopped::PeakStable,
        Some("steps") if verdict != Verdict::Failed => Stopped::Steps,
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

/// Which card of the ledger each device of a process is. The two count alike unless the process was shown only some of
/// the cards (`CUDA_VISIBLE_DEVICES`); then the cards that it used are matched in order.
pub fn device_map(hook: &HookReport, ledger: &Ledger) -> BTreeMap<u32, usize> {
    let seen: BTreeSet<u32> =
        hook.devices.iter().filter(|device| device.allocated_peak_bytes > 0).map(|d| d.index).collect();
    let used: Vec<usize> = ledger
        .processes()
        .iter()
        .filter(|process| process.pid == hook.pid)
        .flat_map(|process| process.devices.iter().enumerate())
        .filter(|(_, books)| books.peak_bytes > 0)
        .map(|(index, _)| index)
        .collect();
    let alike = used.is_empty() || seen.iter().all(|index| used.contains(&(*index as usize)));
    if alike {
        return hook.devices.iter().map(|device| (device.index, device.index as usize)).collect();
    }
    seen.into_iter().zip(used).collect()
}

/// A process on one card.
struct Share {
    peak_bytes: u64,
    context_bytes: u64,
    /// Reserved, if it said, and allocated, where a framework told.
    framework: Option<(Option<u64>, u64)>,
    /// Its pool, where it is not PyTorch's.
    pool: Option<Pool>,
}

/// The processes on a card, largest first.
fn shares(index: usize, run: &Observation) -> Vec<Share> {
    let mut shares: Vec<Share> = run
        .ledger
        .processes()
        .iter()
        .filter_map(|process| {
            let books = process.devices.get(index).filter(|books| books.peak_bytes > 0)?;
            let framework = run.hooks.reports.iter().filter(|hook| hook.pid == process.pid).find_map(|hook| {
                let map = device_map(hook, &run.ledger);
                let device = hook.devices.iter().find(|device| map.get(&device.index) == Some(&index))?;
                let told = (device.reserved_peak_bytes, device.allocated_peak_bytes);
                Some((told, pool::of(hook, device.index)))
            });
            Some(Share {
                peak_bytes: books.peak_bytes,
                context_bytes: books.at_peak(Kind::Context),
                framework: framework.map(|(told, _)| told),
                pool: framework.and_then(|(_, pool)| pool),
            })
        })
        .collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.peak_bytes));
    shares
}

/// The peak of a card and how many processes were on it at once.
///
/// The processes that were on the card at its fullest are taken to be the largest ones whose peaks add up to about
/// the card's peak: all of them for ranks that share a card, one for stages that follow each other.
fn peak(index: usize, card: &Card, run: &Observation) -> (Peak, u32, u32) {
    let shares = shares(index, run);
    let on_card = run.ledger.devices().get(index).map_or(0, |device| device.peak_bytes);
    let process_bytes = shares.first().map_or(0, |largest| largest.peak_bytes).max(on_card);
    let limit = u128::from(process_bytes) * u128::from(TOGETHER_PERCENT) / 100;
    let mut sum = 0_u128;
    let together: Vec<&Share> = shares
        .iter()
        .filter(|share| {
            let fits = sum + u128::from(share.peak_bytes) <= limit;
            if fits {
                sum += u128::from(share.peak_bytes);
            }
            fits
        })
        .collect();
    let context_bytes = together.iter().fold(0_u64, |sum, share| sum.saturating_add(share.context_bytes));
    let context_bytes = context_bytes.min(process_bytes);
    let told: Vec<(Option<u64>, u64)> = together.iter().filter_map(|share| share.framework).collect();
    let framework_bytes = process_bytes - context_bytes;
    let reserved: Option<u64> =
        told.iter().map(|share| share.0).try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)));
    let reserved = reserved.filter(|_| !told.is_empty()).map(|bytes| bytes.min(framework_bytes));
    let allocated = told.iter().map(|share| share.1).fold(0, u64::saturating_add);
    let allocated = (!told.is_empty()).then(|| allocated.min(reserved.unwrap_or(framework_bytes)));
    let contexts = u64::try_from(together.iter().filter(|share| share.context_bytes > 0).count()).unwrap_or(0);
    let cost = &card.gpu.context;
    let below = cost.expected_bytes.saturating_sub(cost.low_bytes).saturating_mul(contexts);
    let above = cost.high_bytes.saturating_sub(cost.expected_bytes).saturating_mul(contexts);
    let peak = Peak {
        process_bytes,
        reserved_bytes: reserved,
        allocated_bytes: allocated,
        context_bytes,
        other_bytes: process_bytes - context_bytes - reserved.unwrap_or(0),
        low_bytes: process_bytes.saturating_sub(below),
        high_bytes: process_bytes.saturating_add(above),
    };
    (peak, u32::try_from(shares.len()).unwrap_or(u32::MAX), u32::try_from(contexts).unwrap_or(u32::MAX))
}

fn device(index: usize, card: &Card, run: &Observation, warnings: &mut Vec<String>) -> DeviceReport {
    let (peak, processes, contexts) = peak(index, card, run);
    if processes > 1 && contexts < processes {
        warnings.push(format!(
            "{processes} processes used GPU {index} one after another or at different times; the figures are those of \
             its fullest moment"
        ));
    }
    let cost = &card.gpu.context;
    let times = |bytes: u64| bytes.saturating_mul(contexts.into());
    let modelled = (contexts > 0).then(|| ModelledTerm {
        what: "context".into(),
        bytes: peak.context_bytes,
        low_bytes: times(cost.low_bytes),
        high_bytes: times(cost.high_bytes),
        source: cost.source.clone(),
    });
    DeviceReport {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        gpu: card.label.clone(),
        capacity_bytes: card.capacity_bytes(),
        peak,
        oom: None,
        gpu_name: card.gpu.name.clone(),
        processes,
        needed: None,
        needed_is_minimum: false,
        modelled: modelled.into_iter().collect(),
        caught_ooms: Vec::new(),
        whose: None,
        // Of several processes with pools on one card, the largest tells how they are.
        pool: shares(index, run).into_iter().find_map(|share| share.pool),
    }
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
        phase: match oom.phase.as_str() {
            "forward" => Phase::Forward,
            "backward" => Phase::Backward,
            "optimizer" => Phase::Optimizer,
            "load" => Phase::Load,
            "eval" => Phase::Eval,
            "generate" => Phase::Generate,
            _ => Phase::Other,
        },
        site: oom.site.as_ref().map(|site| Site {
            file: site.file.clone(),
            line: site.line.into(),
            function: site.function.clone(),
            text: None,
        }),
        would_need_bytes: None,
    }
}

/// Where no framework told of the error, the last refusal is all that is known of it.
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
                "the line{place} that asked for what the card refused is not known: build with line tables (-g; debug = \
                 \"line-tables-only\" in Cargo's profile), and it is told"
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
    });
}

fn add_probe(devices: &mut [DeviceReport], cards: &[Card], probe: &Observation, warnings: &mut Vec<String>) {
    let (verdict, _) = judge(probe);
    // What died on a card without a limit may have died before its peak.
    let early = verdict != Verdict::Fits || probe.cut.is_some();
    for (index, (device, card)) in devices.iter_mut().zip(cards).enumerate() {
        let (mut needed, _, _) = peak(index, card, probe);
        if device.pool.is_some() {
            needed = pool::without_slack(&needed);
        }
        // The first run reached its own peak and asked for more, so the need is no less than that.
        if let Some(oom) = &device.oom {
            let least = device.peak.process_bytes.max(card_use(device, oom).saturating_add(oom.requested_bytes));
            if early && needed.process_bytes < least {
                let more = least - needed.process_bytes;
                needed.process_bytes = least;
                needed.low_bytes = needed.low_bytes.saturating_add(more);
                needed.high_bytes = needed.high_bytes.saturating_add(more);
                needed.other_bytes = needed.other_bytes.saturating_add(more);
            }
        }
        if needed.process_bytes == 0 {
            continue;
        }
        device.needed = Some(needed);
        device.needed_is_minimum = early;
        let seen = card.description(index).capacity_bytes;
        let for_the_pool = device.pool.as_ref().zip(needed.allocated_bytes);
        let least = for_the_pool.and_then(|(pool, allocated)| pool::least_capacity(pool, seen, allocated)).unwrap_or(0);
        if let Some(oom) = &mut device.oom {
            oom.would_need_bytes = Some(needed.process_bytes.max(least));
        }
    }
    if early {
        let why = if probe.cut.is_some() { "was not done when its time was up" } else { "failed as well" };
        warnings.push(format!(
            "the second run, on cards without a limit, {why}, so the program may need more than is said"
        ));
    }
}

/// What was in use when the error came, without what can be given back, in bytes.
fn card_use(device: &DeviceReport, oom: &Oom) -> u64 {
    let framework = oom.allocated_bytes.or(device.peak.allocated_bytes).unwrap_or(0);
    framework.saturating_add(device.peak.context_bytes).saturating_add(device.peak.other_bytes)
}

/// What weakens the answer.
fn weaknesses(
    run: &Observation,
    verdict: Verdict,
    devices: &[DeviceReport],
    cards: &[Card],
    warnings: &mut Vec<String>,
) {
    warnings.extend(run.hooks.reports.iter().flat_map(|hook| hook.warnings.iter().cloned()));
    warnings.extend(run.warnings.iter().cloned());
    warnings.extend(run.ledger.warnings().into_iter().map(str::to_owned));
    let unsupported = run.ledger.unsupported_calls();
    if !unsupported.is_empty() {
        warnings.push(format!(
            "the program called what the virtual GPU does not support, and was told so: {}",
            unsupported.join(", ")
        ));
    }
    for path in &run.hooks.unreadable {
        warnings.push(format!("what the hook wrote to {} cannot be read", path.display()));
    }
    warnings.extend(cards.iter().filter_map(|card| architectures::missing(run, &card.gpu)));
    match run.cut {
        Some(Cut::TimeUp) => {
            warnings.push("the time was up before the program was done, so that its peak may be yet to come".into());
        }
        Some(Cut::Interrupted) => warnings.push(
            "the program was interrupted: its figures are of what it did until then, and a peak may be yet to come"
                .into(),
        ),
        None => {}
    }
    if verdict == Verdict::Failed && run.ledger.refusals() > 0 {
        warnings.push(format!(
            "a card refused {} allocations before the program failed, so lack of memory may be behind it after all",
            run.ledger.refusals()
        ));
    }
    // A library may keep the error to itself: CubeCL's thread goes on, and what it computes from there on is nothing.
    if verdict == Verdict::Fits && unexplained_refusal(run) {
        let last = run.refusals.first().map(|refusal| oomph_gpu::size::format(refusal.bytes));
        let last = last.map(|size| format!(", the last of {size},")).unwrap_or_default();
        warnings.push(format!(
            "the card refused {} allocations{last} and the program went on and ended well: unless it is made to do with \
             less, it does not fit; see what it takes on a card with more (--vram)",
            run.ledger.refusals()
        ));
    }
    for (device, card) in devices.iter().zip(cards) {
        let low = card.gpu.capacity_low_bytes;
        if verdict == Verdict::Fits && !card.unbounded && device.peak.process_bytes > low {
            warnings.push(format!(
                "some drivers report only {} for this card, which would not be enough on GPU {}",
                oomph_gpu::size::format(low),
                device.index
            ));
        }
    }
}

/// The catalogue's cards that hold what every card of the run had to hold, in the catalogue's order.
fn holding(devices: &[DeviceReport], cards: &[Card], run: &Observation) -> Vec<CardThatHolds> {
    let used: Vec<(&DeviceReport, &Card)> =
        devices.iter().zip(cards).filter(|(device, _)| device.processes > 0).collect();
    let lean = |device: &DeviceReport| {
        let need = device.need()?;
        Some(if device.pool.is_some() { pool::without_slack(&need) } else { need })
    };
    let needs: Option<Vec<Peak>> = used.iter().map(|(device, _)| lean(device)).collect();
    // A card that nobody asked for more than it had tells what it needs; one that died and was not probed does not.
    let Some(needs) = needs else { return Vec::new() };
    let need = |peak: &Peak| peak.process_bytes.saturating_sub(peak.context_bytes);
    let all = used.iter().zip(&needs).map(|((device, card), peak)| (device, peak, card));
    let Some(most) = all.max_by_key(|(_, peak, _)| need(peak)) else { return Vec::new() };
    // Every process that was on the card brings a context of its own, and those cost differently on different cards.
    let (device, peak, card) = most;
    let contexts = match peak.context_bytes.checked_div(card.gpu.context.expected_bytes) {
        Some(contexts @ 1..) => contexts.min(device.processes.max(1).into()),
        _ => 1,
    };
    let bytes = need(peak);
    let seen = card.description(device.index as usize).capacity_bytes;
    // What was refused, and survived, would not have been had on a smaller card either; what else it would do there was
    // not seen.
    let least = if used.iter().all(|(device, _)| device.caught_ooms.is_empty()) { 0 } else { seen };
    let allocated = peak.allocated_bytes.unwrap_or(0);
    Catalogue::builtin()
        .smallest_that_hold(bytes)
        .filter(|gpu| gpu.capacity_bytes >= least)
        .filter(|gpu| architectures::all_run_on(run, gpu))
        .filter(|gpu| device.pool.is_none_or(|pool| pool::limit_on(&pool, seen, gpu.capacity_bytes) >= allocated))
        .filter_map(|gpu| {
            let contexts = gpu.context.expected_bytes.saturating_mul(contexts);
            let spare_bytes = gpu.capacity_bytes.checked_sub(bytes.checked_add(contexts)?)?;
            Some(CardThatHolds {
                gpu: gpu.id.clone(),
                gpu_name: gpu.name.clone(),
                kind: gpu.kind,
                capacity_bytes: gpu.capacity_bytes,
                spare_bytes,
            })
        })
        .collect()
}

/// Some of the smallest cards. Slices, laptops' cards and modules come in so many sizes that they would crowd out what
/// can be bought or rented as a card.
fn smallest(holding: Vec<CardThatHolds>) -> Vec<CardThatHolds> {
    let (mut ordinary, mut special) = (0, 0);
    let mut chosen = holding;
    chosen.retain(|card| {
        let (count, most) = if card.kind.is_card() {
            (&mut ordinary, SMALLEST - SMALLEST_SPECIAL)
        } else {
            (&mut special, SMALLEST_SPECIAL)
        };
        *count += 1;
        *count <= most
    });
    chosen
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;

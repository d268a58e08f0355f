//! Tests the report that is made from a run.

use std::path::PathBuf;

use oomph_launch::activity::Refusal;
use oomph_launch::{
    HookDevice, HookFailure, HookFault, HookHostShortage, HookLimit, HookSite, HookUnknownSize, LimitScales,
};
use oomph_ledger::NoteKind;
use oomph_protocol::hook::HookEngine;

use super::holding::{SMALLEST, SMALLEST_SPECIAL};
use oomph_report::CapacityKnown;

use super::*;
use crate::evidence::{Foretold, Found};
use crate::hand_made::{CONTEXT, MIB, card, died, hook, ledger, run};
use crate::recordings::ProcessMemory;

#[test]
fn a_program_that_fits() {
    let cards = [card("rtx-3060")];
    let books = ledger(&cards, &[4500], &[(7, 0, 4500, 0)], &[]);
    let mut reported = hook(7, &[(0, 4300, 4000)]);
    reported.stopped = Some(Stopped::PeakStable);
    let report = assemble(&cards, &run(books, vec![reported], 0), None);
    assert_eq!((report.verdict, report.stopped, report.steps), (Verdict::Fits, Stopped::PeakStable, 4));
    let peak = report.devices[0].peak;
    assert_eq!(peak.process_bytes, 4500 * MIB);
    assert_eq!((peak.reserved_bytes, peak.allocated_bytes), (Some(4300 * MIB), Some(4000 * MIB)));
    assert_eq!((peak.context_bytes, peak.other_bytes), (CONTEXT, 65 * MIB));
    assert!(peak.low_bytes < peak.process_bytes && peak.process_bytes < peak.high_bytes);
    assert!(report.fits_on.contains(&"rtx-3060".to_owned()) && !report.fits_on.contains(&"gtx-1650".to_owned()));
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

/// Of 24 GB, 92 % are an engine's; with the smaller cards of the catalogue only its cache is smaller.
#[test]
fn an_engine_that_fits_says_itself_which_cards_do() {
    let cards = [card("rtx-4090")];
    let books = ledger(&cards, &[22_500], &[(7, 0, 22_500, 0)], &[]);
    let mut reported = hook(7, &[(0, 22_300, 22_200)]);
    reported.engine =
        Some(HookEngine { share: 0.92, needed_bytes: 896 * MIB, available_bytes: (15 * 1024 + 174) * MIB });
    let report = assemble(&cards, &run(books, vec![reported], 0), None);
    let found = report.devices[0].smallest_capacity.as_ref().expect("it is computed");
    assert_eq!(found.how, CapacityKnown::Computed);
    assert!((8 * 1024 * MIB..8400 * MIB).contains(&found.capacity_bytes), "{}", found.capacity_bytes);
    let smallest = &report.smallest[0];
    assert!(smallest.capacity_bytes >= found.capacity_bytes, "{smallest:?}");
    assert_eq!(smallest.spare_bytes, smallest.capacity_bytes - found.capacity_bytes, "contexts are in the figures");
    assert!(report.fits_on.contains(&"rtx-3080".to_owned()) && !report.fits_on.contains(&"rtx-2070".to_owned()));
}

#[test]
fn parts_never_exceed_the_whole_however_the_sources_disagree() {
    let cards = [card("rtx-3060")];
    let books = ledger(&cards, &[100], &[(7, 0, 100, 0)], &[]);
    let report = assemble(&cards, &run(books, vec![hook(7, &[(0, 9000, 9500)])], 0), None);
    let peak = report.devices[0].peak;
    assert_eq!(peak.process_bytes, peak.context_bytes + peak.reserved_bytes.unwrap_or(0) + peak.other_bytes);
    assert!(peak.allocated_bytes <= peak.reserved_bytes);
}

#[test]
fn a_size_that_was_taken_as_the_most_leaves_open_how_little_it_may_be() {
    let cards = [card("rtx-3060")];
    let with = |taken| {
        let size =
            HookUnknownSize { operation: "nonzero".into(), low: 1, high: 9, taken, ..HookUnknownSize::default() };
        let hook = HookReport { unknown_sizes: vec![size], ..hook(7, &[(0, 900, 800)]) };
        assemble(&cards, &run(ledger(&cards, &[1000], &[(7, 0, 1000, 0)], &[]), vec![hook], 0), None)
    };
    let (most, least) = (with(9), with(1));
    assert!(most.devices[0].peak_is_maximum && most.devices[0].peak.low_bytes == 0);
    assert!(!least.devices[0].peak_is_maximum && least.devices[0].peak.low_bytes > 0);
    assert_eq!(most.devices[0].peak.high_bytes, least.devices[0].peak.high_bytes);
}

#[test]
fn a_fatal_error_and_what_it_would_have_needed() {
    let cards = [card("rtx-3060")];
    let first =
        run(ledger(&cards, &[10_200], &[(7, 0, 10_200, 2)], &[]), vec![died(hook(7, &[(0, 10_000, 9000)]), true)], 1);
    let report = assemble(&cards, &first, None);
    assert_eq!((report.verdict, report.stopped), (Verdict::Oom, Stopped::Oom));
    assert!(report.fits_on.is_empty(), "the need is not known");
    let oom = report.devices[0].oom.clone().expect("the error is reported");
    assert_eq!((oom.step, oom.phase, oom.would_need_bytes), (Some(1), Phase::Backward, None));
    assert_eq!(oom.site.map(|site| site.line), Some(3));

    let unbounded: Vec<Card> = cards.iter().map(Card::without_limit).collect();
    let probe = run(ledger(&unbounded, &[15_500], &[(8, 0, 15_500, 0)], &[]), vec![hook(8, &[(0, 15_300, 15_000)])], 0);
    let report = assemble(&cards, &first, Some(&probe));
    let oom = report.devices[0].oom.as_ref().expect("the error is reported");
    assert_eq!(oom.would_need_bytes, Some(15_500 * MIB));
    assert!(!report.devices[0].needed_is_minimum);
    assert!(report.fits_on.contains(&"rtx-4080".to_owned()) && !report.fits_on.contains(&"rtx-3060".to_owned()));

    // It took less without a limit than on a card where it died.
    let evidence = Evidence { probe: Some(&probe), died_with: &[16_000 * MIB], ..Evidence::default() };
    let report = assemble_with(&cards, &first, &evidence);
    assert!(report.devices[0].needed_is_minimum && report.fits_on.is_empty());
    assert_eq!(report.devices[0].need().map(|need| need.process_bytes), Some(16_000 * MIB));
    assert!(report.warnings.iter().any(|warning| warning.contains("died with 15.63 GiB")), "{:?}", report.warnings);
}

#[test]
fn a_second_run_that_fails_early_gives_a_least_need() {
    let cards = [card("rtx-3060")];
    let first =
        run(ledger(&cards, &[10_200], &[(7, 0, 10_200, 1)], &[]), vec![died(hook(7, &[(0, 10_000, 9000)]), true)], 1);
    let probe = run(ledger(&cards, &[500], &[(8, 0, 500, 0)], &[]), vec![died(hook(8, &[(0, 300, 300)]), true)], 1);
    let report = assemble(&cards, &first, Some(&probe));
    let device = &report.devices[0];
    assert!(device.needed_is_minimum);
    // What was allocated, the context, what others held, and what was asked for.
    assert_eq!(device.oom.as_ref().and_then(|oom| oom.would_need_bytes), Some((9000 + 135 + 65 + 2048) * MIB));
    assert!(report.warnings.iter().any(|warning| warning.contains("second run")));
    // One that failed for another reason did something else, and says nothing of the need.
    let mut probe = run(ledger(&cards, &[500], &[(8, 0, 500, 0)], &[]), vec![hook(8, &[(0, 300, 300)])], 1);
    probe.stderr_tail = "Traceback\nValueError: no such split\n".into();
    let report = assemble(&cards, &first, Some(&probe));
    assert_eq!(report.devices[0].oom.as_ref().and_then(|oom| oom.would_need_bytes), None);
    assert!(report.warnings.iter().any(|warning| warning.ends_with("ValueError: no such split")));
    // A host that was full is another matter: it came so far on the card.
    probe.hooks.reports[0].host = Some(HookHostShortage { requested_bytes: 40 << 30, ..HookHostShortage::default() });
    let report = assemble(&cards, &first, Some(&probe));
    assert!(report.devices[0].needed_is_minimum);
    assert!(report.warnings.iter().any(|warning| warning.contains("host's memory, where it requested 40.00 GiB")));
}

#[test]
fn a_program_that_caught_its_error_has_recovered() {
    let cards = [card("rtx-3060")];
    let books = || ledger(&cards, &[10_200], &[(7, 0, 10_200, 1)], &[]);
    let caught = vec![died(hook(7, &[(0, 10_000, 9000)]), false)];
    let report = assemble(&cards, &run(books(), caught.clone(), 0), None);
    assert_eq!(report.verdict, Verdict::Recovered);
    assert_eq!(report.devices[0].caught_ooms.len(), 1);
    // What else it would do on another card was not seen: on a larger one it may ask for more.
    assert!(report.fits_on.is_empty() && report.smallest.is_empty());
    // It asked for the error, and failed later, for another reason; the refusals are mentioned.
    let mut meant = caught;
    meant[0].oom.as_mut().unwrap().meant = true;
    let report = assemble(&cards, &run(books(), meant, 1), None);
    assert_eq!(report.verdict, Verdict::Failed);
    assert!(report.warnings.iter().any(|warning| warning.contains("refused")));
    // A child died of it and the program went on.
    let report = assemble(&cards, &run(books(), vec![died(hook(7, &[(0, 10_000, 9000)]), true)], 0), None);
    assert_eq!(report.verdict, Verdict::Recovered);
    assert!(report.warnings.iter().any(|warning| warning.contains("went on")));
    // It never asked for what was refused, and ended as if it had got it.
    let mut ahead = died(hook(7, &[(0, 10_000, 9000)]), true);
    if let Some(oom) = &mut ahead.oom {
        oom.unread = true;
    }
    let report = assemble(&cards, &run(books(), vec![ahead], 0), None);
    assert_eq!((report.verdict, report.devices[0].oom.is_some()), (Verdict::Oom, true));
    assert!(!report.warnings.iter().any(|warning| warning.contains("went on")));
}

#[test]
fn the_need_is_the_smallest_card_that_was_run() {
    let cards = [card("rtx-3060")];
    let first =
        run(ledger(&cards, &[10_200], &[(7, 0, 10_200, 2)], &[]), vec![died(hook(7, &[(0, 10_000, 9000)]), true)], 1);
    let unbounded: Vec<Card> = cards.iter().map(Card::without_limit).collect();
    let probe = run(ledger(&unbounded, &[40_500], &[(8, 0, 40_500, 0)], &[]), vec![hook(8, &[(0, 40_300, 14_000)])], 0);
    let smallest = vec![cards[0].with_capacity(15_000 * MIB)];
    let held = run(ledger(&smallest, &[14_900], &[(9, 0, 14_900, 3)], &[]), vec![hook(9, &[(0, 14_700, 14_000)])], 0);
    let mut found = Found {
        run: held,
        cards: smallest,
        capacities: vec![15_000 * MIB],
        fails: Some(vec![14_852 * MIB]),
        runs: 2,
        tried: vec![(15_000 * MIB, true), (14_852 * MIB, false)],
        spreads: Vec::new(),
    };
    let run_on = [("rtx-4080".to_owned(), true), ("rtx-a4000".to_owned(), false)];
    let evidence = Evidence { probe: Some(&probe), found: Some(&found), run_on: &run_on, ..Evidence::default() };
    let report = assemble_with(&cards, &first, &evidence);
    let device = &report.devices[0];
    let oom = device.oom.as_ref().expect("the error is reported");
    assert_eq!(oom.would_need_bytes, Some(15_000 * MIB));
    let needed = device.needed.expect("it was run");
    assert_eq!((needed.process_bytes, needed.reserved_bytes), (15_000 * MIB, Some(14_800 * MIB)));
    let capacity = device.smallest_capacity.as_ref().expect("it was searched for");
    assert_eq!((capacity.how, capacity.fails_bytes), (CapacityKnown::Run, Some(14_852 * MIB)));
    assert_eq!(capacity.given_back_bytes, (40_300 - 14_800) * MIB);
    assert!(report.fits_on.contains(&"rtx-4080".to_owned()) && !report.fits_on.contains(&"rtx-a4000".to_owned()));
    assert!(report.smallest.iter().all(|card| card.confirmed == (card.gpu == "rtx-4080")));
    assert!(needed.low_bytes > 14_852 * MIB, "{needed:?}");
    // A search that was cut short has seen less.
    found.fails = Some(vec![11_000 * MIB]);
    let evidence = Evidence { probe: Some(&probe), found: Some(&found), ..Evidence::default() };
    let needed = assemble_with(&cards, &first, &evidence).devices[0].needed.expect("it was run");
    assert_eq!(needed.low_bytes, 11_000 * MIB);
}

#[test]
fn what_a_replay_says_of_the_cache_makes_smaller_cards_do() {
    let cards = [card("rtx-3090")];
    let books = ledger(&cards, &[16_500], &[(7, 0, 16_500, 0)], &[]);
    let first = run(books, vec![hook(7, &[(0, 16_300, 9_000)])], 0);
    let foretold = [Some(Foretold { firm: 10_300 * MIB, least: 10_000 * MIB, reserved: 16_300 * MIB })];
    let evidence = Evidence { foretold: &foretold, ..Evidence::default() };
    let report = assemble_with(&cards, &first, &evidence);
    let capacity = report.devices[0].smallest_capacity.as_ref().expect("it was replayed");
    assert_eq!((capacity.capacity_bytes, capacity.given_back_bytes), (10_500 * MIB, 6_000 * MIB));
    assert!(report.fits_on.contains(&"rtx-3060".to_owned()), "{:?}", report.fits_on);
    assert!(report.smallest.iter().all(|card| !card.confirmed));
}

/// A process that is killed while others end leaves a recording of its beginning, whose replay needs next to nothing.
#[test]
fn a_recording_that_lacks_its_end_foretells_nothing() {
    let cards = [card("rtx-3090")];
    let first = run(ledger(&cards, &[16_500], &[(7, 0, 16_500, 0)], &[]), vec![hook(7, &[(0, 16_300, 9_000)])], 0);
    let foretold = [Some(Foretold { firm: 700 * MIB, least: 700 * MIB, reserved: 900 * MIB })];
    let report = assemble_with(&cards, &first, &Evidence { foretold: &foretold, ..Evidence::default() });
    assert_eq!(report.devices[0].smallest_capacity, None);
    assert!(!report.fits_on.contains(&"rtx-3060".to_owned()));
}

#[test]
fn a_refusal_that_no_framework_explains_is_a_verdict() {
    let cards = [card("rtx-3060")];
    let report = assemble(&cards, &run(ledger(&cards, &[900], &[(7, 0, 900, 1)], &[]), vec![], 134), None);
    assert_eq!((report.verdict, report.exit_status), (Verdict::Oom, 134));
    let oom = report.devices[0].oom.as_ref().expect("the error is reported");
    assert_eq!((oom.requested_bytes, oom.allocated_bytes), (512 * MIB, None));
    assert_eq!(report.devices[0].peak.reserved_bytes, None);

    // The virtual GPU knows what the process asked for, which its books round up, and may know the line.
    let mut known = run(ledger(&cards, &[900], &[(7, 0, 900, 1)], &[]), vec![], 134);
    known.refusals = vec![Refusal {
        schema: Default::default(),
        pid: 7,
        card: 0,
        bytes: 511 * MIB,
        free_bytes: 100 * MIB,
        frames: vec![],
    }];
    let report = assemble(&cards, &known, None);
    let oom = report.devices[0].oom.as_ref().expect("the error is reported");
    assert_eq!((oom.requested_bytes, oom.free_bytes, &oom.site), (511 * MIB, Some(100 * MIB), &None));
}

#[test]
fn an_engine_that_died_is_placed_where_the_program_used_it() {
    let cards = [card("rtx-3060")];
    let engine = died(hook(8, &[(0, 600, 500)]), true);
    let books = || ledger(&cards, &[900], &[(8, 0, 900, 1)], &[]);
    let line_with = |kind: &str, message: &str| {
        let site = Some(HookSite { file: "b.py".into(), line: 29, ..HookSite::default() });
        let failure = Some(HookFailure { kind: kind.into(), message: message.into(), site, ..HookFailure::default() });
        let program = HookReport { failure, ..hook(7, &[]) };
        let report = assemble(&cards, &run(books(), vec![program, engine.clone()], 1), None);
        assert_eq!(report.verdict, Verdict::Oom);
        report.devices[0].oom.as_ref().and_then(|oom| oom.site.as_ref()).map(|site| site.line)
    };
    assert_eq!(line_with("EngineDeadError", "EngineCore encountered an issue."), Some(29));
    assert_eq!(line_with("RuntimeError", "Engine core initialization failed. See root cause above."), Some(29));
    assert_eq!(line_with("RuntimeError", "a worker of another library is gone"), Some(3));
}

#[test]
fn the_error_of_an_engine_is_what_its_program_points_at() {
    let failed = |pid: u32, message: &str| {
        let failure = HookFailure { kind: "RuntimeError".into(), message: message.into(), ..HookFailure::default() };
        HookReport { failure: Some(failure), ..hook(pid, &[]) }
    };
    let program = failed(7, "Engine core initialization failed. See root cause above.");
    let exception = |hooks| run(ledger(&[card("rtx-3060")], &[0], &[], &[]), hooks, 1).exception().unwrap();
    assert!(exception(vec![program.clone()]).starts_with("RuntimeError: Engine core"));
    assert_eq!(exception(vec![program, failed(8, "no nvcc")]), "RuntimeError: no nvcc");
}

#[test]
fn nobody_used_a_gpu() {
    let cards = [card("rtx-3060")];
    let report = assemble(&cards, &run(ledger(&cards, &[0], &[], &[]), vec![], 0), None);
    assert_eq!(report.verdict, Verdict::NoGpuUse);
    let report = assemble(&cards, &run(ledger(&cards, &[0], &[], &[]), vec![], 1), None);
    assert_eq!(report.verdict, Verdict::Failed);
}

#[test]
fn oomph_is_to_blame_where_its_own_answer_ended_the_program() {
    let cards = [card("rtx-3060")];
    let failed = |message: Option<&str>, notes: &[(NoteKind, &str)]| {
        let failure = message.map(|message| HookFailure {
            kind: "RuntimeError".into(),
            message: message.into(),
            ..Default::default()
        });
        let hook = HookReport { failure, ..hook(7, &[(0, 600, 500)]) };
        let report = assemble(&cards, &run(ledger(&cards, &[900], &[(7, 0, 900, 0)], notes), vec![hook], 1), None);
        assert_eq!(report.verdict, Verdict::Failed);
        report.fault
    };
    let asked = [(NoteKind::Unsupported, "cuLinkCreate")];
    let fault = failed(Some("CUDA error: operation not supported\nCompile with"), &asked).expect("it is to blame");
    assert_eq!((fault.asked.len(), fault.message.as_str()), (1, "RuntimeError: CUDA error: operation not supported"));
    assert!(failed(Some("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid"), &[]).is_some());
    assert!(failed(Some("Untyped global name '__oomph_loop__'"), &[]).is_some(), "a compiler met a name of ours");
    assert!(failed(None, &asked).is_some(), "machine code is not an error message");
    assert!(failed(Some("shapes do not match"), &asked).is_none(), "the program's own error");
    assert!(failed(Some("CUDA error: invalid device ordinal"), &[]).is_none());
    assert!(failed(None, &[]).is_none());
}

#[test]
fn a_program_that_ends_itself_by_a_zero_that_was_never_computed_is_not_to_blame() {
    let cards = [card("rtx-3060")];
    let site = HookSite { file: "train.py".into(), line: 12, function: "check".into(), ..Default::default() };
    let failure = HookFailure {
        kind: "ValueError".into(),
        message: "diverged".into(),
        read_at: Some(site),
        ..HookFailure::default()
    };
    let hook = HookReport { failure: Some(failure), ..hook(7, &[(0, 600, 500)]) };
    let report = assemble(&cards, &run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]), vec![hook], 1), None);
    let fault = report.fault.expect("the virtual GPU is to blame");
    assert_eq!((report.verdict, fault.message.as_str()), (Verdict::Failed, "ValueError: diverged"));
    assert_eq!(fault.read_at.map(|site| (site.file, site.line)), Some(("train.py".into(), 12)));
}

#[test]
fn what_died_in_oomphs_own_code_is_no_answer() {
    let cards = [card("rtx-3060")];
    let books = || ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]);
    let fault = |voids: bool| {
        let site = HookSite { file: "oomph/values/copies.py".into(), line: 120, ..Default::default() };
        let fault = HookFault { kind: "AcceleratorError".into(), message: "initialization error".into(), site, voids };
        // A worker that uses no card leaves a record for this alone.
        HookReport { faults: vec![fault], ..hook(8, &[]) }
    };
    let program = hook(7, &[(0, 600, 500)]);
    for (status, cut) in [(0, None), (143, None), (143, Some(Cut::TimeUp)), (130, Some(Cut::Interrupted))] {
        let run = Observation { cut, ..run(books(), vec![program.clone(), fault(true)], status) };
        let report = assemble(&cards, &run, None);
        let own = report.fault.expect("it is to blame").own.expect("it says where");
        assert_eq!((report.verdict, own.file.as_str(), own.line), (Verdict::Failed, "oomph/values/copies.py", 120));
        assert!(report.fits_on.is_empty());
    }
    let report = assemble(&cards, &run(books(), vec![program.clone(), fault(false)], 0), None);
    assert_eq!((report.verdict, report.fault), (Verdict::Fits, None), "the answer does not hang on it");
    let report = assemble(&cards, &run(books(), vec![died(program, true), fault(true)], 1), None);
    assert_eq!(report.verdict, Verdict::Oom, "what the card refused it refused");
}

#[test]
fn what_the_cpu_did_fits_no_card() {
    let cards = [card("rtx-3060")];
    let books = || ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]);
    let fell = HookReport { fallback: Some("the CPU did it".into()), ..hook(7, &[]) };
    let report = assemble(&cards, &run(books(), vec![fell.clone()], 0), None);
    assert_eq!((report.verdict, report.fallback.as_deref()), (Verdict::Failed, Some("the CPU did it")));
    assert!(report.fits_on.is_empty() && report.fault.is_none());
    // What went there because the card was full ran out of memory.
    let report = assemble(&cards, &run(books(), vec![died(fell, false)], 0), None);
    assert_eq!((report.verdict, report.fallback), (Verdict::Recovered, None));
}

/// A run with a file that has its own CUDA runtime: memory on the card in MiB (the context's alone, if any), what XGBoost's
/// hook says, and the exception that ended the program.
fn own_runtime(file: &str, memory: Option<u64>, asked: Option<bool>, error: Option<&str>) -> DryRunReport {
    let cards = [card("rtx-3060")];
    let failure = error.map(|message| HookFailure {
        kind: "CUDARuntimeError".into(),
        message: message.into(),
        ..Default::default()
    });
    let asked_for_card = asked.map(|asked| ("libxgboost".to_owned(), asked)).into_iter().collect();
    let exit_status = i32::from(error.is_some());
    let hook = HookReport { pid: 7, failure, asked_for_card, ..HookReport::default() };
    let books: Vec<_> = memory.into_iter().map(|peak| (7, 0, peak, 0)).collect();
    let ledger = ledger(&cards, &[memory.unwrap_or(0)], &books, &[(NoteKind::StaticRuntime, file)]);
    assemble(&cards, &run(ledger, vec![hook], exit_status), None)
}

#[test]
fn a_runtime_of_its_own_is_one_cause() {
    const XGBOOST: &str = "xgboost/lib/libxgboost.so";
    let is_cause = |report: &DryRunReport| {
        report.verdict == Verdict::Failed && report.fault.as_ref().is_some_and(|fault| fault.static_runtime.is_some())
    };
    // It went on with the CPU, or its program has a context and no memory.
    assert!(is_cause(&own_runtime("solver", None, None, None)));
    assert!(is_cause(&own_runtime("cupy/runtime.so", Some(CONTEXT / MIB), None, None)));
    // Another library took memory; what this one asked for failed.
    let error = Some("cudaErrorSymbolNotFound: named symbol not found");
    assert!(is_cause(&own_runtime("cupy/runtime.so", Some(900), None, error)));
    assert!(is_cause(&own_runtime(XGBOOST, Some(900), Some(true), None)));
    assert!(!is_cause(&own_runtime(XGBOOST, Some(900), None, Some("shapes do not match"))));

    // Without a framework that is watched, the error is only among the last words.
    let cards = [card("rtx-3060")];
    let notes = [(NoteKind::StaticRuntime, "librmm/lib64/librmm.so")];
    let mut ended = run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &notes), vec![], 1);
    assert!(!is_cause(&assemble(&cards, &ended, None)));
    ended.stderr_tail = "rmm._cuda.gpu.CUDARuntimeError: cudaErrorSymbolNotFound: named symbol not found\n".into();
    assert!(is_cause(&assemble(&cards, &ended, None)));

    let report = own_runtime(XGBOOST, Some(900), None, None);
    assert_eq!(report.verdict, Verdict::Fits);
    assert!(
        report.warnings.iter().any(|warning| warning.contains("its memory is not counted")),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a_library_that_was_asked_for_the_cpu_hides_nothing() {
    let report = own_runtime("xgboost/lib/libxgboost.so", None, Some(false), None);
    assert_eq!((report.verdict, report.fault), (Verdict::NoGpuUse, None));
    let report = own_runtime("xgboost/lib/libxgboost.so", Some(900), Some(false), None);
    assert_eq!((report.verdict, report.warnings.len()), (Verdict::Fits, 0));
    assert_eq!(own_runtime("cupy/runtime.so", None, Some(false), None).verdict, Verdict::Failed);
}

#[test]
fn a_crash_may_come_of_values_that_no_kernel_computed() {
    let cards = [card("rtx-3060")];
    let crashed = |status| {
        let run = run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]), vec![], status);
        assemble(&cards, &run, None).warnings.iter().any(|warning| warning.contains("kernels do not run"))
    };
    assert!(crashed(135) && crashed(139) && !crashed(1) && !crashed(137));
}

#[test]
fn a_crash_in_the_hook_is_no_fault_of_the_program_even_where_that_goes_on() {
    let cards = [card("rtx-3060")];
    for status in [139, 1, 0] {
        let mut run = run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]), vec![], status);
        run.hooks.crashed_at = Some("owners/modules.py:372 in see_gradients".into());
        let report = assemble(&cards, &run, None);
        assert_eq!(report.verdict, Verdict::Failed);
        assert_eq!(report.fault.unwrap().crashed_at, run.hooks.crashed_at);
        assert!(!report.warnings.iter().any(|warning| warning.contains("kernels do not run")));
    }
}

#[test]
fn a_limit_that_the_program_sets_is_reached_on_every_card() {
    let cards = [card("rtx-3060")];
    let limited = || {
        let mut hook = died(hook(7, &[(0, 0, 0)]), true);
        let limit = HookLimit { bytes: 1024 * MIB, scales: LimitScales::Fixed };
        hook.devices[0] = HookDevice { reserved_peak_bytes: None, limit: Some(limit), ..hook.devices[0] };
        run(ledger(&cards, &[1200], &[(7, 0, 1200, 0)], &[]), vec![hook], 1)
    };
    let report = assemble(&cards, &limited(), Some(&limited()));
    let device = &report.devices[0];
    assert_eq!((device.needed, report.fits_on.len()), (None, 0));
    assert_eq!(device.peak.allocated_bytes, None, "nobody reported what is in the pool");
    assert!(report.warnings.iter().any(|one| one.contains("1.00 GiB that the program sets")), "{:?}", report.warnings);
}

#[test]
fn processes_that_share_a_card_are_added_and_those_that_follow_each_other_are_not() {
    let cards = [card("rtx-3060")];
    let hooks = || vec![hook(7, &[(0, 3800, 3500)]), hook(8, &[(0, 2800, 2500)])];
    let books = ledger(&cards, &[6990], &[(7, 0, 4000, 0), (8, 0, 3000, 0)], &[]);
    let report = assemble(&cards, &run(books, hooks(), 0), None);
    let device = &report.devices[0];
    assert_eq!((device.processes, device.peak.process_bytes), (2, 6990 * MIB));
    assert_eq!((device.peak.reserved_bytes, device.peak.context_bytes), (Some(6600 * MIB), 2 * CONTEXT));

    let books = ledger(&cards, &[4000], &[(7, 0, 4000, 0), (8, 0, 3000, 0)], &[]);
    let report = assemble(&cards, &run(books, hooks(), 0), None);
    let device = &report.devices[0];
    assert_eq!((device.peak.reserved_bytes, device.peak.context_bytes), (Some(3800 * MIB), CONTEXT));
}

#[test]
fn a_process_that_sees_one_card_calls_it_the_first() {
    let cards = [card("rtx-3060"), card("rtx-3060")];
    let books = ledger(&cards, &[2000, 3000], &[(7, 0, 2000, 0), (8, 1, 3000, 1)], &[]);
    // Process 8 has CUDA_VISIBLE_DEVICES=1.
    let hooks = vec![hook(7, &[(0, 1800, 1700)]), died(hook(8, &[(0, 2800, 2700)]), true)];
    let report = assemble(&cards, &run(books, hooks, 1), None);
    assert_eq!(report.devices[1].peak.reserved_bytes, Some(2800 * MIB));
    assert!(report.devices[0].oom.is_none() && report.devices[1].oom.is_some());
}

#[test]
fn cards_of_ranks_that_were_answered_for_are_like_the_one_before() {
    let cards: Vec<Card> = (0..5).map(|_| card("rtx-3060")).collect();
    let on_card = [2000, 2000, 0, 2000, 0];
    let books = ledger(&cards, &on_card, &[(7, 0, 2000, 0), (8, 1, 2000, 0), (9, 3, 2000, 0)], &[]);
    let rank = |pid, index| HookReport { ranks_run: vec![0, 1, 3], ..hook(pid, &[(index, 1800, 1700)]) };
    let report = assemble(&cards, &run(books, vec![rank(7, 0), rank(8, 1), rank(9, 3)], 0), None);
    let like: Vec<Option<u32>> = report.devices.iter().map(|device| device.as_device).collect();
    // The fifth card is not of the job.
    assert_eq!(like, [None, None, Some(1), None, None]);
}

#[test]
fn the_place_of_an_error_and_the_batches_are_handed_on() {
    let cards = [card("rtx-3060")];
    let mut dead = died(hook(7, &[(0, 10_000, 9000)]), true);
    let oom = dead.oom.as_mut().unwrap();
    oom.phase = Phase::TextEncoding;
    oom.library_site = Some(HookSite { file: "lib.py".into(), line: 9, cell: Some(2), ..Default::default() });
    oom.module = Some("encoder.block.3".into());
    oom.model = Some("T5EncoderModel".into());
    dead.batches = Some(HookBatches {
        longest: Some(HookBatch { step: 1, elements: 64, ..Default::default() }),
        ..Default::default()
    });
    let books = ledger(&cards, &[10_200], &[(7, 0, 10_200, 1)], &[]);
    let report = assemble(&cards, &run(books, vec![dead], 1), None);
    let oom = report.devices[0].oom.as_ref().unwrap();
    assert_eq!((oom.phase, oom.module.as_deref()), (Phase::TextEncoding, Some("encoder.block.3")));
    assert_eq!(oom.model.as_deref(), Some("T5EncoderModel"));
    assert_eq!(oom.library_site.as_ref().map(|site| (site.line, site.cell)), Some((9, Some(2))));
    let batches = report.batches.unwrap();
    assert_eq!(batches.longest_in(Some(1)).map(|batch| batch.elements), Some(64));
    assert_eq!(batches.longest_in(Some(2)), None);
}

#[test]
fn the_time_was_up() {
    let cards = [card("rtx-3060")];
    let mut late = run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]), vec![hook(7, &[(0, 700, 700)])], 143);
    late.cut = Some(Cut::TimeUp);
    let report = assemble(&cards, &late, None);
    assert_eq!((report.verdict, report.stopped), (Verdict::Fits, Stopped::Timeout));
    assert_eq!(report.warnings.len(), 1);
    // One rank died and the others waited for it.
    late.hooks.reports = vec![died(hook(7, &[(0, 700, 700)]), true)];
    assert_eq!(assemble(&cards, &late, None).verdict, Verdict::Oom);
}

#[test]
fn what_was_interrupted_is_reported_as_far_as_it_came() {
    let cards = [card("rtx-3060")];
    let mut server = run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &[]), vec![hook(7, &[(0, 700, 700)])], 130);
    server.cut = Some(Cut::Interrupted);
    let report = assemble(&cards, &server, None);
    assert_eq!((report.verdict, report.stopped, report.exit_status), (Verdict::Fits, Stopped::Interrupted, 130));
    assert!(report.warnings.iter().any(|warning| warning.contains("interrupted")), "{:?}", report.warnings);
}

#[test]
fn what_weakens_the_answer_is_reported_once() {
    let cards = [card("rtx-3060")];
    let notes = [
        (NoteKind::Warning, "a thing was modelled"),
        (NoteKind::Warning, "a thing was modelled"),
        (NoteKind::Unsupported, "cudaFoo"),
        (NoteKind::Unsupported, "cudaBar"),
    ];
    let mut first = run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &notes), vec![hook(7, &[(0, 700, 700)])], 0);
    first.hooks.reports[0].warnings = vec!["a thing was modelled".into()];
    first.hooks.unreadable = vec![PathBuf::from("/run/hook/9.json")];
    let report = assemble(&cards, &first, None);
    assert_eq!(report.warnings.len(), 3, "{:?}", report.warnings);
    assert!(report.warnings[1].ends_with("cudaFoo, cudaBar"));
}

#[test]
fn an_error_that_does_not_tell_its_size_has_that_of_the_refusal() {
    let cards = [card("rtx-3060")];
    let mut hook = died(hook(7, &[(0, 700, 700)]), false);
    hook.oom.as_mut().expect("it ran out of memory").requested_bytes = 0;
    let report = assemble(&cards, &run(ledger(&cards, &[900], &[(7, 0, 900, 1)], &[]), vec![hook], 0), None);
    assert_eq!(report.devices[0].caught_ooms[0].requested_bytes, 512 * MIB);
}

#[test]
fn a_card_without_code_for_what_was_launched_does_not_hold_it() {
    let cards = [card("gtx-1060-3gb")];
    let notes = [
        (NoteKind::Code, "sm_75 sm_80 sm_90 compute_90 in libsolver.so"),
        (NoteKind::Code, "compute_50 in a tool in a folder"),
    ];
    let report = assemble(&cards, &run(ledger(&cards, &[900], &[(7, 0, 900, 0)], &notes), vec![], 0), None);
    let holds = |gpu: &str| report.fits_on.iter().any(|known| known == gpu);
    assert!(holds("rtx-2060") && holds("rtx-5090") && !holds("gtx-1060-3gb") && !holds("v100-16gb"));
    let [warning] = report.warnings.as_slice() else { panic!("{:?}", report.warnings) };
    assert!(warning.starts_with("libsolver.so has no kernels for NVIDIA GeForce GTX 1060 3GB"), "{warning}");
}

#[test]
fn ordinary_cards_are_not_crowded_out() {
    let cards = [card("rtx-4090")];
    let books = ledger(&cards, &[17_000], &[(7, 0, 17_000, 0)], &[]);
    let report = assemble(&cards, &run(books, vec![hook(7, &[(0, 16_800, 16_000)])], 0), None);
    assert_eq!(report.smallest.len(), SMALLEST);
    let special = report.smallest.iter().filter(|card| !card.kind.is_card()).count();
    assert_eq!(special, SMALLEST_SPECIAL);
    assert!(report.smallest.is_sorted_by_key(|card| (!card.kind.is_card(), card.capacity_bytes)));
    // A module of 16 GB would hold it, and nobody rents one.
    assert_eq!(report.fits_on.first(), Some(&report.smallest[0].gpu));
    assert!(report.smallest[0].kind.is_card());
}

/// A recording without history: one segment of `reserved` MiB, of which `allocated` MiB are in use.
fn recording(pid: u32, reserved: u64, allocated: u64) -> ProcessMemory {
    use oomph_trace::{Block, BlockState, Device, Segment, Trace};
    let address = 0x7f00_0000_0000;
    let block =
        |at: u64, size: u64, state| Block { address: address + at, size, requested: size, state, ..Block::default() };
    let blocks = vec![
        block(0, allocated * MIB, BlockState::ActiveAllocated),
        block(allocated * MIB, (reserved - allocated) * MIB, BlockState::Inactive),
    ];
    let segment = Segment {
        address,
        total_size: reserved * MIB,
        large: true,
        first_block: 0,
        end_block: 2,
        ..Segment::default()
    };
    let device = Device { segments: vec![segment], blocks, ..Device::default() };
    ProcessMemory { pid, trace: Trace { devices: vec![device], ..Trace::default() }, names: None }
}

#[test]
fn owners_add_up_to_what_the_card_held() {
    let cards = [card("rtx-3060")];
    // The second case has two processes at a time; in the third one of them left no recording.
    let cases = [
        (vec![(7, 4500)], 4500, vec![recording(7, 4000, 3000)]),
        (vec![(7, 4500), (8, 1500)], 6000, vec![recording(7, 4000, 3000), recording(8, 1000, 600)]),
        (vec![(7, 4500), (8, 1500)], 6000, vec![recording(7, 4000, 3000)]),
    ];
    for (processes, on_card, memory) in cases {
        let books: Vec<_> = processes.iter().map(|(pid, peak)| (*pid, 0, *peak, 0)).collect();
        let books = ledger(&cards, &[on_card], &books, &[]);
        let hooks = vec![hook(7, &[(0, 4000, 3000)]), hook(8, &[(0, 1000, 600)])];
        let hooks = hooks.into_iter().take(processes.len()).collect();
        let mut run = run(books, hooks, 0);
        run.memory = memory;
        let report = assemble(&cards, &run, None);
        let whose = crate::whose::owners(&report.devices[0], &run).expect("there is a recording");
        let sum: u64 = whose.owners.iter().map(|row| row.bytes).sum();
        assert_eq!((sum, report.devices[0].peak.process_bytes), (on_card * MIB, on_card * MIB), "{whose:?}");
        assert!(whose.owners.is_sorted_by_key(|row| std::cmp::Reverse(row.bytes)));
    }
}

//! How the answers of `oomph fix` look: one snapshot per situation and width.

#![allow(missing_docs)]

use oomph_explain::snapshot::{Owner, OwnerRow, Source};
use oomph_remedy::search::Prefer;
use oomph_report::{
    Apply, Attempt, Baseline, Compared, Comparison, Dropped, FixReport, FixRow, FixSchema, FixVerdict, Floor, Foretold,
    Oom, Phase, ResultChange, Site, Style, TimeRatio, Verdict, render_fix,
};

const MIB: u64 = 1 << 20;
const WIDE: Style = Style { width: 160, colour: false, unicode: true };
const NORMAL: Style = Style { width: 80, colour: false, unicode: true };

fn owner(owner: Owner, mib: u64) -> OwnerRow {
    OwnerRow { owner, bytes: mib * MIB, blocks: 1, confidence: 1.0, source: Source::Named, named_bytes: 0 }
}

fn apply(kind: &str, remedy: &str, text: &str) -> Apply {
    Apply { kind: kind.into(), text: text.into(), remedy: remedy.into() }
}

fn row(remedies: &[&str], titles: &[&str], peak: u64, result: ResultChange, time: &str) -> FixRow {
    FixRow {
        found_after_seconds: None,
        patch: None,
        by_hand: false,
        tight: false,
        remedies: remedies.iter().map(|&id| id.into()).collect(),
        titles: titles.iter().map(|&title| title.into()).collect(),
        verified: true,
        verdict: Verdict::Fits,
        peak_bytes: peak * MIB,
        saves_bytes: Some((59_000 - peak as i64) * MIB as i64),
        room_bytes: Some((12_043 - peak) * MIB),
        result,
        comparison: None,
        time_cost: time.into(),
        slowdown: None,
        slowdown_unknown: None,
        quality_cost: None,
        evidence: vec![],
        apply: vec![],
        command: None,
        notes: vec![],
    }
}

fn attempt(remedy: &str, saves: Option<i64>) -> Attempt {
    Attempt {
        remedies: vec![remedy.into()],
        verdict: if saves.is_some() { Verdict::Fits } else { Verdict::Oom },
        peak_bytes: saves.map(|saves| (59_000 * MIB).saturating_add_signed(-saves)),
        saves_bytes: saves,
        why: None,
    }
}

#[expect(clippy::too_many_lines, reason = "one literal")]
fn found() -> FixReport {
    let site = Site { file: "train.py".into(), line: 53, function: "main".into(), text: None, cell: None };
    FixReport {
        schema: FixSchema,
        verdict: FixVerdict::Fixed,
        baseline: Baseline {
            verdict: Verdict::Oom,
            gpu: "rtx-3060".into(),
            gpu_name: "NVIDIA GeForce RTX 3060".into(),
            capacity_bytes: Some(12_043 * MIB),
            limit_bytes: Some(12_043 * MIB),
            peak_bytes: Some(59_000 * MIB),
            peak_is_minimum: false,
            died_with_bytes: None,
            owners: vec![
                owner(Owner::Activations, 51_000),
                owner(Owner::OptimizerState, 950),
                owner(Owner::Parameters, 475),
                owner(Owner::Gradients, 475),
                owner(Owner::Context, 236),
            ],
            oom: Some(Oom {
                requested_bytes: 1 << 30,
                allocated_bytes: None,
                reserved_bytes: None,
                free_bytes: None,
                message: "out of memory".into(),
                step: Some(1),
                phase: Phase::Forward,
                site: Some(site),
                would_need_bytes: None,
                forecast: false,
                library_site: None,
                module: None,
                model: None,
                instead: None,
            }),
        },
        fixes: vec![
            FixRow {
                apply: vec![apply(
                    "code",
                    "micro-batch/8",
                    "TrainingArguments(..., per_device_train_batch_size=4, gradient_accumulation_steps=8)",
                )],
                quality_cost: Some("batch-norm statistics change".into()),
                slowdown: Some(TimeRatio { low: 1.02, high: 1.13 }),
                comparison: Some(Comparison {
                    outcome: Compared::Equal,
                    difference: Some(2.9e-7),
                    rounding: Some(1.1e-7),
                    steps: 5,
                    reduced: vec!["11 samples in batches of 4".into(), "2 of 16 Block".into()],
                    ..Comparison::default()
                }),
                ..row(
                    &["micro-batch/8"],
                    &["Smaller micro-batch with gradient accumulation (32 to 4)"],
                    9_100,
                    ResultChange::Equivalent,
                    "about 13 % slower",
                )
            },
            FixRow {
                command: Some("python train.py --batch-size 32 --gradient_checkpointing True --bf16 True".into()),
                ..row(
                    &["gradient-checkpointing", "autocast"],
                    &["Gradient checkpointing", "Mixed precision"],
                    11_900,
                    ResultChange::Approximate,
                    "20 to 30 % slower",
                )
            },
        ],
        attempts: vec![
            attempt("fused-optimizer", None),
            attempt("optimizer-in-backward", None),
            attempt("autocast", Some(-700 * MIB as i64)),
        ],
        dropped: vec![Dropped {
            remedy: "optimizer-in-backward".into(),
            why: "the Trainer clips the norm of all gradients".into(),
        }],
        floor: None,
        tried: 7,
        elapsed_seconds: 41.2,
        out_of_time: false,
        untried: Vec::new(),
        foretold: None,
        warnings: vec![],
        command: vec!["python".into(), "train.py".into()],
        next: vec![],
        order: Prefer::Quality,
    }
}

#[test]
fn fixes_are_listed_cheapest_first() {
    insta::assert_snapshot!("fix-found", render_fix(&found(), NORMAL));
    insta::assert_snapshot!("fix-found-wide", render_fix(&found(), WIDE));
}

#[test]
fn what_a_fix_does_to_the_result_is_what_was_seen() {
    let mut report = found();
    let said = |report: &FixReport| render_fix(report, WIDE).split_whitespace().collect::<Vec<_>>().join(" ");
    let first = Some("the gradients of step 3 (a batch of 3 for 4) differ by 23 %".to_owned());
    report.fixes[0].result = ResultChange::Changed;
    report.fixes[0].comparison =
        Some(Comparison { outcome: Compared::Other, first, steps: 5, ..Comparison::default() });
    let text = said(&report);
    assert!(text.contains("8.89 GiB 2.87 GiB other result"), "{text}");
    assert!(
        text.contains("over 5 optimizer steps: the gradients of step 3 (a batch of 3 for 4) differ by 23 %"),
        "{text}"
    );
    report.fixes[0].result = ResultChange::NotCompared;
    let why = Some("all its gradients are zero or no numbers".to_owned());
    report.fixes[0].comparison = Some(Comparison { why, ..Comparison::default() });
    assert!(said(&report).contains("not compared in numbers: all its gradients are zero"), "{}", said(&report));
    report.fixes[0].result = ResultChange::SameInDistribution;
    let first = Some("random numbers are drawn in another order".to_owned());
    report.fixes[0].comparison =
        Some(Comparison { outcome: Compared::SameInDistribution, first, steps: 1, ..Comparison::default() });
    assert!(
        said(&report).contains(
            "over 1 optimizer step: random numbers are drawn in another order; with the same ones it is equal"
        )
    );
}

#[test]
fn a_need_whose_search_was_cut_short_is_a_range() {
    let mut report = found();
    report.baseline.died_with_bytes = Some(54_000 * MIB);
    let text = render_fix(&report, NORMAL);
    assert!(text.contains("needs between 52.73 GiB and 57.62 GiB"), "{text}");
}

#[test]
fn where_nothing_fits_the_floor_is_reported() {
    let report = FixReport {
        verdict: FixVerdict::NothingFits,
        fixes: vec![],
        floor: Some(Floor {
            remedies: vec!["qlora".into(), "gradient-checkpointing".into()],
            peak_bytes: Some(14_000 * MIB),
            smallest_gpu: Some("rtx-4080".into()),
            cards_when_split: Some(6),
            bytes_per_card: Some(11_000 * MIB),
        }),
        out_of_time: true,
        untried: vec!["activation-offload".into(), "paged-adam-8bit".into()],
        foretold: Some(Foretold {
            remedies: vec!["gradient-checkpointing".into(), "adam-8bit".into()],
            peak_bytes: 23 << 29,
        }),
        ..found()
    };
    insta::assert_snapshot!("fix-nothing-fits", render_fix(&report, NORMAL));
}

#[test]
fn what_fits_already_is_left_alone() {
    let mut report = found();
    report.verdict = FixVerdict::FitsAlready;
    report.fixes.clear();
    report.tried = 0;
    report.baseline.peak_bytes = Some(7_000 * MIB);
    report.baseline.oom = None;
    insta::assert_snapshot!("fix-fits-already", render_fix(&report, NORMAL));
}

/// Words of a program or of a file may hold anything, but never reach a terminal as they are.
#[test]
fn one_list_says_what_is_not_enough_and_one_what_is_impossible() {
    let mut report = found();
    let row = |remedy: &str, why: &str| Dropped { remedy: remedy.into(), why: why.into() };
    report.dropped.push(row("lora", "peft is not installed"));
    report.dropped.push(row("lora", "the model has no linear layers"));
    report
        .attempts
        .push(Attempt { why: Some("it dies of the same request".into()), ..attempt("expandable-segments", None) });
    let text = render_fix(&report, NORMAL).replace("\n    ", " ");
    let (enough, impossible) = text.split_once("not possible here:").expect("a list of what is impossible");
    assert!(
        enough.contains("not enough: fused-optimizer, optimizer-in-backward, autocast (700.00 MiB more)"),
        "{text}"
    );
    assert!(enough.contains("expandable-segments (no effect)"), "{text}");
    assert_eq!(text.matches("not enough").count(), 1, "{text}");
    // It ran, and was too little.
    assert!(!impossible.contains("optimizer-in-backward"), "{text}");
    assert_eq!(impossible.matches("lora").count(), 1, "{text}");
}

#[test]
fn what_comes_from_the_program_is_neutralised() {
    let mut report = found();
    report.dropped[0].why = "\u{1b}]0;title\u{7}".into();
    report.fixes[0].apply[0].text = "x = \"\u{1b}[2J\"".into();
    assert!(!render_fix(&report, NORMAL).contains('\u{1b}'));
}

//! How the answers of `oomph tune` look: one snapshot per situation and width.

#![allow(missing_docs)]

use std::collections::BTreeMap;

use oomph_report::{
    NextStep, Phase, Style, TriedValue, TuneReport, TuneRow, TuneSchema, TuneVerdict, Verdict, render_tune,
};

type Values = BTreeMap<String, u64>;

const MIB: u64 = 1 << 20;
const WIDE: Style = Style { width: 160, colour: false, unicode: true };
const NORMAL: Style = Style { width: 80, colour: false, unicode: true };
const CAPACITY: u64 = 12_043;

fn batch(value: u64) -> Values {
    [("batch".to_owned(), value)].into()
}

/// A run that needs 500 MiB and 900 MiB for each sample.
fn tried(value: u64) -> TriedValue {
    let peak = (500 + 900 * value) * MIB;
    let fits = peak <= CAPACITY * MIB;
    TriedValue {
        values: batch(value),
        verdict: if fits { Verdict::Fits } else { Verdict::Oom },
        peak_bytes: fits.then_some(peak),
        high_bytes: fits.then_some(peak + 300 * MIB),
        phase: (!fits).then_some(Phase::Backward),
        step: (!fits).then_some(1),
        steps: if fits { 4 } else { 0 },
        elapsed_seconds: 1.5,
    }
}

fn found() -> TuneReport {
    TuneReport {
        schema: TuneSchema,
        verdict: TuneVerdict::Found,
        best: Some(batch(12)),
        peak_bytes: Some(11_300 * MIB),
        fails_at: Some(batch(13)),
        recommended: Some(batch(11)),
        margin_bytes: Some(300 * MIB),
        tried: [1, 2, 8, 11, 12, 13, 16].map(tried).into(),
        recommended_peak_bytes: Some(10_400 * MIB),
        frontier: vec![],
        varied: "batch".into(),
        range: (1, 512),
        gpu: "rtx-3060".into(),
        capacity_bytes: CAPACITY * MIB,
        forked: true,
        elapsed_seconds: 14.2,
        warnings: vec![],
        next: vec![NextStep { why: "run it with batch=11".into(), command: "python train.py --batch-size 11".into() }],
    }
}

#[test]
fn both_sides_of_the_boundary_are_shown() {
    insta::assert_snapshot!("tune-found", render_tune(&found(), NORMAL));
    insta::assert_snapshot!("tune-found-wide", render_tune(&found(), WIDE));
}

#[test]
fn without_unicode_there_are_only_ascii_characters() {
    assert!(render_tune(&found(), Style { unicode: false, ..NORMAL }).is_ascii());
    assert!(!render_tune(&found(), NORMAL).contains('\u{1b}'));
    assert!(render_tune(&found(), Style { colour: true, ..NORMAL }).contains('\u{1b}'));
}

#[test]
fn no_line_is_wider_than_the_page() {
    for width in [60, 80, 160] {
        for line in render_tune(&found(), Style { width, ..NORMAL }).lines() {
            assert!(line.chars().count() <= width, "{} columns: {line}", line.chars().count());
        }
    }
}

#[test]
fn a_range_of_which_nothing_fits() {
    let report = TuneReport {
        verdict: TuneVerdict::NoneFits,
        best: None,
        peak_bytes: None,
        fails_at: Some(batch(64)),
        recommended: None,
        margin_bytes: None,
        recommended_peak_bytes: None,
        tried: vec![tried(64)],
        range: (64, 512),
        next: vec![NextStep {
            why: "find what makes it fit".into(),
            command: "oomph fix --gpu rtx-3060 -- python train.py --batch-size 64".into(),
        }],
        ..found()
    };
    insta::assert_snapshot!("tune-none-fits", render_tune(&report, NORMAL));
}

#[test]
fn a_range_of_which_everything_fits() {
    let report = TuneReport {
        verdict: TuneVerdict::AllFit,
        best: Some(batch(8)),
        peak_bytes: Some(7_700 * MIB),
        fails_at: None,
        recommended: Some(batch(8)),
        tried: [1, 8].map(tried).into(),
        range: (1, 8),
        warnings: vec!["the peak is the same at all values: does the program use it?".into()],
        ..found()
    };
    insta::assert_snapshot!("tune-all-fit", render_tune(&report, NORMAL));
}

#[test]
fn several_knobs_have_a_frontier() {
    let at = |length: u64, value: u64| Values::from([("seq".to_owned(), length), ("batch".to_owned(), value)]);
    let row = |length: u64, best: u64| TuneRow {
        best: Some(at(length, best)),
        peak_bytes: Some(11_000 * MIB),
        fails_at: Some(at(length, best + 1)),
        recommended: Some(at(length, best - 1)),
        recommended_peak_bytes: Some(10_000 * MIB),
        margin_bytes: Some(300 * MIB),
    };
    let report = TuneReport {
        best: Some(at(1024, 12)),
        fails_at: Some(at(1024, 13)),
        recommended: Some(at(1024, 11)),
        frontier: vec![row(1024, 12), row(2048, 6), TuneRow { fails_at: Some(at(8192, 1)), ..TuneRow::default() }],
        ..found()
    };
    insta::assert_snapshot!("tune-frontier", render_tune(&report, NORMAL));
}

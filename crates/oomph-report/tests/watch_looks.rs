//! How `oomph watch` looks: one snapshot per situation and width.

#![allow(missing_docs)]

use oomph_report::{
    Moment, Style, Trend, WatchCost, WatchReport, WatchSchema, WatchedFramework, WatchedGpu, WatchedOutlook,
    WatchedProcess, outlook_words, render_watch,
};

const MIB: u64 = 1 << 20;
const NORMAL: Style = Style { width: 80, colour: false, unicode: true };
const NARROW: Style = Style { width: 40, colour: false, unicode: true };

fn card(place: usize, processes: Vec<WatchedProcess>) -> WatchedGpu {
    WatchedGpu {
        place,
        index: 0,
        name: "NVIDIA GeForce RTX 3060".into(),
        uuid: Some("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f".into()),
        total_bytes: Some(12_288 * MIB),
        used_bytes: Some(8_000 * MIB),
        free_bytes: Some(4_288 * MIB),
        processes,
        ..WatchedGpu::default()
    }
}

fn framework(outlook: Option<WatchedOutlook>) -> WatchedFramework {
    WatchedFramework {
        allocated_bytes: 6_000 * MIB,
        reserved_bytes: 7_000 * MIB,
        cached_bytes: 1_000 * MIB,
        fragments_bytes: Some(100 * MIB),
        allocated_peak_bytes: 6_500 * MIB,
        reserved_peak_bytes: Some(7_000 * MIB),
        room_bytes: Some(11_288 * MIB),
        retries: Some(0),
        step: 1_310,
        process_steps: 1_310,
        moment: Moment::StepEnd,
        age_seconds: 0.2,
        outlook,
    }
}

fn leak() -> WatchedOutlook {
    WatchedOutlook {
        trend: Trend::Leak,
        bytes_per_step: Some(4.0 * 1_048_576.0),
        headroom_bytes: Some(4_788 * MIB),
        full_at_step: Some(2_310),
        full_in_seconds: Some(2_400.0),
        seconds_per_step: Some(2.4),
        steps_seen: 900,
    }
}

fn report() -> WatchReport {
    let trains = WatchedProcess {
        pid: 4711,
        command: Some("train.py --epochs 3".into()),
        rank: Some(1),
        driver_bytes: Some(7_300 * MIB),
        framework: Some(framework(Some(leak()))),
        outside_bytes: Some(300 * MIB),
        ..WatchedProcess::default()
    };
    let foreign = WatchedProcess {
        pid: 99,
        command: Some("/usr/lib/xorg/Xorg".into()),
        driver_bytes: Some(400 * MIB),
        framework_reason: Some("it was not started by oomph run".into()),
        outside_reason: Some("it was not started by oomph run".into()),
        ..WatchedProcess::default()
    };
    let blind = WatchedProcess {
        pid: 12,
        driver_reason: Some("under WSL2 the driver does not report memory per process".into()),
        framework: Some(WatchedFramework { moment: Moment::Start, age_seconds: 40.0, ..framework(None) }),
        outside_reason: Some("under WSL2 the driver does not report memory per process".into()),
        ..WatchedProcess::default()
    };
    let virtual_card = WatchedGpu { rehearsal: Some(321), ..card(2, vec![]) };
    let divided = WatchedGpu {
        place: 3,
        mig: Some(1),
        name: "NVIDIA A100 MIG 1g.5gb".into(),
        memory_reason: Some("the driver is too old to tell its memory; update it to 510 or later".into()),
        processes_reason: Some("the driver does not list processes of this card".into()),
        ..WatchedGpu::default()
    };
    WatchReport {
        schema: WatchSchema,
        time: 1_795_591_402.5,
        cards: vec![card(0, vec![foreign, trains]), card(1, vec![blind]), virtual_card, divided],
        driver: WatchCost { calls: 12, seconds: 0.0042 },
    }
}

#[test]
fn a_look() {
    insta::assert_snapshot!("watch-80", render_watch(&report(), NORMAL));
    insta::assert_snapshot!("watch-40", render_watch(&report(), NARROW));
    insta::assert_snapshot!("watch-json", serde_json::to_string_pretty(&report()).unwrap_or_default());
}

#[test]
fn outlooks() {
    let of = |trend| {
        let date = trend == Trend::Leak || trend == Trend::GrowingInputs;
        let outlook = WatchedOutlook { trend, ..leak() };
        outlook_words(&if date {
            outlook
        } else {
            WatchedOutlook { full_at_step: None, full_in_seconds: None, ..outlook }
        })
    };
    let all =
        [Trend::Unknown, Trend::Steady, Trend::Leak, Trend::GrowingInputs, Trend::Fragmentation, Trend::Fluctuating];
    insta::assert_snapshot!("watch-outlooks", all.map(of).join("\n"));
}

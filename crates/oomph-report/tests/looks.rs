//! How answers look: one snapshot per situation and width.

#![allow(missing_docs)]

use std::collections::BTreeMap;

use oomph_explain::snapshot::{Group, Owner, OwnerRow, Source};
use oomph_gpu::{Catalogue, Kind};
use oomph_report::activity::{Activity, AllocationSite, Allocations, Pooled, Sized, Traffic, TransferSite, Transfers};
use oomph_report::{
    BatchPeak, BatchRange, Batches, CUSTOM, CapacityKnown, CardThatHolds, DeviceReport, DryRunReport, DryRunSchema,
    GpusReport, GpusSchema, Instead, ModelledTerm, NextStep, Oom, Peak, Phase, Site, SmallestCapacity, Stopped, Style,
    UNBOUNDED, Verdict, Whose, WorstCard, render_dry_run, render_gpu, render_gpus,
};

const MIB: u64 = 1 << 20;
const WIDE: Style = Style { width: 160, colour: false, unicode: true };
const NORMAL: Style = Style { width: 80, colour: false, unicode: true };
const NARROW: Style = Style { width: 40, colour: false, unicode: true };
const ASCII: Style = Style { width: 80, colour: false, unicode: false };

fn peak(allocated: u64, reserved: u64) -> Peak {
    Peak {
        process_bytes: (reserved + 300) * MIB,
        reserved_bytes: Some(reserved * MIB),
        allocated_bytes: Some(allocated * MIB),
        context_bytes: 236 * MIB,
        other_bytes: 64 * MIB,
        low_bytes: (reserved + 270) * MIB,
        high_bytes: (reserved + 340) * MIB,
    }
}

fn device(index: u32, peak: Peak) -> DeviceReport {
    DeviceReport {
        index,
        gpu: "rtx-3060".into(),
        capacity_bytes: Some(12_043 * MIB),
        peak,
        oom: None,
        gpu_name: "NVIDIA GeForce RTX 3060".into(),
        like: None,
        as_device: None,
        correction: None,
        processes: 1,
        needed: None,
        smallest_capacity: None,
        needed_is_minimum: false,
        peak_is_maximum: false,
        modelled: vec![ModelledTerm {
            what: "context".into(),
            bytes: 236 * MIB,
            low_bytes: 206 * MIB,
            high_bytes: 276 * MIB,
            source: "catalogue".into(),
        }],
        caught_ooms: vec![],
        whose: None,
        pool: None,
        allowed: None,
        phases: Vec::new(),
    }
}

fn card(gpu: &str, kind: Kind, capacity: u64, spare: u64) -> CardThatHolds {
    CardThatHolds {
        gpu: gpu.into(),
        gpu_name: gpu.to_uppercase(),
        kind,
        capacity_bytes: capacity * MIB,
        spare_bytes: spare * MIB,
        confirmed: false,
        tight: false,
    }
}

fn fits() -> DryRunReport {
    DryRunReport {
        schema: DryRunSchema,
        verdict: Verdict::Fits,
        exit_status: 0,
        stopped: Stopped::PeakStable,
        steps: 5,
        elapsed_seconds: 5.13,
        frameworks: BTreeMap::from([
            ("torch".to_owned(), "2.15.0+cu132".to_owned()),
            ("cudnn".to_owned(), "9.26.0".to_owned()),
        ]),
        devices: vec![device(0, peak(7256, 7640))],
        fits_on: vec!["rtx-3080-10gb".into(), "a100-40gb-mig-2g.10gb".into(), "rtx-3060".into(), "h100-sxm".into()],
        activity: None,
        warnings: vec![],
        command: vec!["python".into(), "train.py".into()],
        smallest: vec![
            card("rtx-3080-10gb", Kind::Consumer, 10_009, 2069),
            card("a100-40gb-mig-2g.10gb", Kind::Mig, 9_984, 2044),
            card("rtx-3060", Kind::Consumer, 12_043, 4103),
        ],
        next: vec![],
        batches: None,
        compiled: vec![],
        worst: None,
        loops: Vec::new(),
        unreached: Vec::new(),
        tight: false,
        unsure: None,
        waits: None,
        host: None,
        writes: None,
        fault: None,
        fallback: None,
        missing_card: None,
    }
}

fn oom() -> DryRunReport {
    let mut dying = device(0, peak(10_752, 11_264));
    dying.oom = Some(Oom {
        requested_bytes: 1536 * MIB,
        allocated_bytes: Some(10_752 * MIB),
        reserved_bytes: Some(11_264 * MIB),
        free_bytes: Some(310 * MIB),
        message: "CUDA out of memory. Tried to allocate 1.50 GiB.".into(),
        step: Some(1),
        phase: Phase::Backward,
        site: Some(Site {
            file: "examples/finetune_gpt2.py".into(),
            line: 62,
            function: "main".into(),
            text: Some("    loss.backward()".into()),
            cell: None,
        }),
        would_need_bytes: Some(15_864 * MIB),
        forecast: false,
        library_site: None,
        module: None,
        model: None,
        instead: None,
    });
    dying.needed = Some(peak(15_000, 15_564));
    let mut report = fits();
    report.verdict = Verdict::Oom;
    report.exit_status = 1;
    report.stopped = Stopped::Oom;
    report.steps = 0;
    report.devices = vec![dying];
    report.fits_on = vec!["rtx-4060-ti-16gb".into()];
    report.smallest =
        vec![card("rtx-4060-ti-16gb", Kind::Consumer, 15_987, 123), card("rtx-4090-laptop", Kind::Laptop, 16_022, 158)];
    report.next = vec![NextStep {
        why: "see it run on the smallest".into(),
        command: "oomph dry-run --gpu rtx-4060-ti-16gb -- python examples/finetune_gpt2.py --batch-size 16".into(),
    }];
    report
}

/// A CUDA program that allocates and sends in a loop.
fn calls() -> DryRunReport {
    let site = |place: &str, calls: u64, freed: u64, bytes: u64| AllocationSite {
        place: place.into(),
        calls,
        freed,
        bytes: calls * bytes,
        held_bytes: (calls - freed) * bytes,
        most_held_bytes: bytes,
        sizes: vec![Sized { bytes, calls }],
    };
    let sent = |calls: u64, bytes: u64, resent_calls: u64| Traffic {
        calls,
        bytes: calls * bytes,
        pageable_bytes: calls * bytes,
        resent_calls,
        resent_bytes: resent_calls * bytes,
        doubled_bytes: 0,
    };
    let copies =
        |place: &str, way: &str, traffic: Traffic| TransferSite { place: place.into(), way: way.into(), traffic };
    let mut report = fits();
    report.frameworks = BTreeMap::new();
    report.steps = 0;
    report.activity = Some(Activity {
        allocations: Allocations {
            calls: 102,
            frees: 101,
            most_held_bytes: 48 * MIB,
            never_freed_blocks: 1,
            never_freed_bytes: 16 * MIB,
            sites: vec![site("heat.cu:119", 100, 100, 16 * MIB), site("heat.cu:111", 2, 1, 16 * MIB)],
            ..Default::default()
        },
        pooled: Pooled {
            allocations: Allocations {
                calls: 4,
                frees: 4,
                most_held_bytes: 4096,
                sites: vec![site("a_program_with_a_long_name/source.cu:12345", 4, 4, 1024)],
                ..Default::default()
            },
            grew: 1,
            regrew: 0,
        },
        transfers: Transfers {
            to_card: sent(100, 16 * MIB, 99),
            to_host: sent(10, 16 * MIB, 0),
            sites: vec![
                copies("heat.cu:121", "to_card", sent(100, 16 * MIB, 99)),
                copies("heat.cu:128", "to_host", sent(10, 16 * MIB, 0)),
            ],
            ..Default::default()
        },
        remarks: vec!["16.0 MiB in 1 block was never freed, up to the end (allocated at heat.cu:111)".into()],
    });
    report
}

#[test]
fn memory_calls_by_line() {
    looks("calls", &calls());
}

/// Renders at the usual widths and checks what must hold for every page.
fn looks(name: &str, report: &DryRunReport) {
    for (suffix, style) in [("80", NORMAL), ("160", WIDE)] {
        let text = render_dry_run(report, style);
        assert!(text.lines().count() <= 40, "{name} does not fit one screen:\n{text}");
        assert!(!text.contains('\x1b'));
        insta::assert_snapshot!(format!("{name}-{suffix}"), text);
    }
    // Any width and alphabet renders, and ASCII pages of ASCII reports are ASCII.
    for width in [0, 1, 20, 33, 79, 81, 400] {
        let text = render_dry_run(report, Style { width, colour: true, unicode: false });
        assert!(text.is_ascii(), "{text}");
        assert!(text.ends_with('\n'));
    }
}

#[test]
fn it_fits() {
    looks("fits", &fits());
    insta::assert_snapshot!("fits-40", render_dry_run(&fits(), NARROW));
    insta::assert_snapshot!("fits-ascii", render_dry_run(&fits(), ASCII));
}

fn whose() -> Whose {
    let row =
        |owner, bytes, source, confidence| OwnerRow { owner, bytes, blocks: 7, confidence, source, named_bytes: 0 };
    let group = |name: &str, bytes, owner| Group { name: name.into(), bytes, blocks: 3, owner };
    Whose {
        at: "peak".into(),
        owners: vec![
            row(Owner::Activations, 4800 * MIB, Source::Named, 1.0),
            row(Owner::OptimizerState, 949 * MIB, Source::Inferred, 0.95),
            row(Owner::Gradients, 475 * MIB, Source::Named, 1.0),
            row(Owner::CachedSplit, 384 * MIB, Source::Recorded, 1.0),
            row(Owner::Context, 236 * MIB, Source::Recorded, 1.0),
            row(Owner::Workspace, 64 * MIB, Source::Recorded, 1.0),
            row(Owner::SlackInBlocks, MIB, Source::Recorded, 1.0),
            row(Owner::Inputs, MIB / 2, Source::Named, 1.0),
        ],
        by_line: vec![
            group(
                "/home/ada/env/lib/python3.12/site-packages/transformers/models/gpt2/modeling_gpt2.py:224 in forward",
                2300 * MIB,
                Owner::Activations,
            ),
            group("train.py:53 in train", 1008 * MIB, Owner::OptimizerState),
            group("train.py:50 in train", 700 * MIB, Owner::Activations),
            group("train.py:12 in main", MIB, Owner::Parameters),
        ],
        ..Whose::default()
    }
}

#[test]
fn it_says_whose_memory_it_was() {
    let mut report = fits();
    report.devices[0].whose = Some(whose());
    looks("whose", &report);
}

#[test]
fn it_fits_until_it_was_cut_short() {
    for stopped in [Stopped::Interrupted, Stopped::Timeout] {
        let text = render_dry_run(&DryRunReport { stopped, ..fits() }, NORMAL);
        assert!(text.contains("fits as far as it ran: 4.01 GiB to spare"), "{text}");
    }
}

#[test]
fn it_fits_but_only_just() {
    let mut report = fits();
    report.devices[0].peak = peak(11_300, 11_720);
    looks("close", &report);
}

#[test]
fn it_does_not_fit() {
    looks("oom", &oom());
    insta::assert_snapshot!("oom-40", render_dry_run(&oom(), NARROW));
    insta::assert_snapshot!("oom-ascii", render_dry_run(&oom(), ASCII));
    insta::assert_snapshot!("oom-colour", render_dry_run(&oom(), Style { colour: true, ..NORMAL }));
}

#[test]
fn an_evaluation_is_part_of_no_step() {
    let died = |step: u64| {
        let mut report = oom();
        let oom = report.devices[0].oom.as_mut().expect("it died");
        (oom.step, oom.phase) = (Some(step), Phase::Eval);
        render_dry_run(&report, NORMAL)
    };
    assert!(died(9).contains("it dies after step 8, during evaluation"), "{}", died(9));
    assert!(died(1).contains("it dies during evaluation"), "{}", died(1));
}

#[test]
fn it_does_not_fit_and_nobody_probed() {
    let mut report = oom();
    report.devices[0].needed = None;
    if let Some(oom) = &mut report.devices[0].oom {
        oom.would_need_bytes = None;
        oom.site = None;
        oom.step = None;
        oom.phase = Phase::Other;
    }
    report.fits_on.clear();
    report.smallest.clear();
    looks("oom-no-probe", &report);
}

#[test]
fn it_dies_inside_a_trainer() {
    let mut report = oom();
    if let Some(oom) = &mut report.devices[0].oom {
        oom.phase = Phase::Forward;
        oom.site = Some(Site {
            file: "/tmp/ipykernel_7/123.py".into(),
            line: 4,
            function: "<module>".into(),
            text: Some("trainer.train()".into()),
            cell: Some(5),
        });
        oom.module = Some("model.layers.17.mlp".into());
        oom.model = Some("Qwen2ForCausalLM".into());
        oom.library_site = Some(Site {
            file: "/env/lib/python3.12/site-packages/transformers/models/qwen2/modeling_qwen2.py".into(),
            line: 46,
            function: "forward".into(),
            text: Some("down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))".into()),
            cell: None,
        });
    }
    looks("oom-trainer", &report);
}

/// Batches of different sizes, and one of the longest samples in step 3.
fn batches() -> Batches {
    Batches {
        seen: BatchRange { min: 980, max: 2104, unit: "tokens".into() },
        longest: Some(BatchPeak {
            step: 3,
            elements: 8192,
            shape: Some(vec![8, 1024]),
            peak_allocated: 6800 * MIB,
            peak_reserved: 7256 * MIB,
        }),
        usual: Some(BatchPeak { peak_allocated: 3000 * MIB, peak_reserved: 3400 * MIB, ..BatchPeak::default() }),
    }
}

#[test]
fn batches_differ() {
    let mut report = fits();
    report.batches = Some(batches());
    looks("batches", &report);
    report.batches = Some(Batches { longest: None, usual: None, ..batches() });
    let text = render_dry_run(&report, NORMAL);
    assert!(text.contains("batches: of 980 to 2,104 tokens; a longer one needs more"), "{text}");
}

#[test]
fn it_dies_on_the_longest_batch() {
    let mut report = oom();
    // Its step did not end, so that its peak is not known.
    let mut died = batches();
    died.longest = died.longest.map(|batch| BatchPeak { peak_allocated: 0, peak_reserved: 0, ..batch });
    report.batches = Some(died);
    if let Some(oom) = &mut report.devices[0].oom {
        oom.step = Some(3);
    }
    looks("oom-longest", &report);
    // A death in another step is not the longest batch's.
    if let Some(oom) = &mut report.devices[0].oom {
        oom.step = Some(2);
    }
    assert!(!render_dry_run(&report, NORMAL).contains("on a batch of the longest"));
}

#[test]
fn a_size_that_was_taken_as_the_most_bounds_the_peak_from_above_alone() {
    let mut report = oom();
    report.devices[0].oom = None;
    report.devices[0].peak_is_maximum = true;
    let text = render_dry_run(&report, NORMAL).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("(at most") && !text.contains("(between"), "{text}");
}

#[test]
fn it_does_not_fit_anywhere() {
    let mut report = oom();
    report.devices[0].needed = Some(peak(400_000, 410_000));
    report.devices[0].needed_is_minimum = true;
    if let Some(oom) = &mut report.devices[0].oom {
        oom.would_need_bytes = Some(410_300 * MIB);
    }
    report.fits_on.clear();
    report.smallest.clear();
    report.next.clear();
    looks("oom-nowhere", &report);
}

#[test]
fn it_fails_by_itself() {
    let mut report = fits();
    report.verdict = Verdict::Failed;
    report.exit_status = 1;
    report.stopped = Stopped::Exit;
    report.steps = 1;
    looks("failed", &report);
    report.exit_status = 139;
    looks("failed-signal", &report);
}

#[test]
fn it_never_touches_a_gpu() {
    let mut report = fits();
    report.verdict = Verdict::NoGpuUse;
    report.stopped = Stopped::Exit;
    report.steps = 0;
    report.devices = vec![device(0, Peak::default())];
    report.fits_on.clear();
    report.smallest.clear();
    looks("no-gpu-use", &report);
}

#[test]
fn no_card_was_named() {
    let mut report = fits();
    report.devices[0].gpu = UNBOUNDED.into();
    report.devices[0].capacity_bytes = None;
    looks("unbounded", &report);
}

#[test]
fn two_cards() {
    let mut report = fits();
    report.devices.push(device(1, peak(2048, 2560)));
    report.devices[1].processes = 2;
    looks("two-devices", &report);
}

#[test]
fn a_card_was_left_alone() {
    let mut report = fits();
    report.devices.push(DeviceReport { processes: 0, ..device(1, Peak::default()) });
    looks("unused-device", &report);
}

#[test]
fn a_capacity_without_a_name() {
    let mut report = fits();
    report.devices[0].gpu = CUSTOM.into();
    report.devices[0].gpu_name = "NVIDIA A100-SXM4-80GB".into();
    looks("custom", &report);
}

#[test]
fn a_card_of_another_size() {
    let mut report = fits();
    report.devices[0].gpu = CUSTOM.into();
    report.devices[0].like = Some("rtx-3060".into());
    looks("custom-like", &report);
}

#[test]
fn ranks_that_were_answered_for_are_not_called_unused() {
    let mut report = fits();
    report.devices = (0..8).map(|index| device(index, peak(4000, 5000))).collect();
    for device in &mut report.devices[2..7] {
        *device = DeviceReport { processes: 0, as_device: Some(1), ..device.clone() };
    }
    report.worst = WorstCard::of(&report.devices);
    let text = render_dry_run(&report, NORMAL);
    assert!(text.contains("\nGPU 2 to 6: not run, as GPU 1\n"), "{text}");
    assert!(!text.contains("not used") && !text.contains("more, none"), "{text}");
    // Cards that hold the same decide nothing.
    assert!(!text.contains("decides"), "{text}");
    report.devices[7].peak.process_bytes += 1 << 30;
    report.worst = WorstCard::of(&report.devices);
    assert!(render_dry_run(&report, NORMAL).contains("GPU 7 decides: it holds 1.00 GiB more"));
}

#[test]
fn many_cards_and_one_of_them_is_full() {
    let mut report = oom();
    let dying = report.devices.remove(0);
    report.devices = (0..8).map(|index| device(index, peak(4000, 5000))).collect();
    report.devices[5] = DeviceReport { index: 5, ..dying };
    let text = render_dry_run(&report, NORMAL);
    assert!(text.contains(", on GPU 5,"), "{text}");
    assert!(text.contains("and 4 more"), "{text}");
}

#[test]
fn with_warnings() {
    let mut report = fits();
    report.warnings = vec![
        "the size of a tensor at train.py:31 depends on a value that was never computed, so that the peak may differ \
         with real data"
            .into(),
        "cudaFooBar is not supported by the virtual GPU".into(),
    ];
    report.verdict = Verdict::Recovered;
    report.devices[0].caught_ooms = vec![Oom {
        requested_bytes: 1 << 40,
        allocated_bytes: None,
        reserved_bytes: None,
        free_bytes: None,
        message: "CUDA out of memory.".into(),
        step: None,
        phase: Phase::Other,
        site: Some(Site { file: "auto.py".into(), line: 7, function: "search".into(), text: None, cell: None }),
        would_need_bytes: None,
        forecast: false,
        library_site: None,
        module: None,
        model: None,
        instead: Some(Instead { requested_bytes: 1 << 40, granted_bytes: 1 << 30, errors: 10 }),
    }];
    looks("warnings", &report);
    // Without a second run it is not known which cards hold it unmodified.
    report.smallest.clear();
    let text = render_dry_run(&report, NORMAL);
    assert!(!text.contains("no card") && !text.contains("smallest cards"), "{text}");
    // Nor where the least that it needs is all that is known, unless no card has as much.
    report.verdict = Verdict::Oom;
    assert!(render_dry_run(&report, NORMAL).contains("no card of the catalogue"));
    report.devices[0].needed_is_minimum = true;
    assert!(!render_dry_run(&report, NORMAL).contains("no card of the catalogue"));
    report.devices[0].needed = Some(peak(400_000, 410_000));
    assert!(render_dry_run(&report, NORMAL).contains("no card of the catalogue"));
}

#[test]
fn what_it_needs_was_run() {
    let mut report = oom();
    let device = &mut report.devices[0];
    let found = SmallestCapacity {
        capacity_bytes: device.needed.map_or(0, |needed| needed.process_bytes),
        how: CapacityKnown::Run,
        fails_bytes: Some(15_712 * MIB),
        reserved_bytes: Some(24_000 * MIB),
        given_back_bytes: 9_300 * MIB,
        may_hold_bytes: None,
        runs: 2,
        ran_on: Vec::new(),
    };
    device.smallest_capacity = Some(found);
    report.smallest[0].confirmed = true;
    report.smallest[0].tight = true;
    looks("searched", &report);
}

#[test]
fn a_smaller_card_may_do() {
    let mut report = fits();
    let device = &mut report.devices[0];
    device.smallest_capacity = Some(SmallestCapacity {
        capacity_bytes: device.peak.process_bytes,
        how: CapacityKnown::Replayed,
        fails_bytes: None,
        reserved_bytes: device.peak.reserved_bytes,
        given_back_bytes: 0,
        may_hold_bytes: Some(device.peak.process_bytes / 10 * 9),
        runs: 0,
        ran_on: Vec::new(),
    });
    looks("may-hold", &report);
}

#[test]
fn a_long_path_and_a_long_line() {
    let mut report = oom();
    if let Some(site) = report.devices[0].oom.as_mut().and_then(|oom| oom.site.as_mut()) {
        site.file = format!("/home/someone/{}/train.py", "a-folder-with-a-long-name/".repeat(5));
        site.text = Some(format!("loss = criterion({})", "model(inputs), ".repeat(12)));
    }
    looks("long-path", &report);
}

#[test]
fn no_framework_reported_anything() {
    let mut report = fits();
    report.frameworks.clear();
    report.steps = 0;
    report.stopped = Stopped::Exit;
    let peak = &mut report.devices[0].peak;
    (peak.reserved_bytes, peak.allocated_bytes) = (None, None);
    peak.other_bytes = peak.process_bytes - peak.context_bytes;
    looks("no-framework", &report);
}

#[test]
fn hostile_strings_cannot_steer_the_terminal() {
    let evil = "\u{1b}]0;owned\u{7}\r\n\u{9b}2J\u{202e}";
    let mut report = oom();
    report.warnings = vec![evil.into()];
    report.frameworks.insert(evil.into(), evil.into());
    report.next[0].command = evil.into();
    report.smallest[0].gpu = evil.into();
    report.devices[0].gpu = evil.into();
    report.devices[0].gpu_name = evil.into();
    if let Some(oom) = &mut report.devices[0].oom {
        oom.message = evil.into();
        oom.site =
            Some(Site { file: evil.into(), line: 1, function: evil.into(), text: Some(evil.into()), cell: None });
    }
    let text = render_dry_run(&report, NORMAL);
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
    assert!(!text.contains('\u{202e}'));
}

/// A catalogue of three cards, so that these pages do not change with the real one.
fn small_catalogue() -> Catalogue {
    Catalogue::parse(include_str!("three-cards.toml")).expect("the test's catalogue can be read")
}

#[test]
fn the_catalogue() {
    let catalogue = small_catalogue();
    let report = GpusReport { schema: GpusSchema, gpus: catalogue.iter().collect() };
    insta::assert_snapshot!("gpus-80", render_gpus(&report, NORMAL));
    insta::assert_snapshot!("gpus-40", render_gpus(&report, NARROW));
    insta::assert_snapshot!("gpus-160", render_gpus(&report, WIDE));
    insta::assert_snapshot!("gpus-json", serde_json::to_string_pretty(&report).unwrap_or_default());
    for gpu in catalogue.iter() {
        let variants: Vec<_> = catalogue.variants(gpu).collect();
        insta::assert_snapshot!(format!("gpu-{}", gpu.id), render_gpu(gpu, &variants, NORMAL));
    }
}

/// TensorFlow reports what it allocated and not what its pool took: the parts of the card add up all the same.
#[test]
fn a_framework_that_reports_only_what_it_allocated() {
    let peak = Peak {
        process_bytes: 6000 * MIB,
        reserved_bytes: None,
        allocated_bytes: Some(2000 * MIB),
        context_bytes: 500 * MIB,
        other_bytes: 5500 * MIB,
        low_bytes: 5900 * MIB,
        high_bytes: 6100 * MIB,
    };
    let report = DryRunReport { devices: vec![device(0, peak)], ..fits() };
    let text = render_dry_run(&report, Style { width: 80, colour: false, unicode: true });
    assert!(text.contains("allocated 1.95 GiB") && text.contains("rest of its pool, other 3.42 GiB"), "{text}");
    assert!(text.contains("context 500.00 MiB"), "{text}");
    assert!(text.contains("free 5.90 GiB"), "{text}");
}

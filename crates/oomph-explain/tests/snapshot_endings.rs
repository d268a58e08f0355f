//! How recordings end: failures that programs get past, those that end a recording, and what would have come after them.

mod recording;

use oomph_explain::snapshot::{
    At, BeyondKind, CauseKind, DeviceExplanation, Limits, Options, Outcome, Owner, check, explain,
};
use oomph_trace::{StackId, Stage, Trace};
use recording::{MAIN, MIB, MODULE, OPTIMIZER, Recording};

const CONV: &str = "/v/site-packages/torch/nn/modules/conv.py";

fn of(trace: &Trace, options: &Options) -> DeviceExplanation {
    explain(trace, options, None).devices.remove(0)
}

fn place(index: u64) -> u64 {
    (1 << 40) + index * 1024 * MIB
}

/// Takes a segment for one block.
fn hold(recording: &mut Recording, index: u64, size: u64, stack: StackId) {
    recording.hold(place(index), size, stack);
}

#[test]
fn a_failure_that_the_program_got_past_is_no_out_of_memory_error() {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN, ("work.py", "attempt")]);
    hold(&mut recording, 0, 64 * MIB, site);
    recording.oom(900 * MIB, 100 * MIB, site);
    hold(&mut recording, 1, 32 * MIB, site);
    let trace = recording.finish();
    let options = Options { capacity: Some(1000 * MIB), ..Options::default() };
    let device = of(&trace, &options);
    assert_eq!(device.verdict.outcome, Outcome::Fits);
    assert!(device.oom.as_ref().is_some_and(|oom| !oom.fatal));
    let past = device.got_past.as_ref().expect("it is said");
    assert_eq!((past.count, past.workspaces, past.largest_bytes), (1, 0, 900 * MIB));
    assert_eq!(past.site.as_ref().map(|site| site.function.as_str()), Some("attempt"));
    assert!(device.what_if.iter().all(|row| row.card != "this card" || row.survives || !row.as_recorded));
    let limits = Limits { no_oom: true, ..Limits::default() };
    assert!(check(&explain(&trace, &options, None), None, &limits).violations.is_empty());
    // Whoever asks for that moment gets it, and still no out-of-memory error of the run.
    let then = of(&trace, &Options { at: At::Oom, ..options });
    assert_eq!(then.peak.active_bytes, 64 * MIB);
    assert_ne!(then.verdict.outcome, Outcome::Oom);
}

#[test]
fn a_workspace_that_cudnn_did_without_is_distinguished_from_an_error_that_was_caught() {
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to"), (MODULE, "_apply")]);
    let conv = recording.stack(&[MAIN, (MODULE, "_call_impl"), (CONV, "_conv_forward")]);
    let norm = recording.stack(&[MAIN, (MODULE, "_call_impl"), ("model.py", "forward")]);
    let input = recording.stack(&[MAIN, ("data.py", "batch")]);
    hold(&mut recording, 0, 64 * MIB, load);
    hold(&mut recording, 1, 32 * MIB, conv);
    recording.oom(500 * MIB, 100 * MIB, conv);
    hold(&mut recording, 2, 32 * MIB, norm);
    recording.oom(700 * MIB, 60 * MIB, conv);
    hold(&mut recording, 3, 4 * MIB, input);
    let past = of(&recording.finish(), &Options::default()).got_past.expect("it is said");
    assert_eq!((past.count, past.workspaces), (2, 1));
}

/// Steps that each keep `kept` and end with an optimizer that allocates, then a step whose forward pass fails.
fn training(steps: u64, kept: u64, last: u64) -> DeviceExplanation {
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to"), (MODULE, "_apply")]);
    let first = recording.stack(&[MAIN, (MODULE, "_call_impl"), ("model.py", "first")]);
    let second = recording.stack(&[MAIN, (MODULE, "_call_impl"), ("model.py", "second")]);
    let optimizer = recording.stack(&[MAIN, (OPTIMIZER, "wrapper"), ("/v/site-packages/torch/optim/adam.py", "step")]);
    hold(&mut recording, 0, 64 * MIB, load);
    for index in [1, 2, 3, 4] {
        recording.segment(place(index), 128 * MIB);
    }
    for step in 0..steps {
        if kept > 0 {
            hold(&mut recording, 10 + step, kept, first);
        }
        recording.alloc(place(1), 40 * MIB, first);
        recording.alloc(place(2), 100 * MIB, second);
        recording.alloc(place(3), 64 * MIB, StackId::NONE);
        recording.free(place(2));
        recording.free(place(1));
        recording.mark("Optimizer.step#Adam.step", Stage::Start);
        recording.alloc(place(4), 20 * MIB, optimizer);
        recording.free(place(4));
        recording.mark("Optimizer.step#Adam.step", Stage::End);
        recording.free(place(3));
    }
    recording.oom(last, 10 * MIB, first);
    of(&recording.finish(), &Options::default())
}

#[test]
fn the_rest_of_a_step_is_taken_from_the_step_before() {
    // After the same allocation the step before took 40 + 100 + 64 MiB; this one asks for half as much again.
    let device = training(4, 0, 60 * MIB);
    let beyond = device.beyond.expect("the step before shows it");
    assert_eq!(beyond.kind, BeyondKind::Step);
    assert_eq!(beyond.bytes, Some(306 * MIB));
    assert_eq!(device.verdict.outcome, Outcome::Oom);
    assert!(!device.verdict.what_helps.contains("saved"), "{}", device.verdict.what_helps);
}

#[test]
fn a_leak_is_what_would_have_gone_on_and_it_leads() {
    let device = training(8, 48 * MIB, 200 * MIB);
    assert_eq!(device.verdict.cause, Some(CauseKind::Leak));
    let leak = device.causes.iter().find(|cause| cause.cause == CauseKind::Leak).expect("there is one");
    assert_eq!(leak.each_bytes, Some(48 * MIB));
    let beyond = device.beyond.expect("it goes on");
    assert_eq!((beyond.kind, beyond.bytes, beyond.each_bytes), (BeyondKind::Leak, None, Some(48 * MIB)));
}

#[test]
fn an_evaluation_that_keeps_its_results_grows_with_every_round() {
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to"), (MODULE, "_apply")]);
    let input = recording.stack(&[MAIN, ("data.py", "batch")]);
    let forward = recording.stack(&[MAIN, (MODULE, "_call_impl"), ("model.py", "forward")]);
    hold(&mut recording, 0, 64 * MIB, load);
    recording.segment(place(1), 32 * MIB);
    recording.segment(place(2), 64 * MIB);
    for round in 0..6 {
        recording.alloc(place(1), 8 * MIB, input);
        recording.alloc(place(2), 64 * MIB, forward);
        hold(&mut recording, 10 + round, 24 * MIB, forward);
        recording.free(place(2));
        recording.free(place(1));
    }
    recording.alloc(place(1), 8 * MIB, input);
    recording.oom(96 * MIB, 10 * MIB, forward);
    let device = of(&recording.finish(), &Options::default());
    let beyond = device.beyond.expect("it goes on");
    assert_eq!(beyond.each_bytes, Some(24 * MIB));
    assert_eq!(device.verdict.cause, Some(CauseKind::Leak));
}

#[test]
fn memory_that_is_laid_out_ahead_is_no_leak() {
    let mut recording = Recording::default();
    let weights = recording.stack(&[MAIN, ("serve.py", "init_weight_list"), ("backend.py", "allocate")]);
    let cache = recording.stack(&[MAIN, ("serve.py", "init_cache"), ("backend.py", "allocate")]);
    for index in 0..8 {
        hold(&mut recording, index, 32 * MIB, weights);
    }
    for index in 8..12 {
        hold(&mut recording, index, 32 * MIB, cache);
    }
    recording.oom(32 * MIB, 10 * MIB, cache);
    let device = of(&recording.finish(), &Options::default());
    assert!(device.causes.iter().all(|cause| cause.cause != CauseKind::Leak));
    assert_eq!(device.beyond, None);
    let owned = |owner| device.owners.iter().find(|row| row.owner == owner).map_or(0, |row| row.bytes);
    assert_eq!((owned(Owner::Parameters), owned(Owner::KvCache)), (8 * 32 * MIB, 4 * 32 * MIB));
}

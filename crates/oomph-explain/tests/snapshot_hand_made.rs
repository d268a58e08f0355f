//! Recordings made by hand, of which the answer is known.

mod recording;

use oomph_explain::snapshot::{At, CauseKind, Limits, Names, Options, Outcome, Owner, check, diff, explain, ranks};
use oomph_trace::{Device, DeviceKind, Event, Events, PoolId, StackId, Stage, Trace};
use recording::programs::{fragmented, training, training_in_closures};
use recording::{MAIN, MIB, MODULE, OPTIMIZER, Recording, caused, device, owned};

fn at(at: At) -> Options {
    Options { at, ..Options::default() }
}

#[test]
fn the_owners_of_a_training_step_are_inferred() {
    let mut recording = Recording::default();
    let ends = training(&mut recording, 3, &mut |_| false);
    owners_are_those_of_training(&recording.finish(), &ends);
}

#[test]
fn what_an_optimizers_closure_allocates_is_not_the_optimizers() {
    let mut recording = Recording::default();
    let ends = training_in_closures(&mut recording, 3);
    owners_are_those_of_training(&recording.finish(), &ends);
}

#[test]
fn a_forward_pass_that_dies_in_a_closure_made_no_optimizer_state() {
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to")]);
    let closure = [(OPTIMIZER, "wrapper"), ("train.py", "closure"), (MODULE, "_call_impl"), ("model.py", "forward")];
    let forward = recording.stack(&[&[MAIN], &closure[..]].concat());
    for index in 0..2 {
        recording.segment((1 << 40) + index * 100 * MIB, 50 * MIB);
    }
    recording.alloc(1 << 40, 50 * MIB, load);
    recording.mark("Optimizer.step#Adam.step", Stage::Start);
    recording.alloc((1 << 40) + 100 * MIB, 50 * MIB, forward);
    recording.oom(50 * MIB, 20 * MIB, forward);
    let device = device(&recording.finish(), &Options::default());
    assert_eq!(owned(&device, Owner::Activations), 50 * MIB);
    assert_eq!(caused(&device, CauseKind::LazyOptimizerState), None);
}

fn owners_are_those_of_training(trace: &Trace, ends: &[u64]) {
    for (step, end) in ends.iter().enumerate() {
        let device = device(trace, &at(At::Event(*end)));
        assert_eq!(owned(&device, Owner::Parameters), 48 * MIB);
        assert_eq!(owned(&device, Owner::Gradients), 48 * MIB);
        assert_eq!(owned(&device, Owner::OptimizerState), if step == 0 { 0 } else { 48 * MIB });
        assert_eq!(owned(&device, Owner::Inputs), 4 * MIB);
        assert_eq!(owned(&device, Owner::Activations), 0);
        assert_eq!(device.steps, 3);
    }
    // Before backward begins, the activation is there.
    let device = device(trace, &at(At::Event(20)));
    assert_eq!(owned(&device, Owner::Activations), 24 * MIB);
    assert_eq!(owned(&device, Owner::Gradients), 0);
}

#[test]
fn a_leak_is_what_many_steps_left_behind() {
    let mut recording = Recording::default();
    training(&mut recording, 8, &mut |_| true);
    let device = device(&recording.finish(), &at(At::End));
    // At the end of the eighth step there are eight; what the last step left could still be assigned anew.
    assert_eq!(caused(&device, CauseKind::Leak), Some(8 * 24 * MIB));
    let leak = device.causes.iter().find(|cause| cause.cause == CauseKind::Leak).unwrap();
    assert_eq!(leak.evidence[0].site.as_ref().unwrap().file, "model.py");

    let mut sound = Recording::default();
    training(&mut sound, 8, &mut |_| false);
    let trace = sound.finish();
    for moment in [At::Peak, At::End] {
        assert_eq!(caused(&self::device(&trace, &at(moment)), CauseKind::Leak), None);
    }
}

#[test]
fn results_of_one_early_step_are_kept_and_no_leak() {
    let mut recording = Recording::default();
    training(&mut recording, 8, &mut |step| step == 1);
    let device = device(&recording.finish(), &at(At::End));
    assert_eq!(caused(&device, CauseKind::KeptFromEarlierPhase), Some(24 * MIB));
    assert_eq!(caused(&device, CauseKind::Leak), None);
}

#[test]
fn what_neither_pytorch_nor_its_context_holds_is_a_neighbours() {
    let options = Options { capacity: Some(1000 * MIB), context_bytes: Some(60 * MIB), ..Options::default() };
    let device = device(&fragmented(0), &options);
    let card = device.card.unwrap();
    assert_eq!((card.context_bytes, card.other_bytes, card.free_bytes), (60 * MIB, 720 * MIB, 20 * MIB));
    assert_eq!(caused(&device, CauseKind::OtherProcesses), Some(720 * MIB));
}

#[test]
fn fragmentation_names_the_block_that_pins_and_the_setting_that_helps() {
    let options = Options { capacity: Some(300 * MIB), context_bytes: Some(60 * MIB), ..Options::default() };
    let device = device(&fragmented(0), &options);
    assert_eq!(device.verdict.outcome, Outcome::Oom);
    assert_eq!(device.verdict.cause, Some(CauseKind::Fragmentation));
    assert_eq!(caused(&device, CauseKind::Fragmentation), Some(192 * MIB));
    let card = device.card.unwrap();
    // 20 MiB in addition to the context are not a neighbour: the context's cost is not known to the MiB.
    assert_eq!((card.context_bytes, card.other_bytes, card.free_bytes), (80 * MIB, 0, 20 * MIB));
    assert_eq!(device.pinned.len(), 2);
    assert_eq!(device.pinned[0].pinned_by.bytes, 4 * MIB);
    assert_eq!(device.pinned[0].largest_free_bytes, 96 * MIB);
    assert_eq!(device.pinned[0].pinned_by.site.as_ref().unwrap().function, "build");
    let says = |settings: &str| {
        device.what_if.iter().find(|row| row.settings == settings).map(|row| (row.survives, row.says.as_str())).unwrap()
    };
    assert_eq!(says(""), (false, "runs out of memory"));
    assert_eq!(says("expandable_segments:True"), (true, "gets past this allocation; the recording ends there"));
    assert_eq!(says("garbage_collection_threshold:0.8"), (false, "does not get past it"));
}

#[test]
fn free_memory_of_another_stream_is_distinguished() {
    let device = device(&fragmented(7), &Options::default());
    assert_eq!(device.verdict.cause, Some(CauseKind::CacheOfAnotherStream));
    assert_eq!(caused(&device, CauseKind::CacheOfAnotherStream), Some(192 * MIB));
    assert_eq!(caused(&device, CauseKind::Fragmentation), None);
}

#[test]
fn a_block_that_came_back_too_late_makes_the_failure_spurious() {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN]);
    recording.segment(1 << 40, 100 * MIB);
    recording.alloc(1 << 40, 4 * MIB, site);
    recording.alloc((1 << 40) + 4 * MIB, 96 * MIB, site);
    // The wait for the other stream ends while PyTorch looks for memory.
    recording.free((1 << 40) + 4 * MIB);
    recording.oom(90 * MIB, 20 * MIB, site);
    let device = device(&recording.finish(), &Options::default());
    assert_eq!(device.verdict.cause, Some(CauseKind::SpuriousOom));
    assert_eq!(caused(&device, CauseKind::SpuriousOom), Some(96 * MIB));
}

#[test]
fn an_optimizer_that_makes_its_state_too_late_is_named() {
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to")]);
    let step =
        recording.stack(&[MAIN, (OPTIMIZER, "wrapper"), ("/v/site-packages/torch/optim/adam.py", "_init_group")]);
    for index in 0..3 {
        recording.segment((1 << 40) + index * 100 * MIB, 50 * MIB);
    }
    recording.alloc(1 << 40, 50 * MIB, load);
    recording.alloc((1 << 40) + 100 * MIB, 50 * MIB, StackId::NONE);
    recording.alloc((1 << 40) + 200 * MIB, 50 * MIB, step);
    recording.oom(50 * MIB, 20 * MIB, step);
    let device = device(&recording.finish(), &Options::default());
    assert_eq!(device.verdict.cause, Some(CauseKind::LazyOptimizerState));
    assert_eq!(caused(&device, CauseKind::LazyOptimizerState), Some(50 * MIB));
    assert_eq!(owned(&device, Owner::Gradients), 50 * MIB);
}

#[test]
fn memory_from_before_the_recording_is_counted_as_unknown() {
    let mut recording = Recording::default();
    recording.already(1 << 40, 64 * MIB, 64 * MIB);
    let site = recording.stack(&[MAIN]);
    recording.hold(1 << 41, 32 * MIB, site);
    let device = device(&recording.finish(), &Options::default());
    assert_eq!(caused(&device, CauseKind::RecordedTooLate), Some(64 * MIB));
    assert_eq!(owned(&device, Owner::Unattributed), 64 * MIB);
}

#[test]
fn the_slack_of_blocks_that_are_gone_is_known() {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN]);
    recording.segment(1 << 40, 20 * MIB);
    // Less than 1 MiB is left, which stays in the block.
    recording.alloc(1 << 40, 19 * MIB + 100, site);
    let full = recording.len();
    recording.free(1 << 40);
    // The rest is cut off.
    recording.alloc(1 << 40, 5 * MIB, site);
    let trace = recording.finish();
    let before = device(&trace, &at(At::Event(full)));
    assert_eq!(before.peak.allocated_bytes, 20 * MIB);
    assert_eq!(owned(&before, Owner::SlackInBlocks), MIB - 100);
    let after = device(&trace, &at(At::End));
    assert_eq!((after.peak.allocated_bytes, owned(&after, Owner::CachedSplit)), (5 * MIB, 15 * MIB));
    assert_eq!(after.peak_active_bytes, 20 * MIB);
}

#[test]
fn names_win_over_what_is_inferred() {
    let mut recording = Recording::default();
    let ends = training(&mut recording, 2, &mut |_| false);
    let trace = recording.finish();
    let text = format!(
        r#"{{"schema":"oomph.names/1","pid":1,"devices":{{"0":{{"allocations_at_start":0,"allocations_at_snapshot":18}}}},
            "names":[{{"device":0,"at":2,"address":{0},"size":{1},"owner":"parameter","name":"net.up.weight","shape":[2],
                       "dtype":"bfloat16"}},
                     {{"device":0,"at":3,"address":{2},"size":{1},"owner":"kv-cache","name":null,"shape":null,"dtype":null}},
                     {{"device":0,"at":3,"address":99,"size":1,"owner":"other","name":null}}],
            "modules":[{{"device":0,"at":3,"enter":"net.mlp"}},{{"device":0,"at":5,"leave":"net.mlp"}}],
            "phases":[],"complete":{{"names":true,"modules":true}}}}"#,
        1u64 << 40,
        32 * MIB,
        (1u64 << 40) + 8 * 32 * MIB,
    );
    let names = Names::parse(text.as_bytes()).unwrap();
    let explained = explain(&trace, &at(At::Event(ends[0])), Some(&names)).devices.remove(0);
    let parameters = explained.owners.iter().find(|row| row.owner == Owner::Parameters).unwrap();
    assert_eq!((parameters.bytes, parameters.named_bytes), (48 * MIB, 32 * MIB));
    // The batch is what the hook says it is.
    assert_eq!(owned(&explained, Owner::KvCache), 4 * MIB);
    assert_eq!(owned(&explained, Owner::Inputs), 0);
    let dtype = explained.by_dtype.iter().find(|group| group.name == "bfloat16").unwrap();
    assert_eq!(dtype.bytes, 32 * MIB);
    let module = explained.by_module.iter().find(|group| group.name == "net.up").unwrap();
    assert_eq!(module.bytes, 32 * MIB);

    let in_forward = explain(&trace, &at(At::Event(ends[0] - 7)), Some(&names)).devices.remove(0);
    let mlp = in_forward.by_module.iter().find(|group| group.name == "net.mlp").unwrap();
    assert_eq!(mlp.bytes, 24 * MIB);
}

#[test]
fn names_of_another_version_are_refused() {
    assert!(Names::parse(br#"{"schema":"oomph.names/2"}"#).unwrap_err().to_string().contains("oomph.names/2"));
    assert!(Names::parse(b"[]").is_err());
}

#[test]
fn recordings_are_compared_by_owner_and_line() {
    let run = |steps, leaks| {
        let mut recording = Recording::default();
        training(&mut recording, steps, &mut |_| leaks);
        explain(&recording.finish(), &at(At::End), None)
    };
    let (sound, leaking) = (run(6, false), run(6, true));
    let change = diff(&sound, &leaking);
    assert_eq!(change.devices[0].allocated_growth_bytes, (6 * 24 * MIB) as i64);
    assert_eq!(change.devices[0].reserved_growth_bytes, 0);
    let line = &change.devices[0].by_line[0];
    assert_eq!((line.name.as_str(), line.growth_bytes), ("model.py:3 in forward", (6 * 24 * MIB) as i64));
    assert!(diff(&sound, &sound).devices[0].by_owner.is_empty());

    let limits = Limits { no_leak: true, max_growth: Some(MIB), no_oom: true, ..Limits::default() };
    assert!(check(&sound, Some(&sound), &limits).passed);
    let failed = check(&leaking, Some(&sound), &limits);
    let broken: Vec<&str> = failed.violations.iter().map(|violation| violation.limit).collect();
    assert_eq!((failed.passed, broken), (false, vec!["max-growth", "no-leak"]));
    let peak = sound.devices[0].peak_reserved_bytes;
    assert!(check(&sound, None, &Limits { max_peak_reserved: Some(peak), ..Limits::default() }).passed);
    assert!(!check(&sound, None, &Limits { max_peak_reserved: Some(peak - 1), ..Limits::default() }).passed);

    let named = |name: &str, explanation| (name.to_owned(), explanation);
    let recordings = [sound.clone(), run(8, true), sound.clone()];
    let names = ["out/run.pickle", "out/run-rank1.pickle", "out/RANK_2.pkl"];
    let recordings: Vec<_> = names.into_iter().zip(recordings).map(|(name, one)| named(name, one)).collect();
    let comparison = ranks(&recordings);
    let labels: Vec<&str> = comparison.ranks.iter().map(|rank| rank.label.as_str()).collect();
    assert_eq!(labels, ["run.pickle", "rank 1", "rank 2"]);
    assert_eq!((comparison.worst, comparison.typical), (Some(1), Some(2)));
    assert!(comparison.because.starts_with("rank 1 has"), "{}", comparison.because);
}

/// A first forward pass that runs out of memory has shown no backward pass, but what it keeps shows that there would be one.
#[test]
fn a_forward_pass_that_keeps_what_it_makes_would_be_followed_by_a_backward_pass() {
    for kept in [true, false] {
        let mut recording = Recording::default();
        let load = recording.stack(&[MAIN, (MODULE, "to"), (MODULE, "_apply")]);
        let forward = recording.stack(&[MAIN, (MODULE, "_call_impl"), ("model.py", "forward")]);
        let segment = |index: u64| (1 << 40) + index * 32 * MIB;
        (0..=12).for_each(|index| recording.segment(segment(index), 32 * MIB));
        recording.alloc(segment(0), 32 * MIB, load);
        for index in 1..=12 {
            recording.alloc(segment(index), 32 * MIB, forward);
            if !kept && index > 1 {
                recording.free(segment(index - 1));
            }
        }
        recording.oom(32 * MIB, 0, forward);
        let device = device(&recording.finish(), &Options::default());
        assert_eq!(owned(&device, Owner::Parameters), 32 * MIB);
        let (activations, temporaries) = if kept { (384, 0) } else { (0, 32) };
        assert_eq!(owned(&device, Owner::Activations), activations * MIB);
        assert_eq!(owned(&device, Owner::Temporaries), temporaries * MIB);
    }
}

/// A model is loaded and used, another one is loaded: whether the first is still at work shows by the lines that compute.
#[test]
fn a_model_that_has_done_its_work_is_named() {
    let weight = |index: u64| (1 << 40) + index * 100 * MIB;
    for (then, expected) in [("nothing", Some(100)), ("decoder.py", Some(100)), ("encoder.py", None)] {
        let mut recording = Recording::default();
        let load = recording.stack(&[MAIN, ("/v/site-packages/transformers/modeling_utils.py", "from_pretrained")]);
        let line =
            |recording: &mut Recording, file| recording.stack(&[MAIN, (MODULE, "_call_impl"), (file, "forward")]);
        let encode = line(&mut recording, "encoder.py");
        let compute = |recording: &mut Recording, stack| {
            for _ in 0..10 {
                recording.alloc(weight(8), 20 * MIB, stack);
                recording.free(weight(8));
            }
        };
        (0..4).for_each(|index| recording.segment(weight(index), 50 * MIB));
        recording.segment(weight(8), 20 * MIB);
        recording.alloc(weight(0), 50 * MIB, load);
        recording.alloc(weight(1), 50 * MIB, load);
        compute(&mut recording, encode);
        recording.alloc(weight(2), 50 * MIB, load);
        if then != "nothing" {
            recording.alloc(weight(3), 50 * MIB, load);
            let again = line(&mut recording, then);
            compute(&mut recording, again);
        }
        let request = if then == "nothing" { load } else { line(&mut recording, then) };
        recording.oom(60 * MIB, 0, request);
        let device = device(&recording.finish(), &Options::default());
        let kept = caused(&device, CauseKind::KeptFromEarlierPhase);
        assert_eq!(kept, expected.map(|size| size * MIB), "then {then}");
        if expected.is_some() {
            assert_eq!(device.verdict.cause, Some(CauseKind::KeptFromEarlierPhase), "then {then}");
        }
    }
}

/// Up to 2.10 a snapshot names the pool of a segment and not that of an event.
#[test]
fn private_pools_are_known_where_only_segments_name_them() {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN]);
    recording.segment(1 << 40, 100 * MIB);
    recording.alloc(1 << 40, 96 * MIB, site);
    let captured = recording.len();
    recording.free(1 << 40);
    recording.alloc(1 << 40, 4 * MIB, site);
    recording.hold(1 << 41, 50 * MIB, site);
    recording.oom(60 * MIB, 20 * MIB, site);
    let mut trace = recording.finish();
    let mut events = Events::default();
    trace.devices[0].events.iter().for_each(|event| events.push(Event { pool: None, ..event }));
    trace.devices[0].events = events;
    let graph = trace.devices[0].segments.iter_mut().find(|segment| segment.address == 1 << 40).unwrap();
    graph.pool = PoolId(0, 1);
    // While the graph was captured, its segment was the graph's as well.
    assert_eq!(owned(&device(&trace, &at(At::Event(captured))), Owner::GraphPools), 100 * MIB);
    let device = device(&trace, &Options::default());
    assert_eq!(caused(&device, CauseKind::CacheOfAnotherPool), Some(96 * MIB));
    assert_eq!(owned(&device, Owner::GraphPools), 100 * MIB);
}

#[test]
fn pinned_memory_is_distinguished_from_the_cards() {
    let mut recording = Recording::default();
    let site = recording.stack(&[MAIN, ("loader.py", "pin")]);
    recording.hold(1 << 40, 64 * MIB, site);
    recording.hold(1 << 41, 32 * MIB, site);
    recording.free(1 << 41);
    let mut trace = recording.finish();
    trace.devices[0].kind = DeviceKind::PinnedHost;
    trace.devices.push(Device::default());
    let explained = explain(&trace, &Options::default(), None);
    assert_eq!(explained.devices.len(), 1);
    let host = explained.pinned_host.unwrap();
    assert_eq!((host.reserved_bytes, host.in_use_bytes, host.peak_reserved_bytes), (96 * MIB, 64 * MIB, 96 * MIB));
    let line = &host.by_line[0];
    assert_eq!((line.bytes, line.site.as_ref().unwrap().file.as_str()), (64 * MIB, "loader.py"));
}

/// The file is written when the error has passed the frames that held the weights.
#[test]
fn what_the_error_itself_set_free_was_held() {
    let mut recording = Recording::default();
    let load = recording.stack(&[MAIN, (MODULE, "to"), (MODULE, "_apply")]);
    recording.hold(1 << 40, 100 * MIB, load);
    recording.oom(60 * MIB, 0, load);
    recording.free(1 << 40);
    let device = device(&recording.finish(), &Options::default());
    assert_eq!(owned(&device, Owner::Parameters), 100 * MIB);
}

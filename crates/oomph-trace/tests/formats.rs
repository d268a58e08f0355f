//! Each format and each wrapping is recognised by its content and read.

use std::io::Write;
use std::path::Path;

use oomph_trace::write::{StackSharing, curve, snapshot};
use oomph_trace::{
    Action, BlockState, Device, DeviceKind, Event, PoolId, ReadOptions, SourceKind, StackId, StringId, Trace, read,
    read_from,
};

fn parse(bytes: &[u8]) -> Trace {
    read_from(bytes, "test", &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn frames(trace: &Trace, stack: StackId) -> Vec<String> {
    let frames = trace.stacks.innermost_first(stack).filter_map(|id| trace.frames.get(id));
    frames.map(|f| format!("{}@{}:{}", trace.strings.get(f.name), trace.strings.get(f.file), f.line)).collect()
}

/// A pickled snapshot of `count` events.
fn pickled(count: u64) -> Vec<u8> {
    let mut trace = Trace::default();
    let mut device = Device::default();
    for i in 0..count {
        device.events.push(Event {
            action: Action::Alloc,
            address: 0x7f00_0000_0000 + i * 512,
            size: 512,
            stream: 0,
            pool: None,
            stack: StackId::NONE,
            time_us: 1,
            label: StringId::EMPTY,
        });
    }
    trace.devices.push(device);
    let mut bytes = Vec::new();
    snapshot(&trace, StackSharing::All, &mut bytes).expect("writing to memory");
    bytes
}

/// A ZIP archive as `torch.save` writes it: stored, sizes only after the data.
fn zipped(name: &str, method: u16, data: &[u8]) -> Vec<u8> {
    let mut zip = b"PK\x03\x04\x00\x00\x08\x08".to_vec();
    zip.extend(method.to_le_bytes());
    zip.extend([0; 16]);
    zip.extend((name.len() as u16).to_le_bytes());
    zip.extend(5_u16.to_le_bytes());
    zip.extend(name.as_bytes());
    zip.extend(b"FB\x01\x00Z");
    zip.extend(data);
    zip.extend(b"PK\x07\x08...");
    zip
}

fn gzipped(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).expect("writing to memory");
    encoder.finish().expect("writing to memory")
}

#[test]
fn wrappings_are_seen_through() {
    let plain = pickled(3000);
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let mut deflated = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    deflated.write_all(&plain).expect("writing to memory");
    let deflated = deflated.finish().expect("writing to memory");
    for (name, bytes) in [
        ("gzip", gzipped(&plain)),
        ("zstd", zstd),
        ("gzip in gzip", gzipped(&gzipped(&plain))),
        ("torch.save", zipped("snapshot/data.pkl", 0, &plain)),
        ("zip", zipped("snapshot.pickle", 8, &deflated)),
    ] {
        assert_eq!(parse(&bytes).devices[0].events.len(), 3000, "{name}");
        // Half of it is an error that says so, wherever the half ends.
        let error = read_from(&bytes[..bytes.len() / 2], name, &ReadOptions::default()).expect_err("half is missing");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

#[test]
fn a_snapshot_of_python_objects_in_json_is_the_same_snapshot() {
    let trace = parse(
        br#"{"segments":[{"device":1,"address":1024,"total_size":2097152,"stream":0,"segment_type":"large",
            "segment_pool_id":[0,3],"is_expandable":true,"frames":[],"blocks":[
              {"address":1024,"size":512,"requested_size":500,"state":"active_allocated",
               "frames":[{"name":"f","filename":"a.py","line":3}]},
              {"address":1536,"size":512,"requested_size":0,"state":"inactive","frames":[]}]}],
            "device_traces":[[],[{"action":"alloc","addr":1024,"size":500,"stream":0,"time_us":7,
              "frames":[{"name":"f","filename":"a.py","line":3},{"name":"g","filename":"a.py","line":9}]},
              {"action":"oom","device_free":99,"size":4096,"stream":0,"frames":[]}]],
            "allocator_settings":{"PYTORCH_CUDA_ALLOC_CONF":"x:1","max_split_size":-1,
              "roundup_power2_divisions":{"1":4,"1024":8},"release_lock_on_cudamalloc":false},
            "external_annotations":[{"stage":"START","name":"step","device":0,"time_us":5}],
            "something_new":{"deep":[1,[2]]}}"#,
    );
    assert_eq!(trace.source, SourceKind::Snapshot);
    let [device] = &trace.devices[..] else { panic!("{:?}", trace.devices) };
    assert_eq!((device.kind, device.index), (DeviceKind::Cuda, 1));
    assert_eq!(device.segments[0].pool, PoolId(0, 3));
    assert_eq!(device.blocks[0].state, BlockState::ActiveAllocated);
    assert_eq!(frames(&trace, device.blocks[0].stack), ["f@a.py:3"]);
    let events: Vec<Event> = device.events.iter().collect();
    assert_eq!(frames(&trace, events[0].stack), ["f@a.py:3", "g@a.py:9"]);
    assert_eq!((events[1].action, events[1].address, events[1].size), (Action::Oom, 99, 4096));
    assert_eq!(trace.settings.max_split_size, Some(u64::MAX));
    assert_eq!(trace.settings.roundup_power2_divisions, [(1, 4), (1024, 8)]);
    assert_eq!(trace.annotations.len(), 1);
}

#[test]
fn old_blocks_have_addresses_from_the_sizes_before_them() {
    let trace = parse(
        br#"[{"device":0,"address":4096,"total_size":3072,"stream":0,"segment_type":"small","blocks":[
            {"size":1024,"state":"inactive"},
            {"size":512,"requested_size":400,"state":"active_allocated",
             "history":[{"addr":1,"real_size":401,"frames":[{"name":"new","filename":"a","line":1}]},
                        {"addr":1,"real_size":9,"frames":[]}]},
            {"size":1536,"state":"active_pending_free","history":[{"addr":1,"real_size":1500}]}]}]"#,
    );
    let blocks = &trace.devices[0].blocks;
    assert_eq!(blocks.iter().map(|block| block.address).collect::<Vec<_>>(), [4096, 5120, 5632]);
    assert_eq!(blocks.iter().map(|block| block.requested).collect::<Vec<_>>(), [1024, 400, 1500]);
    assert_eq!(frames(&trace, blocks[1].stack), ["new@a:1"]);
}

#[test]
fn a_profile_gives_allocations_reserved_memory_and_what_ran() {
    let trace = parse(
        br#"{"schemaVersion":1,"traceEvents":[
            {"ph":"X","cat":"python_function","name":"train.py(4): step","pid":1,"tid":2,"ts":100,"dur":100},
            {"ph":"X","cat":"user_annotation","name":"my step","pid":1,"tid":2,"ts":105.5,"dur":80},
            {"ph":"X","cat":"cpu_op","name":"aten::empty","pid":1,"tid":2,"ts":110.25,"dur":5},
            {"ph":"X","cat":"cpu_op","name":"aten::mul","pid":1,"tid":3,"ts":100,"dur":50},
            {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":100,"dur":500},
            {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":2,"ts":112.5,"args":
              {"Total Reserved":20971520,"Total Allocated":1536,"Bytes":512,"Addr":1024,"Device Id":0,"Device Type":1}},
            {"ph":"i","s":"t","name":"[memory]","pid":1,"tid":2,"ts":120,"args":
              {"Total Reserved":20971520,"Total Allocated":1024,"Bytes":-512,"Addr":1024,"Device Id":0,"Device Type":1}},
            {"ph":"i","s":"t","name":"[OutOfMemory]","pid":"1","tid":2,"ts":130,"args":
              {"Total Reserved":0,"Total Allocated":1024,"Bytes":9999,"Device Id":0,"Device Type":1}},
            {"ph":"i","s":"t","name":"[memory]","pid":1,"tid":2,"ts":90,"args":
              {"Bytes":64,"Addr":5,"Device Id":-1,"Device Type":0}},
            {"ph":"X","cat":"Trace","ts":1,"dur":2,"pid":"Spans","tid":"P","name":"P","args":{"Op count":0}}
        ],"traceName":"x"}"#,
    );
    assert_eq!(trace.source, SourceKind::Profiler);
    assert_eq!(
        trace.devices.iter().map(|device| device.kind).collect::<Vec<_>>(),
        [DeviceKind::Cuda, DeviceKind::Host]
    );
    let events: Vec<Event> = trace.devices[0].events.iter().collect();
    let seen: Vec<(Action, u64, u64)> = events.iter().map(|event| (event.action, event.size, event.address)).collect();
    assert_eq!(
        seen,
        [
            (Action::SegmentAlloc, 20_971_520, 0),
            (Action::Alloc, 1024, 0),
            (Action::Alloc, 512, 1024),
            (Action::FreeCompleted, 512, 1024),
            (Action::SegmentFree, 20_971_520, 0),
            (Action::Oom, 9999, 0),
        ]
    );
    assert_eq!(frames(&trace, events[2].stack), ["aten::empty@:0", "my step@:0", "step@train.py:4"]);
    assert_eq!(frames(&trace, events[3].stack), ["my step@:0", "step@train.py:4"]);
    assert_eq!(trace.annotations.len(), 2);
    assert_eq!(trace.devices[0].events.get(3).map(|event| event.time_us), Some(120));
}

#[test]
fn memory_timelines_are_changes_by_category() {
    let plain = parse(b"[[10, 20, 30], [[0, 100, 0, 0], [0, 100, 50, 0], [0, 0, 50, 7]]]");
    let raw = parse(&gzipped(
        b"[[-1, 1, 100, 0], [20000, 2, 50, 1], [30000, 3, -50, 1], [30000, 3, 50, 5], [30000, 4, -100, 0]]",
    ));
    let changes = |trace: &Trace| -> Vec<(i64, Action, u64, String)> {
        assert_eq!(trace.source, SourceKind::Timeline);
        let events = trace.devices[0].events.iter();
        events.map(|e| (e.time_us, e.action, e.size, trace.strings.get(e.label).to_owned())).collect()
    };
    assert_eq!(
        changes(&plain),
        [
            (10, Action::Alloc, 100, "parameter".into()),
            (20, Action::Alloc, 50, "optimizer_state".into()),
            (30, Action::FreeCompleted, 100, "parameter".into()),
            (30, Action::Alloc, 7, "input".into()),
        ]
    );
    assert_eq!(
        changes(&raw),
        [
            (0, Action::Alloc, 100, "parameter".into()),
            (20, Action::Alloc, 50, "optimizer_state".into()),
            (30, Action::FreeCompleted, 50, "optimizer_state".into()),
            (30, Action::Alloc, 50, "gradient".into()),
            (30, Action::FreeCompleted, 100, "parameter".into()),
        ]
    );
}

#[test]
fn the_log_of_the_virtual_gpu_is_one_object_a_line() {
    let log = b"{\"t\":5,\"pid\":17,\"device\":1,\"kind\":\"malloc\",\"address\":4096,\"size\":2097152}\n\
                {\"kind\":\"refuse\",\"device\":0,\"t\":6,\"address\":100,\"size\":500,\"new\":[1]}\n\
                {\"t\":6,\"device\":1,\"kind\":\"place\",\"address\":8192,\"size\":512}\n\
                {\"t\":7,\"pid\":17,\"device\":1,\"kind\":\"free\",\"address\":4096,\"size\":2097152,\"stream\":9}\n";
    let trace = parse(log);
    assert_eq!(trace.source, SourceKind::VirtualGpu);
    assert_eq!(trace.devices.iter().map(|device| device.index).collect::<Vec<_>>(), [0, 1]);
    let last = trace.devices[1].events.iter().next_back().expect("five events");
    assert_eq!((last.action, last.stream, trace.strings.get(last.label)), (Action::SegmentFree, 9, "pid 17"));
    assert_eq!(trace.devices[0].events.get(0).map(|event| event.action), Some(Action::Oom));
    let cut = &log[..log.len() - 20];
    let error = read_from(cut, "log", &ReadOptions::default()).expect_err("the last line is cut");
    assert!(error.to_string().contains("ends in the middle"), "{error}");
    let saved = read_from(cut, "log", &ReadOptions { salvage: true, ..ReadOptions::default() }).expect("two lines");
    let actions: Vec<Action> = saved.devices[1].events.iter().map(|event| event.action).collect();
    assert_eq!(actions, [Action::SegmentAlloc, Action::Alloc, Action::Alloc]);
    assert_eq!(saved.notes.len(), 1);
    // What was not freed is still allocated: the block of 2 MiB fills its granule, and the small one lies in none.
    let [segment] = saved.devices[1].segments[..] else { panic!("{:?}", saved.devices[1].segments) };
    assert_eq!((segment.address, segment.total_size), (4096, 2 << 20));
    let blocks: Vec<_> = saved.devices[1].blocks.iter().map(|block| (block.address, block.size)).collect();
    assert_eq!(blocks, [(4096, 2 << 20)]);
    assert!(trace.devices[1].segments.is_empty(), "the last line gave it back");
}

/// Real profiler files of 2021, with the numbers that `gzip -dc | jq` gives.
#[test]
fn real_profiler_files_are_read_whole() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/snapshots");
    if !folder.exists() {
        println!("skipped: no real files are here");
        return;
    }
    let trace = read(&folder.join("kineto_resnet50_nw4.pt.trace.json.gz"), &ReadOptions::default()).expect("a profile");
    assert_eq!(trace.devices.iter().map(|device| device.events.len()).sum::<usize>(), 10_980);
    let timeline = read(&folder.join("hta_memory_timeline.raw.gz"), &ReadOptions::default()).expect("a timeline");
    assert_eq!(timeline.devices[0].events.len(), 16_845);
    let peak = curve(&timeline.devices[0]).map(|sample| sample.allocated).max();
    println!("peak of the timeline: {peak:?}");
}

//! Files that lie: each is refused in one line with the offset, at once and without taking memory for it.

use std::io::Write as _;
use std::time::{Duration, Instant};

use oomph_trace::write::{StackSharing, snapshot};
use oomph_trace::{Action, Cause, Device, Event, Frame, ReadOptions, StackId, StringId, Trace, read_from};

fn read(bytes: &[u8]) -> Result<Trace, oomph_trace::ReadError> {
    read_from(bytes, "hostile", &ReadOptions::default())
}

fn salvage(bytes: &[u8]) -> Result<Trace, oomph_trace::ReadError> {
    read_from(bytes, "hostile", &ReadOptions { salvage: true, ..ReadOptions::default() })
}

/// The most memory that this process had so far, in bytes; `None` where the system does not say.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// Two devices, a stack, an OOM.
fn small() -> Vec<u8> {
    let mut trace = Trace::default();
    let name = trace.strings.intern("forward");
    let frame = trace.frames.intern(Frame { name, file: name, line: 7 });
    let stack = trace.stacks.push(StackId::NONE, frame);
    for index in 0..2 {
        let mut device = Device { index, ..Device::default() };
        for i in 0..6 {
            device.events.push(Event {
                action: if i == 5 { Action::Oom } else { Action::Alloc },
                address: 0x7f00_0000_0000 + i * 512,
                size: 512,
                stream: 0,
                pool: None,
                stack,
                time_us: i as i64 + 1,
                label: StringId::EMPTY,
            });
        }
        trace.devices.push(device);
    }
    let mut bytes = Vec::new();
    snapshot(&trace, StackSharing::All, &mut bytes).expect("writing to memory");
    bytes
}

/// What this thread has used of processors: the machine that tests run on is shared. Where the system does not say, nothing.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0))
}

#[test]
fn bombs_are_refused_fast_and_small() {
    let repeat = |head: &[u8], unit: &[u8], times: usize| [head, &unit.repeat(times)].concat();
    let huge = |opcode: u8, length: u64| [&[0x80, 4, opcode], &length.to_le_bytes()[..], b"abc"].concat();
    let bombs: Vec<(&str, Vec<u8>)> = vec![
        ("marks", repeat(&[0x80, 4], b"(", 4_000_000)),
        ("lists in lists", repeat(&[0x80, 4], b"](", 2_000_000)),
        ("empty lists", repeat(&[0x80, 4], b"]", 10_000_000)),
        ("empty dicts", repeat(&[0x80, 4], b"}", 10_000_000)),
        ("tuples of tuples", repeat(&[0x80, 4, b')'], &[0x85], 4_000_000)),
        ("memo entries", repeat(&[0x80, 4, b']'], &[0x94], 10_000_000)),
        ("a far memo entry", [&[0x80, 2, b'N', b'r'][..], &[0xff; 4], b"."].concat()),
        ("many far memo entries", {
            let far = |i: u32| [&[b'r'][..], &(u32::MAX - i * 7).to_le_bytes()].concat();
            [&[0x80, 2, b']'][..], &(0..1_000_000).flat_map(far).collect::<Vec<u8>>()].concat()
        }),
        ("duplicates of duplicates", repeat(&[0x80, 4, b']', b'(', b']'], b"2", 10_000_000)),
        ("a list in itself", [&[0x80, 4, b']', 0x94][..], &b"h\x00a".repeat(1_000_000), b"."].concat()),
        ("a long text", huge(0x8d, u64::MAX)),
        ("a text of a gigabyte", huge(0x8d, 1 << 30)),
        ("long bytes", huge(0x8e, u64::MAX)),
        ("a long frame", huge(0x95, u64::MAX)),
        ("a long integer", [&[0x80, 4, 0x8b][..], &i32::MAX.to_le_bytes(), b"123"].concat()),
        ("a negative integer length", [&[0x80, 4, 0x8b][..], &i32::MIN.to_le_bytes(), b"123"].concat()),
        ("a protocol of the future", vec![0x80, 9, b'N', b'.']),
        ("no opcode", vec![0x80, 4, 0xff, b'.']),
        ("an empty stack", vec![0x80, 4, b'.']),
        ("a key without a value", b"\x80\x04}(K\x01u.".to_vec()),
        ("items for a number", b"\x80\x04K\x01(K\x01K\x01u.".to_vec()),
        ("an end without a beginning", b"\x80\x04e.".to_vec()),
        ("a memo entry that is not there", b"\x80\x04h\x07.".to_vec()),
        ("something else", b"\x80\x04}(\x8c\x05model]u.".to_vec()),
        ("JSON in JSON", repeat(b"", b"[", 1_000_000)),
        ("JSON of something else", b"{\"model\": [1, 2, {\"a\": 3}]}".to_vec()),
        ("text", b"CUDA out of memory.".to_vec()),
        ("nothing", Vec::new()),
    ];
    for (name, bytes) in bombs {
        for salvaging in [false, true] {
            let start = processor_time();
            let result = if salvaging { salvage(&bytes) } else { read(&bytes) };
            // A debug build is some twenty times slower than what users run.
            let took = processor_time() - start;
            assert!(took < Duration::from_secs(20), "{name} took {took:?}");
            match result {
                Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{name}: {error}"),
                Ok(trace) => assert!(salvaging && !trace.notes.is_empty(), "{name} was read"),
            }
        }
    }
    if let Some(peak) = peak_memory() {
        // The bombs themselves are up to ten megabytes each, and two tests may run at once.
        assert!(peak < 250 << 20, "{} MiB", peak >> 20);
    }
}

#[test]
fn a_pickle_that_would_run_code_is_refused_by_name() {
    let system = b"\x80\x04cos\nsystem\n\x8c\x08rm -rf /\x85R.";
    let error = read(system).expect_err("it would run a command");
    assert!(matches!(error.cause, Cause::RunsCode(_)), "{error}");
    assert_eq!(
        error.to_string(),
        "hostile, byte 2: the pickle wants to run code (GLOBAL os.system), which a memory snapshot never does; nothing \
         was run; do not load this file with Python"
    );
    // A module's name may have dots, and a name that cannot be printed is left out.
    for (pickle, named) in
        [(&b"\x80\x04cos.path\njoin\n."[..], "(GLOBAL os.path.join)"), (b"\x80\x04c\x1b[2J\njoin\n.", "(GLOBAL)")]
    {
        let error = read(pickle).expect_err("it would run code").to_string();
        assert!(error.contains(named), "{error}");
    }
    for opcode in [b'c', b'i', b'R', b'b', b'o', b'P', b'Q', 0x81, 0x82, 0x83, 0x84, 0x92, 0x93] {
        let bytes = [&[0x80, 4, b'N', b'N'][..], &[opcode], b"os\nsystem\n....."].concat();
        let error = read(&bytes).expect_err("it would run code");
        assert!(matches!(error.cause, Cause::RunsCode(_)), "{opcode:#x}: {error}");
        assert_eq!(error.offset, Some(4));
    }
}

#[test]
fn a_file_cut_anywhere_says_so_and_salvage_gives_what_comes_before() {
    let whole = small();
    let mut most = 0;
    for end in 1..whole.len() {
        let error = read(&whole[..end]).expect_err("the end is missing");
        assert!(matches!(error.cause, Cause::Cut), "cut at {end}: {error}");
        assert_eq!(error.offset, Some(end as u64));
        if let Ok(trace) = salvage(&whole[..end]) {
            let events: usize = trace.devices.iter().map(|device| device.events.len()).sum();
            assert!(events >= most, "{events} events at {end}, {most} before: {}", whole[..end].escape_ascii());
            assert_eq!(trace.notes.len(), 1);
            most = events;
            for device in &trace.devices {
                assert!(device.events.iter().all(|event| event.size == 512), "half an event at {end}");
            }
        }
    }
    assert_eq!(most, 12);
    assert_eq!(read(&whole).expect("the whole file").devices.len(), 2);
}

#[test]
fn a_file_with_one_byte_changed_is_read_or_refused_but_never_worse() {
    let whole = small();
    for at in 0..whole.len() {
        for byte in [0, 1, 0x28, 0x5d, 0x61, 0x65, 0x71, 0x72, 0x75, 0x7d, 0x80, 0x94, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            let _ = read(&bytes);
            let _ = salvage(&bytes);
        }
    }
}

/// A snapshot in JSON with this as the size of its block.
fn with_size(size: &str) -> String {
    format!(
        r#"{{"segments":[{{"device":0,"address":512,"total_size":2097152,"stream":0,"segment_type":"large",
        "blocks":[{{"address":512,"size":{size},"requested_size":512,"state":"active_allocated"}}]}}]}}"#
    )
}

#[test]
fn damaged_figures_are_refused_with_their_place() {
    assert!(read(with_size("512").as_bytes()).is_ok());
    let log = |size: &str| format!("{{\"t\":1,\"pid\":1,\"device\":0,\"kind\":\"malloc\",\"size\":{size}}}\n");
    assert!(read(log("512").as_bytes()).is_ok());
    for size in ["-5", "9223372036854775808", "1e300", "-0.5e9"] {
        for text in [with_size(size), log(size)] {
            let error = read(text.as_bytes()).expect_err(size);
            assert!(error.offset.is_some() && error.to_string().contains("not a number of bytes"), "{error}");
        }
    }
    // Neither are numbers in JSON.
    for size in ["NaN", "Infinity", "1e999"] {
        assert!(read(with_size(size).as_bytes()).expect_err(size).offset.is_some());
    }
    // What a dict of the pickle of an event says of its size: BININT -5, an integer of 9 bytes, and infinity.
    for size in [&b"J\xfb\xff\xff\xff"[..], b"\x8a\x09\0\0\0\0\0\0\0\0\x01", b"G\x7f\xf0\0\0\0\0\0\0"] {
        let event = [b"\x80\x04](}(\x8c\x06action\x8c\x05alloc\x8c\x04size", size, b"ue."].concat();
        let error = read(&event).expect_err("it is damaged");
        assert!(error.offset.is_some() && error.to_string().contains("not a number of bytes"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_without_a_writer_is_not_waited_for() {
    let path = std::env::temp_dir().join(format!("oomph-pipe-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo starts");
    assert!(made.success());
    let begun = Instant::now();
    let error = oomph_trace::read(&path, &ReadOptions::default()).expect_err("nobody writes");
    assert!(error.to_string().contains("nobody writes") && begun.elapsed() < Duration::from_secs(30), "{error}");
    // One that comes later, and takes its time, is heard.
    let writer = path.clone();
    let writes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        let mut pipe = std::fs::File::options().write(true).open(writer).expect("it is read");
        std::thread::sleep(Duration::from_millis(300));
        std::io::Write::write_all(&mut pipe, &small()).expect("it is read");
    });
    let read = oomph_trace::read(&path, &ReadOptions::default());
    writes.join().expect("it wrote");
    std::fs::remove_file(&path).expect("it is removed");
    assert_eq!(read.expect("it is a snapshot").devices.len(), 2);
}

/// The reason is the file's growth, though the reader of JSON is the one that comes upon it.
#[test]
fn a_compressed_trace_that_grows_too_much_is_refused_for_that() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(br#"{"traceEvents": ["#).expect("it is packed");
    let fill = vec![b' '; 1 << 20];
    for _ in 0..300 {
        packed.write_all(&fill).expect("it is packed");
    }
    let packed = packed.finish().expect("it is packed");
    let error = read(&packed).expect_err("it grows");
    assert!(matches!(error.cause, Cause::Grows), "{error}");
}

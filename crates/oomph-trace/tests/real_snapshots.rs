//! Real snapshots, read here and by CPython: every event, segment, block, frame and annotation must be the same.
//!
//! The files lie outside the repository, in `../shared/data/snapshots` and in the folder that `OOMPH_SNAPSHOTS` names
//! (for snapshots that were just made with PyTorch on the virtual GPU). Without them, or without Python, the tests say
//! so and pass.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use oomph_trace::{Action, BlockState, PoolId, ReadOptions, StackId, Stage, Trace};

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is two folders deep")
}

fn snapshots() -> Vec<PathBuf> {
    let folders =
        [Some(root().join("../shared/data/snapshots")), std::env::var_os("OOMPH_SNAPSHOTS").map(PathBuf::from)];
    let mut files: Vec<PathBuf> = folders
        .into_iter()
        .flatten()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".pickle")))
        .collect();
    files.sort();
    files
}

/// The lines that `oracle/dump.py` prints of a file.
fn oracle(file: &Path) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/dump.py");
    let output = Command::new("python3").arg(script).arg(file).env("PYTHONIOENCODING", "utf-8").output().ok()?;
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("the oracle prints UTF-8"))
}

fn stack(trace: &Trace, stack: StackId) -> String {
    let frames = trace.stacks.innermost_first(stack).map(|id| {
        let frame = trace.frames.get(id).expect("a stack's frames are in the table");
        format!("{}@{}:{}", trace.strings.get(frame.name), trace.strings.get(frame.file), frame.line)
    });
    frames.collect::<Vec<_>>().join(";")
}

fn pool(pool: Option<PoolId>) -> String {
    pool.map_or("-".into(), |pool| format!("{}.{}", pool.0, pool.1))
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::Oom => "oom",
        Action::Snapshot => "snapshot",
        Action::Annotate => "annotate",
        Action::Other => "?",
    }
}

/// The same lines of a trace.
fn dump(trace: &Trace) -> String {
    let mut text = String::new();
    for device in &trace.devices {
        for e in device.events.iter() {
            writeln!(
                text,
                "event {:?} {} {} {} {} {} {} {} {} {}",
                device.kind,
                device.index,
                action(e.action),
                e.address,
                e.size,
                e.stream,
                e.time_us,
                pool(e.pool),
                trace.strings.get(e.label),
                stack(trace, e.stack)
            )
            .expect("writing to a string");
        }
    }
    for device in &trace.devices {
        for s in &device.segments {
            writeln!(
                text,
                "segment {:?} {} {} {} {} {} {} {} {}",
                device.kind,
                device.index,
                s.address,
                s.total_size,
                s.stream,
                if s.large { "large" } else { "small" },
                pool(Some(s.pool)),
                if s.expandable { "True" } else { "False" },
                stack(trace, s.stack)
            )
            .expect("writing to a string");
            for b in device.blocks_of(s) {
                let state = match b.state {
                    BlockState::ActiveAllocated => "active_allocated",
                    BlockState::ActivePendingFree => "active_pending_free",
                    BlockState::Inactive => "inactive",
                };
                let line = format!("block {} {} {} {state} {}", b.address, b.size, b.requested, stack(trace, b.stack));
                writeln!(text, "{line}").expect("writing to a string");
            }
        }
    }
    for a in &trace.annotations {
        let stage = if a.stage == Stage::Start { "START" } else { "END" };
        let name = trace.strings.get(a.name);
        writeln!(text, "annotation {stage} {name} {} {}", a.device, a.time_us).expect("writing to a string");
    }
    text
}

#[test]
fn every_record_of_real_snapshots_is_as_cpython_reads_it() {
    let files = snapshots();
    if files.is_empty() {
        println!("skipped: no real snapshots are here");
    }
    for file in files {
        let trace = oomph_trace::read(&file, &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let Some(expected) = oracle(&file) else {
            println!("skipped: no python3");
            return;
        };
        let actual = dump(&trace);
        if let Some((line, (a, b))) = expected.lines().zip(actual.lines()).enumerate().find(|(_, (a, b))| a != b) {
            let at = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            let part = |text: &str| text.chars().skip(at.saturating_sub(40)).take(120).collect::<String>();
            panic!("{}, line {line}: CPython has ...{}, the reader ...{}", file.display(), part(a), part(b));
        }
        assert_eq!(expected.lines().count(), actual.lines().count(), "{}", file.display());
        println!("{}: {} lines", file.display(), actual.lines().count());
    }
}

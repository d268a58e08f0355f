//! Nothing that a log, a recording or a file's name holds reaches a terminal unescaped.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use oomph_trace::{Action, Block, BlockState, Device, Event, Frame, PoolId, Segment, StackId, StringId, Trace, write};

/// Moves the cursor, sets the title, writes to the clipboard, an 8-bit control, a right-to-left override, a zero width
/// space, a tag, and a bell.
const EVIL: &str =
    "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{1b}]52;c;cm0=\u{7}\u{9b}31m\u{202e}txt\u{2066}\u{200b}\u{e0041}\u{8}\u{7f}\r";

fn assert_harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("{what}: not UTF-8"));
    for character in text.chars().filter(|character| *character != '\n') {
        let direction =
            matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
        assert!(!character.is_control() && !direction && character < '\u{e0000}', "{what}: {character:?} in\n{text}");
    }
}

/// Explains a file both ways, and looks at what both streams got.
fn explain(file: &Path) {
    for format in ["text", "json"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oomph"));
        let output = command.args(["explain", "--format", format]).arg(file).output().expect("oomph starts");
        assert!(!output.stdout.is_empty(), "{}: {output:?}", file.display());
        assert_harmless("stdout", &output.stdout);
        assert_harmless("stderr", &output.stderr);
    }
}

fn evil_recording(path: &Path) {
    let mut trace = Trace::default();
    let mut device = Device::default();
    let (name, file) = (trace.strings.intern(&format!("forward{EVIL}")), trace.strings.intern(&format!("/{EVIL}.py")));
    let frame = trace.frames.intern(Frame { name, file, line: 7 });
    let stack = trace.stacks.intern([frame]);
    let mut event = |action, address, size, stack| {
        let stream = 0;
        device.events.push(Event {
            action,
            address,
            size,
            stream,
            pool: Some(PoolId::DEFAULT),
            stack,
            time_us: 1,
            label: StringId::EMPTY,
        });
    };
    event(Action::SegmentAlloc, 1 << 40, 20 << 20, StackId::NONE);
    event(Action::Alloc, 1 << 40, 12 << 20, stack);
    event(Action::Oom, 1 << 20, 64 << 20, stack);
    let (size, requested, state) = (12 << 20, 12 << 20, BlockState::ActiveAllocated);
    device.blocks.push(Block { address: 1 << 40, size, requested, state, stack });
    device.blocks.push(Block { address: (1 << 40) + size, size: 8 << 20, ..Block::default() });
    device.segments.push(Segment {
        address: 1 << 40,
        total_size: 20 << 20,
        large: true,
        end_block: 2,
        ..Segment::default()
    });
    trace.devices.push(device);
    let file = File::create(path).expect("the recording is created");
    write::snapshot(&trace, write::StackSharing::default(), file).expect("the recording is written");
}

#[test]
fn a_log_full_of_control_sequences_prints_harmlessly() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("train\u{1b}]0;x\u{7}\u{202e}.log");
    let text = format!(
        "Namespace(model='{EVIL}', batch_size=8)\nTraceback (most recent call last):\n  File \"/home/{EVIL}/train.py\", \
         line 3, in {EVIL}\n    loss{EVIL} = model(x)\n{EVIL}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate \
         2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free.{EVIL} Process 7 has {EVIL} memory\n\
         {EVIL}[KeOps] error: cuMemAlloc(&p) failed with error CUDA_ERROR_OUT_OF_MEMORY{EVIL}\n"
    );
    fs::write(&log, text).expect("the log is written");
    explain(&log);
}

#[test]
fn a_recording_full_of_control_sequences_prints_harmlessly() {
    let folder = tempfile::tempdir().expect("a folder");
    let recording = folder.path().join("\u{9b}31m\u{202e}.pickle");
    evil_recording(&recording);
    explain(&recording);
    let names = recording.with_extension("names.json");
    let name = serde_json::json!({
        "schema": "oomph.names/1", "pid": 1, "devices": {"0": {"allocations_at_start": 0, "allocations_at_snapshot": 1}},
        "names": [{"device": 0, "at": 1, "address": 1u64 << 40, "size": 12 << 20, "owner": "activation", "name": EVIL}],
        "modules": [{"device": 0, "at": 0, "enter": EVIL}], "phases": []
    });
    fs::write(names, name.to_string()).expect("the names are written");
    explain(&recording);
}

#[test]
fn a_file_that_is_not_there_is_named_harmlessly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oomph"));
    let output = command.args(["explain", &format!("nowhere{EVIL}")]).output().expect("oomph starts");
    assert_eq!(output.status.code(), Some(2));
    assert_harmless("stderr", &output.stderr);
}

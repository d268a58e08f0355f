//! Pickles that other writers than CPython's could make, and that are snapshots all the same.

use oomph_trace::write::{StackSharing, snapshot};
use oomph_trace::{Action, Device, Event, Frame, ReadError, ReadOptions, StackId, StringId, Trace, read_from};

/// Pickles by hand: texts are written out each time, nothing is remembered unless it is asked for.
#[derive(Default)]
struct Hand(Vec<u8>);

impl Hand {
    fn new() -> Self {
        Hand(vec![0x80, 4])
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        self.raw(&[0x8c, text.len() as u8]).raw(text.as_bytes())
    }

    /// A key and a small number.
    fn item(self, key: &str, value: u8) -> Self {
        self.text(key).raw(&[b'K', value])
    }

    fn read(self) -> Result<Trace, ReadError> {
        read_from(&self.0[..], "by hand", &ReadOptions::default())
    }
}

fn event(action: Action, stack: StackId) -> Event {
    Event { action, address: 0, size: 1, stream: 0, pool: None, stack, time_us: 1, label: StringId::EMPTY }
}

#[test]
fn a_stack_deeper_than_a_batch_is_one_stack() {
    let mut trace = Trace::default();
    let name = trace.strings.intern("recurse");
    let frames: Vec<_> =
        (0..2500).map(|line| trace.frames.intern(Frame { name, file: StringId::EMPTY, line })).collect();
    let stack = trace.stacks.intern(frames);
    let mut device = Device::default();
    (0..3).for_each(|_| device.events.push(event(Action::Alloc, stack)));
    trace.devices.push(device);
    let mut bytes = Vec::new();
    snapshot(&trace, StackSharing::All, &mut bytes).expect("writing to memory");
    let back = read_from(&bytes[..], "deep", &ReadOptions::default()).expect("what was written can be read");
    let stacks: Vec<StackId> = back.devices[0].events.iter().map(|event| event.stack).collect();
    assert_eq!(stacks[0], stacks[2]);
    let lines = back.stacks.innermost_first(stacks[0]).filter_map(|id| back.frames.get(id)).map(|frame| frame.line);
    assert!(lines.eq((0..2500).rev()));
}

#[test]
fn keys_in_any_order_unknown_keys_and_wide_numbers_are_read() {
    let trace = Hand::new()
        .raw(b"}")
        .text("device_traces")
        .raw(b"](](}(")
        .text("new_in_2027")
        .raw(b"](}K\x01Nse")
        .item("size", 7)
        // An address above 2^63, in nine bytes as the C++ pickler writes it.
        .text("addr")
        .raw(&[0x8a, 9, 1, 0, 0, 0, 0, 0, 0, 0xff, 0])
        // Minus one, in one byte.
        .text("time_us")
        .raw(&[0x8a, 1, 0xff])
        .text("action")
        .text("teleport")
        .raw(b"u}")
        .text("action")
        .text("alloc")
        // A dict of one item, and a list to which both are appended.
        .raw(b"sees.")
        .read();
    let trace = trace.unwrap_or_else(|error| panic!("{error}"));
    let events: Vec<Event> = trace.devices[0].events.iter().collect();
    assert_eq!(events.len(), 2);
    assert_eq!((events[0].action, events[0].size), (Action::Other, 7));
    assert_eq!((events[0].address, events[0].time_us), (0xff00_0000_0000_0001, -1));
    assert_eq!(events[1].action, Action::Alloc);
    assert_eq!(trace.notes.len(), 1);
    assert!(trace.notes[0].text.contains("teleport"), "{:?}", trace.notes);
}

/// `{"device_traces": [list, list]}` of which each list is the same object.
fn shared(list: &[u8]) -> Result<Trace, ReadError> {
    Hand::new().raw(b"}").text("device_traces").raw(b"](").raw(list).raw(b"\x94h\x00es.").read()
}

#[test]
fn an_empty_history_may_be_shared_and_another_may_not() {
    assert!(shared(b"]").expect("two devices without a history").devices.is_empty());
    let error = shared(&Hand::default().raw(b"]}").text("action").text("alloc").raw(b"sa").0).expect_err("a copy");
    assert!(error.to_string().contains("one list is used in two places"), "{error}");
}

#[test]
fn an_event_that_is_in_a_history_twice_is_two_events() {
    let trace = Hand::new()
        .raw(b"}")
        .text("device_traces")
        .raw(b"](](}\x94")
        .text("action")
        .text("alloc")
        .raw(b"sh\x00ees.")
        .read();
    assert_eq!(trace.expect("a snapshot").devices[0].events.len(), 2);
}

#[test]
fn what_was_used_cannot_change_afterwards() {
    let start = || Hand::new().raw(b"}").text("device_traces").raw(b"](](}\x94").text("action").text("alloc").raw(b"s");
    let error = start().item("size", 3).raw(b"sees.").read().expect_err("an event is filled again");
    assert!(error.to_string().contains("a second time"), "{error}");
}

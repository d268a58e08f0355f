//! What is written can be opened by those for whom it is written.

mod sample;

use oomph_trace::write::{perfetto, tensorboard};

#[test]
fn perfetto_is_json_with_counters_slices_and_the_failure() {
    let mut bytes = Vec::new();
    perfetto(&sample::trace(), &mut bytes).expect("writing to memory");
    let document: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    let events = document["traceEvents"].as_array().expect("a list");
    let phases: String = events.iter().filter_map(|event| event["ph"].as_str()).collect();
    assert_eq!(phases, "MCCCCiBE");
    let last = events.iter().rfind(|event| event["name"] == "allocated").expect("a counter");
    assert_eq!(last["args"]["bytes"], 1 << 20);
    let oom = events.iter().find(|event| event["name"] == "oom").expect("the failure");
    assert_eq!(oom["args"]["stack"], "forward \"x\" (a.py:2)\nmain (a.py:1)");
}

#[test]
fn tensorboard_records_are_framed_and_hold_the_series() {
    let mut bytes = Vec::new();
    let extra = [("owner/weights".to_owned(), vec![(1_000_000, 0.5), (1_000_010, 1.5)])];
    tensorboard(&sample::trace(), &extra, &mut bytes).expect("writing to memory");
    let mut records = Vec::new();
    let mut rest = &bytes[..];
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).expect("a length");
        records.push(&after[4..4 + length]);
        rest = &after[4 + length + 4..];
    }
    assert!(rest.is_empty());
    // A version, two curves of three points, and the two further points.
    assert_eq!(records.len(), 1 + 2 * 3 + 2);
    assert!(records[0].ends_with(b"brain.Event:2"));
    let holds = |record: &[u8], text: &[u8]| record.windows(text.len()).any(|window| window == text);
    assert_eq!(records.iter().filter(|record| holds(record, b"cuda:2/allocated GiB")).count(), 3);
    let last = records.last().expect("a record");
    assert!(holds(last, b"owner/weights") && last.ends_with(&1.5_f32.to_le_bytes()));
}

//! Opcodes of a pickle, in any order, as a memory snapshot.
#![no_main]

use std::io::Read;

use oomph_trace::{ReadOptions, read_from};

libfuzzer_sys::fuzz_target!(|opcodes: &[u8]| {
    for salvage in [false, true] {
        let options = ReadOptions { salvage, memory_limit: 256 << 20, any_growth: true };
        let Ok(trace) = read_from((&[0x80, 4][..]).chain(opcodes), "fuzz", &options) else { continue };
        for device in &trace.devices {
            assert!(device.segments.iter().all(|segment| segment.first_block <= segment.end_block));
            assert!(device.segments.iter().all(|segment| segment.end_block as usize <= device.blocks.len()));
            for event in device.events.iter() {
                assert!(trace.stacks.innermost_first(event.stack).all(|frame| trace.frames.get(frame).is_some()));
            }
        }
    }
});

//! The file that every process of a run writes, read after any of them may have died or gone mad.
#![no_main]

use oomph_ledger::{FILE_BYTES, Ledger};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // A file of another size is refused at once, so the input is stretched over one of the right size: its first half
    // is the beginning of the file, its second half the end.
    let _ = Ledger::parse(bytes);
    let mut file = vec![0; FILE_BYTES];
    let (start, end) = bytes.split_at(bytes.len() / 2);
    for (slot, byte) in file.iter_mut().zip(start) {
        *slot = *byte;
    }
    for (slot, byte) in file.iter_mut().rev().zip(end.iter().rev()) {
        *slot = *byte;
    }
    let Some(ledger) = Ledger::parse(&file) else { return };
    assert!(ledger.processes().iter().all(|process| process.devices.len() == ledger.devices().len()));
    let _ = (ledger.refusals(), ledger.warnings(), ledger.unsupported_calls());
});

//! Runs that are made by hand, for tests: the ledger that processes leave, and what the hook reports of them.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use oomph_gpu::Catalogue;
use oomph_launch::{HookDevice, HookOom, HookReport, HookReports, HookSite};
use oomph_ledger::{
    DeviceWord, HeaderWord, Kind, Ledger, NoteKind, PROCESS_AT_PEAK, PROCESS_REFUSALS, device_word, note_offset,
    process_device_word, process_word,
};
use oomph_report::Phase;

use crate::cards::Card;
use crate::observation::Observation;

/// Bytes.
pub const MIB: u64 = 1 << 20;
/// What a context of CUDA takes of an RTX 3060.
pub const CONTEXT: u64 = 135 * MIB;

/// A card of the catalogue.
pub fn card(name: &str) -> Card {
    let gpu = Catalogue::builtin().get(name).expect("the card is in the catalogue").clone();
    Card { label: gpu.id.clone(), like: None, gpu, unbounded: false, correction: None }
}

/// A ledger as processes would leave it: `(pid, card, peak, refusals)`, in MiB, contexts included.
pub fn ledger(cards: &[Card], on_card: &[u64], books: &[(u32, usize, u64, u64)], notes: &[(NoteKind, &str)]) -> Ledger {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ledger");
    let devices: Vec<_> = cards.iter().enumerate().map(|(index, card)| card.description(index)).collect();
    Ledger::create(&path, &devices).expect("a ledger");
    let mut bytes = fs::read(&path).expect("the ledger can be read");
    let mut set = |word: usize, value: u64| bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
    let mut pids: Vec<u32> = books.iter().map(|book| book.0).collect();
    pids.dedup();
    set(HeaderWord::Processes as usize, pids.len() as u64);
    set(HeaderWord::Notes as usize, notes.len() as u64);
    for (device, peak) in on_card.iter().enumerate() {
        set(device_word(device, DeviceWord::Peak), peak * MIB);
    }
    for (slot, pid) in pids.iter().enumerate() {
        set(process_word(slot), (*pid).into());
        for (_, device, peak, refusals) in books.iter().filter(|book| book.0 == *pid) {
            let at = process_device_word(slot, *device);
            set(at + 1, peak * MIB);
            set(at + PROCESS_AT_PEAK + Kind::Context as usize, CONTEXT);
            set(at + PROCESS_REFUSALS, *refusals);
            if *refusals > 0 {
                set(device_word(*device, DeviceWord::Refusals), *refusals);
                set(device_word(*device, DeviceWord::RefusedBytes), 512 * MIB);
            }
        }
    }
    for (index, (kind, text)) in notes.iter().enumerate() {
        let at = note_offset(index);
        bytes[at] = *kind as u8;
        bytes[at + 1..at + 1 + text.len()].copy_from_slice(text.as_bytes());
    }
    fs::write(&path, bytes).expect("the ledger can be written");
    Ledger::read(&path).expect("a ledger")
}

/// What the hook reports of a process: `(card, reserved, allocated)` in MiB.
pub fn hook(pid: u32, devices: &[(u32, u64, u64)]) -> HookReport {
    HookReport {
        pid,
        frameworks: BTreeMap::from([("torch".into(), "2.15.0".into())]),
        optimizer_steps: 4,
        devices: devices
            .iter()
            .map(|(index, reserved, allocated)| HookDevice {
                index: *index,
                reserved_peak_bytes: Some(reserved * MIB),
                allocated_peak_bytes: allocated * MIB,
                ..HookDevice::default()
            })
            .collect(),
        ..HookReport::default()
    }
}

/// The report of a process that ran out of memory in its second step.
pub fn died(mut hook: HookReport, fatal: bool) -> HookReport {
    hook.oom = Some(HookOom {
        requested_bytes: 2048 * MIB,
        allocated_bytes: Some(9000 * MIB),
        reserved_bytes: Some(10_000 * MIB),
        free_bytes: 1500 * MIB,
        message: "CUDA out of memory.".into(),
        step: 1,
        phase: Phase::Backward,
        site: Some(HookSite { file: "a.py".into(), line: 3, function: "f".into(), ..Default::default() }),
        fatal,
        ..HookOom::default()
    });
    hook
}

/// A run that left these, with the status with which it ended.
pub fn run(ledger: Ledger, reports: Vec<HookReport>, exit_status: i32) -> Observation {
    Observation {
        ledger,
        hooks: HookReports { reports, ..HookReports::default() },
        memory: vec![],
        activities: Vec::new(),
        refusals: Vec::new(),
        built: None,
        warnings: vec![],
        exit_status,
        cut: None,
        waits: None,
        elapsed: Duration::from_millis(5100),
        own: Duration::from_millis(5100),
        stderr_tail: String::new(),
        host_kills: 0,
        host_bytes: Some(24 << 30),
        writes: None,
        unkept: None,
    }
}

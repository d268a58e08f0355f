//! Takes one reading of the cards: joins the driver's figures with this user's runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use oomph_gpu::nvml::{GpuProcess, Monitor, WatchedCard};
use oomph_launch::{HookHeld, HookMemoryNow, HookReport, Running, running};
use oomph_ledger::{Ledger, RUN_FOLDER_VARIABLE};
use oomph_report::{MpsRole, WatchCost, WatchReport, WatchSchema, WatchedFramework, WatchedGpu, WatchedProcess};

/// What looks at the cards again and again.
#[derive(Debug)]
pub struct Looker {
    monitor: Option<Monitor>,
    /// The run that this process is a part of: its virtual cards are those that NVML shows here.
    own_run: Option<PathBuf>,
    /// The cards that were seen, by their numbers.
    places: Vec<(Option<u32>, u32, Option<u32>)>,
}

/// A process of a guarded run that has reported what it holds.
struct Reported<'a> {
    report: &'a HookReport,
    now: &'a HookMemoryNow,
}

impl Looker {
    /// Opens NVML, where there is one.
    ///
    /// # Errors
    /// When it is there and does not answer.
    pub fn new() -> Result<Self> {
        let own_run = std::env::var_os(RUN_FOLDER_VARIABLE).map(PathBuf::from);
        Ok(Self { monitor: Monitor::open()?, own_run, places: Vec::new() })
    }

    /// Looks once.
    pub fn look(&mut self) -> WatchReport {
        let time = now();
        let (rehearsals, real): (Vec<Running>, Vec<Running>) =
            running().into_iter().filter(|run| run.guard.is_some()).partition(|run| self.is_elsewhere(run));
        let reports: Vec<HookReport> = real.iter().flat_map(Running::reports).filter(is_alive).collect();
        let mut cards = Vec::new();
        if let Some(monitor) = &mut self.monitor {
            for place in 0..monitor.cards().len() {
                cards.push(of_driver(monitor, place, &reports, time));
            }
        }
        for run in &rehearsals {
            cards.extend(of_ledger(run, time));
        }
        for card in &mut cards {
            card.place = self.place(card);
        }
        let cost = self.monitor.as_ref().map(Monitor::cost).unwrap_or_default();
        let driver = WatchCost { calls: cost.calls, seconds: cost.time.as_secs_f64() };
        WatchReport { schema: WatchSchema, time, cards, driver }
    }

    /// The number of a card: the same in every look, whichever rehearsals come and go.
    fn place(&mut self, card: &WatchedGpu) -> usize {
        let key = (card.rehearsal, card.index, card.mig);
        if let Some(place) = self.places.iter().position(|known| *known == key) {
            return place;
        }
        self.places.push(key);
        self.places.len() - 1
    }

    /// Whether a run has virtual cards that NVML does not show here.
    fn is_elsewhere(&self, run: &Running) -> bool {
        run.ledger.is_some() && self.own_run.as_ref().is_none_or(|own| !is_same(own, &run.folder))
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// A card of this machine's.
fn of_driver(monitor: &mut Monitor, place: usize, reports: &[HookReport], time: f64) -> WatchedGpu {
    let WatchedCard { index, mig, name, uuid, is_divided } = monitor.cards()[place].clone();
    let mut card = WatchedGpu { index, mig, name, uuid, ..WatchedGpu::default() };
    match monitor.memory(place) {
        Ok(memory) => {
            card.total_bytes = Some(memory.total_bytes);
            card.used_bytes = Some(memory.used_bytes);
            card.free_bytes = Some(memory.free_bytes);
        }
        Err(reason) => card.memory_reason = Some(reason),
    }
    let mut frameworks: BTreeMap<u32, (Reported<'_>, &HookHeld)> = BTreeMap::new();
    for report in reports {
        let Some(now) = &report.memory_now else { continue };
        let is_here = |held: &&HookHeld| match (&held.uuid, &card.uuid) {
            (Some(theirs), Some(ours)) => is_same_card(theirs, ours),
            _ => mig.is_none() && !is_divided && held.index == index,
        };
        if let Some(held) = now.devices.iter().find(is_here) {
            frameworks.insert(report.pid, (Reported { report, now }, held));
        }
    }
    let listed = match monitor.processes(place) {
        Ok(listed) => listed,
        Err(reason) => {
            card.processes_reason = Some(reason);
            Vec::new()
        }
    };
    for process in &listed {
        let framework = frameworks.remove(&process.pid);
        let known = reports.iter().find(|report| report.pid == process.pid);
        let mut seen = watched(process.pid, process.used_bytes.clone(), framework, known, time);
        join_mps(&mut seen, process.is_mps_client);
        card.processes.push(seen);
    }
    let unlisted = card.processes_reason.clone().unwrap_or_else(|| not_listed(&listed, &card.processes));
    for (pid, framework) in frameworks {
        let known = Some(framework.0.report);
        card.processes.push(watched(pid, Err(unlisted.clone()), Some(framework), known, time));
    }
    card.processes.sort_by_key(|process| process.pid);
    card
}

/// Writes into a process what it has to do with the Multi-Process Service.
fn join_mps(process: &mut WatchedProcess, is_client: bool) {
    /// The executable of the service, which each user of the card has one process of.
    const SERVER: &str = "nvidia-cuda-mps-server";
    let program = process.command.as_deref().and_then(|command| command.split(' ').next());
    let is_server = program.and_then(|program| program.rsplit('/').next()) == Some(SERVER);
    if is_server {
        process.mps = Some(MpsRole::Server);
        if process.framework.is_none() {
            let reason = "it is the MPS server; the frameworks are in its clients".to_owned();
            if process.outside_reason == process.framework_reason {
                process.outside_reason = Some(reason.clone());
            }
            process.framework_reason = Some(reason);
        }
    } else if is_client {
        process.mps = Some(MpsRole::Client);
    }
}

/// Why the driver does not list a process that says it is on the card.
fn not_listed(listed: &[GpuProcess], processes: &[WatchedProcess]) -> String {
    if listed.iter().any(|process| !exists(process.pid)) {
        "NVML counts processes as the host does, and this container counts its own; --pid=host makes both equal".into()
    } else if let Some(server) = processes.iter().find(|process| process.mps == Some(MpsRole::Server)) {
        // From Volta on each client has an address space of its own.
        let server = server.pid;
        format!(
            "NVML does not list this process; before Volta, clients of MPS share the memory of its server ({server})"
        )
    } else {
        "NVML does not list this process".into()
    }
}

/// The virtual cards of a rehearsal, from their books.
fn of_ledger(run: &Running, time: f64) -> Vec<WatchedGpu> {
    let Some(ledger) = run.ledger.as_deref().and_then(|path| Ledger::read(path).ok()) else { return Vec::new() };
    let reports: Vec<HookReport> = run.reports().into_iter().filter(is_alive).collect();
    let card = |(index, device): (usize, &oomph_ledger::DeviceUse)| {
        let total = device.description.capacity_bytes;
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let uuid = uuid_of(&device.description.uuid);
        let mut card = WatchedGpu {
            index: number,
            name: device.description.name.clone(),
            rehearsal: Some(run.launcher),
            total_bytes: Some(total),
            used_bytes: Some(device.used_bytes),
            free_bytes: Some(total.saturating_sub(device.used_bytes)),
            ..WatchedGpu::default()
        };
        for process in ledger.processes() {
            let Some(books) = process.devices.get(index).filter(|books| books.used_bytes > 0) else { continue };
            let known = reports.iter().find(|report| report.pid == process.pid);
            let framework = known.and_then(|report| {
                let now = report.memory_now.as_ref()?;
                let is_here = |held: &&HookHeld| match &held.uuid {
                    Some(theirs) => is_same_card(theirs, &uuid),
                    None => held.index == number,
                };
                Some((Reported { report, now }, now.devices.iter().find(is_here)?))
            });
            card.processes.push(watched(process.pid, Ok(books.used_bytes), framework, known, time));
        }
        card.processes.sort_by_key(|process| process.pid);
        card.uuid = Some(uuid);
        card
    };
    ledger.devices().iter().enumerate().map(card).collect()
}

/// A process with the driver's figure and its framework's side by side. `known` is its report, on this card or another.
fn watched(
    pid: u32,
    driver: Result<u64, String>,
    framework: Option<(Reported<'_>, &HookHeld)>,
    known: Option<&HookReport>,
    time: f64,
) -> WatchedProcess {
    let mut process = WatchedProcess {
        pid,
        command: known
            .map(|report| report.argv.join(" "))
            .filter(|command| !command.is_empty())
            .or_else(|| command(pid)),
        rank: known.and_then(|report| report.rank),
        ..WatchedProcess::default()
    };
    match driver {
        Ok(bytes) => process.driver_bytes = Some(bytes),
        Err(reason) => process.driver_reason = Some(reason),
    }
    match framework {
        Some((reported, held)) => process.framework = Some(framework_of(&reported, held, time)),
        None => {
            process.framework_reason = Some(match known {
                Some(_) => "its framework holds nothing of this card yet".to_owned(),
                None => "it was not started by oomph run".to_owned(),
            });
        }
    }
    match (process.driver_bytes, &process.framework) {
        (Some(bytes), Some(framework)) => match bytes.checked_sub(framework.reserved_bytes) {
            Some(outside) => process.outside_bytes = Some(outside),
            None => {
                let reason = "the driver's figure and the framework's are of different moments";
                process.outside_reason = Some(reason.to_owned());
            }
        },
        _ => process.outside_reason = process.driver_reason.clone().or_else(|| process.framework_reason.clone()),
    }
    process
}

fn framework_of(reported: &Reported<'_>, held: &HookHeld, time: f64) -> WatchedFramework {
    let peak = reported.report.devices.iter().find(|device| device.index == held.index);
    WatchedFramework {
        allocated_bytes: held.allocated_bytes,
        reserved_bytes: held.reserved_bytes,
        cached_bytes: held.reserved_bytes.saturating_sub(held.allocated_bytes),
        fragments_bytes: held.fragments_bytes,
        allocated_peak_bytes: peak.map_or(held.allocated_bytes, |peak| peak.allocated_peak_bytes),
        reserved_peak_bytes: peak.and_then(|peak| peak.reserved_peak_bytes),
        room_bytes: held.free_bytes.map(|free| free.saturating_add(held.reserved_bytes)),
        retries: held.retries,
        step: reported.now.step.saturating_add(ahead(reported.report)),
        process_steps: reported.now.step,
        moment: reported.now.moment,
        age_seconds: (time - reported.now.time).max(0.0),
        outlook: None,
    }
}

/// How many steps the training had behind it when the process made its first.
pub fn ahead(report: &HookReport) -> u64 {
    report.progress.as_ref().and_then(|progress| progress.started_at_step).unwrap_or(0)
}

/// Whether two identifiers are of the same card: frameworks leave out the word before it.
fn is_same_card(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.trim_start_matches("GPU-").trim_start_matches("MIG-").to_ascii_lowercase();
    plain(one) == plain(other)
}

/// An identifier as NVML writes it.
fn uuid_of(bytes: &[u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (a, b, c, d, e) = (&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]);
    format!("GPU-{}-{}-{}-{}-{}", hex(a), hex(b), hex(c), hex(d), hex(e))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn is_alive(report: &HookReport) -> bool {
    exists(report.pid)
}

/// Whether a process of this number is there, where that can be seen.
fn exists(pid: u32) -> bool {
    let proc = Path::new("/proc");
    !proc.join("self").exists() || proc.join(pid.to_string()).exists()
}

/// The command line of a process, where it can be read.
fn command(pid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty()).collect();
    let line = words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use oomph_launch::{HookDevice, Moment};

    use super::*;

    fn report() -> HookReport {
        HookReport {
            pid: 7,
            argv: vec!["train.py".into(), "--fast".into()],
            devices: vec![HookDevice {
                index: 0,
                reserved_peak_bytes: Some(90),
                allocated_peak_bytes: 80,
                ..HookDevice::default()
            }],
            ..HookReport::default()
        }
    }

    fn held() -> HookHeld {
        HookHeld { allocated_bytes: 50, reserved_bytes: 70, ..HookHeld::default() }
    }

    #[test]
    fn layers_lie_side_by_side() {
        let (report, held) = (report(), held());
        let now = HookMemoryNow { moment: Moment::StepEnd, time: 10.0, step: 3, devices: vec![held.clone()] };
        let framework = || Some((Reported { report: &report, now: &now }, &held));
        let both = watched(7, Ok(100), framework(), Some(&report), 12.0);
        let held_by_framework = both.framework.as_ref().unwrap();
        assert_eq!(
            (held_by_framework.cached_bytes, held_by_framework.allocated_peak_bytes, held_by_framework.age_seconds),
            (20, 80, 2.0)
        );
        assert_eq!((both.outside_bytes, both.outside_reason), (Some(30), None));
        assert_eq!(both.command.as_deref(), Some("train.py --fast"));
        let older = watched(7, Ok(60), framework(), Some(&report), 12.0);
        assert!(older.outside_bytes.is_none() && older.outside_reason.unwrap().contains("different moments"));
        let blind = watched(7, Err("WSL2".into()), framework(), Some(&report), 12.0);
        assert_eq!((blind.driver_bytes, blind.outside_reason.as_deref()), (None, Some("WSL2")));
        let foreign = watched(u32::MAX, Ok(5), None, None, 12.0);
        assert!(foreign.framework_reason.unwrap().contains("not started by oomph run"));
    }

    #[test]
    fn cards_are_distinguished_by_their_identifiers() {
        assert!(is_same_card("00010203-0405", "GPU-00010203-0405"));
        assert!(!is_same_card("00010203-0405", "GPU-00010203-0406"));
        let uuid = std::array::from_fn(|at| u8::try_from(at).unwrap());
        assert_eq!(uuid_of(&uuid), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        let listed = |pid| GpuProcess { pid, used_bytes: Ok(1), is_mps_client: false };
        assert!(not_listed(&[listed(u32::MAX)], &[]).contains("container"));
        assert!(not_listed(&[listed(std::process::id())], &[]).contains("does not list"));
    }

    #[test]
    fn the_parts_in_mps_are_known() {
        let seen = |command: &str, is_client| {
            let mut process = watched(u32::MAX, Ok(5), None, None, 12.0);
            process.command = Some(command.into());
            join_mps(&mut process, is_client);
            process
        };
        let server = seen("/usr/bin/nvidia-cuda-mps-server -force-tegra", false);
        assert_eq!(server.mps, Some(MpsRole::Server));
        assert!(server.framework_reason.as_ref().unwrap().contains("MPS server"));
        assert_eq!(server.outside_reason, server.framework_reason);
        assert_eq!(seen("nvidia-cuda-mps-server", true).mps, Some(MpsRole::Server));
        let client = seen("python train.py nvidia-cuda-mps-server", true);
        assert_eq!((client.mps, client.driver_bytes), (Some(MpsRole::Client), Some(5)));
        assert!(client.framework_reason.unwrap().contains("not started by oomph run"));
        assert_eq!(seen("python train.py", false).mps, None);
        // A client that PyTorch speaks of and NVML does not list.
        let own = GpuProcess { pid: std::process::id(), used_bytes: Ok(1), is_mps_client: false };
        assert!(not_listed(&[own], &[server]).contains(&format!("server ({})", u32::MAX)));
    }
}

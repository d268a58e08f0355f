//! Watches the installed cards over time: their memory and the processes on them.
//!
//! NVML's calls hold a lock of the driver's that programs on the card need as well. So memory is read at most four times
//! a second and process lists at most once, whoever asks however often, and the time spent in NVML is counted.

use std::time::{Duration, Instant};

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::{InstalledError, InstalledMemory, is_absence, unreadable_memory};

/// Memory is not read again before this.
const MEMORY: Duration = Duration::from_millis(250);

/// Processes that compute are not listed again before this.
const COMPUTE: Duration = Duration::from_secs(1);

/// Processes that draw are not listed again before this: that call takes milliseconds, the others microseconds.
const GRAPHICS: Duration = Duration::from_secs(10);

/// A card, or a MIG device of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedCard {
    /// The number that NVML gives the card, from 0.
    pub index: u32,
    /// The number of the MIG device on it.
    pub mig: Option<u32>,
    /// The name.
    pub name: String,
    /// The identifier that never changes, where NVML reports it.
    pub uuid: Option<String>,
    /// Whether the card is divided into MIG devices, which are listed as well.
    pub is_divided: bool,
}

/// A process that holds memory of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its id, as the system that runs the driver counts: in a container that is the host.
    pub pid: u32,
    /// What it holds, in bytes, or a clause that says why that is not known.
    pub used_bytes: Result<u64, String>,
    /// Whether it computes as a client of the Multi-Process Service.
    pub is_mps_client: bool,
}

/// What the looks cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverCost {
    /// Calls of NVML.
    pub calls: u64,
    /// The time that they took together.
    pub time: Duration,
}

/// When the processes of a card were listed, and what came of it.
type Listed = (Instant, Result<Vec<GpuProcess>, String>);

/// The cards, and what was read of them last.
#[derive(Debug)]
pub struct Monitor {
    nvml: Nvml,
    cards: Vec<WatchedCard>,
    memory: Vec<Option<(Instant, Result<InstalledMemory, String>)>>,
    processes: Vec<Option<Listed>>,
    graphics: Vec<Option<(Instant, Vec<GpuProcess>)>>,
    cost: DriverCost,
}

impl Monitor {
    /// Finds the cards; `None` where there is no NVML or no driver.
    ///
    /// # Errors
    /// When NVML is there and does not answer.
    pub fn open() -> Result<Option<Self>, InstalledError> {
        let began = Instant::now();
        let nvml = match Nvml::init() {
            Ok(nvml) => nvml,
            Err(problem) if is_absence(&problem) => return Ok(None),
            Err(problem) => return Err(InstalledError::Start(problem)),
        };
        let count = nvml.device_count().map_err(InstalledError::Count)?;
        let mut cards = Vec::new();
        for index in 0..count {
            found(&nvml, index, &mut cards).map_err(|source| InstalledError::Card { index, source })?;
        }
        let places = cards.len();
        let cost = DriverCost { calls: 2 + u64::from(count) * 4, time: began.elapsed() };
        Ok(Some(Self {
            nvml,
            cards,
            memory: vec![None; places],
            processes: vec![None; places],
            graphics: vec![None; places],
            cost,
        }))
    }

    /// The cards in NVML's order, each followed by its MIG devices.
    pub fn cards(&self) -> &[WatchedCard] {
        &self.cards
    }

    /// What NVML took so far.
    pub fn cost(&self) -> DriverCost {
        self.cost
    }

    /// The memory of a card of [`Self::cards`], not older than a quarter of a second, or why it is not known.
    pub fn memory(&mut self, place: usize) -> Result<InstalledMemory, String> {
        if let Some(Some((at, known))) = self.memory.get(place)
            && at.elapsed() < MEMORY
        {
            return known.clone();
        }
        let read = self.asked(place, 2, |device| {
            let memory = device.memory_info().map_err(|problem| unreadable_memory(&problem))?;
            Ok(InstalledMemory { total_bytes: memory.total, used_bytes: memory.used, free_bytes: memory.free })
        });
        remember(&mut self.memory, place, read.clone());
        read
    }

    /// The processes on a card of [`Self::cards`] by id, not older than a second, or why they are not known.
    pub fn processes(&mut self, place: usize) -> Result<Vec<GpuProcess>, String> {
        if let Some(Some((at, known))) = self.processes.get(place)
            && at.elapsed() < COMPUTE
        {
            return known.clone();
        }
        if self.cards.get(place).is_some_and(|card| card.is_divided) {
            return Err("the card is divided into MIG devices, whose processes are listed with them".into());
        }
        let total = self.memory(place).map_or(u64::MAX, |memory| memory.total_bytes);
        let read = self.asked(place, 2, |device| {
            let listed = device.running_compute_processes().map_err(|problem| unlisted(&problem))?;
            Ok(listed.iter().map(|one| process(one, total)).collect())
        });
        let read = read.map(|found| {
            let clients = self.mps_clients(place, total);
            joined(found, clients, self.drawing(place, total))
        });
        remember(&mut self.processes, place, read.clone());
        read
    }

    /// Clients of the Multi-Process Service, for which NVML has a list of its own. A client may be among the processes that
    /// compute as well. A driver that does not know the list has no clients.
    fn mps_clients(&mut self, place: usize, total: u64) -> Vec<GpuProcess> {
        let read = self.asked(place, 2, |device| {
            let listed = device.mps_running_compute_processes().map_err(|problem| unlisted(&problem))?;
            Ok(listed.iter().map(|one| mps_client(one, total)).collect())
        });
        read.unwrap_or_default()
    }

    /// Processes that draw on the card, such as a desktop. A card that cannot tell has none.
    fn drawing(&mut self, place: usize, total: u64) -> Vec<GpuProcess> {
        if let Some(Some((at, known))) = self.graphics.get(place)
            && at.elapsed() < GRAPHICS
        {
            return known.clone();
        }
        let read = self.asked(place, 2, |device| {
            let listed = device.running_graphics_processes().map_err(|problem| unlisted(&problem))?;
            Ok(listed.iter().map(|one| process(one, total)).collect::<Vec<_>>())
        });
        let read = read.unwrap_or_default();
        remember(&mut self.graphics, place, read.clone());
        read
    }

    fn asked<T>(
        &mut self,
        place: usize,
        calls: u64,
        ask: impl FnOnce(&Device<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let Some(card) = self.cards.get(place) else { return Err("there is no such card".into()) };
        let began = Instant::now();
        let device = match (self.nvml.device_by_index(card.index), card.mig) {
            (Ok(device), Some(slice)) => device.mig_device_by_index(slice).map_err(|problem| gone(&problem)),
            (found, _) => found.map_err(|problem| gone(&problem)),
        };
        let answer = device.and_then(|device| ask(&device));
        self.cost.time += began.elapsed();
        self.cost.calls += calls;
        answer
    }
}

fn remember<T>(places: &mut [Option<(Instant, T)>], place: usize, read: T) {
    if let Some(slot) = places.get_mut(place) {
        *slot = Some((Instant::now(), read));
    }
}

/// Adds a card and its MIG devices.
fn found(nvml: &Nvml, index: u32, cards: &mut Vec<WatchedCard>) -> Result<(), NvmlError> {
    /// `NVML_DEVICE_MIG_ENABLE`.
    const ENABLED: u32 = 1;
    let device = nvml.device_by_index(index)?;
    let is_divided = device.mig_mode().is_ok_and(|mode| mode.current == ENABLED);
    let (name, uuid) = (device.name()?, device.uuid().ok());
    cards.push(WatchedCard { index, mig: None, name, uuid, is_divided });
    if is_divided {
        for slice in 0..device.mig_device_count().unwrap_or(0) {
            // The count is that of the places, and not each of them is taken.
            let Ok(part) = device.mig_device_by_index(slice) else { continue };
            let name = part.name().unwrap_or_else(|_| format!("MIG device {slice}"));
            cards.push(WatchedCard { index, mig: Some(slice), name, uuid: part.uuid().ok(), is_divided: false });
        }
    }
    Ok(())
}

fn process(one: &ProcessInfo, total: u64) -> GpuProcess {
    let used_bytes = match one.used_gpu_memory {
        // Some drivers write nonsense where they do not know.
        UsedGpuMemory::Used(bytes) if bytes <= total => Ok(bytes),
        UsedGpuMemory::Used(_) | UsedGpuMemory::Unavailable => Err(unavailable(&kernel())),
    };
    GpuProcess { pid: one.pid, used_bytes, is_mps_client: false }
}

fn mps_client(one: &ProcessInfo, total: u64) -> GpuProcess {
    GpuProcess { is_mps_client: true, ..process(one, total) }
}

/// The three lists as one, by id. A client of the Multi-Process Service may be in two of them.
fn joined(compute: Vec<GpuProcess>, clients: Vec<GpuProcess>, drawing: Vec<GpuProcess>) -> Vec<GpuProcess> {
    let mut found = compute;
    for other in clients.into_iter().chain(drawing) {
        match found.iter_mut().find(|known| known.pid == other.pid) {
            Some(known) => {
                known.is_mps_client |= other.is_mps_client;
                // A process that draws as well has one figure, in each list. Where a list lacks it, another may have it.
                if known.used_bytes.is_err() && other.used_bytes.is_ok() {
                    known.used_bytes = other.used_bytes;
                }
            }
            None => found.push(other),
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

/// Why the memory of a process is not known, by the kernel's name for itself.
fn unavailable(kernel: &str) -> String {
    if kernel.to_ascii_lowercase().contains("microsoft") {
        "under WSL2 the driver does not report memory per process".into()
    } else if cfg!(windows) {
        "under WDDM the driver does not report memory per process".into()
    } else {
        "the driver does not report memory per process here".into()
    }
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

fn unlisted(problem: &NvmlError) -> String {
    match problem {
        NvmlError::NotSupported => "the driver does not list processes of this card".into(),
        NvmlError::NoPermission => "this user is not allowed to list the processes of the card".into(),
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
            "the driver is too old to list processes; update it to 510 or later".into()
        }
        _ => format!("processes cannot be listed through NVML: {problem}"),
    }
}

fn gone(problem: &NvmlError) -> String {
    format!("the card does not answer: {problem}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computer_with_or_without_cards_is_watched() {
        let Some(mut monitor) = Monitor::open().unwrap() else { return };
        for place in 0..monitor.cards().len() {
            let _ = (monitor.memory(place), monitor.processes(place));
            let cost = monitor.cost();
            // What was read just now is not asked again.
            let _ = (monitor.memory(place), monitor.processes(place));
            assert_eq!(monitor.cost(), cost);
        }
        assert!(monitor.memory(usize::MAX).is_err());
    }

    #[test]
    fn what_cannot_be_known_has_a_reason() {
        let info =
            |used_gpu_memory| ProcessInfo { pid: 7, used_gpu_memory, gpu_instance_id: None, compute_instance_id: None };
        assert_eq!(process(&info(UsedGpuMemory::Used(5)), 10).used_bytes, Ok(5));
        assert!(process(&info(UsedGpuMemory::Used(u64::MAX - 1)), 10).used_bytes.is_err());
        assert!(process(&info(UsedGpuMemory::Unavailable), 10).used_bytes.unwrap_err().contains("does not report"));
        assert!(mps_client(&info(UsedGpuMemory::Used(5)), 10).is_mps_client);
        assert!(unavailable("5.15.153.1-microsoft-standard-WSL2").contains("WSL2"));
        assert!(unlisted(&NvmlError::NotSupported).contains("does not list"));
        assert!(unlisted(&NvmlError::NoPermission).contains("not allowed"));
    }

    #[test]
    fn a_client_of_mps_is_listed_once() {
        let process = |pid, used: Option<u64>, is_mps_client| GpuProcess {
            pid,
            used_bytes: used.ok_or_else(|| "unknown".to_owned()),
            is_mps_client,
        };
        // The server and a client compute, and the client is listed a second time: nvidia-smi writes C and M+C.
        let (server, client) = (process(10, Some(30), false), process(12, Some(456), false));
        let listed = joined(vec![client, server.clone()], vec![process(12, Some(456), true)], vec![]);
        assert_eq!(listed, [server.clone(), process(12, Some(456), true)]);
        // A client that only the second list has, one whose figure only the second list has, and one that draws.
        let clients = vec![process(3, Some(5), true), process(12, Some(7), true)];
        let listed = joined(vec![server.clone(), process(12, None, false)], clients, vec![process(3, Some(5), false)]);
        assert_eq!(listed, [process(3, Some(5), true), server, process(12, Some(7), true)]);
    }
}

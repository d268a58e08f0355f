//! The cards and their processes, as NVML describes them.

use std::ffi::OsStr;

use nvml_wrapper::enum_wrappers::device::{Brand, Clock, PerformanceState, TemperatureSensor};
use nvml_wrapper::enums::device::{DeviceArchitecture, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::{NOT_FOUND, Refusal};

/// Bytes of a MiB, in which the tool counts memory.
const MIB: u64 = 1 << 20;

/// What there is to say of a machine.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// The version of the driver.
    pub driver: String,
    /// The version of NVML.
    pub nvml: String,
    /// The newest CUDA that the driver runs, for example `13.2`.
    pub cuda: String,
    /// How many cards there are, whichever were asked about.
    pub count: usize,
    /// The cards that were asked about, by index.
    pub cards: Vec<Card>,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// What the driver keeps.
    pub reserved: u64,
    /// What processes hold.
    pub used: u64,
    /// What nobody holds.
    pub free: u64,
}

/// A process that computes on a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as NVML reports it.
    pub name: Option<String>,
    /// The bytes that it holds.
    pub used: Option<u64>,
}

/// A card. What NVML does not report of it is `None`.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the names are NVML's own")]
pub struct Card {
    pub index: u32,
    pub name: String,
    pub uuid: String,
    pub serial: Option<String>,
    pub minor: Option<u32>,
    pub brand: Option<&'static str>,
    pub architecture: Option<&'static str>,
    pub capability: Option<(i32, i32)>,
    pub vbios: Option<String>,
    pub board_id: Option<u32>,
    /// Domain, bus and device.
    pub place: (u32, u32, u32),
    pub bus_id: String,
    pub device_id: u32,
    pub sub_device_id: Option<u32>,
    pub link_generation: Option<u32>,
    pub most_link_generation: Option<u32>,
    pub link_width: Option<u32>,
    pub most_link_width: Option<u32>,
    pub replays: Option<u32>,
    pub display_mode: Option<bool>,
    pub display_active: Option<bool>,
    pub persistence: Option<bool>,
    pub performance: Option<u32>,
    pub memory: Memory,
    pub bar1: Option<Memory>,
    pub utilization: Option<(u32, u32)>,
    pub encoder: Option<u32>,
    pub decoder: Option<u32>,
    pub ecc: Option<(bool, bool)>,
    pub mig: Option<(bool, bool)>,
    pub fan: Option<u32>,
    pub temperature: Option<u32>,
    /// Milliwatts.
    pub power: Option<u32>,
    pub power_limit: Option<u32>,
    pub enforced_limit: Option<u32>,
    pub default_limit: Option<u32>,
    /// The least and the most that the limit can be.
    pub limits: Option<(u32, u32)>,
    /// MHz: graphics, multiprocessors, memory, video.
    pub clocks: [Option<u32>; 4],
    pub most_clocks: [Option<u32>; 4],
    pub processes: Vec<Process>,
}

/// The clocks, in the order of [`Card::clocks`].
const CLOCKS: [Clock; 4] = [Clock::Graphics, Clock::SM, Clock::Memory, Clock::Video];

impl Machine {
    /// Reads it from the NVML at `library`.
    ///
    /// # Errors
    /// When there is no NVML, or no card.
    pub fn read(library: &OsStr) -> Result<Self, String> {
        let text = |error: NvmlError| error.to_string();
        let nvml = Nvml::builder().lib_path(library).init().map_err(text)?;
        let count = nvml.device_count().map_err(text)?;
        let cuda = nvml.sys_cuda_driver_version().map_err(text)?;
        let cards = (0..count).map(|index| Card::read(&nvml, index)).collect::<Result<Vec<_>, _>>().map_err(text)?;
        Ok(Self {
            driver: nvml.sys_driver_version().map_err(text)?,
            nvml: nvml.sys_nvml_version().map_err(text)?,
            cuda: format!("{}.{}", cuda / 1000, cuda % 1000 / 10),
            count: cards.len(),
            cards,
        })
    }

    /// Keeps the cards that `named` names, all where it is empty.
    pub(crate) fn select(&mut self, named: &[String]) -> Result<(), Refusal> {
        if !named.is_empty() {
            self.cards.retain(|card| named.iter().any(|name| card.is_named(name)));
            if self.cards.is_empty() {
                return Err(Refusal::tools(NOT_FOUND, "No devices were found"));
            }
        }
        Ok(())
    }

    pub(crate) fn versions(&self) -> String {
        format!(
            "NVIDIA-SMI version  : {}\nNVML version        : {}\nDRIVER version      : {0}\nCUDA Version        : {}\n",
            self.driver, self.nvml, self.cuda
        )
    }
}

impl Card {
    fn read(nvml: &Nvml, index: u32) -> Result<Self, NvmlError> {
        let device = nvml.device_by_index(index)?;
        let pci = device.pci_info()?;
        let memory = device.memory_info()?;
        let pair = |one: bool, other: bool| (one, other);
        let mut processes: Vec<Process> = Vec::new();
        for process in device.running_compute_processes().unwrap_or_default() {
            let used = match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            processes.push(Process { pid: process.pid, name: nvml.sys_process_name(process.pid, 1024).ok(), used });
        }
        Ok(Self {
            index,
            name: device.name()?,
            uuid: device.uuid()?,
            serial: device.serial().ok(),
            minor: device.minor_number().ok(),
            brand: device.brand().ok().and_then(brand),
            architecture: device.architecture().ok().and_then(architecture),
            capability: device.cuda_compute_capability().ok().map(|found| (found.major, found.minor)),
            vbios: device.vbios_version().ok(),
            board_id: device.board_id().ok(),
            place: (pci.domain, pci.bus, pci.device),
            bus_id: pci.bus_id,
            device_id: pci.pci_device_id,
            sub_device_id: pci.pci_sub_system_id,
            link_generation: device.current_pcie_link_gen().ok(),
            most_link_generation: device.max_pcie_link_gen().ok(),
            link_width: device.current_pcie_link_width().ok(),
            most_link_width: device.max_pcie_link_width().ok(),
            replays: device.pcie_replay_counter().ok(),
            display_mode: device.is_display_connected().ok(),
            display_active: device.is_display_active().ok(),
            persistence: device.is_in_persistent_mode().ok(),
            performance: device.performance_state().ok().and_then(performance),
            memory: Memory { total: memory.total, reserved: memory.reserved, used: memory.used, free: memory.free },
            bar1: bar1(&device),
            utilization: device.utilization_rates().ok().map(|rates| (rates.gpu, rates.memory)),
            encoder: device.encoder_utilization().ok().map(|found| found.utilization),
            decoder: device.decoder_utilization().ok().map(|found| found.utilization),
            ecc: device.is_ecc_enabled().ok().map(|found| pair(found.currently_enabled, found.pending_enabled)),
            mig: device.mig_mode().ok().map(|found| pair(found.current == 1, found.pending == 1)),
            fan: device.fan_speed(0).ok(),
            temperature: device.temperature(TemperatureSensor::Gpu).ok(),
            power: device.power_usage().ok(),
            power_limit: device.power_management_limit().ok(),
            enforced_limit: device.enforced_power_limit().ok(),
            default_limit: device.power_management_limit_default().ok(),
            limits: device.power_management_limit_constraints().ok().map(|found| (found.min_limit, found.max_limit)),
            clocks: CLOCKS.map(|clock| device.clock_info(clock).ok()),
            most_clocks: CLOCKS.map(|clock| device.max_clock_info(clock).ok()),
            processes,
        })
    }

    /// Whether `name` is its index, its UUID or its address, in any length.
    fn is_named(&self, name: &str) -> bool {
        // Domain and bus may be left out or be written shorter.
        let address = |text: &str| text.trim_start_matches(['0', ':']).to_ascii_lowercase();
        name.parse() == Ok(self.index)
            || name.eq_ignore_ascii_case(&self.uuid)
            || (name.contains(':') && address(name) == address(&self.bus_id))
    }

    /// The line of `-L`.
    pub(crate) fn line(&self) -> String {
        format!("GPU {}: {} (UUID: {})", self.index, self.name, self.uuid)
    }
}

fn bar1(device: &Device<'_>) -> Option<Memory> {
    let found = device.bar1_memory_info().ok()?;
    Some(Memory { total: found.total, reserved: 0, used: found.used, free: found.free })
}

fn brand(brand: Brand) -> Option<&'static str> {
    Some(match brand {
        Brand::Quadro => "Quadro",
        Brand::Tesla => "Tesla",
        Brand::GeForce => "GeForce",
        Brand::GeForceRTX => "GeForce RTX",
        Brand::Titan => "Titan",
        Brand::TitanRTX => "Titan RTX",
        Brand::QuadroRTX => "Quadro RTX",
        Brand::NvidiaRTX => "NVIDIA RTX",
        Brand::Nvidia => "NVIDIA",
        _ => return None,
    })
}

fn architecture(found: DeviceArchitecture) -> Option<&'static str> {
    Some(match found {
        DeviceArchitecture::Kepler => "Kepler",
        DeviceArchitecture::Maxwell => "Maxwell",
        DeviceArchitecture::Pascal => "Pascal",
        DeviceArchitecture::Volta => "Volta",
        DeviceArchitecture::Turing => "Turing",
        DeviceArchitecture::Ampere => "Ampere",
        DeviceArchitecture::Ada => "Ada Lovelace",
        DeviceArchitecture::Hopper => "Hopper",
        DeviceArchitecture::Blackwell => "Blackwell",
        DeviceArchitecture::Unknown => return None,
    })
}

fn performance(state: PerformanceState) -> Option<u32> {
    let number = state.as_c();
    (number <= 15).then_some(number)
}

/// Bytes in MiB, rounded as the tool rounds them: its parts may add up to one more than the whole.
pub(crate) fn mib(bytes: u64) -> u64 {
    bytes.saturating_add(MIB / 2) / MIB
}

#[cfg(test)]
impl Machine {
    /// Cards of 12,000 MiB of which a process holds 1,000.
    pub(crate) fn example(count: u32) -> Self {
        let card = |index: u32| Card {
            index,
            name: "NVIDIA GeForce RTX 3060".into(),
            uuid: format!("GPU-00000000-0000-0000-0000-00000000000{index}"),
            bus_id: format!("00000000:0{}:00.0", index + 1),
            place: (0, index + 1, 0),
            device_id: 0x2504_10de,
            brand: Some("GeForce"),
            capability: Some((8, 6)),
            persistence: Some(true),
            performance: Some(0),
            memory: Memory { total: 12_000 * MIB, reserved: 0, used: 1_000 * MIB, free: 11_000 * MIB },
            utilization: Some((0, 0)),
            temperature: Some(35),
            power: Some(30_000),
            power_limit: Some(300_000),
            enforced_limit: Some(300_000),
            clocks: [Some(1777), Some(1777), Some(7501), Some(1777)],
            processes: vec![Process { pid: 4711, name: Some("python".into()), used: Some(1_000 * MIB) }],
            ..Card::default()
        };
        let cards: Vec<Card> = (0..count).map(card).collect();
        Self { driver: "595.00".into(), nvml: "13.595.00".into(), cuda: "13.2".into(), count: cards.len(), cards }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_named_in_three_ways() {
        let machine = Machine::example(2);
        let card = &machine.cards[1];
        for name in ["1", "GPU-00000000-0000-0000-0000-000000000001", "00000000:02:00.0", "0000:02:00.0", "02:00.0"] {
            assert!(card.is_named(name), "{name}");
        }
        for name in ["0", "2", "", "00000000:01:00.0", "GPU-1"] {
            assert!(!card.is_named(name), "{name}");
        }
    }

    #[test]
    fn memory_is_rounded_to_the_nearest() {
        assert_eq!((mib(0), mib(MIB / 2 - 1), mib(MIB / 2), mib(3 * MIB)), (0, 0, 1, 3));
    }
}

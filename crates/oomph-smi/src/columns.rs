//! The properties that `--query-gpu` and `--query-compute-apps` know: their names, units and values.

use crate::machine::{Card, Machine, Process, mib};

/// One property of a thing of the kind `Of`.
pub(crate) struct Column<Of: 'static> {
    /// Its name, which the header shows also where another one was typed.
    pub(crate) name: &'static str,
    /// Its other names.
    others: &'static [&'static str],
    /// What stands behind the value, unless units are unwanted. Empty where it has none.
    unit: &'static str,
    /// The value; `None` where the card does not report it.
    pub(crate) value: fn(&Machine, &Of) -> Option<String>,
}

/// A process with its card.
pub(crate) struct OnCard {
    pub(crate) card: Card,
    pub(crate) process: Process,
}

macro_rules! columns {
    ($kind:ty: $($name:literal $(| $other:literal)* $([$unit:literal])? = $value:expr;)*) => {
        &[$(Column::<$kind> {
            name: $name,
            others: &[$($other),*],
            unit: concat!($($unit)?),
            value: $value,
        }),*]
    };
}

fn text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn enabled(value: Option<bool>) -> Option<String> {
    value.map(|value| if value { "Enabled" } else { "Disabled" }.to_owned())
}

fn watts(milliwatts: Option<u32>) -> Option<String> {
    milliwatts.map(|milliwatts| format!("{:.2}", f64::from(milliwatts) / 1000.0))
}

fn hex(value: u32, digits: usize) -> Option<String> {
    Some(format!("0x{value:0digits$X}"))
}

fn reason(is_active: bool) -> Option<String> {
    Some(if is_active { "Active" } else { "Not Active" }.to_owned())
}

/// The local time as the tool prints it in lists of values.
pub(crate) fn timestamp() -> String {
    chrono::Local::now().format("%Y/%m/%d %H:%M:%S%.3f").to_string()
}

/// The properties of a card that a virtual one has.
const CARD: &[Column<Card>] = columns! { Card:
    "timestamp" = |_, _| Some(timestamp());
    "driver_version" = |machine, _| Some(machine.driver.clone());
    "count" = |machine, _| text(Some(machine.count));
    "name" | "gpu_name" = |_, card| Some(card.name.clone());
    "serial" | "gpu_serial" = |_, card| card.serial.clone();
    "uuid" | "gpu_uuid" = |_, card| Some(card.uuid.clone());
    "pci.bus_id" | "gpu_bus_id" = |_, card| Some(card.bus_id.clone());
    "pci.domain" = |_, card| hex(card.place.0, 4);
    "pci.bus" = |_, card| hex(card.place.1, 2);
    "pci.device" = |_, card| hex(card.place.2, 2);
    "pci.device_id" = |_, card| hex(card.device_id, 8);
    "pci.sub_device_id" = |_, card| card.sub_device_id.and_then(|id| hex(id, 8));
    "pcie.link.gen.current" = |_, card| text(card.link_generation);
    "pcie.link.gen.gpucurrent" = |_, card| text(card.link_generation);
    "pcie.link.gen.max" = |_, card| text(card.most_link_generation);
    "pcie.link.gen.gpumax" = |_, card| text(card.most_link_generation);
    "pcie.link.gen.hostmax" = |_, card| text(card.most_link_generation);
    "pcie.link.width.current" = |_, card| text(card.link_width);
    "pcie.link.width.max" = |_, card| text(card.most_link_width);
    "index" = |_, card| text(Some(card.index));
    "display_mode" = |_, card| enabled(card.display_mode);
    "display_active" = |_, card| enabled(card.display_active);
    "display_attached" = |_, card| card.display_mode.map(|is| if is { "Yes" } else { "No" }.to_owned());
    "persistence_mode" = |_, card| enabled(card.persistence);
    "vbios_version" = |_, card| card.vbios.clone();
    "fan.speed" ["%"] = |_, card| text(card.fan);
    "pstate" = |_, card| card.performance.map(|state| format!("P{state}"));
    "clocks_event_reasons.supported" = |_, _| Some("0x0000000000000001".to_owned());
    "clocks_event_reasons.active" = |_, _| Some("0x0000000000000001".to_owned());
    "clocks_event_reasons.gpu_idle" = |_, _| reason(true);
    "clocks_event_reasons.applications_clocks_setting" = |_, _| reason(false);
    "clocks_event_reasons.sw_power_cap" = |_, _| reason(false);
    "clocks_event_reasons.hw_slowdown" = |_, _| reason(false);
    "clocks_event_reasons.hw_thermal_slowdown" = |_, _| reason(false);
    "clocks_event_reasons.hw_power_brake_slowdown" = |_, _| reason(false);
    "clocks_event_reasons.sw_thermal_slowdown" = |_, _| reason(false);
    "clocks_event_reasons.sync_boost" = |_, _| reason(false);
    "clocks_throttle_reasons.supported" = |_, _| Some("0x0000000000000001".to_owned());
    "clocks_throttle_reasons.active" = |_, _| Some("0x0000000000000001".to_owned());
    "clocks_throttle_reasons.gpu_idle" = |_, _| reason(true);
    "clocks_throttle_reasons.applications_clocks_setting" = |_, _| reason(false);
    "clocks_throttle_reasons.sw_power_cap" = |_, _| reason(false);
    "clocks_throttle_reasons.hw_slowdown" = |_, _| reason(false);
    "clocks_throttle_reasons.hw_thermal_slowdown" = |_, _| reason(false);
    "clocks_throttle_reasons.hw_power_brake_slowdown" = |_, _| reason(false);
    "clocks_throttle_reasons.sw_thermal_slowdown" = |_, _| reason(false);
    "clocks_throttle_reasons.sync_boost" = |_, _| reason(false);
    "memory.total" ["MiB"] = |_, card| text(Some(mib(card.memory.total)));
    "memory.reserved" ["MiB"] = |_, card| text(Some(mib(card.memory.reserved)));
    "memory.used" ["MiB"] = |_, card| text(Some(mib(card.memory.used)));
    "memory.free" ["MiB"] = |_, card| text(Some(mib(card.memory.free)));
    "compute_mode" = |_, _| Some("Default".to_owned());
    "compute_cap" = |_, card| card.capability.map(|(major, minor)| format!("{major}.{minor}"));
    "utilization.gpu" ["%"] = |_, card| text(card.utilization.map(|rates| rates.0));
    "utilization.memory" ["%"] = |_, card| text(card.utilization.map(|rates| rates.1));
    "utilization.encoder" ["%"] = |_, card| text(card.encoder);
    "utilization.decoder" ["%"] = |_, card| text(card.decoder);
    "encoder.stats.sessionCount" = |_, _| Some("0".to_owned());
    "encoder.stats.averageFps" = |_, _| Some("0".to_owned());
    "encoder.stats.averageLatency" = |_, _| Some("0".to_owned());
    "ecc.mode.current" = |_, card| enabled(card.ecc.map(|mode| mode.0));
    "ecc.mode.pending" = |_, card| enabled(card.ecc.map(|mode| mode.1));
    "temperature.gpu" = |_, card| text(card.temperature);
    "power.management" = |_, card| enabled(card.power_limit.map(|_| true));
    "power.draw" ["W"] = |_, card| watts(card.power);
    "power.draw.average" ["W"] = |_, card| watts(card.power);
    "power.draw.instant" ["W"] = |_, card| watts(card.power);
    "power.limit" ["W"] = |_, card| watts(card.power_limit);
    "enforced.power.limit" ["W"] = |_, card| watts(card.enforced_limit);
    "power.default_limit" ["W"] = |_, card| watts(card.default_limit);
    "power.min_limit" ["W"] = |_, card| watts(card.limits.map(|limits| limits.0));
    "power.max_limit" ["W"] = |_, card| watts(card.limits.map(|limits| limits.1));
    "clocks.current.graphics" | "clocks.gr" ["MHz"] = |_, card| text(card.clocks[0]);
    "clocks.current.sm" | "clocks.sm" ["MHz"] = |_, card| text(card.clocks[1]);
    "clocks.current.memory" | "clocks.mem" ["MHz"] = |_, card| text(card.clocks[2]);
    "clocks.current.video" | "clocks.video" ["MHz"] = |_, card| text(card.clocks[3]);
    "clocks.max.graphics" | "clocks.max.gr" ["MHz"] = |_, card| text(card.most_clocks[0]);
    "clocks.max.sm" ["MHz"] = |_, card| text(card.most_clocks[1]);
    "clocks.max.memory" | "clocks.max.mem" ["MHz"] = |_, card| text(card.most_clocks[2]);
    "mig.mode.current" = |_, card| enabled(card.mig.map(|mode| mode.0));
    "mig.mode.pending" = |_, card| enabled(card.mig.map(|mode| mode.1));
    "hostname" = |_, _| std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
};

/// Properties that a virtual card does not report, with their units. A name that ends with a dot stands for all that begin
/// with it.
const UNREPORTED: &[(&str, Option<&str>)] = &[
    ("addressing_mode", None),
    ("accounting.mode", None),
    ("accounting.buffer_size", None),
    ("driver_model.current", None),
    ("driver_model.pending", None),
    ("inforom.", None),
    ("gom.", None),
    ("gpu_operation_mode.", None),
    ("gpu_recovery_action", None),
    ("clocks_event_reasons_counters.", Some("us")),
    ("utilization.jpeg", Some("%")),
    ("utilization.ofa", Some("%")),
    ("dramEncryption.mode.", None),
    ("ecc.errors.corrected.", None),
    ("ecc.errors.uncorrected.", None),
    ("retired_pages.", None),
    ("remapped_rows.", None),
    ("temperature.gpu.tlimit", None),
    ("temperature.memory", None),
    ("edpp_multiplier", Some("%")),
    ("clocks.applications.graphics", Some("MHz")),
    ("clocks.applications.gr", Some("MHz")),
    ("clocks.applications.memory", Some("MHz")),
    ("clocks.applications.mem", Some("MHz")),
    ("clocks.default_applications.graphics", Some("MHz")),
    ("clocks.default_applications.gr", Some("MHz")),
    ("clocks.default_applications.memory", Some("MHz")),
    ("clocks.default_applications.mem", Some("MHz")),
    ("gsp.mode.", None),
    ("c2c.mode", None),
    ("protected_memory.", Some("MiB")),
    ("fabric.", None),
    ("platform.", None),
    ("pci.baseClass", None),
    ("pci.subClass", None),
    ("vgpu_", None),
    ("module.power.", Some("W")),
    ("module.enforced.", Some("W")),
    ("power_smoothing.", None),
    ("kmd_version", None),
];

/// The properties of a process.
const PROCESS: &[Column<OnCard>] = columns! { OnCard:
    "timestamp" = |_, _| Some(timestamp());
    "gpu_name" = |_, found| Some(found.card.name.clone());
    "gpu_bus_id" = |_, found| Some(found.card.bus_id.clone());
    "gpu_serial" = |_, found| found.card.serial.clone();
    "gpu_uuid" = |_, found| Some(found.card.uuid.clone());
    "pid" = |_, found| text(Some(found.process.pid));
    "process_name" | "name" = |_, found| found.process.name.clone();
    "used_gpu_memory" | "used_memory" ["MiB"] = |_, found| text(found.process.used.map(mib));
};

/// What a field is: its name and unit in the header, and its value where there is one.
pub(crate) struct Field<Of: 'static> {
    pub(crate) name: String,
    pub(crate) unit: Option<&'static str>,
    pub(crate) value: Option<fn(&Machine, &Of) -> Option<String>>,
}

/// The field of a card that is called `name`.
pub(crate) fn of_cards(name: &str) -> Option<Field<Card>> {
    named(CARD, name).or_else(|| {
        let is = |(known, _): &&(&str, Option<&str>)| match known.ends_with(['.', '_']) {
            true => name.len() > known.len() && name.starts_with(known),
            false => name == *known,
        };
        let (_, unit) = UNREPORTED.iter().find(is)?;
        Some(Field { name: name.to_owned(), unit: *unit, value: None })
    })
}

/// The field of a process that is called `name`.
pub(crate) fn of_processes(name: &str) -> Option<Field<OnCard>> {
    named(PROCESS, name)
}

fn named<Of>(columns: &'static [Column<Of>], name: &str) -> Option<Field<Of>> {
    let column = columns.iter().find(|column| column.name == name || column.others.contains(&name))?;
    Some(Field {
        name: column.name.to_owned(),
        unit: Some(column.unit).filter(|unit| !unit.is_empty()),
        value: Some(column.value),
    })
}

fn help<Of>(switch: &str, columns: &[Column<Of>]) -> String {
    let mut text = format!("List of valid properties to query for the switch \"{switch}\":\n\n");
    for column in columns {
        let names: Vec<String> = [column.name].iter().chain(column.others).map(|name| format!("\"{name}\"")).collect();
        text += &format!("{}\n", names.join(" or "));
    }
    text
}

/// The names of a card's properties.
pub(crate) fn help_of_cards() -> String {
    let mut text = help("--query-gpu", CARD);
    text += "\nNot reported by a virtual card, so that they read [N/A]; behind a dot may stand more:\n\n";
    text.extend(UNREPORTED.iter().map(|(name, _)| format!("\"{name}\"\n")));
    text
}

/// The names of a process's properties.
pub(crate) fn help_of_processes() -> String {
    help("--query-compute-apps", PROCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_means_one_property() {
        let mut names: Vec<&str> =
            CARD.iter().flat_map(|column| [column.name].into_iter().chain(column.others.iter().copied())).collect();
        names.extend(UNREPORTED.iter().map(|(name, _)| *name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn families_need_more_than_their_name() {
        assert!(of_cards("ecc.errors.corrected.volatile.total").is_some());
        for unknown in ["ecc.errors.corrected.", "cuda_version", "memory", "clocks.applications.sm", ""] {
            assert!(of_cards(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn times_have_milliseconds() {
        let now = timestamp();
        assert_eq!(now.len(), "2026/11/29 10:00:00.123".len(), "{now}");
    }
}

//! `nvidia-smi -q`: everything about each card, as text or as XML.
//!
//! Both are written from one tree, because the tool shows the same in both under other names.

use crate::machine::{Card, Machine, Memory, mib};
use crate::section::Section;

/// Where the colons of the text are.
const COLUMN: usize = 42;
const NONE: &str = "N/A";

/// An entry: its name in the text and in XML, and what it holds.
struct Entry {
    label: &'static str,
    tag: &'static str,
    /// The section that shows it, where one was named with `-d`. Entries of no section are shown without `-d` only.
    section: Option<Section>,
    content: Content,
}

enum Content {
    Value(String),
    Inner(Vec<Entry>),
    Processes(Vec<crate::Process>),
}

fn value(label: &'static str, tag: &'static str, value: impl Into<String>) -> Entry {
    Entry { label, tag, section: None, content: Content::Value(value.into()) }
}

fn inner(label: &'static str, tag: &'static str, entries: Vec<Entry>) -> Entry {
    Entry { label, tag, section: None, content: Content::Inner(entries) }
}

impl Entry {
    fn in_section(mut self, section: Section) -> Self {
        self.section = Some(section);
        self
    }
}

/// What NVML reports, or the word for what it does not.
fn or_none<T: ToString>(value: Option<T>, unit: &str) -> String {
    value.map_or(NONE.to_owned(), |value| format!("{}{unit}", value.to_string()))
}

fn enabled(value: Option<bool>) -> String {
    value.map_or(NONE, |value| if value { "Enabled" } else { "Disabled" }).to_owned()
}

fn watts(milliwatts: Option<u32>) -> String {
    or_none(milliwatts.map(|milliwatts| format!("{:.2}", f64::from(milliwatts) / 1000.0)), " W")
}

/// The answer: all sections where none is named.
pub(crate) fn text(machine: &Machine, sections: &[Section], xml: bool) -> String {
    let now = chrono::Local::now().format("%a %b %e %H:%M:%S %Y").to_string();
    let head = [
        value("Timestamp", "timestamp", now),
        value("Driver Version", "driver_version", machine.driver.clone()),
        value("CUDA Version", "cuda_version", machine.cuda.clone()),
        value("Attached GPUs", "attached_gpus", machine.count.to_string()),
    ];
    let shown = |card: &Card| {
        let entries = entries(card).into_iter();
        let wanted =
            |entry: &Entry| sections.is_empty() || entry.section.is_some_and(|section| sections.contains(&section));
        entries.filter(wanted).collect::<Vec<_>>()
    };
    let mut out = String::new();
    if xml {
        out +=
            "<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n";
        head.iter().for_each(|entry| write_xml(&mut out, entry, 1));
        for card in &machine.cards {
            out += &format!("\t<gpu id=\"{}\">\n", escaped(&card.bus_id));
            shown(card).iter().for_each(|entry| write_xml(&mut out, entry, 2));
            out += "\t</gpu>\n";
        }
        return out + "</nvidia_smi_log>\n";
    }
    out += "\n==============NVSMI LOG==============\n\n";
    for (index, entry) in head.iter().enumerate() {
        // A line lies between what is of the driver and of the cards.
        out += if index + 1 == head.len() { "\n" } else { "" };
        write_text(&mut out, entry, 0);
    }
    for card in &machine.cards {
        out += &format!("GPU {}\n", card.bus_id);
        shown(card).iter().for_each(|entry| write_text(&mut out, entry, 1));
        out += "\n";
    }
    out
}

fn write_text(out: &mut String, entry: &Entry, depth: usize) {
    let indent = "    ".repeat(depth);
    let mut line = |label: &str, value: &str| {
        let width = COLUMN - indent.len();
        *out += &format!("{indent}{label:<width$}: {value}\n");
    };
    match &entry.content {
        Content::Value(value) => line(entry.label, value),
        Content::Processes(found) if found.is_empty() => line(entry.label, "None"),
        Content::Inner(entries) => {
            *out += &format!("{indent}{}\n", entry.label);
            entries.iter().for_each(|entry| write_text(out, entry, depth + 1));
        }
        Content::Processes(found) => {
            *out += &format!("{indent}{}\n", entry.label);
            for process in found {
                of_process(process).iter().for_each(|entry| write_text(out, entry, depth + 1));
            }
        }
    }
}

fn write_xml(out: &mut String, entry: &Entry, depth: usize) {
    let indent = "\t".repeat(depth);
    let tag = entry.tag;
    match &entry.content {
        Content::Value(value) => *out += &format!("{indent}<{tag}>{}</{tag}>\n", escaped(value)),
        Content::Inner(entries) => {
            *out += &format!("{indent}<{tag}>\n");
            entries.iter().for_each(|entry| write_xml(out, entry, depth + 1));
            *out += &format!("{indent}</{tag}>\n");
        }
        Content::Processes(found) => {
            *out += &format!("{indent}<{tag}>\n");
            for process in found {
                *out += &format!("{indent}\t<process_info>\n");
                of_process(process).iter().for_each(|entry| write_xml(out, entry, depth + 2));
                *out += &format!("{indent}\t</process_info>\n");
            }
            *out += &format!("{indent}</{tag}>\n");
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn of_process(process: &crate::Process) -> Vec<Entry> {
    vec![
        value("GPU instance ID", "gpu_instance_id", NONE),
        value("Compute instance ID", "compute_instance_id", NONE),
        value("Process ID", "pid", process.pid.to_string()),
        value("    Type", "type", "C"),
        value("    Name", "process_name", process.name.clone().unwrap_or_default()),
        value("    Used GPU Memory", "used_memory", or_none(process.used.map(mib), " MiB")),
    ]
}

fn memory(found: Option<Memory>, with_reserved: bool) -> Vec<Entry> {
    let shown = |part: fn(Memory) -> u64| or_none(found.map(|memory| mib(part(memory))), " MiB");
    let mut entries = vec![value("Total", "total", shown(|memory| memory.total))];
    if with_reserved {
        entries.push(value("Reserved", "reserved", shown(|memory| memory.reserved)));
    }
    entries.push(value("Used", "used", shown(|memory| memory.used)));
    entries.push(value("Free", "free", shown(|memory| memory.free)));
    entries
}

fn clocks(found: &[Option<u32>; 4]) -> Vec<Entry> {
    let names = [("Graphics", "graphics_clock"), ("SM", "sm_clock"), ("Memory", "mem_clock"), ("Video", "video_clock")];
    names.iter().zip(found).map(|((label, tag), clock)| value(label, tag, or_none(*clock, " MHz"))).collect()
}

fn entries(card: &Card) -> Vec<Entry> {
    let mut all = identity(card);
    all.extend(condition(card));
    all
}

/// What a card is and where it sits.
fn identity(card: &Card) -> Vec<Entry> {
    let (domain, bus, device) = card.place;
    let mig = |which: fn((bool, bool)) -> bool| enabled(card.mig.map(which));
    let widths = |width: Option<u32>| or_none(width, "x");
    vec![
        value("Product Name", "product_name", card.name.clone()),
        value("Product Brand", "product_brand", card.brand.unwrap_or("Unknown")),
        value("Product Architecture", "product_architecture", card.architecture.unwrap_or("Unknown")),
        value("Display Mode", "display_mode", enabled(card.display_mode)),
        value("Display Active", "display_active", enabled(card.display_active)),
        value("Persistence Mode", "persistence_mode", enabled(card.persistence)),
        inner(
            "MIG Mode",
            "mig_mode",
            vec![
                value("Current", "current_mig", mig(|mode| mode.0)),
                value("Pending", "pending_mig", mig(|mode| mode.1)),
            ],
        ),
        value("Accounting Mode", "accounting_mode", NONE).in_section(Section::Accounting),
        value("Accounting Mode Buffer Size", "accounting_mode_buffer_size", NONE).in_section(Section::Accounting),
        inner(
            "Driver Model",
            "driver_model",
            vec![value("Current", "current_dm", NONE), value("Pending", "pending_dm", NONE)],
        ),
        value("Serial Number", "serial", or_none(card.serial.clone(), "")),
        value("GPU UUID", "uuid", card.uuid.clone()),
        value("Minor Number", "minor_number", or_none(card.minor, "")),
        value("VBIOS Version", "vbios_version", or_none(card.vbios.clone(), "")),
        value("MultiGPU Board", "multigpu_board", "No"),
        value("Board ID", "board_id", card.board_id.map_or(NONE.to_owned(), |id| format!("{id:#x}"))),
        value("GPU Part Number", "gpu_part_number", NONE),
        inner(
            "GPU Virtualization Mode",
            "gpu_virtualization_mode",
            vec![
                value("Virtualization Mode", "virtualization_mode", "None"),
                value("Host VGPU Mode", "host_vgpu_mode", NONE),
            ],
        ),
        value("GSP Firmware Version", "gsp_firmware_version", NONE).in_section(Section::Fabric),
        inner(
            "PCI",
            "pci",
            vec![
                value("Bus", "pci_bus", format!("{bus:#04X}").replace('X', "x")),
                value("Device", "pci_device", format!("{device:#04X}").replace('X', "x")),
                value("Domain", "pci_domain", format!("{domain:#06X}").replace('X', "x")),
                value("Device Id", "pci_device_id", format!("0x{:08X}", card.device_id)),
                value("Bus Id", "pci_bus_id", card.bus_id.clone()),
                value("Sub System Id", "pci_sub_system_id", format!("0x{:08X}", card.sub_device_id.unwrap_or(0))),
                inner(
                    "GPU Link Info",
                    "pci_gpu_link_info",
                    vec![
                        inner(
                            "PCIe Generation",
                            "pcie_gen",
                            vec![
                                value("Max", "max_link_gen", or_none(card.most_link_generation, "")),
                                value("Current", "current_link_gen", or_none(card.link_generation, "")),
                            ],
                        ),
                        inner(
                            "Link Width",
                            "link_widths",
                            vec![
                                value("Max", "max_link_width", widths(card.most_link_width)),
                                value("Current", "current_link_width", widths(card.link_width)),
                            ],
                        ),
                    ],
                ),
                value("Replays Since Reset", "replay_counter", or_none(card.replays, "")),
            ],
        ),
    ]
}

/// How a card is doing.
fn condition(card: &Card) -> Vec<Entry> {
    let percent = |value: Option<u32>| or_none(value, " %");
    let ecc = |which: fn((bool, bool)) -> bool| enabled(card.ecc.map(which));
    let temperature = or_none(card.temperature, " C");
    vec![
        value("Fan Speed", "fan_speed", percent(card.fan)),
        value("Performance State", "performance_state", card.performance.map_or(NONE.to_owned(), |p| format!("P{p}")))
            .in_section(Section::Performance),
        inner(
            "Clocks Event Reasons",
            "clocks_event_reasons",
            vec![
                value("Idle", "clocks_event_reason_gpu_idle", "Active"),
                value("SW Power Cap", "clocks_event_reason_sw_power_cap", "Not Active"),
                value("HW Slowdown", "clocks_event_reason_hw_slowdown", "Not Active"),
                value("SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown", "Not Active"),
            ],
        )
        .in_section(Section::Performance),
        inner("FB Memory Usage", "fb_memory_usage", memory(Some(card.memory), true)).in_section(Section::Memory),
        inner("BAR1 Memory Usage", "bar1_memory_usage", memory(card.bar1, false)).in_section(Section::Memory),
        inner("Conf Compute Protected Memory Usage", "cc_protected_memory_usage", memory(None, false))
            .in_section(Section::Memory),
        value("Compute Mode", "compute_mode", "Default").in_section(Section::Compute),
        utilization(card),
        inner(
            "Encoder Stats",
            "encoder_stats",
            vec![
                value("Active Sessions", "session_count", "0"),
                value("Average FPS", "average_fps", "0"),
                value("Average Latency", "average_latency", "0"),
            ],
        )
        .in_section(Section::EncoderStats),
        inner(
            "ECC Mode",
            "ecc_mode",
            vec![
                value("Current", "current_ecc", ecc(|mode| mode.0)),
                value("Pending", "pending_ecc", ecc(|mode| mode.1)),
            ],
        )
        .in_section(Section::Ecc),
        value("Retired Pages", "retired_pages", NONE).in_section(Section::PageRetirement),
        value("Remapped Rows", "remapped_rows", NONE).in_section(Section::RowRemapper),
        inner(
            "Temperature",
            "temperature",
            vec![value("GPU Current Temp", "gpu_temp", temperature), value("Memory Current Temp", "memory_temp", NONE)],
        )
        .in_section(Section::Temperature),
        power(card),
        inner("Clocks", "clocks", clocks(&card.clocks)).in_section(Section::Clock),
        inner("Max Clocks", "max_clocks", clocks(&card.most_clocks)).in_section(Section::Clock),
        value("Supported Clocks", "supported_clocks", NONE).in_section(Section::SupportedClocks),
        inner("Voltage", "voltage", vec![value("Graphics", "graphics_volt", NONE)]).in_section(Section::Voltage),
        inner("Fabric", "fabric", vec![value("State", "state", NONE), value("Status", "status", NONE)])
            .in_section(Section::Fabric),
        Entry {
            label: "Processes",
            tag: "processes",
            section: Some(Section::Processes),
            content: Content::Processes(card.processes.clone()),
        },
    ]
}

/// How busy a card is.
fn utilization(card: &Card) -> Entry {
    let percent = |value: Option<u32>| or_none(value, " %");
    let rates = vec![
        value("GPU", "gpu_util", percent(card.utilization.map(|rates| rates.0))),
        value("Memory", "memory_util", percent(card.utilization.map(|rates| rates.1))),
        value("Encoder", "encoder_util", percent(card.encoder)),
        value("Decoder", "decoder_util", percent(card.decoder)),
    ];
    inner("Utilization", "utilization", rates).in_section(Section::Utilization)
}

/// What a card draws, and may draw.
fn power(card: &Card) -> Entry {
    let readings = vec![
        value("Average Power Draw", "average_power_draw", watts(card.power)),
        value("Instantaneous Power Draw", "instant_power_draw", watts(card.power)),
        value("Current Power Limit", "current_power_limit", watts(card.enforced_limit)),
        value("Requested Power Limit", "requested_power_limit", watts(card.power_limit)),
        value("Default Power Limit", "default_power_limit", watts(card.default_limit)),
        value("Min Power Limit", "min_power_limit", watts(card.limits.map(|limits| limits.0))),
        value("Max Power Limit", "max_power_limit", watts(card.limits.map(|limits| limits.1))),
    ];
    inner("GPU Power Readings", "gpu_power_readings", readings).in_section(Section::Power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_chosen() {
        let text = text(&Machine::example(1), &[Section::Memory], false);
        assert!(
            text.contains("Attached GPUs                             : 1\nGPU 00000000:01:00.0\n    FB Memory Usage\n"),
            "{text}"
        );
        assert!(text.contains("        Free                              : 11000 MiB\n"), "{text}");
        assert!(!text.contains("Temperature") && !text.contains("Product"), "{text}");
    }

    #[test]
    fn the_text_has_everything() {
        let text = text(&Machine::example(2), &[], false);
        assert_eq!(text.matches("GPU UUID").count(), 2);
        assert!(
            text.contains(
                "        Process ID                        : 4711\n            Type                          : C\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn xml_has_the_same_under_its_own_names() {
        let mut machine = Machine::example(1);
        machine.cards[0].processes[0].name = Some("python -c 'a < b'".into());
        let text = text(&machine, &[], true);
        assert!(
            text.contains("\t\t<fb_memory_usage>\n\t\t\t<total>12000 MiB</total>\n\t\t\t<reserved>0 MiB</reserved>\n"),
            "{text}"
        );
        assert!(text.contains("\t\t\t\t<process_name>python -c 'a &lt; b'</process_name>\n"), "{text}");
        assert!(text.contains("\t\t\t\t<type>C</type>\n\t\t\t\t"), "{text}");
        for tag in ["nvidia_smi_log", "gpu", "processes", "process_info", "pci", "utilization"] {
            let (opened, closed) =
                (text.matches(&format!("<{tag}")).count(), text.matches(&format!("</{tag}>")).count());
            assert!(opened >= closed && closed >= 1, "{tag}");
        }
        // An XML parser sees the same number of tags opened and closed.
        assert_eq!(text.matches("</").count() * 2, text.matches('<').count() - 2);
    }
}

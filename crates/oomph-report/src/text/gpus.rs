//! Shows the catalogue as a table, and one card as a page.

use oomph_gpu::Gpu;
use oomph_gpu::size::format as size;

use super::page::{Ink, Page, Style, shortened};
use crate::gpus::GpusReport;

/// Columns that the table has between the identifier and the name.
const NUMBERS_WIDTH: usize = 2 + 6 + 2 + 10 + 2 + 4 + 2 + 4;

/// A name with fewer columns than these says nothing.
const LEAST_NAME: usize = 24;

/// Writes the catalogue as a table, one line per card. Names are cut at the terminal's width, and left out of a narrow
/// one.
#[must_use]
pub fn render_gpus(report: &GpusReport<'_>, style: Style) -> String {
    let mut page = Page::new(style);
    let id_width = report.gpus.iter().map(|gpu| gpu.id.chars().count()).max().unwrap_or(0).max("card".len());
    let room = page.width().saturating_sub(id_width + NUMBERS_WIDTH + 2);
    let unicode = page.unicode();
    let mut row = |ink: Ink, cells: [&str; 6]| {
        let [id, nominal, reported, capability, sms, name] = cells;
        let mut line = format!("{id:<id_width$}  {nominal:>6}  {reported:>10}  {capability:>4}  {sms:>4}");
        if room >= LEAST_NAME {
            line = format!("{line}  {}", shortened(name, room, unicode));
        }
        page.line(0, &[(ink, line.trim_end())]);
    };
    row(Ink::Strong, ["card", "memory", "reported", "cc", "SMs", "name"]);
    for gpu in &report.gpus {
        let nominal = format!("{} GB", gpu.memory_gb);
        let capability = gpu.compute_capability().to_string();
        let (reported, sms) = (size(gpu.capacity_bytes), gpu.sm_count.to_string());
        row(Ink::Plain, [&gpu.id, &nominal, &reported, &capability, &sms, &gpu.name]);
    }
    page.gap();
    let key = "memory: on the box. reported: the total that CUDA reports, before a context takes its share. cc: compute \
               capability. `oomph gpus NAME` shows one card.";
    page.paragraph(0, 0, &[(Ink::Faint, key)]);
    page.finish()
}

/// Writes everything that is known of one card. `variants` are the other cards to which CUDA gives the same name.
#[must_use]
pub fn render_gpu(gpu: &Gpu, variants: &[&Gpu], style: Style) -> String {
    let mut page = Page::new(style);
    page.paragraph(0, 2, &[(Ink::Strong, &gpu.name), (Ink::Plain, &format!(" ({})", gpu.id))]);
    let mut fact = |name: &str, value: &str| {
        page.paragraph(2, 4, &[(Ink::Faint, name), (Ink::Plain, &format!(" {value}"))]);
    };
    if let Some(mark) = super::mark(gpu.kind) {
        fact("kind:", mark);
    }
    if let Some(parent) = &gpu.mig_parent {
        fact("slice of:", parent);
    }
    if !gpu.aliases.is_empty() {
        fact("also called:", &gpu.aliases.join(", "));
    }
    if !variants.is_empty() {
        let variants: Vec<&str> = variants.iter().map(|gpu| gpu.id.as_str()).collect();
        fact("same name, another card:", &variants.join(", "));
    }
    fact("memory:", &format!("{} GB on the box, {} reported by CUDA", gpu.memory_gb, size(gpu.capacity_bytes)));
    if gpu.capacity_low_bytes != gpu.capacity_high_bytes {
        let (low, high) = (size(gpu.capacity_low_bytes), size(gpu.capacity_high_bytes));
        fact("reported by other drivers:", &format!("{low} to {high}"));
    }
    let context = &gpu.context;
    let (low, expected, high) = (size(context.low_bytes), size(context.expected_bytes), size(context.high_bytes));
    fact("a process before its first tensor:", &format!("{expected}, between {low} and {high}"));
    let architecture = &gpu.architecture;
    fact("compute capability:", &format!("{}, {}", architecture.compute_capability, architecture.name));
    let (threads, blocks) = (architecture.max_threads_per_sm, architecture.max_blocks_per_sm);
    fact("multiprocessors:", &format!("{}, each {threads} threads in {blocks} blocks", gpu.sm_count));
    let shared = [
        architecture.shared_memory_per_block_bytes,
        architecture.shared_memory_per_block_optin_bytes,
        architecture.shared_memory_per_sm_bytes,
    ]
    .map(|bytes| size(bytes.into()));
    let [block, optin, sm] = shared;
    fact("shared memory:", &format!("{block} a block, {optin} after opting in, {sm} a multiprocessor"));
    fact("level-2 cache:", &size(gpu.l2_bytes));
    let (clock, memory_clock) = (gpu.sm_clock_khz / 1000, gpu.memory_clock_khz / 1000);
    fact("clocks:", &format!("{clock} MHz, memory {memory_clock} MHz on a bus of {} bits", gpu.memory_bus_bits));
    if let Some(id) = gpu.pci_device_id {
        fact("PCI id:", &format!("10de:{id:04x}"));
    }
    if let Some(note) = &gpu.note {
        fact("note:", note);
    }
    for (what, source) in [
        ("source of the capacity:", &gpu.capacity_source),
        ("source of the process's cost:", &context.source),
        ("source of the silicon's figures:", &gpu.silicon_source),
    ] {
        fact(what, source);
    }
    page.finish()
}

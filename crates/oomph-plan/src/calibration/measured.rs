//! Measurements that others published, where they give enough detail to be planned.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use oomph_gpu::{Catalogue, Gpu};

use super::described::{self, Described};
use super::errors;
use crate::answer::{CardCost, Estimate};
use crate::estimate::estimate;
use crate::tape::TapeOwner;

/// One published measurement, as far as it could be planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its number in the file.
    pub id: String,
    /// Whose table it is from.
    pub family: String,
    /// The model as the table calls it.
    pub model: String,
    /// What was measured, in bytes; `None` where only whether it fitted is known.
    pub bytes: Option<u64>,
    /// Whether it ran out of memory.
    pub oom: bool,
    /// The capacity of the card, where the catalogue has it, in bytes.
    pub capacity: Option<u64>,
    /// What was measured.
    pub metric: Metric,
    /// Whether the row leaves out its batch or length, so that the plan is for the least that it can have been.
    pub least: bool,
    /// What is said of it, or why nothing can be.
    pub planned: Result<Estimate, &'static str>,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// `max_memory_allocated`: what is handed out.
    Allocated,
    /// `max_memory_reserved`: what PyTorch's allocator holds.
    Reserved,
    /// Everything of the process, the CUDA context included; also where nothing says what it is.
    Process,
}

impl Metric {
    fn named(metric: &str, task: &str) -> Self {
        // Tables of diffusers print `max_memory_allocated` as "memory".
        if metric.contains("allocated") || (metric == "memory" && task == "text-to-image") {
            Self::Allocated
        } else if metric.contains("reserved") {
            Self::Reserved
        } else {
            Self::Process
        }
    }
}

impl Measured {
    /// What the plan says of the figure that was measured, in bytes.
    #[must_use]
    pub fn said(&self) -> Option<u64> {
        let answer = self.planned.as_ref().ok()?;
        let [context, slack] = [TapeOwner::Context, TapeOwner::Slack].map(|owner| answer.owners[owner as usize]);
        Some(match self.metric {
            Metric::Process => answer.total.expected,
            Metric::Reserved => answer.total.expected.saturating_sub(context),
            Metric::Allocated => answer.total.expected.saturating_sub(context).saturating_sub(slack),
        })
    }

    /// The plan's error against the figure, in percent; `None` where there is no figure, or no plan of this very row.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let bytes = self.bytes.filter(|bytes| *bytes > 0 && !self.least)?;
        Some(100.0 * (self.said()? as f64 / bytes as f64 - 1.0))
    }

    /// Whether the plan says that it fits for certain; `None` where the card or the plan is not known.
    #[must_use]
    pub fn sure(&self) -> Option<bool> {
        Some(self.planned.as_ref().ok()?.total.high <= self.capacity? && !self.least)
    }
}

/// The errors by family, what is said of the runs that ran out of memory, and why rows are left out.
#[must_use]
pub fn table(rows: &[Measured]) -> String {
    let mut families: BTreeMap<&str, Vec<&Measured>> = BTreeMap::new();
    for row in rows {
        families.entry(&row.family).or_default().push(row);
    }
    let mut text = String::from(
        "family              rows  planned  with a figure   error %: median    p95   ran out: called so  maybe  sure to fit\n",
    );
    for (family, rows) in &families {
        let planned = rows.iter().filter(|row| row.planned.is_ok()).count();
        let figures: Vec<f64> = rows.iter().filter_map(|row| row.error()).collect();
        let errors = errors(figures.iter().map(|error| 1.0 / (1.0 + error / 100.0)));
        let (median, p95) = errors
            .map_or(("-".into(), "-".into()), |errors| (format!("{:.1}", errors.median), format!("{:.1}", errors.p95)));
        let ran_out: Vec<&&Measured> = rows.iter().filter(|row| row.oom && row.planned.is_ok()).collect();
        let low = |row: &Measured| row.planned.as_ref().map_or(0, |answer| answer.total.low);
        let called = ran_out.iter().filter(|row| row.capacity.is_some_and(|capacity| low(row) > capacity)).count();
        let sure = ran_out.iter().filter(|row| row.sure() == Some(true)).count();
        let _ = writeln!(
            text,
            "{family:18} {:5} {planned:8} {:14} {median:>18} {p95:>6} {called:20} {:6} {sure:12}",
            rows.len(),
            figures.len(),
            ran_out.len() - called - sure,
        );
    }
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows {
        let reason = match &row.planned {
            Err(reason) => *reason,
            Ok(_) if row.least => "planned as the least that it can have been: batch or length are not given",
            Ok(_) => continue,
        };
        reasons.entry(reason).or_default().push(&row.id);
    }
    text.push_str("\nLeft out, or under-specified:\n");
    for (reason, ids) in reasons {
        let _ = writeln!(text, "  {reason} ({} rows): {}", ids.len(), ids.join(" "));
    }
    text
}

/// Splits a line of a CSV file, whose cells may be quoted.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                cell.push('"');
                characters.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            other => cell.push(other),
        }
    }
    cells.push(cell);
    cells
}

/// Reads the file and plans every row that says enough.
#[must_use]
pub fn read(text: &str) -> Vec<Measured> {
    let mut lines = text.lines();
    let columns = cells(lines.next().unwrap_or_default());
    lines
        .map(|line| {
            let row: HashMap<&str, String> = columns.iter().map(String::as_str).zip(cells(line)).collect();
            measured(&row)
        })
        .collect()
}

fn measured(row: &HashMap<&str, String>) -> Measured {
    let text = |name: &str| row.get(name).map_or("", String::as_str).trim();
    let unit = match text("unit") {
        "GB" => 1e9,
        "MB" => 1e6,
        "MiB" => 1_048_576.0,
        _ => 1_073_741_824.0,
    };
    let binary = text("notes").contains("1024**3");
    let unit = if binary { 1_073_741_824.0 } else { unit };
    let frontier = text("metric").contains("frontier") || text("notes").contains("card size");
    let bytes = text("value").parse::<f64>().ok().filter(|_| !frontier).map(|value| (value * unit) as u64);
    let gpu = card(text("gpu"));
    let described = described::described(&text);
    let least = described.as_ref().is_ok_and(|described| described.least);
    let planned = described.and_then(|Described { subject, workload, .. }| {
        let card = gpu.or_else(|| Catalogue::builtin().get("a100-80gb")).map(CardCost::of).ok_or("no card")?;
        Ok(estimate(&subject, &workload, card))
    });
    Measured {
        id: text("id").into(),
        family: text("family").into(),
        model: text("model").into(),
        bytes,
        oom: text("outcome").starts_with("OOM"),
        capacity: gpu.map(|gpu| gpu.capacity_bytes),
        metric: Metric::named(text("metric"), text("task")),
        least,
        planned,
    }
}

/// The card of a table; where its size is not given, the smallest of that name.
fn card(name: &str) -> Option<&'static Gpu> {
    let plain = name.replace(" 16GB", "");
    let plain = plain.split('(').next().unwrap_or_default().trim();
    if plain.is_empty() {
        return None;
    }
    if !name.contains("not given") {
        return Catalogue::builtin().find(plain).ok();
    }
    let id = format!("{}-", plain.to_ascii_lowercase().replace(' ', "-"));
    let sized = Catalogue::builtin().iter().filter(|gpu| gpu.kind.is_card() && gpu.id.starts_with(&id));
    sized.min_by_key(|gpu| gpu.capacity_bytes)
}

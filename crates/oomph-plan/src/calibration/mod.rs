//! Measures the errors of the arithmetic, and derives the widths of the intervals.
//!
//! `calibration/text.csv` and `calibration/images.csv` hold readings of real programs on the virtual GPU. What is said here
//! of the same settings is held against them, family by family.

mod described;
pub mod grid;
pub mod measured;

use std::collections::BTreeMap;
use std::fmt::Write;

use oomph_model::{Architecture, Library};

use crate::answer::CardCost;
use crate::interval::Quantiles;
use crate::pipeline::{self, Pipeline};
use crate::tape::CardTraits;
use crate::workload::Task;

/// One reading next to what is said of its setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The model.
    pub model: String,
    /// Its family; `diffusion` for pipelines.
    pub family: String,
    /// What was done.
    pub task: Task,
    /// Allocated bytes, truth over prediction.
    pub allocated: f64,
    /// Reserved bytes, truth over prediction.
    pub reserved: f64,
}

impl Row {
    /// The ratio that counts. A card has to hold what is reserved; but the readings of QLoRA quantized a whole model on the
    /// card, whose remains in the cache no real loader leaves, so for them it is what is allocated.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.task == Task::Qlora { self.allocated } else { self.reserved }
    }
}

/// All readings next to what is said of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The readings.
    pub rows: Vec<Row>,
    /// What could not be compared, and why.
    pub left_out: Vec<String>,
}

fn over(truth: u64, prediction: u64) -> f64 {
    truth as f64 / prediction.max(1) as f64
}

/// The card of the readings, of which nothing but the allocator's bytes is compared.
const CARD: CardCost = CardCost { traits: CardTraits { capability: 90 }, context: [0; 3], capacity: None };

/// Compares the readings of three files with what is said of their settings: the grids of text, of images and of training
/// on images.
#[must_use]
pub fn compare(text: &str, images: &str, training: &str) -> Comparison {
    let library = Library::builtin();
    let mut comparison = Comparison::default();
    let (readings, left_out) = grid::read(text);
    comparison.left_out.extend(left_out);
    for reading in readings {
        let model = library.model(&reading.model).ok();
        let part = model.as_ref().and_then(|model| model.components.first());
        let Some(Architecture::Transformer(shape)) = part.and_then(|part| part.architecture.as_ref()) else {
            comparison.left_out.push(format!("{}: not built in", reading.model));
            continue;
        };
        if shape.family == "falcon" && reading.workload.task == Task::Qlora {
            // The readings quantized only plain `nn.Linear`, and Falcon has a class of its own.
            comparison.left_out.push("falcon-7b qlora: its linear layers were not quantized".into());
            continue;
        }
        let run = grid::planned(&reading, shape);
        comparison.rows.push(Row {
            model: reading.model,
            family: shape.family.clone(),
            task: reading.workload.task,
            allocated: over(reading.allocated, run.usage.allocated),
            reserved: over(reading.reserved, run.usage.reserved.unwrap_or(run.usage.allocated)),
        });
    }
    let mut pipelines = Vec::new();
    for (readings, left_out) in [grid::read_images(images), grid::read_training(training)] {
        pipelines.extend(readings);
        comparison.left_out.extend(left_out);
    }
    for reading in pipelines {
        let Ok(model) = library.model(&reading.model) else {
            comparison.left_out.push(format!("{}: not built in", reading.model));
            continue;
        };
        let mut pipeline = Pipeline::of(&model.components);
        // The readings were made without it.
        pipeline.networks.retain(|network| !network.name.contains("safety"));
        let usage = pipeline::run(&pipeline, &reading.workload, CARD, true).usage;
        comparison.rows.push(Row {
            model: reading.model,
            family: pipeline.family().into(),
            task: reading.workload.task,
            allocated: over(reading.allocated, usage.allocated),
            reserved: over(reading.reserved, usage.reserved.unwrap_or(usage.allocated)),
        });
    }
    comparison
}

/// How plans do on families that their intervals were not made from.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldOut {
    /// Errors of what is expected.
    pub errors: Errors,
    /// Readings that are at most the high bound.
    pub below_high: usize,
    /// Readings that are at least the low bound, too.
    pub within: usize,
    /// Readings above the high bound, one line each.
    pub missed: Vec<String>,
}

/// The errors of some readings, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// How many readings.
    pub rows: usize,
    /// Half are nearer than this.
    pub median: f64,
    /// Nineteen of twenty are nearer.
    pub p95: f64,
    /// The largest.
    pub worst: f64,
}

/// The errors of ratios of truth over prediction; `None` of no ratios.
#[must_use]
pub fn errors(ratios: impl IntoIterator<Item = f64>) -> Option<Errors> {
    let mut errors: Vec<f64> = ratios.into_iter().map(|ratio| 100.0 * (1.0 / ratio.max(1e-9) - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors.get(((errors.len().saturating_sub(1)) as f64 * share).round() as usize).copied();
    Some(Errors { rows: errors.len(), median: at(0.5)?, p95: at(0.95)?, worst: at(1.0)? })
}

impl Comparison {
    /// The quantiles of each family and task, of each task, and of everything.
    ///
    /// A family has too few readings for its own tails, so its bounds are at least as wide as those of all readings of the
    /// task, and for families without readings twice as wide as the widest.
    #[must_use]
    pub fn quantiles(&self) -> Vec<Quantiles> {
        let mut groups: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        for row in &self.rows {
            let task = row.task.name().to_owned();
            groups.entry((row.family.clone(), task.clone())).or_default().push(row.ratio());
            groups.entry((String::new(), task)).or_default().push(row.ratio());
            groups.entry((String::new(), String::new())).or_default().push(row.ratio());
        }
        let bounds = |ratios: &[f64]| {
            let low = ratios.iter().copied().fold(1.0, f64::min);
            let high = ratios.iter().copied().fold(1.0, f64::max);
            (low, high)
        };
        let pooled: BTreeMap<String, (f64, f64)> = groups
            .iter()
            .filter(|((family, _), _)| family.is_empty())
            .map(|((_, task), ratios)| (task.clone(), tails(ratios)))
            .collect();
        groups
            .iter()
            .map(|((family, task), ratios)| {
                let (mut low, mut high) = bounds(ratios);
                if family.is_empty() {
                    (low, high) = (1.0 - 2.0 * (1.0 - low), 1.0 + 2.0 * (high - 1.0));
                } else if let Some(&(pooled_low, pooled_high)) = pooled.get(task) {
                    (low, high) = (low.min(pooled_low), high.max(pooled_high));
                }
                let mut sorted = ratios.clone();
                sorted.sort_by(f64::total_cmp);
                let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(1.0);
                let digits = |value: f64| (value * 1e4).round() / 1e4;
                Quantiles {
                    family: family.clone(),
                    task: task.clone(),
                    rows: ratios.len() as u64,
                    // The bounds are those of what was seen; a little room keeps them from being the readings themselves.
                    low: digits((low - 0.005).max(0.05)),
                    middle: digits(middle),
                    high: digits(high + 0.005),
                }
            })
            .collect()
    }

    /// Leaves each family out in turn: the intervals are made of the readings of all others, and say of this one what is
    /// said of a family without readings. `None` of no readings.
    #[must_use]
    pub fn held_out(&self) -> Option<HeldOut> {
        let mut families: Vec<&str> = self.rows.iter().map(|row| row.family.as_str()).collect();
        families.sort_unstable();
        families.dedup();
        let (mut below_high, mut within) = (0, 0);
        let (mut ratios, mut missed) = (Vec::new(), Vec::new());
        for family in families {
            let others = self.rows.iter().filter(|row| row.family != family).cloned().collect();
            let quantiles = Self { rows: others, left_out: Vec::new() }.quantiles();
            let find = |task: &str| quantiles.iter().find(|entry| entry.family.is_empty() && entry.task == task);
            for row in self.rows.iter().filter(|row| row.family == family) {
                let Some(entry) = find(row.task.name()).or_else(|| find("")) else { continue };
                let ratio = row.ratio();
                ratios.push(ratio / entry.middle);
                below_high += usize::from(ratio <= entry.high);
                within += usize::from(ratio <= entry.high && ratio >= entry.low);
                if ratio > entry.high {
                    let task = row.task.name();
                    missed.push(format!("{} {task}: {ratio:.3} of what was said, high {:.3}", row.model, entry.high));
                }
            }
        }
        Some(HeldOut { errors: errors(ratios)?, below_high, within, missed })
    }

    /// The quantiles as the file that this crate is built with.
    #[must_use]
    pub fn file(&self) -> String {
        let mut text = String::from(
            "# How far predictions are from the truth, by family and task: quantiles of truth / prediction.\n\
             # Written by `cargo run -p xtask -- calibrate` from calibration/*.csv; do not edit.\n",
        );
        for entry in self.quantiles() {
            let _ = write!(
                text,
                "\n[[interval]]\nfamily = \"{}\"\ntask = \"{}\"\nrows = {}\nlow = {:.4}\nmiddle = {:.4}\nhigh = {:.4}\n",
                entry.family, entry.task, entry.rows, entry.low, entry.middle, entry.high
            );
        }
        text
    }

    /// The errors by family and task, as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "family             task        rows   allocated %: median    p95  worst   reserved %: median    p95  worst\n",
        );
        let mut groups: BTreeMap<(String, &str), Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            groups.entry((row.family.clone(), row.task.name())).or_default().push(row);
            groups.entry(("all text".into(), "")).or_default();
        }
        groups.insert(
            ("all text".into(), ""),
            self.rows.iter().filter(|row| !row.family.starts_with("diffusion")).collect(),
        );
        groups.insert(("all".into(), ""), self.rows.iter().collect());
        for ((family, task), rows) in groups {
            let (Some(allocated), Some(reserved)) =
                (errors(rows.iter().map(|row| row.allocated)), errors(rows.iter().map(|row| row.reserved)))
            else {
                continue;
            };
            let _ = writeln!(
                text,
                "{family:18} {task:10} {:5} {:21.2} {:6.2} {:6.2} {:20.2} {:6.2} {:6.2}",
                allocated.rows,
                allocated.median,
                allocated.p95,
                allocated.worst,
                reserved.median,
                reserved.p95,
                reserved.worst
            );
        }
        text
    }
}

/// The 0.5 % and 99.5 % quantiles.
fn tails(ratios: &[f64]) -> (f64, f64) {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1) as f64;
    let at = |share: f64| sorted.get((last * share).round() as usize).copied().unwrap_or(1.0);
    (at(0.005).min(1.0), at(0.995).max(1.0))
}

//! The answer of `oomph sweep`, `oomph.sweep/1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use oomph_protocol::{Phase, Verdict};

oomph_protocol::schema!(SweepSchema, "oomph.sweep/1");

/// A matrix of dry runs and what each of them showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepReport {
    /// Name and version of this document.
    pub schema: SweepSchema,
    /// The file that describes the sweep.
    pub file: String,
    /// The axes of the matrix, in the order of the file.
    pub axes: Vec<SweepAxis>,
    /// The cells, in the order of the matrix: the last axis varies first.
    pub cells: Vec<SweepCell>,
    /// How many cells were run this time.
    pub ran: usize,
    /// How many cells were known from earlier.
    pub known: usize,
    /// Whether runs shared their imports.
    #[serde(default)]
    pub forked: bool,
    /// Wall time of this time, in seconds.
    #[serde(default)]
    pub elapsed_seconds: f64,
    /// What weakens the answer, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// An axis of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepAxis {
    /// Its name.
    pub name: String,
    /// Its values as written, in the order of the file.
    pub values: Vec<String>,
}

impl SweepAxis {
    /// The place of a value on the axis.
    pub fn place(&self, value: &str) -> Option<usize> {
        self.values.iter().position(|known| known == value)
    }

    /// The values as numbers, where all of them are.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|value| value.parse().ok().filter(|number: &f64| number.is_finite())).collect()
    }
}

/// A cell of the matrix: one dry run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepCell {
    /// Its place in the matrix, from 0.
    pub index: usize,
    /// What its report is called, as `reports/ID.json` in the sweep's folder.
    pub id: String,
    /// The value on each axis.
    pub values: BTreeMap<String, String>,
    /// The verdict of its dry run; `null` where there is none, and `pending` then says why.
    pub verdict: Option<Verdict>,
    /// Why there is no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// The card that it ran on, by its identifier in the catalogue: the fullest of several.
    #[serde(default)]
    pub gpu: Option<String>,
    /// What CUDA reports as that card's total, in bytes; `null` without a limit.
    #[serde(default)]
    pub capacity_bytes: Option<u64>,
    /// The peak of the process on that card, contexts included, in bytes. Of a cell that ran out of memory it is what the
    /// card held when it refused.
    #[serde(default)]
    pub peak_bytes: Option<u64>,
    /// The upper end of that peak on a real card, in bytes.
    #[serde(default)]
    pub high_bytes: Option<u64>,
    /// The phase in which it ran out of memory.
    #[serde(default)]
    pub phase: Option<Phase>,
    /// The step in which it ran out of memory.
    #[serde(default)]
    pub step: Option<u64>,
    /// The program's exit status, as a shell shows it.
    #[serde(default)]
    pub exit_status: Option<i32>,
    /// The last line that a program that failed wrote on stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Wall time of its run, in seconds.
    #[serde(default)]
    pub elapsed_seconds: f64,
}

/// Why a cell has no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Pending {
    /// It has not been run yet.
    Unrun,
    /// A cell that is smaller along the axis of `--skip-larger` ran out of memory, so it was not run.
    Larger,
}

impl SweepCell {
    /// Whether it fits: it ran to its end without an out-of-memory error.
    pub fn fits(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Fits | Verdict::NoGpuUse))
    }
}

impl SweepReport {
    /// The cell with these values.
    pub fn cell(&self, values: &BTreeMap<String, String>) -> Option<&SweepCell> {
        self.cells.iter().find(|cell| cell.values == *values)
    }

    /// The axis of a name.
    pub fn axis(&self, name: &str) -> Option<&SweepAxis> {
        self.axes.iter().find(|axis| axis.name == name)
    }

    /// The largest value of an axis that fits, for each combination of the other axes that has cells: the combination, its
    /// cells along the axis in ascending order, and the place of the largest that fits.
    pub fn largest(&self, axis: &SweepAxis) -> Vec<Largest<'_>> {
        let order = ascending(axis);
        let mut rows: Vec<Largest<'_>> = Vec::new();
        for cell in &self.cells {
            let mut others = cell.values.clone();
            others.remove(&axis.name);
            match rows.iter_mut().find(|row| row.others == others) {
                Some(row) => row.cells.push(cell),
                None => rows.push(Largest { others, cells: vec![cell], best: None }),
            }
        }
        for row in &mut rows {
            row.cells.sort_by_key(|cell| order.iter().position(|value| Some(*value) == cell.values.get(&axis.name)));
            row.best = row.cells.iter().rposition(|cell| cell.fits());
        }
        rows
    }

    /// The table as comma-separated values (RFC 4180): a column per axis, then what each cell showed; bytes and seconds.
    pub fn csv(&self) -> String {
        let mut lines = Vec::new();
        let names = self.axes.iter().map(|axis| field(&axis.name));
        let fixed =
            ["verdict", "peak_bytes", "high_bytes", "capacity_bytes", "phase", "exit_status", "elapsed_seconds"];
        lines.push(names.chain(fixed.map(str::to_owned)).collect::<Vec<_>>().join(","));
        for cell in &self.cells {
            let values = self.axes.iter().map(|axis| field(cell.values.get(&axis.name).map_or("", String::as_str)));
            let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            let known = cell.verdict.is_some();
            let rest = [
                word(cell.verdict).or_else(|| word(cell.pending)).unwrap_or_default(),
                number(cell.peak_bytes),
                number(cell.high_bytes),
                number(cell.capacity_bytes),
                word(cell.phase).unwrap_or_default(),
                cell.exit_status.map(|status| status.to_string()).unwrap_or_default(),
                if known { format!("{:.3}", cell.elapsed_seconds) } else { String::new() },
            ];
            lines.push(values.chain(rest).collect::<Vec<_>>().join(","));
        }
        lines.join("\n") + "\n"
    }
}

/// The largest value of an axis that fits, at one combination of the others.
#[derive(Clone, Debug)]
pub struct Largest<'a> {
    /// The values of the other axes.
    pub others: BTreeMap<String, String>,
    /// The cells, ascending along the axis.
    pub cells: Vec<&'a SweepCell>,
    /// The last of them that fits.
    pub best: Option<usize>,
}

/// The values of an axis in ascending order, where they are numbers; else as written.
fn ascending(axis: &SweepAxis) -> Vec<&String> {
    let mut values: Vec<&String> = axis.values.iter().collect();
    if axis.numbers().is_some() {
        let number = |value: &String| value.parse::<f64>().unwrap_or(f64::INFINITY);
        values.sort_by(|one, other| number(one).total_cmp(&number(other)));
    }
    values
}

/// The word that a value has in JSON.
fn word(value: Option<impl Serialize>) -> Option<String> {
    Some(serde_json::to_value(value?).ok()?.as_str()?.to_owned())
}

/// A field of a line of comma-separated values. What a spreadsheet would take for a formula stays text.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SweepReport {
        let axis = |name: &str, values: &[&str]| SweepAxis {
            name: name.into(),
            values: values.iter().map(ToString::to_string).collect(),
        };
        let cell = |index: usize, gpu: &str, batch: &str, verdict| SweepCell {
            index,
            values: [("gpu".to_owned(), gpu.to_owned()), ("batch".to_owned(), batch.to_owned())].into(),
            verdict: Some(verdict),
            peak_bytes: Some(1 << 30),
            ..SweepCell::default()
        };
        SweepReport {
            schema: SweepSchema,
            file: "sweep.yaml".into(),
            axes: vec![axis("gpu", &["t4", "l4"]), axis("batch", &["16", "2"])],
            cells: vec![
                cell(0, "t4", "16", Verdict::Oom),
                cell(1, "t4", "2", Verdict::Fits),
                cell(2, "l4", "16", Verdict::Fits),
                cell(3, "l4", "2", Verdict::Fits),
            ],
            ran: 4,
            known: 0,
            forked: true,
            elapsed_seconds: 1.0,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_largest_is_found_by_number_and_not_by_place() {
        let report = report();
        let largest = report.largest(report.axis("batch").unwrap());
        let of = |gpu: &str| {
            let row = largest.iter().find(|row| row.others["gpu"] == gpu).unwrap();
            row.best.map(|best| row.cells[best].values["batch"].clone())
        };
        assert_eq!((of("t4").as_deref(), of("l4").as_deref()), (Some("2"), Some("16")));
    }

    #[test]
    fn a_table_for_spreadsheets_quotes_what_has_commas() {
        let mut report = report();
        report.cells[0].values.insert("batch".into(), "a,\"b\"".into());
        let csv = report.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(
            lines[0],
            "gpu,batch,verdict,peak_bytes,high_bytes,capacity_bytes,phase,exit_status,elapsed_seconds"
        );
        assert!(lines[1].starts_with("t4,\"a,\"\"b\"\"\",oom,1073741824,"), "{}", lines[1]);
    }

    #[test]
    fn the_document_is_read_back() {
        let report = report();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<SweepReport>(&text).unwrap(), report);
        assert!(serde_json::from_str::<SweepReport>(&text.replace("sweep/1", "sweep/9")).is_err());
    }
}

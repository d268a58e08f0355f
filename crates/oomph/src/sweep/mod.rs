//! `oomph sweep`: runs a matrix of dry runs, here or as a job elsewhere, and shows the results as a table.
//!
//! [`file`] reads the description, [`cells`] expands it, [`perform`] runs what [`store`] does not know yet, and
//! [`write`] makes jobs of Slurm, Kubernetes and Ray, whose tasks run cells and leave their answers in the same folder.
//! oomph itself schedules nothing across machines.

mod cells;
mod file;
mod perform;
mod sources;
mod store;
mod template;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use oomph_report::{
    Pending, SweepAxis, SweepCell, SweepReport, SweepSchema, Verdict, clean, clean_json, picture_axis, render_sweep,
    sweep_picture,
};

use crate::cli::{SweepArgs, SweepFormat};
use crate::failure::{hinted, nearest};
use crate::progress::Progress;
use crate::run_context::RunContext;
use crate::status::{self, interrupted};
use crate::{html, output};

use cells::{Cell, Places, expand, matrix_name};
use file::{COMMITS, SweepFile};
use perform::{Performed, Running};
use store::{Record, Store};

/// Runs, writes or shows a sweep.
///
/// # Errors
/// When the file makes no sense, or something that is needed is missing.
pub fn run(args: &SweepArgs, quiet: bool) -> Result<ExitCode> {
    let start = Instant::now();
    let sweep = Sweep::read(&args.file)?;
    sweep.check(args)?;
    if let Some(job) = &args.job.0 {
        return write::job(&sweep, job, &args.file).map(|()| ExitCode::from(status::DONE));
    }
    for path in [&args.report, &args.picture].into_iter().flatten() {
        output::writable(path)?;
    }
    html::writable(&args.page)?;
    if let Some(numbers) = &args.cell {
        return sweep.run_some(numbers, args, quiet);
    }
    let (report, signal) = sweep.run_all(args, quiet, start)?;
    answer(&report, args)?;
    if let Some(signal) = signal {
        return Ok(interrupted(signal));
    }
    let is_missing = |cell: &SweepCell| cell.verdict.is_none() && cell.pending != Some(Pending::Larger);
    Ok(ExitCode::from(if report.cells.iter().any(is_missing) {
        status::OUT_OF_TIME
    } else if report.cells.iter().any(|cell| cell.verdict == Some(Verdict::Failed)) {
        status::PROGRAM_FAILED
    } else {
        status::DONE
    }))
}

/// A sweep that was read: its file, its cells and its folder.
struct Sweep {
    path: PathBuf,
    /// The folder of the file, as an absolute path.
    folder: PathBuf,
    file: SweepFile,
    cells: Vec<Cell>,
    store: Store,
}

impl Sweep {
    fn read(path: &Path) -> Result<Self> {
        let file = SweepFile::read(path)?;
        let whole = fs::canonicalize(path).with_context(|| format!("cannot read {}", path.display()))?;
        let folder = whole.parent().unwrap_or(Path::new("/")).to_owned();
        let store = Store::of(&whole);
        let mut commits = BTreeMap::new();
        if let Some(axis) = file.axes.iter().find(|axis| axis.name == COMMITS) {
            for typed in &axis.values {
                let name = sources::resolved(&folder, typed)?;
                let place = sources::written_out(&folder, &name, &store.sources())?;
                commits.insert(typed.clone(), (name, place));
            }
        }
        let cells = expand(&file, &Places { folder: &folder, commits: &commits })?;
        Ok(Self { path: whole, folder, file, cells, store })
    }

    /// Whether the options name axes that there are.
    fn check(&self, args: &SweepArgs) -> Result<()> {
        let axes = &self.file.axes;
        for (option, name) in [("--by", &args.by), ("--skip-larger", &args.skip_larger), ("--against", &args.against)] {
            let Some(name) = name else { continue };
            let Some(axis) = axes.iter().find(|axis| axis.name == *name) else {
                let hint = nearest(name, axes.iter().map(|axis| axis.name.as_str()), "see `matrix` in the file");
                return Err(hinted(format!("{option}: there is no axis `{}`", clean(name)), hint));
            };
            if option != "--by" && axis.numbers().is_none() {
                return Err(hinted(
                    format!("{option}: not all values of `{name}` are numbers"),
                    "name an axis of numbers, such as a batch size",
                ));
            }
        }
        if args.picture.is_some() && args.against.is_none() && !axes.iter().any(|axis| axis.numbers().is_some()) {
            return Err(hinted(
                "--picture: no axis of the sweep is one of numbers",
                "a picture needs one to draw along",
            ));
        }
        Ok(())
    }

    /// Runs what is not known and gives the whole table, with the signal that ended it early.
    fn run_all(&self, args: &SweepArgs, quiet: bool, start: Instant) -> Result<(SweepReport, Option<i32>)> {
        let mut records = BTreeMap::new();
        let mut performed = Performed::default();
        let mut ran = BTreeSet::new();
        if args.collect {
            records = self.store.records()?;
            records.extend(self.store.left()?.into_iter().map(|(_, record)| (record.cell.id.clone(), record)));
        } else {
            self.store.make()?;
            let _lock = self.store.lock()?;
            self.store.take_over()?;
            if !args.fresh {
                records = self.known(quiet)?;
            }
            let left = unanswered(self.cells.iter(), &records);
            let progress = Progress::new(quiet);
            let state = Mutex::new((records, ran));
            let locked = || state.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = std::sync::atomic::AtomicUsize::new(0);
            let result = Running {
                jobs: args.jobs,
                quiet,
                begin: &|cell| {
                    let number = begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                    if self.is_larger(cell, args.skip_larger.as_deref(), &locked().0) {
                        return false;
                    }
                    progress.tell(&format!("{number} of {}: {}", left.len(), cell.words(&self.file.axes)));
                    true
                },
                apart: Some(&|cell| {
                    self.run_apart(cell)?;
                    let mut state = locked();
                    let record = self.store.take_over_one(&cell.id)?;
                    state.1.insert(record.cell.id.clone());
                    state.0.insert(record.cell.id.clone(), record);
                    Ok(())
                }),
                done: &|_, record, report| {
                    let mut state = locked();
                    self.store.add(&record, Some(report))?;
                    state.1.insert(record.cell.id.clone());
                    state.0.insert(record.cell.id.clone(), record);
                    Ok(())
                },
            }
            .all(&left);
            progress.finish();
            performed = result?;
            (records, ran) = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        }
        let is_larger = |cell: &Cell| self.is_larger(cell, args.skip_larger.as_deref(), &records);
        let cells: Vec<SweepCell> =
            self.cells.iter().map(|cell| shown(cell, records.get(&cell.id), &is_larger)).collect();
        let answered = cells.iter().filter(|cell| cell.verdict.is_some()).count();
        let report = SweepReport {
            schema: SweepSchema,
            file: html::last_part(&self.path),
            axes: self.file.axes.clone(),
            cells,
            ran: ran.len(),
            known: answered - ran.len().min(answered),
            forked: performed.forked,
            elapsed_seconds: (start.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
            warnings: Vec::new(),
        };
        Ok((report, performed.interrupted))
    }

    /// Runs some cells and leaves their answers, as a task of a job does.
    fn run_some(&self, numbers: &RangeInclusive<usize>, args: &SweepArgs, quiet: bool) -> Result<ExitCode> {
        let name = matrix_name(&self.cells);
        if let Some(expected) = args.matrix.as_ref().filter(|expected| **expected != name) {
            return Err(hinted(
                format!("the matrix is not the one that this job was written for ({expected}, now {name})"),
                "the file, a commit or oomph's version has changed; write the job again with --write",
            ));
        }
        let wanted = chosen(&self.cells, numbers)?;
        self.store.make()?;
        let mut records = BTreeMap::new();
        if !args.fresh {
            records = self.known(quiet)?;
            let left = self.store.left()?.into_iter().map(|(_, record)| (record.cell.id.clone(), record));
            records.extend(
                left.filter(|(id, record)| self.cells.iter().any(|cell| cell.id == *id && still(record, cell))),
            );
        }
        let left = unanswered(wanted.iter(), &records);
        let performed = Running {
            jobs: Some(args.jobs.unwrap_or(1)),
            quiet,
            begin: &|cell| {
                output::tell(&format!("oomph: cell {}: {}", cell.index, cell.words(&self.file.axes)), quiet);
                true
            },
            apart: None,
            done: &|_, record, report| self.store.leave(&record, report),
        }
        .all(&left)?;
        Ok(performed.interrupted.map_or_else(|| ExitCode::from(status::DONE), interrupted))
    }

    /// Runs a cell by an oomph of its own, which leaves the answer.
    fn run_apart(&self, cell: &Cell) -> Result<()> {
        let oomph = std::env::current_exe().context("cannot find oomph itself")?;
        let mut command = Command::new(oomph);
        command.args(["--quiet", "--ends-with-parent", "sweep", "--fresh", "--matrix", &matrix_name(&self.cells)]);
        command.args(["--cell", &cell.index.to_string()]).arg(&self.path).stdin(Stdio::null()).stdout(Stdio::null());
        let output = command.output().context("cannot start oomph")?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let line = stderr.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it said nothing");
        Err(anyhow::anyhow!("cell {} was not run ({}): {}", cell.index, output.status, clean(line)))
    }

    /// The records that still hold: of the same files, in the same environment.
    fn known(&self, quiet: bool) -> Result<BTreeMap<String, Record>> {
        let records = self.store.records()?;
        let mut environments = BTreeMap::new();
        let mut known = BTreeMap::new();
        for cell in &self.cells {
            let Some(record) = records.get(&cell.id).filter(|record| still(record, cell)) else { continue };
            let first = cell.program.command.first().map(|word| word.as_encoded_bytes().to_vec()).unwrap_or_default();
            let place = (first, cell.program.with.clone(), cell.directory.clone());
            // Where the program cannot run, as on a login node, what was said elsewhere holds.
            let here = environments.entry(place).or_insert_with(|| {
                let context = RunContext::new_in(cell.directory.clone(), cell.program.clone(), quiet);
                context.ok().map(|context| context.environment())
            });
            if here.as_ref().is_none_or(|here| *here == record.environment) {
                known.insert(cell.id.clone(), record.clone());
            }
        }
        Ok(known)
    }

    /// Whether a smaller cell along an axis is known to run out of memory.
    fn is_larger(&self, cell: &Cell, axis: Option<&str>, records: &BTreeMap<String, Record>) -> bool {
        let Some(name) = axis else { return false };
        let number = |values: &BTreeMap<String, String>| values.get(name).and_then(|value| value.parse::<f64>().ok());
        let Some(own) = number(&cell.values) else { return false };
        self.cells.iter().any(|other| {
            let same = |(axis, value): (&String, &String)| axis == name || other.values.get(axis) == Some(value);
            number(&other.values).is_some_and(|number| number < own)
                && cell.values.iter().all(same)
                && records.get(&other.id).is_some_and(|record| record.cell.verdict == Some(Verdict::Oom))
        })
    }
}

/// The cells that have no record, each once: two commits may be the same, and two settings may make the same command.
fn unanswered<'a>(cells: impl Iterator<Item = &'a Cell>, records: &BTreeMap<String, Record>) -> Vec<&'a Cell> {
    let mut seen = BTreeSet::new();
    cells.filter(|cell| !records.contains_key(&cell.id) && seen.insert(&cell.id)).collect()
}

/// Whether a record is of the cell's program in its current state.
fn still(record: &Record, cell: &Cell) -> bool {
    sources::are_same(&record.files, &cell.directory)
}

/// A cell of the table.
fn shown(cell: &Cell, record: Option<&Record>, is_larger: &dyn Fn(&Cell) -> bool) -> SweepCell {
    // The matrix may have grown since, so that the place is another.
    let (index, values) = (cell.index, cell.values.clone());
    match record {
        Some(record) => SweepCell { index, values, ..record.cell.clone() },
        None => {
            let pending = Some(if is_larger(cell) { Pending::Larger } else { Pending::Unrun });
            SweepCell { index, values, id: cell.id.clone(), pending, ..SweepCell::default() }
        }
    }
}

/// The cells with these numbers. The last task of a job may have fewer than the others.
fn chosen<'a, T>(cells: &'a [T], numbers: &RangeInclusive<usize>) -> Result<&'a [T]> {
    let end = numbers.end().saturating_add(1).min(cells.len());
    cells.get(*numbers.start()..end).filter(|chosen| !chosen.is_empty()).ok_or_else(|| {
        let (first, last) = (numbers.start(), numbers.end());
        let typed = if first == last { first.to_string() } else { format!("{first}-{last}") };
        hinted(
            format!("--cell `{typed}` names no cells of this sweep"),
            format!("its cells are 0 to {}; write --cell 7 or --cell 0-7", cells.len() - 1),
        )
    })
}

/// Writes the answer to where it was asked for.
fn answer(report: &SweepReport, args: &SweepArgs) -> Result<()> {
    let document = || -> Result<String> {
        let text = serde_json::to_string_pretty(report).context("cannot write the answer as JSON")?;
        Ok(clean_json(&text).into_owned() + "\n")
    };
    let printed = match args.format {
        SweepFormat::Text => output::data(&render_sweep(report, args.by.as_deref(), output::style())),
        SweepFormat::Json => document().and_then(|document| output::data(&document)),
        SweepFormat::Csv => output::data(&report.csv()),
    };
    let keep = |path: &Path, text: String| {
        output::replace(path, |file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    let saved = args.report.as_deref().map_or(Ok(()), |path| keep(path, document()?));
    let across = |name: &str| report.axes.iter().find(|axis: &&SweepAxis| axis.name == name);
    let axis = args.against.as_deref().map_or_else(|| picture_axis(report), across);
    let drawn = match (&args.picture, axis.and_then(|axis| sweep_picture(report, axis))) {
        (Some(path), Some(picture)) => keep(path, picture),
        (Some(_), None) => Err(hinted("the picture has no axis of numbers", "name one with --against AXIS")),
        (None, _) => Ok(()),
    };
    let by = args.by.as_deref();
    let title = format!("oomph sweep: {}", report.file);
    let shown = html::answered(&args.page, title, || html::sweep(report, by));
    printed.and(saved).and(drawn).and(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_chosen_by_number_and_the_last_task_may_have_fewer() {
        let cells = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(chosen(&cells, &(7..=7)).unwrap(), [7]);
        assert_eq!(chosen(&cells, &(4..=11)).unwrap(), [4, 5, 6, 7]);
        assert_eq!(chosen(&cells, &(0..=usize::MAX)).unwrap(), cells);
        for none in [8..=8, 9..=12] {
            assert!(chosen(&cells, &none).is_err(), "{none:?}");
        }
    }
}

//! Scalars for TensorBoard: a run folder for each card and each process.
//!
//! A card's curve is drawn over time: its steps are milliseconds since the watch began. A process that reports optimizer
//! steps has its curves over those.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oomph_report::{Moment, WatchReport, WatchedGpu, WatchedProcess};
use oomph_trace::write::EventWriter;

use crate::failure::hinted;

/// A run's name is cut at this many characters of the host's name: a folder's name has a limit.
const HOST: usize = 64;

/// The event files of a watch.
#[derive(Debug)]
pub struct Board {
    folder: PathBuf,
    host: String,
    began: Option<f64>,
    /// By card and process; the card's own run has no process.
    runs: BTreeMap<(usize, Option<u32>), Run>,
}

/// A run folder.
#[derive(Debug)]
struct Run {
    file: EventWriter<BufWriter<File>>,
    path: PathBuf,
    /// The step that was written last: a process makes none in many looks.
    step: Option<u64>,
}

impl Board {
    /// Makes the folder. Runs follow when there is something to write.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(|error| {
            let shown = folder.display().to_string();
            let message = format!("--tensorboard {}: cannot make this folder: {error}", oomph_report::clean(&shown));
            hinted(message, "name a folder that can be written, for example --tensorboard runs/memory")
        })?;
        Ok(Self { folder: folder.to_owned(), host: plain(&host()), began: None, runs: BTreeMap::new() })
    }

    /// Writes what a look has seen.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn add(&mut self, report: &WatchReport) -> Result<()> {
        let began = *self.began.get_or_insert(report.time);
        let is_there = |(place, pid): &(usize, Option<u32>)| {
            let card = report.cards.iter().find(|card| card.place == *place);
            card.is_some_and(|card| pid.is_none_or(|pid| card.processes.iter().any(|process| process.pid == pid)))
        };
        // The file of a process that has ended is whole, and its number may be another's soon.
        self.runs.retain(|key, _| is_there(key));
        for card in &report.cards {
            self.card(card, report.time, began)?;
            for process in &card.processes {
                self.process(card, process, report.time)?;
            }
        }
        Ok(())
    }

    fn card(&mut self, card: &WatchedGpu, time: f64, began: f64) -> Result<()> {
        let Some(used) = card.used_bytes else { return Ok(()) };
        let run = self.run((card.place, None), time)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time since the watch began")]
        let step = ((time - began).max(0.0) * 1e3) as u64;
        // The clock may have been set back.
        let step = run.step.map_or(step, |last| step.max(last.saturating_add(1)));
        run.write(time, step, &[("memory/used GiB", used)])
    }

    fn process(&mut self, card: &WatchedGpu, process: &WatchedProcess, time: f64) -> Result<()> {
        let Some(framework) = &process.framework else { return Ok(()) };
        if framework.moment != Moment::StepEnd {
            return Ok(());
        }
        let run = self.run((card.place, Some(process.pid)), time)?;
        if run.step == Some(framework.step) {
            return Ok(());
        }
        let mut values = vec![
            ("memory/allocated GiB", framework.allocated_bytes),
            ("memory/reserved GiB", framework.reserved_bytes),
            ("memory/peak allocated GiB", framework.allocated_peak_bytes),
        ];
        values.extend(framework.reserved_peak_bytes.map(|peak| ("memory/peak reserved GiB", peak)));
        run.write(time - framework.age_seconds, framework.step, &values)
    }

    fn run(&mut self, key: (usize, Option<u32>), time: f64) -> Result<&mut Run> {
        use std::collections::btree_map::Entry;
        match self.runs.entry(key) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let process = key.1.map_or_else(String::new, |pid| format!("-pid{pid}"));
                let folder = self.folder.join(format!("{}-gpu{}{process}", self.host, key.0));
                let path = folder.join(format!("events.out.tfevents.{time:.6}.{}.{}", self.host, std::process::id()));
                let file = begin(&folder, &path, time).with_context(|| unwritable(&path))?;
                Ok(place.insert(Run { file, path, step: None }))
            }
        }
    }
}

impl Run {
    fn write(&mut self, time: f64, step: u64, values: &[(&str, u64)]) -> Result<()> {
        let written = values.iter().try_for_each(|(tag, bytes)| self.file.scalar(tag, time, step, gib(*bytes)));
        // TensorBoard follows files as they grow.
        written.and_then(|()| self.file.flush()).with_context(|| unwritable(&self.path))?;
        self.step = Some(step);
        Ok(())
    }
}

fn begin(folder: &Path, path: &Path, time: f64) -> io::Result<EventWriter<BufWriter<File>>> {
    fs::create_dir_all(folder)?;
    // Another watch into the same folder has a file of its own: the name has this process's number.
    EventWriter::new(BufWriter::new(File::create(path)?), time)
}

fn unwritable(path: &Path) -> String {
    format!("cannot write {} (--tensorboard)", oomph_report::clean(&path.display().to_string()))
}

#[expect(clippy::cast_precision_loss, reason = "a size in GiB is a figure to look at")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// The name of this machine.
fn host() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let typed = || ["HOSTNAME", "COMPUTERNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    kernel.or_else(typed).unwrap_or_default()
}

/// A name as a part of a folder's name.
fn plain(name: &str) -> String {
    let plain: String = name
        .trim()
        .chars()
        .take(HOST)
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' })
        .collect();
    // A name of dots would be another folder.
    if plain.trim_matches('.').is_empty() { "host".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use oomph_report::{WatchCost, WatchSchema, WatchedFramework};

    use super::*;

    fn report(time: f64, step: u64, moment: Moment) -> WatchReport {
        let framework = WatchedFramework {
            allocated_bytes: 3 << 30,
            reserved_bytes: 4 << 30,
            allocated_peak_bytes: 7 << 29,
            step,
            moment,
            age_seconds: 0.5,
            ..WatchedFramework::default()
        };
        let process = WatchedProcess { pid: 4711, framework: Some(framework), ..WatchedProcess::default() };
        let other = WatchedProcess { pid: 9, driver_bytes: Some(1), ..WatchedProcess::default() };
        let card = WatchedGpu { used_bytes: Some(5 << 30), processes: vec![other, process], ..WatchedGpu::default() };
        let blind = WatchedGpu { place: 1, memory_reason: Some("WSL2".into()), ..WatchedGpu::default() };
        WatchReport { schema: WatchSchema, time, cards: vec![card, blind], driver: WatchCost::default() }
    }

    /// The messages of a file's records.
    fn records(path: &Path) -> Vec<Vec<u8>> {
        let bytes = fs::read(path).unwrap();
        let (mut rest, mut records) = (&bytes[..], Vec::new());
        while let Some((length, after)) = rest.split_first_chunk::<8>() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
            records.push(after[4..4 + length].to_vec());
            rest = &after[4 + length + 4..];
        }
        assert!(rest.is_empty(), "the last record is whole");
        records
    }

    fn only_file(folder: &Path) -> PathBuf {
        let files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(files[0].file_name().unwrap().to_str().unwrap().contains("tfevents"));
        files[0].clone()
    }

    #[test]
    fn cards_have_curves_over_time_and_processes_over_steps() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = Board::new(&folder.path().join("runs")).unwrap();
        board.host = "node-1".into();
        board.add(&report(100.0, 0, Moment::Start)).unwrap();
        for (time, step) in [(101.0, 1), (101.5, 1), (102.0, 2)] {
            board.add(&report(time, step, Moment::StepEnd)).unwrap();
        }
        let runs = folder.path().join("runs");
        let mut names: Vec<_> = fs::read_dir(&runs).unwrap().map(|run| run.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["node-1-gpu0", "node-1-gpu0-pid4711"], "what has no figures has no run");

        let card = records(&only_file(&runs.join("node-1-gpu0")));
        assert_eq!(card.len(), 1 + 4);
        assert!(card[0].ends_with(b"brain.Event:2"));
        // Fields 1 (moment) and 2 (step, here 2000 ms as a varint) of the last one, and its value.
        let last = card.last().unwrap();
        assert!(last[1..].starts_with(&102.0_f64.to_le_bytes()));
        assert_eq!(last[9..12], [0x10, 0xd0, 0x0f]);
        assert!(last.ends_with(&5_f32.to_le_bytes()));

        let process = records(&only_file(&runs.join("node-1-gpu0-pid4711")));
        assert_eq!(process.len(), 1 + 2 * 3, "a step that was seen twice is written once");
        let last = process.last().unwrap();
        assert!(last[1..].starts_with(&101.5_f64.to_le_bytes()), "the moment of the step's end");
        assert_eq!(last[9..11], [0x10, 2]);
        assert!(last.windows(18).any(|tag| tag == b"memory/peak alloca") && last.ends_with(&3.5_f32.to_le_bytes()));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_repeat_a_step() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = Board::new(folder.path()).unwrap();
        for time in [100.0, 90.0, 90.0] {
            board.add(&report(time, 0, Moment::Start)).unwrap();
        }
        assert_eq!(board.runs[&(0, None)].step, Some(2));
        board.add(&WatchReport { cards: vec![], ..report(101.0, 0, Moment::Start) }).unwrap();
        assert!(board.runs.is_empty());
    }

    #[test]
    fn folders_have_plain_names_and_reasons() {
        let names = ["a b/c\n", "..", "", "gpu-01.example_x"].map(plain);
        assert_eq!(names, ["a_b_c", "host", "host", "gpu-01.example_x"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Board::new(&file.path().join("runs")).unwrap_err().to_string();
        assert!(error.starts_with("--tensorboard ") && error.contains("cannot make this folder"), "{error}");
    }
}

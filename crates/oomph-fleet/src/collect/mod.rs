//! Collects files: finds them, reads them with as many workers as there are cores, gathers the rows, and commits them
//! batch by batch.
//!
//! Memory is bounded: a file of more than some MiB is read as a stream, a tar file and an object store file by file,
//! snapshots up to a limit; and rows are written out when they have gathered to [`Options::batch_bytes`].

mod batch;
mod dataset;
mod sources;

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

pub use batch::Step;
pub use dataset::{Dataset, is_url, store_of};

use crate::input::{Id, Item};
use crate::read::{Kind, Reading, bad, read};
use batch::{Batch, Collected};

/// How files are collected.
#[derive(Clone, Debug)]
pub struct Options {
    /// Files, folders, patterns, tar files, and `s3://BUCKET/PREFIX`.
    pub sources: Vec<String>,
    /// How files are read.
    pub reading: Reading,
    /// How many files are read at a time.
    pub workers: usize,
    /// Rows are written out when they have gathered to about so many bytes.
    pub batch_bytes: usize,
    /// Or when they are of so many files.
    pub batch_files: usize,
    /// Or after so long, so that little is lost when the collect is killed.
    pub batch_time: Duration,
}

/// What a collect did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// `oomph.collect/1`.
    pub schema: &'static str,
    /// Where the dataset is.
    pub dataset: String,
    /// Files that were read and are in the dataset now.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, logs.
    pub logs: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Reports of dry runs.
    pub reports: u64,
    /// Journals.
    pub journals: u64,
    /// Files whose content had been collected before.
    pub known: u64,
    /// Files that could not be read, which are in `bad_files` with the reason.
    pub bad: u64,
    /// Rows that were written.
    pub rows: u64,
    /// Batches of an earlier collect, which was killed, that were completed.
    pub completed_batches: u64,
    /// Wall time in seconds.
    pub seconds: f64,
}

/// What the workers share.
struct Shared<'a> {
    options: &'a Options,
    dataset: &'a Dataset,
    /// Contents that are in the dataset, or on their way.
    seen: Mutex<HashSet<Id>>,
    /// Files that were collected, by name, size and time.
    unchanged: HashSet<Id>,
    batch: Mutex<(Batch, Instant)>,
    summary: Mutex<Summary>,
    /// A batch could not be written: go no further.
    failed: AtomicBool,
    /// Why, where it was not a worker's own.
    failure: Mutex<Option<anyhow::Error>>,
    done: AtomicU64,
    done_bytes: AtomicU64,
}

/// Progress of a collect: files and bytes that are done.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Collects files into a dataset.
///
/// # Errors
/// When a source does not exist, or the dataset cannot be read or written. A file that cannot be read is not an error:
/// it gets a row in `bad_files`.
pub fn collect(dataset: &Dataset, options: &Options, progress: Progress) -> Result<Summary> {
    let started = Instant::now();
    let _lock = dataset.lock()?;
    let completed_batches = batch::recover(dataset)?;
    let Collected { contents, names } = batch::collected(dataset)?;
    batch::write_gpus(dataset)?;
    let shared = Shared {
        options,
        dataset,
        seen: Mutex::new(contents),
        unchanged: names,
        batch: Mutex::new((Batch::default(), Instant::now())),
        summary: Mutex::new(Summary {
            schema: "oomph.collect/1",
            dataset: dataset.name().to_owned(),
            completed_batches,
            ..Summary::default()
        }),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        done: AtomicU64::new(0),
        done_bytes: AtomicU64::new(0),
    };
    let (sender, receiver) = sync_channel::<Item>(options.workers * 2);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> =
            (0..options.workers).map(|_| scope.spawn(|| work(&shared, &receiver, progress))).collect();
        let listed = list(&shared, sender);
        let mut result = listed;
        for worker in workers {
            let worked = worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker of the collect ended")));
            result = result.and(worked);
        }
        result
    })?;
    if let Ok(Some(error)) = shared.failure.into_inner() {
        return Err(error);
    }
    let (batch, _) = shared.batch.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let rows = batch::commit(dataset, batch, &|_| true)?;
    let mut summary = shared.summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    summary.rows += rows;
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(summary)
}

/// Finds the files and hands them to the workers.
fn list(shared: &Shared, sender: SyncSender<Item>) -> Result<()> {
    for source in &shared.options.sources {
        let each = &mut |item: Item| {
            if shared.failed.load(Ordering::Relaxed) {
                return false;
            }
            // What a name, a size and a time say is enough not to read a file again that lies where it lay.
            if shared.unchanged.contains(&name_of(&item)) {
                count(shared, |summary| summary.known += 1);
                return true;
            }
            sender.send(item).is_ok()
        };
        let unreadable = &mut |item: &Item, reason: String| refuse(shared, item, Kind::Unknown, reason);
        sources::walk(source, shared.dataset, each, unreadable).with_context(|| format!("cannot collect {source}"))?;
    }
    Ok(())
}

/// What a file is known by before it is read.
fn name_of(item: &Item) -> Id {
    Id::of(format!("{}\0{}\0{}", item.path, item.size, item.modified_us).as_bytes())
}

/// Reads files until there are no more. After a failure what is still handed out is dropped: the lister must not wait
/// forever.
fn work(shared: &Shared, receiver: &Mutex<Receiver<Item>>, progress: Progress) -> Result<()> {
    let mut result = Ok(());
    loop {
        let item = match receiver.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => return result,
        };
        let Ok(item) = item else { return result };
        if shared.failed.load(Ordering::Relaxed) {
            continue;
        }
        match one(shared, item) {
            Ok(()) => progress(shared.done.load(Ordering::Relaxed), shared.done_bytes.load(Ordering::Relaxed)),
            Err(error) => {
                shared.failed.store(true, Ordering::Relaxed);
                result = Err(error);
            }
        }
    }
}

/// Reads one file.
fn one(shared: &Shared, mut item: Item) -> Result<()> {
    shared.done.fetch_add(1, Ordering::Relaxed);
    shared.done_bytes.fetch_add(item.size, Ordering::Relaxed);
    let id = match item.body.load().and_then(|()| item.body.id()) {
        Ok(id) => id,
        Err(error) => {
            refuse(shared, &item, Kind::Unknown, format!("cannot read it: {error}"));
            return Ok(());
        }
    };
    // Claimed before it is read: the same content in another file is not read a second time.
    if !claim(shared, id) {
        count(shared, |summary| summary.known += 1);
        return Ok(());
    }
    let seen = |part: Id| shared.seen.lock().is_ok_and(|seen| seen.contains(&part));
    let outcome = read(&item, id, &shared.options.reading, &seen);
    count(shared, |summary| {
        if outcome.good {
            summary.files += 1;
            summary.bytes += item.size;
            match outcome.kind {
                Kind::Log => summary.logs += 1,
                Kind::Snapshot => summary.snapshots += 1,
                Kind::DryRun => summary.reports += 1,
                Kind::Journal => summary.journals += 1,
                Kind::Names | Kind::Unknown => {}
            }
        } else {
            summary.bad += 1;
        }
    });
    let parts: Vec<Id> = outcome.parts.iter().copied().filter(|part| claim(shared, *part)).collect();
    let contents = if outcome.open { parts } else { [id].into_iter().chain(parts).collect() };
    let name = (!outcome.open).then(|| name_of(&item));
    add(shared, |batch| batch.add(outcome.found, contents, name))
}

/// Adds to the batch, and writes it out where it is large or old.
fn add(shared: &Shared, to: impl FnOnce(&mut Batch)) -> Result<()> {
    let full = {
        let Ok(mut guard) = shared.batch.lock() else { return Ok(()) };
        let (batch, since) = &mut *guard;
        to(batch);
        let options = shared.options;
        let small = batch.bytes() < options.batch_bytes && batch.contents.len() < options.batch_files;
        if small && since.elapsed() < options.batch_time {
            return Ok(());
        }
        *since = Instant::now();
        std::mem::take(batch)
    };
    let rows = batch::commit(shared.dataset, full, &|_| true)?;
    count(shared, |summary| summary.rows += rows);
    Ok(())
}

/// Writes down a file that cannot be opened. There is no content to know it by, so its name, size and time identify it.
fn refuse(shared: &Shared, item: &Item, kind: Kind, reason: String) {
    let id = Id::of(format!("{}\0{}\0{}\0{reason}", item.path, item.size, item.modified_us).as_bytes());
    if claim(shared, id) {
        count(shared, |summary| summary.bad += 1);
        let found = bad(item, id, kind, reason);
        if let Err(error) = add(shared, |batch| batch.add(found, vec![id], None)) {
            shared.failed.store(true, Ordering::Relaxed);
            if let Ok(mut failure) = shared.failure.lock() {
                failure.get_or_insert(error);
            }
        }
    }
}

/// Whether a content is new; it is taken from now on.
fn claim(shared: &Shared, id: Id) -> bool {
    shared.seen.lock().is_ok_and(|mut seen| seen.insert(id))
}

fn count(shared: &Shared, change: impl FnOnce(&mut Summary)) {
    if let Ok(mut summary) = shared.summary.lock() {
        change(&mut summary);
    }
}

impl Batch {
    fn bytes(&self) -> usize {
        self.gathered.bytes() + self.contents.len() * 64
    }

    fn add(&mut self, found: crate::found::Found, contents: Vec<Id>, name: Option<Id>) {
        self.gathered.add(found);
        self.contents.extend(contents);
        self.names.extend(name);
    }
}

//! Commits a batch of rows to a dataset whole or not at all, wherever the collect is killed.
//!
//! 1. Its parts are written under `_staging/BATCH/`, where no reader looks.
//! 2. Its manifest is written to `_collected/BATCH.json`, in one step: with it the batch is in the dataset. It names the
//!    contents that the batch holds and, for every part, the place that it belongs in.
//! 3. The parts are moved to their places, `TABLE/v=1/day=DAY/part-BATCH.parquet`.
//!
//! Killed before 2, the batch is not there: the next collect removes what was staged and reads the files again. Killed
//! after 2, it is there, though readers do not see all of it yet: the next collect moves the rest before it does anything
//! else. The names follow from the contents, so that moving twice is moving once, and a reader of `TABLE/` never sees a part
//! without a manifest.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::{WriterProperties, WriterVersion};
use oomph_gpu::Catalogue;
use serde::{Deserialize, Serialize};

use super::Dataset;
use crate::found::{Columns, Day, Gathered, figure, word};
use crate::input::Id;
use crate::schema::{Cell, GPUS, Table, VERSION};

/// Where parts wait.
const STAGING: &str = "_staging";
/// Where manifests are.
const MANIFESTS: &str = "_collected";
/// The version of manifests.
const SCHEMA: &str = "oomph.batch/1";
/// Rows of a row group: a reader that wants one day or one column reads no more than it must.
const ROW_GROUP: usize = 128 << 10;

/// Rows, and the contents that they are of.
#[derive(Default)]
pub struct Batch {
    /// The rows.
    pub gathered: Gathered,
    /// The hashes of the contents.
    pub contents: Vec<Id>,
    /// The names, sizes and times of the files, hashed.
    pub names: Vec<Id>,
}

/// A step of a commit, after which it may be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A part was staged.
    Staged(usize),
    /// The manifest was written.
    Listed,
    /// A part was moved.
    Moved(usize),
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    schema: String,
    batch: String,
    made_at: String,
    parts: Vec<Part>,
    contents: Vec<String>,
    names: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Part {
    /// Where it waits.
    staged: String,
    /// Where it belongs.
    path: String,
    rows: u64,
    bytes: u64,
}

/// What a dataset holds.
#[derive(Default)]
pub struct Collected {
    /// The hashes of the contents.
    pub contents: HashSet<Id>,
    /// The names, sizes and times of files, hashed.
    pub names: HashSet<Id>,
}

/// Brings a batch into the dataset, and returns how many rows it has. `go_on` is asked after each step; a test says no.
///
/// # Errors
/// When the dataset cannot be written.
pub fn commit(dataset: &Dataset, batch: Batch, go_on: &dyn Fn(Step) -> bool) -> Result<u64> {
    if batch.contents.is_empty() {
        return Ok(0);
    }
    let mut contents = batch.contents;
    contents.sort_unstable();
    let texts: Vec<String> = contents.iter().map(Id::to_string).collect();
    let name = Id::of(texts.concat().as_bytes()).to_string()[..16].to_owned();
    let mut parts = Vec::new();
    for (table, day, columns) in batch.gathered.into_parts() {
        let part = stage(dataset, &name, table, day, columns)?;
        parts.push(part);
        if !go_on(Step::Staged(parts.len())) {
            anyhow::bail!("stopped after a part was staged");
        }
    }
    let rows = parts.iter().map(|part| part.rows).sum();
    let manifest = Manifest {
        schema: SCHEMA.to_owned(),
        batch: name.clone(),
        made_at: Utc::now().to_rfc3339(),
        parts,
        contents: texts,
        names: batch.names.iter().map(Id::to_string).collect(),
    };
    dataset.put(&format!("{MANIFESTS}/{name}.json"), serde_json::to_vec(&manifest)?)?;
    if !go_on(Step::Listed) {
        anyhow::bail!("stopped after the manifest was written");
    }
    publish(dataset, &manifest, go_on)?;
    Ok(rows)
}

fn stage(dataset: &Dataset, batch: &str, table: &Table, day: Day, columns: Columns) -> Result<Part> {
    let rows = columns.finish().with_context(|| format!("cannot gather the rows of {}", table.name))?;
    let bytes = encoded(&rows)?;
    let date = date(day);
    let part = Part {
        staged: format!("{STAGING}/{batch}/{}-{date}.parquet", table.name),
        path: format!("{}/v={VERSION}/day={date}/part-{batch}.parquet", table.name),
        rows: rows.num_rows() as u64,
        bytes: bytes.len() as u64,
    };
    dataset.put(&part.staged, bytes)?;
    Ok(part)
}

/// Moves the parts of a batch to their places.
fn publish(dataset: &Dataset, manifest: &Manifest, go_on: &dyn Fn(Step) -> bool) -> Result<()> {
    for (index, part) in manifest.parts.iter().enumerate() {
        dataset.rename(&part.staged, &part.path)?;
        if !go_on(Step::Moved(index)) {
            anyhow::bail!("stopped after a part was moved");
        }
    }
    dataset.clear(&format!("{STAGING}/{}", manifest.batch));
    Ok(())
}

/// Completes the batches that a killed collect left listed, removes what it left staged, and returns how many it
/// completed.
///
/// # Errors
/// When the dataset cannot be read or written.
pub fn recover(dataset: &Dataset) -> Result<u64> {
    let mut batches: BTreeMap<String, Vec<(String, DateTime<Utc>)>> = BTreeMap::new();
    for (path, modified) in dataset.list(STAGING)? {
        let batch = path.split('/').nth(1).unwrap_or_default().to_owned();
        batches.entry(batch).or_default().push((path, modified));
    }
    let mut completed = 0;
    for (batch, staged) in batches {
        if let Some(text) = dataset.get(&format!("{MANIFESTS}/{batch}.json"))? {
            let mut manifest = parsed(&text, &batch)?;
            let waiting: HashSet<&str> = staged.iter().map(|(path, _)| path.as_str()).collect();
            manifest.parts.retain(|part| waiting.contains(part.staged.as_str()));
            publish(dataset, &manifest, &|_| true)?;
            completed += 1;
        } else {
            for (path, modified) in &staged {
                // Where no lock keeps others out, a fresh part may be that of a collect which is at work.
                if dataset.is_locked() || Utc::now() - modified > chrono::TimeDelta::minutes(15) {
                    dataset.delete(path)?;
                }
            }
        }
    }
    dataset.clear(STAGING);
    Ok(completed)
}

/// What the manifests say is in a dataset.
///
/// # Errors
/// When one cannot be read.
pub fn collected(dataset: &Dataset) -> Result<Collected> {
    let mut all = Collected::default();
    for (path, _) in dataset.list(MANIFESTS)? {
        let Some(text) = dataset.get(&path)? else { continue };
        let manifest = parsed(&text, &path)?;
        all.contents.extend(manifest.contents.iter().filter_map(|id| Id::parse(id)));
        all.names.extend(manifest.names.iter().filter_map(|id| Id::parse(id)));
    }
    Ok(all)
}

fn parsed(text: &[u8], name: &str) -> Result<Manifest> {
    let manifest: Manifest = serde_json::from_slice(text).with_context(|| {
        format!("the manifest of batch {name} cannot be read; remove it to collect its files again")
    })?;
    anyhow::ensure!(
        manifest.schema == SCHEMA,
        "the manifest of batch {name} is of version {:?}, and this program reads {SCHEMA:?}; use a newer oomph-fleet",
        manifest.schema
    );
    Ok(manifest)
}

/// Writes the table of the cards.
///
/// # Errors
/// When the dataset cannot be written.
pub fn write_gpus(dataset: &Dataset) -> Result<()> {
    let mut columns = Columns::new(&GPUS);
    for gpu in Catalogue::builtin().iter() {
        columns.push(vec![
            Cell::Text(Some(gpu.id.clone())),
            Cell::Text(Some(gpu.name.clone())),
            Cell::Text(word(&gpu.kind)),
            Cell::Int(Some(i64::from(gpu.memory_gb))),
            Cell::Int(figure(gpu.capacity_bytes)),
            Cell::Int(figure(gpu.context.expected_bytes)),
        ]);
    }
    let bytes = encoded(&columns.finish().context("cannot gather the catalogue")?)?;
    let path = format!("{}/v={VERSION}/catalogue.parquet", GPUS.name);
    // Written only where it changes: this file alone is not staged, and a collect that is killed must leave no half of it.
    if dataset.get(&path)?.is_some_and(|there| there == bytes) { Ok(()) } else { dataset.put(&path, bytes) }
}

/// Rows as Parquet: every column as a dictionary while that is smaller, then zstd.
fn encoded(rows: &RecordBatch) -> Result<Vec<u8>> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_created_by(format!("oomph-fleet {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties))?;
    writer.write(rows)?;
    writer.close()?;
    Ok(bytes)
}

/// A day as folders name it.
fn date(day: Day) -> String {
    DateTime::from_timestamp(i64::from(day) * 86_400, 0)
        .map_or_else(|| "1970-01-01".to_owned(), |time| time.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found::Found;
    use crate::schema::{Fact, File};

    fn batch(number: u32) -> Batch {
        let mut found = Found::default();
        for day in 0..3 {
            found.push(day, Fact { id: Some(format!("{number}-{day}")), ..Fact::default() });
        }
        found.push(0, File { file_id: Some(number.to_string()), ..File::default() });
        let mut gathered = Gathered::default();
        gathered.add(found);
        Batch { gathered, contents: vec![Id(u128::from(number))], names: vec![Id(u128::from(number) + 1000)] }
    }

    /// The files that readers see.
    fn visible(dataset: &Dataset) -> Vec<String> {
        let mut paths: Vec<String> = dataset.list("").unwrap().into_iter().map(|(path, _)| path).collect();
        paths.retain(|path| !path.starts_with('_'));
        paths.sort();
        paths
    }

    #[test]
    fn killed_after_any_step_a_batch_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let whole = Dataset::open(folder.path().join("whole").to_str().unwrap()).unwrap();
        commit(&whole, batch(1), &|_| true).unwrap();
        let expected = visible(&whole);
        assert_eq!(expected.len(), 4, "{expected:?}");
        assert!(whole.list(STAGING).unwrap().is_empty());

        let steps: Vec<Step> = (1..=4).map(Step::Staged).chain([Step::Listed]).chain((0..4).map(Step::Moved)).collect();
        for (index, step) in steps.iter().enumerate() {
            let dataset = Dataset::open(folder.path().join(index.to_string()).to_str().unwrap()).unwrap();
            let lock = dataset.lock().unwrap();
            assert!(commit(&dataset, batch(1), &|reached| reached != *step).is_err(), "{step:?}");
            drop(lock);
            // A reader sees only what belongs there, at any moment.
            assert!(visible(&dataset).iter().all(|path| expected.contains(path)), "{step:?}");

            let _lock = dataset.lock().unwrap();
            recover(&dataset).unwrap();
            let collected = collected(&dataset).unwrap();
            let listed = !matches!(step, Step::Staged(_));
            assert_eq!(collected.contents.contains(&Id(1)), listed, "{step:?}");
            assert_eq!(collected.names.contains(&Id(1001)), listed, "{step:?}");
            assert_eq!(visible(&dataset), if listed { expected.clone() } else { Vec::new() }, "{step:?}");
            assert!(dataset.list(STAGING).unwrap().is_empty(), "{step:?}");
            if !listed {
                commit(&dataset, batch(1), &|_| true).unwrap();
                assert_eq!(visible(&dataset), expected);
            }
            // Once more changes nothing.
            assert_eq!(recover(&dataset).unwrap(), 0);
            assert_eq!(visible(&dataset), expected);
        }
    }

    #[test]
    fn a_damaged_manifest_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
        dataset.put("_collected/abc.json", b"{".to_vec()).unwrap();
        let error = collected(&dataset).err().unwrap();
        assert!(format!("{error:#}").contains("_collected/abc.json"), "{error:#}");
    }

    #[test]
    fn a_day_is_named_by_its_date() {
        assert_eq!(date(20_777), "2026-11-20");
    }
}

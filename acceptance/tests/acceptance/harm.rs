//! A dry run changes nothing: `acceptance/programs/harm.py` changes files in every way that it knows, and none of it is
//! seen from outside, while the program itself sees all of it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::run::{Run, TORCH_2_15, tree};

/// More files and folders than the program has ways.
const PLACES: usize = 120;

/// Fewer ways than this would show little. All work here but those whose tools are missing.
const FEWEST_WAYS: usize = 80;

/// The ways of making a private view: as this user makes it, and as one does who may not mount.
const FLOORS: [(&str, &str); 2] = [("as-this-user", ""), ("in-a-user-namespace", "user")];

/// One trial for each.
pub fn trials() -> Vec<Trial> {
    FLOORS
        .iter()
        .map(|(name, floor)| {
            let test = move || nothing_is_changed(floor).map_err(|error| Failed::from(format!("{error:#}")));
            Trial::test(format!("harm::nothing-is-changed-{name}"), test)
        })
        .collect()
}

fn nothing_is_changed(floor: &str) -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.env("OOMPH_PRIVATE_VIEW", floor).args(["--no-probe"]);
    let folder = run.folder().to_owned();
    for place in 0..PLACES {
        fs::write(folder.join(format!("f-{place}")), "as it was before\n")?;
        fs::create_dir(folder.join(format!("d-{place}")))?;
        fs::write(folder.join(format!("d-{place}/inner")), "inner\n")?;
    }
    let name = folder.file_name().context("the folder has a name")?.to_string_lossy().into_owned();
    let in_memory = PathBuf::from(format!("/dev/shm/{name}-of-harm"));
    let before = checked(&folder)?;
    let path = folder.to_string_lossy().into_owned();
    let mut run = run.program(&["harm.py", &path]);
    let finished = run.finish()?;
    let report = finished.report()?;
    let by = report["writes"]["kept_away_by"].as_str().unwrap_or_default();
    if by == "hook" {
        eprintln!("harm: passed over, because the kernel gives no private view: {}", report["writes"]["reason"]);
        return Ok(());
    }
    finished.ensure(floor != "user" || by == "user-namespace", format!("kept away by {by}"))?;

    let told: Value = serde_json::from_str(&finished.printed("harm")?)?;
    let ways = told["took_effect"].as_array().context("the ways are a list")?;
    finished.ensure(ways.len() >= FEWEST_WAYS, format!("only {} ways took effect: {}", ways.len(), told["failed"]))?;
    eprintln!("harm: {} of {} ways took effect in a private view ({by})", ways.len(), told["ways"]);

    let after = checked(&folder)?;
    let different: Vec<_> = before.iter().filter(|entry| !after.contains(entry)).map(|entry| &entry.path).collect();
    let new: Vec<_> = after.iter().filter(|entry| !before.contains(entry)).map(|entry| &entry.path).collect();
    finished.ensure(before == after, format!("changed: {different:?}; new: {new:?}"))?;
    ensure!(!in_memory.exists(), "{} was left", in_memory.display());

    // What was written is said, each file once, and what was removed is said to be.
    let files = report["writes"]["files"].as_array().context("the files are a list")?;
    let of = |name: &str| {
        let path = folder.join(name).to_string_lossy().into_owned();
        files.iter().filter(|file| file["path"] == path.as_str()).collect::<Vec<_>>()
    };
    let (first, removed) = (of("f-0"), of("f-17"));
    finished.ensure(first.len() == 1 && first[0]["bytes"] == 8, format!("f-0 is told as {first:?}"))?;
    finished.ensure(removed.len() == 1 && removed[0]["bytes"].is_null(), format!("f-17 is told as {removed:?}"))
}

/// What can be seen of a file or a folder from outside.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    path: PathBuf,
    content: Vec<u8>,
    mode: u32,
    modified: (i64, i64),
    links: u64,
}

fn checked(folder: &Path) -> Result<Vec<Entry>> {
    let entry = |(path, content): (PathBuf, Vec<u8>)| -> Result<Entry> {
        let info = path.symlink_metadata()?;
        let modified = (info.mtime(), info.mtime_nsec());
        Ok(Entry { content, mode: info.mode(), modified, links: info.nlink(), path })
    };
    tree(folder)?.into_iter().map(entry).collect()
}

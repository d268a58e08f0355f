//! The models against PyTorch and TensorFlow themselves: recordings of their allocators, driven at random on the virtual
//! GPU.
//!
//! `recordings/` and `bfc_recordings/` hold a few; `driver.py` and `bfc_driver.py` make more, and
//! `OOMPH_ORACLE_RECORDINGS` names a folder of those of PyTorch.

mod bfc_recording;
mod recording;
mod what_if;

use std::path::{Path, PathBuf};

fn recordings(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

fn compare(files: &[PathBuf]) {
    let mut differences = Vec::new();
    let mut sum = recording::Compared::default();
    for file in files {
        match recording::compare(&std::fs::read_to_string(file).unwrap()) {
            Ok(compared) => {
                sum.operations += compared.operations;
                sum.events += compared.events;
                sum.allocations += compared.allocations;
                sum.blocks += compared.blocks;
                sum.retries += compared.retries;
                sum.ooms += compared.ooms;
            }
            Err(difference) => differences.push(format!("{}: {difference}", file.display())),
        }
    }
    println!("{} recordings: {sum:?}", files.len() - differences.len());
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn the_model_does_what_pytorch_did() {
    let files = recordings(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/recordings"));
    assert!(!files.is_empty());
    compare(&files);
}

#[test]
fn the_model_does_what_tensorflow_did() {
    let files = recordings(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/bfc_recordings"));
    assert!(!files.is_empty());
    let mut sum = bfc_recording::Compared::default();
    for file in &files {
        let compared = bfc_recording::compare(&std::fs::read_to_string(file).unwrap());
        let compared = compared.unwrap_or_else(|difference| panic!("{}: {difference}", file.display()));
        sum.allocations += compared.allocations;
        sum.frees += compared.frees;
        sum.regions += compared.regions;
        sum.released += compared.released;
        sum.refused += compared.refused;
    }
    println!("{} recordings: {sum:?}", files.len());
    // The paths that differ between the settings have all been taken.
    assert!(sum.refused > 0 && sum.released > 0 && sum.regions > files.len(), "{sum:?}");
}

#[test]
fn the_model_does_what_pytorch_did_in_other_recordings() {
    match std::env::var_os("OOMPH_ORACLE_RECORDINGS") {
        Some(folder) => compare(&recordings(Path::new(&folder))),
        None => eprintln!("skipped: OOMPH_ORACLE_RECORDINGS names no folder of recordings"),
    }
}

/// `NAME.pickle` is a snapshot of a run, and `NAME-*.jsonl` are runs of the same requests with other settings.
#[test]
fn what_if_is_what_happens() {
    let Some(folder) = std::env::var_os("OOMPH_ORACLE_WHAT_IF") else {
        eprintln!("skipped: OOMPH_ORACLE_WHAT_IF names no folder of snapshots and recordings");
        return;
    };
    let mut differences = Vec::new();
    for file in recordings(Path::new(&folder)) {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let snapshot = file.with_file_name(format!("{}.pickle", name.split('-').next().unwrap_or_default()));
        let trace = oomph_trace::read(&snapshot, &oomph_trace::ReadOptions::default()).unwrap();
        match what_if::what_if(&trace, &std::fs::read_to_string(&file).unwrap()) {
            Ok((conf, recorded, replayed)) => {
                println!("{name} {conf:?}: {recorded} reserved, replayed {replayed}");
                if recorded != replayed {
                    differences.push(name);
                }
            }
            Err(difference) => differences.push(format!("{name}: {difference}")),
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Snapshots that PyTorch wrote at the end of a run, in a folder that `OOMPH_ORACLE_SNAPSHOTS` names.
#[test]
fn snapshots_of_pytorch_are_verified() {
    let Some(folder) = std::env::var_os("OOMPH_ORACLE_SNAPSHOTS") else {
        eprintln!("skipped: OOMPH_ORACLE_SNAPSHOTS names no folder of snapshots");
        return;
    };
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "pickle") {
            continue;
        }
        let trace = oomph_trace::read(&path, &oomph_trace::ReadOptions::default()).unwrap();
        for device in &trace.devices {
            let found = oomph_allocator::verify(&trace, device);
            println!("{}: {found:?}", path.display());
            if !found.is_exact() {
                wrong.push(format!("{}: {found:#?}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

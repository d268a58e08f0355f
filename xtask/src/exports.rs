//! `cargo run -p xtask -- exports`: lists the names that a program would miss.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use crate::table::LIBRARIES;
use crate::{elf, library, table};

/// Runs the check; an error if anything is missing.
pub fn run(vgpu: &Path, site_packages: &[PathBuf], api: &Path) -> Result<()> {
    let exported = elf::symbols(vgpu)?.functions;
    let mut declared = BTreeSet::new();
    for name in LIBRARIES {
        let path = api.join(format!("{name}.api"));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = table::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        declared.extend(lines.into_iter().map(|line| line.name));
    }
    let mut gaps: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for root in site_packages {
        check_root(root, &exported, &declared, &mut gaps)?;
    }
    for name in declared.difference(&exported) {
        gaps.entry(format!("declared, not exported by {}", vgpu.display())).or_default().insert(name.clone());
    }
    for (place, names) in &gaps {
        println!("{place}: {}", names.len());
        for name in names {
            println!("    {name}");
        }
    }
    if gaps.is_empty() {
        println!("nothing is missing: {} exported functions", exported.len());
        return Ok(());
    }
    bail!("{} names are missing", gaps.values().map(BTreeSet::len).sum::<usize>())
}

fn check_root(
    root: &Path,
    exported: &BTreeSet<String>,
    declared: &BTreeSet<String>,
    gaps: &mut BTreeMap<String, BTreeSet<String>>,
) -> Result<()> {
    let mut replaced = BTreeSet::new();
    let mut users = Vec::new();
    for path in elf::shared_objects(root) {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A file that ends in .so need not be one: some packages ship linker scripts and stubs.
        let Ok(symbols) = elf::symbols(&path) else { continue };
        if let Some(library) = library::of_file(&file_name) {
            for name in &symbols.functions {
                if library::is_public(library, name) && !declared.contains(name) {
                    gaps.entry(format!("{} exports, not in {}.api", path.display(), library.name))
                        .or_default()
                        .insert(name.clone());
                }
            }
            replaced.extend(symbols.functions.into_iter().filter(|name| !library::is_cxx_runtime(name)));
        } else {
            users.push((path, symbols));
        }
    }
    for (path, symbols) in users {
        // The libraries that stay real (NVRTC, nvJitLink, cuDNN's parts) are users like any other program.
        let wanted = symbols.undefined.iter().filter(|name| {
            let ours = replaced.contains(*name) || matches!(library::owner(name), Some("driver" | "nvml"));
            ours && !exported.contains(*name)
        });
        let missing: BTreeSet<String> = wanted.cloned().collect();
        if !missing.is_empty() {
            gaps.entry(format!("{} imports", path.display())).or_default().extend(missing);
        }
    }
    Ok(())
}

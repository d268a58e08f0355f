//! Reads what shared objects export and import.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

/// The dynamic symbols of one shared object.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Functions that it defines.
    pub functions: BTreeSet<String>,
    /// Everything that it defines, data too.
    pub defined: BTreeSet<String>,
    /// Names that it wants from others; weak ones may stay unresolved and are left out.
    pub undefined: BTreeSet<String>,
}

/// Reads the dynamic symbols of `path`.
pub fn symbols(path: &Path) -> Result<Symbols> {
    let open = || format!("cannot read {}", path.display());
    // Libraries of a gigabyte are read by the page, not as a whole.
    let cache = ReadCache::new(File::open(path).with_context(open)?);
    let file = object::File::parse(&cache).with_context(open)?;
    let mut symbols = Symbols::default();
    for symbol in file.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        if name.is_empty() {
            continue;
        }
        if symbol.is_undefined() {
            if !symbol.is_weak() {
                symbols.undefined.insert(name.to_owned());
            }
        } else if symbol.is_global() || symbol.is_weak() {
            symbols.defined.insert(name.to_owned());
            if symbol.kind() == SymbolKind::Text {
                symbols.functions.insert(name.to_owned());
            }
        }
    }
    Ok(symbols)
}

/// Every shared object under `root`, sorted; links are not followed, so that no library is read twice.
pub fn shared_objects(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".so") || name.contains(".so.") {
                    found.push(path);
                }
            }
        }
    }
    found.sort();
    found
}

//! Finds which exported symbol `cuGetProcAddress` must answer with, by CUDA version.
//!
//! `cudaTypedefs.h` names a function type for every version of every driver function (`PFN_cuMemAlloc_v3020`), but
//! not the symbol (`cuMemAlloc_v2`). Both lists grow in the same order, so they are paired from the newest backwards,
//! and the parameters are compared to be sure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Result;

use crate::header;
use crate::preprocess::HeaderSet;
use crate::{library, table};

/// The headers with the function types of the driver.
const HEADERS: &[&str] =
    &["cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h", "cudaProfilerTypedefs.h"];

/// Versions by base name.
#[derive(Debug, Default)]
pub struct Versions {
    bases: BTreeMap<String, Vec<u32>>,
    /// What the headers of a CUDA version take for a base name: (version, base, symbol).
    defines: Vec<(u32, String, String)>,
}

impl Versions {
    /// Adds what one set of headers knows.
    pub fn read(&mut self, set: &HeaderSet) -> Result<()> {
        let text = set.text("cuda.h").unwrap_or_default();
        for (base, symbol) in text.lines().filter_map(read_define) {
            self.defines.push((set.version, base.to_owned(), symbol.to_owned()));
        }
        // The internal mode shows the types of the versions before CUDA 3.2 and 4.0.
        for (header, flags) in HEADERS.iter().flat_map(|name| {
            [&[][..], &["-D__CUDA_API_VERSION_INTERNAL"][..]].into_iter().map(move |flags| (*name, flags))
        }) {
            if !set.has(header) {
                continue;
            }
            let text = match set.expand(header, flags) {
                Ok(text) => text,
                Err(error) => {
                    eprintln!("  skipped: {error:#}");
                    continue;
                }
            };
            for function in header::parse(&text).function_types {
                let Some(name) = function.name.strip_prefix("PFN_") else { continue };
                // Variants for per-thread streams count their own versions; they answer as the ordinary names do.
                let Some((base, version)) = name.rsplit_once("_v") else { continue };
                let Ok(version) = version.parse() else { continue };
                let versions = self.bases.entry(base.to_owned()).or_default();
                if !versions.contains(&version) {
                    versions.push(version);
                }
            }
        }
        Ok(())
    }

    /// The list, one line per version, for the symbols that `exists` knows.
    pub fn render(&self, exists: impl Fn(&str) -> bool) -> String {
        let mut text = String::from(
            "# What cuGetProcAddress answers: BASE VERSION SYMBOL, where SYMBOL is meant from CUDA VERSION on.\n\
             # Written by `cargo run -p xtask -- api` from cudaTypedefs.h.\n\n",
        );
        let mut all: BTreeSet<(String, u32, String)> = BTreeSet::new();
        for (base, versions) in &self.bases {
            let mut versions = versions.clone();
            versions.sort_unstable();
            let symbols: Vec<String> = [base.clone()]
                .into_iter()
                .chain((2..10).map(|number| format!("{base}_v{number}")))
                .filter(|symbol| exists(symbol))
                .collect();
            if versions.len() != symbols.len() {
                eprintln!("  {base}: versions {versions:?}, symbols {symbols:?}");
            }
            let newest_first = versions.iter().rev().zip(symbols.iter().rev());
            all.extend(newest_first.map(|(version, symbol)| (base.clone(), *version, symbol.clone())));
        }
        for (version, base, symbol) in &self.defines {
            if self.bases.contains_key(base) && !all.iter().any(|(other, _, known)| other == base && known == symbol) {
                eprintln!("  cuda.h {version} says that {base} is {symbol}, which no version of it is");
            }
        }
        for (base, version, symbol) in all {
            let _ = writeln!(text, "{base} {version} {symbol}");
        }
        text
    }
}

/// Reads `#define cuBase cuSymbol`, where the symbol may be in a macro that adds a suffix.
fn read_define(line: &str) -> Option<(&str, &str)> {
    let (base, rest) = line.trim_start().strip_prefix("#define ")?.trim().split_once(' ')?;
    let rest = rest.trim();
    let symbol = rest
        .strip_prefix("__CUDA_API_PTSZ(")
        .or_else(|| rest.strip_prefix("__CUDA_API_PTDS("))
        .and_then(|rest| rest.split(')').next())
        .unwrap_or(rest);
    let symbol = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    let is_function = |name: &str| library::owner(name) == Some("driver") && table::is_name(name);
    (is_function(base) && is_function(symbol)).then_some((base, symbol))
}

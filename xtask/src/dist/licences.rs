//! Collects the licences of what is linked into oomph, as one text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::packages::Package;

/// What the name of a file with a licence begins with.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// Names every foreign package with its licence, then every text once with the packages that carry it.
pub fn text(packages: &[Package]) -> String {
    let foreign: Vec<_> = packages.iter().filter(|package| !package.is_own()).collect();
    let mut out = String::from(
        "oomph is linked with these packages, and with Rust's standard library (MIT or Apache-2.0, \
         https://www.rust-lang.org).\n\n",
    );
    let mut carriers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in foreign {
        let name = format!("{} {}", package.name, package.version);
        let texts = texts(&package.folder);
        let licence = package.licence.as_deref().unwrap_or("see its text");
        let _ = write!(out, "{name}: {licence}");
        if texts.is_empty() && !package.authors.is_empty() {
            let _ = write!(out, " (the package carries no text; by {})", package.authors.join(", "));
        }
        out.push('\n');
        for text in texts {
            carriers.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in carriers {
        let _ = write!(out, "\n{}\n{}\n\n{}\n", "-".repeat(80), names.join(", "), text.trim_end());
    }
    out
}

/// The licences in a package's folder, with the same line ends everywhere.
fn texts(folder: &Path) -> Vec<String> {
    let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_licence = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        path.is_file() && NAMES.iter().any(|start| name.starts_with(start))
    };
    let read = |path: &std::path::PathBuf| fs::read_to_string(path).ok().map(|text| text.replace("\r\n", "\n"));
    paths.iter().filter(is_licence).filter_map(read).collect()
}

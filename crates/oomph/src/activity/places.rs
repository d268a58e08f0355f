//! Finds the lines of a program that allocate, for a search that tries to change them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use oomph_launch::activity as counted;
use oomph_report::Site;

use super::lines::{Lines, Own};
use super::remarks::Growing;

/// What a line is written in, which decides the words for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C or C++.
    C,
    /// Rust.
    Rust,
    /// Python.
    Python,
}

/// A line that allocates, or that calls a function of the program's which does.
#[derive(Clone, Debug)]
pub struct Allocating {
    /// The line as `file:line`.
    pub place: String,
    /// The line that it allocates through, where that one serves others, too.
    pub through: Option<String>,
    /// What it is written in.
    pub language: Language,
    /// The library that it allocates through, as far as one is known by its files.
    pub library: Option<&'static str>,
    /// The line in a file of Python.
    pub python: Option<(PathBuf, usize)>,
    /// Where its machine code lies: file and address; of Python the file and the line.
    pub codes: BTreeSet<(String, u64)>,
    /// The most that it held at once, in bytes.
    pub most_held_bytes: u64,
    /// The largest of its blocks, in bytes.
    pub largest_bytes: u64,
    /// How often it allocated.
    pub calls: u64,
    /// Whether it gives too little back, so that memory grows with every call.
    pub grows: bool,
    /// Whether its blocks come from a pool of the driver's (`cudaMallocAsync`), which has calls of its own.
    pub pooled: bool,
}

/// One way through the program to an allocation.
struct Way<'a> {
    chain: Vec<Own>,
    site: &'a counted::AllocationSite,
    library: Option<&'static str>,
    grows: bool,
    pooled: bool,
}

/// The lines that allocate, those that hold most first. `died` is of the run that ran out of memory, and `whole` of one that
/// did not; `refused` is the line whose request ended the program, with the request in bytes.
pub fn allocating(
    died: &[counted::Activity],
    whole: &[counted::Activity],
    refused: Option<(&Site, u64)>,
) -> Vec<Allocating> {
    let mut lines = Lines::default();
    let mut ways: Vec<Way<'_>> = Vec::new();
    for process in died.iter().chain(whole) {
        let direct = process.allocations.sites.iter().map(|site| (site, false));
        let pooled = process.pooled.sites.iter().map(|site| (site, true));
        for (site, pooled) in direct.chain(pooled) {
            let chain = lines.chain(&site.frames);
            let Some(first) = chain.first() else { continue };
            let grows = Growing::of(first.place.clone(), site).grows();
            ways.push(Way { library: lines.library(&site.frames), chain, site, grows, pooled });
        }
    }
    // A line that several others come through is a helper: the others are what their author would change.
    let mut callers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for way in &ways {
        if let [first, second, ..] = way.chain.as_slice() {
            callers.entry(first.place.clone()).or_default().insert(second.place.clone());
        }
    }
    let mut found: Vec<Allocating> = Vec::new();
    for way in &ways {
        let helps = callers.get(&way.chain[0].place).is_some_and(|callers| callers.len() > 1);
        let (own, through) = match way.chain.as_slice() {
            [first, second, ..] if helps => (second, Some(first.place.clone())),
            [first, ..] => (first, None),
            [] => continue,
        };
        add(&mut found, own, through, way);
    }
    if let Some((site, bytes)) = refused {
        add_refused(&mut found, site, bytes);
    }
    found.sort_by_key(|line| std::cmp::Reverse(line.most_held_bytes));
    found
}

/// Adds what a line would have held, had the card not refused it: of a child of the fork server nothing else says so.
fn add_refused(found: &mut Vec<Allocating>, site: &Site, bytes: u64) {
    let name = Path::new(&site.file).file_name().unwrap_or_default().to_string_lossy();
    let place = format!("{name}:{}", site.line);
    let through = |line: &&mut Allocating| line.place == place || line.through.as_ref() == Some(&place);
    if let Some(known) = found.iter_mut().find(through) {
        known.largest_bytes = known.largest_bytes.max(bytes);
        known.most_held_bytes = known.most_held_bytes.max(bytes);
    } else if language(&site.file) == Language::Python {
        found.push(Allocating {
            place,
            through: None,
            language: Language::Python,
            library: None,
            python: Some((PathBuf::from(&site.file), usize::try_from(site.line).unwrap_or(0))),
            codes: BTreeSet::from([(site.file.clone(), site.line)]),
            most_held_bytes: bytes,
            largest_bytes: bytes,
            calls: 1,
            grows: false,
            pooled: false,
        });
    }
}

fn add(found: &mut Vec<Allocating>, own: &Own, through: Option<String>, way: &Way<'_>) {
    let Some(frame) = way.site.frames.get(own.frame) else { return };
    let index = found.iter().position(|known| known.place == own.place).unwrap_or_else(|| {
        let language = language(&own.file);
        let line = usize::try_from(own.line).unwrap_or(0);
        found.push(Allocating {
            place: own.place.clone(),
            through,
            language,
            library: way.library,
            python: (language == Language::Python).then(|| (PathBuf::from(&own.file), line)),
            codes: BTreeSet::new(),
            most_held_bytes: 0,
            largest_bytes: 0,
            calls: 0,
            grows: false,
            pooled: false,
        });
        found.len() - 1
    });
    let known = &mut found[index];
    known.codes.insert((frame.module.clone(), frame.offset));
    // The two runs saw the same blocks.
    known.most_held_bytes = known.most_held_bytes.max(way.site.most_held_bytes);
    known.calls = known.calls.max(way.site.calls);
    let largest = way.site.sizes.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
    known.largest_bytes = known.largest_bytes.max(largest);
    known.grows |= way.grows;
    known.pooled |= way.pooled;
}

fn language(file: &str) -> Language {
    match file.rsplit('.').next() {
        Some("py") => Language::Python,
        Some("rs") => Language::Rust,
        _ => Language::C,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_python_are_found_with_what_they_hold() {
        let frame = |line| counted::CodePlace { module: "/p/x.py".into(), offset: line, function: None };
        let site = |line, held, calls: u64, freed| counted::AllocationSite {
            frames: vec![frame(line)],
            calls,
            freed,
            held_bytes: held,
            most_held_bytes: held,
            sizes: vec![(held / calls, calls)],
            ..Default::default()
        };
        let sites = vec![site(3, 64 << 20, 1, 1), site(9, 800 << 20, 100, 0)];
        let activity = counted::Activity {
            allocations: counted::Allocations { sites, ..Default::default() },
            ..Default::default()
        };
        let found = allocating(std::slice::from_ref(&activity), &[], None);
        let seen: Vec<_> = found.iter().map(|line| (line.place.as_str(), line.grows, line.language)).collect();
        assert_eq!(seen, [("x.py:9", true, Language::Python), ("x.py:3", false, Language::Python)]);
        assert_eq!(found[0].python, Some((PathBuf::from("/p/x.py"), 9)));
        assert_eq!(found[0].largest_bytes, 8 << 20);
    }
}

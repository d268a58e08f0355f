//! Reads the catalogue from `data/*.toml`, and checks what must hold for every entry.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use serde::Deserialize;

use crate::advice::Advice;
use crate::remedy::{Effect, Remedy};
use crate::seen::Seen;
use crate::words;

/// The remedies and the popular advice that oomph knows.
#[derive(Clone, Debug)]
pub struct Catalogue {
    remedies: Vec<Remedy>,
    advice: Vec<Advice>,
    by_id: HashMap<String, usize>,
}

/// A catalogue file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The file is not TOML, or a field is missing, unknown or of the wrong type.
    #[error("cannot read the remedies in {file}: {source}")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong, and where.
        source: Box<toml::de::Error>,
    },
    /// Two entries have the same id.
    #[error("two entries are called \"{0}\"; rename one")]
    Duplicate(String),
    /// An entry names a remedy that is not there.
    #[error("\"{from}\" names the remedy \"{to}\", which is not in the catalogue; add it or correct the name")]
    Dangling {
        /// The entry.
        from: String,
        /// The remedy that it names.
        to: String,
    },
    /// An entry leaves a value open that nothing fills in.
    #[error("\"{id}\" says {{{name}}}, which nothing fills in; use one of the names in words.rs")]
    OpenName {
        /// The entry.
        id: String,
        /// The name in braces.
        name: String,
    },
    /// An effect gives both a share and a formula, or neither.
    #[error("\"{0}\" has an effect without exactly one of keeps, formula and adds; give one")]
    Effect(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    remedy: Vec<Remedy>,
    #[serde(default)]
    advice: Vec<Advice>,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(include_str!(concat!(env!("OUT_DIR"), "/", $name, ".json"))),*]
    };
}

/// One file per concept. Where two remedies are equally cheap, the order of the files and of their entries decides.
const FILES: &[&str] = files![
    "calls",
    "lifetime",
    "neighbours",
    "allocator",
    "pools",
    "attention-and-loss",
    "batch",
    "activations",
    "precision",
    "optimizer",
    "weights",
    "offload",
    "parallel",
    "images",
    "serving",
    "evaluation",
    "host",
    "advice",
];

static BUILTIN: LazyLock<Catalogue> = LazyLock::new(|| {
    // The files are part of the program and a test reads them, so this cannot fail in a program that was released.
    let files = FILES.iter().map(|text| serde_json::from_str(text).ok()).collect::<Option<Vec<File>>>();
    files.and_then(|files| Catalogue::of(files).ok()).expect("the built-in catalogue is valid")
});

/// Ids with at least this Jaro-Winkler similarity are worth asking after: below it words share only their beginning.
const SIMILAR: f64 = 0.84;

impl Catalogue {
    /// The catalogue that is compiled into the program. It is read once.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// Reads a catalogue from files in the format of `data/*.toml`, given as names and texts.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, an id is used twice or a name leads nowhere.
    pub fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, CatalogueError> {
        let read = |(name, text): (&str, &str)| {
            toml::from_str(text)
                .map_err(|source| CatalogueError::Syntax { file: name.to_owned(), source: Box::new(source) })
        };
        Self::of(files.into_iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The remedies that a program uses already, by what was seen of it.
    pub fn shown_by(&self, seen: &Seen) -> BTreeSet<String> {
        let shown = |remedy: &&Remedy| remedy.shown_by.iter().any(|shown| seen.shows(shown));
        self.remedies.iter().filter(shown).map(|remedy| remedy.id.clone()).collect()
    }

    fn of(files: Vec<File>) -> Result<Self, CatalogueError> {
        let mut catalogue = Self { remedies: Vec::new(), advice: Vec::new(), by_id: HashMap::new() };
        for file in files {
            catalogue.remedies.extend(file.remedy);
            catalogue.advice.extend(file.advice);
        }
        for (position, remedy) in catalogue.remedies.iter().enumerate() {
            if catalogue.by_id.insert(remedy.id.clone(), position).is_some() {
                return Err(CatalogueError::Duplicate(remedy.id.clone()));
            }
            let said = |effect: &Effect| {
                [effect.keeps.is_some(), effect.formula.is_some(), effect.adds.is_some()]
                    .map(u8::from)
                    .iter()
                    .sum::<u8>()
            };
            if remedy.effects.iter().any(|effect| said(effect) != 1) {
                return Err(CatalogueError::Effect(remedy.id.clone()));
            }
        }
        catalogue.check_names()?;
        Ok(catalogue)
    }

    fn check_names(&self) -> Result<(), CatalogueError> {
        let named = self
            .remedies
            .iter()
            .flat_map(|remedy| {
                remedy
                    .conflicts
                    .iter()
                    .chain(&remedy.when.on)
                    .chain(&remedy.when.not_on)
                    .map(move |to| (&remedy.id, to))
            })
            .chain(self.advice.iter().flat_map(|advice| advice.when.on.iter().map(move |to| (&advice.id, to))));
        for (from, to) in named {
            if !self.by_id.contains_key(to) {
                return Err(CatalogueError::Dangling { from: from.clone(), to: to.clone() });
            }
        }
        let texts = self
            .remedies
            .iter()
            .flat_map(|remedy| {
                let words = remedy.written.iter().map(|written| &written.words);
                words.chain([&remedy.because]).map(move |text| (&remedy.id, text))
            })
            .chain(self.advice.iter().map(|advice| (&advice.id, &advice.because)));
        for (id, text) in texts {
            if let Some(name) = words::open_names(text).find(|name| !words::NAMES.contains(name)) {
                return Err(CatalogueError::OpenName { id: id.clone(), name: name.to_owned() });
            }
        }
        let mut seen = HashSet::new();
        match self.advice.iter().find(|advice| !seen.insert(&advice.id)) {
            Some(twice) => Err(CatalogueError::Duplicate(twice.id.clone())),
            None => Ok(()),
        }
    }

    /// The remedy with this id, for example `gradient-checkpointing`.
    pub fn get(&self, id: &str) -> Option<&Remedy> {
        self.by_id.get(id).map(|&position| &self.remedies[position])
    }

    /// Up to three remedies whose ids contain a text, or else are most similar to it, best first. A text that resembles
    /// nothing gets none.
    pub fn nearest(&self, text: &str) -> Vec<&Remedy> {
        let wanted = text.to_lowercase().replace([' ', '_'], "-");
        let similar = |remedy: &Remedy| match !wanted.is_empty() && remedy.id.contains(&wanted) {
            true => 1.0,
            false => strsim::jaro_winkler(&wanted, &remedy.id),
        };
        let mut near: Vec<(f64, &Remedy)> =
            self.remedies.iter().map(|remedy| (similar(remedy), remedy)).filter(|(near, _)| *near >= SIMILAR).collect();
        near.sort_by(|one, other| other.0.total_cmp(&one.0));
        // What is a part of an id was meant, and nothing that only sounds like it.
        if near.first().is_some_and(|(near, _)| *near >= 1.0) {
            near.retain(|(near, _)| *near >= 1.0);
        }
        near.into_iter().take(3).map(|(_, remedy)| remedy).collect()
    }

    /// All remedies, in the order of the files.
    pub fn remedies(&self) -> &[Remedy] {
        &self.remedies
    }

    /// The popular advice that is wrong or useless in some situation.
    pub fn advice(&self) -> &[Advice] {
        &self.advice
    }

    /// Whether two remedies exclude each other, whichever of them says so.
    pub fn conflict(&self, one: &str, other: &str) -> bool {
        let says =
            |from: &str, to: &str| self.get(from).is_some_and(|remedy| remedy.conflicts.iter().any(|id| id == to));
        says(one, other) || says(other, one)
    }
}

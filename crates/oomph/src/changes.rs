//! The changes that a run makes to the program as it was typed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use oomph_launch::{HookRemedy, Pools, UnknownSizes};
use oomph_protocol::compared::Compare;
use oomph_remedy::rewrite;

/// What is different from the program as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The whole command line, the program first. The program itself stays the same.
    pub command: Vec<OsString>,
    /// Variables that are set, over those of this process.
    pub env: Vec<(String, String)>,
    /// What the hook changes from inside.
    pub remedies: Vec<HookRemedy>,
    /// Configuration files that say something else, by the words of the command that name them. The user's stay as
    /// they are: a run gets copies.
    pub files: BTreeMap<String, String>,
    /// Which end is taken of sizes that nobody computed.
    pub unknown_sizes: UnknownSizes,
    /// How the pools of JAX and TensorFlow take memory.
    pub pools: Pools,
    /// Files of the program's code that are run with another text, by their absolute paths.
    pub edited: BTreeMap<PathBuf, String>,
    /// What is recorded of the training, which then runs with real numbers and nothing of it is left out.
    pub compare: Option<Box<Compare>>,
}

impl Changes {
    /// The program as it was typed.
    pub fn none(command: &[OsString]) -> Self {
        Self {
            command: command.to_vec(),
            env: Vec::new(),
            remedies: Vec::new(),
            files: BTreeMap::new(),
            unknown_sizes: UnknownSizes::Most,
            pools: Pools::AsNeeded,
            edited: BTreeMap::new(),
            compare: None,
        }
    }

    /// The command with its changed files in a folder.
    pub fn command_in(&self, folder: &Path) -> Vec<OsString> {
        let names = self.names_in(folder);
        let word = |word: &OsString| match word.to_str() {
            Some(text) => rewrite::renamed(text, &names).into(),
            None => word.clone(),
        };
        self.command.iter().map(word).collect()
    }

    /// Writes the changed files into a folder.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn write_files(&self, folder: &Path) -> io::Result<()> {
        let names = self.names_in(folder);
        self.files.iter().try_for_each(|(name, text)| fs::write(&names[name], text))
    }

    /// Where the changed files lie in a folder, by their own names.
    fn names_in(&self, folder: &Path) -> BTreeMap<String, String> {
        let place = |(number, name): (usize, &String)| {
            let last = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
            (name.clone(), folder.join(format!("{number}-{last}")).to_string_lossy().into_owned())
        };
        self.files.keys().enumerate().map(place).collect()
    }
}

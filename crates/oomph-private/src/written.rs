//! Lists what a program wrote into its view, once its processes are gone.

use std::path::PathBuf;

/// A file that a program wrote, or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    /// Its path as the program knows it.
    pub path: PathBuf,
    /// Its size; none where it was removed.
    pub bytes: Option<u64>,
}

/// What lies in the stores of a view.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// The files, by path.
    pub files: Vec<WrittenFile>,
    /// How many there are.
    pub count: u64,
    /// Their sizes added up.
    pub bytes: u64,
}

#[cfg(target_os = "linux")]
mod reading {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::path::{Path, PathBuf};

    use super::{Written, WrittenFile};
    use crate::Record;
    use crate::overlay::UPPER;

    /// No more files than this are listed by name. They are all counted.
    const MOST_FILES: usize = 10_000;

    impl Written {
        /// Reads the stores that the record names. A path for which `skipped` is true is left out, with what is below it.
        ///
        /// # Errors
        /// When the record cannot be read. Where no view was made, there is no record.
        pub fn of(record: &Path, skipped: &dyn Fn(&Path) -> bool) -> io::Result<Self> {
            let record = Record::from_bytes(&fs::read(record)?)?;
            let mut found = Self::default();
            for (place, store) in &record.overlays {
                found.add(&store.join(UPPER), place, skipped);
            }
            found.files.sort_by(|one, other| one.path.cmp(&other.path));
            Ok(found)
        }

        /// Where a file lies that the program wrote at `path`, by the record of its view.
        pub fn place_of(record: &Path, path: &Path) -> Option<PathBuf> {
            let record = Record::from_bytes(&fs::read(record).ok()?).ok()?;
            let (place, store) = record.overlays.iter().rfind(|(place, _)| path.starts_with(place))?;
            let found = store.join(UPPER).join(path.strip_prefix(place).ok()?);
            found.is_file().then_some(found)
        }

        /// Adds what lies in another folder, which stands for `place`. What is known already counts once.
        pub fn add_folder(&mut self, folder: &Path, place: &Path, skipped: &dyn Fn(&Path) -> bool) {
            let known: BTreeSet<PathBuf> = self.files.iter().map(|file| file.path.clone()).collect();
            self.add(folder, place, &|path| skipped(path) || known.contains(path));
            self.files.sort_by(|one, other| one.path.cmp(&other.path));
        }

        fn add(&mut self, folder: &Path, place: &Path, skipped: &dyn Fn(&Path) -> bool) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = place.join(entry.file_name());
                let Ok(metadata) = entry.metadata() else { continue };
                if skipped(&path) {
                    continue;
                }
                let kind = metadata.file_type();
                // A device without numbers is how an overlay says that something was removed.
                let removed = kind.is_char_device() && metadata.rdev() == 0;
                if kind.is_dir() {
                    self.add(&entry.path(), &path, skipped);
                } else if removed || kind.is_file() || kind.is_symlink() {
                    let bytes = (!removed).then_some(metadata.len());
                    self.count += 1;
                    self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
                    if self.files.len() < MOST_FILES {
                        self.files.push(WrittenFile { path, bytes });
                    }
                }
            }
        }
    }
}

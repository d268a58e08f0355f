//! Checks that an environment holds every file that its packages list.
//!
//! Each installed package has a folder `NAME-VERSION.dist-info` with a file `RECORD`: path, digest and size of every file
//! that it brought. An installer that was killed, a full disk or a cleaner of old files leaves an environment that
//! differs from them, which Python finds out much later, or never.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// The digests of larger files are not computed: they are gigabytes, and what goes wrong with them shows in their size.
const LARGEST_DIGESTED: u64 = 4 << 20;

/// A file longer than this is not a record.
const LONGEST_RECORD: u64 = 64 << 20;

/// How closely files are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// They are there and have their sizes.
    Sizes,
    /// Those that are not large have their digests as well.
    Contents,
}

/// The packages of an environment.
#[derive(Debug)]
pub(crate) struct Packages {
    /// Their folders' names, sorted.
    pub(crate) names: BTreeSet<String>,
    files: Vec<Entry>,
}

/// A file that a package brought.
#[derive(Debug)]
struct Entry {
    path: PathBuf,
    /// None where the record does not say.
    size: Option<u64>,
    digest: Option<String>,
}

impl Packages {
    /// Reads the records of an environment.
    ///
    /// # Errors
    /// When a folder cannot be listed.
    pub(crate) fn of(environment: &Path) -> io::Result<Self> {
        let mut found = Self { names: BTreeSet::new(), files: Vec::new() };
        for site in sites(environment)? {
            for entry in fs::read_dir(&site)? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                if !name.ends_with(".dist-info") {
                    continue;
                }
                let mut text = Vec::new();
                // A package that another tool installed need not have one.
                if let Ok(file) = File::open(entry.path().join("RECORD")) {
                    file.take(LONGEST_RECORD).read_to_end(&mut text)?;
                }
                let lines = String::from_utf8_lossy(&text);
                found.files.extend(lines.lines().filter_map(|line| parse(line, &site)));
                found.names.insert(name);
            }
        }
        Ok(found)
    }

    /// The first file that is not as its package says, if there is one.
    pub(crate) fn damage<'a>(&'a self, look: Look) -> Option<&'a Path> {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
        let part = self.files.len().div_ceil(threads).max(1);
        let odd: Vec<&Entry> = std::thread::scope(|scope| {
            let check = |files: &'a [Entry]| {
                scope.spawn(move || files.iter().filter(|file| !file.holds(look)).collect::<Vec<_>>())
            };
            let parts: Vec<_> = self.files.chunks(part).map(check).collect();
            parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
        });
        // Two packages may bring the same file, and the one that came last wins.
        let is_anothers = |odd: &Entry| self.files.iter().any(|file| file.path == odd.path && file.holds(look));
        odd.into_iter().find(|odd| !is_anothers(odd)).map(|odd| odd.path.as_path())
    }
}

impl Entry {
    fn holds(&self, look: Look) -> bool {
        let Ok(found) = fs::metadata(&self.path) else { return false };
        if self.size.is_some_and(|size| found.len() != size) {
            return false;
        }
        match &self.digest {
            Some(digest) if look == Look::Contents && found.len() <= LARGEST_DIGESTED => {
                fs::read(&self.path).is_ok_and(|content| URL_SAFE_NO_PAD.encode(Sha256::digest(content)) == *digest)
            }
            _ => true,
        }
    }
}

/// The folders that hold packages.
fn sites(environment: &Path) -> io::Result<Vec<PathBuf>> {
    if cfg!(windows) {
        return Ok(vec![environment.join("Lib").join("site-packages")]);
    }
    let folders = fs::read_dir(environment.join("lib"))?.collect::<io::Result<Vec<_>>>()?;
    Ok(folders.iter().map(|folder| folder.path().join("site-packages")).filter(|path| path.is_dir()).collect())
}

/// A line of a record, `PATH,sha256=DIGEST,SIZE`, whose path is in quotes where it holds a comma. Compiled files may go at
/// any time.
fn parse(line: &str, site: &Path) -> Option<Entry> {
    let mut fields = line.rsplitn(3, ',');
    let size = fields.next()?.trim().parse().ok();
    let digest = fields.next()?.strip_prefix("sha256=").map(str::to_owned);
    let path = fields.next()?;
    let quoted = path.strip_prefix('"').and_then(|path| path.strip_suffix('"'));
    let path = quoted.map_or_else(|| path.to_owned(), |path| path.replace("\"\"", "\""));
    let is_compiled = path.ends_with(".pyc");
    (!is_compiled).then(|| Entry { path: site.join(path), size, digest })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment with a package of two files and one that shares a file with it.
    fn environment() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("lib/python3.11/site-packages");
        fs::create_dir_all(site.join("six-1.dist-info")).unwrap();
        fs::create_dir_all(site.join("other-2.dist-info")).unwrap();
        fs::create_dir_all(folder.path().join("bin")).unwrap();
        fs::write(site.join("six.py"), "six").unwrap();
        fs::write(folder.path().join("bin/a, \"b\""), "script").unwrap();
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest("six"));
        let record = format!(
            "six.py,sha256={digest},3\n__pycache__/six.cpython-311.pyc,,\n\"../../../bin/a, \"\"b\"\"\",sha256=x,6\n\
             six-1.dist-info/RECORD,,\n"
        );
        fs::write(site.join("six-1.dist-info/RECORD"), record).unwrap();
        fs::write(site.join("other-2.dist-info/RECORD"), "six.py,sha256=y,4\n").unwrap();
        folder
    }

    #[test]
    fn what_differs_is_found() {
        let folder = environment();
        let site = folder.path().join("lib/python3.11/site-packages");
        let packages = || Packages::of(folder.path()).unwrap();
        assert_eq!(packages().names, BTreeSet::from(["other-2.dist-info".to_owned(), "six-1.dist-info".to_owned()]));
        assert_eq!(packages().damage(Look::Sizes), None);
        assert!(packages().damage(Look::Contents).unwrap().ends_with("a, \"b\""), "its digest is wrong");
        fs::write(site.join("six.py"), "si").unwrap();
        assert!(packages().damage(Look::Sizes).unwrap().ends_with("six.py"));
        fs::remove_file(site.join("six.py")).unwrap();
        assert!(packages().damage(Look::Sizes).unwrap().ends_with("six.py"));
        // A zeroed file of the right size is found by its digest alone.
        fs::write(site.join("six.py"), "\0\0\0").unwrap();
        assert_eq!(packages().damage(Look::Sizes), None);
        fs::remove_file(folder.path().join("bin/a, \"b\"")).unwrap();
        fs::write(site.join("six-1.dist-info/RECORD"), "six.py,sha256=z,3\n").unwrap();
        assert!(packages().damage(Look::Contents).unwrap().ends_with("six.py"));
    }
}

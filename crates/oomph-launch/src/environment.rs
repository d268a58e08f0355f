//! Makes Python environments for `--with`: once for a list of requirements, kept in the cache, then reused at once.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::inspect::{self, Answer};
use crate::installer::{Installer, InstallerOutput, Work, settings};
use crate::lease::{self, Claim, Exclusive, Lease};
use crate::program::{is_executable, real_path};
use crate::records::{Look, Packages};
use crate::secrets::without_password;
use crate::unique_names::{fresh_name, is_fresh_name};
use crate::{CacheDir, LaunchError, PythonFacts, cleanup};

/// Changes when environments are made differently, so that old ones are not taken for new ones.
const FORMAT_VERSION: &str = "oomph-environment-2";

/// Written last, next to the environment's own folder, which it names. What it does not name is half-made, or left
/// over.
pub(crate) const MARKER: &str = "oomph-environment.json";

/// A finished environment.
#[derive(Debug, Clone)]
pub struct Environment {
    path: PathBuf,
    facts: PythonFacts,
    created: bool,
    /// Keeps it from being removed while it is in use.
    _lease: Lease,
}

impl Environment {
    /// Its folder: the value of `VIRTUAL_ENV`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of its programs.
    pub fn bin(&self) -> PathBuf {
        bin(&self.path)
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.bin().join("python")
    }

    /// What it has for GPUs.
    pub fn facts(&self) -> &PythonFacts {
        &self.facts
    }

    /// Whether it was made just now rather than reused.
    pub fn created(&self) -> bool {
        self.created
    }

    /// A program that one of its packages brought.
    pub fn program(&self, name: &OsStr) -> Option<PathBuf> {
        Some(self.bin().join(name)).filter(|path| is_executable(path))
    }
}

fn bin(environment: &Path) -> PathBuf {
    environment.join(if cfg!(windows) { "Scripts" } else { "bin" })
}

/// What an environment is to be.
pub struct EnvironmentRequest<'a> {
    /// pip requirements, as typed. None of them is an option.
    pub requirements: &'a [String],
    /// The Python to make it with.
    pub base: &'a Path,
    /// The folder that relative paths among the requirements start from.
    pub directory: &'a Path,
    /// What happens to the installer's messages.
    pub installer_output: InstallerOutput,
    /// Receives what takes time, one line each.
    pub notify: &'a dyn Fn(&str),
}

/// The contents of the marker.
#[derive(Serialize, Deserialize)]
struct Marker {
    /// The folder next to it that holds the environment. Each attempt has a fresh one: what an installer that was
    /// killed left running goes on writing where nobody looks.
    folder: String,
    requirements: Vec<String>,
    /// The packages, as their folders are called.
    packages: BTreeSet<String>,
    facts: PythonFacts,
}

/// What an environment of the cache is, for people.
pub(crate) struct Described {
    /// What it was made for.
    pub(crate) requirements: Vec<String>,
    /// How many packages it has.
    pub(crate) packages: usize,
    /// The version of its Python.
    pub(crate) python: String,
}

/// What is known of an environment without looking at its files; none where it is not whole.
pub(crate) fn described(place: &Path) -> Option<Described> {
    let marker: Marker = serde_json::from_slice(&fs::read(place.join(MARKER)).ok()?).ok()?;
    let Marker { requirements, packages, facts, .. } = marker;
    Some(Described { requirements, packages: packages.len(), python: facts.version })
}

impl EnvironmentRequest<'_> {
    /// Finds the environment in the cache, or makes it.
    ///
    /// # Errors
    /// When a requirement is invalid, the base does not work, or the installer fails.
    pub fn make(&self, cache: &CacheDir) -> Result<Environment, LaunchError> {
        let requirements = normalise_all(self.requirements, self.directory)?;
        let folder = cache.folder("environments")?;
        let base = Base::of(self.base, self.directory, &folder)?;
        let key = key(&requirements, &base, &settings());
        let place = folder.join(&key);
        let unusable = |source| LaunchError::cache(lease::lock_path(&place), source);
        let waiting = || (self.notify)("another run is making the same Python environment; waiting for it");
        let exclusive = match lease::claim(&place, || finished(&place), waiting).map_err(unusable)? {
            Claim::Use((path, mut facts), lease) => {
                // An older oomph may have asked it for less than what is known to use GPUs by now.
                let knows_libraries = facts.nvidia.is_some() || !facts.others.iter().any(|name| name == "nvidia");
                if facts.problem().is_some() || !knows_libraries {
                    facts = PythonFacts::of(&bin(&path).join("python"), &path)?;
                }
                return Ok(Environment { path, facts, created: false, _lease: lease });
            }
            Claim::Make(exclusive) => exclusive,
        };
        self.make_room(&folder);
        let (path, facts) = self.build(&place, &requirements, &exclusive)?;
        let lease = exclusive.into_lease().map_err(unusable)?;
        Ok(Environment { path, facts, created: true, _lease: lease })
    }

    /// Removes environments that nobody uses any more: they hold gigabytes, and only a new one makes a cache grow.
    fn make_room(&self, environments: &Path) {
        let removed = lease::remove_unused(environments, lease::UNUSED_AFTER, MARKER);
        if removed > 0 {
            (self.notify)(&format!("removed {removed} of the cache's Python environments, not used for 30 days"));
        }
    }

    /// Makes the environment in a fresh folder at `place`, where it stays, because scripts in it name that folder. It
    /// becomes the environment when the marker names it.
    fn build(
        &self,
        place: &Path,
        requirements: &[String],
        exclusive: &Exclusive,
    ) -> Result<(PathBuf, PythonFacts), LaunchError> {
        // The memory of what the base is may be old. Before minutes are spent it is asked again.
        let base = inspect::ask(self.base, self.directory)?;
        let installer = Installer::find(&base.base, base.has_venv, self.directory)?;
        let unusable = |source| LaunchError::cache(place, source);
        clear(place);
        fs::create_dir_all(place).map_err(unusable)?;
        let start = Instant::now();
        let shown: Vec<String> = requirements.iter().map(|requirement| without_password(requirement)).collect();
        (self.notify)(&format!(
            "making a Python {} environment with {} (once; it is kept in the cache)",
            base.version,
            shown.join(", ")
        ));
        // A name by which the watchdog knows that it may remove it.
        let folder = fresh_name();
        let path = place.join(&folder);
        cleanup::register(&path);
        let made = self.fill(&base.base, &path, &installer, requirements, exclusive);
        let written = made.and_then(|(facts, packages)| {
            let marker = Marker { folder, requirements: shown, packages, facts };
            write_whole(&place.join(MARKER), &marker).map(|()| marker.facts)
        });
        match written {
            Ok(facts) => {
                cleanup::forget(&path);
                (self.notify)(&format!("the environment is ready after {:.1} s", start.elapsed().as_secs_f64()));
                Ok((path, facts))
            }
            Err(error) => {
                // It may hold gigabytes, and the disk may be full because of them.
                cleanup::remove(&path);
                let _ = fs::remove_dir(place);
                Err(error)
            }
        }
    }

    /// Installs, and looks whether all of it has arrived.
    fn fill(
        &self,
        base: &Path,
        path: &Path,
        installer: &Installer,
        requirements: &[String],
        exclusive: &Exclusive,
    ) -> Result<(PythonFacts, BTreeSet<String>), LaunchError> {
        let unusable = |source| LaunchError::cache(path, source);
        let lock = exclusive.file().map_err(unusable)?;
        let work = Work { directory: self.directory, output: self.installer_output, lock };
        let python = bin(path).join("python");
        let mut fresh = false;
        loop {
            installer.build(base, path, &python, requirements, &work, fresh)?;
            let packages = Packages::of(path).map_err(unusable)?;
            match packages.damage(Look::Contents) {
                None => return Ok((PythonFacts::of(&python, path)?, packages.names)),
                Some(file) if fresh => return Err(installer.incomplete(file, requirements)),
                // The installer's own cache may be damaged: uv's files there and in environments are the same.
                Some(_) => fresh = true,
            }
            cleanup::remove_folder(path);
        }
    }
}

/// Removes what earlier attempts left, and the environment that turned out to be damaged: first what makes it whole.
fn clear(place: &Path) {
    let _ = fs::remove_file(place.join(MARKER));
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            cleanup::remove_folder(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Writes a file so that it is either whole or not there.
fn write_whole(path: &Path, value: &impl Serialize) -> Result<(), LaunchError> {
    let temporary = path.with_extension(format!("tmp-{}", std::process::id()));
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::from);
    text.and_then(|text| fs::write(&temporary, text))
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(|source| LaunchError::cache(path, source))
}

/// Where an environment lies and what is known of it, if it is whole: its interpreter works (it is a link to the base,
/// which may have been removed since), and every file of its packages is there.
fn finished(place: &Path) -> Option<(PathBuf, PythonFacts)> {
    let marker: Marker = serde_json::from_slice(&fs::read(place.join(MARKER)).ok()?).ok()?;
    let path = is_fresh_name(&marker.folder).then(|| place.join(&marker.folder))?;
    let packages = is_executable(&bin(&path).join("python")).then(|| Packages::of(&path).ok())??;
    // A program may have changed packages of its environment: they are not what was asked for any more.
    (packages.names == marker.packages && packages.damage(Look::Sizes).is_none()).then_some((path, marker.facts))
}

/// The Python below an environment, as far as it decides what gets installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Base {
    executable: PathBuf,
    version: String,
    implementation: String,
}

/// What was learnt about an interpreter, and how to tell that it is still the same one.
#[derive(Serialize, Deserialize)]
struct Remembered {
    size: u64,
    modified_nanoseconds: u128,
    base: Base,
}

impl Base {
    /// Asking an interpreter takes tens of milliseconds, so the answer is remembered by the file that gave it.
    fn of(python: &Path, directory: &Path, environments: &Path) -> Result<Self, LaunchError> {
        let real = real_path(python);
        let identity = is_machine_code(&real).then(|| identity(&real)).flatten();
        let Some((size, modified_nanoseconds)) = identity else {
            // A script, such as a version manager's stand-in, decides again each time which Python it starts.
            return inspect::ask(python, directory).map(Self::from);
        };
        let name = short_hash([real.as_os_str().as_encoded_bytes()]);
        let memory = environments.join(format!("{name}.python.json"));
        let remembered = fs::read(&memory).ok().and_then(|text| serde_json::from_slice::<Remembered>(&text).ok());
        if let Some(remembered) = remembered
            && (remembered.size, remembered.modified_nanoseconds) == (size, modified_nanoseconds)
        {
            return Ok(remembered.base);
        }
        let base = Self::from(inspect::ask(python, directory)?);
        // Not to be able to remember costs time and nothing else; a cache that cannot be written is found out later.
        let _ = write_whole(&memory, &Remembered { size, modified_nanoseconds, base: base.clone() });
        Ok(base)
    }
}

impl From<Answer> for Base {
    fn from(answer: Answer) -> Self {
        let executable = real_path(&answer.base);
        Self { executable, version: answer.version, implementation: answer.implementation }
    }
}

fn is_machine_code(file: &Path) -> bool {
    let mut start = [0; 4];
    File::open(file).and_then(|mut file| io::Read::read_exact(&mut file, &mut start)).is_ok() && start == *b"\x7fELF"
}

fn identity(file: &Path) -> Option<(u64, u128)> {
    let found = fs::metadata(file).ok()?;
    let modified = found.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some((found.len(), modified.as_nanos()))
}

fn normalise_all(requirements: &[String], directory: &Path) -> Result<Vec<String>, LaunchError> {
    let mut all: Vec<String> =
        requirements.iter().map(|requirement| normalise(requirement, directory)).collect::<Result<_, _>>()?;
    all.sort();
    all.dedup();
    Ok(all)
}

/// One spelling for all spellings of a requirement: `Torch >= 2.0` is `torch>=2.0`.
fn normalise(requirement: &str, directory: &Path) -> Result<String, LaunchError> {
    let bad = |reason| LaunchError::BadRequirement { requirement: requirement.to_owned(), reason };
    let text = requirement.trim();
    if text.is_empty() {
        return Err(bad("it is empty; write for example `--with torch`"));
    }
    if text.starts_with('-') {
        return Err(bad("it is an option; write packages as `--with torch --with transformers`"));
    }
    if text.contains(['\n', '\r', '\0']) {
        return Err(bad("it has more than one line; repeat --with for each package"));
    }
    let path = directory.join(text);
    if text.starts_with(['.', '/']) || (text.contains('/') && path.exists()) || text.ends_with(".whl") && path.is_file()
    {
        let path = fs::canonicalize(path).map_err(|_| bad("there is no such file or folder"))?;
        return path.into_os_string().into_string().map_err(|_| bad("its path is not text"));
    }
    let end =
        text.find(|letter: char| !letter.is_ascii_alphanumeric() && !"-_.".contains(letter)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return Err(bad("it does not begin with the name of a package"));
    }
    if name.ends_with(".txt") {
        return Err(bad("it is a file of requirements; name the packages themselves"));
    }
    // The rule of PEP 503: runs of -, _ and . are one dash.
    let mut normal = String::with_capacity(text.len());
    for letter in name.chars() {
        match letter {
            '-' | '_' | '.' if normal.ends_with('-') => {}
            '-' | '_' | '.' => normal.push('-'),
            other => normal.push(other.to_ascii_lowercase()),
        }
    }
    // Blanks mean nothing in versions and extras. They do in URLs and markers.
    if rest.contains(['@', ';']) {
        normal.push_str(rest);
    } else {
        normal.extend(rest.chars().filter(|letter| !letter.is_whitespace()));
    }
    Ok(normal)
}

/// The name of the environment's folder.
fn key(requirements: &[String], base: &Base, settings: &[(&str, std::ffi::OsString)]) -> String {
    let mut parts: Vec<Vec<u8>> = vec![
        FORMAT_VERSION.into(),
        base.executable.as_os_str().as_encoded_bytes().into(),
        base.version.clone().into(),
        base.implementation.clone().into(),
        std::env::consts::ARCH.into(),
    ];
    for requirement in requirements {
        parts.push(requirement.clone().into());
        // A file or folder of the user's changes without changing its name.
        let file = Path::new(requirement);
        let watched = if file.is_dir() { file.join("pyproject.toml") } else { file.to_owned() };
        if file.is_absolute()
            && let Some(identity) = identity(&watched)
        {
            parts.push(format!("{identity:?}").into());
        }
    }
    for (name, value) in settings {
        // Passwords in index URLs change from job to job and install the same packages.
        parts.push([name.as_bytes(), b"=", without_password(&value.to_string_lossy()).as_bytes()].concat());
    }
    short_hash(parts.iter().map(Vec::as_slice))
}

fn short_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(requirement: &str) -> String {
        normalise(requirement, Path::new("/nowhere")).unwrap()
    }

    #[test]
    fn spellings_of_one_requirement_are_one() {
        assert_eq!(normal(" Torch >= 2.0, <3 "), "torch>=2.0,<3");
        assert_eq!(normal("Flash__Attn"), "flash-attn");
        assert_eq!(normal("ruamel.yaml"), "ruamel-yaml");
        assert_eq!(normal("transformers[torch, sentencepiece]==4.40"), "transformers[torch,sentencepiece]==4.40");
        assert_eq!(normal("six ; python_version > '3'"), "six ; python_version > '3'");
        assert_eq!(normal("pkg @ git+https://host/a b"), "pkg @ git+https://host/a b");
    }

    #[test]
    fn what_is_no_requirement_is_refused() {
        for bad in ["", "-r requirements.txt", "--index-url=x", "==2.0", "a\nb", "./missing", "requirements.txt"] {
            let error = normalise(bad, Path::new("/nowhere")).unwrap_err().to_string();
            assert!(error.contains("is not a package requirement"), "{error}");
        }
    }

    #[test]
    fn local_packages_are_known_by_their_place_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir(&project).unwrap();
        fs::write(project.join("pyproject.toml"), "[project]").unwrap();
        let requirement = normalise("./project", folder.path()).unwrap();
        assert_eq!(Path::new(&requirement), fs::canonicalize(&project).unwrap());
        let base = Base { executable: "/p".into(), version: "3".into(), implementation: "cpython".into() };
        let before = key(std::slice::from_ref(&requirement), &base, &[]);
        fs::write(project.join("pyproject.toml"), "[project] # changed").unwrap();
        assert_ne!(before, key(&[requirement], &base, &[]));
    }

    #[test]
    fn the_key_knows_what_matters() {
        let base = Base { executable: "/p".into(), version: "3.11.7".into(), implementation: "cpython".into() };
        let newer = Base { version: "3.12.0".into(), ..base.clone() };
        let six = ["six".to_owned()];
        let plain = key(&six, &base, &[]);
        assert_eq!(plain, key(&six, &base, &[]));
        assert_ne!(plain, key(&six, &newer, &[]));
        assert_ne!(plain, key(&["seven".to_owned()], &base, &[]));
        let index = |url: &str| key(&six, &base, &[("UV_INDEX_URL", url.into())]);
        assert_ne!(plain, index("https://host/simple"));
        assert_eq!(index("https://me:one@host/simple"), index("https://me:two@host/simple"));
    }
}

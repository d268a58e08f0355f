//! Unpacks the virtual GPU and the hook from the program's own binary, and links them where they can be loaded.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::permissions::{is_private, make_private, only_we_write};
use crate::run_folder::link;
use crate::toolkit::LIBRARIES;
use crate::unique_names::random_name;
use crate::{CacheDir, LaunchError, RunFolder, cleanup, lease, nvidia_smi, version_stub};

/// The one real library file.
const LIBRARY: &str = "libcuda.so.1";

/// Names that belong to the driver: on a machine without one they are missing for every program.
const DRIVER_NAMES: &[&str] = &["libcuda.so", MANAGEMENT_LIBRARY];

/// The name of NVML.
const MANAGEMENT_LIBRARY: &str = "libnvidia-ml.so.1";

/// Written last; a folder without it is half-made.
const MARKER: &str = "complete";

/// What a run makes takes seconds; what is older was left.
const SWEEP_AFTER: Duration = Duration::from_secs(10 * 60);

/// Changes when the layout of the folder does.
const LAYOUT_VERSION: &str = "oomph-runtime-3";

/// What is to be unpacked.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeFiles<'a> {
    /// The preload library.
    pub vgpu_library: &'a [u8],
    /// The Python hook: paths relative to the folder that goes on `PYTHONPATH`, and contents.
    pub python: &'a [(&'a str, &'a [u8])],
}

/// The runtime as it lies on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    folder: PathBuf,
}

impl Runtime {
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The library to preload.
    pub fn library(&self) -> PathBuf {
        self.driver_folder().join(LIBRARY)
    }

    /// The folder that holds the driver's libraries and nothing else.
    pub fn driver_folder(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// The folder in which the preloaded library finds itself under the names of the CUDA toolkit's libraries. No search
    /// path of a program's holds it.
    fn toolkit_folder(&self) -> PathBuf {
        self.driver_folder().join("toolkit")
    }

    /// A folder in which the virtual GPU lies under these names. Links and not copies: the dynamic loader takes two names
    /// of one file for one library, and two copies for two libraries with books of their own.
    ///
    /// It is a part of the runtime and not of the run: a program may outlive its run, and what it finds on its
    /// `LD_LIBRARY_PATH` then must not be what others put there.
    ///
    /// With `versions` the names whose symbols have versions are stubs that need the virtual GPU: for a program that is
    /// linked against them, to which the loader would say that they have none.
    pub(crate) fn stand_ins(&self, names: &[&str], versions: bool) -> Result<PathBuf, LaunchError> {
        let kind = if versions { "versioned" } else { "libraries" };
        let name = format!("{kind}-{}", short_hash(names));
        let links = self.folder.join(&name);
        let library = Path::new("..").join("lib").join(LIBRARY);
        let make = |folder: &Path, library: &Path| {
            let (stubs, links): (Vec<&str>, Vec<&str>) =
                names.iter().copied().partition(|name| versions && version_stub::is_versioned(name));
            link_all(folder, library, &links)?;
            stubs.into_iter().try_for_each(|name| set_file(&version_stub::stub(name), &folder.join(name)))
        };
        match make(&links, &library) {
            Ok(()) => Ok(links),
            // A shared cache may be filled and read-only.
            Err(_) => {
                let apart = lasting_folder()?.join(format!("{name}-{}", short_hash(&[&self.folder.to_string_lossy()])));
                make(&apart, &self.library()).map_err(|source| LaunchError::cache(&apart, source))?;
                Ok(apart)
            }
        }
    }

    /// A folder for `PATH` with the stand-in for `nvidia-smi` that is this executable; none where that is not oomph, or was
    /// removed. Like [`Self::stand_ins`] it is a part of the runtime, because a program may outlive its run.
    ///
    /// # Errors
    /// When it cannot be written anywhere.
    pub(crate) fn tools(&self, run: &RunFolder) -> Result<Option<PathBuf>, LaunchError> {
        let Some(executable) = crate::private::own_executable() else { return Ok(None) };
        let library = self.driver_folder().join(MANAGEMENT_LIBRARY);
        nvidia_smi::write_for(run.path(), &executable, &library)
            .map_err(|source| LaunchError::run_folder(run.path(), source))?;
        let name = format!("tools-{}", short_hash(&[&executable.to_string_lossy()]));
        let script = nvidia_smi::script(&executable, &library, None);
        let make = |folder: &Path| {
            match make_private(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            set_program(&script, &folder.join(nvidia_smi::NAME))
        };
        let ours = self.folder.join(&name);
        if make(&ours).is_ok() {
            return Ok(Some(ours));
        }
        // A shared cache may be filled and read-only.
        let apart = lasting_folder()?.join(format!("{name}-{}", short_hash(&[&self.folder.to_string_lossy()])));
        make(&apart).map_err(|source| LaunchError::cache(&apart, source))?;
        Ok(Some(apart))
    }

    /// The runtime under names that can be written in `LD_PRELOAD`: that variable has no way to quote a space or a
    /// colon, and a cache in "/home/Jane Doe" has one.
    pub(crate) fn preloadable(&self, run: &RunFolder) -> Result<Self, LaunchError> {
        let needs_quoting = |path: &Path| path.to_string_lossy().contains([' ', ':', ';', '$', '\t', '\n']);
        if !needs_quoting(&self.folder) {
            return Ok(self.clone());
        }
        // The link goes with the run where nobody else can make one of its name, and stays otherwise.
        let parent = run.path().parent();
        let place = if parent.is_some_and(only_we_write) && !needs_quoting(run.path()) {
            run.path().to_owned()
        } else {
            lasting_folder()?
        };
        if needs_quoting(&place) {
            return Ok(self.clone());
        }
        let path = place.join(format!("runtime-{}", short_hash(&[&self.folder.to_string_lossy()])));
        set_link(&self.folder, &path).map_err(|source| LaunchError::run_folder(&path, source))?;
        Ok(Self::at(path))
    }

    /// The folder for `PYTHONPATH`.
    pub fn python_folder(&self) -> PathBuf {
        self.folder.join("python")
    }
}

impl RuntimeFiles<'_> {
    /// Unpacks into the cache, or finds what an earlier run unpacked.
    ///
    /// # Errors
    /// When the cache cannot be written, its disk is full, or libraries cannot be loaded from it.
    pub fn unpack(&self, cache: &CacheDir) -> Result<Runtime, LaunchError> {
        let parent = cache.folder("runtime")?;
        if mounted_noexec(&parent) {
            return Err(LaunchError::CacheNoExec { path: parent });
        }
        let runtime = Runtime::at(parent.join(self.key()));
        if self.is_whole(&runtime) {
            // The time of the folder says when it was last used.
            lease::touch(&runtime.folder);
            return Ok(runtime);
        }

        sweep(&parent, SWEEP_AFTER);
        // Made next to its place and moved there, so that no other run ever sees a half-made folder.
        let temporary = tempfile_name(&parent);
        cleanup::register(&temporary);
        let result = self
            .write(&temporary)
            .map_err(|source| LaunchError::cache(&temporary, source))
            .and_then(|()| self.settle(&temporary, &runtime));
        cleanup::remove(&temporary);
        result.map(|()| runtime)
    }

    /// The name of the folder: the same contents give the same name.
    fn key(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(LAYOUT_VERSION.as_bytes());
        add(self.vgpu_library);
        for (name, content) in self.python {
            add(name.as_bytes());
            add(content);
        }
        hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the folder holds what an earlier run unpacked. Contents are compared, because what lies here is loaded into
    /// every program, and a file of the right size may be empty after a power failure, or another's.
    fn is_whole(&self, runtime: &Runtime) -> bool {
        let library = runtime.library();
        let is_library = |path: PathBuf| same_file(&path, &library);
        runtime.folder.join(MARKER).exists()
            && holds(&library, self.vgpu_library)
            && DRIVER_NAMES.iter().all(|name| is_library(runtime.driver_folder().join(name)))
            && LIBRARIES.iter().all(|name| is_library(runtime.toolkit_folder().join(name)))
            && self.python.iter().all(|(name, content)| holds(&runtime.python_folder().join(name), content))
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        let unfinished = Runtime::at(folder.to_owned());
        fs::create_dir_all(unfinished.toolkit_folder())?;
        fs::write(unfinished.library(), self.vgpu_library)?;
        // Links and not copies: the dynamic loader takes two names of one inode for one library, and two copies
        // for two libraries with books of their own.
        for name in DRIVER_NAMES {
            link_to(&unfinished.library(), Path::new(LIBRARY), &unfinished.driver_folder().join(name))?;
        }
        for name in LIBRARIES {
            let link = unfinished.toolkit_folder().join(name);
            link_to(&unfinished.library(), &Path::new("..").join(LIBRARY), &link)?;
        }
        for (name, content) in self.python {
            let relative = Path::new(name);
            if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("bad path in the runtime: {name}")));
            }
            let path = unfinished.python_folder().join(relative);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, content)?;
        }
        fs::create_dir_all(unfinished.python_folder())?;
        fs::write(folder.join(MARKER), LAYOUT_VERSION)
    }

    /// Moves the finished folder to its place, unless another run was faster.
    fn settle(&self, temporary: &Path, runtime: &Runtime) -> Result<(), LaunchError> {
        for _ in 0..3 {
            match fs::rename(temporary, &runtime.folder) {
                Ok(()) => return Ok(()),
                Err(_) if self.is_whole(runtime) => return Ok(()),
                // Something is there and it is damaged. It is moved away first, so that it goes all at once.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) =>
                {
                    let damaged = temporary.with_extension("damaged");
                    let _ = fs::rename(&runtime.folder, &damaged);
                    cleanup::remove_folder(&damaged);
                }
                Err(source) => return Err(LaunchError::cache(&runtime.folder, source)),
            }
        }
        let source = io::Error::other("other runs keep changing it");
        Err(LaunchError::cache(&runtime.folder, source))
    }
}

/// Whether a file has this content.
fn holds(path: &Path, content: &[u8]) -> bool {
    let compare = || -> io::Result<bool> {
        let mut rest = content;
        let mut file = File::open(path)?;
        let found = file.metadata()?;
        if !found.is_file() || found.len() != content.len() as u64 {
            return Ok(false);
        }
        let mut buffer = vec![0; content.len().clamp(1, 1 << 20)];
        loop {
            let count = file.read(&mut buffer)?;
            match (buffer.get(..count), rest.split_at_checked(count)) {
                (Some([]), _) => return Ok(rest.is_empty()),
                (Some(read), Some((expected, behind))) if read == expected => rest = behind,
                _ => return Ok(false),
            }
        }
    };
    compare().unwrap_or(false)
}

/// Whether two names lead to one file, or to files of one content where the file system knows no links.
fn same_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| fs::canonicalize(path).ok();
    match (place(one), place(other)) {
        (Some(one), Some(other)) if one == other => true,
        (Some(one), Some(_)) => fs::read(other).is_ok_and(|content| holds(&one, &content)),
        _ => false,
    }
}

/// A folder of this user's that stays, in place of one in the cache: others can make a folder of its name only where
/// it was removed by hand.
fn lasting_folder() -> Result<PathBuf, LaunchError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let temporary = [std::env::temp_dir(), PathBuf::from("/var/tmp")];
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for base in runtime.into_iter().chain(temporary) {
        #[cfg(unix)]
        let user = rustix::process::geteuid().as_raw();
        #[cfg(not(unix))]
        let user = 0;
        let path = base.join(format!("oomph-links-{user}"));
        match make_private(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => failure = error,
            _ if is_private(&path) => return Ok(path),
            _ => failure = io::ErrorKind::PermissionDenied.into(),
        }
    }
    Err(LaunchError::run_folder(std::env::temp_dir(), failure))
}

/// A folder of links to one file.
fn link_all(folder: &Path, target: &Path, names: &[&str]) -> io::Result<()> {
    match make_private(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    names.iter().try_for_each(|name| set_link(target, &folder.join(name)))
}

/// A link to `target`, unless it is there.
fn set_link(target: &Path, path: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|found| found == target) {
        return Ok(());
    }
    // Made next to its place and moved there: other runs use it.
    let temporary = path.with_extension(random_name());
    link(target, &temporary)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// A file with this content, unless it is there.
fn set_file(content: &[u8], path: &Path) -> io::Result<()> {
    if holds(path, content) {
        return Ok(());
    }
    // Made next to its place and moved there: other runs use it.
    let temporary = path.with_extension(random_name());
    fs::write(&temporary, content)?;
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// A program with this content, unless it is there.
fn set_program(content: &[u8], path: &Path) -> io::Result<()> {
    if holds(path, content) && crate::program::is_executable(path) {
        return Ok(());
    }
    let temporary = path.with_extension(random_name());
    fs::write(&temporary, content)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o700))?;
    }
    fs::rename(&temporary, path).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

fn short_hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Removes what earlier runs left half-made. One that is young may be the work of a run.
fn sweep(parent: &Path, older_than: Duration) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_temporary = entry.file_name().as_encoded_bytes().starts_with(b".tmp-");
        let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
        if is_temporary && age.is_some_and(|age| age > older_than) {
            cleanup::remove_folder(&entry.path());
        }
    }
}

/// A symbolic link where the file system knows them, else a hard one.
fn link_to(file: &Path, relative: &Path, name: &Path) -> io::Result<()> {
    link(relative, name).or_else(|_| fs::hard_link(file, name))
}

fn tempfile_name(parent: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    parent.join(format!(".tmp-{}-{number}-{now:x}", std::process::id()))
}

#[cfg(target_os = "linux")]
fn mounted_noexec(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
}

#[cfg(not(target_os = "linux"))]
fn mounted_noexec(_path: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: RuntimeFiles<'_> = RuntimeFiles {
        vgpu_library: b"library",
        python: &[("sitecustomize.py", b"import oomph"), ("oomph/__init__.py", b"")],
    };

    #[test]
    fn every_name_is_the_same_file() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let runtime = FILES.unpack(&CacheDir::at(folder.path()).unwrap()).unwrap();
        let inode = fs::metadata(runtime.library()).unwrap().ino();
        let driver = DRIVER_NAMES.iter().map(|name| runtime.driver_folder().join(name));
        for path in driver.chain(LIBRARIES.iter().map(|name| runtime.toolkit_folder().join(name))) {
            assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "{}", path.display());
        }
        assert_eq!(fs::read_dir(runtime.driver_folder()).unwrap().count(), 4);
        assert_eq!(fs::read(runtime.python_folder().join("sitecustomize.py")).unwrap(), b"import oomph");
        assert_eq!(fs::read_dir(folder.path().join("runtime")).unwrap().count(), 1, "no temporary folder is left");
    }

    #[test]
    fn damage_is_repaired_and_what_is_whole_is_reused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path()).unwrap();
        let runtime = FILES.unpack(&cache).unwrap();
        let written = || fs::metadata(runtime.folder.join(MARKER)).unwrap().modified().unwrap();
        let first = written();
        assert_eq!(FILES.unpack(&cache).unwrap(), runtime);
        assert_eq!(written(), first);
        for damage in ["lib/libcuda.so.1", "python/oomph/__init__.py", "complete"] {
            fs::remove_file(runtime.folder.join(damage)).unwrap();
            FILES.unpack(&cache).unwrap();
            assert!(FILES.is_whole(&runtime), "{damage}");
        }
        fs::write(runtime.library(), "lib").unwrap();
        FILES.unpack(&cache).unwrap();
        assert_eq!(fs::read(runtime.library()).unwrap(), b"library");
    }

    #[test]
    fn other_contents_get_another_folder() {
        let other = RuntimeFiles { vgpu_library: b"Library", ..FILES };
        assert_ne!(other.key(), FILES.key());
        let moved = RuntimeFiles { python: &[("a", b"bc")], ..FILES };
        let split = RuntimeFiles { python: &[("ab", b"c")], ..FILES };
        assert_ne!(moved.key(), split.key());
    }

    #[test]
    fn racing_runs_agree() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path()).unwrap();
        let found: Vec<Runtime> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..8).map(|_| scope.spawn(|| FILES.unpack(&cache).unwrap())).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert!(found.iter().all(|runtime| *runtime == found[0] && FILES.is_whole(runtime)));
        assert_eq!(fs::read_dir(folder.path().join("runtime")).unwrap().count(), 1);
    }

    #[test]
    fn a_path_that_leaves_the_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let hostile = RuntimeFiles { python: &[("../escape", b"")], ..FILES };
        assert!(hostile.unpack(&CacheDir::at(folder.path()).unwrap()).is_err());
    }
}

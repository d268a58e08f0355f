//! Finds the virtual environment that oomph itself was installed into.
//!
//! Who installs oomph next to torch and calls it by its path means that environment's Python, activated or not. An
//! environment that holds nothing else was made for oomph alone (`uvx`, `pipx`): the program's Python is another one then,
//! and this one serves only where there is no other.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// What every environment may hold; the packages of a program are others.
const NOBODYS: &[&str] = &["oomph", "pip", "setuptools", "wheel", "uv"];

/// A virtual environment with oomph in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    root: PathBuf,
    /// Whether it holds packages other than oomph.
    has_packages: bool,
}

impl Home {
    /// That of the running executable; `None` where it lies in no environment, or where another one is activated.
    pub(crate) fn of_this_process() -> Option<Self> {
        match std::env::var_os("VIRTUAL_ENV") {
            Some(activated) if !activated.is_empty() => None,
            _ => Self::of(&std::env::current_exe().ok()?),
        }
    }

    fn of(executable: &Path) -> Option<Self> {
        let root = executable.parent()?.parent()?;
        let settings = fs::read_to_string(root.join("pyvenv.cfg")).ok()?;
        let sees_the_systems = settings.lines().any(|line| {
            line.split_once('=').is_some_and(|(name, value)| {
                name.trim() == "include-system-site-packages" && value.trim().eq_ignore_ascii_case("true")
            })
        });
        Some(Self { root: root.to_owned(), has_packages: sees_the_systems || holds_packages(root) })
    }

    /// The root folder, where programs are to run in this environment.
    pub(crate) fn of_programs(&self) -> Option<&Path> {
        self.has_packages.then_some(self.root.as_path())
    }

    /// The folder of the environment's programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// A list of folders such as `PATH` with the environment's in its place.
    pub(crate) fn on(&self, path: Option<&OsStr>) -> Option<OsString> {
        let mut folders: Vec<_> = path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
        folders.insert(if self.has_packages { 0 } else { folders.len() }, self.bin());
        std::env::join_paths(folders).ok()
    }
}

fn holds_packages(root: &Path) -> bool {
    let folders = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    folders(&root.join("lib")).flat_map(|python| folders(&python.path().join("site-packages"))).any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let package = name.strip_suffix(".dist-info").and_then(|name| name.split('-').next());
        package.is_some_and(|package| !NOBODYS.contains(&package.to_ascii_lowercase().as_str()))
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// An environment with these packages, and these lines in its settings.
    fn home(packages: &[&str], settings: &str) -> (tempfile::TempDir, Option<Home>) {
        let root = tempfile::tempdir().unwrap();
        for package in packages {
            fs::create_dir_all(root.path().join("lib/python3.12/site-packages").join(package)).unwrap();
        }
        fs::write(root.path().join("pyvenv.cfg"), settings).unwrap();
        let home = Home::of(&root.path().join("bin/oomph"));
        (root, home)
    }

    #[test]
    fn an_environment_with_packages_comes_first() {
        let (root, home) = home(&["oomph-0.1.0.dist-info", "torch-2.15.0+cu132.dist-info"], "home = /usr/bin\n");
        let home = home.unwrap();
        let path = home.on(Some(OsStr::new("/usr/bin:/bin"))).unwrap();
        assert_eq!(path.to_str().unwrap(), format!("{}/bin:/usr/bin:/bin", root.path().display()));
        assert_eq!(home.of_programs(), Some(root.path()));
    }

    #[test]
    fn an_environment_of_oomphs_own_comes_last() {
        let (root, home) = home(&["oomph-0.1.0.dist-info", "pip-25.0.dist-info", "oomph"], "home = /usr/bin\n");
        let home = home.unwrap();
        assert_eq!(home.on(None).unwrap(), root.path().join("bin"));
        assert_eq!(home.of_programs(), None);
        assert!(home.on(Some(OsStr::new("/usr/bin"))).unwrap().to_str().unwrap().starts_with("/usr/bin:"));
    }

    #[test]
    fn packages_of_the_system_are_packages() {
        let (_root, home) = home(&["oomph-0.1.0.dist-info"], "include-system-site-packages = True\n");
        assert!(home.unwrap().of_programs().is_some());
    }

    #[test]
    fn a_folder_of_programs_is_no_environment() {
        assert_eq!(Home::of(Path::new("/usr/bin/oomph")), None);
        assert_eq!(Home::of(Path::new("oomph")), None);
    }
}

//! Finds which libraries of the CUDA toolkit a program brings along, and under which names the virtual GPU has to be
//! found.
//!
//! Most Python packages bring the toolkit as wheels of NVIDIA's, and those must stay in sight: the virtual GPU asks
//! their cuDNN. Others are linked against libraries that they expect on the machine: llama.cpp's wheels, ONNX Runtime.
//! A library that is found nowhere would end such a program before it made a single call.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{ProgramKind, PythonFacts};

/// Names that programs link against, of the toolkits 11 to 13.
pub(crate) const LIBRARIES: [&str; 23] = [
    "libcudart.so.11.0",
    "libcudart.so.12",
    "libcudart.so.13",
    "libcublas.so.11",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcublasLt.so.11",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
    "libcurand.so.10",
    "libcudnn.so.8",
    "libcudnn.so.9",
    "libcufft.so.10",
    "libcufft.so.11",
    "libcufft.so.12",
    "libcusolver.so.11",
    "libcusolver.so.12",
    "libcusparse.so.11",
    "libcusparse.so.12",
    "libcupti.so.11.8",
    "libcupti.so.12",
    "libcupti.so.13",
    "libnccl.so.2",
];

/// The libraries that a program does not bring along. Of a program that is not Python nothing is known, so it is given
/// all of them. A PyTorch for CUDA brings all that it needs: it is given none, so that a newer cuDNN that is asked in its
/// place finds its own libraries, of another toolkit.
pub fn missing(kind: &ProgramKind, python: Option<&PythonFacts>) -> Vec<&'static str> {
    if python.and_then(|python| python.torch.as_ref()).is_some_and(|torch| torch.cuda.is_some()) {
        return Vec::new();
    }
    let brought = match (kind, python) {
        (ProgramKind::Python { .. }, Some(python)) => brought(python),
        _ => BTreeSet::new(),
    };
    LIBRARIES.into_iter().filter(|name| !brought.contains(&OsString::from(name))).collect()
}

/// The files in the folders where a Python's packages have such libraries.
fn brought(python: &PythonFacts) -> BTreeSet<OsString> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(torch) = &python.torch {
        folders.push(torch.folder.join("lib"));
    }
    // NVIDIA's wheels: nvidia/cudnn/lib, nvidia/cu13/lib.
    let nvidia = python.nvidia.clone().or_else(|| Some(python.torch.as_ref()?.folder.parent()?.join("nvidia")));
    folders.extend(nvidia.iter().flat_map(|folder| entries(folder)).map(|package| package.join("lib")));
    // Conda's packages share the folder of the whole environment.
    folders.extend(python.executable.parent().and_then(Path::parent).map(|prefix| prefix.join("lib")));
    folders.iter().flat_map(|folder| entries(folder)).filter_map(|path| Some(path.file_name()?.to_owned())).collect()
}

/// A wheel of NVIDIA's in an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wheel {
    /// Its name, such as `nvidia-cudnn-cu13`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The wheels of NVIDIA's next to a Python's torch, by name.
pub fn wheels(python: &PythonFacts) -> Vec<Wheel> {
    let package = python.torch.as_ref().map(|torch| &torch.folder).or(python.nvidia.as_ref());
    let packages = package.and_then(|folder| folder.parent());
    let names = packages.into_iter().flat_map(entries).filter_map(|path| wheel(path.file_name()?.to_str()?));
    let mut wheels: Vec<Wheel> = names.collect();
    wheels.sort();
    wheels
}

fn wheel(name: &str) -> Option<Wheel> {
    let (name, version) = name.strip_suffix(".dist-info")?.rsplit_once('-')?;
    let name = name.replace('_', "-");
    name.starts_with("nvidia-").then(|| Wheel { name, version: version.to_owned() })
}

/// The toolkit's libraries that a Python's packages bring, by whether the virtual GPU knows their version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brought {
    /// Those that it answers for.
    pub known: Vec<String>,
    /// Those of a version that came after this oomph, or before what it supports.
    pub unknown: Vec<String>,
}

/// The toolkit's libraries that a Python's packages bring.
pub fn brought_by(python: &PythonFacts) -> Brought {
    let mut found = Brought::default();
    for name in brought(python).iter().filter_map(|name| name.to_str()) {
        let Some((stem, version)) = name.split_once(".so.") else { continue };
        let same = |library: &&&str| library.split_once(".so.").is_some_and(|(other, _)| other == stem);
        let known = LIBRARIES.iter().filter(same).any(|library| {
            let major = library.split_once(".so.").map_or("", |(_, major)| major);
            version == major || version.strip_prefix(major).is_some_and(|rest| rest.starts_with('.'))
        });
        if known && LIBRARIES.contains(&name) {
            found.known.push(name.to_owned());
        } else if !known && LIBRARIES.iter().any(|library| same(&library)) {
            found.unknown.push(name.to_owned());
        }
    }
    found
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TorchFacts;

    fn python(prefix: &Path, nvidia: Option<PathBuf>, torch: Option<PathBuf>) -> PythonFacts {
        PythonFacts {
            executable: prefix.join("bin/python"),
            version: "3.11.7".into(),
            torch: torch.map(|folder| TorchFacts {
                folder,
                version: String::new(),
                cuda: None,
                hip: None,
                static_runtime: None,
            }),
            nvidia,
            others: Vec::new(),
        }
    }

    fn add(file: PathBuf) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }

    #[test]
    fn what_packages_bring_is_not_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("lib/python3.11/site-packages");
        add(site.join("nvidia/cudnn/lib/libcudnn.so.9"));
        add(site.join("nvidia/cu13/lib/libcudart.so.13"));
        add(site.join("torch/lib/libnccl.so.2"));
        add(folder.path().join("lib/libcurand.so.10"));
        let kind = ProgramKind::Python { interpreter: folder.path().join("bin/python") };
        let of = |facts: &PythonFacts| missing(&kind, Some(facts));
        let bare = python(Path::new("/nowhere"), None, None);
        assert_eq!(of(&bare), LIBRARIES);

        // The wheels are searched for next to torch too, where an older oomph did not note them.
        for nvidia in [None, Some(site.join("nvidia"))] {
            let missing = of(&python(folder.path(), nvidia, Some(site.join("torch"))));
            for name in ["libcudnn.so.9", "libcudart.so.13", "libnccl.so.2", "libcurand.so.10"] {
                assert!(!missing.contains(&name), "{name}");
            }
            assert!(missing.contains(&"libcudart.so.12"));
        }
    }

    #[test]
    fn versions_that_are_not_known_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("lib/python3.11/site-packages");
        for name in
            ["libcudart.so.13", "libcudart.so.13.2.51", "libcudart.so.99", "libcudnn_ops.so.9", "libcufile.so.0"]
        {
            add(site.join("nvidia/cu13/lib").join(name));
        }
        add(site.join("nvidia_cudnn_cu13-9.26.0.51.dist-info/METADATA"));
        add(site.join("torch-2.15.0.dist-info/METADATA"));
        let facts = python(folder.path(), Some(site.join("nvidia")), Some(site.join("torch")));
        let found = brought_by(&facts);
        assert_eq!((found.known, found.unknown), (vec!["libcudart.so.13".into()], vec!["libcudart.so.99".into()]));
        let cudnn = Wheel { name: "nvidia-cudnn-cu13".into(), version: "9.26.0.51".into() };
        assert_eq!(wheels(&facts), [cudnn]);
    }

    #[test]
    fn a_torch_for_cuda_is_given_none() {
        let mut facts = python(Path::new("/nowhere"), None, Some(PathBuf::from("/nowhere/torch")));
        let kind = ProgramKind::Python { interpreter: PathBuf::from("/nowhere/bin/python") };
        assert_eq!(missing(&kind, Some(&facts)), LIBRARIES);
        facts.torch.as_mut().unwrap().cuda = Some("12.4".into());
        assert!(missing(&kind, Some(&facts)).is_empty());
    }

    #[test]
    fn a_program_of_machine_code_is_given_all() {
        assert_eq!(missing(&ProgramKind::Binary, None), LIBRARIES);
        assert_eq!(missing(&ProgramKind::Other, None), LIBRARIES);
    }
}

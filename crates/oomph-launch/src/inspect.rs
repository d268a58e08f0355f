//! Finds out what a program will run with, without running it: which Python, which torch, which CUDA runtime.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::elf::{self, Linkage};
use crate::{LaunchError, ProgramKind};

/// Asks an interpreter about itself. `find_spec` of a top-level name locates a package without importing it.
const QUESTION: &str = r#"
import importlib.util, json, platform, sys
def place(name):
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        return None
    if spec is None:
        return None
    return spec.origin or (list(spec.submodule_search_locations or []) or [""])[0]
# The last ones bring CUDA itself: what uses it may be a program that Python only starts.
names = ("torch", "tensorflow", "jax", "onnxruntime", "cupy", "mxnet", "paddle", "llama_cpp", "cyllama", "ctranslate2",
         "xgboost", "lightgbm", "catboost", "faiss", "cudf", "cuml", "tinygrad", "numba", "pycuda", "cuda", "nvidia")
print("\noomph-facts:" + json.dumps({
    "executable": sys.executable,
    "base": getattr(sys, "_base_executable", None) or sys.executable,
    "version": platform.python_version(),
    "implementation": sys.implementation.name,
    "has_venv": bool(place("venv") and place("ensurepip")),
    "packages": {name: found for name in names for found in [place(name)] if found is not None},
}))
"#;

/// What an interpreter says about itself.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Answer {
    pub(crate) executable: PathBuf,
    /// The interpreter below all virtual environments.
    pub(crate) base: PathBuf,
    pub(crate) version: String,
    pub(crate) implementation: String,
    pub(crate) has_venv: bool,
    packages: std::collections::BTreeMap<String, PathBuf>,
}

/// Asks an interpreter about itself, with the environment and the folder that the program will have.
pub(crate) fn ask(python: &Path, directory: &Path) -> Result<Answer, LaunchError> {
    let broken = |reason: String| LaunchError::BrokenPython { python: python.to_owned(), reason };
    let mut command = Command::new(python);
    command.args(["-c", QUESTION]).current_dir(directory).stdin(Stdio::null());
    // The answer must not depend on what an earlier supervised run left in our own environment.
    command.env_remove("LD_PRELOAD").env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().map_err(|error| broken(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A sitecustomize may print what it likes; ours is the last line of that form.
    let answer = text.lines().rev().find_map(|line| line.strip_prefix("oomph-facts:"));
    match answer {
        Some(answer) => serde_json::from_str(answer).map_err(|error| broken(error.to_string())),
        None => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
            Err(broken(last.map_or_else(|| format!("it ended with {}", output.status), |line| line.trim().to_owned())))
        }
    }
}

/// A Python and what it has for GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonFacts {
    /// The interpreter, as it calls itself.
    pub executable: PathBuf,
    /// Its version, such as `3.11.7`.
    pub version: String,
    /// Its torch.
    pub torch: Option<TorchFacts>,
    /// The folder of NVIDIA's wheels, which hold the CUDA toolkit's libraries.
    #[serde(default)]
    pub nvidia: Option<PathBuf>,
    /// Other packages that use GPUs: `jax`, `tensorflow`, ...
    pub others: Vec<String>,
}

/// An installed torch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TorchFacts {
    /// The folder of the package.
    pub folder: PathBuf,
    /// Its version, such as `2.15.0+cu132`; empty when the package does not say.
    pub version: String,
    /// The CUDA version that it was built for.
    pub cuda: Option<String>,
    /// The ROCm version that it was built for.
    pub hip: Option<String>,
    /// The library of it that carries a CUDA runtime of its own.
    pub static_runtime: Option<PathBuf>,
}

impl PythonFacts {
    /// Looks at a Python: starts it once, imports nothing.
    ///
    /// # Errors
    /// When it does not work.
    pub fn of(python: &Path, directory: &Path) -> Result<Self, LaunchError> {
        Ok(Self::from_answer(&ask(python, directory)?))
    }

    pub(crate) fn from_answer(answer: &Answer) -> Self {
        let torch = answer.packages.get("torch").and_then(|origin| {
            // A folder that happens to be called torch has no __init__.py, and so no file as its origin.
            origin.file_name().filter(|name| *name == OsStr::new("__init__.py"))?;
            TorchFacts::of(origin.parent()?)
        });
        let others = answer.packages.keys().filter(|name| *name != "torch").cloned().collect();
        Self {
            executable: answer.executable.clone(),
            version: answer.version.clone(),
            torch,
            nvidia: answer.packages.get("nvidia").cloned(),
            others,
        }
    }

    /// What will keep a program of this Python from using the virtual GPU.
    pub fn problem(&self) -> Option<Problem> {
        let python = self.executable.clone();
        let Some(torch) = &self.torch else {
            return self.others.is_empty().then_some(Problem::NoTorch { python });
        };
        let version = torch.version.clone();
        if torch.hip.is_some() {
            Some(Problem::RocmTorch { python, version })
        } else if torch.cuda.is_none() {
            Some(Problem::CpuTorch { python, version })
        } else {
            torch.static_runtime.clone().map(|library| Problem::StaticRuntimeTorch { python, version, library })
        }
    }
}

impl TorchFacts {
    fn of(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("version.py")).ok()?;
        let library = folder.join("lib").join("libc10_cuda.so");
        let is_static = Linkage::read(&library).is_some_and(|linkage| linkage.has_static_runtime());
        Some(Self {
            folder: folder.to_owned(),
            version: assigned(&text, "__version__").unwrap_or_default(),
            cuda: assigned(&text, "cuda"),
            hip: assigned(&text, "hip"),
            static_runtime: is_static.then_some(library),
        })
    }
}

/// The text that a line such as `cuda: Optional[str] = '13.2'` assigns; `None` for Python's `None` too.
fn assigned(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start();
        let (annotation, value) = rest.split_once('=')?;
        (annotation.trim().is_empty() || annotation.starts_with(':')).then(|| value.trim())
    })?;
    let quote = value.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    value[1..].split(quote).next().map(str::to_owned)
}

/// Why a program will not see the virtual GPU, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No torch, and nothing else that uses GPUs.
    #[error(
        "the Python at {} has no torch; add --with torch, activate the environment that has it, or, for a script that \
         only starts other programs, run sh -c '...'",
        python.display()
    )]
    NoTorch {
        /// The interpreter.
        python: PathBuf,
    },
    /// A torch that was built without CUDA.
    #[error(
        "torch {version} of the Python at {} is a CPU build; add --with torch, or install a CUDA build (no GPU is needed for that)",
        python.display()
    )]
    CpuTorch {
        /// The interpreter.
        python: PathBuf,
        /// The version of torch.
        version: String,
    },
    /// A torch for AMD's GPUs.
    #[error(
        "torch {version} of the Python at {} is a ROCm build, and the virtual GPU is one of NVIDIA's; add --with torch, or install a CUDA build",
        python.display()
    )]
    RocmTorch {
        /// The interpreter.
        python: PathBuf,
        /// The version of torch.
        version: String,
    },
    /// A torch that cannot be given another CUDA runtime.
    #[error(
        "torch {version} of the Python at {} has the CUDA runtime linked in statically ({}), so its CUDA calls do not reach the virtual GPU; use torch 2.0 or newer",
        python.display(),
        library.display()
    )]
    StaticRuntimeTorch {
        /// The interpreter.
        python: PathBuf,
        /// The version of torch.
        version: String,
        /// The library.
        library: PathBuf,
    },
    /// A program that cannot be given another CUDA runtime.
    #[error(
        "{} has the CUDA runtime linked in statically, so its CUDA calls do not reach the virtual GPU; link it dynamically: `nvcc --cudart shared`, or CMake -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared",
        file.display()
    )]
    StaticRuntimeProgram {
        /// The program, or the library of it that carries the runtime.
        file: PathBuf,
    },
}

/// What will keep a program from using the virtual GPU, with the facts about its Python where it is a Python program.
/// A Python that does not even answer is left alone: it says what is wrong with it when it is started.
pub fn inspect(program: &Path, kind: &ProgramKind, directory: &Path) -> (Option<PythonFacts>, Option<Problem>) {
    match kind {
        ProgramKind::Python { interpreter } => {
            let facts = PythonFacts::of(interpreter, directory).ok();
            let problem = facts.as_ref().and_then(PythonFacts::problem);
            (facts, problem)
        }
        ProgramKind::Binary => {
            (None, elf::find_static_runtime(program).map(|file| Problem::StaticRuntimeProgram { file }))
        }
        ProgramKind::Other => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder for PYTHONPATH with a torch whose version.py reads so.
    fn torch(version: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("torch");
        fs::create_dir(&package).unwrap();
        fs::write(package.join("__init__.py"), "raise RuntimeError('torch was imported')").unwrap();
        fs::write(package.join("version.py"), version).unwrap();
        folder
    }

    fn facts(origin: Option<PathBuf>, other: &[&str]) -> PythonFacts {
        let mut packages: std::collections::BTreeMap<_, _> =
            other.iter().map(|name| ((*name).to_owned(), PathBuf::new())).collect();
        packages.extend(origin.map(|origin| ("torch".to_owned(), origin)));
        PythonFacts::from_answer(&Answer {
            executable: "/p/bin/python".into(),
            base: "/usr/bin/python3".into(),
            version: "3.11.7".into(),
            implementation: "cpython".into(),
            has_venv: true,
            packages,
        })
    }

    fn problem_of(version: &str) -> Option<Problem> {
        let folder = torch(version);
        facts(Some(folder.path().join("torch/__init__.py")), &[]).problem()
    }

    #[test]
    fn builds_of_torch_are_distinguished() {
        let cuda = "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\nhip: Optional[str] = None\n";
        assert_eq!(problem_of(cuda), None);
        let cpu = problem_of(
            "__version__ = '2.15.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
        );
        let text = cpu.unwrap().to_string();
        assert!(text.contains("2.15.0+cpu") && text.contains("CPU build") && !text.contains('\n'), "{text}");
        let rocm =
            problem_of("__version__ = '2.6.0+rocm6.2'\ncuda: Optional[str] = None\nhip: Optional[str] = '6.2'\n");
        assert!(matches!(rocm, Some(Problem::RocmTorch { .. })));
        // The style of torch 1.x.
        assert_eq!(problem_of("__version__ = '1.9.0'\ncuda = '11.1'\nhip = None\n"), None);
    }

    #[test]
    fn a_torch_with_a_runtime_of_its_own_is_named_with_its_library() {
        let folder = torch("__version__ = '1.13.1+cu117'\ncuda = '11.7'\n");
        let library = folder.path().join("torch/lib/libc10_cuda.so");
        fs::create_dir(folder.path().join("torch/lib")).unwrap();
        let source = folder.path().join("runtime.c");
        fs::write(&source, r#"const char *volatile mark = "/cudart.shm.%x.%x.%llx";"#).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
        if !compiler.status().is_ok_and(|status| status.success()) {
            eprintln!("passed over: there is no C compiler");
            return;
        }
        let problem = facts(Some(folder.path().join("torch/__init__.py")), &[]).problem().unwrap();
        assert!(matches!(problem, Problem::StaticRuntimeTorch { .. }), "{problem}");
        let text = problem.to_string();
        assert!(text.contains("1.13.1+cu117") && text.contains("libc10_cuda.so") && !text.contains('\n'), "{text}");
    }

    #[test]
    fn no_torch_is_a_problem_only_when_nothing_else_uses_gpus() {
        assert!(matches!(facts(None, &[]).problem(), Some(Problem::NoTorch { .. })));
        assert_eq!(facts(None, &["jax"]).problem(), None);
        // A folder named torch next to the script is not PyTorch.
        assert!(matches!(facts(Some("/cwd/torch".into()), &[]).problem(), Some(Problem::NoTorch { .. })));
    }

    #[test]
    fn a_real_python_answers_without_importing_torch() {
        let folder = torch("__version__ = '9.9'\ncuda = '13.0'\n");
        let Some(python) =
            crate::find_program(OsStr::new("python3"), Path::new("/"), std::env::var_os("PATH").as_deref())
        else {
            return;
        };
        let found = PythonFacts::of(&python, folder.path()).unwrap();
        let torch = found.torch.unwrap();
        assert_eq!((torch.version.as_str(), torch.cuda.as_deref()), ("9.9", Some("13.0")));
        assert!(found.version.starts_with("3."));
    }

    #[test]
    fn a_python_that_does_not_work_is_named() {
        let error = PythonFacts::of(Path::new("/bin/false"), Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("/bin/false") && !error.contains('\n'), "{error}");
    }
}

//! Inspects the Python that would run, its torch, and its parts of the CUDA toolkit.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use oomph_launch::{ProgramKind, PythonFacts, brought_by, find_program, inspect::inspect, installer_of, wheels};
use oomph_report::{Check, CheckState};

use super::{less, well};

/// Wheels that are named; the toolkit's main parts come first by name anyway.
const MOST_WHEELS: usize = 16;

/// Adds the checks of a Python, and gives its path where programs can be run with it.
pub fn checks(named: Option<&Path>, checks: &mut Vec<Check>) -> Option<PathBuf> {
    let directory = std::env::current_dir().unwrap_or_default();
    let path = std::env::var_os("PATH");
    let find = |name: &str| find_program(OsStr::new(name), &directory, path.as_deref());
    let found = match named {
        Some(named) => find_program(named.as_os_str(), &directory, path.as_deref()),
        None => find("python").or_else(|| find("python3")),
    };
    let Some(python) = found else {
        let found = named.map_or_else(|| "no python on PATH".into(), |path| format!("no program {}", path.display()));
        let why = "dry runs of Python programs need a Python; other programs can be run without";
        checks.push(less(
            "python",
            CheckState::Broken,
            found,
            why,
            "install Python 3.9 or newer, or activate an environment",
        ));
        return None;
    };
    let kind = ProgramKind::Python { interpreter: python.clone() };
    let (facts, problem) = inspect(&python, &kind, &directory);
    let Some(facts) = facts else {
        let found = format!("{} does not answer", python.display());
        let why = "it does not run a line of Python";
        checks.push(less("python", CheckState::Broken, found, why, "run it by hand to see its own message"));
        return None;
    };
    checks.push(well("python", format!("Python {} at {}", facts.version, facts.executable.display())));
    let installer = installer_of(&python, &directory);
    checks.push(torch(&facts, problem.as_ref().map(ToString::to_string)));
    if facts.torch.is_some() || facts.nvidia.is_some() {
        checks.extend(toolkit(&facts));
    }
    checks.push(match installer {
        Ok(name) => well("installer", format!("{name} makes the environments of --with")),
        Err(error) => less(
            "installer",
            CheckState::Limited,
            "--with does not work",
            error.to_string(),
            "install uv, or python3-venv",
        ),
    });
    problem.is_none().then_some(python)
}

fn torch(facts: &PythonFacts, problem: Option<String>) -> Check {
    let others = facts.others.iter().filter(|name| !["nvidia", "cuda"].contains(&name.as_str()));
    let others: Vec<&str> = others.map(String::as_str).collect();
    let found = match &facts.torch {
        Some(torch) => {
            let built = torch.cuda.as_ref().map(|cuda| format!(", built for CUDA {cuda}")).unwrap_or_default();
            let also = if others.is_empty() { String::new() } else { format!("; also {}", others.join(", ")) };
            format!("torch {}{built}{also}", torch.version)
        }
        None if others.is_empty() => "no torch".to_owned(),
        None => format!("no torch, but {}", others.join(", ")),
    };
    match problem {
        None => well("torch", found),
        Some(problem) => {
            // The message is of the form "what is wrong; what to do".
            let (why, todo) = problem.split_once("; ").unwrap_or((&problem, ""));
            less("torch", CheckState::Broken, found, why, todo)
        }
    }
}

fn toolkit(facts: &PythonFacts) -> Vec<Check> {
    let wheels = wheels(facts);
    let mut named: Vec<String> =
        wheels.iter().take(MOST_WHEELS).map(|wheel| format!("{} {}", wheel.name, wheel.version)).collect();
    if wheels.len() > MOST_WHEELS {
        named.push(format!("and {} more", wheels.len() - MOST_WHEELS));
    }
    let mut checks = Vec::new();
    checks.push(if named.is_empty() {
        Check {
            id: "cuda-wheels".into(),
            state: CheckState::Absent,
            found: "no wheels of NVIDIA's; torch brings the libraries itself".into(),
            why: None,
            todo: None,
        }
    } else {
        well("cuda-wheels", named.join(", "))
    });
    let brought = brought_by(facts);
    let answered = if brought.known.is_empty() {
        "it brings none; the virtual GPU replaces all of them".to_owned()
    } else {
        format!("the virtual GPU answers for {}", brought.known.join(", "))
    };
    checks.push(if brought.unknown.is_empty() {
        well("cuda-libraries", answered)
    } else {
        let why = format!("not known to this oomph: {}", brought.unknown.join(", "));
        let todo = "use a newer oomph, or a PyTorch built for CUDA 11 to 13";
        less("cuda-libraries", CheckState::Limited, answered, why, todo)
    });
    checks
}

//! Jobs that run a sweep elsewhere: a job array of Slurm, an indexed Job of Kubernetes, tasks of Ray.
//!
//! Each task runs `oomph sweep --cell FIRST-LAST FILE` in the file's folder, which all tasks must see, and leaves its
//! answers in FILE.sweep. The scripts name the matrix, so that a task of an outdated job refuses to run other cells.

mod kubernetes;
mod ray;
mod slurm;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::Sweep;
use super::cells::matrix_name;
use crate::cli::{JobOptions, Scheduler};
use crate::output;
use crate::shell_words::quoted;

/// Cells of a task where nobody says: their imports are shared, and a task that is lost costs no more than these.
const PER_TASK: usize = 8;

/// With fewer tasks than this, tasks have fewer cells.
const LEAST_TASKS: usize = 16;

/// What all jobs have in common.
struct Job {
    /// The program oomph, as an absolute path.
    oomph: String,
    /// The folder of the file.
    folder: String,
    /// The file's name in it.
    file: String,
    /// The matrix's name.
    matrix: String,
    /// A name for the job: letters, digits and dashes.
    name: String,
    /// How many cells there are.
    cells: usize,
    /// How many a task runs.
    per_task: usize,
    /// How many tasks run at a time; `None` where nobody says.
    parallel: Option<usize>,
}

impl Job {
    fn tasks(&self) -> usize {
        self.cells.div_ceil(self.per_task)
    }
}

/// Writes a job.
///
/// # Errors
/// When the folder cannot be written, or a script cannot name a place.
pub fn job(sweep: &Sweep, options: &JobOptions, typed: &Path) -> Result<()> {
    let cells = sweep.cells.len();
    let text = |path: &Path| -> Result<String> {
        let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
        Ok(text.with_context(|| format!("{} is not plain text, so no script can name it", path.display()))?.to_owned())
    };
    let file = sweep.path.file_name().map(Path::new).unwrap_or(&sweep.path);
    let job = Job {
        oomph: text(&std::env::current_exe().context("cannot find oomph itself")?)?,
        folder: text(&sweep.folder)?,
        file: text(file)?,
        matrix: matrix_name(&sweep.cells),
        name: name_of(file),
        cells,
        per_task: options.per_task.unwrap_or_else(|| PER_TASK.min(cells.div_ceil(LEAST_TASKS)).max(1)),
        parallel: options.parallel,
    };
    let folder = &options.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = fs::canonicalize(folder).with_context(|| format!("cannot find {}", folder.display()))?;
    // The tasks leave their answers here, and a folder that is there already can be looked at while they run.
    sweep.store.make()?;
    let (name, body, command) = match &options.scheduler {
        Scheduler::Slurm => ("sweep.sbatch", slurm::script(&job, &text(&folder)?)?, "sbatch"),
        Scheduler::Kubernetes { image, claim } => {
            ("job.yaml", kubernetes::manifest(&job, (image, claim)), "kubectl apply -f")
        }
        Scheduler::Ray => ("sweep_ray.py", ray::script(&job), "python"),
    };
    let path = folder.join(name);
    output::replace(&path, |file| file.write_all(body.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))?;
    let file = quoted(&text(typed)?);
    output::data(&format!(
        "{}: {cells} cells in {} tasks\n\nrun it:\n  {command} {}\n\nsee how far it is, then the table:\n  oomph sweep {file} --collect\n",
        path.display(),
        job.tasks(),
        quoted(&text(&path)?),
    ))
}

/// A name for a job: what DNS allows.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let plain: String = stem.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let plain = plain.trim_matches('-');
    let cut: String = plain.chars().take(40).collect();
    let name = format!("oomph-{}", cut.trim_matches('-'));
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(folder: &str) -> Job {
        Job {
            oomph: "/opt/oomph".into(),
            folder: folder.into(),
            file: "my sweep.yaml".into(),
            matrix: "0123456789ab".into(),
            name: name_of(Path::new("my sweep.yaml")),
            cells: 203,
            per_task: 8,
            parallel: Some(20),
        }
    }

    #[test]
    fn names_are_those_of_dns() {
        for (file, name) in [("my sweep.yaml", "oomph-my-sweep"), ("___.yaml", "oomph"), ("Ä1.yaml", "oomph-1")] {
            assert_eq!(name_of(Path::new(file)), name);
        }
        assert!(name_of(Path::new(&"a".repeat(300))).len() <= 63);
    }

    #[test]
    fn a_job_array_has_a_task_for_every_cell() {
        let script = slurm::script(&job("/home/a user"), "/home/a user/jobs").unwrap();
        assert!(script.contains("#SBATCH --array=0-25%20\n"), "{script}");
        assert!(script.contains("cd '/home/a user'"), "{script}");
        assert!(script.contains("'my sweep.yaml'"), "{script}");
        // A directive has no quotes, and Slurm would take the rest for another word.
        assert!(
            script.contains("--output=/home/a\\ user/jobs") || script.contains("--output=\"/home/a user/jobs"),
            "{script}"
        );
    }

    #[test]
    fn a_manifest_is_yaml_and_an_indexed_job() {
        use saphyr::{LoadableYamlNode as _, Yaml};
        let text = kubernetes::manifest(&job("/work/it's: {here}"), ("me/train:1", "claim"));
        let documents = Yaml::load_from_str(&text).unwrap();
        let spec = &documents[0]["spec"];
        assert_eq!(spec["completionMode"].as_str(), Some("Indexed"));
        assert_eq!((spec["completions"].as_integer(), spec["parallelism"].as_integer()), (Some(26), Some(20)));
        let container = &spec["template"]["spec"]["containers"][0];
        assert_eq!(container["workingDir"].as_str(), Some("/work/it's: {here}"));
        let script = container["command"][2].as_str().unwrap();
        assert!(script.contains("JOB_COMPLETION_INDEX") && script.contains("--matrix 0123456789ab"), "{script}");
    }

    #[test]
    fn a_script_of_ray_quotes_for_python() {
        let script = ray::script(&job("/work/it's \"here\"\\"));
        assert!(script.contains(r#"FOLDER = "/work/it's \"here\"\\""#), "{script}");
        assert!(script.contains("CELLS = 203") && script.contains("PER_TASK = 8"), "{script}");
    }
}

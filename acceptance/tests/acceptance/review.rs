//! Tests the GitHub Action, its steps run one by one as a runner runs them, on a repository with a branch that needs
//! more memory; and the pre-commit hook.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::TORCH_2_15;

const PROGRAM: &str = "\
import torch

BATCH = 4096


def main():
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)]).cuda()
    for step in range(3):
        batch = torch.randn(BATCH, 4096, device=\"cuda\")
        model(batch).sum().backward()
        model.zero_grad()


main()
";

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}"))))
    };
    vec![
        trial("review::a_branch_that_grows", a_branch_that_grows),
        trial("review::the_hook_is_a_command", the_hook_is_a_command),
    ]
}

/// A repository in which the Action runs.
struct Repository {
    folder: tempfile::TempDir,
    inputs: BTreeMap<&'static str, String>,
}

/// What the steps of the Action left.
struct Job {
    status: bool,
    log: String,
    summary: String,
    reports: PathBuf,
}

impl Repository {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("src"))?;
        fs::write(folder.path().join("src/train.py"), PROGRAM)?;
        let quoted: Vec<String> = TORCH_2_15.requirements.lines().map(|line| format!("--with '{line}'")).collect();
        let inputs = BTreeMap::from([
            ("command", "python src/train.py".to_owned()),
            ("gpus", "rtx-3060\nrtx-4090".to_owned()),
            ("options", quoted.join(" ")),
            ("working-directory", ".".to_owned()),
            ("oomph", binary::oomph().display().to_string()),
        ]);
        let repository = Self { folder, inputs };
        repository.git(&["init", "--quiet", "--initial-branch", "main"])?;
        repository.commit("a program")?;
        Ok(repository)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn git(&self, words: &[&str]) -> Result<()> {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").args(identity).args(words).current_dir(self.path()).output()?;
        ensure!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn commit(&self, message: &str) -> Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", message])
    }

    /// Runs the steps of the Action as a runner does: each `run` in bash with `-e` and `pipefail`, its `env` filled in.
    fn act(&self) -> Result<Job> {
        let temporary = tempfile::tempdir()?;
        let place = |name: &str| temporary.path().join(name);
        let mut outputs = String::new();
        let (mut log, mut status) = (String::new(), true);
        for step in steps(&fs::read_to_string(binary::root().join("action.yml"))?) {
            if step.condition.as_deref() == Some("${{ inputs.oomph == '' }}") {
                continue;
            }
            ensure!(step.condition.is_none(), "a condition that this test does not know: {:?}", step.condition);
            let mut command = Command::new("bash");
            command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", &step.run]).current_dir(self.path());
            for (name, value) in &step.environment {
                command.env(name, self.filled(value, &outputs)?);
            }
            command.env("GITHUB_OUTPUT", place("output")).env("GITHUB_STEP_SUMMARY", place("summary.md"));
            command.env("GITHUB_WORKSPACE", self.path()).env("RUNNER_TEMP", temporary.path()).env("COLUMNS", "100");
            let Output { status: ended, stdout, stderr } = command.output()?;
            log += &String::from_utf8_lossy(&stdout);
            log += &String::from_utf8_lossy(&stderr);
            outputs = fs::read_to_string(place("output")).unwrap_or_default();
            if !ended.success() {
                status = false;
                break;
            }
        }
        let reports = outputs.lines().find_map(|line| line.strip_prefix("reports=")).context("no reports")?.into();
        let summary = fs::read_to_string(place("summary.md")).unwrap_or_default();
        // The reports are looked at after the job.
        let _ = temporary.keep();
        Ok(Job { status, log, summary, reports })
    }

    /// A value of the Action with its expressions filled in.
    fn filled(&self, value: &str, outputs: &str) -> Result<String> {
        let Some(expression) = value.strip_prefix("${{ ").and_then(|rest| rest.strip_suffix(" }}")) else {
            return Ok(value.to_owned());
        };
        if let Some(name) = expression.strip_prefix("steps.dry-runs.outputs.") {
            let found = outputs.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
            return Ok(found.unwrap_or_default().to_owned());
        }
        let (name, default) = expression.split_once(" || ").unwrap_or((expression, "''"));
        let name = name.strip_prefix("inputs.").with_context(|| format!("an expression: {expression}"))?;
        let given = self.inputs.get(name).cloned().unwrap_or_default();
        Ok(if given.is_empty() { default.trim_matches('\'').to_owned() } else { given })
    }
}

/// A step of a composite action.
#[derive(Default)]
struct Step {
    condition: Option<String>,
    environment: Vec<(String, String)>,
    run: String,
}

/// The steps of the Action. Its form is our own, so that lines and their indent are enough.
fn steps(action: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut in_steps, mut part) = (false, "");
    for line in action.lines() {
        if line.trim_end() == "  steps:" {
            in_steps = true;
        } else if in_steps {
            if line.starts_with("    - ") {
                steps.push(Step::default());
                part = "";
            }
            let Some(step) = steps.last_mut() else { continue };
            match (line.strip_prefix("      "), part) {
                (Some(rest), "run") if rest.starts_with("  ") || rest.is_empty() => {
                    step.run += &format!("{}\n", rest.trim_start_matches("  "))
                }
                (Some(rest), "env") if rest.starts_with("  ") => {
                    step.environment
                        .extend(rest.trim().split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())));
                }
                (Some("run: |"), _) => part = "run",
                (Some("env:"), _) => part = "env",
                (Some(rest), _) => {
                    part = "";
                    if let Some(condition) = rest.strip_prefix("if: ") {
                        step.condition = Some(condition.to_owned());
                    } else if let Some(run) = rest.strip_prefix("run: ") {
                        step.run = run.to_owned();
                    }
                }
                (None, _) => {}
            }
        }
    }
    steps
}

/// Without growth the job passes; a branch with a larger batch fails it, and says where and by how much; the baseline that is
/// written on the branch passes again.
fn a_branch_that_grows() -> Result<()> {
    let mut repository = Repository::new()?;
    // The first job has nothing to compare with; what it found becomes the baseline.
    let first = repository.act()?;
    ensure!(first.status, "{}", first.log);
    let root = repository.path().to_owned();
    let write = |job: &Job| {
        let reports: Vec<PathBuf> =
            ["rtx-3060", "rtx-4090"].iter().map(|gpu| job.reports.join(format!("{gpu}.json"))).collect();
        let mut command = Command::new(binary::oomph());
        command.arg("check").args(&reports).args(["--write-baseline", "memory.json"]).current_dir(&root).output()
    };
    let written = write(&first)?;
    ensure!(written.status.success(), "{written:?}");
    repository.commit("a baseline")?;
    let baseline: Value = serde_json::from_slice(&fs::read(repository.path().join("memory.json"))?)?;
    ensure!(baseline["schema"] == "oomph.baseline/1" && baseline.to_string().len() < 4096, "{baseline}");
    repository.inputs.extend([("baseline", "memory.json".to_owned()), ("max-growth", "5%".to_owned())]);
    let same = repository.act()?;
    ensure!(same.status && !same.log.contains("::error"), "{}", same.log);
    ensure!(same.summary.contains("| rtx-3060 | fits |"), "{}", same.summary);

    repository.git(&["checkout", "--quiet", "-b", "larger"])?;
    let path = repository.path().join("src/train.py");
    fs::write(&path, PROGRAM.replace("BATCH = 4096", "BATCH = 32768"))?;
    repository.commit("a larger batch")?;
    let grown = repository.act()?;
    ensure!(!grown.status, "the job passed: {}", grown.log);
    let annotations: Vec<&str> = grown.log.lines().filter(|line| line.starts_with("::error ")).collect();
    ensure!(annotations.len() == 2, "{}", grown.log);
    for annotation in &annotations {
        let line = annotation.split_once("file=src/train.py,line=").and_then(|(_, rest)| rest.split(',').next());
        let line: usize = line.and_then(|line| line.parse().ok()).with_context(|| format!("no line: {annotation}"))?;
        let text = fs::read_to_string(&path)?.lines().nth(line - 1).unwrap_or_default().trim().to_owned();
        ensure!(text.starts_with("model(batch)") || text.starts_with("batch ="), "{annotation} names `{text}`");
        ensure!(annotation.contains("GiB more"), "{annotation}");
    }
    // What the summary says was measured: it is the difference of the two reports.
    let need = |job: &Job| -> Result<u64> {
        let report: Value = serde_json::from_slice(&fs::read(job.reports.join("rtx-4090.json"))?)?;
        report["devices"][0]["needed"]["process_bytes"]
            .as_u64()
            .or_else(|| report["devices"][0]["peak"]["process_bytes"].as_u64())
            .context("no need")
    };
    let more = (need(&grown)? - need(&same)?) as f64 / f64::from(1 << 30);
    ensure!(grown.summary.contains(&format!("{more:.2} GiB more than before")), "{more:.2}: {}", grown.summary);
    ensure!(grown.summary.contains("**not passed**") && grown.summary.contains("`src/train.py:"), "{}", grown.summary);
    let sarif: Value = serde_json::from_slice(&fs::read(grown.reports.join("oomph.sarif"))?)?;
    ensure!(sarif["runs"][0]["results"].as_array().map(Vec::len) == Some(2), "{sarif}");
    let junit = fs::read_to_string(grown.reports.join("oomph.xml"))?;
    ensure!(junit.contains("tests=\"2\" failures=\"2\""), "{junit}");

    ensure!(write(&grown)?.status.code().is_some(), "the baseline cannot be written");
    let after = repository.act()?;
    ensure!(after.summary.contains("as before"), "{}", after.summary);
    Ok(())
}

/// The hook's entry with a repository's arguments is a command that fails where the program does not fit.
fn the_hook_is_a_command() -> Result<()> {
    let hooks = fs::read_to_string(binary::root().join(".pre-commit-hooks.yaml"))?;
    let entry = hooks.lines().find_map(|line| line.trim().strip_prefix("entry: oomph ")).context("no entry")?;
    let repository = Repository::new()?;
    for (batch, status) in [("BATCH = 4096", 0), ("BATCH = 131072", 1)] {
        fs::write(repository.path().join("src/train.py"), PROGRAM.replace("BATCH = 4096", batch))?;
        let mut command = Command::new(binary::oomph());
        command.args(entry.split(' ')).args(["--gpu", "rtx-3060"]).current_dir(repository.path());
        for requirement in TORCH_2_15.requirements.lines() {
            command.args(["--with", requirement]);
        }
        let output = command.args(["--", "python", "src/train.py"]).output()?;
        ensure!(output.status.code() == Some(status), "{batch}: {output:?}");
    }
    Ok(())
}

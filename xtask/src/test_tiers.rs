//! Runs the tests and adds them up: those of the workspace, or more.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Asks the acceptance tests for those of a tier (`acceptance/tests/acceptance/tiers.rs`).
const TESTS: &str = "OOMPH_TESTS";

/// The program that is a workspace of its own.
const FLEET: &str = "crates/oomph-fleet/Cargo.toml";

/// What cargo sets for xtask when it runs it, in addition to `CARGO_PKG_*`.
const OF_XTASK: &[&str] = &[
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_MANIFEST_LINKS",
    "CARGO_CRATE_NAME",
    "CARGO_BIN_NAME",
    "OUT_DIR",
];

/// For which the program is compiled and not run.
const OTHER_PLATFORMS: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// How many of the slowest tests, and of the slowest programs of tests, the totals name.
const SLOWEST: usize = 10;

/// What the Python package's tests are run with.
const REQUIREMENTS: &str = "acceptance/requirements/torch-2.15.txt";

/// How much is run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The workspace, with a program or two for each capability.
    Short,
    /// The workspace and the Python package, without the programs that CI has no time for.
    Ci,
    /// Everything, with lints of what only a release needs.
    All,
}

/// Runs the tests, prints what they print and their totals.
///
/// # Errors
/// When a test fails, or cannot be built or started.
pub fn run(tier: Tier) -> Result<()> {
    let mut totals = Totals::default();
    let mut failed = Vec::new();
    let mut step = |name: &'static str, run: &mut dyn FnMut(&mut Totals) -> Result<bool>| -> Result<()> {
        println!("\n== {name}");
        let begun = Instant::now();
        if !run(&mut totals)? {
            failed.push(name);
        }
        totals.times.push((name, begun.elapsed()));
        Ok(())
    };
    let of_programs = match tier {
        Tier::Short => "short",
        Tier::Ci => "ci",
        Tier::All => "all",
    };
    // What passes is asked for its output too: a test that had to leave something out says so there.
    let mut workspace = cargo(&["test", "--release", "--workspace", "--no-fail-fast", "--", "--show-output"]);
    workspace.env(TESTS, of_programs);
    step("tests of the workspace", &mut |totals| heard(&mut workspace, totals))?;
    if tier == Tier::All {
        let lints = ["clippy", "--manifest-path", FLEET, "--all-targets", "--", "-D", "warnings"];
        step("lints of oomph-fleet", &mut |totals| heard(&mut cargo(&lints), totals))?;
        // Not in release: DataFusion takes many times as long to optimise as these tests take to run.
        let fleet = ["test", "--manifest-path", FLEET, "--no-fail-fast", "--", "--show-output"];
        step("tests of oomph-fleet", &mut |totals| heard(&mut cargo(&fleet), totals))?;
        step("other platforms", &mut other_platforms)?;
    }
    if tier != Tier::Short {
        let python = python_with_torch().unwrap_or_else(|| "python3".into());
        // One process uses one core.
        let [mut one, mut other] = ["test_[a-n]*.py", "test_[!a-n]*.py"].map(|files| {
            let mut half = Command::new(&python);
            half.args(["python/tests/timed.py", files]);
            half
        });
        step("tests of the Python package", &mut |totals| both_heard(&mut one, &mut other, totals))?;
    }
    totals.print();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Compiles the program for platforms where what runs no program works too. A target whose standard library cannot be fetched
/// is left out.
fn other_platforms(totals: &mut Totals) -> Result<bool> {
    if Command::new("uv").arg("--version").output().is_err() {
        let left_out = "skipped: other platforms, because uv is not there to fetch zig";
        println!("{left_out}");
        totals.hear(left_out);
        return Ok(true);
    }
    let mut all_compile = true;
    for target in OTHER_PLATFORMS {
        let mut add = Command::new("rustup");
        add.args(["target", "add", target]);
        let mut last = String::new();
        if !lines_of(&mut add, |line| line.clone_into(&mut last)).unwrap_or(false) {
            let left_out = format!("skipped: {target} cannot be added ({last})");
            println!("{left_out}");
            totals.hear(&left_out);
            continue;
        }
        println!("{target}");
        // C and assembly in crates of others are compiled by zig, which uv fetches.
        let mut check = Command::new("uv");
        check.args(["tool", "run", "--quiet", "--from", "cargo-zigbuild==0.24.1", "--with", "ziglang==0.17.1"]);
        check.args(["cargo-zigbuild", "check", "--quiet", "--release", "--package", "oomph", "--target", target]);
        all_compile &= heard(without_xtask(&mut check), totals)?;
    }
    Ok(all_compile)
}

/// The root of the repository, which all commands are run in.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    without_xtask(&mut command);
    command
}

/// What cargo says of xtask to xtask is not a setting of other builds: crates that look at it would be built again.
fn without_xtask(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || OF_XTASK.contains(&text.as_ref()) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command, prints what it prints but for the output of tests that passed, and adds up its results. Says whether
/// it succeeded.
fn heard(command: &mut Command, totals: &mut Totals) -> Result<bool> {
    let mut hidden = false;
    lines_of(command, |line| {
        hidden = match line.trim_end() {
            "successes:" => true,
            line if line == "failures:" || line.starts_with("test result: ") => false,
            _ => hidden,
        };
        if !hidden {
            println!("{line}");
        }
        totals.hear(line);
    })
}

/// Runs two commands at the same time; what the second prints follows what the first does. Says whether both succeeded.
fn both_heard(first: &mut Command, second: &mut Command, totals: &mut Totals) -> Result<bool> {
    let mut later = Vec::new();
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| lines_of(second, |line| later.push(line.to_owned())));
        (heard(first, totals), other.join())
    });
    for line in &later {
        println!("{line}");
        totals.hear(line);
    }
    let other = other.map_err(|_| anyhow::anyhow!("what the second command prints was not read"))?;
    Ok(one? & other?)
}

/// Runs a command, hands over each line that it prints, and says whether it succeeded.
fn lines_of(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.current_dir(root()).stdout(writer.try_clone().context("cannot make a pipe")?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    // The command holds the ends for writing, and the reader would wait for them.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        each(&String::from_utf8_lossy(&line.context("cannot read what the tests print")?));
    }
    Ok(child.wait().context("the tests cannot be waited for")?.success())
}

/// The python of the environment that the acceptance tests have made. A program that only prints its interpreter is the
/// simplest way to ask oomph for it.
fn python_with_torch() -> Option<OsString> {
    let requirements = std::fs::read_to_string(root().join(REQUIREMENTS)).ok()?;
    let mut command = Command::new(root().join("target/release/oomph"));
    command.current_dir(root()).arg("dry-run");
    for requirement in requirements.lines().filter(|line| !line.is_empty()) {
        command.args(["--with", requirement]);
    }
    let output = command.args(["--", "python", "-c", "import sys; print('python=' + sys.executable)"]).output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().find_map(|line| line.strip_prefix("python=")).map(OsString::from)
}

/// The sums of all that was run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
    python: u64,
    python_verdict: String,
    /// What was left out, and why, each once.
    skipped: Vec<String>,
    /// What failed at first and passed the second time, with its story.
    flaky: Vec<String>,
    in_story: bool,
    /// What a test that was timed has taken, in tenths of a second.
    tests: Vec<(u64, String)>,
    /// The same of a program of many tests that nobody timed one by one.
    programs: Vec<(u64, String)>,
    /// The program whose tests run.
    program: String,
    times: Vec<(&'static str, Duration)>,
}

impl Totals {
    /// Takes a line of a command's output.
    fn hear(&mut self, line: &str) {
        let line = line.trim_end();
        if line.starts_with("flaky: ") {
            self.in_story = true;
        }
        if self.in_story {
            self.flaky.push(line.to_owned());
            self.in_story = !line.starts_with("end of flaky ");
            return;
        }
        if let Some(timed) = line.strip_prefix("timed: ") {
            self.tests.extend(timed.split_once(" s  ").and_then(|(time, name)| Some((tenths(time)?, name.to_owned()))));
        } else if let Some(program) = line.trim_start().strip_prefix("Running ") {
            // The path of the built file says nothing more, and holds no blank.
            program.rsplit_once(" (").map_or(program, |(program, _)| program).clone_into(&mut self.program);
            if let Some((_, file)) = program.rsplit_once("deps/") {
                let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
                self.program = format!("{name} {}", self.program);
            }
        } else if let Some(name) = line.trim_start().strip_prefix("Doc-tests ") {
            self.program = format!("{name} documentation");
        } else if let Some(result) = line.strip_prefix("test result: ") {
            let time = result.rsplit_once("finished in ").and_then(|(_, time)| tenths(time.trim_end_matches('s')));
            self.programs.extend(time.map(|time| (time, self.program.clone())));
            self.passed += figure_before(result, " passed");
            self.failed += figure_before(result, " failed");
            self.ignored += figure_before(result, " ignored");
        } else if let Some(ran) = line.strip_prefix("Ran ") {
            self.python += ran.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        } else if line.starts_with("FAILED (") || line.starts_with("OK") && !self.python_verdict.starts_with("FAILED") {
            self.python_verdict = line.to_owned();
        } else if (line.contains("skipped: ")
            || line.contains(": skipped, because ")
            || line.contains("is not tried, because "))
            && !self.skipped.iter().any(|known| known == line)
        {
            self.skipped.push(line.to_owned());
        }
    }

    fn print(&self) {
        println!("\n== totals");
        println!("rust: {} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored);
        if self.python > 0 {
            println!("python: {} run, {}", self.python, self.python_verdict);
        }
        println!("left out, with the reason: {}", self.skipped.len());
        for line in &self.skipped {
            println!("  {line}");
        }
        for line in &self.flaky {
            println!("{line}");
        }
        println!("flaky: {}", self.flaky.iter().filter(|line| line.starts_with("flaky: ")).count());
        for (what, all) in [("tests that are timed one by one", &self.tests), ("programs of tests", &self.programs)] {
            println!("the slowest {what}:");
            let mut all: Vec<_> = all.iter().collect();
            all.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
            for (time, name) in all.into_iter().take(SLOWEST) {
                println!("{:6}.{} s  {name}", time / 10, time % 10);
            }
        }
        println!("the steps:");
        for (name, time) in &self.times {
            println!("{:6.0} s  {name}", time.as_secs_f64());
        }
    }
}

/// Seconds as tests print them, in tenths: 123 for `12.34`.
fn tenths(seconds: &str) -> Option<u64> {
    let (whole, rest) = seconds.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 10 + rest.get(..1)?.parse::<u64>().ok()?)
}

/// The whole number in front of a word: 12 for `12 passed`.
fn figure_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    let digits = before.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up() {
        let mut totals = Totals::default();
        for line in [
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 216 passed; 1 failed; 26 ignored; 0 measured; 0 filtered out; finished in 2700.1s",
            "skipped: ../shared/data is not there",
            "skipped: ../shared/data is not there",
            "serving: vllm is not tried, because OOMPH_FRAMEWORKS does not name it",
            "flaky: fix::trainer failed, and passed when it was run again. It had failed so:",
            "a line with test result: ok. 5 passed",
            "end of flaky fix::trainer",
            "     Running unittests src/lib.rs (target/release/deps/oomph_ledger-0c1f)",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 12.34s",
            "timed: 61.5 s  fix::trainer",
            "Ran 299 tests in 360.0s",
            "OK (skipped=2)",
            "Ran 1 test in 0.1s",
            "FAILED (failures=1)",
            "Ran 1 test in 0.1s",
            "OK",
        ] {
            totals.hear(line);
        }
        assert_eq!((totals.passed, totals.failed, totals.ignored), (228, 1, 29));
        assert_eq!((totals.python, totals.python_verdict.as_str()), (301, "FAILED (failures=1)"));
        assert_eq!(totals.skipped.len(), 2);
        assert_eq!((totals.flaky.len(), totals.in_story), (3, false));
        assert_eq!(totals.tests, [(615, "fix::trainer".to_owned())]);
        assert!(totals.programs.contains(&(123, "oomph_ledger unittests src/lib.rs".to_owned())), "{totals:?}");
    }
}

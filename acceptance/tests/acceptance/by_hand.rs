//! Compares remedies that are applied from outside with the same remedies written into the program: the peaks agree to
//! the byte.
//!
//! `acceptance/programs/fixes/cases.json` has the cases: a program whose `--by-hand REMEDY` is the same program with the
//! remedy in its text. `oomph fix` is given no more memory than that needs, and this one remedy. The cases run where
//! `OOMPH_BY_HAND` is set: there are many, and each takes several runs.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;

use crate::again::tried;
use crate::run::{Run, TORCH_2_15};

/// Set to anything to run the cases.
const ASKED: &str = "OOMPH_BY_HAND";

/// More than a program's peak under a remedy, so that the allocator never has to give back what it keeps: bytes.
const EASE: u64 = 4 << 20;

/// Both run to their end, which is at the same place whatever a remedy does to the steps.
const OPTIONS: [&str; 2] = ["--until-exit", "--random-weights"];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The remedy's id.
    remedy: String,
    /// The program of `acceptance/programs/fixes` and its arguments.
    program: Vec<String>,
    /// The card's memory, where what the remedy leaves on it depends on that.
    #[serde(default)]
    vram: Option<String>,
}

/// One trial for each case.
pub fn trials() -> Vec<Trial> {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../programs/fixes/cases.json")).expect("cases.json lists cases");
    if std::env::var_os(ASKED).is_none() {
        eprintln!("acceptance: {} remedies are not compared with the same by hand; {ASKED}=1 does so", cases.len());
        return Vec::new();
    }
    let trial = |case: Case| {
        let name = format!("by_hand::{}::{}", case.program[0].trim_end_matches(".py"), case.remedy);
        tried(name, move || compare(&case).map_err(|error| Failed::from(format!("{error:#}"))))
    };
    cases.into_iter().map(trial).collect()
}

fn compare(case: &Case) -> Result<()> {
    let script = format!("acceptance/programs/fixes/{}", case.program[0]);
    let words: Vec<&str> = [script.as_str()].into_iter().chain(case.program[1..].iter().map(String::as_str)).collect();
    let by_hand = [words.as_slice(), &["--by-hand", case.remedy.as_str()]].concat();
    let dry = |vram: &str| -> Result<u64> {
        let run = Run::dry_run()?.args(["--vram", vram, "--format", "json", "--no-owners"]).args(OPTIONS);
        let finished = run.with(TORCH_2_15).program(&by_hand).finish()?;
        let report = finished.report()?;
        finished.ensure(report["verdict"] == "fits", "the program by hand does not fit")?;
        report["devices"][0]["peak"]["process_bytes"].as_u64().with_context(|| finished.story())
    };
    let vram = match &case.vram {
        Some(vram) => vram.clone(),
        None => format!("{}B", dry("80GiB")? + EASE),
    };
    let wanted = dry(&vram)?;
    let fix =
        Run::command("fix")?.args(["--vram", vram.as_str(), "--format", "json", "--max-time", "400s"]).args(OPTIONS);
    let finished =
        { fix.args(["--allow", case.remedy.as_str(), "--fixes", "1"]) }.with(TORCH_2_15).program(&words).finish()?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "fixed", "no fix was found")?;
    let found = report["fixes"][0]["peak_bytes"].as_u64().with_context(|| finished.story())?;
    ensure!(found == wanted, "{found} bytes from outside, {wanted} by hand\n{}", finished.story());
    Ok(())
}

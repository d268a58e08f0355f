//! Compares what `oomph explain` predicts from one recording with dry runs with that setting or that card: the peak to
//! the byte, and whether it survives.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::explanations::explained;
use crate::run::{Run, TORCH_2_15};

/// A name, and the script of `acceptance/programs` with its arguments: as few steps as show the peak.
type Row = (&'static str, &'static [&'static str]);

const ROWS: [Row; 12] = [
    ("mlp", &["mlp.py"]),
    ("convnet", &["convnet.py"]),
    ("lstm", &["lstm.py", "--steps", "3"]),
    ("amp", &["amp_gradscaler.py", "--steps", "6"]),
    ("resnet50", &["vision.py", "--steps", "3"]),
    ("trainer", &["trainer_gpt2.py", "--layers", "4", "--seq-len", "512", "--max-steps", "3", "--save-steps", "9"]),
    ("qlora", &["qlora.py", "--layers", "3", "--hidden", "1024", "--intermediate", "2816", "--heads", "8"]),
    ("generate", &["generate.py", "--layers", "6", "--new-tokens", "40"]),
    ("growing-lengths", &["expandable.py"]),
    ("leak", &["leaking.py"]),
    ("two-streams", &["streams.py"]),
    ("bert-evaluation", &["bert.py"]),
];

/// Settings of the table, each of which changes the peak of some of the programs.
const SETTINGS: [&str; 3] = ["expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8"];

/// Memory less than what is needed by this much is too little for sure, in bytes.
const SHORT: u64 = 32 << 20;

/// All trials.
pub fn trials() -> Vec<Trial> {
    let trial = |(name, program): Row| {
        let test = move || what_if(program).map_err(|error| Failed::from(format!("{error:#}")));
        tried(format!("explain::what-if::{name}"), test)
    };
    ROWS.into_iter().map(trial).collect()
}

fn what_if(program: &[&str]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let snapshot = folder.path().join("run.pickle");
    let snapshot = snapshot.to_str().context("the temporary folder has no plain name")?;
    let run = |arguments: &[&str]| Ok::<_, anyhow::Error>(Run::json("h200", TORCH_2_15)?.args(arguments));
    let recorded = run(&["--until-exit", "--no-probe", "--snapshot", snapshot])?.program(program).finish()?.report()?;
    let explained = explained(&[snapshot])?;
    let device = &explained["devices"][0];
    let rows = device["what_if"].as_array().context("no rows")?;
    let predicted = |settings: &str| -> Result<&Value> {
        let row = rows.iter().find(|row| row["settings"] == settings).context("the settings were not tried")?;
        Ok(&row["peak_reserved_bytes"])
    };
    let peak = &recorded["devices"][0]["peak"];
    ensure!(predicted("")? == &peak["reserved_bytes"], "as recorded: {} instead of {peak}", predicted("")?);

    // One run for all settings, each in a process of its own.
    let script = binary::programs().join(program[0]);
    let script = script.to_str().context("the repository has no plain name")?;
    let words = [&["settings.py"], &SETTINGS[..], &["--", script], &program[1..]].concat();
    let several = run(&["--until-exit", "--no-probe", "--no-owners"])?.program(&words).finish()?;
    let output = String::from_utf8_lossy(&several.stderr).into_owned();
    for setting in SETTINGS {
        let (_, own) = output.split_once(&format!("setting={setting}\n")).context("the setting was not run")?;
        let printed = own.lines().find_map(|line| line.strip_prefix("max_memory_reserved="));
        let printed: u64 = printed.with_context(|| several.story())?.parse()?;
        let predicted = predicted(setting)?;
        ensure!(*predicted == printed, "{setting} was to reserve {predicted}, and reserves {printed}");
    }

    let bytes = |value: &Value| value.as_u64().context("no number of bytes");
    let (context, other) = (bytes(&peak["context_bytes"])?, bytes(&peak["other_bytes"])?);
    let smallest = &device["smallest_card"];
    let enough = bytes(&smallest["allocator_bytes"])? + context + other;
    // What libraries held at the peak may have been there for a moment only.
    let too_little = bytes(&smallest["least_allocator_bytes"])? + context - SHORT;
    for (capacity, expected) in [(enough, "fits"), (too_little, "oom")] {
        let arguments = ["--until-exit", "--no-probe", "--no-owners", "--vram", &capacity.to_string()];
        let smaller = run(&arguments)?.program(program).finish()?;
        let verdict = &smaller.report()?["verdict"];
        ensure!(verdict == expected, "on {capacity} bytes: {verdict} and not {expected}\n{}", smaller.story());
    }
    Ok(())
}

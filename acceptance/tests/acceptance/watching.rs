//! Tests `oomph watch`: its figures are those of the virtual card's books, it waits until a card has room, and it
//! predicts the step at which a leak fills the card.
//!
//! The program (`acceptance/programs/watching.py`) runs under `oomph run --rehearse` and starts `oomph watch` itself: there
//! NVML shows the virtual card. From outside the books of the rehearsal are read.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Run, TORCH_2_15, python_by_hand};

type Test = fn() -> Result<()>;

/// The tests.
pub fn trials() -> Vec<Trial> {
    let all: [(&str, Test); 3] = [
        ("watching::once-equals-the-books", once_equals_the_books),
        ("watching::until-returns-when-memory-is-free", until_returns_when_memory_is_free),
        ("watching::a-leak-is-dated", a_leak_is_dated),
    ];
    all.into_iter()
        .map(|(name, test)| tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}")))))
        .collect()
}

/// The program in one of its modes, rehearsed.
fn rehearsed(mode: &str, options: &[&str]) -> Result<Run> {
    let oomph = binary::oomph().to_str().context("the path of oomph is not text")?;
    let run = Run::command("run")?.args(["--rehearse", "rtx-3060", "--no-check", "--attempts", "1", "--record", "off"]);
    let run = run.args(options).env("OOMPH", oomph);
    let program = binary::programs().join("watching.py");
    let run = match python_by_hand() {
        Some(python) => run.args(["--", &python]),
        None => run.with(TORCH_2_15).args(["--", "python"]),
    };
    Ok(run.args([program]).args([mode]))
}

/// Inside the run, through the virtual NVML, and outside it, through the books: both see what PyTorch and CUDA say.
fn once_equals_the_books() -> Result<()> {
    let mut run = rehearsed("once", &[])?;
    let folder = run.folder().to_owned();
    let started = run.start()?;
    let begun = Instant::now();
    while !folder.join("ready").exists() && begun.elapsed() < Duration::from_secs(600) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let outside = Command::new(binary::oomph()).args(["watch", "--once", "--format", "json"]).output()?;
    std::fs::write(folder.join("go"), "")?;
    let finished = started.finish()?;
    finished.ensure(finished.status.success(), "the program failed")?;
    let truth: Value = serde_json::from_str(&finished.printed("truth")?)?;
    let inside: Value = serde_json::from_str(&finished.printed("inside")?)?;
    let outside: Value = serde_json::from_slice(&outside.stdout)?;
    let curves = finished.printed("curves")?;
    finished.ensure(curves == "[True, True]", format!("the curves hold other sizes: {curves}"))?;
    equals_the_books(&inside, &truth).with_context(|| format!("inside\n{}", finished.story()))?;
    equals_the_books(&outside, &truth).with_context(|| format!("outside\n{}", finished.story()))
}

/// A report against what the program says of itself; it is alone on its card.
fn equals_the_books(report: &Value, truth: &Value) -> Result<()> {
    ensure!(report["schema"] == "oomph.watch/1", "schema {}", report["schema"]);
    let on = |card: &&Value| {
        card["processes"].as_array().is_some_and(|all| all.iter().any(|one| one["pid"] == truth["pid"]))
    };
    let card = report["cards"].as_array().context("no cards")?.iter().find(on).context("the program is on no card")?;
    let process = &card["processes"][0];
    let framework = &process["framework"];
    let number = |value: &Value| value.as_u64().with_context(|| format!("{value} is not a size"));
    let (total, free) = (number(&truth["total"])?, number(&truth["free"])?);
    let (allocated, reserved) = (number(&truth["allocated"])?, number(&truth["reserved"])?);
    for (what, reported, expected) in [
        ("total", &card["total_bytes"], total),
        ("free", &card["free_bytes"], free),
        ("used", &card["used_bytes"], total - free),
        ("driver", &process["driver_bytes"], total - free),
        ("allocated", &framework["allocated_bytes"], allocated),
        ("reserved", &framework["reserved_bytes"], reserved),
        ("cached", &framework["cached_bytes"], reserved - allocated),
        ("outside", &process["outside_bytes"], total - free - reserved),
        ("room", &framework["room_bytes"], free + reserved),
        ("step", &framework["step"], 4),
    ] {
        ensure!(number(reported)? == expected, "{what}: reported {reported}, is {expected}\n{card:#}");
    }
    ensure!(framework["moment"] == "step-end", "moment {}", framework["moment"]);
    Ok(())
}

fn until_returns_when_memory_is_free() -> Result<()> {
    let finished = { rehearsed("until", &[])? }.finish()?;
    finished.ensure(finished.printed("waits")? == "True", "it did not wait while the memory was in use")?;
    finished.ensure(finished.printed_number("status")? == 0, "it did not end well once the memory was free")?;
    finished.ensure(finished.printed("card")?.starts_with("GPU-"), "it did not name the card")?;
    finished.ensure(finished.printed_number("late")? == 4, "the end of its time has another status than 4")
}

fn a_leak_is_dated() -> Result<()> {
    let mut run = rehearsed("leak", &["--vram", "4GiB"])?;
    let folder = run.folder().to_owned();
    let finished = run.finish()?;
    let died = finished.printed_number("died")?;
    let looks = std::fs::read_to_string(folder.join("looks"))?;
    let (mut dated, mut worst) = (0, 0);
    // The last line may have been cut when the program died.
    for line in looks.lines() {
        let Ok(report) = serde_json::from_str::<Value>(line) else { continue };
        let framework = &report["cards"][0]["processes"][0]["framework"];
        let (step, outlook) = (framework["step"].as_u64().unwrap_or(0), &framework["outlook"]);
        if step < died / 3 {
            continue;
        }
        finished.ensure(outlook["trend"] == "leak", format!("at step {step} of {died}: {outlook}"))?;
        let foretold =
            outlook["full_at_step"].as_u64().with_context(|| format!("no date at step {step}: {outlook}"))?;
        worst = worst.max(foretold.abs_diff(died));
        dated += 1;
    }
    finished.ensure(dated > 10, format!("only {dated} forecasts\n{looks}"))?;
    finished.ensure(20 * worst <= died, format!("{dated} forecasts, the worst {worst} steps off {died}"))
}

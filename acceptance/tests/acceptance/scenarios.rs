//! Tests what the command does around a program: streams, signals, files, wrong usage.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};

use crate::again::tried;
use crate::binary;
use crate::check;
use crate::run::{Finished, Run, Started, TORCH_2_15, processes_with, tree};

/// Shapes that make GPT-2 so small that a checkpoint has a few megabytes.
const TINY: [&str; 8] = ["--layers", "1", "--width", "32", "--heads", "2", "--seq-len", "32"];

/// A name and what is done under it.
type Scenario = (&'static str, fn() -> Result<()>);

/// All scenarios.
pub fn trials() -> Vec<Trial> {
    let all: [Scenario; 24] = [
        ("streams-pass-through", streams_pass_through),
        ("failure-passes-through", failure_passes_through),
        ("report-goes-to-a-file", report_goes_to_a_file),
        ("ctrl-c-leaves-nothing", ctrl_c_leaves_nothing_but_the_answer),
        ("sigterm-leaves-nothing", sigterm_leaves_nothing),
        ("sigkill-leaves-nothing", sigkill_leaves_nothing),
        ("timeout-leaves-nothing", timeout_leaves_nothing),
        ("checkpoint-survives", checkpoint_survives),
        ("checkpoint-survives-resuming", checkpoint_survives_resuming),
        ("example-fits-at-4", example_fits_at_4),
        ("example-dies-at-16", example_dies_at_16),
        ("example-writes-nothing", example_writes_nothing),
        ("vram-sets-the-capacity", vram_sets_the_capacity),
        ("no-card-is-named", no_card_is_named),
        ("unknown-card", unknown_card),
        ("nvidia-smi-knows-the-virtual-cards", nvidia_smi_knows_the_virtual_cards),
        ("a-missing-card-is-named", a_missing_card_is_named),
        ("longest-batch-decides", longest_batch_decides),
        ("longest-batch-is-measured", longest_batch_is_measured),
        ("validation-is-an-evaluation", validation_is_an_evaluation),
        ("missing-program", missing_program),
        ("python-without-torch", python_without_torch),
        ("routing-is-said-and-bounded", routing_is_said_and_bounded),
        ("what-is-computed-on-the-host-is-right", what_is_computed_on_the_host_is_right),
    ];
    all.into_iter()
        .map(|(name, test)| tried(name, move || test().map_err(|error| Failed::from(format!("{error:#}")))))
        .collect()
}

/// The Python package's own tests of the operations that it computes in place of the card: they need one to compare with.
fn what_is_computed_on_the_host_is_right() -> Result<()> {
    let tests = binary::root().join("python/tests");
    let run = Run::dry_run()?.args(["--gpu", "rtx-3060", "--until-exit", "--values", "off"]).with(TORCH_2_15);
    let run = run.args(["--", "python", "-m", "unittest", "discover", "-p", "test_values*.py", "-s"]).args([tests]);
    let finished = { run }.finish()?;
    let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
    // One of the tests fills the card and goes on, so that the program recovers.
    finished.ensure(stderr.lines().any(|line| line == "OK"), "a test failed")?;
    let ran = stderr.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    finished.ensure(ran > Some(30) && !stderr.contains("skipped"), format!("not all of them ran: {ran:?}"))
}

/// In text mode the program has oomph's streams: every byte of it, in and out.
fn streams_pass_through() -> Result<()> {
    let input = b"one line\nand \xff no newline";
    let run = Run::dry_run()?.args(["--gpu", "rtx-3060", "--until-exit"]).with(TORCH_2_15);
    let finished = run.input(input).program(&["passthrough.py"]).finish()?;
    finished.ensure(finished.status.code() == Some(0), "the exit status is not 0")?;
    let bytes: Vec<u8> = (0..=255).collect();
    let expected = [input.as_slice(), b"<out>", &bytes, b"</out>"].concat();
    finished.ensure(contains(&finished.stdout, &expected), "stdout was changed")?;
    let expected = [b"<err>".as_slice(), &bytes, b"</err>"].concat();
    finished.ensure(contains(&finished.stderr, &expected), "stderr was changed")?;
    no_run_folder(&finished)
}

/// A program that fails on its own keeps its traceback; what oomph says is that it failed.
fn failure_passes_through() -> Result<()> {
    let run = Run::dry_run()?.args(["--gpu", "rtx-3060"]).with(TORCH_2_15);
    let finished = run.program(&["fails.py"]).finish()?;
    finished.ensure(finished.status.code() == Some(3), "the exit status is not 3")?;
    finished.ensure(contains(&finished.stdout, b"a line on stdout\n"), "stdout was lost")?;
    finished.ensure(contains(&finished.stderr, b"a line on stderr\n"), "stderr was lost")?;
    let last = b"ValueError: the learning rate is missing from the configuration\n";
    finished.ensure(contains(&finished.stderr, last), "the traceback was lost")
}

/// The program's own `nvidia-smi` and NVML say of the virtual cards what CUDA says, so that it chooses as on the card.
fn nvidia_smi_knows_the_virtual_cards() -> Result<()> {
    let run = Run::dry_run()?.args(["--gpu", "rtx-3060:2", "--no-owners"]).with(TORCH_2_15);
    let finished = run.program(&["asks_its_machine.py"]).finish()?;
    finished.ensure(finished.status.code() == Some(0), "the exit status is not 0")?;
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with('{')).with_context(|| finished.story())?;
    let said: serde_json::Value = serde_json::from_str(line)?;
    // Of 12,043 MiB half is 94 times 64 MiB. What is taken in addition is the context.
    ensure!(said["batch"] == 94 && said["free"] == 12043 && said["adds_up"] == 0, "{said:#}");
    ensure!(said["taken"].as_u64().is_some_and(|taken| (100..=200).contains(&taken)), "{said:#}");
    for name in ["nvml_agrees", "cuda_agrees", "own_pid", "table", "which"] {
        ensure!(said[name] == true, "{name}: {said:#}");
    }
    ensure!(said["cards"] == 2 && said["without_an_environment"] == 2, "{said:#}");
    ensure!(said["xml"][0] == true && said["xml_pids"] == serde_json::json!([true]), "{said:#}");
    ensure!(
        said["wrong_field"] == serde_json::json!([2, "Field \"cuda_version\" is not a valid field to query."]),
        "{said:#}"
    );
    Ok(())
}

/// A card that the run lacks is named with what to type, and that runs.
fn a_missing_card_is_named() -> Result<()> {
    for (words, needs) in [(&["names_a_card.py", "cuda:1"][..], 2), (&["names_a_card.py", "cuda:0", "2"], 3)] {
        let finished = Run::json("rtx-3060", TORCH_2_15)?.args(["--no-owners"]).program(words).finish()?;
        finished.ensure(finished.status.code() == Some(3), "the exit status is not 3")?;
        let report: serde_json::Value = serde_json::from_slice(&finished.stdout)?;
        ensure!(report["missing_card"]["needs"] == needs, "{report:#}");
        let command = report["next"][0]["command"].as_str().unwrap_or_default();
        ensure!(command.contains(&format!("--gpu rtx-3060:{needs} ")), "{command}");
        let cards = format!("rtx-3060:{needs}");
        let finished = Run::json(&cards, TORCH_2_15)?.args(["--no-owners"]).program(words).finish()?;
        finished.ensure(finished.status.code() == Some(0), "it does not run with as many cards")?;
    }
    Ok(())
}

fn report_goes_to_a_file() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit", "--report"]);
    let path = run.folder().join("report.json");
    let mut run = run.args([&path]).program(&["mlp.py", "--width", "256"]);
    let finished = run.finish()?;
    finished.ensure(finished.status.code() == Some(0), "the exit status is not 0")?;
    let text = fs::read(&path).with_context(|| finished.story())?;
    let report = serde_json::from_slice(&text)?;
    check::contract(&report)?;
    ensure!(report["verdict"] == "fits", "{report:#}");
    Ok(())
}

/// Ctrl-C reaches all processes of the terminal's group at once. It is how one ends a server, so the report covers the
/// run up to that point.
fn ctrl_c_leaves_nothing_but_the_answer() -> Result<()> {
    let finished = interrupted("ctrl-c", |started| started.signal_group(libc::SIGINT), Duration::ZERO)?;
    finished.ensure(finished.status.code() == Some(130), "the exit status is not that of Ctrl-C")?;
    for words in ["fits as far as it ran: ", "was interrupted", "a higher peak may still come"] {
        finished.ensure(contains(&finished.stdout, words.as_bytes()), format!("the answer does not say {words:?}"))?;
    }
    Ok(())
}

/// A supervisor ends oomph alone, and oomph ends its children.
fn sigterm_leaves_nothing() -> Result<()> {
    interrupted("sigterm", |started| started.signal(libc::SIGTERM), Duration::ZERO).map(drop)
}

/// Nobody can catch SIGKILL, so a second process of oomph ends the program, a little later.
fn sigkill_leaves_nothing() -> Result<()> {
    interrupted("sigkill", |started| started.signal(libc::SIGKILL), Duration::from_secs(120)).map(drop)
}

/// Interrupts a run, which may take so long after oomph's own end until nothing of it is left.
fn interrupted(marker: &str, interrupt: fn(&Started), patience: Duration) -> Result<Finished> {
    let marker = format!("OOMPH_ACCEPTANCE_MARKER={marker}-{}", std::process::id());
    let (name, value) = marker.split_once('=').context("the marker is an assignment")?;
    let run = Run::dry_run()?.args(["--gpu", "rtx-3060", "--until-exit"]).with(TORCH_2_15).env(name, value);
    let ready = run.folder().join("ready");
    let mut run = run.env("OOMPH_ACCEPTANCE_READY", ready.to_str().context("a temporary path is UTF-8")?);
    run = run.args(["--allow-writes"]).program(&["endless.py"]);
    let started = run.start()?;
    wait_for(&ready, &started)?;
    let text = fs::read_to_string(&ready)?;
    let run_folder = text.trim();
    ensure!(Path::new(run_folder).is_dir(), "the program was given the run folder {run_folder:?}, which is not there");
    interrupt(&started);
    let begun = Instant::now();
    let finished = started.finish()?;
    finished.ensure(!finished.status.success(), "an interrupted run is not a success")?;
    finished.ensure(begun.elapsed() < Duration::from_secs(300), "it did not end")?;
    let ended = Instant::now();
    let something_left = || Path::new(run_folder).exists() || !processes_with(&marker).is_empty();
    while ended.elapsed() < patience && something_left() {
        std::thread::sleep(Duration::from_millis(50));
    }
    finished.ensure(!Path::new(run_folder).exists(), format!("{run_folder} was left behind"))?;
    let left = processes_with(&marker);
    finished.ensure(left.is_empty(), format!("processes were left behind: {left:#?}"))?;
    Ok(finished)
}

/// Waits until the program has written the file, which it does once it trains.
fn wait_for(path: &Path, started: &Started) -> Result<()> {
    let begun = Instant::now();
    while fs::read(path).map_or(true, |text| !text.ends_with(b"\n")) {
        if begun.elapsed() > Duration::from_secs(300) {
            started.signal_group(libc::SIGKILL);
            anyhow::bail!("the program did not begin to train");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn timeout_leaves_nothing() -> Result<()> {
    let marker = format!("timeout-{}", std::process::id());
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit", "--timeout", "45"]);
    let finished = run.env("OOMPH_ACCEPTANCE_MARKER", &marker).program(&["endless.py"]).finish()?;
    let report = finished.report()?;
    check::contract(&report)?;
    finished.ensure(report["stopped"] == "timeout", format!("stopped is {}", report["stopped"]))?;
    let left = processes_with(&format!("OOMPH_ACCEPTANCE_MARKER={marker}"));
    finished.ensure(left.is_empty(), format!("processes were left behind: {left:#?}"))?;
    no_run_folder(&finished)
}

/// A Trainer that saves, and with its limit also deletes, does neither to what was there before.
fn checkpoint_survives() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit"]);
    let out = run.folder().join("out");
    for step in [1, 2, 100] {
        let checkpoint = out.join(format!("checkpoint-{step}"));
        fs::create_dir_all(checkpoint.join("nested"))?;
        for name in ["model.safetensors", "optimizer.pt", "trainer_state.json", "config.json", "nested/rng_state.pth"] {
            fs::File::create(checkpoint.join(name))?.write_all(format!("precious {step} {name}").as_bytes())?;
        }
    }
    fs::write(out.join("model.safetensors"), "precious, at the top")?;
    std::os::unix::fs::symlink("checkpoint-100", out.join("latest"))?;

    let before = tree(run.folder())?;
    let folder = out.to_str().context("a temporary path is UTF-8")?.to_owned();
    let mut words = vec!["trainer_gpt2.py", "--output-dir", &folder, "--save-total-limit", "1", "--save-steps", "1"];
    words.extend(TINY);
    unchanged(run.program(&words), &before)
}

/// The same with real checkpoints, written with `--allow-writes`, from which the dry run then goes on.
fn checkpoint_survives_resuming() -> Result<()> {
    let keeper = tempfile::tempdir()?;
    let folder = keeper.path().join("out").to_str().context("a temporary path is UTF-8")?.to_owned();
    let mut words = vec!["trainer_gpt2.py", "--output-dir", &folder, "--save-total-limit", "1", "--save-steps", "2"];
    words.extend(TINY);

    let first = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit", "--allow-writes"]).program(&words).finish()?;
    first.ensure(first.status.code() == Some(0), "the run that writes failed")?;
    let before = tree(keeper.path())?;
    let saved = before.iter().any(|(path, _)| path.ends_with("checkpoint-5/model.safetensors"));
    first.ensure(saved, format!("--allow-writes wrote no checkpoint: {:?}", names(&before)))?;

    words.extend(["--resume", "--max-steps", "8"]);
    let second = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit"]).program(&words).finish()?;
    let report = second.report()?;
    second.ensure(report["verdict"] == "fits", format!("{report:#}"))?;
    let after = tree(keeper.path())?;
    second.ensure(before == after, format!("{:?} became {:?}", names(&before), names(&after)))
}

fn unchanged(mut run: Run, before: &[(std::path::PathBuf, Vec<u8>)]) -> Result<()> {
    let finished = run.finish()?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "fits", format!("{report:#}"))?;
    let after = tree(run.folder())?;
    finished.ensure(before == after, format!("{:?} became {:?}", names(before), names(&after)))
}

fn names(tree: &[(std::path::PathBuf, Vec<u8>)]) -> Vec<String> {
    tree.iter().map(|(path, contents)| format!("{} ({} bytes)", path.display(), contents.len())).collect()
}

/// The README's command, where the batch fits: its epoch ends early, so that the saving after it is seen as well.
fn example_fits_at_4() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?;
    let finished = run.program(&["examples/finetune_gpt2.py", "--batch-size", "4"]).finish()?;
    finished.ensure(finished.status.code() == Some(0), "the exit status is not 0")?;
    let report = finished.report()?;
    check::contract(&report)?;
    finished.ensure(report["verdict"] == "fits", format!("{report:#}"))?;
    finished.ensure(report["stopped"] == "exit", format!("{report:#}"))?;
    let steps = report["steps"].as_u64().unwrap_or(0);
    finished.ensure((3..=20).contains(&steps), format!("the epoch was ended after {steps} steps"))?;
    let shortened = &report["loops"][0];
    finished.ensure(shortened["kind"] == "training" && shortened["shortened"] == true, format!("{shortened:#}"))?;
    let phases: Vec<&str> = check::device(&report, 0)?["phases"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["phase"].as_str())
        .collect();
    for phase in ["load", "forward", "backward", "optimizer", "saving"] {
        finished.ensure(phases.contains(&phase), format!("{phase} is not among {phases:?}"))?;
    }
    tell("example --batch-size 4", &finished);
    Ok(())
}

/// The README's command: it dies, and the report says where and what would hold it.
fn example_dies_at_16() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?;
    let finished = run.program(&["examples/finetune_gpt2.py", "--batch-size", "16"]).finish()?;
    finished.ensure(finished.status.code() == Some(1), "the exit status is not 1")?;
    let report = finished.report()?;
    check::contract(&report)?;
    finished.ensure(report["verdict"] == "oom", format!("{report:#}"))?;
    let oom = &check::device(&report, 0)?["oom"];
    finished.ensure(oom["site"]["function"] == "train", format!("{oom:#}"))?;
    finished.ensure(oom["step"] == 1, format!("{oom:#}"))?;
    let file = oom["site"]["file"].as_str().unwrap_or_default();
    finished.ensure(file.ends_with("finetune_gpt2.py"), format!("{oom:#}"))?;
    // The user's line is `model(...)` wherever in the model it is.
    let library = oom["library_site"]["file"].as_str().unwrap_or_default();
    finished.ensure(library.contains("/transformers/"), format!("{oom:#}"))?;
    finished.ensure(oom["model"] == "GPT2LMHeadModel", format!("{oom:#}"))?;
    let module = oom["module"].as_str().unwrap_or_default();
    finished.ensure(module.starts_with("transformer.h."), format!("{oom:#}"))?;
    // Its author copies nothing in a loop.
    finished.ensure(report["activity"]["remarks"].as_array().is_none_or(Vec::is_empty), format!("{report:#}"))?;
    finished.ensure(oom["would_need_bytes"].as_u64() > oom["reserved_bytes"].as_u64(), format!("{oom:#}"))?;
    finished.ensure(report["fits_on"].as_array().is_some_and(|cards| !cards.is_empty()), format!("{report:#}"))?;
    tell("example --batch-size 16", &finished);
    Ok(())
}

/// Run to its end, the example saves a checkpoint over an older one; the older one stays.
fn example_writes_nothing() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--until-exit"]);
    let checkpoint = run.folder().join("gpt2-finetuned/epoch-0");
    fs::create_dir_all(&checkpoint)?;
    fs::write(checkpoint.join("model.safetensors"), "precious")?;
    fs::write(checkpoint.join("optimizer.pt"), "precious too")?;
    let before = tree(run.folder())?;
    let mut words = vec!["examples/finetune_gpt2.py", "--blocks", "16", "--epochs", "2"];
    words.extend(TINY);
    unchanged(run.program(&words), &before)
}

/// `--vram` makes the card smaller, and PyTorch's own message names that size.
fn vram_sets_the_capacity() -> Result<()> {
    let run = Run::json("rtx-4090", TORCH_2_15)?.args(["--vram", "2GiB", "--until-exit", "--no-probe"]);
    let finished = run.program(&["mlp.py"]).finish()?;
    let report = finished.report()?;
    check::contract(&report)?;
    let device = check::device(&report, 0)?;
    finished.ensure(report["verdict"] == "oom", format!("{report:#}"))?;
    finished.ensure(device["capacity_bytes"] == 2_u64 << 30, format!("{device:#}"))?;
    let message = device["oom"]["message"].as_str().unwrap_or_default();
    finished.ensure(message.contains("total capacity of 2.00 GiB"), format!("the message is {message:?}"))?;
    finished.ensure(device["oom"]["would_need_bytes"].is_null(), "--no-probe made a second run")
}

/// Without a card the answer is the peak and the cards that hold it. (On a machine with a real card that card is
/// taken, and then the program has to fit on it or not.)
fn no_card_is_named() -> Result<()> {
    let run = Run::dry_run()?.args(["--format", "json", "--until-exit"]).with(TORCH_2_15);
    let finished = run.program(&["mlp.py"]).finish()?;
    let report = finished.report()?;
    check::contract(&report)?;
    let device = check::device(&report, 0)?;
    if Path::new("/dev/nvidiactl").exists() {
        return finished.ensure(device["capacity_bytes"].is_u64(), format!("{device:#}"));
    }
    finished.ensure(report["verdict"] == "fits", format!("{report:#}"))?;
    finished.ensure(device["capacity_bytes"].is_null(), format!("{device:#}"))?;
    finished.ensure(report["fits_on"].as_array().is_some_and(|cards| cards.len() > 20), format!("{report:#}"))
}

/// The usual batch has 64 tokens a sample, the longest eight samples have 1,024: they meet in step 20 at the earliest.
fn longest_batch_decides() -> Result<()> {
    let small = || Ok::<_, anyhow::Error>(Run::json("rtx-3060", TORCH_2_15)?.args(["--vram", "600MiB", "--no-probe"]));
    let finished = small()?.program(&["ragged.py"]).finish()?;
    let report = finished.report()?;
    check::contract(&report)?;
    finished.ensure(report["verdict"] == "oom", format!("{report:#}"))?;
    finished.ensure(check::device(&report, 0)?["oom"]["step"] == 3, format!("{report:#}"))?;
    let batches = &report["batches"];
    finished.ensure(batches["longest"]["step"] == 3, format!("{batches:#}"))?;
    finished.ensure(batches["longest"]["shape"] == serde_json::json!([8, 1024]), format!("{batches:#}"))?;
    finished.ensure(batches["seen"]["max"].as_u64() <= Some(8 * 64), format!("{batches:#}"))?;

    let finished = small()?.args(["--batches", "seen"]).program(&["ragged.py"]).finish()?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "fits", format!("{report:#}"))?;
    finished.ensure(report["batches"]["longest"].is_null(), format!("{report:#}"))
}

/// On a card that holds it, the step on the longest samples has the peak that the program has where they meet by themselves.
fn longest_batch_is_measured() -> Result<()> {
    let finished = Run::json("rtx-3060", TORCH_2_15)?.program(&["ragged.py"]).finish()?;
    let early = finished.report()?;
    let finished = Run::json("rtx-3060", TORCH_2_15)?
        .args(["--batches", "seen", "--until-exit"])
        .program(&["ragged.py"])
        .finish()?;
    let whole = finished.report()?;
    let peak = &check::device(&whole, 0)?["peak"]["allocated_bytes"];
    let longest = &early["batches"]["longest"];
    finished.ensure(longest["peak_allocated"] == *peak, format!("{longest:#} and {peak}"))?;
    let usual = early["batches"]["usual"]["peak_allocated"].as_u64();
    finished.ensure(usual.is_some_and(|usual| usual > 0) && usual < peak.as_u64(), format!("{early:#}"))
}

/// A function of the program's own that evaluates.
fn validation_is_an_evaluation() -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.args(["--vram", "2GiB", "--no-probe"]);
    let finished = run.program(&["ragged.py", "--validate"]).finish()?;
    let report = finished.report()?;
    let device = check::device(&report, 0)?;
    finished.ensure(device["oom"]["phase"] == "eval", format!("{report:#}"))?;
    finished.ensure(device["gpu"] == "custom" && device["like"] == "rtx-3060", format!("{device:#}"))
}

fn unknown_card() -> Result<()> {
    let finished = Run::dry_run()?.args(["--gpu", "rtx-3061", "--", "python", "x.py"]).finish()?;
    finished.ensure(finished.status.code() == Some(2), "the exit status is not 2")?;
    finished.ensure(contains(&finished.stderr, b"rtx-3061"), "the name is not repeated")?;
    finished.ensure(contains(&finished.stderr, b"rtx-3060"), "the nearest name is not offered")
}

fn missing_program() -> Result<()> {
    let finished = Run::dry_run()?.args(["--gpu", "rtx-3060", "--", "no-such-program-anywhere"]).finish()?;
    finished.ensure(finished.status.code() == Some(2), "the exit status is not 2")?;
    finished.ensure(contains(&finished.stderr, b"no-such-program-anywhere"), "the program is not named")
}

/// One line says what is missing and what to do about it.
fn python_without_torch() -> Result<()> {
    let run = Run::dry_run()?.args(["--gpu", "rtx-3060"]);
    let folder = run.folder().join("bare");
    let made = std::process::Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&folder).status()?;
    ensure!(made.success(), "python3 -m venv failed");
    let mut run = run.args(["--"]).args([folder.join("bin/python")]).args(["-c", "print(1)"]);
    let finished = run.finish()?;
    finished.ensure(finished.status.code() == Some(2), "the exit status is not 2")?;
    finished.ensure(contains(&finished.stderr, b"--with torch"), "it is not said what to do")
}

fn no_run_folder(finished: &Finished) -> Result<()> {
    let folder = finished.printed("run_folder")?;
    finished.ensure(!folder.is_empty(), "the program was given no run folder")?;
    finished.ensure(!Path::new(&folder).exists(), format!("{folder} was left behind"))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn tell(what: &str, finished: &Finished) {
    eprintln!("{:<10} {what:<26} {:.1} s", TORCH_2_15.name, finished.wall.as_secs_f64());
}

/// Which expert gets which token is never computed. The report says what was taken for it, and the worst that it can be
/// asked for is that a token's experts are everybody's: one expert then has all tokens in its hands, not a quarter.
fn routing_is_said_and_bounded() -> Result<()> {
    const TOKENS: u64 = 4096;
    const EXPERTS_PER_TOKEN: u64 = 2;
    const EXPERTS: u64 = 8;
    // What an expert holds of a token at its widest, in bf16: gate and up, and their product.
    const BYTES: u64 = 2 * 3 * 3584;
    let allocated = |routing: &str, word: &str| -> Result<u64> {
        let run = Run::json("rtx-4090", TORCH_2_15)?.args(["--until-exit", "--no-owners", "--routing", routing]);
        let finished = run.program(&["moe.py", "--tokens", &TOKENS.to_string()]).finish()?;
        let report = finished.report()?;
        let warnings = report["warnings"].to_string();
        finished.ensure(warnings.contains("which expert gets which token"), "the routing is not said")?;
        finished.ensure(warnings.contains(word), format!("{routing} routing is not said to be that"))?;
        let reported = report["devices"][0]["peak"]["allocated_bytes"].as_u64();
        finished.ensure(
            reported == Some(finished.printed_number("max_memory_allocated")?),
            "the peak is not the program's",
        )?;
        reported.context("no peak")
    };
    let (balanced, worst) = (allocated("balanced", "as many")?, allocated("worst", "all of them")?);
    let more_rows = TOKENS - TOKENS * EXPERTS_PER_TOKEN / EXPERTS;
    let least = more_rows * BYTES;
    ensure!(worst >= balanced + least, "{worst} is not {least} more than {balanced}");
    ensure!(worst <= balanced + 2 * least, "{worst} is much more than {least} above {balanced}");
    Ok(())
}

//! Tests JAX, TensorFlow with Keras, and ONNX Runtime: the report against what each says of itself.
//!
//! Their wheels are gigabytes, so these run where `OOMPH_FRAMEWORKS` names them: `jax,tensorflow,onnxruntime`. So do those
//! of `rust_frameworks.rs`: `candle,burn`.

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::check;
use crate::run::{Finished, JAX, ONNXRUNTIME, Run, TENSORFLOW, Torch};
use crate::rust_frameworks;

const VARIABLE: &str = "OOMPH_FRAMEWORKS";
const MIB: u64 = 1 << 20;

/// A model that takes little time to compile and some hundred MiB to train.
const SMALL_DECODER: &[&str] = &[
    "acceptance/programs/frameworks/jax_transformer.py",
    "--width",
    "256",
    "--depth",
    "2",
    "--vocabulary",
    "8000",
    "--length",
    "257",
    "--steps",
    "3",
];

type Test = fn() -> Result<()>;

const TESTS: &[(&str, &str, Test)] = &[
    ("jax", "a-pool-is-whole-as-on-a-card", jax_whole_pool),
    ("jax", "peaks-are-jax-s-own", jax_fits),
    ("jax", "a-full-card-is-reported-with-the-line-and-the-need", jax_oom),
    ("jax", "a-preallocated-pool-is-not-the-need", jax_preallocated),
    ("jax", "four-cards", jax_sharded),
    ("jax", "its-primitives-run", jax_primitives),
    ("jax", "the-line-is-that-of-the-program-that-was-refused", jax_place),
    ("jax", "fixes-are-in-jax-s-words", jax_fixes),
    ("jax", "what-a-loop-keeps-goes-to-the-host", jax_kept),
    ("jax", "an-error-that-is-caught-is-no-death", jax_caught),
    ("jax", "a-mask-of-the-host-selects-what-is-set", jax_masks),
    ("tensorflow", "keras-peaks-are-tensorflow-s-own", keras_fits),
    ("tensorflow", "keras-passes-end-when-their-peak-is-stable", keras_passes),
    ("tensorflow", "what-follows-the-training-is-run", keras_ends),
    ("tensorflow", "what-follows-a-loop-of-its-own-is-run", tensorflow_tape),
    ("tensorflow", "a-whole-set-goes-in-pieces", tensorflow_pieces),
    ("tensorflow", "a-full-card-is-reported-with-the-line-and-the-need", tensorflow_oom),
    ("tensorflow", "a-limit-of-the-program-is-kept", tensorflow_limit),
    ("tensorflow", "shapes-that-are-computed-have-values", tensorflow_sizes),
    ("tensorflow", "sizes-that-are-counted-are-true", tensorflow_counts),
    ("tensorflow", "an-error-that-is-caught-is-no-death", tensorflow_caught),
    ("tensorflow", "imported-and-not-used", tensorflow_unused),
    ("onnxruntime", "runs-on-the-card", onnx_fits),
    ("onnxruntime", "a-full-card-is-reported-with-the-line", onnx_oom),
    ("onnxruntime", "a-limit-of-the-arena-is-the-cause", onnx_limit),
    ("onnxruntime", "what-the-cpu-does-fits-no-card", onnx_fallback),
    ("onnxruntime", "a-limit-and-a-batch-are-fixes", onnx_fixes),
    ("onnxruntime", "what-a-loop-keeps-goes-to-the-host", onnx_kept),
    ("onnxruntime", "a-whole-set-goes-in-pieces", onnx_pieces),
    ("candle", "figures-are-the-program-s-own", rust_frameworks::candle_fits),
    ("candle", "kept-graphs-grow-by-the-byte", rust_frameworks::candle_graphs_are_kept),
    ("candle", "a-full-card-is-reported-with-the-line-and-the-need", rust_frameworks::candle_oom),
    ("burn", "figures-are-the-program-s-own", rust_frameworks::burn_fits),
    ("burn", "a-full-card-is-warned-of", rust_frameworks::burn_full_card),
];

/// One test for each of the table; those that were not asked for say so and pass.
pub fn trials() -> Vec<Trial> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let is_asked = |framework: &str| asked.split(',').any(|name| name.trim() == framework);
    TESTS
        .iter()
        .map(|(framework, name, test)| {
            let ignored = !is_asked(framework);
            if ignored {
                eprintln!("frameworks::{framework}::{name}: skipped, because {VARIABLE} does not name {framework}");
            }
            tried(format!("frameworks::{framework}::{name}"), move || {
                test().map_err(|error| Failed::from(format!("{error:#}")))
            })
            .with_ignored_flag(ignored)
        })
        .collect()
}

pub fn finish(mut run: Run) -> Result<(Finished, Value)> {
    let finished = run.finish()?;
    let report = finished.report()?;
    check::contract(&report).with_context(|| finished.story())?;
    Ok((finished, report))
}

fn run(gpu: &str, framework: Torch, program: &[&str]) -> Result<(Finished, Value)> {
    finish(Run::json(gpu, framework)?.args(["--until-exit"]).program(program))
}

fn with_vram(bytes: u64, framework: Torch, program: &[&str]) -> Result<(Finished, Value)> {
    let vram = format!("{}MiB", bytes.div_ceil(MIB));
    finish(Run::json("rtx-4090", framework)?.args(["--vram", &vram, "--until-exit"]).program(program))
}

pub fn number(report: &Value, path: &str) -> Result<u64> {
    report.pointer(path).and_then(Value::as_u64).with_context(|| format!("{path} is not a number in {report:#}"))
}

fn warns(report: &Value, text: &str) -> bool {
    report["warnings"].as_array().into_iter().flatten().any(|one| one.as_str().is_some_and(|one| one.contains(text)))
}

/// The verdict is `oom`, and the line is the one of the script that holds `line`.
pub fn dies_at(finished: &Finished, report: &Value, script: &str, line: &str) -> Result<()> {
    finished.ensure(report["verdict"] == "oom", format!("the verdict is {}", report["verdict"]))?;
    let source = std::fs::read_to_string(binary::root().join(script))?;
    let number = source.lines().position(|text| text.contains(line)).context("the script has the line")? + 1;
    let site = &report["devices"][0]["oom"]["site"];
    finished.ensure(site["line"] == number, format!("the site is {site}, not line {number}"))
}

/// The error said how much was asked for.
fn asked(finished: &Finished, report: &Value) -> Result<()> {
    finished.ensure(report["devices"][0]["oom"]["requested_bytes"].as_u64() > Some(0), "nothing was asked for")
}

/// What it would have needed, and a card of that size and a little more holds it.
fn need_is_enough(report: &Value, framework: Torch, program: &[&str]) -> Result<()> {
    let need = number(report, "/devices/0/oom/would_need_bytes")?;
    let capacity = number(report, "/devices/0/capacity_bytes")?;
    ensure!(need > capacity, "it would need {need} bytes, which the card of {capacity} has");
    // The pieces of a pool do not lie without gaps; the device's own rounding comes on top.
    let (finished, again) = with_vram(need + need / 10, framework, program)?;
    finished.ensure(again["verdict"] == "fits", format!("on a card of {need} bytes and a tenth: {}", again["verdict"]))
}

fn jax_fits() -> Result<()> {
    let (finished, report) = run("rtx-4090", JAX, SMALL_DECODER)?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    for (name, printed) in [("reserved", "peak_pool_bytes"), ("allocated", "peak_bytes_in_use")] {
        let reported = number(&report, &format!("/devices/0/peak/{name}_bytes"))?;
        ensure!(reported == finished.printed_number(printed)?, "{name} is {reported}\n{}", finished.story());
    }
    ensure!(number(&report, "/devices/0/pool/limit_bytes")? == finished.printed_number("bytes_limit")?);
    let step = report["compiled"].as_array().into_iter().flatten().find(|one| one["name"] == "jit_train_step");
    let step = step.context("the compiled step is reported")?;
    for name in ["argument", "output", "alias", "temp"] {
        let printed = finished.printed_number(&format!("{name}_bytes"))?;
        ensure!(step[format!("{name}_bytes")] == printed, "{name}: {step}, printed {printed}");
    }
    ensure!(warns(&report, "XLA_PYTHON_CLIENT_PREALLOCATE=false"), "it is not said that the pool grew");
    Ok(())
}

/// 3 GiB in two pieces fit in the 3.3 GiB that JAX takes at its start, and not in a pool that has grown before.
fn jax_whole_pool() -> Result<()> {
    let program = ["acceptance/programs/frameworks/jax_gaussian.py"];
    let (finished, report) = with_vram(4500 * MIB, JAX, &program)?;
    finished.ensure(report["verdict"] == "fits", format!("the verdict is {}", report["verdict"]))?;
    ensure!(report["devices"][0]["pool"]["preallocated"] == true, "{}", report["devices"][0]["pool"]);
    let (finished, report) = with_vram(3800 * MIB, JAX, &program)?;
    dies_at(&finished, &report, program[0], "mean, covariance = posterior(")
}

fn jax_oom() -> Result<()> {
    let program: Vec<&str> = SMALL_DECODER.iter().copied().chain(["--batch-size", "64"]).collect();
    let (finished, report) = with_vram(1536 * MIB, JAX, &program)?;
    // JAX runs ahead of the program: the error comes where the result is first read, and the line is the one that called.
    dies_at(&finished, &report, program[0], "= train_step(model, first, second, tokens, heads)")?;
    ensure!(report["devices"][0]["oom"]["model"] == "jit_train_step", "{}", report["devices"][0]["oom"]["model"]);
    asked(&finished, &report)?;
    let message = report["devices"][0]["oom"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("RESOURCE_EXHAUSTED"), "the message is {message}");
    // XLA adapts to the card, so that only runs say what it needs.
    let found = &report["devices"][0]["smallest_capacity"];
    ensure!(found["how"] == "run", "{found}");
    let need = number(found, "/capacity_bytes")?;
    ensure!(number(&report, "/devices/0/oom/would_need_bytes")? == need, "two needs: {found}");
    let ran_on = found["ran_on"].as_array().context("the runs are listed")?;
    ensure!(ran_on.iter().any(|run| run["bytes"] == need && run["held"] == true), "{ran_on:?}");
    let (finished, again) = with_vram(need, JAX, &program)?;
    finished.ensure(again["verdict"] == "fits", format!("on a card of {need} bytes: {}", again["verdict"]))
}

fn jax_primitives() -> Result<()> {
    let (finished, report) = run("rtx-4090", JAX, &["acceptance/programs/frameworks/jax_primitives.py"])?;
    ensure!(finished.printed("failed")? == "none", "{}", finished.story());
    finished.ensure(report["verdict"] == "fits", format!("the verdict is {}", report["verdict"]))
}

fn jax_place() -> Result<()> {
    let program = ["acceptance/programs/frameworks/jax_scan.py", "--batch", "64", "--length", "128"];
    let (finished, report) = with_vram(2 << 30, JAX, &program)?;
    dies_at(&finished, &report, program[0], "= update(params, velocity, tokens)")?;
    // Its error is handed on to all that takes its results, and names the last of them.
    let program = ["acceptance/programs/frameworks/jax_distances.py", "6000"];
    let (finished, report) = with_vram(6 << 30, JAX, &program)?;
    dies_at(&finished, &report, program[0], "differences = features")
}

/// Asks for fixes, holds the program with the first command that is printed against the card, and gives the answer.
fn fixes(vram: &str, framework: Torch, program: &[&str]) -> Result<Value> {
    let options = ["--gpu", "rtx-3060", "--vram", vram, "--format", "json", "--max-time", "120s"];
    let finished = Run::command("fix")?.args(options).with(framework).program(program).finish()?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "fixed", format!("the verdict is {}", report["verdict"]))?;
    let rows = report["fixes"].as_array().context("the fixes are listed")?;
    finished.ensure(rows.len() >= 2, "fewer than two answers")?;
    let command = rows.iter().find_map(|row| row["command"].as_str()).context("one is a command")?;
    let words: Vec<&str> = command.split_whitespace().filter(|word| *word != "python").collect();
    let run = Run::json("rtx-3060", framework)?.args(["--vram", vram, "--until-exit"]).program(&words);
    let (finished, again) = finish(run)?;
    finished.ensure(again["verdict"] == "fits", format!("{command}: {}", again["verdict"]))?;
    Ok(report)
}

/// Whether one of the fixes holds a remedy.
fn offers(report: &Value, remedy: &str) -> bool {
    let rows = report["fixes"].as_array().into_iter().flatten();
    rows.flat_map(|row| row["remedies"].as_array().into_iter().flatten())
        .any(|name| name.as_str().is_some_and(|name| name.split('/').next() == Some(remedy)))
}

fn jax_fixes() -> Result<()> {
    let words = "acceptance/programs/frameworks/jax_scan.py --batch 128 --length 128 --hidden 1024 --steps 3";
    let program: Vec<&str> = words.split(' ').collect();
    let report = fixes("1GiB", JAX, &program)?;
    ensure!(offers(&report, "smaller-training-batch"), "the batch is the program's own option: {}", report["fixes"]);
    ensure!(offers(&report, "gradient-checkpointing"), "a scan can be computed again: {}", report["fixes"]);
    Ok(())
}

fn onnx_fixes() -> Result<()> {
    let program = ["acceptance/programs/frameworks/onnx_runtime.py", "--arena-limit", "512"];
    let report = fixes("6GiB", ONNXRUNTIME, &program)?;
    ensure!(offers(&report, "raise-limit") && offers(&report, "smaller-batch"), "{}", report["fixes"]);
    Ok(())
}

/// The container that fills the card is named with its line, and the patch that moves it off the card holds the program.
fn kept(vram: &str, framework: Torch, script: &str, remedy: &str, said: &str) -> Result<()> {
    let options = ["--gpu", "rtx-3060", "--vram", vram, "--format", "json", "--max-time", "120s"];
    let finished = Run::command("fix")?.args(options).with(framework).program(&[script]).finish()?;
    let report = finished.report()?;
    ensure!(warns(&report, said), "{said}: {}", report["warnings"]);
    patched(&report, vram, framework, script, remedy)
}

/// The program holds with the patch of a fix that is this remedy alone, whatever its amount.
fn patched(report: &Value, vram: &str, framework: Torch, script: &str, remedy: &str) -> Result<()> {
    let rows = report["fixes"].as_array().context("the fixes are listed")?;
    let alone = |row: &&Value| {
        row["remedies"].as_array().is_some_and(|names| names.len() == 1)
            && offers(&serde_json::json!({"fixes": [row]}), remedy)
    };
    let row = rows.iter().find(alone).with_context(|| format!("{remedy} is not a fix: {rows:#?}"))?;
    // By hand: the program with the lines of the patch.
    let patch = row["apply"][0]["text"].as_str().context("the fix is a patch")?;
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join(script);
    std::fs::create_dir_all(copy.parent().context("it lies in a folder")?)?;
    std::fs::copy(binary::root().join(script), &copy)?;
    std::fs::write(folder.path().join("fix.patch"), patch)?;
    let applied =
        std::process::Command::new("patch").current_dir(folder.path()).args(["-p1", "-i", "fix.patch"]).output();
    ensure!(applied?.status.success(), "the patch does not apply:\n{patch}");
    let run = Run::json("rtx-3060", framework)?.args(["--vram", vram, "--until-exit", "--", "python"]).args([&copy]);
    let (finished, again) = finish(run)?;
    finished.ensure(again["verdict"] == "fits", format!("the patched program: {}", again["verdict"]))
}

fn jax_kept() -> Result<()> {
    let script = "acceptance/programs/frameworks/jax_history.py";
    kept("4GiB", JAX, script, "collect-on-host", "`snapshots` keeps")
}

fn jax_caught() -> Result<()> {
    caught(JAX, "acceptance/programs/frameworks/jax_halving.py", "train_step(params, x, y)", "batch 1024 fits")
}

fn jax_masks() -> Result<()> {
    let program = ["acceptance/programs/frameworks/jax_masks.py"];
    let (finished, report) = run("rtx-3060", JAX, &program)?;
    finished.ensure(report["verdict"] == "fits", format!("the verdict is {}", report["verdict"]))?;
    finished.ensure(finished.story().contains("selected 1000 1000"), "the most is not taken")?;
    ensure!(warns(&report, "number of selected elements"), "{}", report["warnings"]);
    Ok(())
}

fn onnx_kept() -> Result<()> {
    let script = "acceptance/programs/frameworks/onnx_gallery.py";
    kept("4GiB", ONNXRUNTIME, script, "eval-accumulation", "`gallery` keeps")
}

/// An evaluation that is given its whole set at once gets it in pieces; the batch of the loop before it would not help.
fn pieces(vram: &str, framework: Torch, script: &str) -> Result<()> {
    let options = ["--gpu", "rtx-3060", "--vram", vram, "--format", "json", "--max-time", "120s"];
    let finished = Run::command("fix")?.args(options).with(framework).program(&[script]).finish()?;
    patched(&finished.report()?, vram, framework, script, "in-pieces").with_context(|| finished.story())
}

fn onnx_pieces() -> Result<()> {
    pieces("4GiB", ONNXRUNTIME, "acceptance/programs/frameworks/onnx_segment.py")
}

fn tensorflow_pieces() -> Result<()> {
    pieces("4GiB", TENSORFLOW, "acceptance/programs/frameworks/tensorflow_tape.py")
}

fn jax_preallocated() -> Result<()> {
    let plain = run("rtx-4090", JAX, SMALL_DECODER)?.1;
    let taken = Run::json("rtx-4090", JAX)?
        .env("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
        .env("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
        .args(["--until-exit"])
        .program(SMALL_DECODER);
    let (finished, taken) = finish(taken)?;
    let capacity = number(&taken, "/devices/0/capacity_bytes")?;
    ensure!(number(&taken, "/devices/0/peak/process_bytes")? > capacity / 2, "half of the card was to be taken");
    let limit = number(&taken, "/devices/0/pool/limit_bytes")?;
    ensure!(limit.abs_diff(capacity / 2) < MIB, "the limit is {limit}\n{}", finished.story());
    let allocated = |report: &Value| number(report, "/devices/0/peak/allocated_bytes");
    // A block counts whole, and how much larger than its content it is depends on the gap where it was put.
    let (whole, grown) = (allocated(&taken)?, allocated(&plain)?);
    ensure!(whole.abs_diff(grown) <= grown / 100, "the need depends on the pool: {whole}, {grown} in one that grows");
    ensure!(!taken["fits_on"].as_array().context("a list")?.is_empty());
    ensure!(warns(&taken, "preallocated"), "it is not said that the pool was taken whole");
    Ok(())
}

fn jax_sharded() -> Result<()> {
    let program =
        ["acceptance/programs/frameworks/jax_sharded.py", "--width", "1024", "--batch-size", "1024", "--depth", "2"];
    let (finished, report) = run("rtx-4090:4", JAX, &program)?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    for card in 0..4 {
        let reported = number(&report, &format!("/devices/{card}/peak/allocated_bytes"))?;
        let printed = finished.printed_number(&format!("peak_bytes_in_use_{card}"))?;
        ensure!(reported == printed, "card {card}: {reported}, printed {printed}");
    }
    Ok(())
}

fn keras_fits() -> Result<()> {
    let (finished, report) =
        run("rtx-4090", TENSORFLOW, &["acceptance/programs/frameworks/keras_convnet.py", "--batches", "3"])?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    let allocated = number(&report, "/devices/0/peak/allocated_bytes")?;
    ensure!(allocated == finished.printed_number("peak")?, "allocated {allocated}\n{}", finished.story());
    let capacity = number(&report, "/devices/0/capacity_bytes")?;
    ensure!(number(&report, "/devices/0/peak/process_bytes")? < capacity / 2, "the pool was taken whole");
    ensure!(report["steps"] == 3, "{} steps", report["steps"]);
    ensure!(report["frameworks"]["keras"].is_string(), "{}", report["frameworks"]);
    Ok(())
}

fn keras_ends() -> Result<()> {
    let program = ["acceptance/programs/frameworks/keras_validation.py"];
    let dry = |more: &[&str]| {
        let program: Vec<&str> = program.iter().chain(more).copied().collect();
        finish(Run::json("rtx-3060", TENSORFLOW)?.args(["--vram", "3GiB"]).program(&program))
    };
    let (finished, report) = dry(&[])?;
    finished.ensure(report["verdict"] == "fits", format!("the verdict is {}", report["verdict"]))?;
    finished.ensure(finished.story().contains("test ["), "it did not come to its end")?;
    let (finished, report) = dry(&["--test-batch-size", "2048"])?;
    dies_at(&finished, &report, program[0], "model.evaluate(")
}

fn keras_passes() -> Result<()> {
    let program =
        ["acceptance/programs/frameworks/keras_convnet.py", "--batches", "1000", "--size", "64", "--jit-compile"];
    let (finished, report) = finish(Run::json("rtx-4090", TENSORFLOW)?.program(&program))?;
    finished.ensure(report["stopped"] == "exit", format!("stopped: {}", report["stopped"]))?;
    ensure!(report["loops"][0]["shortened"] == true && report["loops"][0]["of"] == 1000, "{}", report["loops"]);
    ensure!(number(&report, "/steps")? < 20, "it went on for {} steps", report["steps"]);
    Ok(())
}

fn tensorflow_oom() -> Result<()> {
    let program = ["acceptance/programs/frameworks/tensorflow_loop.py", "--depth", "4", "--batch-size", "16384"];
    let (finished, report) = with_vram(3 << 30, TENSORFLOW, &program)?;
    // TensorFlow's own error names the operation and not the size.
    dies_at(&finished, &report, program[0], "loss = train_step(tf.random.normal")?;
    let allocated = number(&report, "/devices/0/oom/allocated_bytes")?;
    ensure!(allocated > 512 * MIB, "the weights alone take 512 MiB; {allocated} bytes are reported");
    ensure!(
        report["devices"][0]["oom"]["reserved_bytes"].is_null(),
        "TensorFlow does not report how large its pool is"
    );
    need_is_enough(&report, TENSORFLOW, &program)
}

fn tensorflow_tape() -> Result<()> {
    // Its training takes 1.3 GiB, and the evaluation behind it more than the pool has.
    let program = ["acceptance/programs/frameworks/tensorflow_tape.py"];
    let (finished, report) = finish(Run::json("rtx-3060", TENSORFLOW)?.args(["--vram", "4GiB"]).program(&program))?;
    dies_at(&finished, &report, program[0], "model(test_images, training=False)")
}

fn tensorflow_sizes() -> Result<()> {
    // The length of its sentences changes, so that its functions compute shapes as they run, and assert that they agree.
    let program = ["acceptance/programs/frameworks/tensorflow_seq2seq.py", "--batch-size", "8"];
    let (finished, report) = run("rtx-4090", TENSORFLOW, &program)?;
    finished.ensure(report["verdict"] == "fits", format!("the verdict is {}", report["verdict"]))?;
    finished.ensure(report["steps"] == 18, format!("{} steps", report["steps"]))
}

fn tensorflow_counts() -> Result<()> {
    let (finished, report) = run("rtx-4090", TENSORFLOW, &["acceptance/programs/frameworks/tensorflow_sizes.py"])?;
    finished.ensure(report["verdict"] == "fits", format!("the verdict is {}", report["verdict"]))?;
    let unknown = report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let unknown = unknown.filter(|text| text.contains("never computed")).count();
    ensure!(unknown == 3, "{unknown} sizes are not known: {}", report["warnings"]);
    Ok(())
}

fn tensorflow_caught() -> Result<()> {
    caught(
        TENSORFLOW,
        "acceptance/programs/frameworks/tensorflow_halving.py",
        "model(x, training=True)",
        "training with batch",
    )
}

/// A program that halves its batch until it fits has recovered, at the line that was refused.
fn caught(framework: Torch, program: &str, line: &str, said: &str) -> Result<()> {
    let card = ["--vram", "4GiB", "--no-probe"];
    let (finished, report) = finish(Run::json("rtx-3060", framework)?.args(card).program(&[program]))?;
    finished.ensure(report["verdict"] == "recovered", format!("the verdict is {}", report["verdict"]))?;
    finished.ensure(finished.story().contains(said), format!("it does not say {said:?}"))?;
    let site = &report["devices"][0]["caught_ooms"][0]["site"];
    ensure!(site["text"].as_str().is_some_and(|text| text.contains(line)), "{}", report["devices"][0]["caught_ooms"]);
    Ok(())
}

fn tensorflow_limit() -> Result<()> {
    let program = ["acceptance/programs/frameworks/tensorflow_loop.py", "--width", "1024", "--memory-limit", "2000"];
    let (finished, report) = run("rtx-4090", TENSORFLOW, &program)?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    ensure!(number(&report, "/devices/0/pool/limit_bytes")? == 2000 * MIB, "{}", report["devices"][0]["pool"]);
    let tight = ["acceptance/programs/frameworks/tensorflow_loop.py", "--memory-limit", "600"];
    let (finished, report) = run("rtx-4090", TENSORFLOW, &tight)?;
    finished.ensure(report["verdict"] == "oom", format!("the verdict is {}", report["verdict"]))?;
    Ok(())
}

fn tensorflow_unused() -> Result<()> {
    let (finished, report) = run("rtx-4090", TENSORFLOW, &["acceptance/programs/frameworks/tensorflow_unused.py"])?;
    finished.ensure(report["exit_status"] == 0, "it failed")?;
    ensure!(report["devices"][0]["peak"]["allocated_bytes"].is_null(), "something was allocated");
    Ok(())
}

fn onnx_fits() -> Result<()> {
    let program = ["acceptance/programs/frameworks/onnx_runtime.py", "--exact"];
    let (finished, report) = run("rtx-4090", ONNXRUNTIME, &program)?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    ensure!(finished.printed("providers")?.starts_with("CUDAExecutionProvider"), "{}", finished.story());
    // The output of one convolution, and its ReLU's, lie on the card at once.
    let image = 8 * 128 * 256 * 256 * 4;
    ensure!(number(&report, "/devices/0/peak/process_bytes")? > 2 * image, "{}", report["devices"][0]["peak"]);
    Ok(())
}

fn onnx_oom() -> Result<()> {
    let program = ["acceptance/programs/frameworks/onnx_runtime.py", "--batch-size", "64"];
    let (finished, report) = with_vram(3 << 30, ONNXRUNTIME, &program)?;
    dies_at(&finished, &report, program[0], "session.run(")?;
    asked(&finished, &report)?;
    ensure!(report["devices"][0]["oom"]["allocated_bytes"].is_null(), "ONNX Runtime does not tell what it holds");
    Ok(())
}

fn onnx_limit() -> Result<()> {
    let program = ["acceptance/programs/frameworks/onnx_runtime.py", "--arena-limit", "512"];
    let (finished, report) = finish(Run::json("rtx-4090", ONNXRUNTIME)?.program(&program))?;
    dies_at(&finished, &report, program[0], "session.run(")?;
    ensure!(report["devices"][0]["pool"]["limit_bytes"] == 512 * MIB, "{}", report["devices"][0]["pool"]);
    ensure!(report["devices"][0]["oom"]["would_need_bytes"].is_null(), "no card holds what the limit does not let in");
    ensure!(report["fits_on"].as_array().is_some_and(Vec::is_empty), "{}", report["fits_on"]);
    ensure!(warns(&report, "gpu_mem_limit"), "the limit is named: {}", report["warnings"]);
    Ok(())
}

fn onnx_fallback() -> Result<()> {
    let program = ["acceptance/programs/frameworks/onnx_batches.py", "--without-libraries"];
    let (finished, report) = run("rtx-4090", ONNXRUNTIME, &program)?;
    finished.ensure(finished.status.code() == Some(3), format!("it ends with {}", finished.status))?;
    ensure!(report["verdict"] == "failed", "{}", report["verdict"]);
    let why = report["fallback"].as_str().unwrap_or_default();
    ensure!(why.contains("CUDAExecutionProvider"), "{why}");
    Ok(())
}

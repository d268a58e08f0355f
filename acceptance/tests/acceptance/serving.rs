//! Tests programs that serve models: what they say of their memory, against the device's own books.
//!
//! llama.cpp's library runs always, because its wheel is small; its own programs run where `OOMPH_LLAMA_CPP` names the
//! folder that has them (`llama-server`, `llama-fit-params`, and the CUDA backend). `OOMPH_FRAMEWORKS` names, with commas, what else runs: `vllm`
//! (8 GB of packages), `static-runtime` (CTranslate2 and CuPy, which bring a CUDA runtime of their own).

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::again::tried;
use crate::run::{Finished, Run, Torch, Turn};
use crate::{binary, check};

const MIB: u64 = 1 << 20;
/// What the driver takes of a card for a block of its own, in bytes.
const GRANULE: u64 = 2 * MIB;

const LLAMA_CPP: Torch = Torch { name: "llama-cpp", requirements: include_str!("../../requirements/llama-cpp.txt") };
const VLLM: Torch = Torch { name: "vllm", requirements: include_str!("../../requirements/vllm.txt") };
/// A model of 3 billion weights, for a server.
const SMALL: &str = "acceptance/programs/training/llama-3.2-3b";
const STATIC_RUNTIME: Torch =
    Torch { name: "static-runtime", requirements: include_str!("../../requirements/static-runtime.txt") };

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        tried(format!("serving::{name}"), move || test().map_err(|error| format!("{error:#}").into()))
    };
    let mut trials = vec![
        trial("llama-cpp-buffers-are-the-books", || llama_cpp_buffers(99)),
        trial("llama-cpp-half-on-the-card", || llama_cpp_buffers(16)),
        trial("llama-cpp-does-not-fit", llama_cpp_does_not_fit),
        trial("llama-cpp-library-of-a-binary", llama_cpp_library_of_a_binary),
    ];
    match std::env::var("OOMPH_LLAMA_CPP") {
        Ok(programs) => {
            let also = programs.clone();
            trials.push(tried("serving::llama-server-fits-itself-to-the-card", move || {
                llama_server(&programs).map_err(|error| format!("{error:#}").into())
            }));
            trials.push(tried("serving::llama-server-is-fixed-by-its-options", move || {
                llama_server_fixed(&also).map_err(|error| format!("{error:#}").into())
            }));
        }
        Err(_) => eprintln!("serving: llama-server is not tried, because OOMPH_LLAMA_CPP names no folder with it"),
    }
    if wanted("static-runtime") {
        trials.push(trial("static-runtime-is-named", static_runtime_is_named));
    }
    if wanted("vllm") {
        const TWO: &[&str] = &["tiny", "--eager", "--cards", "2", "--generate", "8"];
        trials.push(trial("vllm-answers-a-request", || vllm("rtx-4090", &["tiny", "--eager", "--generate", "8"])));
        trials.push(trial("vllm-compiles", || vllm("rtx-4090", &["tiny", "--generate", "8"])));
        trials.push(trial("vllm-finds-its-share-taken", || {
            vllm_dies(include_str!("../../programs/vllm/judge.py"), &["judge.py", SMALL, SMALL], "llm = LLM(")
        }));
        trials.push(trial("vllm-dies-while-it-answers", || {
            vllm_dies(
                include_str!("../../programs/vllm/perplexity.py"),
                &["perplexity.py", SMALL],
                "answer = llm.generate(",
            )
        }));
        trials.push(trial("vllm-on-two-cards", || vllm("rtx-4090:2", TWO)));
        // Cards that reach each other share buffers for their sums.
        trials.push(trial("vllm-on-two-cards-that-share", || vllm("h100:2", TWO)));
    }
    if wanted("vllm-real-cards") {
        trials.push(trial("vllm-cache-of-a-real-card", vllm_cache_of_a_real_card));
    }
    trials
}

/// Whether `OOMPH_FRAMEWORKS` names it.
fn wanted(framework: &str) -> bool {
    let named = std::env::var("OOMPH_FRAMEWORKS").unwrap_or_default();
    let wanted = named.split(',').any(|name| name.trim() == framework);
    if !wanted {
        eprintln!("serving: {framework} is not tried, because OOMPH_FRAMEWORKS does not name it");
    }
    wanted
}

/// llama.cpp on a 7-billion shape in 4 bits: the report, and the device log.
fn llama_cpp(options: &[&str], arguments: &[&str]) -> Result<(Finished, Vec<Value>)> {
    let run = Run::json("rtx-4090", LLAMA_CPP)?.args(["--until-exit", "--allow-writes"]).args(options);
    let folder = run.folder().to_owned();
    let log = folder.join("log");
    let run = run.args(["--snapshot".as_ref(), log.as_os_str()]);
    let folder = folder.to_str().context("the temporary folder has no plain name")?;
    let mut run = run.program(&[&["acceptance/programs/serving/llama_cpp.py", folder], arguments].concat());
    let finished = run.finish()?;
    let text = std::fs::read_to_string(&log).with_context(|| finished.story())?;
    let events = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((finished, events))
}

/// The sizes of the events of one kind, in bytes.
fn sizes(events: &[Value], kind: &str) -> Vec<u64> {
    events.iter().filter(|event| event["kind"] == kind).filter_map(|event| event["size"].as_u64()).collect()
}

/// The lines `... CUDA0 <what> buffer size = <MiB> MiB`, in order.
fn printed_buffers(finished: &Finished) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(&finished.stderr).into_owned();
    let buffer = |line: &str| {
        let (what, size) = line.split_once("CUDA0 ")?.1.split_once(" buffer size = ")?;
        Some((what.to_owned(), size.trim().strip_suffix(" MiB")?.to_owned()))
    };
    text.lines().filter_map(buffer).collect()
}

/// Every buffer that llama.cpp says it has on the card is a block of the device's books, in the same order and of the
/// same size, there is no other, and together they are the peak.
fn llama_cpp_buffers(layers_on_the_card: u32) -> Result<()> {
    let wish = layers_on_the_card.to_string();
    let (finished, events) = llama_cpp(&[], &["--gpu-layers", &wish])?;
    let report = finished.report()?;
    check::contract(&report)?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    finished.ensure(finished.printed("decoded")? == "0", "the tokens were not evaluated")?;
    let offloaded = format!("offloaded {}/33 layers to GPU", layers_on_the_card.min(33));
    finished.ensure(
        String::from_utf8_lossy(&finished.stderr).contains(&offloaded),
        format_args!("it does not say {offloaded:?}"),
    )?;

    let printed = printed_buffers(&finished);
    let names: Vec<&str> = printed.iter().map(|(what, _)| what.as_str()).collect();
    ensure!(names == ["model", "KV", "compute"], "it speaks of the buffers {names:?}");
    let blocks = sizes(&events, "malloc");
    let in_books: Vec<String> = blocks.iter().map(|size| format!("{:.2}", *size as f64 / MIB as f64)).collect();
    let said: Vec<&str> = printed.iter().map(|(_, size)| size.as_str()).collect();
    finished.ensure(in_books == said, format_args!("the books have {in_books:?} MiB, llama.cpp says {said:?}"))?;

    // Its pool for the moments of a kernel is mapped memory, which it does not speak of.
    let pool: u64 = sizes(&events, "map").iter().sum();
    let held: u64 = blocks.iter().map(|size| size.next_multiple_of(GRANULE)).sum();
    let peak = &report["devices"][0]["peak"];
    let context = peak["context_bytes"].as_u64().context("no context")?;
    ensure!(peak["process_bytes"] == context + held + pool, "{peak} is not {context} + {held} + {pool}");

    // What is on the card takes nothing of the host; the other layers do, as they would in earnest.
    let all = layers_on_the_card >= 33;
    finished.ensure(
        !all || finished.max_rss_bytes < 1 << 30,
        format_args!("{} bytes of host memory", finished.max_rss_bytes),
    )
}

/// A card too small for the KV cache: what it asked for, what it would need, and what to do in llama.cpp's own words.
fn llama_cpp_does_not_fit() -> Result<()> {
    let (finished, _) = llama_cpp(&["--vram", "5GiB"], &[])?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "oom", "it fits")?;
    let oom = &report["devices"][0]["oom"];
    // 4096 positions of 32 layers, keys and values of 4096 halves each.
    ensure!(oom["requested_bytes"] == 4096_u64 * 32 * 2 * 4096 * 2, "{oom}");
    let needed = oom["would_need_bytes"].as_u64().context("nothing is said of its need")?;
    ensure!(needed > 5 << 30 && needed < 7 << 30, "{needed} bytes are needed");

    let mut explain = Run::command("explain")?.args(["-", "--format", "json"]).input(&finished.stderr);
    let explained = explain.finish()?;
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    // It fills the structures of a binding, whose attributes have other names than the options of the programs.
    for word in ["n_gpu_layers=", "n_ctx=2048", "type_k=8"] {
        explained.ensure(text.contains(word), format_args!("nothing says {word}"))?;
    }
    Ok(())
}

/// A user's own binary on llama.cpp's library, on a machine without the CUDA toolkit that the library is linked against.
fn llama_cpp_library_of_a_binary() -> Result<()> {
    let build = Run::json("rtx-4090", LLAMA_CPP)?.args(["--allow-writes"]);
    let binary = build.folder().join("buffer");
    let path = binary.to_str().context("the temporary folder has no plain name")?.to_owned();
    // The folder goes with the run.
    let mut build = build.program(&["acceptance/programs/serving/ggml_build.py", &path]);
    let built = build.finish()?;
    built.ensure(binary.is_file(), "nothing was built")?;

    let run = |card: &[&str]| -> Result<Finished> {
        let run = Run::dry_run()?.args(["--gpu", "rtx-4090", "--format", "json"]).args(card);
        run.args(["--", &path, "3072"]).finish()
    };
    let finished = run(&[])?;
    let peak = &finished.report()?["devices"][0]["peak"];
    finished.ensure(finished.printed_number("buffer")? == 3 << 30, "the buffer is not as asked")?;
    finished.ensure(peak["other_bytes"] == 3_u64 << 30, format_args!("the books have {peak}"))?;
    let finished = run(&["--vram", "2GiB"])?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "oom", "3 GiB fit on 2")?;
    finished.ensure(report["devices"][0]["oom"]["requested_bytes"] == 3_u64 << 30, "the request is not reported")
}

/// llama.cpp's server as Ollama starts it: `--fit` puts as many layers on the card as leave free what it keeps free, it
/// answers a request, and what it says is left is what the card's books say.
fn llama_server(programs: &str) -> Result<()> {
    const KEPT_FREE: u64 = 1024 * MIB;
    // A layer's weights in 4 bits and its part of the cache: 4 * 4096^2 + 3 * 4096 * 11008 weights of 18 bytes each 32,
    // 4096 positions of keys and values of 4096 halves each.
    const LAYER: u64 = (4 * 4096 * 4096 + 3 * 4096 * 11008) / 32 * 18 + 4096 * 2 * 4096 * 2;
    let script = binary::programs().join("serving").join("llama_server.py");
    for (memory, all) in [("4GiB", false), ("12GiB", true)] {
        let run = Run::dry_run()?.args(["--gpu", "rtx-4090", "--vram", memory, "--format", "json", "--allow-writes"]);
        let line = format!("python3 {} {programs} {}", script.display(), run.folder().display());
        let finished = run.args(["--", "sh", "-c", &line]).finish()?;
        let report = finished.report()?;
        check::contract(&report)?;
        finished.ensure(report["verdict"] == "fits", "it does not fit")?;
        finished.ensure(finished.printed_number("predicted")? == 8, "the request did not end as it should")?;

        let fitted = finished.printed("fitted")?;
        let layers = fitted.rsplit(' ').next().context("nothing was fitted")?;
        let offloaded = format!("offloaded {}/33 layers to GPU", if all { "33" } else { layers });
        let said = String::from_utf8_lossy(&finished.stderr).into_owned();
        finished.ensure(said.contains(&offloaded), format_args!("{fitted:?}, but not {offloaded:?}"))?;

        let device = &report["devices"][0];
        let capacity = device["capacity_bytes"].as_u64().context("a card without a limit")?;
        let free = capacity - device["peak"]["process_bytes"].as_u64().context("no peak")?;
        finished.ensure(
            free >= KEPT_FREE && (all || free < KEPT_FREE + LAYER),
            format_args!("{free} bytes are free, where {KEPT_FREE} shall be, and a layer is {LAYER}"),
        )?;
        // The last of its tables is of what it has: `- CUDA0 (RTX 4090) | total = free + (...`.
        let table =
            said.lines().rev().find(|line| line.contains("- CUDA0 (")).context("it says nothing of its memory")?;
        let left = table.split('=').nth(1).and_then(|part| part.split_whitespace().next()).context(table.to_owned())?;
        finished.ensure(left == (free / MIB).to_string(), format_args!("{free} bytes are free; it says {table}"))?;
    }
    Ok(())
}

/// llama-server with more layers than fit: `fix` says how many do, and one layer more would not; it ends each server that
/// waits for requests.
fn llama_server_fixed(programs: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let make = "import gguf_of_holes; gguf_of_holes.write('model.gguf', dict(layers=32, embedding=4096, feed_forward=14336, \
                heads=32, kv_heads=8, vocabulary=128256, context=131072), 'Q8_0', words=True)";
    let made = std::process::Command::new("python3")
        .args(["-c", make])
        .current_dir(folder.path())
        .env("PYTHONPATH", binary::programs().join("serving"))
        .status()?;
    ensure!(made.success(), "no model was made: {made}");
    let server = format!("{programs}/llama-server");
    let model = folder.path().join("model.gguf");
    let model = model.to_str().context("the temporary folder has no plain name")?;
    let card = ["--gpu", "rtx-3060", "--format", "json"];
    let line = |layers: u64| {
        let layers = layers.to_string();
        ["--", &server, "-m", model, "-ngl", &layers, "-c", "32768"].map(str::to_owned)
    };

    let finished = Run::command("fix")?
        .args(card)
        .args(["--allow", "fewer-gpu-layers", "--fixes", "1"])
        .args(line(99))
        .finish()?;
    let report = finished.report()?;
    finished.ensure(report["verdict"] == "fixed", "nothing was found")?;
    let command = report["fixes"][0]["command"].as_str().context("the fix has no command")?;
    let layers = command.split(" -ngl ").nth(1).and_then(|rest| rest.split(' ').next()).context(command.to_owned())?;
    let layers: u64 = layers.parse()?;
    for (layers, fits) in [(layers, true), (layers + 2, false)] {
        let finished = Run::dry_run()?.args(card).args(["--no-probe"]).args(line(layers)).finish()?;
        let report = finished.report()?;
        finished.ensure((report["verdict"] == "fits") == fits, format_args!("with {layers} layers"))?;
        finished.ensure(!fits || report["stopped"] == "listening", "it was not seen to wait for requests")?;
    }
    Ok(())
}

/// The file that brings the runtime is named as the cause, with one status.
fn static_runtime_is_named() -> Result<()> {
    for (module, file) in [("ctranslate2", "libctranslate2"), ("cupy", "runtime.cpython")] {
        let run = Run::json("rtx-4090", STATIC_RUNTIME)?.args(["--no-probe"]);
        let finished = run.program(&["acceptance/programs/serving/own_runtime.py", module]).finish()?;
        let report = finished.report()?;
        let named = report["fault"]["static_runtime"].as_str().is_some_and(|name| name.contains(file));
        finished.ensure(named && report["verdict"] == "failed", format_args!("{module}: {}", report["fault"]))?;
        // One status, whether the program ends with an error or goes on without the card.
        finished.ensure(finished.status.code() == Some(2), format_args!("{module}: another status"))?;
    }
    Ok(())
}

/// vLLM's engine on some cards: it gets its cache, and its requests end.
fn vllm(gpu: &str, arguments: &[&str]) -> Result<()> {
    let finished = engine(gpu, arguments)?;
    let report = finished.report()?;
    check::contract(&report)?;
    finished.ensure(report["verdict"] == "fits", "it does not fit")?;
    finished.ensure(finished.printed_number("blocks")? > 0, "it got no cache")?;
    finished.ensure(finished.printed_number("generated")? == 8, "the request did not end as it should")
}

/// A program of 24 GB that has no room for its engine, or for what the engine does: it does not fit, at the line with these
/// words.
fn vllm_dies(text: &str, arguments: &[&str], words: &str) -> Result<()> {
    let [script, options @ ..] = arguments else { bail!("no program") };
    let run = Run::json("rtx-4090", VLLM)?.args(["--until-exit", "--no-probe"]).turn(Turn::Alone);
    let script = format!("acceptance/programs/vllm/{script}");
    let finished = run.program(&[&[script.as_str()], options].concat()).finish()?;
    let report = finished.report()?;
    check::contract(&report)?;
    let line = text.lines().position(|line| line.contains(words)).context("the program has no such line")? + 1;
    let oom = &report["devices"][0]["oom"];
    finished.ensure(report["verdict"] == "oom", "it is not called a lack of memory")?;
    finished.ensure(oom["site"]["line"] == line, format_args!("line {line} is not named: {}", oom["site"]))
}

fn engine(gpu: &str, arguments: &[&str]) -> Result<Finished> {
    with_engine(Run::json(gpu, VLLM)?, arguments)
}

fn with_engine(run: Run, arguments: &[&str]) -> Result<Finished> {
    let run = run.args(["--until-exit", "--no-probe", "--no-owners"]).turn(Turn::Alone);
    run.program(&[&["acceptance/programs/serving/vllm_engine.py"], arguments].concat()).finish()
}

/// The tokens that vLLM's cache holds are those of public logs of real cards, each with the version of its log.
fn vllm_cache_of_a_real_card() -> Result<()> {
    const WITHIN: f64 = 0.03;
    let readings = include_str!("../../readings/vllm-real-cards.csv");
    for line in readings.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [version, shape, card, utilization, length, batched, sequences, eager, _, tokens, source] = fields[..]
        else {
            bail!("not a reading: {line}");
        };
        let mut arguments = vec![shape, "--utilization", utilization, "--max-model-len", length];
        arguments.extend(["--max-num-batched-tokens", batched, "--max-num-seqs", sequences]);
        if eager == "yes" {
            arguments.push("--eager");
        }
        let run = Run::dry_run()?.args(["--gpu", card, "--format", "json", "--with", &format!("vllm=={version}")]);
        let finished = with_engine(run, &arguments)?;
        let (found, real) = (finished.printed_number("tokens")? as f64, tokens.parse::<f64>()?);
        let off = found / real - 1.0;
        eprintln!("{version} {shape} {card}: {found} tokens, {real} on the real card ({:+.2} %)", 100.0 * off);
        finished.ensure(off.abs() < WITHIN, format_args!("{found} tokens; {real} on the real card: {source}"))?;
    }
    Ok(())
}

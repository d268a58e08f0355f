//! Tests jobs of several ranks and cards: what each rank holds, against the arithmetic of its method, and jobs of which
//! only some ranks run, against the same jobs run whole.
//!
//! DeepSpeed is built against an installed PyTorch, which no list of requirements can say. `OOMPH_DEEPSPEED` names a
//! folder that holds it (`pip install --target FOLDER --no-build-isolation --no-deps deepspeed hjson ninja py-cpuinfo einops
//! msgpack`); without one, what needs it is skipped. `OOMPH_MEGATRON` does the same for Megatron-Core (`pip install
//! --target FOLDER --no-deps megatron-core`).

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use crate::again::tried;
use crate::binary;
use crate::check;
use crate::run::{Finished, Run, TORCH_2_15, Turn};

/// Parameters of the eight blocks 1024 -> 4096 -> 1024 of the programs, and those of them that are biases.
const PARAMETERS: u64 = 8 * (2 * 1024 * 4096) + BIASES;
const BIASES: u64 = 8 * (4096 + 1024);
/// What PyTorch's allocator rounds to, in bytes: what a flag or a norm takes.
const SCALAR: u64 = 512;

/// The tests of this file.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        tried(format!("distributed::{name}"), move || test().map_err(|error| format!("{error:#}").into()))
    };
    vec![
        trial("fsdp2-rests-on-a-share", fsdp2_rests_on_a_share),
        trial("tensor-parallel-rests-on-a-share", tensor_parallel_rests_on_a_share),
        trial("zero-rests-on-a-share", zero_rests_on_a_share),
        trial("pipeline-stages-differ", pipeline_stages_differ),
        trial("some-ranks-are-as-all-fsdp2", || some_ranks_are_as_all(&["train.py", "fsdp2"], None, 0)),
        trial("some-ranks-are-as-all-ddp", || some_ranks_are_as_all(&["train.py", "ddp"], None, 0)),
        // Whether a message has gone when the next one is made is a matter of time: one segment more or less.
        trial("some-ranks-are-as-all-pipeline", || some_ranks_are_as_all(&["pipeline.py"], None, 20 << 20)),
        trial("some-ranks-are-as-all-messages", || some_ranks_are_as_all(&["messages.py"], None, 0)),
        trial("messages-of-absent-ranks", messages_of_absent_ranks),
        trial("some-ranks-are-as-all-zero-3", || match deepspeed() {
            Some(folder) => some_ranks_are_as_all(&["zero.py", "--stage", "3"], Some(&folder), 0),
            None => Ok(()),
        }),
        trial("megatron-rests-on-a-share", megatron_rests_on_a_share),
        trial("a-thousand-ranks", a_thousand_ranks),
        trial("llama-70b-on-64-cards", llama_70b_on_64_cards),
        trial("cards-of-one-process", cards_of_one_process),
    ]
}

/// Where DeepSpeed is, if it is anywhere.
fn deepspeed() -> Option<String> {
    packages("DeepSpeed", "OOMPH_DEEPSPEED")
}

/// The folder of packages that a variable names.
fn packages(name: &str, variable: &str) -> Option<String> {
    let folder = std::env::var(variable).ok();
    if folder.is_none() {
        eprintln!("distributed: {name} is not tried, because {variable} names no folder with it");
    }
    folder
}

/// A job of `machines` with `each` ranks on eight cards: its report is sound, and each card's peak is its rank's own.
fn job(ranks: Option<&str>, machines: u64, each: u64, program: &[&str], packages: Option<&str>) -> Result<Finished> {
    let (script, arguments) = program.split_first().context("a program has a name")?;
    let mut run = Run::json(&format!("h100:{}", each.min(8)), TORCH_2_15)?.args(["--until-exit", "--no-owners"]);
    if let Some(ranks) = ranks {
        run = run.args(["--ranks", ranks]);
    }
    if let Some(packages) = packages {
        run = run.env("PYTHONPATH", packages);
    }
    let (machines, each) = (machines.to_string(), each.to_string());
    let finished = run
        .args(["--", "torchrun", "--nnodes", &machines, "--nproc-per-node", &each])
        .args([binary::programs().join("distributed").join(script)])
        .args(arguments)
        .turn(Turn::Alone)
        .finish()?;
    let report = finished.report()?;
    check::contract(&report)?;
    finished.ensure(report["verdict"] == "fits", "the job does not fit")?;
    Ok(finished)
}

/// A number that a rank printed.
fn printed(finished: &Finished, rank: u64, name: &str) -> Result<u64> {
    finished.printed_number(&format!("rank{rank}.{name}"))
}

fn rests(finished: &Finished, ranks: impl IntoIterator<Item = u64>, expected: u64) -> Result<()> {
    for rank in ranks {
        let resting = printed(finished, rank, "resting")?;
        finished.ensure(
            resting == expected,
            format_args!("rank {rank} rests on {resting} bytes, the arithmetic says {expected}"),
        )?;
    }
    Ok(())
}

/// Single-precision parameters and Adam's two states, an eighth of each; every share is a whole number of 512 bytes.
fn fsdp2_rests_on_a_share() -> Result<()> {
    let finished = job(None, 1, 8, &["train.py", "fsdp2"], None)?;
    rests(&finished, [0, 1, 7], 3 * 4 * PARAMETERS / 8)
}

/// Weights and the bias between them in quarters; the bias of what is summed over the ranks whole.
fn tensor_parallel_rests_on_a_share() -> Result<()> {
    let finished = job(None, 1, 4, &["train.py", "tensor-parallel"], None)?;
    let whole = 8 * 1024;
    rests(&finished, 0..4, 3 * 4 * ((PARAMETERS - whole) / 4 + whole))
}

/// Stage 2: the parameters whole in half precision, and their single-precision copy with Adam's states in eighths; a
/// gradient norm. Stage 3: all of it in eighths, the gradients too, the bucket of 2^23 elements in which they are
/// reduced, the biases whole besides, because they are below the threshold; a norm, a flag and an empty gradient.
fn zero_rests_on_a_share() -> Result<()> {
    let Some(folder) = deepspeed() else { return Ok(()) };
    let finished = job(None, 1, 8, &["zero.py", "--stage", "2"], Some(&folder))?;
    rests(&finished, [0, 1, 7], 2 * PARAMETERS + 12 * PARAMETERS / 8 + SCALAR)?;
    let finished = job(None, 1, 8, &["zero.py", "--stage", "3"], Some(&folder))?;
    rests(&finished, [0, 1, 7], (2 + 2 + 12) * PARAMETERS / 8 + 2 * (1 << 23) + 2 * BIASES + 3 * SCALAR)?;
    for rank in [0, 1, 7] {
        finished
            .ensure(printed(&finished, rank, "skipped")? == 0, "a step was skipped for an overflow that never was")?;
    }
    Ok(())
}

/// The first stage has an embedding, the last a head, those between have neither.
fn pipeline_stages_differ() -> Result<()> {
    let finished = job(None, 1, 4, &["pipeline.py"], None)?;
    let (blocks, vocabulary) = (3 * 4 * PARAMETERS / 4, 3 * 4 * 50_000 * 1024);
    let least = |rank: u64, bytes: u64| -> Result<()> {
        let resting = printed(&finished, rank, "resting")?;
        // Inputs and labels that a stage still holds come on top.
        finished.ensure(
            (bytes..bytes + (16 << 20)).contains(&resting) || resting > bytes && rank == 3,
            format_args!("stage {rank} rests on {resting} bytes, its states take {bytes}"),
        )
    };
    least(0, blocks + vocabulary)?;
    least(1, blocks)?;
    least(2, blocks)?;
    least(3, blocks + vocabulary)
}

/// Each rank that runs while others are absent has the very peaks that it has when all of them run; what is reserved
/// may differ by `segments` bytes.
fn some_ranks_are_as_all(program: &[&str], packages: Option<&str>, segments: u64) -> Result<()> {
    let all = job(Some("all"), 1, 4, program, packages)?;
    let some = job(Some("0,1,last"), 1, 4, program, packages)?;
    for rank in [0, 1, 3] {
        for name in ["resting", "max_memory_allocated", "max_memory_reserved"] {
            let (whole, part) = (printed(&all, rank, name)?, printed(&some, rank, name)?);
            let differ = if name == "max_memory_reserved" { segments } else { 0 };
            let equal = whole.abs_diff(part) <= differ;
            some.ensure(equal, format_args!("{name} of rank {rank}: {part} bytes, with all ranks {whole}"))?;
        }
    }
    some.ensure(printed(&some, 2, "resting").is_err(), "a rank ran that was not to run")?;
    let (all, some) = (all.report()?, some.report()?);
    for card in [0, 1, 3] {
        let peak = |report: &serde_json::Value| {
            report["devices"][card]["peak"]["process_bytes"].as_u64().context("no peak of the process")
        };
        let (whole, part) = (peak(&all)?, peak(&some)?);
        ensure!(whole.abs_diff(part) <= segments, "GPU {card}: {whole} with all ranks, {part} without");
    }
    Ok(())
}

/// Two tensor-parallel halves of a GPT of Megatron-Core, each of them twice: what a rank holds by the arithmetic of its
/// layers, with what the allocator's large blocks are larger, and the same with some ranks as with all.
fn megatron_rests_on_a_share() -> Result<()> {
    let Some(folder) = packages("Megatron-Core", "OOMPH_MEGATRON") else { return Ok(()) };
    let (width, halves, words, length) = (1024, 2, 32768, 256);
    // Weights by columns and their biases are halved, those by rows keep a whole bias; two norms a layer and one at the end.
    let columns = (3 + 4) * (width * width + width) / halves;
    let rows = (1 + 4) * width * width / halves + 2 * width;
    let own = 4 * (columns + rows + 4 * width) + 2 * width + 2 * words * width / halves + length * width;
    let program = ["megatron_gpt.py", "--tensor-parallel", "2"];
    let finished = job(Some("0,1,last"), 1, 4, &program, Some(&folder))?;
    for rank in [0, 1, 3] {
        let (found, resting) = (printed(&finished, rank, "parameters")?, printed(&finished, rank, "resting")?);
        finished.ensure(found == own, format_args!("rank {rank} has {found} parameters, not {own}"))?;
        let more = resting.checked_sub(12 * own).context("it rests on less than weights and Adam's states")?;
        finished.ensure(more < 8 << 20, format_args!("rank {rank} rests on {more} bytes more"))?;
    }
    some_ranks_are_as_all(&program, Some(&folder), 0)
}

/// What goes through gloo, in the host's memory, comes out as if all the ranks ran: six sums and gatherings in each of two
/// groups, and as many objects as there are ranks, with those that are spread from the first one.
fn messages_of_absent_ranks() -> Result<()> {
    let finished = job(None, 4, 8, &["messages.py"], None)?;
    for rank in [0, 1, 31] {
        for (name, right) in [("both_tensors", 6), ("gloo_tensors", 6), ("gloo_objects", 32 + 3)] {
            let found = printed(&finished, rank, name)?;
            finished.ensure(found == right, format_args!("{name} of rank {rank}: {found} of {right} are right"))?;
        }
    }
    Ok(())
}

/// Sums, gatherings of objects and barriers count a thousand ranks, of which three run.
fn a_thousand_ranks() -> Result<()> {
    let finished = job(None, 128, 8, &["train.py", "fsdp2"], None)?;
    for rank in [0, 1, 1023] {
        finished.ensure(printed(&finished, rank, "counted")? == 1024, "the sum of ones is not the number of ranks")?;
        finished.ensure(printed(&finished, rank, "gathered")? == 1024, "not every rank's object was gathered")?;
    }
    println!("1,024 ranks, three of which ran: {:.1} s", finished.wall.as_secs_f64());
    Ok(())
}

/// A quarter of the states of 70.6 billion parameters would fill an H100; a 64th of them, with one layer gathered and the
/// activations of a checkpointed step, does not.
fn llama_70b_on_64_cards() -> Result<()> {
    let finished = job(Some("0,last"), 8, 8, &["llama70b.py"], None)?;
    for rank in [0, 63] {
        finished
            .ensure(printed(&finished, rank, "parameters")? == 70_553_706_496, "these are not Llama-3-70B's shapes")?;
        let states = 3 * 2 * 70_553_706_496 / 64;
        let resting = printed(&finished, rank, "resting")?;
        // Shares are rounded up to 512 bytes, and the tables of the rotary embedding are not shared.
        finished.ensure(
            (states..states + (16 << 20)).contains(&resting),
            format_args!("rank {rank} rests on {resting} bytes, the arithmetic says {states}"),
        )?;
    }
    finished
        .ensure(finished.max_rss_bytes < 8 << 30, format_args!("{} bytes of host memory", finished.max_rss_bytes))?;
    let (seconds, host) = (finished.wall.as_secs_f64(), finished.max_rss_bytes);
    println!("Llama-3-70B on 64 cards, two ranks run: {seconds:.1} s, {host} bytes of host memory");
    Ok(())
}

/// A named card, a model in replicas and a model in halves, on two cards that differ.
fn cards_of_one_process() -> Result<()> {
    let finished = Run::json("rtx-4090,rtx-3060", TORCH_2_15)?
        .args(["--until-exit"])
        .program(&["acceptance/programs/distributed/cards.py"])
        .finish()?;
    let report = finished.report()?;
    check::contract(&report)?;
    for (card, name) in [(0_u64, "4090"), (1, "3060")] {
        let printed = finished.printed(&format!("card{card}.name"))?;
        finished.ensure(printed.contains(name), format_args!("card {card} is called {printed}"))?;
        let own = finished.printed_number(&format!("card{card}.max_memory_reserved"))?;
        let reported = report["devices"][card as usize]["peak"]["reserved_bytes"].as_u64();
        finished.ensure(reported == Some(own), format_args!("GPU {card}: {reported:?} is reported, {own} printed"))?;
    }
    let halves = finished.printed("automatic_map")?;
    let halves: Vec<u64> = halves.split(',').filter_map(|half| half.parse().ok()).collect();
    finished.ensure(halves.iter().all(|half| *half > 4 * PARAMETERS / 4), "the model is not on both cards")?;
    finished.ensure(finished.printed("moved")? == "28", "what went from card to card is not what arrived")
}

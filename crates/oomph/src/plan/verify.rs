//! Compares a plan with a dry run of its program.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oomph_gpu::Catalogue;
use oomph_launch::Limits;
use oomph_plan::Estimate;
use oomph_report::{Verdict, Verified};
use serde_json::Value;

use super::asked::Asked;
use super::script;
use super::subject::{Found, Origin};
use crate::assemble::assemble;
use crate::cards::Card;
use crate::changes::Changes;
use crate::cli::{PlanArgs, ProgramArgs};
use crate::failure::hinted;
use crate::output;
use crate::program::Program;
use crate::run_context::{Ended, RunContext};
use crate::syntax::Typed;
use crate::trial::Runner;

/// What became of it.
pub enum Verification {
    /// Both figures.
    Done(Verified),
    /// A signal ended it.
    Interrupted(i32),
}

/// Runs the program of a plan on the virtual GPU.
///
/// The card is given no limit at first, because it is the need that is compared; where the need is beyond the card, a
/// second run on the card itself says whether PyTorch's allocator makes do with less.
///
/// # Errors
/// When there is no such program, when what it needs is missing, or when it fails for a reason other than memory.
pub fn verify(args: &PlanArgs, found: &Found, asked: &Asked, answer: &Estimate, quiet: bool) -> Result<Verification> {
    let folder = tempfile::tempdir().context("cannot make a folder for the program")?;
    let path = folder.path().join("plan.py");
    std::fs::write(&path, script::program(found, &asked.workload)?).context("cannot write the program of the plan")?;
    let model = model_folder(found, folder.path())?;
    let command = ["python3".into(), path.clone().into(), model.into()];
    let nameless = || Catalogue::builtin().get(super::NAMELESS).context("the catalogue lacks its own default card");
    let card = args.gpu.or(args.gpus).map_or_else(nameless, |cards| Ok(cards.gpu))?;
    let program = Program {
        history: false,
        ..Program::new(ProgramArgs {
            gpu: vec![Typed::card(card)],
            vram: args.vram.clone(),
            with: args.with.clone(),
            until_exit: true,
            random_weights: true,
            ..ProgramArgs::of(command.to_vec())
        })?
    };
    output::tell("oomph: running the program of the plan on the virtual GPU", quiet);
    let context = RunContext::new(program, quiet)?;
    let cards: Vec<Card> = context.program.cards.iter().map(Card::without_limit).collect();
    let changes = Changes::none(&context.program.command);
    let run = |cards: &[Card]| -> Result<std::result::Result<oomph_report::DryRunReport, i32>> {
        let observation = match context.run(&changes, cards, Limits::default())? {
            Ended::Observed(observation) => observation,
            Ended::Interrupted(signal, _) => return Ok(Err(signal)),
        };
        let report = assemble(cards, &observation, None);
        match report.verdict {
            Verdict::Fits | Verdict::Recovered | Verdict::Oom | Verdict::Unsure => Ok(Ok(report)),
            Verdict::NoGpuUse => Err(hinted(
                "the program of the plan used no GPU",
                "--script FILE writes it, and `oomph dry-run` runs it; --with torch gives it a torch for CUDA",
            )),
            Verdict::Failed => Err(failed(&observation.stderr_tail)),
        }
    };
    let report = match run(&cards)? {
        Ok(report) => report,
        Err(signal) => return Ok(Verification::Interrupted(signal)),
    };
    let peak = &report.devices.first().context("the dry run has no card")?.peak;
    let capacity = asked.gpu.as_ref().map(|gpu| gpu.capacity_bytes);
    let fits = match capacity {
        None => None,
        Some(capacity) if peak.process_bytes <= capacity => Some(true),
        Some(_) => match run(&context.program.cards)? {
            Ok(report) => Some(report.verdict == Verdict::Fits),
            Err(signal) => return Ok(Verification::Interrupted(signal)),
        },
    };
    let total = answer.total;
    Ok(Verification::Done(Verified {
        dry_run_bytes: peak.process_bytes,
        dry_run_reserved_bytes: peak.reserved_bytes,
        dry_run_allocated_bytes: peak.allocated_bytes,
        expected_bytes: total.expected,
        difference_percent: percent(total.expected, peak.process_bytes),
        within: (total.low..=total.high).contains(&peak.process_bytes),
        fits,
        frameworks: report.frameworks,
    }))
}

/// How far one figure is from another, in percent of the other, to a hundredth.
fn percent(one: u64, other: u64) -> f64 {
    (1e4 * (one as f64 / other.max(1) as f64 - 1.0)).round() / 100.0
}

/// What the program is given as its model: a folder with the configuration at least.
fn model_folder(found: &Found, inside: &Path) -> Result<PathBuf> {
    let config = match &found.origin {
        Origin::Folder(path) => return Ok(path.clone()),
        Origin::Hub { name } => return Ok(PathBuf::from(name)),
        Origin::BuiltIn { config, .. } if config.is_object() => config,
        Origin::BuiltIn { .. } | Origin::File => {
            return Err(hinted(
                format!("the plan of `{}` cannot be verified: it has no folder", oomph_report::clean(&found.name)),
                "give the model's own folder, or write the program with --script and run it with `oomph dry-run`",
            ));
        }
    };
    let folder = inside.join("model");
    std::fs::create_dir(&folder).context("cannot make a folder for the configuration")?;
    let text = serde_json::to_string_pretty(&complete(config)).context("cannot write the configuration")?;
    std::fs::write(folder.join("config.json"), text).context("cannot write the configuration")?;
    Ok(folder)
}

/// A configuration as files have it, with what no size depends on and its class has no default for.
fn complete(config: &Value) -> Value {
    let mut config = with_empty(config);
    let family = config["model_type"].as_str().unwrap_or_default();
    if let (true, Value::Object(entries)) = (family.ends_with("t5"), &mut config) {
        // The decoder begins with padding.
        entries.entry("decoder_start_token_id").or_insert_with(|| 0.into());
    }
    config
}

/// A configuration as files have it: what the library's data write as 0 for an empty value is `null`.
fn with_empty(config: &Value) -> Value {
    let Value::Object(entries) = config else { return config.clone() };
    let empty = |name: &str, value: &Value| matches!(name, "sliding_window" | "q_lora_rank") && *value == 0;
    let entry = |(name, value): (&String, &Value)| {
        (name.clone(), if empty(name, value) { Value::Null } else { with_empty(value) })
    };
    Value::Object(entries.iter().map(entry).collect())
}

/// The program of the plan failed: its last line says why.
fn failed(stderr: &str) -> anyhow::Error {
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").trim();
    let missing = last.contains("No module named") || last.contains("requires") || last.contains("not installed");
    hinted(
        format!("the program of the plan failed: {}", oomph_report::clean(last)),
        if missing {
            "--with PKG gives it a package: --with torch --with transformers --with accelerate --with peft --with \
             bitsandbytes"
        } else {
            "--script FILE writes the program, and `oomph dry-run --random-weights -- python FILE` runs it"
        },
    )
}

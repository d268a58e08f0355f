//! `oomph calibrate`: runs the same small programs on this machine's card and on its virtual twin, and compares them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use chrono::Utc;
use oomph_gpu::{Catalogue, Gpu, size};
use oomph_launch::{Guard, Output};
use oomph_report::{CalibrateReport, CalibrateSchema, CardReadings, clean_json, render_calibrate};

use crate::cards::{self, Card};
use crate::changes::Changes;
use crate::cli::{Batches, CalibrateArgs, Format, ProgramArgs};
use crate::correction;
use crate::failure::hinted;
use crate::output;
use crate::program::Program;
use crate::run_context::{RealRun, Recording, RunContext};
use crate::status;
use crate::syntax::Typed;

/// The programs, and what reads their figures.
const PROBE: &str = include_str!("probe.py");

/// Runs the programs on both cards and compares.
///
/// # Errors
/// When there is no card, no PyTorch, or a file cannot be written.
pub fn run(args: &CalibrateArgs, quiet: bool) -> Result<ExitCode> {
    if args.forget {
        let forgotten = correction::forget()?;
        let what = if forgotten.is_empty() { "nothing was kept".into() } else { forgotten.join(", ") };
        output::tell(&format!("oomph: forgotten: {what}"), quiet);
        return Ok(ExitCode::from(status::DONE));
    }
    let gpu = args.rehearse.map_or_else(installed, Ok)?;
    let twin = Card::of_catalogue(gpu);
    let more = args.rehearse_context.map_or(0, |size| size.0);
    let stand_in = args.rehearse.map(|_| vec![twin.clone().with_larger_context(more)]);
    let folder = tempfile::tempdir().context("cannot make a folder for temporary files")?;
    let probe = folder.path().join("probe.py");
    fs::write(&probe, PROBE).with_context(|| format!("cannot write {}", probe.display()))?;
    let bench = Bench::new(args, &probe, quiet)?;

    output::tell(&format!("oomph: the programs run on {}", gpu.name), quiet);
    let Some(card) = bench.readings(stand_in.as_deref(), &folder.path().join("card.json"))? else {
        return failed("on the card");
    };
    output::tell("oomph: the programs run on its virtual twin", quiet);
    let Some(twin) = bench.readings(Some(&[twin]), &folder.path().join("twin.json"))? else {
        return failed("on the virtual card");
    };

    let taken_on = Utc::now().format("%Y-%m-%d").to_string();
    let found = correction::of(gpu, &taken_on, &card, &twin);
    if args.rehearse.is_none() || args.keep {
        correction::keep(gpu, found.as_ref())?;
        if let Some(found) = &found {
            output::tell(&format!("oomph: {}", correction::announced(found)), quiet);
        }
    }
    let report = CalibrateReport {
        schema: CalibrateSchema,
        gpu: gpu.id.clone(),
        taken_on,
        rehearsal: args.rehearse.is_some(),
        correction: found,
        card,
        twin,
    };
    output::data(&match args.format {
        Format::Text => render_calibrate(&report, output::style()),
        Format::Json => {
            let document = serde_json::to_string_pretty(&report).context("cannot write the answer as JSON")?;
            clean_json(&document).into_owned() + "\n"
        }
    })?;
    if let Some(path) = &args.share {
        share(&report, path)?;
        output::tell(&format!("oomph: the readings are in {}", path.display()), quiet);
    }
    Ok(ExitCode::from(status::DONE))
}

/// The first card that CUDA sees here.
fn installed() -> Result<&'static Gpu> {
    let Some(found) = cards::visible_here()?.into_iter().next() else {
        return Err(hinted(
            "this machine has no NVIDIA GPU to compare with",
            "see what it does with a virtual one: oomph calibrate --rehearse rtx-4090",
        ));
    };
    found.entry(Catalogue::builtin()).ok_or_else(|| {
        let memory = found.memory.map_or_else(|reason| reason, |memory| size::format(memory.total_bytes));
        hinted(
            format!("the catalogue has no card `{}` ({memory})", oomph_report::clean(&found.name)),
            "please report its name; `oomph gpus` lists those that are known",
        )
    })
}

/// What runs the programs.
struct Bench {
    context: RunContext,
    probe: OsString,
    python: OsString,
}

impl Bench {
    fn new(args: &CalibrateArgs, probe: &Path, quiet: bool) -> Result<Self> {
        let python: OsString = "python".into();
        let program = Program::new(ProgramArgs {
            gpu: args.rehearse.into_iter().map(Typed::card).collect(),
            with: args.with.clone(),
            until_exit: true,
            batches: Batches::Seen,
            allow_writes: true,
            ..ProgramArgs::of(vec![python.clone(), probe.into()])
        })?;
        let context = RunContext::new(program, quiet)?;
        Ok(Self { context, probe: probe.into(), python })
    }

    /// The programs' figures on these virtual cards, or on the real one; `None` where they could not run.
    fn readings(&self, virtual_cards: Option<&[Card]>, into: &Path) -> Result<Option<CardReadings>> {
        let changes = Changes::none(&[self.python.clone(), self.probe.clone(), into.into()]);
        let outcome = self.context.perform_for_real(&RealRun {
            changes: &changes,
            output: Output::StdoutToStderr,
            stand_in: virtual_cards,
            recording: Recording::Off,
            guard: &Guard::default(),
            keep: None,
            meanwhile: None,
        })?;
        if outcome.exit_status != 0 {
            return Ok(None);
        }
        let text = fs::read_to_string(into).context("the programs left no readings")?;
        Ok(Some(serde_json::from_str(&text).context("the programs' readings cannot be understood")?))
    }
}

fn failed(place: &str) -> Result<ExitCode> {
    output::say(&format!("error: the programs could not run {place}; what Python said is above"));
    Ok(ExitCode::from(status::PROGRAM_FAILED))
}

/// Writes the readings as they are sent to the catalogue.
fn share(report: &CalibrateReport, path: &Path) -> Result<()> {
    let head = "# Readings of `oomph calibrate --share`. [card] is the real card, [twin] the virtual one; sizes are in bytes.\n";
    let text = toml::to_string(report).context("cannot write the readings as TOML")?;
    fs::write(path, format!("{head}# oomph {}\n\n{text}", env!("CARGO_PKG_VERSION")))
        .with_context(|| format!("cannot write {}", path.display()))
}

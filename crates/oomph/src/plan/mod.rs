//! `oomph plan`: computes what a model needs, without running it.

mod asked;
mod paste;
mod script;
pub mod subject;
mod verify;

use std::process::ExitCode;

use anyhow::{Context, Result};
use oomph_gpu::{Catalogue, Gpu};
use oomph_plan::{CardCost, Estimate, Nearby, Precision, Subject, TapeOwner, Task, Workload, estimate};
use oomph_report::{
    Fits, PlanReport, PlanSchema, PlannedCard, PlannedDevice, PlannedLimits, PlannedOwner, PlannedRemedy, PlannedTable,
    PlannedTerm, render_plan,
};

use self::asked::Asked;
use self::subject::Found;
use self::verify::{Verification, verify};
use crate::cli::PlanArgs;
use crate::failure::hinted;
use crate::status::{self, interrupted};
use crate::{html, output};

/// The card whose kernels run where none was asked for.
const NAMELESS: &str = "a100-80gb";
/// Cards that are named as the smallest.
const MOST_CARDS: usize = 5;
/// Cards that one model is split over at the most.
const MOST_SPLIT: u64 = 64;
/// Beyond this many bytes sums are no longer exact, and nobody asks for them in earnest.
const MOST: u64 = 1 << 60;
/// Cards of the table that guides print.
const TABLE: [&str; 9] =
    ["rtx-3060", "rtx-4060-ti-16gb", "rtx-3090", "rtx-4090", "rtx-5090", "l40s", "a100-80gb", "h100", "h200"];

/// Says whether a workload on a model fits.
///
/// # Errors
/// When the model or a card is not known, or a file cannot be read or written.
pub fn run(args: &PlanArgs, quiet: bool) -> Result<ExitCode> {
    if args.guide {
        output::data(&oomph_plan::guide::page())?;
        return Ok(ExitCode::from(status::DONE));
    }
    let found = found(args, quiet)?;
    let catalogue = Catalogue::builtin();
    let asked = asked::read(args, &found)?;
    let (workload, subject) = (&asked.workload, &found.subject);
    let gpu = asked.gpu.as_ref();
    let nameless = catalogue.get(NAMELESS).context("the catalogue lacks its own default card")?;
    let card = CardCost::of(gpu.unwrap_or(nameless));
    let answer = estimate(subject, workload, card);
    if answer.total.expected > MOST {
        return Err(hinted(
            "this exceeds any possible memory size",
            "look at --batch, --seq and --resolution once more",
        ));
    }
    let capacity = gpu.map(|gpu| gpu.capacity_bytes);
    let (devices, left_out) = devices(&asked, subject, &answer);
    let fits = worst(&devices, left_out.is_some());
    if let Some(path) = &args.script {
        let program = script::program(&found, workload)?;
        std::fs::write(path, program).with_context(|| format!("cannot write the program to {}", path.display()))?;
    }
    let verified = match args.verify.then(|| verify(args, &found, &asked, &answer, quiet)).transpose()? {
        Some(Verification::Interrupted(signal)) => return Ok(interrupted(signal)),
        Some(Verification::Done(verified)) => Some(verified),
        None => None,
    };
    // A dry run knows better than arithmetic.
    let fits_not = match verified.as_ref().and_then(|verified| verified.fits) {
        Some(fits) => !fits,
        None => fits == Some(Fits::No),
    };
    let nearby = Nearby::new(subject, workload, card, &answer);
    // What is near to it is known for one card alone.
    let split = devices.iter().any(|device| device.holds.is_some());
    let limits = capacity.filter(|_| !split).map(|capacity| nearby.limits(capacity));
    let remedies = if split || fits == Some(Fits::Yes) { Vec::new() } else { remedies(&nearby, capacity) };
    let report = PlanReport {
        schema: PlanSchema,
        model: found.name.clone(),
        parameters: answer.parameters,
        trained_parameters: answer.trained,
        task: workload.objective.name().unwrap_or(workload.task.name()).into(),
        settings: asked.settings(),
        phase: answer.phase,
        host_bytes: answer.host_bytes,
        limits: limits.map(|most| PlannedLimits {
            max_batch: most.max_batch,
            max_context: most.max_context,
            max_resolution: most.max_resolution,
        }),
        remedies,
        smallest: if fits == Some(Fits::Yes) { Vec::new() } else { smallest(catalogue, &answer) },
        terms: if args.explain { terms(&answer) } else { Vec::new() },
        table: args.table.then(|| table(catalogue, subject, workload)),
        verify: verified,
        warnings: found.notes.iter().cloned().chain(asked.notes(&found)).chain(left_out).collect(),
        devices,
    };
    html::answered(&args.page, format!("oomph plan: {}", report.model), || html::plan(&report))?;
    output::answer(&report, args.format.form(), None, || {
        let mut text = render_plan(&report, output::style());
        if let Some(framework) = args.config {
            text.push('\n');
            text.push_str(&paste::settings(framework, &report.model, workload));
        }
        text
    })?;
    Ok(ExitCode::from(if fits_not { status::DOES_NOT_FIT } else { status::DONE }))
}

/// The model that was named, with what is to replace parts of it.
fn found(args: &PlanArgs, quiet: bool) -> Result<Found> {
    let mut found = subject::find(args.model.as_deref().unwrap_or_default(), quiet)?;
    if let Some(recipe) = args.gguf {
        found = subject::as_gguf(found, recipe)?;
    }
    if let Some(name) = &args.controlnet {
        found = subject::with_control(found, subject::find(name, quiet)?)?;
    }
    Ok(found)
}

/// The cards, and a sentence on the layers that none of them has room for.
fn devices(asked: &Asked, subject: &Subject, answer: &Estimate) -> (Vec<PlannedDevice>, Option<String>) {
    let Some((shares, left_over)) = shared_out(asked, subject) else {
        return (vec![device(asked.gpu.as_ref(), asked.count, answer)], None);
    };
    let left_out = (left_over > 0).then(|| {
        format!(
            "{left_over} layers find no room on the cards: device_map=\"auto\" keeps them in the computer's memory, \
             and copies each to a card whenever it runs"
        )
    });
    (shares, left_out)
}

/// Whether a card holds an interval.
fn verdict(answer: &Estimate, capacity: u64) -> Fits {
    if answer.total.high <= capacity {
        Fits::Yes
    } else if answer.total.low > capacity {
        Fits::No
    } else {
        Fits::Maybe
    }
}

/// The verdict on all cards together. With layers that no card has, it does not fit.
fn worst(devices: &[PlannedDevice], left_over: bool) -> Option<Fits> {
    let rank = |fits: Fits| match fits {
        Fits::Yes => 0,
        Fits::Maybe => 1,
        Fits::No => 2,
    };
    let worst = devices.iter().filter_map(|device| device.fits).max_by_key(|fits| rank(*fits));
    if left_over && worst.is_some() { Some(Fits::No) } else { worst }
}

/// A model that several cards hold together, as `device_map="auto"` spreads it: the cards, and how many layers none has room
/// for.
fn shared_out(asked: &Asked, subject: &Subject) -> Option<(Vec<PlannedDevice>, u64)> {
    let (workload, gpu) = (&asked.workload, asked.gpu.as_ref()?);
    let runs = matches!(workload.task, Task::Inference | Task::Generate);
    let degrees = workload.parallel.tensor * workload.parallel.pipeline * workload.parallel.sequence;
    let Subject::Transformer { shape, stored: None } = subject else { return None };
    if !runs || asked.count < 2 || degrees > 1 || shape.encoder.is_some() {
        return None;
    }
    let cards = vec![CardCost::of(gpu); usize::try_from(asked.count.min(MOST_SPLIT)).ok()?];
    let split = oomph_plan::split(shape, workload, &cards);
    let shares = split.shares.into_iter();
    let devices =
        shares.map(|share| PlannedDevice { holds: Some(share.holds), ..device(Some(gpu), 1, &share.estimate) });
    Some((devices.collect(), split.left_over))
}

fn device(gpu: Option<&Gpu>, count: u64, answer: &Estimate) -> PlannedDevice {
    let owners = TapeOwner::ALL
        .into_iter()
        .map(|owner| PlannedOwner { owner: owner.name().into(), bytes: answer.owners[owner as usize] })
        .filter(|owner| owner.bytes > 0)
        .collect();
    PlannedDevice {
        gpu: gpu.map(|gpu| gpu.id.clone()),
        count,
        capacity_bytes: gpu.map(|gpu| gpu.capacity_bytes),
        low_bytes: answer.total.low,
        expected_bytes: answer.total.expected,
        high_bytes: answer.total.high,
        fits: gpu.map(|gpu| verdict(answer, gpu.capacity_bytes)),
        probability: gpu.map(|gpu| answer.total.probability_within(gpu.capacity_bytes)),
        owners,
        holds: None,
    }
}

fn remedies(nearby: &Nearby<'_>, capacity: Option<u64>) -> Vec<PlannedRemedy> {
    let found = nearby.changes(capacity.unwrap_or(u64::MAX));
    found
        .into_iter()
        .filter(|change| change.saves_bytes.unsigned_abs() > 0)
        .map(|change| PlannedRemedy {
            id: change.id,
            title: change.title,
            expected_bytes: change.expected_bytes,
            saves_bytes: change.saves_bytes,
            probability: capacity.map(|_| change.probability),
            changes_result: change.changes_result,
        })
        .collect()
}

/// The smallest cards of the catalogue that hold it, those that can be bought or rented.
fn smallest(catalogue: &Catalogue, answer: &Estimate) -> Vec<PlannedCard> {
    let context = answer.owners[TapeOwner::Context as usize];
    let need = |gpu: &Gpu| answer.total.expected.saturating_sub(context).saturating_add(gpu.context.expected_bytes);
    let mut cards: Vec<&Gpu> =
        catalogue.iter().filter(|gpu| gpu.kind.is_card() && need(gpu) <= gpu.capacity_bytes).collect();
    cards.sort_by_key(|gpu| gpu.capacity_bytes);
    let planned =
        |gpu: &Gpu| PlannedCard { gpu: gpu.id.clone(), capacity_bytes: gpu.capacity_bytes, expected_bytes: need(gpu) };
    cards.into_iter().take(MOST_CARDS).map(planned).collect()
}

fn terms(answer: &Estimate) -> Vec<PlannedTerm> {
    let planned = |term: &oomph_plan::Term| PlannedTerm {
        owner: term.owner.name().into(),
        formula: term.formula.clone(),
        source: term.source.into(),
        bytes: term.bytes,
    };
    answer.terms.iter().map(planned).collect()
}

/// Cards by precisions, as guides print them.
fn table(catalogue: &Catalogue, subject: &Subject, workload: &Workload) -> PlannedTable {
    let guided = matches!(subject, Subject::Pipeline(pipeline) if pipeline.is_guided());
    let precisions: &[Precision] = match workload.task {
        _ if guided => &[Precision::Fp32],
        Task::Full | Task::Freeze => &[Precision::Fp32, Precision::AmpBf16, Precision::Bf16],
        Task::Lora | Task::Qlora => &[Precision::Fp32, Precision::AmpBf16],
        _ => &[Precision::Fp32, Precision::Bf16, Precision::Int8, Precision::Nf4],
    };
    let cards: Vec<&Gpu> = TABLE.iter().filter_map(|id| catalogue.get(id)).collect();
    let with = |precision: Precision| Workload { precision, ..workload.clone() };
    let mut columns = Vec::new();
    let mut rows: Vec<(String, Vec<Fits>)> = cards.iter().map(|gpu| (gpu.id.clone(), Vec::new())).collect();
    for precision in precisions {
        let changed = with(*precision);
        let mut need = 0;
        for (gpu, (_, cells)) in cards.iter().zip(&mut rows) {
            let answer = estimate(subject, &changed, CardCost::of(gpu));
            need = need.max(answer.total.expected);
            cells.push(verdict(&answer, gpu.capacity_bytes));
        }
        columns.push((precision.name().to_owned(), need));
    }
    PlannedTable { columns, rows }
}

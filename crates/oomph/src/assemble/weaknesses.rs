//! Lists what weakens an answer, one sentence each.

use oomph_report::{DeviceReport, Verdict};

use super::{statics, unexplained_refusal, used_a_gpu};
use crate::architectures;
use crate::cards::Card;
use crate::observation::{Cut, Observation};
use crate::status::SIGNAL;
use crate::waits;

/// How the hook begins to say that an error was caught.
const CAUGHT: &str = "The program caught an out-of-memory error at";

/// Exit statuses of programs that a bus error, a division by zero or a bad address ended.
const CRASHES: [i32; 3] = [SIGNAL + 7, SIGNAL + 8, SIGNAL + 11];

/// What weakens the answer.
pub(super) fn weaknesses(
    run: &Observation,
    verdict: Verdict,
    devices: &[DeviceReport],
    cards: &[Card],
    warnings: &mut Vec<String>,
) {
    // What the program died of, it did not go on from.
    let sites = || devices.iter().filter_map(|device| device.oom.as_ref()?.site.as_ref());
    let places: Vec<String> = sites().map(|site| format!("{CAUGHT} {}:{} ", site.file, site.line)).collect();
    let died_of = |warning: &&String| places.iter().any(|place| warning.starts_with(place));
    let of_hooks = run.hooks.reports.iter().flat_map(|hook| &hook.warnings);
    warnings.extend(of_hooks.filter(|warning| verdict != Verdict::Oom || !died_of(warning)).cloned());
    warnings.extend(run.warnings.iter().cloned());
    warnings.extend(run.ledger.warnings().into_iter().map(str::to_owned));
    if statics::to_blame(run).is_none() {
        warnings.extend(statics::uncounted(run).into_iter().map(|file| {
            format!(
                "{file} has the CUDA runtime linked in statically: its CUDA calls fail, and its memory is not counted"
            )
        }));
    }
    let unsupported = run.ledger.unsupported_calls();
    if !unsupported.is_empty() {
        warnings.push(format!(
            "the program called unsupported CUDA functions, which returned errors: {}",
            unsupported.join(", ")
        ));
    }
    for path in &run.hooks.unreadable {
        warnings.push(format!("what the hook wrote to {} cannot be read", path.display()));
    }
    warnings.extend(cards.iter().filter_map(|card| architectures::missing(run, &card.gpu)));
    match run.cut {
        Some(Cut::TimeUp) if !waits::is_unsure(run) => {
            warnings.push("the run timed out before the program ended, so a higher peak may still come".into());
        }
        Some(Cut::Interrupted) => warnings.push(
            "the program was interrupted: the figures cover what it did until then, and a higher peak may still come"
                .into(),
        ),
        Some(Cut::Listening | Cut::Waiting | Cut::TimeUp) | None => {}
    }
    if verdict == Verdict::Failed
        && used_a_gpu(run)
        && CRASHES.contains(&run.exit_status)
        && run.hooks.crashed_at.is_none()
    {
        warnings.push(
            "kernels do not run on the virtual GPU: a program that reads values back from the card and uses them as indices \
             or sizes can crash here, though it does not on a real card"
                .into(),
        );
    }
    if verdict == Verdict::Failed && run.ledger.refusals() > 0 {
        warnings.push(format!(
            "a card refused {} allocations before the program failed, so a lack of memory may be the cause after all",
            run.ledger.refusals()
        ));
    }
    // A library may keep the error to itself: CubeCL's thread goes on, and what it computes from there on is nothing.
    if verdict == Verdict::Fits && unexplained_refusal(run) {
        let last = run.refusals.first().map(|refusal| oomph_gpu::size::format(refusal.bytes));
        let last = last.map(|size| format!(", the last of {size},")).unwrap_or_default();
        warnings.push(format!(
            "the card refused {} allocations{last} and the program continued and succeeded: unless it manages with \
             less by design, it does not fit; run it on a larger card (--vram) to see what it takes",
            run.ledger.refusals()
        ));
    }
    for (device, card) in devices.iter().zip(cards) {
        let low = card.gpu.capacity_low_bytes;
        if verdict == Verdict::Fits && !card.unbounded && device.peak.process_bytes > low {
            warnings.push(format!(
                "some drivers report only {} for this card, which would not be enough on GPU {}",
                oomph_gpu::size::format(low),
                device.index
            ));
        }
    }
}

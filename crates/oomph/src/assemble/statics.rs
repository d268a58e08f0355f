//! Finds files that link the CUDA runtime statically, and decides when one of them invalidates a run.

use oomph_ledger::Kind;

use crate::observation::Observation;

/// Words of the errors that such a runtime answers with on the virtual GPU, in small letters.
const ITS_ERRORS: [&str; 4] =
    ["named symbol not found", "cudaerrorsymbolnotfound", "cuda_error_not_found", "failed to initialize cuda context"];

/// The files whose memory is not counted. One that the program asked for the CPU alone is left out: XGBoost's library
/// looks for a card with every array that it gets.
pub(super) fn uncounted(run: &Observation) -> Vec<&str> {
    let mut files = run.ledger.static_runtimes();
    files.retain(|file| asked_for_card(run, file) != Some(false));
    files
}

/// The file because of which the run says nothing of the program's memory; `None` where there is none.
pub(super) fn to_blame(run: &Observation) -> Option<&str> {
    let files = uncounted(run);
    let first = *files.first()?;
    let mut failures = run.hooks.reports.iter().filter_map(|hook| hook.failure.as_ref());
    let says = |words: &str| ITS_ERRORS.iter().any(|known| words.to_lowercase().contains(known));
    // Where no framework is watched, the error that ended the program is only among its last words.
    let last_words = || run.exit_status != 0 && says(&run.stderr_tail);
    if !took_memory(run) || failures.any(|failure| says(&failure.message)) || last_words() {
        return Some(first);
    }
    files.into_iter().find(|file| asked_for_card(run, file) == Some(true))
}

/// Whether the program asked the library of this file for a card, in any process; `None` where no framework says.
fn asked_for_card(run: &Observation, file: &str) -> Option<bool> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let known = run.hooks.reports.iter().flat_map(|hook| &hook.asked_for_card);
    known
        .filter(|(library, _)| name.starts_with(library.as_str()))
        .map(|(_, asked)| *asked)
        .reduce(|one, other| one || other)
}

/// Whether anything but contexts was taken from a card: a program that only looks at the cards has a context, too.
fn took_memory(run: &Observation) -> bool {
    let mut books = run.ledger.processes().iter().flat_map(|process| &process.devices);
    books.any(|books| books.peak_bytes > books.at_peak(Kind::Context))
}

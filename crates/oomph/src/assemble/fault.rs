//! Decides whether oomph caused a failure: what died in its own code, or an answer of the virtual GPU that a real driver
//! would not have given.

use oomph_launch::HookFault;
use oomph_report::Fault;

use super::{host, statics};
use crate::observation::Observation;

/// Errors that the virtual GPU answers with where it cannot do what a real driver does, in small letters.
const REFUSALS: [&str; 8] = [
    "cuda_error_not_supported",
    "cudaerrornotsupported",
    "operation not supported",
    "cublas_status_not_supported",
    "cusparse_status_not_supported",
    "cuda_error_invalid_image",
    "cudaerrorinvalidkernelimage",
    "device kernel image is invalid",
];

/// How the names begin that oomph puts around the program's loops: a compiler that meets them knows none of them.
const OURS: &str = "__oomph_";

/// Words of errors that come from CUDA or one of its libraries, in small letters.
const OF_CUDA: [&str; 8] = ["cuda", "cublas", "cudnn", "cusolver", "cusparse", "cufft", "nccl", "nvml"];

/// What is to blame in a run that failed; `None` where it is the program itself.
pub(super) fn of(run: &Observation) -> Option<Fault> {
    if let Some(place) = &run.hooks.crashed_at {
        return Some(Fault { crashed_at: Some(place.clone()), ..Fault::default() });
    }
    if let Some(file) = statics::to_blame(run) {
        return Some(Fault {
            static_runtime: Some(file.to_owned()),
            message: run.exception().unwrap_or_default(),
            ..Fault::default()
        });
    }
    if let Some(own) = own(run) {
        let message = format!("{}: {}", own.kind, own.message);
        return Some(Fault { own: Some(super::site_of(&own.site)), message, ..Fault::default() });
    }
    if run.cut.is_some() || run.exit_status == 0 || host::shortage(run).is_some() {
        return None;
    }
    let asked: Vec<String> = run.ledger.unsupported_calls().into_iter().map(str::to_owned).collect();
    let failure = run.hooks.reports.iter().find_map(|hook| hook.failure.as_ref());
    let read_at = failure.and_then(|failure| failure.read_at.as_ref()).map(super::site_of);
    let abridged = failure.and_then(|failure| failure.abridged.as_ref()).map(super::site_of);
    let words = failure.map(|failure| failure.message.to_lowercase()).unwrap_or_default();
    let says = |known: &[&str]| known.iter().any(|word| words.contains(word));
    let to_blame = match failure {
        // An exception that has nothing to do with CUDA is the program's own, whatever it called before.
        Some(_) => {
            read_at.is_some()
                || abridged.is_some()
                || says(&REFUSALS)
                || words.contains(OURS)
                || (!asked.is_empty() && says(&OF_CUDA))
        }
        // A program of machine code, or one that left by a signal, does not say.
        None => !asked.is_empty(),
    };
    to_blame.then(|| Fault {
        asked,
        message: run.exception().unwrap_or_default(),
        read_at,
        abridged,
        ..Fault::default()
    })
}

/// What died in oomph's own code, in any process of the run, and makes its answer void.
pub(super) fn own(run: &Observation) -> Option<&HookFault> {
    run.hooks.reports.iter().flat_map(|hook| &hook.faults).find(|fault| fault.voids)
}

//! Finds the card that a program asked for and that its run does not have.

use oomph_report::{MissingCard, Verdict};

use crate::observation::Observation;

/// What frameworks say of a card that is not there, in small letters.
const ERRORS: [&str; 9] = [
    "invalid device ordinal",
    "invalid device id",
    "invalid device argument",
    "no cuda gpus are available",
    "no cuda-capable device",
    "cuda_error_invalid_device",
    "cuda_error_no_device",
    "on cuda device",
    "invalid resource handle ordinal",
];

/// The card, where its absence ended the program or kept it from the GPU. Many programs try cards and go on without
/// those that are not there, so that its having been asked for is not enough.
pub(super) fn of(run: &Observation, verdict: Verdict) -> Option<MissingCard> {
    let failures = || run.hooks.reports.iter().filter_map(|hook| hook.failure.as_ref());
    let says = |message: &str| ERRORS.iter().any(|known| message.to_lowercase().contains(known));
    let failure = failures().find(|failure| says(&failure.message));
    let asked = run.ledger.missing_cards();
    let found = match verdict {
        // The last one that was asked for, if the error names one: an earlier one was asked for in vain and done without.
        Verdict::Failed if failure.is_some() => asked.into_iter().next_back(),
        // A program of machine code does not say what it failed of.
        Verdict::Failed if failures().next().is_none() && run.exit_status != 0 => asked.into_iter().next_back(),
        Verdict::NoGpuUse => asked.into_iter().find(|missing| missing.ordinal.is_none()),
        _ => None,
    };
    let cards = u32::try_from(run.ledger.devices().len()).unwrap_or(u32::MAX);
    let site = failure.and_then(|failure| failure.site.as_ref()).map(super::site_of);
    match (found, failure) {
        (Some(found), _) => {
            Some(MissingCard { ordinal: found.ordinal, list: found.list, cards, needs: found.needs, site })
        }
        // Where PyTorch itself counts the cards, CUDA is not asked.
        (None, Some(failure)) if verdict == Verdict::Failed => {
            let ordinal = failure.asked_card.or_else(|| named(&failure.message))?;
            let needs = ordinal.checked_add(1);
            (ordinal >= cards).then_some(MissingCard { ordinal: Some(ordinal), list: None, cards, needs, site })
        }
        _ => None,
    }
}

/// The number of a card that a message names: "object on CUDA device 1 but".
fn named(message: &str) -> Option<u32> {
    let (_, rest) = message.split_once("on CUDA device ")?;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_its_card() {
        assert_eq!(
            named("Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1."),
            Some(1)
        );
        assert_eq!(named("CUDA error: invalid device ordinal"), None);
    }
}

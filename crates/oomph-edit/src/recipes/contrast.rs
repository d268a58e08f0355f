//! Losses that compare the samples of a batch with each other.

use crate::calls::Call;
use crate::edit::Edit;
use crate::program::{CannotPlace, Draft, Way};

use super::cannot;

/// Samples whose graph is on the card at once.
const PART: &str = "16";
/// Losses of Sentence Transformers that have a cached variant, which begins with `Cached`.
const CACHEABLE: [&str; 3] = ["MultipleNegativesRankingLoss", "MultipleNegativesSymmetricRankingLoss", "GISTEmbedLoss"];

/// The cached variant of a loss of Sentence Transformers.
pub fn cached(draft: &mut Draft<'_>) -> Result<(), CannotPlace> {
    let program = draft.program;
    let made: Vec<Call<'_>> = program.calls().into_iter().filter(|call| CACHEABLE.contains(&call.name())).collect();
    let Some(first) = made.first() else {
        return cannot("no loss of Sentence Transformers that has a cached variant is made in the program's code");
    };
    if made.iter().any(|call| call.at.file != first.at.file || call.name() != first.name()) {
        return cannot("several losses are made");
    }
    let name = first.name();
    for at in program.all("identifier").into_iter().filter(|at| at.file == first.at.file && at.text() == name) {
        draft.edit(at.file, Way::Code, Edit::insert(at.node.start_byte(), "Cached"));
    }
    for call in &made {
        draft.edit(call.at.file, Way::Code, call.setting("mini_batch_size", PART));
    }
    Ok(())
}

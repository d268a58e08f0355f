//! Prepares the question to the catalogue of remedies: the situation of a program and the moments in which it may run
//! out, with its code where that can be edited.

use std::ffi::OsString;
use std::path::Path;

use oomph_gpu::Gpu;
use oomph_remedy::{Cause, Operation, Situation};

use super::edits::Edits;
use super::serving::Serving;
use super::situation::Known;

/// The question.
pub struct Question {
    /// What is known of the program.
    pub situation: Situation,
    /// The moments in which it may run out.
    pub moments: Vec<Operation>,
    /// Its own code and options, where it is a Python program.
    pub edits: Option<Edits>,
}

impl Question {
    /// The question that a program poses, which is started by `command` in `directory`.
    pub fn of(known: &Known<'_>, command: &[OsString], directory: &Path, gpu: &Gpu) -> Self {
        let mut situation = known.situation();
        let mut moments = known.moments();
        let mut edits = Edits::of(command, directory, known);
        let error = known.oom.map(|oom| oom.message.as_str());
        if let Some(serving) = Serving::of(known.line, edits.as_ref(), gpu, known.peak_bytes, error) {
            serving.describe(&mut situation);
            let of_training = if known.trains() { moments } else { Vec::new() };
            moments = serving.moments();
            moments.extend(of_training);
            if let Some(edits) = &mut edits {
                let (context, with_8_bits) = (serving.context_that_fits(), serving.context_with_8_bits());
                edits.learn(context, with_8_bits, serving.layers_that_fit(), &situation);
            }
        }
        if known.is_without_torch() && situation.settings.batch_size.is_none() {
            situation.settings.batch_size = edits.as_ref().and_then(Edits::batch_size);
        }
        situation.settings.steps_by_hand = edits.as_ref().map(|edits| edits.program.steps_by_hand());
        situation.settings.takes_tiles = edits.as_ref().map(|edits| edits.program.takes_tiles());
        // Nothing grows in number there, so no search of the program's objects finds it.
        if edits.as_ref().is_some_and(|edits| edits.program.retains_a_state()) {
            situation.causes.insert(0, Cause::Leak.into());
        }
        Self { situation, moments, edits }
    }
}

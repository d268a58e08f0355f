//! Memory that an earlier part of the program still holds: its results, and models that have done their work.

use std::collections::{BTreeSet, HashSet};

use oomph_trace::FrameId;

use super::super::explanation::{CauseKind, Evidence, Owner, Phase};
use super::super::stacks::Signs;
use super::{Ledger, readable};

/// So many allocations of forward passes between two loads make of the second one another model.
const COMPUTED: usize = 8;
/// A later load of less than this share of the earlier one adds to a model: an adapter, a head.
const ANOTHER: f64 = 0.25;

pub(super) fn claim(ledger: &mut Ledger) {
    results(ledger);
    earlier_models(ledger);
}

/// Results of forward passes that are over.
fn results(ledger: &mut Ledger) {
    let analysis = ledger.analysis;
    let now = analysis.phases.birth(analysis.position).step;
    // An allocation that failed before and did not end the program: its frames may hold what the attempt had made.
    let caught = analysis.failures.caught.iter().rev().copied().find(|&oom| oom < analysis.position);
    let mut pieces = Vec::new();
    let mut after_failure = 0u64;
    for at in ledger.unclaimed() {
        let (step, kind, born) = ledger.birth(at);
        if born == 0 || !matches!(ledger.owner(at), Owner::Activations | Owner::Temporaries | Owner::KvCache) {
            continue;
        }
        let failed = caught.is_some_and(|failure| born <= failure);
        let over = step + 1 < now || (step < now && matches!(kind, Phase::Eval | Phase::Generate));
        if failed || over {
            pieces.push(at);
            after_failure += if failed { analysis.layout.pieces[at].bytes } else { 0 };
        }
    }
    let total: u64 = pieces.iter().map(|&at| analysis.layout.pieces[at].bytes).sum();
    if ledger.negligible(total) {
        return;
    }
    pieces.sort_by_key(|&at| std::cmp::Reverse(analysis.layout.pieces[at].bytes));
    let evidence = pieces
        .iter()
        .take(5)
        .map(|&at| Evidence {
            what: "a result of an earlier part of the program".to_owned(),
            bytes: analysis.layout.pieces[at].bytes,
            site: ledger.site(at),
        })
        .collect();
    let because = if after_failure > total / 2 {
        format!(
            "{} were made before an earlier out-of-memory error that the program caught, and are still held; leave the \
             except block before trying again, because the exception holds the frames of the failed attempt",
            readable(total)
        )
    } else {
        format!(
            "{} of results are held from an earlier part of the program; delete them before going on",
            readable(total)
        )
    };
    let bytes = ledger.claim(pieces);
    ledger.add(CauseKind::KeptFromEarlierPhase, bytes, 0.7, because, evidence);
}

/// Weights that were loaded, have computed something, and have not computed since other weights are loaded.
///
/// A recording shows where memory is made and not where it is read, so that a model at work shows only by the lines
/// whose results it allocates: an earlier model counts as done where none of them allocates after the later load began.
fn earlier_models(ledger: &mut Ledger) {
    let analysis = ledger.analysis;
    let pieces: Vec<(usize, u32)> = ledger
        .unclaimed()
        .filter(|&at| matches!(ledger.owner(at), Owner::Parameters | Owner::Buffers))
        .map(|at| (at, analysis.layout.pieces[at].block))
        .collect();
    let mut standing: Vec<(u32, usize)> = pieces.iter().map(|&(at, block)| (block, at)).collect();
    standing.sort_unstable();
    let loading = analysis.oom.and_then(|oom| {
        let event = analysis.timeline.device.events.get(oom.event as usize)?;
        let signs = analysis.facts.get(event.stack).signs;
        (signs.any(Signs::LOAD) && !signs.any(Signs::FORWARD)).then_some(oom.requested_bytes)
    });

    let mut models = vec![Model::default()];
    let mut standing = standing.into_iter().peekable();
    let mut computed = 0;
    for (index, block) in analysis.timeline.lifetimes.iter().enumerate() {
        if block.birth > analysis.position {
            break;
        }
        let weight = standing.next_if(|(lifetime, _)| *lifetime == index as u32);
        if block.birth == 0 {
            continue;
        }
        if let Some((_, at)) = weight {
            if computed >= COMPUTED {
                models.push(Model::default());
            }
            computed = 0;
            if let Some(model) = models.last_mut() {
                model.pieces.push(at);
                model.bytes += analysis.layout.pieces[at].bytes;
            }
            continue;
        }
        let kind = analysis.phases.birth(block.birth).kind;
        if matches!(kind, Phase::Forward | Phase::Eval | Phase::Generate)
            && let (Some(model), Some(line)) = (models.last_mut(), analysis.facts.get(block.stack).line)
        {
            computed += 1;
            model.lines.insert(line);
        }
    }
    if let Some(request) = loading {
        if computed >= COMPUTED {
            models.push(Model::default());
        }
        if let Some(last) = models.last_mut() {
            last.bytes += request;
        }
    }
    let Some((last, earlier)) = models.split_last() else { return };
    let mut done: Vec<usize> = earlier
        .iter()
        .filter(|model| last.bytes as f64 >= model.bytes as f64 * ANOTHER && model.lines.is_disjoint(&last.lines))
        .flat_map(|model| model.pieces.iter().copied())
        .collect();
    let total: u64 = done.iter().map(|&at| analysis.layout.pieces[at].bytes).sum();
    if ledger.negligible(total) {
        return;
    }
    done.sort_by_key(|&at| std::cmp::Reverse(analysis.layout.pieces[at].bytes));
    let mut lines = BTreeSet::new();
    let evidence = done
        .iter()
        .filter_map(|&at| Some((ledger.site(at)?, analysis.layout.pieces[at].bytes)))
        .filter(|(site, _)| lines.insert(site.clone()))
        .take(5)
        .map(|(site, bytes)| Evidence { what: "a weight of the earlier model".to_owned(), bytes, site: Some(site) })
        .collect();
    let because = format!(
        "{} of weights have done their work: another model is loaded, and none of the lines that computed with them has \
         run since; delete the earlier model before the next one is loaded, or move it to the CPU",
        readable(total)
    );
    let bytes = ledger.claim(done);
    ledger.add(CauseKind::KeptFromEarlierPhase, bytes, 0.6, because, evidence);
}

/// Weights that were loaded together, and the lines that computed between this load and the next.
#[derive(Default)]
struct Model {
    pieces: Vec<usize>,
    bytes: u64,
    lines: HashSet<FrameId>,
}

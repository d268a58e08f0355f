//! Decides which remedies are searched first: those that address the cause, and the program's own options.

use oomph_launch::{HookKept, HookProgram, HookReports};
use oomph_remedy::search::{Candidate, Found, Wishes};
use oomph_remedy::{Catalogue, Cause, Framework, Operation, Remedy, Sameness, Situation, Task, share_is_refused};

use super::applier::{Applier, Means};
use super::engine::SHARE;

/// What is added to the tier of a remedy that is applied by a means after the program's own.
const PER_MEANS: u8 = 32;

/// The remedy that is placed in the line that ran out of memory, and nowhere else.
pub const AT_THE_LINE: &str = "in-pieces";

/// The remedy that compiles the lines that ran out, in a program of JAX.
const COMPILED: &str = "xla";

/// The remedy of [`part_of_the_evaluation`].
pub const PART_OF_THE_EVALUATION: &str = "fewer-evaluation-batches";

/// The remedy that lowers the batch of an evaluation.
const EVALUATION_BATCH: &str = "eval-batch";

/// Lets the pool of a framework take more of the card.
const LARGER_POOL: &str = "larger-pool-share";

/// Lowers the batch of a training and accumulates its gradients.
const ACCUMULATED: &str = "micro-batch";

/// Lowers the batch of a training.
const PLAIN_BATCH: &str = "smaller-training-batch";

/// Remedies that lower the batch.
const BATCH: &[&str] = &[ACCUMULATED, PLAIN_BATCH, "smaller-batch"];

/// The candidates in the order in which a specialist would try them: the program's own means, then edits, then variables,
/// then what the user has to do by hand; of one means the cheapest first.
pub fn ordered<'a>(mut candidates: Vec<Candidate<'a>>, applier: &Applier<'_>) -> Vec<Candidate<'a>> {
    for candidate in &mut candidates {
        let means = applier.means(candidate.remedy).unwrap_or(Means::Hook);
        // What changes the very line that ran out is as likely to help as an option.
        // So is a smaller share for an engine that was refused its own, or that leaves a training on its card too little.
        let situation = applier.situation;
        let trains = situation.task == Some(Task::Training);
        let share = candidate.remedy.id == SHARE && (trains || share_is_refused(situation));
        let of_jax = || situation.frameworks.iter().any(|installed| installed.framework == Framework::Jax);
        let at_the_line = candidate.remedy.id == AT_THE_LINE || candidate.remedy.id == COMPILED && of_jax();
        let means = if at_the_line || share { means.min(Means::Own) } else { means };
        // Another result is no reason to take the program's own means first.
        let means =
            if candidate.remedy.sameness == Sameness::ChangesTheResult { means.max(Means::Edit) } else { means };
        let place = match means {
            Means::Own => 0,
            Means::Edit => 1,
            Means::Environment => 2,
            Means::Hook => 3,
        };
        candidate.tier = candidate.tier.min(PER_MEANS - 1) + place * PER_MEANS;
    }
    candidates.sort_by_key(|candidate| candidate.tier);
    candidates
}

/// Evaluation without a graph, for a program that trains and evaluates with one: the catalogue offers it to programs that
/// do nothing else.
pub fn evaluation_without_graph<'a>(
    catalogue: &'a Catalogue,
    situation: &Situation,
    wishes: &Wishes,
    applier: &Applier<'_>,
) -> Vec<Candidate<'a>> {
    let evaluates = Situation { task: Some(Task::Inference), ..situation.clone() };
    let found = placed(catalogue, &evaluates, Operation::Evaluation, wishes, applier, "no-grad");
    found.into_iter().map(|candidate| Candidate { asked: true, ..candidate }).collect()
}

/// A part of the evaluation, where what it keeps of every batch is the cause: a second answer for who cannot change what is
/// kept.
pub fn part_of_the_evaluation<'a>(
    catalogue: &'a Catalogue,
    situation: &Situation,
    wishes: &Wishes,
    applier: &Applier<'_>,
) -> Vec<Candidate<'a>> {
    let keeps = Situation { causes: vec![Cause::Leak.into()], ..situation.clone() };
    placed(catalogue, &keeps, Operation::Evaluation, wishes, applier, PART_OF_THE_EVALUATION)
}

/// A smaller share of the card for the engine that a program which trains has on it as well: the catalogue offers it to
/// servers.
pub fn share_of_an_engine<'a>(
    catalogue: &'a Catalogue,
    situation: &Situation,
    wishes: &Wishes,
    applier: &Applier<'_>,
) -> Vec<Candidate<'a>> {
    let serves = Situation { task: Some(Task::Inference), ..situation.clone() };
    placed(catalogue, &serves, Operation::Generation, wishes, applier, SHARE)
}

/// A larger part of the card for the pool of a framework, in whatever part of the program the pool was full.
pub fn larger_pool<'a>(
    catalogue: &'a Catalogue,
    situation: &Situation,
    wishes: &Wishes,
    applier: &Applier<'_>,
) -> Vec<Candidate<'a>> {
    // A variable sets it, so that no place in the code is needed.
    let applies = |remedy: &Remedy| applier.can_apply(remedy);
    alone(catalogue, situation, Operation::Forward, wishes, LARGER_POOL, &applies)
}

/// One remedy for a moment, where it can be placed in the program's code and the user does not rule it out.
fn placed<'a>(
    catalogue: &'a Catalogue,
    situation: &Situation,
    moment: Operation,
    wishes: &Wishes,
    applier: &Applier<'_>,
    id: &str,
) -> Vec<Candidate<'a>> {
    alone(catalogue, situation, moment, wishes, id, &|remedy| applier.places(remedy))
}

/// One remedy for a moment, where it can be applied and the user does not rule it out.
fn alone<'a>(
    catalogue: &'a Catalogue,
    situation: &Situation,
    moment: Operation,
    wishes: &Wishes,
    id: &str,
    applies: &dyn Fn(&Remedy) -> bool,
) -> Vec<Candidate<'a>> {
    if !wishes.allow.is_empty() && !wishes.allow.contains(id) || wishes.forbid.contains(id) {
        return Vec::new();
    }
    let wishes = Wishes { allow: [id.to_owned()].into(), ..wishes.clone() };
    catalogue.candidates(situation, &[moment], &wishes, applies)
}

/// The candidates that answer the cause, where there is one with an answer of its own: memory that grows is let go of, and
/// an evaluation gets the remedies of evaluations. Empty where all candidates are to be searched at once.
pub fn first<'a>(candidates: &[Candidate<'a>], situation: &Situation, evaluates: bool) -> Vec<Candidate<'a>> {
    let answers = |remedy: &Remedy| {
        let leak = situation.causes.iter().any(|suspect| suspect.cause == Cause::Leak)
            && remedy.when.causes.contains(&Cause::Leak);
        let evaluation = evaluates && remedy.aims.contains(&Operation::Evaluation);
        leak || evaluation
    };
    let found = candidates.iter().filter(|candidate| answers(candidate.remedy)).cloned();
    // What answers the cause is tried, whatever the averages of the catalogue say of it.
    found.map(|candidate| Candidate { asked: true, ..candidate }).collect()
}

/// Whether an evaluation that computes too much at a time is what was made to fit, rather than what it keeps.
pub fn computes(found: &Found<'_>) -> bool {
    let remedies = found.fixes.iter().flat_map(|fix| &fix.mix.doses).map(|dose| dose.remedy);
    remedies
        .into_iter()
        .any(|remedy| remedy.aims.contains(&Operation::Evaluation) && remedy.aims.contains(&Operation::Forward))
}

/// The candidates that may help where the ones of an evaluation did: not these, and no smaller batch of training where the
/// evaluation has one of its own.
pub fn second_answers<'a>(candidates: &[Candidate<'a>], found: &Found<'_>) -> Vec<Candidate<'a>> {
    let is_new = |id: &str| !holds(found, id) && may_help(id, found);
    candidates.iter().filter(|candidate| is_new(&candidate.remedy.id)).cloned().collect()
}

fn holds(found: &Found<'_>, id: &str) -> bool {
    found.fixes.iter().any(|fix| fix.mix.holds(id))
}

fn may_help(id: &str, found: &Found<'_>) -> bool {
    !(is_batch(id) && holds(found, EVALUATION_BATCH))
}

/// All candidates that may help, but of what is enough only the amounts that are less than enough.
pub fn gentler<'a>(candidates: &[Candidate<'a>], found: &Found<'_>) -> Vec<Candidate<'a>> {
    let doses: Vec<_> = found.fixes.iter().flat_map(|fix| &fix.mix.doses).collect();
    let less = |known: &Candidate<'a>| {
        let Some(enough) = doses.iter().find(|dose| dose.remedy.id == known.remedy.id) else {
            return Some(known.clone());
        };
        let amounts = known.amounts.iter().copied().filter(|amount| Some(*amount) < enough.amount).collect();
        let known = Candidate { amounts, ..known.clone() };
        (!known.amounts.is_empty()).then_some(known)
    };
    candidates.iter().filter(|known| may_help(&known.remedy.id, found)).filter_map(less).collect()
}

/// Adds what a second search found to what the first did.
pub fn add<'a>(found: &mut Found<'a>, more: Found<'a>) {
    for fix in more.fixes.into_iter().filter(|fix| !fix.tight) {
        // The same remedies in another amount are not another way.
        if !found.fixes.iter().any(|known| known.mix.is_alike(&fix.mix)) {
            found.fixes.push(fix);
        }
    }
    for (mix, ran) in more.tried {
        if found.tried.iter().all(|(known, _)| known.key() != mix.key()) {
            found.tried.push((mix, ran));
        }
    }
    for (id, why) in more.dropped {
        found.dropped.entry(id).or_insert(why);
    }
    found.out_of_time |= more.out_of_time;
    let new: Vec<String> = more.untried.into_iter().filter(|id| !found.untried.contains(id)).collect();
    found.untried.extend(new);
    found.untried.retain(|id| !found.tried.iter().any(|(mix, _)| mix.holds(id)) && !found.dropped.contains_key(id));
}

/// The candidates that lower the batch by the program's own options.
pub fn own_batch<'a>(candidates: &[Candidate<'a>], applier: &Applier<'_>) -> Vec<Candidate<'a>> {
    let own = |candidate: &&Candidate<'a>| {
        is_batch(&candidate.remedy.id) && applier.means(candidate.remedy) == Some(Means::Own)
    };
    candidates.iter().filter(own).cloned().collect()
}

/// The batch without accumulation, in the amounts that may be enough where a batch with it is what was made to fit.
pub fn plain_batch<'a>(candidates: &[Candidate<'a>], found: &Found<'_>) -> Vec<Candidate<'a>> {
    let mut doses = found.fixes.iter().filter(|fix| !fix.tight).flat_map(|fix| &fix.mix.doses);
    let Some(enough) = doses.find(|dose| dose.remedy.id == ACCUMULATED) else { return Vec::new() };
    let plain = candidates.iter().filter(|known| known.remedy.id == PLAIN_BATCH);
    let as_small = |known: &Candidate<'a>| Candidate {
        amounts: known.amounts.iter().copied().filter(|amount| Some(*amount) >= enough.amount).collect(),
        asked: true,
        ..known.clone()
    };
    plain.map(as_small).filter(|known| !known.amounts.is_empty()).collect()
}

/// Whether a remedy lowers the batch.
pub fn is_batch(id: &str) -> bool {
    BATCH.contains(&id)
}

/// What the program keeps, with what the loops were seen to keep that grow.
pub fn with_growth(mut program: HookProgram, hooks: &HookReports) -> HookProgram {
    let loops = hooks.reports.iter().flat_map(|hook| &hook.loops);
    let growing =
        loops.filter_map(|one| Some((one, one.growth.as_ref().filter(|growth| growth.bytes_per_iteration > 0)?)));
    for (one, growth) in growing {
        for holder in &growth.holders {
            let known = program.kept.iter().any(|kept| kept.name.as_ref() == Some(&holder.name));
            if !known && holder.line > 0 {
                program.kept.push(HookKept {
                    kind: holder.kind.clone(),
                    file: Some(holder.file.clone()),
                    line: Some(holder.line),
                    name: Some(holder.name.clone()),
                    ..HookKept::default()
                });
            }
        }
        // Who holds the memory was not found; that it grows was.
        if growth.holders.is_empty() && program.kept.is_empty() {
            program.kept.push(HookKept {
                kind: "growth".to_owned(),
                file: Some(one.file.clone()).filter(|file| !file.is_empty()),
                line: Some(one.line).filter(|line| *line > 0),
                ..HookKept::default()
            });
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use oomph_remedy::search::{Dose, Fix, Mix, Ran};

    use super::*;

    #[test]
    fn a_larger_pool_needs_no_place_in_the_code() {
        let command: Vec<OsString> = ["python", "train.py"].map(OsString::from).into();
        let found = |framework: Framework, wishes: &Wishes| {
            let situation = Situation::of([framework], Cause::Full);
            let refused = Default::default();
            let applier =
                Applier { command: &command, line: None, situation: &situation, hook: false, edits: None, refused };
            let found = larger_pool(Catalogue::builtin(), &situation, wishes, &applier);
            found.into_iter().map(|candidate| candidate.remedy.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found(Framework::Jax, &Wishes::default()), [LARGER_POOL]);
        assert!(found(Framework::Pytorch, &Wishes::default()).is_empty());
        let forbidden = Wishes { forbid: [LARGER_POOL.to_owned()].into(), ..Wishes::default() };
        assert!(found(Framework::Jax, &forbidden).is_empty());
    }

    #[test]
    fn of_what_is_enough_less_is_left() {
        let remedy = |id: &str| Catalogue::builtin().get(id).unwrap();
        let known = |id: &str, amounts: &[u32]| Candidate {
            remedy: remedy(id),
            amounts: amounts.to_vec(),
            tier: 0,
            asked: false,
            aimed: false,
        };
        let candidates = [known("in-pieces", &[2, 4, 8]), known("smaller-batch", &[2, 4]), known("half-weights", &[])];
        let enough = |id: &str, amount: Option<u32>| Fix {
            mix: Mix::single(Dose { amount, ..Dose::of(remedy(id)) }),
            peak_bytes: 1,
            tight: false,
        };
        let left = |fixes: Vec<Fix<'_>>| {
            let found = Found { fixes, ..Found::default() };
            let left = gentler(&candidates, &found).into_iter();
            left.map(|known| (known.remedy.id.clone(), known.amounts)).collect::<Vec<_>>()
        };
        let named = |all: &[(&str, &[u32])]| {
            all.iter().map(|(id, amounts)| ((*id).to_owned(), amounts.to_vec())).collect::<Vec<_>>()
        };
        let pieces = left(vec![enough("in-pieces", Some(4))]);
        assert_eq!(pieces, named(&[("in-pieces", &[2]), ("smaller-batch", &[2, 4]), ("half-weights", &[])]));
        let others = left(vec![enough("smaller-batch", Some(2)), enough("half-weights", None)]);
        assert_eq!(others, named(&[("in-pieces", &[2, 4, 8])]), "nothing is less than these");
    }

    #[test]
    fn a_batch_without_accumulation_is_as_small_as_one_with_it() {
        let remedy = |id: &str| Catalogue::builtin().get(id).unwrap();
        let plain = Candidate {
            remedy: remedy("smaller-training-batch"),
            amounts: vec![2, 4, 8],
            tier: 0,
            asked: false,
            aimed: false,
        };
        let amounts = |id: &str, tight: bool| {
            let mix = Mix::single(Dose { amount: Some(4), ..Dose::of(remedy(id)) });
            let found = Found { fixes: vec![Fix { mix, peak_bytes: 1, tight }], ..Found::default() };
            let candidates =
                [plain.clone(), Candidate { remedy: remedy("autocast"), amounts: vec![], ..plain.clone() }];
            plain_batch(&candidates, &found).into_iter().map(|known| known.amounts).collect::<Vec<_>>()
        };
        assert_eq!(amounts("micro-batch", false), [[4, 8]]);
        assert!(amounts("micro-batch", true).is_empty() && amounts("eval-batch", false).is_empty());
    }

    #[test]
    fn a_batch_of_training_is_none_of_an_evaluation() {
        let remedy = |id: &str| Catalogue::builtin().get(id).unwrap();
        let candidate =
            |id: &str| Candidate { remedy: remedy(id), amounts: vec![], tier: 0, asked: false, aimed: false };
        let candidates = ["eval-batch", "micro-batch", "smaller-training-batch", "autocast"].map(candidate);
        let ids = |found: &Found<'_>| {
            second_answers(&candidates, found).iter().map(|one| one.remedy.id.clone()).collect::<Vec<_>>()
        };
        let by = |id: &str| Found {
            fixes: vec![Fix { mix: Mix::single(Dose::of(remedy(id))), peak_bytes: 1, tight: false }],
            ..Found::default()
        };
        assert_eq!(ids(&by("eval-batch")), ["autocast"]);
        assert_eq!(ids(&by("no-grad")), ["eval-batch", "micro-batch", "smaller-training-batch", "autocast"]);
    }

    #[test]
    fn a_second_search_adds_what_is_new() {
        let mix = |id: &str| Mix::single(Dose::of(Catalogue::builtin().get(id).unwrap()));
        let fix = |id: &str, tight: bool| Fix { mix: mix(id), peak_bytes: 1, tight };
        let mut found = Found {
            fixes: vec![fix("eval-batch", false)],
            tried: vec![(mix("eval-batch"), Ran::Fits(1)), (mix("eval-accumulation"), Ran::TooMuch)],
            ..Found::default()
        };
        let more = Found {
            fixes: vec![fix("autocast", false), fix("pure-bf16", true)],
            tried: vec![(mix("eval-accumulation"), Ran::TooMuch), (mix("autocast"), Ran::Fits(1))],
            dropped: [("lora".to_owned(), "peft is not installed".to_owned())].into(),
            out_of_time: true,
            untried: ["lora", "autocast", "activation-offload"].map(str::to_owned).into(),
            ..Found::default()
        };
        add(&mut found, more);
        let keys = |mixes: Vec<&Mix<'_>>| mixes.into_iter().flat_map(Mix::key).collect::<Vec<_>>();
        assert_eq!(keys(found.fixes.iter().map(|fix| &fix.mix).collect()), ["eval-batch", "autocast"]);
        let tried = keys(found.tried.iter().map(|(mix, _)| mix).collect());
        assert_eq!(tried, ["eval-batch", "eval-accumulation", "autocast"]);
        assert!(found.dropped.contains_key("lora") && found.out_of_time);
        assert_eq!(found.untried, ["activation-offload"]);
        assert!(computes(&found));
        add(&mut found, Found { fixes: vec![fix("autocast", false)], ..Found::default() });
        assert_eq!(found.fixes.len(), 2, "it is known already");
        let kept = Found { fixes: vec![fix("eval-accumulation", false)], ..Found::default() };
        assert!(!computes(&kept), "nothing else helps where results are kept");
    }
}

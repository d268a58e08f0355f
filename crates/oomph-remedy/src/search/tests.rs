//! Tests the search against a bench that computes its answers.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;
use crate::{Catalogue, Cause, Framework, Operation, OwnerGroup, Situation, Task};

const GIB: u64 = 1 << 30;

/// A program whose peak is the sum of its owners, of which every remedy leaves what the test says.
struct Paper {
    owners: BTreeMap<OwnerGroup, u64>,
    limit: u64,
    /// From this peak on what fits is tight.
    tight_from: u64,
    /// What is left of an owner, by remedy; what is missing here changes nothing. A dose of a knob divides.
    leaves: Vec<(&'static str, OwnerGroup, f64)>,
    /// Remedies that the program refuses.
    refuses: Vec<&'static str>,
    /// Amounts from this one on are refused, too.
    too_strong: u32,
    /// Remedies that break it.
    breaks: Vec<&'static str>,
    /// How many tries there is time for.
    tries: usize,
    /// How many run at a time.
    jobs: usize,
    ran: Vec<Vec<String>>,
}

impl Paper {
    fn peak(&self, mix: &Mix<'_>) -> u64 {
        let left = |owner: OwnerGroup| -> f64 {
            let share = |dose: &Dose<'_>| -> f64 {
                let of = self.leaves.iter().filter(|(id, of, _)| *id == dose.remedy.id && *of == owner);
                of.map(|(.., share)| dose.amount.map_or(*share, |amount| 1.0 / f64::from(amount))).product()
            };
            mix.doses.iter().map(share).product()
        };
        self.owners.iter().map(|(owner, bytes)| (*bytes as f64 * left(*owner)) as u64).sum()
    }
}

impl Bench for Paper {
    type Error = Infallible;

    fn run(&mut self, mixes: &[Mix<'_>]) -> Result<Vec<Ran>, Infallible> {
        Ok(mixes
            .iter()
            .map(|mix| {
                self.ran.push(mix.key());
                let why = |id: &&str| ((*id).to_owned(), "the program has no place for it".to_owned());
                let strong = mix.doses.iter().filter(|dose| dose.amount >= Some(self.too_strong));
                let strong: Vec<&str> = strong.map(|dose| dose.remedy.id.as_str()).collect();
                let refused = self.refuses.iter().filter(|id| mix.holds(id)).chain(&strong);
                let refused: Vec<_> = refused.map(why).collect();
                let rest = refused.iter().fold(mix.clone(), |mix, (id, _)| mix.without(id));
                let peak = self.peak(&rest);
                let ran = match peak {
                    _ if self.breaks.iter().any(|id| rest.holds(id)) => Ran::Failed("it broke".into()),
                    peak if peak <= self.limit && peak >= self.tight_from => Ran::Tight(peak),
                    peak if peak <= self.limit => Ran::Fits(peak),
                    _ => Ran::TooMuch,
                };
                if refused.is_empty() { ran } else { Ran::NotApplied(refused, Some(Box::new(ran))) }
            })
            .collect())
    }

    fn jobs(&self) -> usize {
        self.jobs
    }

    fn has_time(&self) -> bool {
        self.ran.len() < self.tries
    }
}

/// A training of GPT-2 in fp32: 2 GiB that no batch changes, 1 GiB of temporaries, and activations.
fn training(activations: u64, limit: u64) -> (Situation, Paper) {
    let owners = BTreeMap::from([
        (OwnerGroup::Parameters, GIB / 2),
        (OwnerGroup::Gradients, GIB / 2),
        (OwnerGroup::OptimizerState, GIB),
        (OwnerGroup::Temporaries, GIB),
        (OwnerGroup::Activations, activations),
    ]);
    let mut situation = Situation::of([Framework::Transformers, Framework::Pytorch], Cause::Full);
    situation.task = Some(Task::Training);
    situation.owners = Some(owners.clone());
    situation.settings.batch_size = Some(32);
    situation.settings.bytes_per_parameter = Some(4.0);
    situation.compute_capability = Some((8, 6));
    let paper = Paper {
        owners,
        limit,
        tight_from: u64::MAX,
        leaves: vec![
            ("micro-batch", OwnerGroup::Activations, 0.5),
            ("gradient-checkpointing", OwnerGroup::Activations, 0.2),
            ("activation-offload", OwnerGroup::Activations, 0.4),
            ("autocast", OwnerGroup::Activations, 0.7),
            ("pure-bf16", OwnerGroup::Activations, 0.5),
            ("pure-bf16", OwnerGroup::Parameters, 0.5),
            ("pure-bf16", OwnerGroup::Gradients, 0.5),
            ("pure-bf16", OwnerGroup::OptimizerState, 0.5),
            ("adam-8bit", OwnerGroup::OptimizerState, 0.26),
            ("lora", OwnerGroup::Gradients, 0.01),
            ("lora", OwnerGroup::OptimizerState, 0.01),
        ],
        refuses: Vec::new(),
        too_strong: u32::MAX,
        breaks: Vec::new(),
        tries: 40,
        jobs: 1,
        ran: Vec::new(),
    };
    (situation, paper)
}

const MOMENTS: [Operation; 4] =
    [Operation::Forward, Operation::Backward, Operation::OptimizerInit, Operation::OptimizerStep];

fn find(situation: &Situation, wishes: &Wishes, paper: &mut Paper) -> Found<'static> {
    let catalogue = Catalogue::builtin();
    let candidates = catalogue.candidates(situation, &MOMENTS, wishes, |remedy| remedy.dry_run.by_hook());
    let peak_bytes = paper.owners.values().sum();
    let forecast = Forecast::new(situation.clone(), peak_bytes, paper.limit);
    let Ok(found) = search(catalogue, &candidates, &forecast, 3, paper);
    found
}

fn names(found: &Found<'_>) -> Vec<String> {
    found.fixes.iter().map(|fix| fix.mix.key().join(" + ")).collect()
}

#[test]
fn three_fixes_come_cheapest_first_and_keep_the_result_first() {
    let (situation, mut paper) = training(22 * GIB, 12 * GIB);
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert_eq!(found.fixes.len(), 3, "{:?}", names(&found));
    assert!(names(&found).contains(&"micro-batch/4".to_owned()), "{:?}", names(&found));
    assert!(names(&found).contains(&"gradient-checkpointing".to_owned()), "{:?}", names(&found));
    for fix in &found.fixes {
        assert_eq!(fix.peak_bytes, paper.peak(&fix.mix));
        assert!(fix.peak_bytes <= paper.limit);
    }
}

#[test]
fn the_gentlest_amount_is_found_though_the_forecast_is_wrong() {
    // 30 of 33 GiB have to become at most 9: the forecast says 4, and the truth of this program needs 8.
    let (situation, mut paper) = training(30 * GIB, 12 * GIB);
    paper.owners.insert(OwnerGroup::Inputs, 4 * GIB);
    let wishes = Wishes { allow: ["micro-batch".to_owned()].into(), ..Wishes::default() };
    let found = find(&situation, &wishes, &mut paper);
    assert_eq!(names(&found), ["micro-batch/8"]);
    assert!(paper.ran.len() <= 4, "{:?}", paper.ran);
}

#[test]
fn an_amount_between_too_little_and_what_the_program_refuses_is_tried() {
    let (mut situation, mut paper) = training(30 * GIB, 12 * GIB);
    situation.settings.batch_size = Some(1024);
    (paper.limit, paper.too_strong) = (6 * GIB, 64);
    paper.owners.insert(OwnerGroup::Inputs, 2 * GIB);
    let wishes = Wishes { allow: ["micro-batch".to_owned()].into(), ..Wishes::default() };
    let found = find(&situation, &wishes, &mut paper);
    // 5 GiB stay; 30 / 16 do not fit into the sixth, and 64 cannot be had.
    assert_eq!(names(&found), ["micro-batch/32"], "{:?}", paper.ran);
    assert!(paper.ran.contains(&vec!["micro-batch/64".to_owned()]), "{:?}", paper.ran);
    assert!(!found.dropped.contains_key("micro-batch"));
}

#[test]
fn where_the_owners_are_not_known_the_first_amount_is_one_that_may_do() {
    let (mut situation, mut paper) = training(30 * GIB, 12 * GIB);
    situation.owners = None;
    let wishes = Wishes { allow: ["micro-batch".to_owned()].into(), ..Wishes::default() };
    let found = find(&situation, &wishes, &mut paper);
    assert_eq!(paper.ran.first().unwrap(), &["micro-batch/8".to_owned()], "{:?}", paper.ran);
    assert_eq!(names(&found), ["micro-batch/4"]);
}

#[test]
fn two_at_a_time_do_not_begin_with_the_strongest() {
    let (mut situation, mut paper) = training(30 * GIB, 12 * GIB);
    situation.owners = None;
    (paper.limit, paper.jobs) = (9 * GIB, 2);
    paper.owners.insert(OwnerGroup::Inputs, 4 * GIB);
    let wishes = Wishes { allow: ["micro-batch".to_owned()].into(), ..Wishes::default() };
    // The forecast says 8 of what needs 16, and there is time for one turn more.
    paper.tries = 4;
    let found = find(&situation, &wishes, &mut paper);
    assert!(!paper.ran.contains(&vec!["micro-batch/1024".to_owned()]), "{:?}", paper.ran);
    assert!(!found.fixes.is_empty(), "{:?}", paper.ran);
}

#[test]
fn less_of_the_same_that_fits_tightly_is_no_way_of_its_own() {
    let (situation, mut paper) = training(30 * GIB, 12 * GIB);
    paper.tight_from = 8 * GIB;
    let wishes = Wishes { allow: ["micro-batch".to_owned()].into(), ..Wishes::default() };
    let found = find(&situation, &wishes, &mut paper);
    let tight = found.tried.iter().filter(|(_, ran)| matches!(ran, Ran::Tight(_))).count();
    assert!(tight > 0, "{:?}", found.tried);
    assert_eq!(found.fixes.len(), 1, "{:?}", names(&found));
    assert!(!found.fixes[0].tight);
}

#[test]
fn what_one_remedy_cannot_do_several_can_and_none_of_them_is_idle() {
    // Nothing alone brings 3 GiB of fixed bytes and 40 GiB of activations under 4 GiB.
    let (situation, mut paper) = training(40 * GIB, 4 * GIB);
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert!(!found.fixes.is_empty(), "{:?}", found.tried);
    for fix in &found.fixes {
        assert!(fix.mix.doses.len() > 1, "{:?}", names(&found));
        for dose in &fix.mix.doses {
            assert!(paper.peak(&fix.mix.without(&dose.remedy.id)) > paper.limit, "{:?} is idle", dose.remedy.id);
        }
    }
}

#[test]
fn where_nothing_fits_without_the_strongest_remedy_others_are_put_next_to_it() {
    // Only checkpointing brings 60 GiB of activations under 14 GiB, and the rest has to come from something else.
    let (situation, mut paper) = training(60 * GIB, 14 * GIB);
    paper.leaves.retain(|(id, ..)| !["micro-batch", "activation-offload"].contains(id));
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert!(found.fixes.len() >= 2, "{:?}", names(&found));
    assert!(found.fixes.iter().all(|fix| fix.mix.holds("gradient-checkpointing")), "{:?}", names(&found));
}

#[test]
fn a_remedy_that_the_program_refuses_or_that_breaks_it_is_left_out() {
    let (situation, mut paper) = training(18 * GIB, 12 * GIB);
    paper.refuses = vec!["micro-batch"];
    paper.breaks = vec!["gradient-checkpointing"];
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert!(!found.fixes.is_empty());
    for id in ["micro-batch", "gradient-checkpointing"] {
        assert!(found.dropped.contains_key(id), "{:?}", found.dropped);
        assert!(found.fixes.iter().all(|fix| !fix.mix.holds(id)), "{:?}", names(&found));
    }
}

#[test]
fn what_breaks_a_mix_is_found_and_the_others_are_not_blamed() {
    // Nothing is enough alone, so that the broken one is met in a mix first, and not as its dearest part.
    let (situation, mut paper) = training(40 * GIB, 4 * GIB);
    paper.breaks = vec!["checkpointing-every-n-layers", "selective-checkpointing"];
    paper.tries = 60;
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert!(!found.fixes.is_empty(), "{:?}", found.tried);
    for id in found.dropped.keys() {
        assert!(paper.breaks.contains(&id.as_str()), "{id} was blamed");
    }
    let met = paper.ran.iter().position(|key| key.iter().any(|id| paper.breaks.contains(&id.as_str())));
    assert!(met.is_some_and(|met| paper.ran[met].len() > 1), "{:?}", paper.ran);
}

#[test]
fn wishes_are_kept() {
    let (situation, mut paper) = training(18 * GIB, 12 * GIB);
    let forbid = ["micro-batch".to_owned(), "gradient-checkpointing".to_owned()];
    let found = find(&situation, &Wishes { forbid: forbid.into(), ..Wishes::default() }, &mut paper);
    assert!(
        paper.ran.iter().flatten().all(|name| !name.starts_with("micro-batch") && name != "gradient-checkpointing")
    );
    assert!(!found.fixes.is_empty());
}

#[test]
fn where_nothing_fits_everything_was_tried_together() {
    let (situation, mut paper) = training(18 * GIB, GIB / 8);
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert!(found.fixes.is_empty());
    let strongest = found.strongest.expect("something can be applied");
    assert!(strongest.doses.len() > 2, "{:?}", strongest.key());
}

#[test]
fn the_search_ends_when_its_time_is_up() {
    let (situation, mut paper) = training(40 * GIB, 4 * GIB);
    paper.tries = 2;
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert!(found.out_of_time);
    assert!(paper.ran.len() <= 3, "{:?}", paper.ran);
    // What was left untried is named, and nothing else is.
    let tried = |id: &String| paper.ran.iter().flatten().any(|name| name.split('/').next() == Some(id.as_str()));
    assert!(!found.untried.is_empty() && !found.untried.iter().any(tried), "{:?} of {:?}", found.untried, paper.ran);
    let (situation, mut paper) = training(40 * GIB, 4 * GIB);
    assert_eq!(find(&situation, &Wishes::default(), &mut paper).untried, Vec::<String>::new());
}

#[test]
fn what_fitted_is_an_answer_wherever_the_time_ends() {
    for (activations, limit) in [(40, 4), (40, 6), (12, 5), (9, 6), (30, 12)] {
        for tries in 1..12 {
            for jobs in 1..=3 {
                let (situation, mut paper) = training(activations * GIB, limit * GIB);
                (paper.tries, paper.jobs) = (tries, jobs);
                let found = find(&situation, &Wishes::default(), &mut paper);
                let fitted = found.tried.iter().any(|(_, ran)| matches!(ran, Ran::Fits(_)));
                assert_eq!(fitted, !found.fixes.is_empty(), "{activations} {limit} {tries} {jobs}: {:?}", found.tried);
            }
        }
    }
    // The forecast expects half the batch to be enough, and is wrong. A much smaller batch was tried at the same time.
    let (situation, mut paper) = training(15 * GIB, 11 * GIB);
    paper.owners.insert(OwnerGroup::Activations, 12 * GIB);
    paper.owners.insert(OwnerGroup::Temporaries, 4 * GIB);
    (paper.tries, paper.jobs) = (1, 2);
    let only = Wishes { allow: ["micro-batch".to_owned()].into(), ..Wishes::default() };
    let found = find(&situation, &only, &mut paper);
    assert!(found.out_of_time);
    assert_eq!(paper.ran, [["micro-batch/2"], ["micro-batch/16"]]);
    assert_eq!(found.fixes.iter().map(|fix| fix.mix.key()).collect::<Vec<_>>(), [["micro-batch/16"]]);
}

#[test]
fn where_the_time_ends_the_mix_that_should_fit_is_named() {
    let (situation, mut paper) = training(40 * GIB, 6 * GIB);
    paper.tries = 0;
    let found = find(&situation, &Wishes::default(), &mut paper);
    assert!(found.out_of_time && found.fixes.is_empty());
    let (mix, peak_bytes) = found.foretold.expect("the forecast knows one");
    assert!(peak_bytes <= paper.limit, "{:?}", mix.key());
    assert!(found.tried.iter().all(|(tried, _)| tried.key() != mix.key()));
    // Where there was time for everything, there is nothing to foretell.
    let (situation, mut paper) = training(40 * GIB, 6 * GIB);
    assert_eq!(find(&situation, &Wishes::default(), &mut paper).foretold, None);
}

#[test]
fn a_forecast_learns_from_what_was_measured() {
    let (situation, _) = training(40 * GIB, 6 * GIB);
    let remedy = |id: &str| Dose::of(Catalogue::builtin().remedies().iter().find(|remedy| remedy.id == id).unwrap());
    let (first, second) = (remedy("gradient-checkpointing"), remedy("adam-8bit"));
    let peak = 43 * GIB;
    let mut forecast = Forecast::new(situation, peak, 6 * GIB);
    let both = Mix::single(first).with(second);
    let before = forecast.peak(&both);
    // It freed half of what was foretold, alone and together with others.
    let measured = peak - forecast.frees(first) / 2;
    forecast.learn(&Mix::single(first), Measured::Peak(measured));
    assert!(forecast.peak(&Mix::single(first)).abs_diff(measured) < GIB / 100);
    assert!(forecast.peak(&both) > before + 10 * GIB);
    // A death says nothing where one was foretold, and where none was it moves the forecast to what was taken.
    let known = forecast.peak(&both);
    forecast.learn(&both, Measured::MoreThan(6 * GIB));
    assert_eq!(forecast.peak(&both), known);
    forecast.learn(&both, Measured::MoreThan(known + 4 * GIB));
    assert!(forecast.peak(&both).abs_diff(known + 4 * GIB) < GIB, "{}", forecast.peak(&both));
}

#[test]
fn nothing_is_tried_twice() {
    let (situation, mut paper) = training(40 * GIB, 4 * GIB);
    find(&situation, &Wishes::default(), &mut paper);
    let mut unique = paper.ran.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), paper.ran.len());
}

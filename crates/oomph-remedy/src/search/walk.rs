//! Walks through the candidates: first single remedies, then mixes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::catalogue::Catalogue;

use super::candidates::Candidate;
use super::forecast::{Forecast, Measured};
use super::mix::{Dose, Mix};

/// How often a knob is turned before its best amount so far is taken.
const MOST_TURNS: usize = 4;

/// How many amounts stronger the one is that runs together with the first, where it is in doubt whether any is enough: of
/// powers of two, eight times.
const STRONGER: usize = 3;

/// Where mixes are tried.
pub trait Bench {
    /// What can go wrong with the bench itself.
    type Error;

    /// Tries these mixes on the card, as many at a time as [`Self::jobs`] says; one answer for each.
    ///
    /// # Errors
    /// When the bench itself fails.
    fn run(&mut self, mixes: &[Mix<'_>]) -> Result<Vec<Ran>, Self::Error>;

    /// How many mixes can be tried at a time.
    fn jobs(&self) -> usize {
        1
    }

    /// Whether there is time for another try.
    fn has_time(&self) -> bool {
        true
    }
}

/// What became of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It fits, with this peak in bytes.
    Fits(u64),
    /// It fits, with this peak in bytes, but not with the upper end of what the peak may be on a real card.
    Tight(u64),
    /// It still runs out of memory.
    TooMuch,
    /// Some remedies were not applied: their ids and the reasons; and what became of the try, which was one of the others
    /// without them, where it was run at all.
    NotApplied(Vec<(String, String)>, Option<Box<Ran>>),
    /// The program failed otherwise, in these words.
    Failed(String),
}

impl Ran {
    /// The peak in bytes of what fits tightly.
    fn tight(&self) -> Option<u64> {
        match self {
            Self::Tight(peak_bytes) => Some(*peak_bytes),
            _ => None,
        }
    }
}

/// A mix that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix<'a> {
    /// The mix.
    pub mix: Mix<'a>,
    /// The peak with it, in bytes.
    pub peak_bytes: u64,
    /// Whether it fits only with the middle of what the peak may be on a real card.
    pub tight: bool,
}

/// What the search found.
#[derive(Clone, Debug, Default)]
pub struct Found<'a> {
    /// What fits, cheapest first.
    pub fixes: Vec<Fix<'a>>,
    /// Every mix that was tried, in order.
    pub tried: Vec<(Mix<'a>, Ran)>,
    /// Remedies that could not be applied, with the reasons.
    pub dropped: BTreeMap<String, String>,
    /// The strongest mix that was put together, where nothing fits.
    pub strongest: Option<Mix<'a>>,
    /// Whether there was no time, or no run, left before everything was tried.
    pub out_of_time: bool,
    /// The remedies that were not tried then, by id, in the order in which they would have been.
    pub untried: Vec<String>,
    /// Where the time was up before anything fitted: the cheapest mix that was not tried and that should fit by the
    /// forecast, with the peak that is foretold, in bytes.
    pub foretold: Option<(Mix<'a>, u64)>,
}

/// Searches until `wanted` different fixes are found, there is nothing left to try, or the time is up.
///
/// # Errors
/// When the bench fails.
pub fn search<'a, B: Bench>(
    catalogue: &Catalogue,
    candidates: &[Candidate<'a>],
    forecast: &Forecast,
    wanted: usize,
    bench: &mut B,
) -> Result<Found<'a>, B::Error> {
    let mut walk = Walk {
        catalogue,
        candidates,
        forecast: forecast.clone(),
        unlearned: forecast,
        wanted,
        bench,
        gentler: BTreeMap::new(),
        found: Found::default(),
    };
    walk.singles()?;
    walk.mixes()?;
    if walk.found.out_of_time {
        walk.found.untried = walk.untried();
    }
    if walk.found.out_of_time && walk.found.fixes.is_empty() {
        walk.found.foretold = walk.foretold();
    }
    let mut found = walk.found;
    // Cheapest first. A mix costs what its dearest remedy costs, and a little for each one more.
    let tier = |dose: &Dose<'_>| {
        candidates.iter().find(|known| known.remedy.id == dose.remedy.id).map_or(u8::MAX, |known| known.tier)
    };
    let cost = |mix: &Mix<'_>| (mix.doses.iter().map(tier).max().unwrap_or(0), mix.doses.len());
    found.fixes.sort_by_key(|fix| cost(&fix.mix));
    let room = wanted.saturating_sub(found.fixes.len());
    let mut tight: Vec<(&Mix<'a>, u64)> =
        found.tried.iter().filter_map(|(mix, ran)| Some((mix, ran.tight()?))).collect();
    tight.sort_by_key(|(mix, _)| cost(mix));
    let mut tight_fixes: Vec<Fix<'a>> = Vec::new();
    for (mix, peak_bytes) in tight {
        // The same remedies in another amount are not another way.
        if !found.fixes.iter().chain(&tight_fixes).any(|fix| fix.mix.is_alike(mix)) {
            tight_fixes.push(Fix { mix: mix.clone(), peak_bytes, tight: true });
        }
    }
    found.fixes.extend(tight_fixes.into_iter().take(room));
    Ok(found)
}

struct Walk<'s, 'a, B> {
    catalogue: &'s Catalogue,
    candidates: &'s [Candidate<'a>],
    /// What is foretold, with what was learned from the tries so far.
    forecast: Forecast,
    /// What the catalogue says alone. A mix that fits is reduced by it: what was learned of its remedies together would
    /// make each of them look as if it were needed.
    unlearned: &'s Forecast,
    wanted: usize,
    bench: &'s mut B,
    /// The amounts of remedies that are enough by themselves, by id: mixes take gentler ones.
    gentler: BTreeMap<String, u32>,
    found: Found<'a>,
}

impl<'a, B: Bench> Walk<'_, 'a, B> {
    /// Tries alone every remedy that may be enough.
    fn singles(&mut self) -> Result<(), B::Error> {
        let forecast = &self.forecast;
        let mut order: Vec<&Candidate<'a>> = self
            .candidates
            .iter()
            .filter(|known| {
                let dose = known.strongest();
                known.asked
                    || forecast.may_free(dose)
                        && (forecast.may_fit(&Mix::single(dose)) || known.aimed && forecast.may_suffice(dose))
            })
            .collect();
        // Of equally dear ones the likeliest first.
        order.sort_by_key(|known| (known.tier, std::cmp::Reverse(forecast.frees(known.strongest()))));
        let jobs = self.bench.jobs().max(1);
        let mut rest = order.as_slice();
        while let Some((next, others)) = rest.split_first() {
            if self.is_done() {
                return Ok(());
            }
            if !next.amounts.is_empty() {
                if let Some(fix) = self.turn(&Mix::default(), next)? {
                    self.keep(fix);
                }
                rest = others;
                continue;
            }
            let together = rest.iter().take(jobs).take_while(|known| known.amounts.is_empty()).count();
            let (now, later) = rest.split_at(together);
            let mixes: Vec<Mix<'a>> = now.iter().map(|known| Mix::single(known.strongest())).collect();
            let ran = self.run(&mixes)?;
            for (mix, ran) in mixes.into_iter().zip(ran) {
                if let Ran::Fits(peak_bytes) = ran {
                    self.keep(Fix { mix, peak_bytes, tight: false });
                }
            }
            rest = later;
        }
        Ok(())
    }

    /// Puts mixes together, without what is enough on its own; and for each that fits others, without one of its
    /// remedies in turn, the most effective first.
    fn mixes(&mut self) -> Result<(), B::Error> {
        let enough: Vec<Dose<'a>> = self.found.fixes.iter().flat_map(|fix| fix.mix.doses.clone()).collect();
        // What is enough in some amount may still help others in a gentler one.
        self.gentler =
            enough.iter().filter_map(|dose| Some((dose.remedy.id.clone(), dose.amount?))).collect::<BTreeMap<_, _>>();
        let whole = enough.iter().filter(|dose| dose.amount.is_none()).map(|dose| dose.remedy.id.clone());
        let mut waiting: VecDeque<BTreeSet<String>> = [whole.collect::<BTreeSet<_>>()].into();
        let mut asked = BTreeSet::new();
        while let Some(left_out) = waiting.pop_front() {
            if self.is_done() {
                return Ok(());
            }
            if !asked.insert(left_out.clone()) {
                continue;
            }
            let Some(fix) = self.assemble(&left_out)? else { continue };
            let mut doses = fix.mix.doses.clone();
            doses.sort_by_key(|dose| std::cmp::Reverse(self.forecast.frees(*dose)));
            waiting.extend(doses.iter().map(|dose| {
                let mut without = left_out.clone();
                without.insert(dose.remedy.id.clone());
                without
            }));
            self.keep(fix);
        }
        Ok(())
    }

    /// Adds tier after tier until the program fits, and takes out again what it fits without.
    fn assemble(&mut self, left_out: &BTreeSet<String>) -> Result<Option<Fix<'a>>, B::Error> {
        let mut mix = Mix::default();
        let mut tiers: Vec<u8> = self.candidates.iter().map(|known| known.tier).collect();
        tiers.dedup();
        let mut untried = false;
        for (place, &tier) in tiers.iter().enumerate() {
            let before = mix.clone();
            for known in self.of_tier(tier, left_out) {
                mix = self.joined(&mix, known.strongest());
            }
            untried |= mix != before;
            let last = place + 1 == tiers.len();
            if !untried || (!last && !self.forecast.may_fit(&mix)) {
                continue;
            }
            untried = false;
            match self.settle(&before, &mut mix)? {
                Some(Ran::Fits(peak_bytes)) => {
                    let fix = self.reduce(Fix { mix, peak_bytes, tight: false })?;
                    return Ok(Some(fix));
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
        if !mix.doses.is_empty() && self.found.strongest.is_none() {
            self.found.strongest = Some(mix);
        }
        Ok(None)
    }

    /// A mix with one dose more, in place of those that it excludes. As the mix where the dose frees nothing, or less
    /// than what it would replace.
    fn joined(&self, mix: &Mix<'a>, dose: Dose<'a>) -> Mix<'a> {
        let excludes = |held: &&Dose<'a>| self.catalogue.conflict(&held.remedy.id, &dose.remedy.id);
        let rivals: Vec<Dose<'a>> = mix.doses.iter().filter(excludes).copied().collect();
        let others = rivals.iter().fold(mix.clone(), |mix, rival| mix.without(&rival.remedy.id));
        let better = rivals.is_empty() || self.forecast.peak(&others.with(dose)) < self.forecast.peak(mix);
        if better && self.forecast.may_free(dose) { others.with(dose) } else { mix.clone() }
    }

    /// Tries a mix, and takes out what cannot be applied until the rest runs. `None` when the time is up.
    fn settle(&mut self, before: &Mix<'a>, mix: &mut Mix<'a>) -> Result<Option<Ran>, B::Error> {
        loop {
            if !self.bench.has_time() {
                self.found.out_of_time = true;
                return Ok(None);
            }
            if mix.doses.is_empty() {
                return Ok(Some(Ran::TooMuch));
            }
            let ran = self.run_one(mix)?;
            match &ran {
                Ran::NotApplied(ids, _) if ids.iter().any(|(id, _)| mix.holds(id)) => {
                    *mix = ids.iter().fold(mix.clone(), |mix, (id, _)| mix.without(id));
                }
                Ran::Failed(_) => match self.breaking(mix)? {
                    broken if !broken.is_empty() => {
                        *mix = broken.iter().fold(mix.clone(), |mix, id| mix.without(id));
                    }
                    // They break it only together; the last one is the likeliest, because it is the dearest.
                    _ => match mix.doses.last().copied().filter(|dose| !before.holds(&dose.remedy.id)) {
                        Some(dose) => *mix = mix.without(&dose.remedy.id),
                        None => return Ok(Some(ran)),
                    },
                },
                _ => return Ok(Some(ran)),
            }
        }
    }

    /// Which doses of a mix that failed break the program by themselves. Those with which it ran before, in whatever
    /// company, do not.
    fn breaking(&mut self, mix: &Mix<'a>) -> Result<Vec<String>, B::Error> {
        let ran = |ran: &Ran| !matches!(ran, Ran::Failed(_) | Ran::NotApplied(..));
        let works = |dose: &&Dose<'a>| self.found.tried.iter().any(|(mix, how)| mix.holds(&dose.remedy.id) && ran(how));
        let alone: Vec<Mix<'a>> = mix.doses.iter().filter(|dose| !works(dose)).map(|dose| Mix::single(*dose)).collect();
        if mix.doses.len() < 2 || alone.is_empty() {
            return Ok(Vec::new());
        }
        let how = self.run(&alone)?;
        let broken = alone.iter().zip(how).filter(|(_, how)| !ran(how));
        Ok(broken.flat_map(|(alone, _)| alone.doses.iter().map(|dose| dose.remedy.id.clone())).collect())
    }

    /// Takes out of a mix that fits what it fits without, the dearest first, and turns knobs back as far as they go.
    fn reduce(&mut self, mut fix: Fix<'a>) -> Result<Fix<'a>, B::Error> {
        let doses = self.dearest_first(&fix.mix);
        // What it should fit without goes at once, and where that is not true, what hardly matters.
        let few = doses.iter().filter(|dose| !self.unlearned.weighs(**dose));
        let without_few = few.fold(fix.mix.clone(), |mix, dose| mix.without(&dose.remedy.id));
        for less in [self.lean(&fix.mix, fix.peak_bytes), without_few] {
            if less.doses.len() + 1 < fix.mix.doses.len()
                && !less.doses.is_empty()
                && let Ran::Fits(peak_bytes) = self.run_one(&less)?
            {
                fix = Fix { mix: less, peak_bytes, tight: false };
                break;
            }
        }
        let jobs = self.bench.jobs().max(1);
        let mut rest: Vec<Dose<'a>> = doses.clone();
        while !rest.is_empty() && self.bench.has_time() {
            let without = |dose: &Dose<'a>| fix.mix.without(&dose.remedy.id);
            rest.retain(|dose| {
                let less = without(dose);
                less != fix.mix
                    && !less.doses.is_empty()
                    && self.unlearned.may_fit_instead(&fix.mix, fix.peak_bytes, &less)
            });
            let now: Vec<Dose<'a>> = rest.iter().take(jobs).copied().collect();
            let mixes: Vec<Mix<'a>> = now.iter().map(without).collect();
            let ran = self.run(&mixes)?;
            // The first that can go goes; of the others it is asked again, without it.
            let gone = mixes.into_iter().zip(ran).enumerate().find_map(|(place, (mix, ran))| match ran {
                Ran::Fits(peak_bytes) => Some((place, Fix { mix, peak_bytes, tight: false })),
                _ => None,
            });
            let settled = match gone {
                Some((place, less)) => {
                    fix = less;
                    place + 1
                }
                None => now.len(),
            };
            rest.drain(..settled);
        }
        for dose in doses.iter().filter(|dose| dose.amount.is_some()) {
            let Some(known) = self.candidates.iter().find(|known| known.remedy.id == dose.remedy.id) else { continue };
            let mut gentler = known.clone();
            gentler.amounts.retain(|amount| Some(*amount) < dose.amount);
            if !fix.mix.holds(&dose.remedy.id) || gentler.amounts.is_empty() {
                continue;
            }
            let others = fix.mix.without(&dose.remedy.id);
            if let Some(better) = self.turn(&others, &gentler)? {
                fix = better;
            }
        }
        Ok(fix)
    }

    /// The doses of a mix, the dearest first; of equally dear ones that which frees least.
    fn dearest_first(&self, mix: &Mix<'a>) -> Vec<Dose<'a>> {
        let mut doses = mix.doses.clone();
        doses.sort_by_key(|dose| (std::cmp::Reverse(self.tier(*dose)), self.forecast.frees(*dose)));
        doses
    }

    /// A mix without what it should fit without, where its peak is known, in bytes.
    fn lean(&self, mix: &Mix<'a>, peak_bytes: u64) -> Mix<'a> {
        self.dearest_first(mix).iter().fold(mix.clone(), |lean, dose| {
            let less = lean.without(&dose.remedy.id);
            let more = self.forecast.peak(&less).saturating_sub(self.forecast.peak(mix));
            if peak_bytes.saturating_add(more) <= self.forecast.limit_bytes { less } else { lean }
        })
    }

    /// The remedies that may free something and that no try had.
    fn untried(&self) -> Vec<String> {
        let may_help = |known: &&Candidate<'a>| known.asked || self.unlearned.may_free(known.strongest());
        let ids = self.candidates.iter().filter(may_help).map(|known| &known.remedy.id);
        let tried = |id: &String| self.found.tried.iter().any(|(mix, _)| mix.holds(id));
        ids.filter(|id| !tried(id) && !self.found.dropped.contains_key(*id)).cloned().collect()
    }

    /// The cheapest mix that was not tried and that should fit, with the peak that is foretold, in bytes.
    fn foretold(&self) -> Option<(Mix<'a>, u64)> {
        let mut mix = Mix::default();
        for known in self.candidates.iter().filter(|known| !self.found.dropped.contains_key(&known.remedy.id)) {
            mix = self.joined(&mix, known.strongest());
            let peak = self.forecast.peak(&mix);
            if peak > self.forecast.limit_bytes {
                continue;
            }
            let lean = self.lean(&mix, peak);
            if !self.found.tried.iter().any(|(tried, _)| tried.key() == lean.key()) {
                let peak = self.forecast.peak(&lean);
                return Some((lean, peak));
            }
        }
        None
    }

    /// Finds the gentlest amount of a remedy with which the program fits, in addition to what is applied already.
    ///
    /// The amounts are ordered by what they free, so the walk is a bisection that starts where the forecast points.
    fn turn(&mut self, others: &Mix<'a>, known: &Candidate<'a>) -> Result<Option<Fix<'a>>, B::Error> {
        let dose = |place: usize| Dose { remedy: known.remedy, amount: known.amounts.get(place).copied() };
        let count = known.amounts.len();
        let fits: Vec<bool> = (0..count).map(|place| self.forecast.foretells(others, dose(place))).collect();
        let mut place = fits.iter().position(|fits| *fits).unwrap_or(count - 1);
        // Below `low` nothing fits, from `high` on everything does, as far as it was tried.
        let (mut low, mut high) = (0, count);
        let mut best = None;
        let mut turn = 0;
        while turn < MOST_TURNS {
            if !self.bench.has_time() {
                self.found.out_of_time = true;
                break;
            }
            let mix = others.with(dose(place));
            // What is likely to be asked for next runs at the same time, where that costs no time: the next gentler
            // one; or, where it is in doubt whether any amount is enough, a stronger one, and then the strongest of all.
            let likely = place > low && (best.is_some() || low == 0 && fits[place]);
            let in_doubt = !likely && high == count && place + 1 < count;
            let next_place = match turn {
                _ if likely => place - 1,
                0 => (place + STRONGER).min(count - 1),
                _ => count - 1,
            };
            let two = (likely || in_doubt) && self.bench.jobs() > 1;
            let mixes: Vec<Mix<'a>> =
                std::iter::once(mix.clone()).chain(two.then(|| others.with(dose(next_place)))).collect();
            let mut ran = self.run(&mixes)?.into_iter();
            let first = ran.next().unwrap_or(Ran::Failed("it was not tried".into()));
            let second = ran.next();
            if likely && matches!((&first, &second), (Ran::Fits(_), Some(Ran::TooMuch | Ran::Tight(_)))) {
                low = place;
            }
            if in_doubt && let Some(Ran::Fits(peak_bytes)) = second {
                best = Some(Fix { mix: others.with(dose(next_place)), peak_bytes, tight: false });
                high = next_place;
            }
            match first {
                Ran::Fits(peak_bytes) => {
                    best = Some(Fix { mix, peak_bytes, tight: false });
                    high = place;
                    place = low + (high - low) / 2;
                }
                // Not even the strongest is enough.
                _ if in_doubt && second == Some(Ran::TooMuch) && next_place + 1 == count => break,
                Ran::TooMuch | Ran::Tight(_) => {
                    let both = in_doubt && second == Some(Ran::TooMuch);
                    low = if both { next_place + 1 } else { place + 1 };
                    // Far from the truth the steps grow.
                    place = if high < count { low + (high - low) / 2 } else { (place * 2).max(low).min(count - 1) };
                }
                // What is too much of it may leave an amount between.
                Ran::NotApplied(..) | Ran::Failed(_) if low > 0 && best.is_none() => {
                    high = place;
                    place = low + (high - low) / 2;
                }
                Ran::NotApplied(..) | Ran::Failed(_) => break,
            }
            if place < low || place >= high {
                break;
            }
            // What has no place in the program took no run.
            turn += usize::from(!matches!(first, Ran::NotApplied(_, None)));
        }
        Ok(best)
    }

    /// The candidates of a tier that can be used, what frees most first.
    fn of_tier(&self, tier: u8, left_out: &BTreeSet<String>) -> Vec<Candidate<'a>> {
        let usable = |known: &&Candidate<'a>| {
            known.tier == tier
                && !left_out.contains(&known.remedy.id)
                && !self.found.dropped.contains_key(&known.remedy.id)
        };
        let gentler = |known: &Candidate<'a>| {
            let mut known = known.clone();
            if let Some(&enough) = self.gentler.get(&known.remedy.id) {
                known.amounts.retain(|&amount| amount < enough);
                if known.amounts.is_empty() {
                    return None;
                }
            }
            Some(known)
        };
        let mut members: Vec<Candidate<'a>> = self.candidates.iter().filter(usable).filter_map(gentler).collect();
        members.sort_by_key(|known| std::cmp::Reverse(self.forecast.frees(known.strongest())));
        members
    }

    fn tier(&self, dose: Dose<'a>) -> u8 {
        self.candidates.iter().find(|known| known.remedy.id == dose.remedy.id).map_or(u8::MAX, |known| known.tier)
    }

    fn is_done(&mut self) -> bool {
        if !self.bench.has_time() {
            self.found.out_of_time = true;
        }
        self.found.out_of_time || self.found.fixes.len() >= self.wanted
    }

    /// Keeps a fix unless there is one of the same remedies already.
    fn keep(&mut self, fix: Fix<'a>) {
        if !self.found.fixes.iter().any(|known| known.mix.is_alike(&fix.mix)) {
            self.found.fixes.push(fix);
        }
    }

    fn run_one(&mut self, mix: &Mix<'a>) -> Result<Ran, B::Error> {
        let ran = self.run(std::slice::from_ref(mix))?;
        Ok(ran.into_iter().next().unwrap_or(Ran::Failed("it was not tried".into())))
    }

    /// Whether another amount of a remedy was tried and changed the program.
    fn was_applied(&self, id: &str) -> bool {
        let ran = |ran: &Ran| !matches!(ran, Ran::Failed(_) | Ran::NotApplied(..));
        self.found.tried.iter().any(|(mix, of)| mix.holds(id) && ran(of))
    }

    /// Tries what was not tried before, and remembers everything.
    fn run(&mut self, mixes: &[Mix<'a>]) -> Result<Vec<Ran>, B::Error> {
        let limit = self.forecast.limit_bytes;
        let known = |found: &Found<'a>, mix: &Mix<'a>| {
            found.tried.iter().find(|(tried, _)| tried.key() == mix.key()).map(|(_, ran)| ran.clone())
        };
        let new: Vec<Mix<'a>> = mixes.iter().filter(|mix| known(&self.found, mix).is_none()).cloned().collect();
        if !new.is_empty() {
            let ran = self.bench.run(&new)?;
            for (mix, ran) in new.into_iter().zip(ran) {
                match &ran {
                    Ran::NotApplied(ids, others) => {
                        let never: Vec<_> = ids.iter().filter(|(id, _)| !self.was_applied(id)).cloned().collect();
                        self.found.dropped.extend(never);
                        let rest = ids.iter().fold(mix.clone(), |mix, (id, _)| mix.without(id));
                        if let Some(ran) = others
                            && !rest.doses.is_empty()
                            && known(&self.found, &rest).is_none()
                        {
                            self.found.tried.push((rest, (**ran).clone()));
                        }
                    }
                    Ran::Failed(why) if mix.doses.len() == 1 && !self.was_applied(&mix.doses[0].remedy.id) => {
                        self.found.dropped.insert(mix.doses[0].remedy.id.clone(), why.clone());
                    }
                    Ran::Fits(peak) | Ran::Tight(peak) => self.forecast.learn(&mix, Measured::Peak(*peak)),
                    Ran::TooMuch => self.forecast.learn(&mix, Measured::MoreThan(limit)),
                    Ran::Failed(_) => {}
                }
                self.found.tried.push((mix, ran));
            }
        }
        let missing = || Ran::Failed("it was not tried".into());
        Ok(mixes.iter().map(|mix| known(&self.found, mix).unwrap_or_else(missing)).collect())
    }
}

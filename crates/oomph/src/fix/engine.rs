//! Decides what can help an engine of vLLM's, which fills its share of the card whatever its weights take.

use oomph_launch::HookOom;
use oomph_remedy::search::{Candidate, Dose, Found, Mix, Ran};
use oomph_remedy::{Framework, OwnerGroup, Remedy, Situation, Task, share_is_refused};

use super::situation::Known;
use crate::observation::Observation;

/// Takes a smaller share of the card.
pub const SHARE: &str = "lower-utilization";

/// Works on fewer tokens of a long prompt at a time.
const PIECES: &str = "chunked-processing";

/// Reserves its cache for shorter requests.
const SHORTER: &str = "shorter-context";

/// What makes its cache hold more.
const MORE_CACHE: &[&str] = &["kv-cache-dtype", "fp8-weights"];

/// What an engine has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// When it starts less of the card is free than its share.
    Share,
    /// Its share has no room for its cache.
    Cache,
    /// It had its cache, and has no room outside of its share for what it computes.
    Beyond,
}

/// What the engine lacks that a program died in, whose `first` run is that on the cards; `None` where there is none, where
/// it died of its weights, and where it is a program that trains as well and died of memory of its own.
pub fn lack(first: &Observation, known: &Known<'_>, situation: &Situation) -> Option<Lack> {
    if known.oom.is_some_and(lacks_cache) {
        return Some(Lack::Cache);
    }
    let serves = situation.frameworks.first().is_some_and(|installed| installed.framework == Framework::Vllm);
    if !serves || situation.task == Some(Task::Training) {
        return None;
    }
    if share_is_refused(situation) {
        return Some(Lack::Share);
    }
    // It divides up its cache when its weights are there.
    first.hooks.reports.iter().any(|hook| hook.engine.is_some()).then_some(Lack::Beyond)
}

/// Whether it found too little of its share left for its cache.
fn lacks_cache(oom: &HookOom) -> bool {
    oom.library_site.as_ref().is_some_and(|site| site.file.ends_with("vllm/v1/core/kv_cache_utils.py"))
}

impl Lack {
    /// Whether a remedy can help: what the engine's weights and its cache do not take goes to its cache.
    pub fn is_helped_by(self, remedy: &Remedy) -> bool {
        let of_the_engine = remedy.written.iter().any(|written| written.framework == Framework::Vllm);
        let is_share = remedy.id == SHARE;
        match self {
            Self::Share => is_share || !of_the_engine,
            Self::Cache => !is_share,
            Self::Beyond => {
                let fills = |owner| matches!(owner, OwnerGroup::Parameters | OwnerGroup::KvCache);
                is_share || !of_the_engine || !remedy.effects.iter().all(|effect| fills(effect.owner))
            }
        }
    }

    /// Two remedies together, for who has one answer: the cache that a smaller share leaves holds more, the context is not
    /// cut as much, or there is room outside of the share for larger pieces. `candidates` are all, also those that cannot
    /// help alone.
    pub fn together<'a>(self, candidates: &[Candidate<'a>], found: &Found<'a>) -> Vec<Mix<'a>> {
        let known = |id: &str| candidates.iter().find(|candidate| candidate.remedy.id == id);
        let dose = |candidate: &Candidate<'a>, amount| Dose { amount, ..Dose::of(candidate.remedy) };
        match self {
            Self::Share | Self::Cache => {
                let answer = if self == Self::Share { SHARE } else { SHORTER };
                let fixes = found.fixes.iter().filter(|fix| !fix.tight).map(|fix| &fix.mix);
                let Some(answer) = fixes.flat_map(|mix| &mix.doses).find(|dose| dose.remedy.id == answer) else {
                    return Vec::new();
                };
                // How short the context has to be depends on what is in 8 bits by then.
                let ended = |id: &str| {
                    let alone = |mix: &Mix<'_>| mix.doses.len() == 1 && mix.holds(id);
                    found.tried.iter().any(|(mix, ran)| alone(mix) && matches!(ran, Ran::Failed(_)))
                };
                let more = MORE_CACHE.iter().filter(|id| !ended(id)).filter_map(|id| known(id));
                more.map(|candidate| Mix::single(dose(candidate, None)).with(*answer)).collect()
            }
            Self::Beyond => {
                let (Some(pieces), Some(share)) = (known(PIECES), known(SHARE)) else { return Vec::new() };
                let pieces = dose(pieces, pieces.amounts.first().copied());
                // The least of a smaller share was not enough with the pieces that the engine has.
                let shares = share.amounts.iter().skip(1).map(|amount| dose(share, Some(*amount)));
                shares.map(|share| Mix::single(pieces).with(share)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oomph_remedy::Catalogue;
    use oomph_remedy::search::Fix;

    use super::*;

    fn candidate(id: &str, amounts: &[u32]) -> Candidate<'static> {
        let remedy = Catalogue::builtin().get(id).unwrap();
        Candidate { remedy, amounts: amounts.to_vec(), tier: 0, asked: false, aimed: false }
    }

    #[test]
    fn an_engine_lacks_cache_where_it_compares_what_is_left() {
        let at = |file: &str| {
            let site = oomph_launch::HookSite { file: file.into(), line: 1, ..Default::default() };
            lacks_cache(&HookOom { library_site: Some(site), ..HookOom::default() })
        };
        assert!(at("/v/lib/python3.12/site-packages/vllm/v1/core/kv_cache_utils.py"));
        assert!(!at("/v/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py"));
        assert!(!lacks_cache(&HookOom::default()));
    }

    #[test]
    fn what_an_engine_fills_with_its_cache_does_not_help() {
        let helped = |lack: Lack| {
            let ids = ["lower-utilization", "kv-cache-dtype", "fp8-weights", "chunked-processing", "fewer-sequences"];
            let helps = |id: &&str| lack.is_helped_by(Catalogue::builtin().get(id).unwrap());
            ids.into_iter().filter(helps).collect::<Vec<_>>()
        };
        assert_eq!(helped(Lack::Share), ["lower-utilization"]);
        assert_eq!(helped(Lack::Cache), ["kv-cache-dtype", "fp8-weights", "chunked-processing", "fewer-sequences"]);
        assert_eq!(helped(Lack::Beyond), ["lower-utilization", "chunked-processing", "fewer-sequences"]);
    }

    #[test]
    fn a_second_answer_goes_with_a_smaller_share() {
        let candidates = [
            candidate("lower-utilization", &[5, 15, 30]),
            candidate("fp8-weights", &[]),
            candidate("chunked-processing", &[1, 4]),
        ];
        let keys = |mixes: Vec<Mix<'_>>| mixes.iter().map(Mix::key).collect::<Vec<_>>();
        let share = Dose { amount: Some(5), ..Dose::of(candidates[0].remedy) };
        let fixes = vec![Fix { mix: Mix::single(share), peak_bytes: 1, tight: false }];
        let found = Found { fixes, ..Found::default() };
        assert_eq!(keys(Lack::Share.together(&candidates, &found)), [["fp8-weights", "lower-utilization/5"]]);
        assert!(Lack::Share.together(&candidates, &Found::default()).is_empty(), "the share itself was not enough");
        let tried = vec![(Mix::single(Dose::of(candidates[1].remedy)), Ran::Failed("no kernel for it".into()))];
        assert!(Lack::Share.together(&candidates, &Found { tried, ..found.clone() }).is_empty());
        let pieces = keys(Lack::Beyond.together(&candidates, &found));
        assert_eq!(
            pieces,
            [["chunked-processing/1", "lower-utilization/15"], ["chunked-processing/1", "lower-utilization/30"]]
        );
    }
}

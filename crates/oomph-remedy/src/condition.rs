//! Decides when a remedy or a piece of advice applies: a closed set of predicates over a [`Situation`].

use serde::Deserialize;

use crate::framework::{Framework, Reach};
use crate::situation::{Cause, Operation, OwnerGroup, Platform, Situation, Task};

/// A statement about a situation that is true, false or not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fact {
    /// Reserved minus allocated is at least the request: only then can better packing help.
    SlackCoversRequest,
    /// Reserved minus allocated is below the request: no setting of the allocator can help.
    SlackBelowRequest,
    /// The request is larger than the card.
    RequestAboveCapacity,
    /// The micro-batch has more than one sample.
    BatchAboveOne,
    /// The micro-batch is one sample, the smallest there is.
    BatchIsOne,
    /// Gradients are accumulated over several micro-batches.
    Accumulates,
    /// Samples are joined up to the maximal length.
    Packs,
    /// The model is a mixture of experts.
    IsMixture,
    /// More than one image is made at a time.
    ImagesAboveOne,
    /// One image is made at a time.
    ImagesIsOne,
    /// The machine has more than one GPU.
    SeveralGpus,
    /// The weights as they are loaded do not fit the card.
    WeightsExceedCard,
    /// Weights, gradients and optimizer state alone do not fit the card, whatever the batch.
    StaticExceedsCard,
    /// All weights are trained.
    TrainsAllWeights,
    /// The share of the card that a server may use is 0.95 or more.
    UtilizationHigh,
    /// The share of the card that a server may use is below 0.95.
    UtilizationNotHigh,
    /// The share that a server may use is more than what is free.
    BudgetAboveFree,
    /// The share that a server may use is free.
    BudgetIsFree,
    /// Live tensors are larger than the card: the driver spills to host memory.
    AllocatedAboveCapacity,
    /// A limit below the card's capacity is set.
    LimitBelowCapacity,
    /// Other processes hold at least half a GiB.
    OthersHoldMemory,
    /// Other processes hold nothing worth naming.
    NobodyElse,
    /// No other process holds more than a context and some tensors, as a worker of this program would.
    OthersAreSmall,
    /// The logits over the vocabulary weigh: they failed, or the vocabulary has at least 100,000 entries.
    LogitsWeigh,
    /// None of the frameworks is known, only where it runs.
    FrameworkUnknown,
    /// It runs in a notebook.
    Notebook,
    /// Weights are kept in 32 bits.
    #[serde(rename = "weights-are-32-bit")]
    WeightsAre32Bit,
    /// Weights are already quantised to 8 bits or fewer.
    WeightsAreQuantised,
    /// Weights take more than one byte each.
    #[serde(rename = "weights-above-8-bit")]
    WeightsAbove8Bit,
    /// The program collects tensors without a graph on the card, step by step, while it trains.
    CollectsOnCard,
    /// A trained model normalises by the statistics of a batch.
    NormalisesBatches,
    /// A trainer, where there is one, can accumulate gradients: the program does not step its optimizers itself.
    TrainerAccumulates,
    /// The model is not made of convolutions: it may have attention, a vocabulary, or most of its weights in linear layers.
    NotConvolutional,
    /// A model that no optimizer changes, such as a teacher, is called with gradients on.
    CallsAnUntrainedModel,
    /// The program has an option of its own for the side of the tiles in which it works on an image.
    TakesTiles,
    /// The loss is a mean over samples, each of which has its own; a contrastive loss compares them.
    SamplesAreIndependent,
    /// The loss compares the samples of a batch with each other.
    SamplesAreCompared,
}

/// Half a GiB: below this, another process on the card is a desktop, not a culprit.
const NOTICEABLE: u64 = 512 << 20;
/// A context of up to 1 GiB and as much in tensors of a few batches: what a worker holds that touched the card.
const LARGEST_WORKER: u64 = 2 << 30;
/// The number of entries from which the logits of a language model usually own the peak: Llama 3, Gemma and Qwen are above it.
const LARGE_VOCABULARY: u64 = 100_000;

impl Fact {
    /// Whether it holds; `None` where the situation does not say.
    pub fn holds(self, situation: &Situation) -> Option<bool> {
        let memory = &situation.memory;
        let settings = &situation.settings;
        Some(match self {
            Fact::SlackCoversRequest => memory.slack()? >= memory.requested?,
            Fact::SlackBelowRequest => memory.slack()? < memory.requested?,
            Fact::RequestAboveCapacity => memory.requested? > memory.capacity?,
            Fact::BatchAboveOne => settings.batch_size? > 1,
            Fact::BatchIsOne => settings.batch_size? <= 1,
            Fact::Accumulates => settings.gradient_accumulation? > 1,
            Fact::Packs => settings.packing?,
            Fact::IsMixture => settings.is_mixture?,
            Fact::ImagesAboveOne => settings.images? > 1,
            Fact::ImagesIsOne => settings.images? <= 1,
            Fact::SeveralGpus => situation.gpus? > 1,
            Fact::WeightsExceedCard => settings.weight_bytes()? > memory.capacity?,
            Fact::StaticExceedsCard => {
                let fixed = [OwnerGroup::Parameters, OwnerGroup::Gradients, OwnerGroup::OptimizerState]
                    .into_iter()
                    .map(|owner| situation.owner_bytes(owner))
                    .try_fold(0_u64, |sum, bytes| bytes.map(|bytes| sum.saturating_add(bytes)))?;
                fixed > memory.capacity?
            }
            Fact::TrainsAllWeights => settings.trainable_parameters? >= settings.model_parameters?,
            Fact::UtilizationHigh => settings.memory_utilization? >= 0.95,
            Fact::UtilizationNotHigh => settings.memory_utilization? < 0.95,
            Fact::BudgetAboveFree => budget(situation)? > memory.free?,
            Fact::BudgetIsFree => budget(situation)? <= memory.free?,
            Fact::AllocatedAboveCapacity => memory.allocated? > memory.capacity?,
            // Inside a container the card itself often shows as large as its quota, so equality says nothing.
            Fact::LimitBelowCapacity => Some(memory.allowed? < memory.capacity?).filter(|&below| below)?,
            Fact::OthersHoldMemory => others(situation)? >= NOTICEABLE,
            Fact::NobodyElse => others(situation)? < NOTICEABLE,
            Fact::OthersAreSmall => memory.largest_other? <= LARGEST_WORKER,
            Fact::LogitsWeigh => {
                situation.operation == Some(Operation::Logits) || settings.vocabulary? >= LARGE_VOCABULARY
            }
            Fact::FrameworkUnknown => situation.frameworks.iter().all(|known| known.framework.reach() == Reach::Place),
            Fact::Notebook => situation.notebook,
            Fact::WeightsAre32Bit => settings.bytes_per_parameter? >= 4.0,
            Fact::WeightsAreQuantised => settings.bytes_per_parameter? <= 1.125,
            Fact::CollectsOnCard => settings.collects_on_card?,
            Fact::NormalisesBatches => settings.batch_norm?,
            Fact::TrainerAccumulates => !settings.steps_by_hand?,
            Fact::NotConvolutional => !settings.convolves?,
            Fact::CallsAnUntrainedModel => settings.calls_untrained?,
            Fact::TakesTiles => settings.takes_tiles?,
            Fact::SamplesAreIndependent => !settings.compares_samples?,
            Fact::SamplesAreCompared => settings.compares_samples?,
            Fact::WeightsAbove8Bit => settings.bytes_per_parameter? > 1.125,
        })
    }
}

/// What a server wants for itself: its share of the whole card.
fn budget(situation: &Situation) -> Option<u64> {
    Some((situation.memory.capacity? as f64 * situation.settings.memory_utilization?) as u64)
}

/// What other processes hold: as reported, else what is left when this process and what is free are taken away.
fn others(situation: &Situation) -> Option<u64> {
    let memory = &situation.memory;
    memory
        .other_processes
        .or_else(|| Some(memory.capacity?.saturating_sub(memory.free?).saturating_sub(memory.process?)))
}

/// The conditions of a remedy or a piece of advice. An empty list asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// It concerns these tasks only.
    pub tasks: Vec<Task>,
    /// It answers these causes.
    pub causes: Vec<Cause>,
    /// It concerns these operations only.
    pub operations: Vec<Operation>,
    /// It is of no use during these operations.
    pub not_operations: Vec<Operation>,
    /// It exists on these platforms only.
    pub platforms: Vec<Platform>,
    /// It concerns runs with one of these frameworks only.
    pub frameworks: Vec<Framework>,
    /// It needs a card of at least this compute capability.
    pub capability: Option<[u32; 2]>,
    /// One of these remedies must already be in effect.
    pub on: Vec<String>,
    /// None of these remedies must be in effect.
    pub not_on: Vec<String>,
    /// These must not be known to be false.
    pub plausible: Vec<Fact>,
    /// These must be known to be true.
    pub certain: Vec<Fact>,
}

/// How to take what is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// An unknown does not rule it out: for remedies.
    Allow,
    /// An unknown rules it out: for telling people that they are wrong.
    Refuse,
}

impl When {
    /// Whether it applies, all but the causes, which callers rank.
    pub fn holds(&self, situation: &Situation, doubt: Doubt) -> bool {
        let among = |wanted: bool, known: Option<bool>| !wanted || known.unwrap_or(doubt == Doubt::Allow);
        among(!self.tasks.is_empty(), situation.task.map(|task| self.tasks.contains(&task)))
            && among(!self.operations.is_empty(), situation.operation.map(|op| self.operations.contains(&op)))
            && situation.operation.is_none_or(|op| !self.not_operations.contains(&op))
            && among(!self.platforms.is_empty(), situation.platform.map(|known| self.platforms.contains(&known)))
            && among(
                self.capability.is_some(),
                situation
                    .compute_capability
                    .and_then(|(major, minor)| self.capability.map(|[least, sub]| (major, minor) >= (least, sub))),
            )
            && (self.frameworks.is_empty()
                || situation.frameworks.iter().any(|known| self.frameworks.contains(&known.framework)))
            && (self.on.is_empty() || self.on.iter().any(|id| situation.on.contains(id)))
            && !self.not_on.iter().any(|id| situation.on.contains(id))
            && self.plausible.iter().all(|fact| fact.holds(situation) != Some(false))
            && self.certain.iter().all(|fact| fact.holds(situation) == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_published_message_of_the_guides_fails_the_fragmentation_gate() {
        // 21.58 GiB allocated, 22.00 GiB reserved, 2.00 GiB requested: 0.42 GiB of slack.
        let mut situation = Situation::default();
        assert_eq!(Fact::SlackCoversRequest.holds(&situation), None);
        situation.memory.allocated = Some(21 * GIB + GIB * 58 / 100);
        situation.memory.reserved = Some(22 * GIB);
        situation.memory.requested = Some(2 * GIB);
        assert_eq!(Fact::SlackCoversRequest.holds(&situation), Some(false));
        assert_eq!(Fact::SlackBelowRequest.holds(&situation), Some(true));
    }

    #[test]
    fn doubt_decides_what_an_unknown_means() {
        let when = When { tasks: vec![Task::Training], ..When::default() };
        let mut situation = Situation::default();
        assert!(when.holds(&situation, Doubt::Allow));
        assert!(!when.holds(&situation, Doubt::Refuse));
        situation.task = Some(Task::Inference);
        assert!(!when.holds(&situation, Doubt::Allow));
        situation.task = Some(Task::Training);
        assert!(when.holds(&situation, Doubt::Refuse));
    }

    #[test]
    fn other_processes_are_what_is_left_when_this_one_is_taken_away() {
        let mut situation = Situation::default();
        situation.memory.capacity = Some(80 * GIB);
        situation.memory.free = Some(GIB);
        situation.memory.process = Some(7 * GIB);
        assert_eq!(Fact::OthersHoldMemory.holds(&situation), Some(true));
        situation.memory.other_processes = Some(0);
        assert_eq!(Fact::NobodyElse.holds(&situation), Some(true));
    }

    #[test]
    fn a_server_that_wants_more_than_is_free_is_distinguished_from_one_that_does_not() {
        let mut situation = Situation::default();
        situation.memory.capacity = Some(24 * GIB);
        situation.memory.free = Some(20 * GIB);
        situation.settings.memory_utilization = Some(0.9);
        assert_eq!(Fact::BudgetAboveFree.holds(&situation), Some(true));
        situation.settings.memory_utilization = Some(0.8);
        assert_eq!(Fact::BudgetIsFree.holds(&situation), Some(true));
    }
}

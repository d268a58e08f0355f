//! Suggests changes to a workload, with what each would free, by the same arithmetic.

use oomph_remedy::Catalogue;
use serde::Serialize;

use crate::estimate::Subject;
use crate::nearby::Nearby;
use crate::workload::{Attention, Image, Offloading, Optimizer, Precision, Task, Workload};

/// One change and what it does to the total.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The remedy's name in the catalogue.
    pub id: String,
    /// A few words.
    pub title: String,
    /// What is expected on the fullest card after it, in bytes.
    pub expected_bytes: u64,
    /// What it frees, in bytes; below 0 where it needs more.
    pub saves_bytes: i64,
    /// The probability that it fits then.
    pub probability: f64,
    /// Whether the result changes.
    pub changes_result: bool,
}

/// A remedy, and the workload that it makes of another, where it applies.
type Rule = (&'static str, fn(&Workload) -> Option<Workload>);

/// Bytes of a number of a KV cache in llama.cpp's `q8_0`: 32 of 8 bits and a scale of 16.
const Q8_CACHE: f64 = 34.0 / 32.0;

/// A change of how images are made, where they are made and it is one.
fn image(workload: &Workload, applies: bool, change: impl FnOnce(&mut Image)) -> Option<Workload> {
    (workload.task == Task::Image && applies).then(|| {
        let mut changed = workload.clone();
        change(&mut changed.image);
        changed
    })
}

const RULES: [Rule; 22] = [
    ("sdpa", |w| (w.attention == Attention::Eager).then(|| Workload { attention: Attention::Sdpa, ..w.clone() })),
    ("gradient-checkpointing", |w| {
        (w.task.trains() && !w.checkpointing).then(|| Workload { checkpointing: true, ..w.clone() })
    }),
    ("micro-batch", |w| {
        (w.task.trains() && w.batch > 1).then(|| Workload {
            batch: w.batch.div_ceil(2),
            accumulation: w.accumulation.saturating_mul(2),
            ..w.clone()
        })
    }),
    ("smaller-batch", |w| {
        (!w.task.trains() && w.task != Task::Serve && w.batch > 1)
            .then(|| Workload { batch: w.batch.div_ceil(2), ..w.clone() })
    }),
    ("fewer-sequences", |w| {
        (w.task == Task::Serve && w.batch > 1).then(|| Workload { batch: w.batch.div_ceil(2), ..w.clone() })
    }),
    ("kv-cache-dtype", |w| {
        (matches!(w.task, Task::Generate | Task::Serve) && w.cache_bytes > Q8_CACHE)
            .then(|| Workload { cache_bytes: Q8_CACHE, ..w.clone() })
    }),
    ("adam-8bit", |w| {
        let adam = matches!(w.optimizer, Optimizer::AdamwFused | Optimizer::AdamwForeach);
        (w.task.trains() && adam).then(|| Workload { optimizer: Optimizer::Adamw8bit, ..w.clone() })
    }),
    ("adafactor", |w| {
        let smaller = matches!(w.optimizer, Optimizer::Adafactor | Optimizer::Sgd);
        (w.task == Task::Full && !smaller).then(|| Workload { optimizer: Optimizer::Adafactor, ..w.clone() })
    }),
    ("pure-bf16", |w| {
        let large = matches!(w.precision, Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16);
        (w.task == Task::Full && large).then(|| Workload { precision: Precision::Bf16, ..w.clone() })
    }),
    ("shorter-sequence", |w| {
        (w.task != Task::Image && w.task != Task::Serve && w.length > 256)
            .then(|| Workload { length: w.length / 2, ..w.clone() })
    }),
    ("shorter-context", |w| {
        (w.task == Task::Serve && w.length > 256).then(|| Workload { length: w.length / 2, ..w.clone() })
    }),
    ("lora", |w| {
        (w.task == Task::Full).then(|| Workload { task: Task::Lora, precision: Precision::Bf16, ..w.clone() })
    }),
    ("qlora", |w| {
        matches!(w.task, Task::Full | Task::Lora).then(|| Workload {
            task: Task::Qlora,
            precision: Precision::AmpBf16,
            ..w.clone()
        })
    }),
    ("weights-nf4", |w| {
        let wide = !matches!(w.precision, Precision::Nf4 | Precision::Int8);
        (!w.task.trains() && wide).then(|| Workload { precision: Precision::Nf4, ..w.clone() })
    }),
    ("zero-3", |w| {
        (w.task.trains() && w.parallel.gpus > 1 && w.parallel.zero < 3).then(|| {
            let mut changed = w.clone();
            changed.parallel.zero = 3;
            changed
        })
    }),
    ("optimizer-cpu-offload", |w| {
        (w.task == Task::Full && !w.parallel.offload_optimizer).then(|| {
            let mut changed = w.clone();
            changed.parallel.offload_optimizer = true;
            changed
        })
    }),
    ("vae-slicing", |w| image(w, w.batch > 1 && !w.image.slicing, |image| image.slicing = true)),
    ("vae-tiling", |w| image(w, !w.image.tiling, |image| image.tiling = true)),
    ("model-cpu-offload", |w| image(w, w.image.offload == Offloading::None, |image| image.offload = Offloading::Model)),
    ("sequential-cpu-offload", |w| {
        image(w, w.image.offload != Offloading::Sequential, |image| image.offload = Offloading::Sequential)
    }),
    ("smaller-resolution", |w| {
        let smaller = |side: u64| (side * 3 / 4).next_multiple_of(64);
        (w.image.width.min(w.image.height) > 512).then(|| {
            let mut changed = w.clone();
            changed.image.width = smaller(w.image.width);
            changed.image.height = smaller(w.image.height);
            changed
        })
    }),
    ("half-weights", |w| {
        (w.task == Task::Image && w.precision == Precision::Fp32)
            .then(|| Workload { precision: Precision::Fp16, ..w.clone() })
    }),
];

/// Whether a rule means anything for who runs the model: llama.cpp, a server, or Python.
fn applies(id: &str, subject: &Subject, workload: &Workload) -> bool {
    let stored = match subject {
        Subject::Pipeline(pipeline) => return !pipeline.is_guided() || id == "smaller-resolution",
        Subject::Transformer { stored, .. } => stored,
    };
    let llama_cpp = stored.as_ref().is_some_and(|stored| stored.llama_cpp.is_some());
    match id {
        "kv-cache-dtype" => llama_cpp || workload.task == Task::Serve,
        "weights-nf4" | "qlora" => stored.is_none(),
        _ => true,
    }
}

impl Nearby<'_> {
    /// The changes of the catalogue that arithmetic can judge, those that change no result first and the most saving first
    /// among them. `capacity` is what a change should fit, in bytes.
    #[must_use]
    pub fn changes(&self, capacity: u64) -> Vec<Change> {
        let Self { subject, workload, answer, .. } = *self;
        let now = answer.total.expected;
        let catalogue = Catalogue::builtin();
        let pipeline = matches!(subject, Subject::Pipeline(_));
        let mut changes: Vec<Change> = RULES
            .into_iter()
            .filter(|(id, _)| applies(id, subject, workload))
            .filter(|(id, _)| *id != if pipeline { "shorter-sequence" } else { "smaller-resolution" })
            .filter_map(|(id, rule)| Some((id, rule(workload)?)))
            .map(|(id, changed)| {
                let total = self.estimate(&changed).total;
                let remedy = catalogue.get(id);
                Change {
                    id: id.to_owned(),
                    title: remedy.map_or_else(|| id.to_owned(), |remedy| remedy.title.clone()),
                    expected_bytes: total.expected,
                    saves_bytes: i64::try_from(now).unwrap_or(i64::MAX)
                        - i64::try_from(total.expected).unwrap_or(i64::MAX),
                    probability: total.probability_within(capacity),
                    changes_result: remedy.is_some_and(|remedy| remedy.sameness >= oomph_remedy::Sameness::Approximate),
                }
            })
            .collect();
        changes.sort_by_key(|change| {
            (change.probability < 0.5, change.changes_result, std::cmp::Reverse(change.saves_bytes))
        });
        changes
    }
}

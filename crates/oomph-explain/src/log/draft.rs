//! A failure that is being assembled from the messages about it, and which of several is the root.

use oomph_remedy::Cause;

use super::aftermath::Before;
use super::bfc;
use super::causes::{self, Evidence};
use super::facts::COMPUTE_BUFFER;
use super::identities;
use super::kind::Kind;
use super::operation;
use super::patterns::{Pattern, Verdict};
use super::programs;
use super::remedies;
use super::report::{Facts, Failure, NotOom};
use super::settings;
use super::site::{self, Frame};
use super::size;

/// Messages this many lines apart can be about the same failure.
pub(crate) const SAME_FAILURE: u64 = 400;
/// The same, while the dump of an allocator, which can be long, lies between them.
const SAME_DUMP: u64 = 200_000;
/// A run that goes on for this many lines after a failure has survived it.
const EPISODE: u64 = 5000;
/// Below this certainty the words leave open what it is.
const OPEN: f64 = 0.65;

/// The words of a binding of llama.cpp's for a context that could not be made.
const BINDING: &str = "ggml.context";

/// A failure that is being assembled.
#[derive(Clone)]
pub(crate) struct Draft {
    pub pattern: &'static Pattern,
    pub verdict: Verdict,
    pub certainty: f64,
    pub facts: Facts,
    pub backend: Option<String>,
    pub named: Option<String>,
    pub era: Option<String>,
    /// Which of the frameworks that share XLA and its allocator the line names.
    pub runtime: Option<&'static str>,
    /// The library or program that a line of CUDA's words names.
    pub library: Option<&'static str>,
    pub front_end: Option<&'static str>,
    /// A program that no table holds, by the form of the words that name it.
    pub by_form: Option<String>,
    pub rank: Option<u32>,
    pub frames: Vec<Frame>,
    pub causes: Vec<(Cause, f64, String)>,
    pub survived: bool,
    /// What the log has before it.
    pub before: Before,
    pub quoted: bool,
    /// From a cut-off or numberless echo: yields to a message that says more.
    pub echo: bool,
    pub times: u64,
    pub line: u64,
    pub last_line: u64,
    pub message: String,
    pub settings: settings::Collector,
    pub heap: Option<bfc::Heap>,
    /// The limit is what XLA's compiler was given for one program, which is less than the pool may take.
    pub limit_of_compiler: bool,
}

/// Whether a pattern is of the frameworks that dump their allocator.
pub(crate) fn is_bfc(pattern: &Pattern) -> bool {
    matches!(pattern.framework.as_str(), "tensorflow" | "jax")
}

/// Which of the frameworks that share XLA and its allocator wrote a line: by its errors, or by where its sources lay when
/// it was built.
pub(crate) fn runtime(line: &str) -> Option<&'static str> {
    let says = |words: &[&str]| words.iter().any(|word| line.contains(word));
    if says(&["torch_xla", "tensorflow/compiler/xla/xla_client"]) {
        return Some("pytorch");
    }
    if says(&["JaxRuntimeError", "XlaRuntimeError", "jax.errors.", "jaxlib."]) {
        return Some("jax");
    }
    if says(&["tensorflow.python", "errors_impl", "{{node", "external/local_xla/", "external/local_tsl/"]) {
        return Some("tensorflow");
    }
    says(&["external/xla/", "external/tsl/", "external/org_tensorflow/"]).then_some("jax")
}

impl Draft {
    /// Whether another message is about this failure.
    pub fn is_same(&self, other: &Draft) -> bool {
        let apart = other.line.saturating_sub(self.last_line);
        if self.quoted || other.quoted {
            return self.quoted && other.quoted;
        }
        // What the allocator's caller could do without is not what failed later, of whatever size that was.
        if self.pattern.id == "tensorflow.bfc" && self.survived && !other.survived {
            return false;
        }
        let ranks_agree = self.rank.is_none() || other.rank.is_none() || self.rank == other.rank;
        if !ranks_agree || !self.facts.agrees_with(&other.facts) {
            return false;
        }
        match (self.verdict, other.verdict) {
            (Verdict::GpuOom, Verdict::GpuOom) => {}
            (Verdict::Not(one), Verdict::Not(another)) if one == another => {}
            // A CUDA handle that cannot be made, or a cuDNN that fails, behind an OOM is its consequence.
            _ => return false,
        }
        let repeated = self.pattern.id == other.pattern.id
            && self.facts.requested_bytes == other.facts.requested_bytes
            && self.facts.free_bytes == other.facts.free_bytes
            && self.facts.allocated_bytes == other.facts.allocated_bytes;
        let dump = is_bfc(self.pattern) && is_bfc(other.pattern);
        apart <= SAME_FAILURE || (dump && apart <= SAME_DUMP && other.heap.is_some()) || (repeated && apart <= EPISODE)
    }

    pub fn merge(&mut self, other: Draft) {
        self.last_line = other.line;
        let again = self.pattern.id == other.pattern.id && self.facts == other.facts;
        if again || self.pattern.id == other.pattern.id {
            self.times += 1;
        }
        // The words that say more speak for both.
        let better = (self.echo && !other.echo)
            || (other.certainty > self.certainty + 0.05 && self.facts.is_empty())
            || (self.facts.is_empty() && !other.facts.is_empty() && !other.echo && other.certainty >= self.certainty);
        if better {
            self.pattern = other.pattern;
            self.verdict = other.verdict;
            self.message = other.message;
            self.echo = other.echo;
        }
        self.certainty = self.certainty.max(other.certainty);
        self.survived = self.survived && other.survived;
        self.before = std::mem::take(&mut self.before).and(other.before);
        if self.limit_of_compiler && !other.limit_of_compiler && other.facts.limit_bytes.is_some() {
            self.facts.limit_bytes = None;
            self.facts.lines.remove("limit_bytes");
            self.limit_of_compiler = false;
        }
        self.limit_of_compiler |= other.limit_of_compiler && self.facts.limit_bytes.is_none();
        self.facts.complete_from(other.facts);
        self.backend = self.backend.take().or(other.backend);
        // The compiled program that JAX names says more than the operation that its allocator has no name for.
        let compiled = other.named.as_deref().is_some_and(|name| name.starts_with("jit_"));
        self.named = if compiled { other.named } else { self.named.take().or(other.named) };
        self.era = self.era.take().or(other.era);
        self.runtime = self.runtime.or(other.runtime);
        self.library = self.library.or(other.library);
        self.front_end = self.front_end.or(other.front_end);
        self.by_form = self.by_form.take().or(other.by_form);
        self.rank = self.rank.or(other.rank);
        // A warning of a library's names a file and a line as well, and no traceback comes from it.
        let better = site::user_site(&self.frames).is_none() && site::user_site(&other.frames).is_some();
        if self.frames.is_empty() || better {
            self.frames = other.frames;
        }
        // What a binding says is general where the library itself has named the buffer.
        let is_general = other.pattern.id == BINDING && self.named.is_some();
        for cause in other.causes {
            if is_general {
                break;
            }
            if self.causes.iter().all(|known| known.0 != cause.0) {
                self.causes.push(cause);
            }
        }
        if self.heap.is_none() {
            self.heap = other.heap;
        }
    }

    pub fn finish(self) -> Failure {
        let is_gpu_oom = self.verdict == Verdict::GpuOom;
        let kind = if let Verdict::Not(kind) = self.verdict { Some(kind) } else { None };
        let settings = self.settings.seen().clone();
        let mut framework = Some(self.pattern.framework.clone());
        if kind == Some(Kind::ConfigurationText) {
            framework = Some("config-text".to_owned());
        } else if self.pattern.framework == "host" && self.pattern.id.starts_with("host.cannot") {
            framework = Some("host".to_owned());
        }
        let mut backend = self.backend.or_else(|| self.pattern.backend.clone());
        if is_gpu_oom
            && programs::is_interface(&self.pattern.framework)
            && let Some(name) = self.library
        {
            framework = Some(name.to_owned());
            if self.pattern.framework != "cuda" {
                backend.get_or_insert_with(|| self.pattern.framework.clone());
            }
        }
        if let (true, Some(runtime)) = (is_bfc(self.pattern), self.runtime) {
            framework = Some(runtime.to_owned());
        }
        // Keras' words are those of its TensorFlow; a program of JAX's is described in JAX's.
        let front_end = self.front_end.filter(|name| framework.as_deref() != Some("jax") || *name != "keras");
        // Where neither is known, the form of some words may name the program.
        let library = self.library.filter(|name| framework.as_deref() != Some(*name));
        let front_end = front_end.or(library).map(str::to_owned).or(self.by_form);
        let mut derived = identities::derive(&self.facts, framework.as_deref(), self.era.as_deref());
        derived.heap = self.heap;
        let operation = operation::of_frames(&self.frames)
            .or_else(|| operation::of_message(&self.pattern.id, &self.message, self.named.as_deref()));
        let evidence = Evidence {
            facts: &self.facts,
            derived: &derived,
            kind,
            operation,
            message: &self.message,
            named: &self.causes,
            growth: growth(&self.settings.trend),
            has_pool: is_bfc(self.pattern),
            outside_allocator: self.pattern.id.contains("cuda-error") || self.pattern.id == "cuda.driver-error",
        };
        let causes = causes::rank(&evidence);
        let era = match (framework.as_deref(), settings.get("torch")) {
            (Some("pytorch"), Some(version)) if !identities::is_cached_era(self.era.as_deref()) => {
                Some(version.to_owned())
            }
            _ => self.era,
        };
        let mut failure = Failure {
            is_gpu_oom,
            certainty: (self.certainty * 100.0).round() / 100.0,
            not_oom: kind.map(NotOom::from),
            framework,
            backend,
            front_end,
            era,
            rank: self.rank,
            facts: self.facts,
            derived,
            causes,
            site: site::user_site(&self.frames),
            operation,
            remedies: Vec::new(),
            avoid: Vec::new(),
            survived: self.survived,
            times: self.times,
            line: self.line,
            message: self.message,
            pattern: self.pattern.id.clone(),
            by_words: self.pattern.is_words(),
        };
        let seen = remedies::Seen {
            convolves: operation::convolves(&self.frames, &failure.message, self.named.as_deref()),
            within: operation::within(operation, &self.frames),
            in_ddp: operation::in_ddp(&self.frames),
            in_binding: self.pattern.id == BINDING || site::in_binding(&self.frames),
            with_structures: site::with_structures(&self.frames),
            in_compute_buffer: self.named.as_deref() == Some(COMPUTE_BUFFER),
        };
        remedies::advise(&mut failure, &settings, seen);
        failure
    }
}

/// What shows that the memory in use rose while the program ran.
fn growth(trend: &settings::Trend) -> Option<String> {
    if !trend.grows() {
        return None;
    }
    let (first, first_line) = trend.first.unwrap_or_default();
    let (last, last_line) = trend.last.unwrap_or_default();
    let (first, last) = (size::show(first), size::show(last));
    Some(format!("the memory in use rose step by step from {first} (line {first_line}) to {last} (line {last_line})"))
}

/// Sorts a failure among others: the smallest is the root.
pub(crate) type Order = (bool, bool, u64, bool, bool, u64);

/// The root is in the last episode (what a run survived by thousands of lines did not end it), was not caught, is sure,
/// and is not a usual consequence of an earlier failure; among these the first counts.
pub(crate) fn order(drafts: &[Draft]) -> Vec<Order> {
    let mut lines: Vec<u64> = drafts.iter().map(|draft| draft.line).collect();
    lines.sort_unstable();
    let mut starts = Vec::new();
    let mut before: Option<u64> = None;
    for line in lines {
        if before.is_none_or(|before| line.saturating_sub(before) > EPISODE) {
            starts.push(line);
        }
        before = Some(line);
    }
    let episode = |line: u64| starts.partition_point(|start| *start <= line) as u64;
    let last = starts.len() as u64;
    let first_oom = drafts
        .iter()
        .filter(|draft| draft.verdict == Verdict::GpuOom && draft.certainty >= OPEN)
        .map(|draft| draft.line)
        .min();
    drafts
        .iter()
        .map(|draft| {
            let consequence = draft.verdict != Verdict::GpuOom && first_oom.is_some_and(|first| first <= draft.line);
            (draft.survived, draft.certainty < OPEN, last - episode(draft.line), consequence, draft.echo, draft.line)
        })
        .collect()
}

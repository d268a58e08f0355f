//! Scores the reader of logs against messages that a person has read.

use oomph_explain::log::{self, Failure};
use serde_json::Value;

/// Libraries and programs with messages of their own. A label that names one of these must be named; any other label
/// is a program on top of such a library, and right if the library is named and the text holds no word of the program.
pub const SPEAKERS: &[&str] = &[
    "pytorch",
    "tensorflow",
    "jax",
    "vllm",
    "sglang",
    "tgi",
    "tensorrt",
    "tensorrtllm",
    "tritonkernel",
    "onnxruntime",
    "directml",
    "llamacpp",
    "ollama",
    "cupy",
    "numba",
    "rapids",
    "juliacuda",
    "paddlepaddle",
    "mxnet",
    "caffe",
    "darknet",
    "faiss",
    "matlab",
    "blender",
    "mlx",
    "candle",
    "burn",
    "hami",
    "nccl",
    "host",
    "slurm",
    "kubernetes",
    "numpy",
    "disk",
    "jvm",
    "rustc",
    "driver",
    "configtext",
    "hashcat",
    "cntk",
];

/// A message with what a person read off it.
pub struct Sample {
    /// A name, or where it was found.
    pub id: String,
    framework: String,
    is_gpu_oom: bool,
    facts: serde_json::Map<String, Value>,
    text: String,
}

/// The messages of a file, one JSON object in each line.
pub fn samples(text: &str) -> Vec<Sample> {
    let sample = |line: &str| {
        let value: Value = serde_json::from_str(line).expect("each line is a JSON object");
        Sample {
            id: value["id"].as_str().or(value["source"].as_str()).expect("an id or a source").to_owned(),
            framework: value["framework"].as_str().expect("framework").to_owned(),
            is_gpu_oom: value["is_gpu_oom"].as_bool().expect("is_gpu_oom"),
            facts: value["facts"].as_object().expect("facts").clone(),
            text: value["text"].as_str().expect("text").to_owned(),
        }
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(sample).collect()
}

/// Letters and digits only, in lower case: `llama.cpp` and `llama-cpp` are one name.
fn bare(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

fn names(failure: Option<&Failure>, front_end: Option<&str>, label: &str, text: &str) -> bool {
    let wanted = match bare(label).as_str() {
        "juliacuda" => "cudajl".to_owned(),
        other => other.to_owned(),
    };
    let mut said: Vec<String> = front_end.map(bare).into_iter().collect();
    if let Some(failure) = failure {
        let framework = failure.framework.as_deref().unwrap_or_default();
        said.push(bare(framework));
        said.extend(failure.front_end.as_deref().map(bare));
        for backend in failure.backend.iter() {
            said.push(bare(&format!("{framework}{backend}")));
            said.extend(failure.front_end.as_deref().map(|front| bare(&format!("{front}{backend}"))));
        }
    }
    if said.contains(&wanted) {
        return true;
    }
    let speaks = SPEAKERS.contains(&wanted.as_str());
    let library = said
        .iter()
        .any(|name| SPEAKERS.contains(&name.as_str()) || ["cuda", "metal", "python"].contains(&name.as_str()));
    !speaks && library && !bare(text).contains(&wanted)
}

/// Whether a figure is the same but for the rounding of what was printed: half of the last of two decimals.
fn same(read: u64, label: u64) -> bool {
    let unit = (0..=4).rev().map(|power| 1u64 << (10 * power)).find(|unit| label >= *unit).unwrap_or(1);
    read.abs_diff(label) <= unit / 200 + 1
}

fn facts_missed(failure: Option<&Failure>, facts: &serde_json::Map<String, Value>) -> (usize, Vec<String>) {
    let mut missed = Vec::new();
    let mut count = 0;
    for (name, value) in facts {
        // 2^64, what NVML's "not available" becomes, is one more than a u64 holds.
        let Some(label) = value.as_u64().or_else(|| value.as_f64().map(|value| value as u64)) else { continue };
        count += 1;
        let read = failure.and_then(|failure| {
            let facts = &failure.facts;
            match name.as_str() {
                "device" => facts.device.map(u64::from),
                "requested_bytes" => facts.requested_bytes,
                "capacity_bytes" => facts.capacity_bytes,
                "free_bytes" => facts.free_bytes,
                "allocated_bytes" => facts.allocated_bytes,
                "reserved_bytes" => facts.reserved_bytes,
                "process_bytes" => facts.process_bytes,
                other => panic!("no fact is called {other}"),
            }
        });
        let equal = read.is_some_and(|read| if name == "device" { read == label } else { same(read, label) });
        if !equal {
            missed.push(format!("{name} {label}, read {read:?}"));
        }
    }
    (count, missed)
}

/// How well a set of messages is read, in shares of it.
pub struct Score {
    /// Whether a GPU's memory ran out.
    pub verdicts: f64,
    /// Messages of which every figure is right.
    pub facts: f64,
    /// Whose words they are.
    pub frameworks: f64,
    /// The same, of failures of a GPU's memory alone: of the rest, most are no failure that could be named.
    pub failures_named: f64,
    /// What is called a GPU's memory with confidence, and is not.
    pub sure_and_wrong: Vec<String>,
}

/// Reads every message and prints what is read otherwise than by a person.
pub fn score(samples: &[Sample]) -> Score {
    let total = samples.len() as f64;
    let (mut verdicts, mut records, mut named, mut exactly) = (0.0, 0.0, 0.0, 0.0);
    let (mut gpu_failures, mut gpu_named) = (0.0, 0.0);
    let (mut figures, mut figures_missed) = (0, 0);
    let mut sure_and_wrong = Vec::new();
    for sample in samples {
        let report = log::explain_text(&sample.text);
        let failure = report.failures.first();
        let read = failure.is_some_and(|failure| failure.is_gpu_oom);
        if read == sample.is_gpu_oom {
            verdicts += 1.0;
        } else {
            let pattern = failure.map(|failure| (failure.pattern.as_str(), failure.certainty));
            println!("verdict    {:<28} is {}, read {pattern:?}", sample.id, sample.is_gpu_oom);
            if !sample.is_gpu_oom && failure.is_some_and(|failure| failure.certainty >= 0.65) {
                sure_and_wrong.push(sample.id.clone());
            }
        }
        let (count, missed) = facts_missed(failure, &sample.facts);
        figures += count;
        figures_missed += missed.len();
        if missed.is_empty() {
            records += 1.0;
        } else {
            println!("facts      {:<28} {}", sample.id, missed.join("; "));
        }
        let is_named = names(failure, None, &sample.framework, &sample.text);
        if sample.is_gpu_oom {
            gpu_failures += 1.0;
            gpu_named += f64::from(u8::from(is_named));
        }
        if is_named {
            named += 1.0;
        } else {
            let said = failure.map(|failure| (failure.framework.as_deref(), failure.front_end.as_deref()));
            println!("framework  {:<28} is {}, named {said:?}", sample.id, sample.framework);
        }
        exactly += f64::from(u8::from(failure.is_some_and(|failure| {
            [&failure.framework, &failure.front_end]
                .into_iter()
                .flatten()
                .any(|name| bare(name) == bare(&sample.framework))
        })));
    }
    println!(
        "{} messages: verdict {:.1} %, facts {:.1} % of messages ({figures_missed} of {figures} figures missed), framework \
         {:.1} % (of which by the label's own word {:.1} %), of failures of a GPU's memory {:.1} %",
        samples.len(),
        100.0 * verdicts / total,
        100.0 * records / total,
        100.0 * named / total,
        100.0 * exactly / total,
        100.0 * gpu_named / gpu_failures
    );
    Score {
        verdicts: verdicts / total,
        facts: records / total,
        frameworks: named / total,
        failures_named: gpu_named / gpu_failures,
        sure_and_wrong,
    }
}

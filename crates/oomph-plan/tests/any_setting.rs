//! Whatever is asked of whatever model, there is an answer that adds up.

use oomph_model::Architecture;
use oomph_plan::{
    Attention, CardCost, Lora, Optimizer, Owner, Parallel, Precision, Stored, Subject, Targets, Task, Workload,
    estimate,
};
use proptest::prelude::*;
use serde_json::json;

const FAMILIES: [&str; 12] = [
    "llama",
    "gpt2",
    "bert",
    "mixtral",
    "deepseek_v2",
    "gemma2",
    "falcon",
    "t5",
    "phi3",
    "gpt_neox",
    "deberta-v2",
    "strange",
];
const TASKS: [Task; 7] =
    [Task::Inference, Task::Generate, Task::Serve, Task::Full, Task::Lora, Task::Qlora, Task::Freeze];
const PRECISIONS: [Precision; 5] =
    [Precision::Fp32, Precision::AmpBf16, Precision::Bf16, Precision::Int8, Precision::Nf4];

/// Small numbers mostly, and some that no model has.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1_u64..200, 1 => Just(0), 1 => 1_u64 << 20..1 << 40]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_answer_adds_up(
        family in 0..FAMILIES.len(), task in 0..TASKS.len(), precision in 0..PRECISIONS.len(), layers in 1_u64..4,
        hidden in number(), heads in number(), keys in number(), inner in number(), vocabulary in number(),
        batch in 1_u64..=1_000_000, length in 1_u64..=100_000_000, new_tokens in 0_u64..40, optimizer in 0..12_usize,
        switches in any::<[bool; 6]>(), degrees in (1_u64..4, 1_u64..4, 0_u8..4),
    ) {
        let config = json!({
            "model_type": FAMILIES[family], "num_hidden_layers": layers, "n_layer": layers, "num_layers": layers,
            "hidden_size": hidden, "n_embd": hidden, "d_model": hidden, "num_attention_heads": heads, "n_head": heads,
            "num_heads": heads, "num_key_value_heads": keys, "intermediate_size": inner, "d_ff": inner, "d_kv": keys,
            "vocab_size": vocabulary, "max_position_embeddings": 64, "relative_attention": true, "position_buckets": 8,
        });
        let Ok(Architecture::Transformer(shape)) = Architecture::of_config(&config) else { return Ok(()) };
        let stored = switches[4].then(|| Stored {
            bytes: vocabulary, format: "Q4_K_M".into(), llama_cpp: switches[5].then_some(inner),
        });
        let (tensor, stages, zero) = degrees;
        let workload = Workload {
            task: TASKS[task], precision: PRECISIONS[precision], batch, length, new_tokens,
            optimizer: Optimizer::ALL[optimizer].0, checkpointing: switches[0],
            attention: if switches[1] { Attention::Eager } else { Attention::Sdpa }, padding: switches[2],
            lora: Lora { rank: 8, targets: Targets::AllLinear, dropout: switches[3] },
            parallel: Parallel { gpus: tensor * stages * 2, zero, tensor, pipeline: stages, ..Parallel::default() },
            ..Workload::default()
        };
        let gpu = oomph_gpu::Catalogue::builtin().get("rtx-4090").expect("a card of the catalogue");
        let answer = estimate(&Subject::Transformer { shape, stored }, &workload, CardCost::of(gpu));
        let total = answer.total;
        prop_assert!(total.low <= total.expected && total.expected <= total.high, "{total:?}");
        let sum = answer.owners.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        // Beyond an exbibyte sums stand still, and the command says so.
        prop_assert!(total.expected > 1 << 60 || sum == total.expected, "{sum} and {total:?}");
        let term = |owner: Owner| answer.terms.iter().any(|term| term.owner == owner);
        prop_assert!(answer.owners[Owner::Weights as usize] == 0 || term(Owner::Weights));
    }
}

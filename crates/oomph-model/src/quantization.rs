//! Reads how a model's weights are quantized, from `quantization_config` of its `config.json`.
//!
//! The keys are those of transformers' `quantization_config` classes.

use serde::Serialize;
use serde_json::Value;

use crate::architecture::{Form, Parameter, Role};
use crate::{Component, Dtype};

/// A way to keep weights in fewer bits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quantization {
    /// Who quantized it.
    pub method: Method,
    /// Bits of one weight, without the scales and other data kept with it.
    pub bits: f64,
    /// Bits of scales and zero points for one weight.
    pub overhead_bits: f64,
    /// Modules whose weights keep the network's type, by a part of their name.
    pub skipped: Vec<String>,
}

/// Who quantized a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// bitsandbytes, 8 bits.
    BitsAndBytesInt8,
    /// bitsandbytes, 4 bits (NF4 or FP4).
    BitsAndBytes4Bit,
    /// GPTQ.
    Gptq,
    /// AWQ.
    Awq,
    /// torchao.
    Torchao,
    /// 8-bit floats (DeepSeek's blocks, FBGEMM, compressed-tensors).
    Fp8,
    /// Microscaled 4-bit floats of experts (gpt-oss).
    Mxfp4,
    /// Half-quadratic quantization, quanto and others that are identified by bits alone.
    Other,
}

impl Quantization {
    /// What a configuration says, `None` where it says nothing of quantization.
    #[must_use]
    pub fn of_config(config: &Value) -> Option<Self> {
        let settings = config
            .get("quantization_config")
            .or_else(|| config.pointer("/text_config/quantization_config"))
            .filter(|settings| settings.is_object())?;
        let text = |name: &str| settings.get(name).and_then(Value::as_str).unwrap_or_default();
        let flag = |name: &str| settings.get(name).and_then(Value::as_bool).unwrap_or(false);
        let number = |names: &[&str]| {
            names.iter().find_map(|name| settings.get(*name).and_then(Value::as_f64)).filter(|value| value.is_finite())
        };
        // A group of -1 is a whole row, whose scale does not count.
        let group = number(&["group_size", "q_group_size"]).filter(|group| *group > 0.0);
        let bits = number(&["bits", "w_bit", "nbits", "wbits"]).filter(|bits| (1.0..=16.0).contains(bits));
        let per_group = |bits_of_scale: f64| group.map_or(0.0, |group| bits_of_scale / group);
        let (method, bits, overhead) = match text("quant_method") {
            "bitsandbytes" | "" if flag("load_in_4bit") || flag("_load_in_4bit") => {
                // One 32-bit scale for 64 weights; quantized once more, one byte and 32 bits for 256 of them.
                let overhead = if flag("bnb_4bit_use_double_quant") { 8.0 / 64.0 + 32.0 / (64.0 * 256.0) } else { 0.5 };
                (Method::BitsAndBytes4Bit, 4.0, overhead)
            }
            "bitsandbytes" | "" if flag("load_in_8bit") || flag("_load_in_8bit") => {
                (Method::BitsAndBytesInt8, 8.0, 0.0)
            }
            // A 16-bit scale and a packed zero point for each group.
            "gptq" | "autoround" | "auto-round" => {
                let bits = bits.unwrap_or(4.0);
                (Method::Gptq, bits, per_group(16.0 + bits))
            }
            "awq" => {
                let bits = bits.unwrap_or(4.0);
                (Method::Awq, bits, group.map_or((16.0 + bits) / 128.0, |group| (16.0 + bits) / group))
            }
            "torchao" => torchao(settings),
            "fp8" | "fbgemm_fp8" | "finegrained_fp8" => (Method::Fp8, 8.0, block_overhead(settings)),
            "compressed-tensors" => {
                let weights = settings.pointer("/config_groups/group_0/weights");
                let bits = weights.and_then(|weights| weights.get("num_bits")).and_then(Value::as_f64).unwrap_or(8.0);
                let float = weights.and_then(|weights| weights.get("type")).and_then(Value::as_str) == Some("float");
                let group = weights.and_then(|weights| weights.get("group_size")).and_then(Value::as_f64);
                let overhead = group.filter(|group| *group > 0.0).map_or(0.0, |group| 16.0 / group);
                (if float { Method::Fp8 } else { Method::Other }, bits.clamp(1.0, 16.0), overhead)
            }
            // A byte of scale for 32 weights.
            "mxfp4" => (Method::Mxfp4, 4.0, 0.25),
            _ => (Method::Other, bits?, per_group(16.0)),
        };
        let lists = ["modules_to_not_convert", "llm_int8_skip_modules", "ignore"];
        let skipped = lists.iter().filter_map(|name| settings.get(*name)?.as_array()).flatten();
        let skipped = skipped.filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Self { method, bits, overhead_bits: overhead, skipped })
    }

    /// Whether this parameter is kept in fewer bits: matrices of linear layers, but not of the output layer nor of
    /// embeddings, and none that the settings except. mxfp4 is for experts alone.
    #[must_use]
    pub fn covers(&self, parameter: &Parameter) -> bool {
        let kind = match self.method {
            Method::Mxfp4 => parameter.role == Role::Expert && parameter.shape.len() == 3,
            // bitsandbytes replaces `nn.Linear` modules, and packed experts are not among them.
            Method::BitsAndBytesInt8 | Method::BitsAndBytes4Bit => parameter.form == Form::Linear,
            _ => parameter.form == Form::Linear || (parameter.role == Role::Expert && parameter.shape.len() == 3),
        };
        kind && parameter.role != Role::Head && !self.skipped.iter().any(|part| parameter.name.contains(part.as_str()))
    }

    /// Bytes of this parameter in a network whose other weights have the given type.
    #[must_use]
    pub fn bytes(&self, parameter: &Parameter, dtype: &Dtype) -> u64 {
        let elements = parameter.elements();
        if self.covers(parameter) {
            // Counts of real tensors are far below what a 64-bit float holds exactly.
            return (elements as f64 * (self.bits + self.overhead_bits) / 8.0).ceil() as u64;
        }
        let dtype = parameter.kept_dtype.as_ref().unwrap_or(dtype);
        elements.saturating_mul(dtype.bits().unwrap_or(16)) / 8
    }
}

/// torchao names its kind in one key or in a nested object, whose name holds the bits.
fn torchao(settings: &Value) -> (Method, f64, f64) {
    let kind = settings.get("quant_type").map(Value::to_string).unwrap_or_default().to_ascii_lowercase();
    let (bits, overhead) = if kind.contains("int4") || kind.contains("uint4") || kind.contains("autoquant") {
        // 16-bit scale and zero point for 128 weights.
        (4.0, 32.0 / 128.0)
    } else {
        (8.0, 0.0)
    };
    (Method::Torchao, bits, overhead)
}

/// A 32-bit scale for a block of weights.
fn block_overhead(settings: &Value) -> f64 {
    let sides = settings.get("weight_block_size").and_then(Value::as_array);
    let area: f64 = sides.into_iter().flatten().filter_map(Value::as_f64).filter(|side| *side >= 1.0).product();
    if sides.is_some() { 32.0 / area } else { 0.0 }
}

impl Component {
    /// How its configuration says that it is quantized.
    #[must_use]
    pub fn quantization(&self) -> Option<Quantization> {
        Quantization::of_config(&self.config)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Library;

    /// Bytes of Llama 2 7B with the given settings, GB.
    fn gigabytes(settings: &Value) -> f64 {
        let quantization = Quantization::of_config(&json!({ "quantization_config": settings })).unwrap();
        let model = Library::builtin().find("llama-2-7b").and_then(crate::Entry::architecture).unwrap();
        let parameters = model.parameters();
        parameters.iter().map(|one| quantization.bytes(one, &Dtype::Bfloat16)).sum::<u64>() as f64 / 1e9
    }

    #[test]
    fn a_quantized_llama_has_the_known_size() {
        // Weights of blocks in 4.5 and 4.127 bits, in 8 bits, the rest in 16 (counted for bitsandbytes 0.50).
        assert!((gigabytes(&json!({ "quant_method": "bitsandbytes", "load_in_4bit": true })) - 4.17).abs() < 0.01);
        let double = json!({ "load_in_4bit": true, "bnb_4bit_use_double_quant": true });
        assert!((gigabytes(&double) - 3.87).abs() < 0.01);
        assert!((gigabytes(&json!({ "quant_method": "bitsandbytes", "load_in_8bit": true })) - 7.00).abs() < 0.01);
        // TheBloke's and others' files of 4 bits in groups of 128 have 3.9 GB.
        let gptq = json!({ "quant_method": "gptq", "bits": 4, "group_size": 128 });
        assert!((gigabytes(&gptq) - 3.9).abs() < 0.1, "{}", gigabytes(&gptq));
        let awq = json!({ "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": true });
        assert!((gigabytes(&awq) - 3.9).abs() < 0.1);
    }

    #[test]
    fn every_method_is_recognised_and_nonsense_is_none() {
        let method = |settings: Value| Quantization::of_config(&json!({ "quantization_config": settings }));
        let fp8 = method(json!({ "quant_method": "fp8", "weight_block_size": [128, 128] })).unwrap();
        assert_eq!((fp8.method, fp8.bits, fp8.overhead_bits), (Method::Fp8, 8.0, 32.0 / 16384.0));
        let ao = method(json!({ "quant_method": "torchao", "quant_type": "int4_weight_only" })).unwrap();
        assert_eq!((ao.method, ao.bits), (Method::Torchao, 4.0));
        let skipped = method(json!({ "quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"] })).unwrap();
        assert_eq!(skipped.skipped, ["lm_head"]);
        assert_eq!(method(json!({ "quant_method": "new", "bits": "many" })), None);
        assert_eq!(method(json!([1, 2])), None);
        assert_eq!(Quantization::of_config(&json!({ "hidden_size": 1 })), None);
    }
}

//! Fills in the placeholders of a setting: `{half_batch}` becomes a number where the run's settings are known, and a
//! readable name where they are not.

use crate::effect;
use crate::situation::{OwnerGroup, Situation};

/// The names that data files may put in braces, in words and in reasons.
pub const NAMES: &[&str] = &[
    "half_batch",
    "double_accumulation",
    "half_length",
    "chunk",
    "shorter_context",
    "half_sequences",
    "lower_utilization",
    "higher_utilization",
    "half_width",
    "half_height",
    "gpus",
    "fewer_layers",
    "requested",
    "capacity",
    "free",
    "slack",
    "shortage",
    "allowed",
    "others",
    "weights",
    "utilization",
    "half_type",
    "half_dtype",
    "half_precision",
];

/// The names in braces in a text that are to be filled in: small letters and underscores, as in `{half_batch}`.
pub fn open_names(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .filter_map(|after| after.split_once('}'))
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

/// The text with every name in braces filled in. Braces around anything else stay as they are.
pub fn fill(text: &str, situation: &Situation) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        let after = &rest[open + 1..];
        match after.find('}').map(|close| (&after[..close], &after[close + 1..])) {
            Some((name, tail)) if NAMES.contains(&name) => {
                filled.push_str(&value(name, situation).unwrap_or_else(|| unknown(name).to_owned()));
                rest = tail;
            }
            _ => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// The first name in braces for which there is no value.
pub fn missing(text: &str, situation: &Situation) -> Option<&'static str> {
    NAMES.iter().copied().find(|name| text.contains(&format!("{{{name}}}")) && value(name, situation).is_none())
}

/// How a value is called that is not known.
fn unknown(name: &str) -> &'static str {
    match name {
        "half_batch" => "HALF_THE_BATCH",
        "double_accumulation" => "TWICE_AS_MANY",
        "half_length" => "HALF_THE_LENGTH",
        "shorter_context" => "SHORTER_CONTEXT",
        "half_sequences" => "FEWER_SEQUENCES",
        "lower_utilization" => "FREE_SHARE",
        "higher_utilization" => "0.95",
        "half_width" => "HALF_THE_WIDTH",
        "half_height" => "HALF_THE_HEIGHT",
        "gpus" => "NUMBER_OF_GPUS",
        "fewer_layers" => "FEWER_LAYERS",
        "requested" => "the request",
        "capacity" => "the card",
        "free" => "what is free",
        "slack" => "what is reserved and unused",
        "shortage" => "what is missing",
        "allowed" => "what is allowed",
        "others" => "part of the card",
        "weights" => "most of the card",
        _ => "the present share",
    }
}

fn value(name: &str, situation: &Situation) -> Option<String> {
    let (memory, settings) = (&situation.memory, &situation.settings);
    let number = |value: u64| value.to_string();
    let by = settings.divisor();
    let half = |value: Option<u64>| value.filter(|&value| value > 1).map(|value| value.div_ceil(by).to_string());
    let size = |bytes: Option<u64>| bytes.map(gib_or_mib);
    match name {
        "half_batch" => half(settings.batch_size),
        // As many more micro-batches keep the effective batch; without a batch of two there is nothing to keep.
        "double_accumulation" => settings
            .gradient_accumulation
            .or(settings.batch_size.map(|_| 1))
            .and_then(|steps| steps.checked_mul(by))
            .map(number),
        "half_length" => half(settings.sequence_length),
        "chunk" => Some(number(CHUNK / settings.divide_by.unwrap_or(1).clamp(1, CHUNK))),
        "shorter_context" => settings.context_that_fits.map(number).or_else(|| half(settings.context_length)),
        "half_sequences" => half(settings.concurrent_sequences),
        "lower_utilization" => lower_utilization(situation).map(|share| format!("{share:.2}")),
        "higher_utilization" => settings.memory_utilization.map(|share| format!("{:.2}", (share + 0.05).min(0.95))),
        "half_width" => half(settings.resolution.map(|(width, _)| width)),
        "half_height" => half(settings.resolution.map(|(_, height)| height)),
        "gpus" => situation.gpus.filter(|&count| count > 1).map(|count| count.to_string()),
        "fewer_layers" => match settings.layers_that_fit {
            Some(layers) => Some(number(layers)),
            None => settings.gpu_layers.filter(|&layers| layers > 1).map(|layers| number(layers - layers.div_ceil(4))),
        },
        "requested" => size(memory.requested),
        "capacity" => size(memory.capacity),
        "free" => size(memory.free),
        "slack" => size(memory.slack()),
        "shortage" => size(memory.shortage()),
        "allowed" => size(memory.allowed),
        "others" => size(effect::owner_bytes(situation, OwnerGroup::OtherProcesses)),
        "weights" => size(effect::owner_bytes(situation, OwnerGroup::Parameters)),
        "utilization" => settings.memory_utilization.map(|share| format!("{share}")),
        "half_type" => Some(if has_bf16(situation) { "bf16" } else { "fp16" }.to_owned()),
        "half_dtype" => Some(if has_bf16(situation) { "bfloat16" } else { "float16" }.to_owned()),
        // Lightning's name for it.
        "half_precision" => Some(if has_bf16(situation) { "bf16" } else { "16" }.to_owned()),
        _ => None,
    }
}

/// Tokens of a piece of a long input: what vLLM took as a rule when it began to cut them (its documentation, "Optimization
/// and Tuning").
const CHUNK: u64 = 2048;

/// A smaller share of the card for a server, in hundredths: what is free when it starts, where it was refused its share
/// then, else so many percent of the card less as the situation's amount says. A hundredth of the card is left for the
/// contexts of its workers.
pub fn lower_utilization(situation: &Situation) -> Option<f64> {
    let (memory, settings) = (&situation.memory, &situation.settings);
    let card = memory.capacity.filter(|&bytes| bytes > 0).map(|bytes| bytes as f64);
    let share = settings.memory_utilization;
    let starts = memory.requested.is_none() || share.is_none() || share_is_refused(situation);
    let free = memory.free.zip(card).filter(|_| starts).map(|(free, card)| free as f64 / card - 0.01);
    let less = share.map(|share| share - settings.divide_by.unwrap_or(LEAST_LESS) as f64 / 100.0);
    let hundredths = [free, less].into_iter().flatten().reduce(f64::min)? * 100.0;
    (hundredths >= 5.0).then(|| (hundredths.min(95.0) + 1e-9).floor() / 100.0)
}

/// Whether a server was refused its share of the card when it started: what it asks for later is less, or more.
pub fn share_is_refused(situation: &Situation) -> bool {
    let (memory, share) = (&situation.memory, situation.settings.memory_utilization);
    let asked = memory.requested.zip(memory.capacity).map(|(asked, card)| asked as f64 / card.max(1) as f64);
    asked.zip(share).is_some_and(|(asked, share)| (asked - share).abs() < 0.01)
}

/// By how many percent of the card a server's share is made smaller where nothing else is said.
const LEAST_LESS: u64 = 5;

/// Whether the card computes in bf16, as far as that is known: those before Ampere (compute capability 8.0) imitate it.
fn has_bf16(situation: &Situation) -> bool {
    situation.compute_capability.is_none_or(|(major, _)| major >= 8)
}

/// A size in the unit that PyTorch's own messages would use.
pub fn gib_or_mib(bytes: u64) -> String {
    const MIB: f64 = (1_u64 << 20) as f64;
    const GIB: f64 = (1_u64 << 30) as f64;
    if bytes == 0 {
        return "0 bytes".to_owned();
    }
    let bytes = bytes as f64;
    if bytes >= GIB { format!("{:.2} GiB", bytes / GIB) } else { format!("{:.2} MiB", bytes / MIB) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_settings_become_numbers_and_unknown_ones_become_words() {
        let mut situation = Situation::default();
        let words = "--per_device_train_batch_size {half_batch} --gradient_accumulation_steps {double_accumulation}";
        assert_eq!(
            fill(words, &situation),
            "--per_device_train_batch_size HALF_THE_BATCH --gradient_accumulation_steps TWICE_AS_MANY"
        );
        situation.settings.batch_size = Some(33);
        assert_eq!(fill(words, &situation), "--per_device_train_batch_size 17 --gradient_accumulation_steps 2");
        situation.settings.gradient_accumulation = Some(4);
        assert_eq!(fill(words, &situation), "--per_device_train_batch_size 17 --gradient_accumulation_steps 8");
    }

    #[test]
    fn a_quarter_of_the_layers_goes_however_many_there_are() {
        let mut situation = Situation::default();
        for (layers, fewer) in [(33, "24"), (2, "1"), (u64::MAX, "13835058055282163711")] {
            situation.settings.gpu_layers = Some(layers);
            assert_eq!(fill("-ngl {fewer_layers}", &situation), format!("-ngl {fewer}"));
        }
    }

    #[test]
    fn a_card_is_asked_for_the_half_type_that_it_has() {
        let mut situation = Situation::default();
        let words = "\"{half_type}\": {\"enabled\": true}   # torch.{half_dtype}";
        assert_eq!(fill(words, &situation), "\"bf16\": {\"enabled\": true}   # torch.bfloat16");
        assert_eq!(fill("{half_precision}-mixed", &situation), "bf16-mixed");
        situation.compute_capability = Some((7, 5));
        assert_eq!(fill("{half_precision}-mixed", &situation), "16-mixed");
        assert_eq!(fill(words, &situation), "\"fp16\": {\"enabled\": true}   # torch.float16");
        situation.compute_capability = Some((8, 0));
        assert_eq!(fill(words, &situation), "\"bf16\": {\"enabled\": true}   # torch.bfloat16");
    }

    #[test]
    fn braces_of_code_stay() {
        let text = "device_map={\"\": 0} and {unknown} and an open {";
        assert_eq!(fill(text, &Situation::default()), text);
    }

    #[test]
    fn a_server_is_given_the_share_that_is_free() {
        let mut situation = Situation::default();
        situation.memory.capacity = Some(24 << 30);
        situation.memory.free = Some(18 << 30);
        assert_eq!(fill("{lower_utilization}", &situation), "0.74");
        situation.memory.free = Some(0);
        assert_eq!(fill("{lower_utilization}", &situation), "FREE_SHARE");
        // It had its share, and asked for more while it worked.
        situation.memory.requested = Some(8 << 30);
        situation.settings.memory_utilization = Some(0.95);
        situation.settings.divide_by = Some(30);
        assert_eq!(fill("{lower_utilization}", &situation), "0.65");
        situation.settings.memory_utilization = Some(0.92);
        assert_eq!(fill("{higher_utilization}", &situation), "0.95");
    }
}

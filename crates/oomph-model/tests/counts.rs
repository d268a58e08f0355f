//! Tensors known from configurations, against what transformers and diffusers build of the same configurations
//! (`expected/make.py`).

use std::collections::BTreeMap;

use oomph_model::{Library, architecture::Parameter};
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    networks: BTreeMap<String, Network>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Network {
    parameters: u64,
    tensors: usize,
    digest: String,
    buffers: usize,
    buffer_elements: u64,
    buffer_digest: String,
}

fn digest(lines: &[String]) -> String {
    let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
    let digest =
        bytes.fold(0xCBF2_9CE4_8422_2325_u64, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    format!("{digest:016x}")
}

fn lines(parameters: &[Parameter], buffers: bool) -> Vec<String> {
    let mut lines: Vec<String> = parameters
        .iter()
        .filter(|parameter| parameter.is_buffer() == buffers)
        .map(|parameter| format!("{} {:?}", parameter.name, parameter.shape).replace(", ", ","))
        .collect();
    lines.sort();
    lines
}

#[test]
fn every_built_in_network_has_the_tensors_that_the_library_builds() {
    let expected: Expected = serde_json::from_str(include_str!("expected/models.json")).unwrap();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (name, architecture) in Library::builtin().networks() {
        if name.starts_with("vqgan-") {
            // Of another library; the next test knows their sums.
            continue;
        }
        let Some(expected) = expected.networks.get(name) else {
            wrong.push(format!("{name}: not in expected/models.json"));
            continue;
        };
        let Some(architecture) = architecture else {
            wrong.push(format!("{name}: its configuration is not understood"));
            continue;
        };
        seen += 1;
        let parameters = architecture.parameters();
        let (trained, buffers) = (lines(&parameters, false), lines(&parameters, true));
        let found = Network {
            parameters: architecture.parameter_count(),
            tensors: trained.len(),
            digest: digest(&trained),
            buffers: buffers.len(),
            buffer_elements: parameters.iter().filter(|one| one.is_buffer()).map(Parameter::elements).sum(),
            buffer_digest: digest(&buffers),
        };
        if found != *expected {
            wrong.push(format!("{name}: {found:?}, expected {expected:?}"));
        }
        // For looking into a difference: the same lists as `make.py --lists` writes.
        if let Ok(folder) = std::env::var("OOMPH_LISTS") {
            let text = format!("{}\n--\n{}\n", trained.join("\n"), buffers.join("\n"));
            std::fs::write(std::path::Path::new(&folder).join(name), text).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), seen, wrong.join("\n"));
}

/// Parameters of well-known networks as published or counted elsewhere, independently of this crate's data.
#[test]
fn well_known_networks_have_the_published_number_of_parameters() {
    let known = [
        ("unet-sd15", 859_520_964),
        ("unet-sd15-inpaint", 859_520_964 + 14_400),
        ("clip-l-text", 123_060_480),
        ("vae-sd", 83_653_863),
        ("sd-safety-checker", 303_981_588),
        ("unet-sd21", 865_910_724),
        ("openclip-h-text", 340_387_840),
        ("unet-sdxl", 2_567_463_684),
        ("unet-sdxl-refiner", 2_259_526_660),
        ("openclip-bigg-text", 694_659_840),
        ("sd3-medium-transformer", 2_028_328_000),
        ("sd35-medium-transformer", 2_243_171_520),
        ("sd35-large-transformer", 8_056_627_520),
        ("flux-dev-transformer", 11_901_408_320),
        ("flux-schnell-transformer", 11_891_178_560),
        ("flux-fill-transformer", 11_902_391_360),
        ("t5-xxl-encoder", 4_762_310_656),
        ("vae-16-channels", 83_819_683),
        ("controlnet-sd15", 361_279_120),
        ("controlnet-sd21", 364_228_240),
        ("controlnet-sdxl", 1_251_014_160),
        ("controlnet-sdxl-small", 125_690_640),
        ("controlnet-flux-union-pro", 3_301_956_608),
        ("controlnet-flux-union-pro-2.0", 2_140_876_800),
        // With the embeddings of size and aspect ratio, which only the first version has.
        ("pixart-alpha-transformer", 611_349_152),
        ("pixart-sigma-transformer", 610_856_096),
        ("qwen-image-transformer", 20_430_401_088),
        ("wan-2.1-14b-transformer", 14_288_491_584),
        ("wan-2.1-1.3b-transformer", 1_418_996_800),
        ("vqgan-f16-16384", 76_073_859),
        ("vqgan-f16-1024", 72_141_699),
        // Often given without the 1x1 convolution onto the codebook, which only the encoder uses.
        ("vqgan-gumbel-f8-8192", 66_890_627 + 8192 * 257),
        ("clip-vit-b-32", 151_277_313),
        ("clip-vit-b-16", 149_620_737),
        ("clip-vit-l-14", 427_616_513),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("deepseek-v3", 671_026_404_352),
        ("gpt-oss-120b", 116_829_156_672),
        ("mixtral-8x7b", 46_702_792_704),
        ("gpt2", 124_439_808),
    ];
    let networks: BTreeMap<&str, _> = Library::builtin().networks().collect();
    for (name, parameters) in known {
        let architecture = networks.get(name).and_then(Option::as_ref);
        assert_eq!(architecture.map(|found| found.parameter_count()), Some(parameters), "{name}");
    }
    // Fixed tables of positions are buffers, and 10 % of this network.
    let medium = networks["sd35-medium-transformer"].as_ref().unwrap().parameters();
    let buffers: u64 = medium.iter().filter(|one| one.is_buffer()).map(Parameter::elements).sum();
    assert_eq!(buffers, 226_492_416);
}

#[test]
fn models_are_found_by_every_name_and_misses_name_the_nearest() {
    let library = Library::builtin();
    for name in ["llama-3-8b", "meta-llama/Meta-Llama-3-8B", "Meta-Llama-3-8B-Instruct", "LLAMA-3-8B"] {
        assert_eq!(library.model(name).unwrap().name, "llama-3-8b", "{name}");
    }
    let pipeline = library.model("black-forest-labs/FLUX.1-dev").unwrap();
    let parts: Vec<&str> = pipeline.components.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(parts, ["transformer", "vae", "text_encoder", "text_encoder_2"]);
    // The sum of what is loaded, 31.42 GiB, is 0.1 % from what a card of this pipeline reports as allocated.
    let bytes: u64 = pipeline.components.iter().map(oomph_model::Component::bytes).sum();
    assert!((bytes as f64 / f64::from(1 << 30) - 31.42).abs() < 0.01, "{bytes}");
    let error = library.model("lama-3-8b").unwrap_err();
    assert_eq!(error.nearest[0], "llama-3-8b");
    assert!(library.model("qqqqqqqq").unwrap_err().nearest.is_empty());
    assert!(library.entries().len() >= 80);
    let mut names: Vec<&str> = library.entries().iter().map(|entry| entry.name.as_str()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "two entries have one name");
    for name in names {
        let model = library.model(name).unwrap();
        assert!(!model.components.is_empty() && model.components.iter().all(|part| part.bytes() > 0), "{name}");
    }
}

/// The settings of a GGUF file lead to the same tensors as the configuration that it was made from.
#[test]
fn a_gguf_file_is_understood_like_the_model_it_was_made_from() {
    use serde_json::json;
    let settings = json!({
        "general.architecture": "llama", "llama.block_count": 32, "llama.embedding_length": 4096,
        "llama.feed_forward_length": 14336, "llama.attention.head_count": 32, "llama.attention.head_count_kv": 8,
        "llama.context_length": 131_072, "llama.rope.dimension_count": 128, "llama.vocab_size": 128_256,
    });
    let found = oomph_model::Architecture::of_gguf(&settings, &[]).unwrap();
    let named = Library::builtin().find("llama-3.1-8b").and_then(oomph_model::Entry::architecture).unwrap();
    assert_eq!(found.parameters(), named.parameters());
    let moe = json!({
        "general.architecture": "deepseek2", "deepseek2.block_count": 27, "deepseek2.embedding_length": 2048,
        "deepseek2.feed_forward_length": 10944, "deepseek2.attention.head_count": 16,
        "deepseek2.attention.head_count_kv": 16, "deepseek2.attention.key_length": 192,
        "deepseek2.attention.value_length": 128, "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.rope.dimension_count": 64, "deepseek2.expert_count": 64, "deepseek2.expert_used_count": 6,
        "deepseek2.expert_feed_forward_length": 1408, "deepseek2.expert_shared_count": 2,
        "deepseek2.leading_dense_block_count": 1, "deepseek2.vocab_size": 102_400,
    });
    let found = oomph_model::Architecture::of_gguf(&moe, &[]).unwrap();
    let named = Library::builtin().find("deepseek-v2-lite").and_then(oomph_model::Entry::architecture).unwrap();
    assert_eq!(found.parameter_count(), named.parameter_count());
}

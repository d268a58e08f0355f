//! Reads encoders of text and images: BERT and its kin, ViT, CLIP and SigLIP, and vision towers of language models.

use serde_json::Value;

use super::super::ArchitectureError;
use super::super::config::Config;
use super::decoder::{base, class, decoder, is_bare, labels};
use super::{Head, ImageInput, Kind, Norm, Positions, Transformer};

/// BERT and those that are built like it.
pub(super) fn bert(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let class = class(config).unwrap_or_default();
    let head = if class.ends_with("ForSequenceClassification") {
        Head::Classes(labels(config))
    } else if is_bare(class) {
        Head::None
    } else if class == "ElectraForPreTraining" {
        Head::Classes(1)
    } else {
        Head::MaskedLanguage
    };
    let mut model = biased(base(config, family)?);
    model.kind = Kind::Encoder;
    model.head = head;
    model.token_types = match family {
        "distilbert" => 0,
        "deberta-v2" => config.size(&["type_vocab_size"]).unwrap_or(0),
        _ => config.size(&["type_vocab_size"]).unwrap_or(2),
    };
    model.positions = Positions::Learned(model.max_positions);
    model.post_norm = true;
    model.embedding_norm = true;
    model.final_norm = false;
    model.embedding_dim = config.size(&["embedding_size"]).unwrap_or(model.hidden);
    model.exact = true;
    if family == "deberta-v2" && config.flag(&["relative_attention"]) == Some(true) {
        let buckets = config.size(&["position_buckets"]).filter(|&buckets| buckets > 0);
        let distance = config.size(&["max_relative_positions"]).filter(|&distance| distance > 0);
        model.positions = Positions::Relative(2 * buckets.or(distance).unwrap_or(model.max_positions));
        // Without a shared key every layer has projections of its own for positions.
        model.exact = config.flag(&["share_att_key"]) == Some(true)
            && config.flag(&["position_biased_input"]) == Some(false)
            && config.size(&["conv_kernel_size"]).unwrap_or(0) == 0;
    }
    Ok(model)
}

/// A stack that reads the patches of an image.
pub(super) fn image_encoder(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let mut model = biased(base(config, family)?);
    let extra_tokens = match family {
        "deit" => 2,
        "siglip_vision_model" => 0,
        _ => 1,
    };
    let image = ImageInput {
        size: config.size(&["image_size"]).unwrap_or(224),
        patch: config.needed(&["patch_size"])?,
        channels: config.size(&["num_channels"]).unwrap_or(3),
        extra_tokens,
    };
    let class = class(config).unwrap_or_default();
    model.kind = Kind::Vision;
    model.vocabulary = 0;
    model.head = match family {
        "vit" | "deit" if class.ends_with("Classification") => Head::Classes(labels(config)),
        "clip_vision_model" if class.ends_with("WithProjection") => {
            Head::Projection(config.size(&["projection_dim"]).unwrap_or(512))
        }
        // A query of its own gathers the patches.
        "siglip_vision_model" if config.flag(&["vision_use_head"]).unwrap_or(true) => Head::Projection(model.hidden),
        _ => Head::None,
    };
    if family == "dinov2" {
        model.intermediate = model.hidden.saturating_mul(config.size(&["mlp_ratio"]).unwrap_or(4));
    }
    model.max_positions = image.tokens();
    model.positions = Positions::Learned(image.tokens());
    model.image = Some(image);
    model.embedding_norm = family == "clip_vision_model";
    model.exact = family != "dinov2" || config.flag(&["use_swiglu_ffn"]) != Some(true);
    let qkv_bias = config.flag(&["qkv_bias"]).unwrap_or(true);
    model.attention_bias = qkv_bias;
    Ok(model)
}

/// CLIP's or SigLIP's reader of text.
pub(super) fn text(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let mut model = biased(base(config, family)?);
    model.kind = Kind::Encoder;
    model.positions = Positions::Learned(model.max_positions);
    model.tied_embeddings = false;
    model.exact = true;
    let projected = class(config).is_some_and(|class| class.ends_with("WithProjection"));
    model.head = match family {
        "siglip_text_model" => Head::Projection(config.size(&["projection_size"]).unwrap_or(model.hidden)),
        _ if projected => Head::Projection(config.size(&["projection_dim"]).unwrap_or(512)),
        _ => Head::None,
    };
    Ok(model)
}

/// CLIP or SigLIP: both towers, each with a projection to where they meet.
pub(super) fn pair(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let empty = Value::Object(serde_json::Map::new());
    let part = |name: &str| config.part(name).unwrap_or(&empty);
    let (text_family, vision_family) = match family {
        "clip" => ("clip_text_model", "clip_vision_model"),
        _ => ("siglip_text_model", "siglip_vision_model"),
    };
    let mut model = text(Config::of_family(part("text_config"), text_family), text_family)?;
    let mut vision = image_encoder(Config::of_family(part("vision_config"), vision_family), vision_family)?;
    if family == "clip" {
        let width = config.size(&["projection_dim"]).unwrap_or(512);
        model.head = Head::Projection(width);
        vision.head = Head::Projection(width);
    }
    if class(config) == Some("StableDiffusionSafetyChecker") {
        // It has the tower of images alone, whose results it compares with vectors of its own.
        return Ok(vision);
    }
    model.vision = Some(Box::new(vision));
    Ok(model)
}

/// A language model with a vision tower. The projector between them is the family's own.
pub(super) fn with_vision(config: Config<'_>, text: &Value) -> Result<Transformer, ArchitectureError> {
    let family = config.text(&["model_type"]).unwrap_or_default();
    let text_family = text.get("model_type").and_then(Value::as_str).unwrap_or(match family {
        "gemma3" => "gemma3_text",
        "llama4" => "llama4_text",
        "llava" => "llama",
        other => other,
    });
    // The text of Qwen's vision models is a Qwen 2.
    let text_family = if matches!(text_family, "qwen2_5_vl" | "qwen2_5_vl_text") { "qwen2" } else { text_family };
    let mut model = decoder(Config::of_family(text, text_family), text_family)?;
    // A tie may be in either place.
    if let Some(tied) = config.json().get("tie_word_embeddings").and_then(Value::as_bool) {
        model.tied_embeddings = tied;
    }
    let Some(vision) = config.part("vision_config") else { return Ok(model) };
    let vision_family = vision.get("model_type").and_then(Value::as_str).unwrap_or(match family {
        "gemma3" => "siglip_vision_model",
        "llama4" => "llama4_vision_model",
        "llava" => "clip_vision_model",
        _ => "",
    });
    let reader = Config::of_family(vision, vision_family);
    let tower = match vision_family {
        "siglip_vision_model" | "clip_vision_model" => Some(image_encoder(reader, vision_family)?),
        "llama4_vision_model" => Some(llama4(reader)?),
        _ if family == "qwen2_5_vl" => Some(qwen(reader)?),
        _ => None,
    };
    // Towers of other kinds are not described; what a file holds of them is counted from its weights.
    model.exact = model.exact && tower.is_some();
    model.vision = tower.map(Box::new);
    Ok(model)
}

/// Llama 4's tower: its adapter shuffles pixels into wider tokens, whose width is `intermediate`, and ends in
/// `embedding_dim`.
fn llama4(config: Config<'_>) -> Result<Transformer, ArchitectureError> {
    let mut model = biased(base(config, "llama4_vision_model")?);
    let image = ImageInput {
        size: config.size(&["image_size"]).unwrap_or(448),
        patch: config.needed(&["patch_size"])?,
        channels: config.size(&["num_channels"]).unwrap_or(3),
        extra_tokens: 1,
    };
    model.kind = Kind::Vision;
    model.vocabulary = 0;
    model.head = Head::Projection(config.needed(&["projector_input_dim"])?);
    model.embedding_dim = config.needed(&["vision_output_dim"])?;
    model.max_positions = image.tokens();
    model.positions = Positions::Learned(image.tokens());
    model.image = Some(image);
    model.embedding_norm = true;
    model.exact = true;
    Ok(model)
}

/// The tower of Qwen 2.5 VL, which merges four patches into one token.
fn qwen(config: Config<'_>) -> Result<Transformer, ArchitectureError> {
    let layers = config.layers(&["depth"])?;
    let heads = config.needed(&["num_heads"])?;
    let hidden = config.needed(&["hidden_size"])?;
    let shape = serde_json::json!({ "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads });
    let mut model = base(Config::of_family(&shape, ""), "qwen2_5_vl")?;
    model.kind = Kind::Vision;
    model.head = Head::None;
    model.intermediate = config.needed(&["intermediate_size"])?;
    (model.attention_bias, model.output_bias, model.mlp_bias) = (true, true, true);
    model.final_norm = false;
    let patch = config.needed(&["patch_size"])?;
    // Images come in any size; this is the side of a common one.
    model.image = Some(ImageInput { size: 448, patch, channels: 3, extra_tokens: 0 });
    model.sliding_window = config.size(&["window_size"]);
    model.exact = true;
    Ok(model)
}

/// The habits that all of these share.
fn biased(mut model: Transformer) -> Transformer {
    model.norm = Norm::Layer;
    model.norm_bias = true;
    model.gated_mlp = false;
    (model.attention_bias, model.output_bias, model.mlp_bias) = (true, true, true);
    model
}

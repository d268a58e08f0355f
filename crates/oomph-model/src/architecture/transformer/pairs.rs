//! Reads encoders with a decoder: T5, BART, Whisper.

use super::super::ArchitectureError;
use super::super::config::Config;
use super::decoder::{base, class};
use super::{AudioInput, Head, Kind, Norm, Positions, Transformer};

/// T5, mT5 and UMT5; only the encoder where the class says so.
pub(super) fn t5(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let mut decoder = base(config, family)?;
    // `feed_forward_proj` is an activation, preceded by `gated-` where there is a gate.
    let projection = config.text(&["feed_forward_proj"]).unwrap_or("relu");
    decoder.gated_mlp = projection.starts_with("gated-");
    projection.trim_start_matches("gated-").clone_into(&mut decoder.activation);
    decoder.positions = Positions::Buckets(config.size(&["relative_attention_num_buckets"]).unwrap_or(32));
    decoder.norms_per_layer = 3;
    decoder.cross_attention = true;
    decoder.exact = true;
    let mut encoder = Transformer {
        kind: Kind::Encoder,
        head: Head::None,
        norms_per_layer: 2,
        cross_attention: false,
        ..decoder.clone()
    };
    if class(config).is_some_and(|class| class.contains("EncoderModel")) {
        return Ok(encoder);
    }
    decoder.layers = match config.size(&["num_decoder_layers"]) {
        Some(_) => config.layers(&["num_decoder_layers"])?,
        None => decoder.layers,
    };
    // The embedding is the decoder's.
    encoder.vocabulary = 0;
    decoder.encoder = Some(Box::new(encoder));
    Ok(decoder)
}

/// BART, mBART and Pegasus.
pub(super) fn bart(config: Config<'_>, family: &str) -> Result<Transformer, ArchitectureError> {
    let mut decoder = side(config, family, "decoder")?;
    let rows = match family {
        // The first two rows stand for padding.
        "bart" | "mbart" => Positions::Learned(decoder.max_positions.saturating_add(2)),
        _ => Positions::Fixed(decoder.max_positions),
    };
    let mut encoder =
        Transformer { head: Head::None, vocabulary: 0, kind: Kind::Encoder, ..side(config, family, "encoder")? };
    for stack in [&mut decoder, &mut encoder] {
        stack.positions = rows;
        stack.embedding_norm = family != "pegasus";
        stack.final_norm = family != "bart";
        stack.post_norm = family == "bart";
    }
    decoder.cross_attention = true;
    decoder.norms_per_layer = 3;
    decoder.encoder = Some(Box::new(encoder));
    Ok(decoder)
}

/// Whisper: sound in, text out.
pub(super) fn whisper(config: Config<'_>) -> Result<Transformer, ArchitectureError> {
    let mut decoder = side(config, "whisper", "decoder")?;
    let mut encoder =
        Transformer { head: Head::None, vocabulary: 0, kind: Kind::Audio, ..side(config, "whisper", "encoder")? };
    decoder.max_positions = config.size(&["max_target_positions"]).unwrap_or(448);
    decoder.positions = Positions::Learned(decoder.max_positions);
    decoder.cross_attention = true;
    decoder.norms_per_layer = 3;
    encoder.max_positions = config.size(&["max_source_positions"]).unwrap_or(1500);
    encoder.positions = Positions::Fixed(encoder.max_positions);
    let mel_bins = config.size(&["num_mel_bins"]).unwrap_or(80);
    encoder.audio = Some(AudioInput { mel_bins, positions: encoder.max_positions });
    decoder.encoder = Some(Box::new(encoder));
    Ok(decoder)
}

/// One side, whose counts have its name before them in the configuration.
fn side(config: Config<'_>, family: &str, side: &str) -> Result<Transformer, ArchitectureError> {
    let named = |rest: &str| format!("{side}_{rest}");
    let hidden = config.needed(&["d_model"])?;
    let heads = config.needed(&[&named("attention_heads")])?;
    let layers = config.layers(&[&named("layers")])?;
    // What `base` would look for under other names is put there for it.
    let shape = serde_json::json!({ "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads });
    let shape = base(Config::of_family(&shape, ""), family)?;
    Ok(Transformer {
        intermediate: config.size(&[&named("ffn_dim")]).unwrap_or(hidden * 4),
        gated_mlp: false,
        activation: config.text(&["activation_function"]).unwrap_or("gelu").to_owned(),
        vocabulary: config.size(&["vocab_size"]).unwrap_or(0),
        tied_embeddings: config.flag(&["tie_word_embeddings"]).unwrap_or(true),
        max_positions: config.size(&["max_position_embeddings"]).unwrap_or(1024),
        norm: Norm::Layer,
        norm_bias: true,
        attention_bias: true,
        output_bias: true,
        mlp_bias: true,
        attention_dropout: config.float(&["attention_dropout"]).unwrap_or(0.0),
        hidden_dropout: config.float(&["dropout"]).unwrap_or(0.0),
        exact: true,
        ..shape
    })
}

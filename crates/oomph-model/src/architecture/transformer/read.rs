//! Reads a [`Transformer`] from `config.json` of transformers.

use super::super::ArchitectureError;
use super::super::config::Config;
use super::decoder::{class, decoder, is_bare, labels};
use super::{Head, Kind, Transformer, pairs, towers};

/// Reads a configuration of any model type.
pub(in super::super) fn transformer(config: Config<'_>) -> Result<Transformer, ArchitectureError> {
    let family = config.text(&["model_type"]).unwrap_or_default();
    let mut model = match family {
        "t5" | "mt5" | "umt5" => pairs::t5(config, family)?,
        "bart" | "mbart" | "pegasus" => pairs::bart(config, family)?,
        "whisper" => pairs::whisper(config)?,
        "bert" | "roberta" | "xlm-roberta" | "electra" | "deberta-v2" | "distilbert" | "albert" => {
            towers::bert(config, family)?
        }
        "vit" | "deit" | "dinov2" => towers::image_encoder(config, family)?,
        "clip" | "siglip" => towers::pair(config, family)?,
        "clip_text_model" | "siglip_text_model" => towers::text(config, family)?,
        "clip_vision_model" | "siglip_vision_model" => towers::image_encoder(config, family)?,
        _ => match config.part("text_config") {
            Some(text) => towers::with_vision(config, text)?,
            // Files of earlier versions have the text's settings at the same level as the tower's.
            None if config.part("vision_config").is_some() && config.size(&["hidden_size"]).is_some() => {
                towers::with_vision(config, config.json())?
            }
            None => decoder(config, family)?,
        },
    };
    model.class = class(config).unwrap_or_default().to_owned();
    if model.kind == Kind::Decoder && model.class.ends_with("ForSequenceClassification") {
        model.head = Head::Classes(labels(config));
    } else if model.kind == Kind::Decoder && is_bare(&model.class) && model.encoder.is_none() {
        model.head = Head::None;
    }
    Ok(model)
}

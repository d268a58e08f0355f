//! What `oomph plan` and the readers of recordings take: names of optimizers and quantizations, sides of images, moments.

use oomph_explain::snapshot::At;
use oomph_model::gguf::Recipe;
use oomph_plan::Optimizer;
use oomph_report::clean;

use crate::failure::Hinted;

/// The sides that an image may have, in pixels.
const SIDES: std::ops::RangeInclusive<u64> = 8..=65_536;

/// A moment of a recording.
///
/// # Errors
/// When it is not one.
pub fn moment(_option: &str, text: &str) -> Result<At, Hinted> {
    text.parse().map_err(|error: <At as std::str::FromStr>::Err| {
        Hinted::new(error.to_string(), "the default is oom, or peak where there was none")
    })
}

/// An optimizer, by its name here or in a framework.
///
/// # Errors
/// When it is not known.
pub fn optimizer(_option: &str, name: &str) -> Result<Optimizer, Hinted> {
    let wanted = name.trim().to_ascii_lowercase().replace('_', "-");
    let wanted = match wanted.as_str() {
        "adamw" | "adam" | "adamw-torch" | "adamw-torch-fused" => "adamw-fused",
        "adam-8bit" | "adamw-bnb-8bit" => "adamw-8bit",
        "adam-4bit" | "adamw-torch-4bit" => "adamw-4bit",
        other => other,
    };
    let found = Optimizer::ALL.iter().find(|(_, known)| *known == wanted).map(|(optimizer, _)| *optimizer);
    found.ok_or_else(|| {
        let names: Vec<&str> = Optimizer::ALL.iter().map(|(_, name)| *name).collect();
        Hinted::new(format!("there is no optimizer `{}` here", clean(name)), format!("one of {}", names.join(", ")))
    })
}

/// A quantization of GGUF files.
///
/// # Errors
/// When it is not known.
pub fn recipe(_option: &str, name: &str) -> Result<Recipe, Hinted> {
    Recipe::named(name.trim()).ok_or_else(|| {
        let names: Vec<&str> = Recipe::all().map(|recipe| recipe.name).collect();
        Hinted::new(
            format!("there is no GGUF quantization `{}` here", clean(name)),
            format!("one of {}", names.join(", ")),
        )
    })
}

/// Width and height: one number for both, or `WIDTHxHEIGHT`.
///
/// # Errors
/// When it is neither, or a side is too short or too long.
pub fn resolution(option: &str, text: &str) -> Result<(u64, u64), Hinted> {
    let (width, height) = text.split_once(['x', 'X']).unwrap_or((text, text));
    let side = |text: &str| text.trim().parse::<u64>().ok().filter(|side| SIDES.contains(side));
    side(width).zip(side(height)).ok_or_else(|| {
        Hinted::new(
            format!("`{}` is not a resolution", clean(text)),
            format!("write {option} 1024 or {option} 1216x832"),
        )
    })
}

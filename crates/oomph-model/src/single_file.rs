//! Splits checkpoints that hold a whole pipeline in one file, as Stable Diffusion's first programs wrote them: the
//! names of the tensors show which network each belongs to.

use crate::{Component, Tensor};

/// Where the names of a network begin in such files, and the name of the network in a pipeline of diffusers.
const PREFIXES: &[(&str, &str)] = &[
    ("model.diffusion_model.", "unet"),
    ("first_stage_model.", "vae"),
    ("cond_stage_model.", "text_encoder"),
    ("conditioner.embedders.0.", "text_encoder"),
    ("conditioner.embedders.1.", "text_encoder_2"),
    ("text_encoders.clip_l.", "text_encoder"),
    ("text_encoders.clip_g.", "text_encoder_2"),
    ("text_encoders.t5xxl.", "text_encoder_3"),
    ("control_model.", "controlnet"),
    ("model_ema.", "ema"),
    ("vae.", "vae"),
];

/// The networks in a file: those of a pipeline where there is one, else all tensors as one network.
pub(crate) fn components(tensors: Vec<Tensor>) -> Vec<Component> {
    let network =
        |name: &str| PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, network)| *network);
    let is_pipeline = tensors.iter().any(|tensor| matches!(network(&tensor.name), Some("unet" | "controlnet")));
    if !is_pipeline {
        return vec![Component { name: "model".into(), tensors, ..Component::default() }];
    }
    let joint = tensors.iter().any(|tensor| tensor.name.contains("diffusion_model.joint_blocks."))
        || tensors.iter().any(|tensor| tensor.name.contains("diffusion_model.double_blocks."));
    let mut components: Vec<Component> = Vec::new();
    for tensor in tensors {
        let name = match network(&tensor.name) {
            // Later pipelines have a transformer where the first ones have a UNet.
            Some("unet") if joint => "transformer",
            Some(name) => name,
            // Schedules and the like: a few numbers that no network holds.
            None => "other",
        };
        match components.iter_mut().find(|component| component.name == name) {
            Some(component) => component.tensors.push(tensor),
            None => components.push(Component { name: name.into(), tensors: vec![tensor], ..Component::default() }),
        }
    }
    components
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn a_pipeline_in_one_file_is_taken_apart() {
        let tensor = |name: &str| Tensor { name: name.into(), dtype: Dtype::Float16, shape: vec![2], bytes: 4 };
        let names = [
            "alphas_cumprod",
            "model.diffusion_model.input_blocks.0.0.weight",
            "model.diffusion_model.out.2.weight",
            "first_stage_model.encoder.conv_in.weight",
            "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight",
        ];
        let found = components(names.iter().map(|name| tensor(name)).collect());
        let found: Vec<(&str, u64)> = found.iter().map(|part| (part.name.as_str(), part.elements())).collect();
        assert_eq!(found, [("other", 2), ("unet", 4), ("vae", 2), ("text_encoder", 2)]);
        let flux = components(vec![tensor("model.diffusion_model.double_blocks.0.img_mod.lin.weight")]);
        assert_eq!(flux[0].name, "transformer");
        let plain = components(vec![tensor("model.layers.0.mlp.up_proj.weight"), tensor("vae.x")]);
        assert_eq!((plain.len(), plain[0].name.as_str()), (1, "model"));
    }
}

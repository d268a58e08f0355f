//! Decides where the graph API's answers come from: the real library, or the model where no library answers without a
//! GPU.
#![deny(unsafe_code)]

use super::card;
use crate::gpu::gpu;
use crate::libcudnn::{Source, real};

/// Leaves a sentence for the report.
pub fn warn(sentence: &str) {
    gpu().warn(sentence);
}

/// Decides where answers come from, once: descriptors of the two sources cannot be mixed.
pub fn source() -> Source {
    let libraries = &gpu().cudnn.libraries;
    *gpu().cudnn.source.get_or_init(|| {
        let Some(real) = libraries.asked(warn) else {
            let why = match libraries.users(warn) {
                Some(own) => format!("cuDNN {} cannot be asked without a GPU (9.8 and newer can)", spoken(own.version)),
                None => "no libcudnn was found to be asked".to_owned(),
            };
            warn(&format!(
                "{why}, so convolution workspaces are modelled: from 0 up to a copy of the tensors in channels-last order"
            ));
            return Source::Model;
        };
        // A card that the library refuses is found out now, while the model can still take over.
        if let Some(card) = card::current()
            && let Err(why) = real::describe(real, &card)
        {
            warn(&format!(
                "cuDNN {} does not know {} ({why}), so convolution workspaces are modelled",
                spoken(real.version),
                card.name
            ));
            return Source::Model;
        }
        if let Some(own) = libraries.users(warn).filter(|own| own.version != real.version) {
            warn(&format!(
                "cuDNN {} cannot be asked without a GPU, so {} was asked for the workspaces of convolutions",
                spoken(own.version),
                spoken(real.version)
            ));
        }
        Source::Real(real)
    })
}

/// A version number as people write it.
fn spoken(version: usize) -> String {
    if version >= 90_000 {
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    } else {
        format!("{}.{}.{}", version / 1000, version / 100 % 10, version % 100)
    }
}

//! Predicts the type of each tensor in a file that llama.cpp quantizes under a name such as `Q4_K_M`, without an
//! importance matrix.
//!
//! The rules are those of `llama_tensor_get_type` in llama.cpp's `llama-quant.cpp`, for dense models of the Llama kind:
//! some tensors of some layers have more bits than the name says.

use super::types::{TYPES, TensorType};
use crate::architecture::{Architecture, Form, Parameter, Role, Transformer};

/// The names that are known, and the type that most tensors have.
const RECIPES: &[(&str, &str)] = &[
    ("F32", "f32"),
    ("F16", "f16"),
    ("BF16", "bf16"),
    ("Q2_K", "q2_K"),
    ("Q3_K_S", "q3_K"),
    ("Q3_K_M", "q3_K"),
    ("Q3_K_L", "q3_K"),
    ("Q4_0", "q4_0"),
    ("Q4_1", "q4_1"),
    ("Q4_K_S", "q4_K"),
    ("Q4_K_M", "q4_K"),
    ("Q5_0", "q5_0"),
    ("Q5_1", "q5_1"),
    ("Q5_K_S", "q5_K"),
    ("Q5_K_M", "q5_K"),
    ("Q6_K", "q6_K"),
    ("Q8_0", "q8_0"),
    ("IQ4_NL", "iq4_nl"),
    ("IQ4_XS", "iq4_xs"),
];

/// A named way to quantize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Its name as llama.cpp writes it.
    pub name: &'static str,
    usual: &'static str,
}

impl Recipe {
    /// The recipe of a name, whatever the case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let found = RECIPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|&(name, usual)| Self { name, usual })
    }

    /// All recipes.
    pub fn all() -> impl Iterator<Item = Self> {
        RECIPES.iter().map(|&(name, usual)| Self { name, usual })
    }

    /// The type that this parameter has in a file of this model.
    #[must_use]
    pub fn kind(&self, parameter: &Parameter, model: &Transformer) -> TensorType {
        // Vectors, routers and whatever has no rows to take blocks from stay floats.
        let matrix = matches!(parameter.form, Form::Linear | Form::Table)
            || (parameter.role == Role::Expert && parameter.shape.len() == 3);
        let row = parameter.shape.last().copied().unwrap_or(0);
        if !matrix || parameter.role == Role::Router {
            return of_name("f32");
        }
        let kind = of_name(self.matrix(parameter, model));
        if row.is_multiple_of(kind.block) {
            return kind;
        }
        // Rows that do not fill blocks of 256 have a type of blocks of 32 instead.
        let narrow = of_name(match kind.name {
            "q2_K" | "q3_K" | "iq4_xs" => "iq4_nl",
            "q4_K" => "q5_0",
            "q5_K" => "q5_1",
            _ => "q8_0",
        });
        if row.is_multiple_of(narrow.block) { narrow } else { of_name("f16") }
    }

    fn matrix(&self, parameter: &Parameter, model: &Transformer) -> &'static str {
        let floats = matches!(self.usual, "f32" | "f16" | "bf16" | "q8_0");
        let output = parameter.role == Role::Head || (parameter.form == Form::Table && model.tied_embeddings);
        if output {
            return if floats { self.usual } else { "q6_K" };
        }
        let (layer, layers) = (parameter.layer.unwrap_or(0), model.layers);
        // The first and the last eighth of the layers, and every third between them.
        let more = layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
        let ends = |names: &[&str]| names.iter().any(|name| parameter.name.ends_with(name));
        let grouped = model.heads >= 4 * model.kv_heads.max(1);
        if ends(&["v_proj.weight"]) {
            return match self.name {
                "Q2_K" => {
                    if grouped {
                        "q4_K"
                    } else {
                        "q3_K"
                    }
                }
                "Q3_K_M" => {
                    if layer < 2 {
                        "q5_K"
                    } else {
                        "q4_K"
                    }
                }
                "Q3_K_L" => "q5_K",
                "Q4_K_M" | "Q5_K_M" if more => "q6_K",
                "Q4_K_S" if layer < 4 => "q5_K",
                // A model of 80 layers shares a value among eight queries, and can afford more bits for it.
                "Q3_K_S" | "Q4_K_M" | "Q4_K_S" if layers == 80 && grouped => "q5_K",
                _ => self.usual,
            };
        }
        if ends(&["down_proj.weight", "down_proj"]) {
            return match self.name {
                "Q2_K" => "q3_K",
                "Q3_K_M" => {
                    if layer < layers / 16 {
                        "q5_K"
                    } else {
                        "q4_K"
                    }
                }
                "Q3_K_L" => "q5_K",
                "Q4_K_M" | "Q5_K_M" if more => "q6_K",
                "Q4_K_S" if layer < layers / 8 => "q5_K",
                _ => self.usual,
            };
        }
        if ends(&["o_proj.weight"]) {
            return match self.name {
                "Q2_K" => "q3_K",
                "Q3_K_M" => "q4_K",
                "Q3_K_L" => "q5_K",
                _ => self.usual,
            };
        }
        self.usual
    }

    /// Bytes of all tensors in a file of this model, without its header.
    #[must_use]
    pub fn bytes(&self, model: &Transformer) -> u64 {
        let parameters = Architecture::Transformer(Box::new(model.clone())).parameters();
        let stored = parameters.iter().filter(|parameter| !parameter.is_buffer());
        stored.fold(0, |sum: u64, parameter| {
            let kind = self.kind(parameter, model);
            sum.saturating_add(kind.bytes(parameter.elements()).unwrap_or(u64::MAX))
        })
    }
}

/// A type by its name, which every caller takes from the table.
fn of_name(name: &str) -> TensorType {
    TYPES.iter().copied().find(|kind| kind.name == name).unwrap_or(TYPES[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Library;

    /// Lengths of the published files of Llama 2 7B. What the tensors leave is the header, which is the same in all of
    /// them, but for a few bytes of the recipe's name and of alignment.
    #[test]
    fn ten_quantizations_have_the_length_of_the_published_files() {
        let architecture = Library::builtin().find("llama-2-7b").and_then(crate::Entry::architecture).unwrap();
        let model = architecture.transformer().unwrap();
        for (name, length) in [
            ("Q3_K_S", 2_948_304_576_u64),
            ("Q3_K_M", 3_298_004_672),
            ("Q3_K_L", 3_597_110_976),
            ("Q4_0", 3_825_806_912),
            ("Q4_K_S", 3_856_739_904),
            ("Q4_K_M", 4_081_004_224),
            ("Q5_0", 4_651_691_712),
            ("Q5_K_S", 4_651_691_712),
            ("Q5_K_M", 4_783_156_928),
            ("Q6_K", 5_529_194_176),
            ("Q8_0", 7_161_089_728),
        ] {
            let header = length as i64 - Recipe::named(name).unwrap().bytes(model) as i64;
            assert!((740_928..=741_056).contains(&header), "{name}: {header} bytes of header");
        }
    }

    #[test]
    fn grouped_queries_and_rows_that_fill_no_block_are_known() {
        let of = |name| Library::builtin().find(name).and_then(crate::Entry::architecture).unwrap();
        let llama = of("llama-3.1-8b");
        let bytes = Recipe::named("q4_k_m").unwrap().bytes(llama.transformer().unwrap());
        // 4.58 GiB, 4.89 bits per weight, as llama.cpp's documentation gives it.
        let bits = bytes as f64 * 8.0 / llama.parameter_count() as f64;
        assert!((bits - 4.89).abs() < 0.02, "{bits}");
        // 896 features are not a multiple of 256.
        let small = of("qwen2.5-0.5b");
        let model = small.transformer().unwrap();
        let query = small.parameters().into_iter().find(|one| one.name.ends_with("q_proj.weight")).unwrap();
        assert_eq!(Recipe::named("Q4_K_M").unwrap().kind(&query, model).name, "q5_0");
    }
}

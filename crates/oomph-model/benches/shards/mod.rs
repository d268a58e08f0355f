//! A large model on disk that is mostly holes.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use oomph_model::Resolver;

/// A folder like that of Llama 3.1 405B: 150 shards with 1,138 tensors, of which the headers take room on disk.
pub fn write(folder: &Path) {
    const SHARDS: usize = 150;
    let entry = Resolver::offline().library.find("llama-3.1-405b").expect("a built-in name");
    let parameters = entry.architecture().expect("a known architecture").parameters();
    let trained: Vec<_> = parameters.iter().filter(|parameter| !parameter.is_buffer()).collect();
    let mut map = String::new();
    for (index, shard) in trained.chunks(trained.len().div_ceil(SHARDS)).enumerate() {
        let name = format!("model-{:05}-of-{SHARDS:05}.safetensors", index + 1);
        let (mut header, mut at) = (String::from("{"), 0);
        for parameter in shard {
            let end = at + parameter.elements() * 2;
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(
                header,
                r#"{comma}"{}":{{"dtype":"BF16","shape":{:?},"data_offsets":[{at},{end}]}}"#,
                parameter.name, parameter.shape
            );
            let _ = write!(map, r#"{}"{}":"{name}""#, if map.is_empty() { "" } else { "," }, parameter.name);
            at = end;
        }
        header.push('}');
        let mut file = File::create(folder.join(name)).expect("a file in a temporary folder");
        file.write_all(&(header.len() as u64).to_le_bytes()).expect("its length");
        file.write_all(header.as_bytes()).expect("its header");
        file.set_len(8 + header.len() as u64 + at).expect("a hole for its weights");
    }
    fs::write(folder.join("model.safetensors.index.json"), format!(r#"{{"weight_map":{{{map}}}}}"#)).expect("an index");
    let config = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":16384,
        "intermediate_size":53248,"num_hidden_layers":126,"num_attention_heads":128,"num_key_value_heads":8,
        "vocab_size":128256,"max_position_embeddings":131072,"torch_dtype":"bfloat16"}"#;
    fs::write(folder.join("config.json"), config).expect("a configuration");
}

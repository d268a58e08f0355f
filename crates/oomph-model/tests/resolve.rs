//! Names to models: the local cache, a hub (a server in this process), built-in names, and what is said where there is
//! none.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use oomph_model::{Answer, Http, Layout, Library, Network, NetworkError, Resolver};

/// A header of one bfloat16 tensor, and the bytes that it describes.
fn weights(name: &str, shape: &[u64]) -> Vec<u8> {
    let bytes = shape.iter().product::<u64>() * 2;
    let header = format!(r#"{{"{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[0,{bytes}]}}}}"#);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + bytes as usize, 0);
    file
}

const CONFIG: &str = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":1,"hidden_size":8,
    "intermediate_size":16,"num_attention_heads":2,"vocab_size":10,"dtype":"bfloat16"}"#;

/// A server of files that knows ranges. Gives its address and the log of what was asked for.
fn serve(files: HashMap<&'static str, Vec<u8>>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let log = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&log);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut range) = (String::new(), None);
            reader.read_line(&mut first).unwrap();
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
                    let (start, end) = value.trim().split_once('-').unwrap();
                    range = Some((start.parse::<usize>().unwrap(), end.parse::<usize>().unwrap()));
                }
                line.clear();
            }
            let path = first.split(' ').nth(1).unwrap().to_owned();
            written.lock().unwrap().push(format!("{path} {range:?}"));
            let answer = match files.get(path.as_str()) {
                None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
                Some(file) => {
                    let (start, end) = range.unwrap();
                    let end = (end + 1).min(file.len());
                    let head = format!(
                        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{}\r\n\
                         Connection: close\r\n\r\n",
                        end - start,
                        end - 1,
                        file.len()
                    );
                    [head.as_bytes(), &file[start..end]].concat()
                }
            };
            let _ = stream.write_all(&answer);
        }
    });
    (address, log)
}

#[test]
fn a_hubs_model_is_known_from_its_headers() {
    let large = weights("model.embed_tokens.weight", &[3000, 1000]);
    let size = large.len();
    let index = br#"{"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}}"#.to_vec();
    let (endpoint, log) = serve(HashMap::from([
        ("/org/model/resolve/main/config.json", CONFIG.as_bytes().to_vec()),
        ("/org/model/resolve/main/model.safetensors.index.json", index),
        ("/org/model/resolve/main/model-1.safetensors", large),
        ("/org/model/resolve/main/model-2.safetensors", weights("lm_head.weight", &[10, 8])),
    ]));
    let http = Http::default();
    let resolver = Resolver { cache: None, network: Some(&http), endpoint, library: Library::builtin() };
    let model = resolver.resolve("org/model").unwrap();
    assert_eq!(model.components[0].bytes(), 2 * (3000 * 1000 + 10 * 8));
    assert_eq!(model.components[0].architecture.as_ref().unwrap().transformer().unwrap().layers, 1);
    // 6 MB of weights stay where they are.
    let asked = log.lock().unwrap().join("\n");
    assert!(size > 5_000_000 && asked.contains("model-1.safetensors Some((0, 65535))"), "{asked}");

    let error = resolver.resolve("org/absent").unwrap_err().to_string();
    assert!(error.contains("404") && !error.contains('\n'), "{error}");
}

#[test]
fn without_a_hub_a_name_is_looked_for_in_what_is_built_in() {
    struct Dead;
    impl Network for Dead {
        fn get(&self, _: &str, _: u64, _: u64) -> Result<Answer, NetworkError> {
            Err(NetworkError::Unreachable("no route".into()))
        }
    }
    let endpoint = "http://hub.invalid".to_owned();
    let resolver = Resolver { cache: None, network: Some(&Dead), endpoint, library: Library::builtin() };
    let model = resolver.resolve("meta-llama/Meta-Llama-3-8B").unwrap();
    assert_eq!((model.layout, model.components[0].bytes() / 1_000_000), (Layout::BuiltIn, 16_060));
    let error = resolver.resolve("meta-lama/Lama-3-8").unwrap_err().to_string();
    assert!(error.contains("no route") && error.contains("llama-3-8b") && !error.contains('\n'), "{error}");
}

#[test]
fn the_local_cache_comes_before_everything_that_is_built_in() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("models--meta-llama--Meta-Llama-3-8B");
    for (commit, vocabulary) in [("aaa", "10"), ("bbb", "20")] {
        let snapshot = folder.join("snapshots").join(commit);
        fs::create_dir_all(&snapshot).unwrap();
        fs::write(
            snapshot.join("config.json"),
            CONFIG.replace("\"vocab_size\":10", &format!("\"vocab_size\":{vocabulary}")),
        )
        .unwrap();
    }
    let resolver = Resolver { cache: Some(cache.path().to_owned()), ..Resolver::offline() };
    let vocabulary = || {
        let model = resolver.resolve("meta-llama/Meta-Llama-3-8B").unwrap();
        assert_eq!(model.name, "meta-llama/Meta-Llama-3-8B");
        model.components[0].architecture.as_ref().unwrap().transformer().unwrap().vocabulary
    };
    // Without a reference any snapshot is as good as another; with one it counts.
    assert_eq!(vocabulary(), 20);
    fs::create_dir(folder.join("refs")).unwrap();
    fs::write(folder.join("refs/main"), "aaa\n").unwrap();
    assert_eq!(vocabulary(), 10);
    // A reference must stay in the folder.
    fs::write(folder.join("refs/main"), "../../..").unwrap();
    assert_eq!(vocabulary(), 20);
}

#[test]
fn a_pipeline_in_one_file_is_recognised_by_its_counts() {
    let unet = Library::builtin().model("sd-1.5").unwrap().components.remove(0);
    // Names of the file's own, and the sizes of the network's.
    let mut header = String::from("{");
    for (index, tensor) in unet.tensors.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let shape = &tensor.shape;
        let bytes = tensor.elements() * 2;
        header += &format!(
            r#"{comma}"model.diffusion_model.{index}.weight":{{"dtype":"F16","shape":{shape:?},"data_offsets":[0,{bytes}]}}"#
        );
    }
    header.push('}');
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v1-5.safetensors");
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()).unwrap();
    let model = Resolver::offline().resolve(path.to_str().unwrap()).unwrap();
    assert_eq!(model.components[0].name, "unet");
    assert_eq!(model.components[0].architecture, unet.architecture);
    let mut start = [0; 8];
    fs::File::open(&path).unwrap().read_exact(&mut start).unwrap();
    assert_eq!(u64::from_le_bytes(start), header.len() as u64);
}

#[test]
fn a_name_is_known_in_any_spelling() {
    let library = Library::builtin();
    let named = |name: &str| library.model(name).map(|model| model.name).unwrap_or_default();
    for (name, wanted) in [
        ("flux-1-dev", "flux.1-dev"),
        ("FLUX_1_DEV", "flux.1-dev"),
        ("sd-1-5", "sd-1.5"),
        ("Llama3.1-8B", "llama-3.1-8b"),
        ("llama3.1:8b", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "llama-3.1-8b"),
        ("TheBloke/Llama-2-7B-GPTQ", "llama-2-7b"),
        ("LLAMA_2_7B_HF", "llama-2-7b"),
    ] {
        assert_eq!(named(name), wanted, "{name}");
    }
    for name in ["llama-99b", "llama", "", "-hf", "flux.1-dev-awq"] {
        assert_eq!(named(name), "", "{name}");
    }
    // No spelling of one model is that of another.
    for entry in library.entries() {
        for name in std::iter::once(&entry.name).chain(&entry.aliases) {
            assert_eq!(library.find(name).map(|found| &found.name), Some(&entry.name), "{name}");
            let loose = name.to_uppercase().replace(['-', '.'], "_");
            assert_eq!(library.find(&loose).map(|found| &found.name), Some(&entry.name), "{loose}");
        }
    }
}

#[test]
fn a_quantized_copy_is_as_its_name_says() {
    let model = |name: &str| Library::builtin().model(name).unwrap();
    let awq = model("Qwen/Qwen2.5-7B-Instruct-AWQ");
    let quantization = awq.components[0].quantization().unwrap();
    assert_eq!((quantization.method, quantization.bits), (oomph_model::Method::Awq, 4.0));
    assert!(awq.notes[0].contains("AWQ") && awq.notes[0].contains("not read"), "{:?}", awq.notes);
    assert!(model("qwen2.5-7b").components[0].quantization().is_none());
    let eight = model("TheBloke/Llama-2-7B-GPTQ-Int8");
    assert_eq!(eight.components[0].quantization().unwrap().bits, 8.0);
    // A GGUF file of no known quantization is the model itself, with a word on it.
    let file = model("TheBloke/Llama-2-7B-GGUF");
    assert!(file.components[0].quantization().is_none() && file.notes[0].contains("--gguf"), "{:?}", file.notes);
}

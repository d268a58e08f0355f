//! The frameworks whose settings a remedy can be written in: libraries, launchers, applications and the machine itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How far a framework's user can change what runs, which decides whose words are offered as a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The user writes code against it, so the words of the libraries beneath it apply too.
    Library,
    /// The user starts a finished program: flags, configuration keys and environment variables only.
    Application,
    /// Where the program runs, which says nothing about who wrote it.
    Place,
}

macro_rules! frameworks {
    ($($variant:ident $name:literal $title:literal $reach:ident [$($below:ident),*];)*) => {
        /// A library, launcher or application for which remedies are written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum Framework {
            $(
                #[doc = $title]
                #[serde(rename = $name)]
                $variant,
            )*
        }

        impl Framework {
            /// Every framework, in the order of the table.
            pub const ALL: &[Framework] = &[$(Framework::$variant),*];

            /// The name that the data files use, for example `llama-cpp`.
            pub fn name(self) -> &'static str {
                match self { $(Framework::$variant => $name,)* }
            }

            /// The name that people read, for example `llama.cpp`.
            pub fn title(self) -> &'static str {
                match self { $(Framework::$variant => $title,)* }
            }

            /// Whether its user writes code, starts a finished program, or only runs it there.
            pub fn reach(self) -> Reach {
                match self { $(Framework::$variant => Reach::$reach,)* }
            }

            /// The frameworks beneath it, nearest first, whose words may be used where it has none of its own.
            pub fn below(self) -> &'static [Framework] {
                match self { $(Framework::$variant => &[$(Framework::$below),*],)* }
            }
        }
    };
}

frameworks! {
    Pytorch "pytorch" "PyTorch" Library [];
    Transformers "transformers" "Transformers" Library [Pytorch];
    Trl "trl" "TRL" Library [Transformers, Pytorch];
    Peft "peft" "PEFT" Library [Transformers, Pytorch];
    Accelerate "accelerate" "Accelerate" Library [Pytorch];
    Deepspeed "deepspeed" "DeepSpeed" Library [Pytorch];
    Fsdp "fsdp" "FSDP" Library [Pytorch];
    Megatron "megatron" "Megatron-LM" Application [Pytorch];
    Bitsandbytes "bitsandbytes" "bitsandbytes" Library [Transformers, Pytorch];
    Unsloth "unsloth" "Unsloth" Library [Trl, Transformers, Pytorch];
    Torchtune "torchtune" "torchtune" Application [Pytorch];
    Lightning "lightning" "Lightning" Library [Pytorch];
    Axolotl "axolotl" "Axolotl" Application [Pytorch];
    LlamaFactory "llama-factory" "LLaMA-Factory" Application [Pytorch];
    Diffusers "diffusers" "Diffusers" Library [Pytorch];
    DiffusersScripts "diffusers-scripts" "the Diffusers training scripts" Application [Pytorch];
    Kohya "kohya" "kohya sd-scripts" Application [Pytorch];
    Automatic1111 "automatic1111" "AUTOMATIC1111" Application [Pytorch];
    Forge "forge" "Forge" Application [Pytorch];
    Comfyui "comfyui" "ComfyUI" Application [Pytorch];
    Invokeai "invokeai" "InvokeAI" Application [Pytorch];
    VqganClip "vqgan-clip" "VQGAN-CLIP" Application [Pytorch];
    Timm "timm" "timm" Library [Pytorch];
    Ultralytics "ultralytics" "Ultralytics" Application [Pytorch];
    Detectron2 "detectron2" "Detectron2" Application [Pytorch];
    Fairseq "fairseq" "fairseq" Application [Pytorch];
    Whisper "whisper" "Whisper" Application [Pytorch];
    FasterWhisper "faster-whisper" "faster-whisper" Library [];
    Vllm "vllm" "vLLM" Application [Pytorch];
    Sglang "sglang" "SGLang" Application [Pytorch];
    Tgi "tgi" "Text Generation Inference" Application [Pytorch];
    Exllama "exllama" "ExLlamaV2" Library [Pytorch];
    LlamaCpp "llama-cpp" "llama.cpp" Application [];
    IkLlamaCpp "ik-llama-cpp" "ik_llama.cpp" Application [LlamaCpp];
    WhisperCpp "whisper-cpp" "whisper.cpp" Application [];
    Ollama "ollama" "Ollama" Application [];
    Tensorflow "tensorflow" "TensorFlow" Library [];
    Keras "keras" "Keras" Library [Tensorflow];
    Jax "jax" "JAX" Library [];
    OnnxRuntime "onnx-runtime" "ONNX Runtime" Library [];
    Tensorrt "tensorrt" "TensorRT" Library [];
    TensorrtLlm "tensorrt-llm" "TensorRT-LLM" Application [];
    TritonServer "triton-server" "Triton Inference Server" Application [];
    Paddle "paddle" "PaddlePaddle" Library [];
    Mxnet "mxnet" "MXNet" Library [];
    Cupy "cupy" "CuPy" Library [];
    Numba "numba" "Numba" Library [];
    Rapids "rapids" "RAPIDS" Library [];
    CudaJl "cuda-jl" "CUDA.jl" Library [];
    Candle "candle" "Candle" Library [];
    Burn "burn" "Burn" Library [];
    Tch "tch" "tch-rs" Library [];
    Hami "hami" "HAMi" Place [];
    Docker "docker" "Docker" Place [];
    Kubernetes "kubernetes" "Kubernetes" Place [];
    Slurm "slurm" "Slurm" Place [];
    Jupyter "jupyter" "Jupyter" Place [];
    Windows "windows" "Windows" Place [];
    Wsl "wsl" "WSL" Place [];
    Machine "machine" "the machine" Place [];
}

/// A framework's name that the table does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no framework is called \"{0}\"; see Framework::ALL")]
pub struct UnknownFramework(pub String);

impl FromStr for Framework {
    type Err = UnknownFramework;

    /// Reads a name in any usual spelling: `llama.cpp`, `Llama_CPP` and `llama-cpp` are the same.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bare = |name: &str| name.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>().to_lowercase();
        let wanted = bare(text);
        Self::ALL
            .iter()
            .find(|known| bare(known.name()) == wanted || bare(known.title()) == wanted)
            .copied()
            .ok_or_else(|| UnknownFramework(text.to_owned()))
    }
}

impl fmt::Display for Framework {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.title())
    }
}

/// A release number, compared number by number; what follows the numbers (`rc1`, `+cu132`) is ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Version(Vec<u32>);

/// A release number without a number in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a version; write numbers with dots between them, such as 2.15.0")]
pub struct BadVersion(String);

impl FromStr for Version {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = Vec::new();
        for part in text.trim().trim_start_matches(['v', 'b']).split('.') {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            let Ok(number) = digits.parse() else { break };
            parts.push(number);
            if digits.len() < part.len() {
                break;
            }
        }
        if parts.is_empty() {
            return Err(BadVersion(text.to_owned()));
        }
        // 2.0 and 2.0.0 are the same release.
        while parts.len() > 1 && parts.last() == Some(&0) {
            parts.pop();
        }
        Ok(Self(parts))
    }
}

impl TryFrom<String> for Version {
    type Error = BadVersion;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, part) in self.0.iter().enumerate() {
            if position > 0 {
                formatter.write_str(".")?;
            }
            write!(formatter, "{part}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_compare_as_numbers_and_not_as_text() {
        assert!(version("2.15.0+cu132") > version("2.9"));
        assert_eq!(version("2.0"), version("2"));
        assert!(version("1.13.1") < version("2"));
        assert!(version("5.0rc1") >= version("5"));
        assert!("cuda".parse::<Version>().is_err());
    }

    #[test]
    fn a_framework_is_found_by_any_usual_spelling() {
        assert_eq!("llama.cpp".parse(), Ok(Framework::LlamaCpp));
        assert_eq!("LLaMA-Factory".parse(), Ok(Framework::LlamaFactory));
        assert_eq!("onnxruntime".parse(), Ok(Framework::OnnxRuntime));
        assert!("hashcat".parse::<Framework>().is_err());
    }

    #[test]
    fn every_name_is_unique_and_what_lies_below_is_not_itself() {
        let names: std::collections::HashSet<_> = Framework::ALL.iter().map(|known| known.name()).collect();
        assert_eq!(names.len(), Framework::ALL.len());
        for known in Framework::ALL {
            assert!(!known.below().contains(known), "{known}");
            assert_eq!(known.name().parse(), Ok(*known));
        }
    }
}

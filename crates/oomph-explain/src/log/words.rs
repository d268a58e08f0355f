//! Failures recognised by their words, where no known message is: a failed allocation on a device is described with few
//! ingredients, which are weighed against what speaks for the computer's own memory, a disk, on-chip memory, or a text
//! about errors.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::ingredients::Ingredients;
use super::kind::Kind;
use super::patterns::{Pattern, Verdict};
use super::programs;
use super::quoted;
use super::report::Facts;
use super::size;

/// Ingredients have to weigh this much.
const ENOUGH: f64 = 0.6;
/// The certainty of a failure whose words weigh just enough.
const LEAST_CERTAINTY: f64 = 0.5;
/// The most that words alone are believed: below what a known message is.
const MOST_CERTAINTY: f64 = 0.64;
/// What the name of a program that computes on a device weighs, where the name of the device itself weighs 1.
const PROGRAM: f64 = 0.7;
/// The certainty of a line that nobody is named in.
const OF_NOBODY: f64 = 0.4;
/// What stands before "out of memory" where a database, a language's runtime, or a tool of the system ran out of the host's.
const TOOLS_OF_THE_HOST: &[&str] = &[
    "error", "fatal", "warning", "panic", "runtime", "java", "jvm", "go", "git", "sqlite", "sqlite3", "postgres",
    "psql", "mysqld", "awk", "gawk", "sed", "sort", "tar", "gzip", "xz", "ld", "as", "cc1", "cc1plus", "gcc", "clang",
    "node", "ruby", "perl", "php", "bash", "sh", "fork", "malloc", "calloc", "realloc", "mmap", "kernel",
];
/// Bytes of a message that are weighed.
const MESSAGE: usize = 600;
/// A plain number with fewer digits does not count as a number of bytes.
const DIGITS: usize = 4;

/// What was found in a message by its words.
pub(crate) struct Words {
    pub pattern: &'static Pattern,
    pub verdict: Verdict,
    pub certainty: f64,
    pub facts: Facts,
}

static INGREDIENTS: LazyLock<Option<Ingredients>> = LazyLock::new(Ingredients::load);

impl Ingredients {
    /// What speaks for a failed allocation on a device, less what speaks against it.
    fn weigh(&self, line: &str, message: &str, around: &str) -> Weight {
        let code = self.code.is_match(message) && !of_host_call(message);
        let near = |regex: &Regex| -> f64 {
            match () {
                () if regex.is_match(line) => 1.0,
                () if regex.is_match(message) => 0.8,
                () => 0.0,
            }
        };
        let nearby = match () {
            () if self.thrown.is_match(around) => 0.8,
            () if self.device.is_match(around) => 0.4,
            () => 0.0,
        };
        // A code or a function of a device names it; a program that is known to compute on one hints at it.
        let device = if code { 1.0 } else { f64::max(near(&self.device), nearby) };
        let hinted = device < PROGRAM && !self.host.is_match(message) && programs::speaker(line).is_some();
        let device = if hinted { PROGRAM } else { device };
        let of_memory = if code || self.memory.is_match(message) { 0.3 } else { 0.0 };
        let host = if self.host.is_match(self.clause(line)) { 1.0 } else { 0.0 };
        let raised = self.raised.is_match(line);
        let before = self.exhausted.find(line).map_or("", |found| &line[..found.start()]);
        let talks = !raised && (self.talk.is_match(self.sentence(line)) || quoted::is_prose(before));
        let quoted = if raised { 0.0 } else { quoted::likeness(line, line, true) };
        let share = |says: bool| if says { 1.0 } else { 0.0 };
        let against = 0.6 * share(self.on_chip.is_match(line))
            + 0.7 * share(self.disk.is_match(line))
            + 0.5 * share(talks)
            + 0.8 * share(self.other.is_match(message))
            + 0.8 * share(self.host_code.is_match(line))
            + 0.35 * quoted;
        let sized = self.figures[0].forms.iter().any(|form| form.is_match(message));
        let form = 0.15 * near(&self.error) + if sized { 0.15 } else { 0.0 };
        // A code or a function of a device outweighs a mention of the host: many messages have both.
        let for_device =
            of_memory + 0.3 * device + if code { 0.3 } else { 0.0 } + form - if code { 0.2 } else { 0.5 } * host;
        Weight { device: for_device - against, host: of_memory + 0.45 * host + form - against, code }
    }

    /// The line up to the end of the clause that reports exhaustion: the next one may say which memory is used instead.
    fn clause<'a>(&self, line: &'a str) -> &'a str {
        let Some(found) = self.exhausted.find(line) else { return line };
        line[found.end()..].find([',', ';']).map_or(line, |end| &line[..found.end() + end])
    }

    /// The line up to the end of the sentence that reports exhaustion. Programs print advice after it.
    fn sentence<'a>(&self, line: &'a str) -> &'a str {
        let Some(found) = self.exhausted.find(line) else { return line };
        // What precedes it belongs to it: a condition, or the mark of a list.
        line[found.end()..].find(". ").map_or(line, |end| &line[..found.end() + end + 1])
    }

    fn facts(&self, message: &str, line: u64) -> Facts {
        let message = &message[..super::text::floor_boundary(message, MESSAGE)];
        let mut facts = Facts::default();
        for figure in &self.figures {
            let found = figure
                .forms
                .iter()
                .find_map(|form| form.captures_iter(message).find_map(|found| bytes(message, &found)));
            let (field, key) = match figure.name {
                "requested" => (&mut facts.requested_bytes, "requested_bytes"),
                "free" => (&mut facts.free_bytes, "free_bytes"),
                "capacity" => (&mut facts.capacity_bytes, "capacity_bytes"),
                _ => (&mut facts.allocated_bytes, "allocated_bytes"),
            };
            if found.is_some() {
                *field = found;
                facts.lines.insert(key, line);
            }
        }
        if let Some(device) = self.index.captures(message).and_then(|found| found.get(1)?.as_str().parse().ok()) {
            facts.device = Some(device);
            facts.lines.insert("device", line);
        }
        facts
    }
}

struct Weight {
    device: f64,
    host: f64,
    code: bool,
}

fn bytes(message: &str, found: &Captures<'_>) -> Option<u64> {
    let place = found.get(1)?;
    let figure = place.as_str();
    let plain = figure.bytes().all(|byte| byte.is_ascii_digit());
    if plain && figure.len() < DIGITS || is_in_a_name(message, place.start(), place.end()) {
        return None;
    }
    size::parse(figure)
}

/// Whether what looks like a figure is a part of a word, a path or a quoted file name: `summary-3B.gguf` is not a size.
fn is_in_a_name(message: &str, start: usize, end: usize) -> bool {
    let (before, after) = (&message[..start], &message[end..]);
    let mut left = before.chars().rev();
    let joined = match left.next() {
        Some(last) if last.is_alphanumeric() || last == '_' => true,
        Some('-') => left.next().is_some_and(|last| last.is_alphanumeric() || last == '_'),
        // `7.34/15.49 GiB` is two figures; a path has letters there.
        Some('/' | '\\' | '.') => left.next().is_some_and(|last| last.is_alphabetic() || last == '_'),
        _ => false,
    };
    let mut right = after.chars();
    let goes_on = match right.next() {
        Some('-' | '/' | '\\' | '.') => right.next().is_some_and(|next| next.is_ascii_lowercase() || next == '_'),
        _ => false,
    };
    if joined || goes_on {
        return true;
    }
    // The quotation around it, if it is one that ends in a file's extension.
    ['\'', '"', '`'].iter().any(|quote| {
        let Some((_, left)) = before.rsplit_once(*quote) else { return false };
        let Some((right, _)) = after.split_once(*quote) else { return false };
        let extension = right.rsplit_once('.').map(|(_, extension)| extension);
        !left.contains('\n')
            && extension.is_some_and(|extension| {
                (1..=11).contains(&extension.len()) && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
            })
    })
}

/// The figures of a message whose pattern knows none: the words of an interface, to which programs add figures of their own.
pub(crate) fn figures(message: &str, line: u64) -> Facts {
    INGREDIENTS.as_ref().map_or_else(Facts::default, |ingredients| ingredients.facts(message, line))
}

/// Whether a message names a call for the computer's own memory, which CUDA reports as "out of memory" all the same.
pub(crate) fn of_host_call(message: &str) -> bool {
    static CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"\b(?:cudaMallocHost|cudaHostAlloc|cudaHostRegister|cuMemHostAlloc|cuMemAllocHost|cuMemHostRegister|hipHostMalloc|hipHostRegister)(?:_v\d)?\b").ok()
    });
    CALL.as_ref().is_some_and(|call| call.is_match(message))
}

/// Whether a line is worth weighing at all. One that says of itself that it reports no failure is not.
pub(crate) fn are_there(line: &str) -> bool {
    !is_benign(line) && INGREDIENTS.as_ref().is_some_and(|ingredients| ingredients.exhausted.is_match(line))
}

/// Whether a line says that nothing is wrong, as TensorFlow's do where a check of cuDNN is left out for want of memory.
fn is_benign(line: &str) -> bool {
    ["This is benign", "this is benign", "that this is not a failure"].iter().any(|words| line.contains(words))
}

/// Reads a message that no pattern knows. `line` is the line that speaks of exhaustion, `message` that and the lines
/// that continue it, `around` some text before it.
pub(crate) fn read(line: &str, message: &str, around: &str, number: u64) -> Option<Words> {
    let ingredients = INGREDIENTS.as_ref()?;
    let line = quoted::uncommented(line);
    let message = &message[..super::text::floor_boundary(message, MESSAGE)];
    if !ingredients.exhausted.is_match(line) {
        return None;
    }
    let weight = ingredients.weigh(line, message, around);
    let certainty = |weight: f64| (LEAST_CERTAINTY + (weight - ENOUGH) * 0.3).clamp(LEAST_CERTAINTY, MOST_CERTAINTY);
    let framework = programs::speaker(message).or_else(|| programs::speaker(around));
    if weight.device >= ENOUGH && (weight.device >= weight.host || weight.code) {
        let facts = ingredients.facts(message, number);
        let pattern = pattern(framework.unwrap_or("cuda"), Verdict::GpuOom)?;
        return Some(Words { pattern, verdict: Verdict::GpuOom, certainty: certainty(weight.device), facts });
    }
    if weight.host >= ENOUGH + 0.1 && weight.host > weight.device {
        let verdict = Verdict::Not(Kind::HostMemory);
        let facts = ingredients.facts(message, number);
        let pattern = pattern(framework.unwrap_or("host"), verdict)?;
        return Some(Words { pattern, verdict, certainty: certainty(weight.host), facts });
    }
    None
}

/// Reads a line that ends in the words of `cudaGetErrorString` for a card that is full, and says nothing of whose they
/// are: `step 55: out of memory`. Others write them too, those of [`TOOLS_OF_THE_HOST`] most of all.
pub(crate) fn of_nobody(line: &str) -> Option<Words> {
    let ingredients = INGREDIENTS.as_ref()?;
    let before = line.trim_end().trim_end_matches('.').strip_suffix("out of memory")?;
    let before = before.trim_end().strip_suffix([':', '-', '=', '>'])?;
    let last = before.rsplit([':', ' ', ']']).find(|word| !word.is_empty()).unwrap_or("");
    if TOOLS_OF_THE_HOST.contains(&last.to_ascii_lowercase().as_str())
        || ingredients.host.is_match(line)
        || quoted::is_prose(before)
    {
        return None;
    }
    let pattern = pattern("cuda", Verdict::GpuOom)?;
    Some(Words { pattern, verdict: Verdict::GpuOom, certainty: OF_NOBODY, facts: Facts::default() })
}

/// The library or program named by the first of some texts, for a message that has only an interface's own words: its
/// line, the message, and the few lines around it.
pub(crate) fn of_api(pattern: &Pattern, texts: &[&str]) -> Option<&'static str> {
    if !programs::is_interface(&pattern.framework) {
        return None;
    }
    let texts = texts.iter().map(|text| &text[..super::text::floor_boundary(text, MESSAGE)]);
    texts.filter_map(programs::speaker).find(|name| !programs::is_interface(name))
}

/// The patterns that stand for what was read by its words, one for each name and verdict.
fn pattern(framework: &str, verdict: Verdict) -> Option<&'static Pattern> {
    static PATTERNS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
        let names = programs::names().chain(["cuda", "host"]);
        names
            .flat_map(|name| {
                [Verdict::GpuOom, Verdict::Not(Kind::HostMemory)]
                    .map(|verdict| Pattern::of_words(name, verdict, LEAST_CERTAINTY))
            })
            .collect()
    });
    PATTERNS.iter().find(|pattern| pattern.framework == framework && pattern.verdict == verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Option<Words> {
        read(line, line, "", 1)
    }

    #[test]
    fn a_figure_in_a_name_is_no_size() {
        for (line, requested) in [
            ("Failed to load model, requested 'summary-3B.gguf': out of memory on the GPU", None),
            ("GPU 0 out of memory: cannot allocate Llama-3.1-8B/weights", None),
            ("GPU 0 out of memory: allocation for '/models/big 8 GB copy.safetensors' failed", None),
            ("GPU 0 out of memory: cannot allocate /models/7B/x for Qwen2.5-7B, needs 3 GB", Some(3 << 30)),
            ("GPU 0 out of memory: could not allocate 2GB.", Some(2 << 30)),
            ("GPU 0 out of memory: requested=512MB", Some(512 << 20)),
        ] {
            assert_eq!(figures(line, 1).requested_bytes, requested, "{line}");
        }
    }

    #[test]
    fn a_line_that_calls_itself_benign_is_not_weighed() {
        assert!(!are_there(
            "gpu_utils.cc:69] Failed to allocate memory for convolution redzone checking; skipping this check. This is benign"
        ));
        assert!(are_there("gpu_utils.cc:69] Failed to allocate memory for convolution redzone checking"));
    }

    #[test]
    fn ingredients_make_a_failure() {
        for (line, framework, requested) in [
            ("jit_malloc(): out of memory! Could not allocate 512 bytes of device memory.", "mitsuba", Some(512)),
            (
                "[KeOps] error: cuMemAlloc(&p_data, sizeof(TYPE *) * nargs) failed with error CUDA_ERROR_OUT_OF_MEMORY",
                "keops",
                None,
            ),
            (
                "Uncaught exception: Could not allocate memory: gpu_memory.h:112 cudaMalloc(&rawptr, n) failed with error out of memory",
                "cuda",
                None,
            ),
            (
                "ERROR: GPU 1 ran out of memory while allocating 2.50 GB for the particle grid",
                "cuda",
                Some(2_684_354_560),
            ),
            ("CUDA error at /src/solver/grid.cu:88 - out of memory", "cuda", None),
            ("mlp: CUDA error: out of memory at /home/me/mlp.cu:30 in cudaMalloc(&data, bytes)", "cuda", None),
            ("Error: lib/scan.cu:12, code: 2, reason: out of memory", "cuda", None),
            ("ERROR: the GPU memory is full. You should lower the resolution, which may help.", "cuda", None),
            ("GPUOutOfMemoryError: Failed to allocate memory for the index buffer", "webgpu", None),
            ("d3d12: failed to create a texture of 4096 x 4096 [error 8007000e]", "direct3d", None),
            ("tracer: HIP runtime error in path_state.cpp:310: out of memory", "cuda", None),
            ("Out of memory in cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) (device/queue.cpp:21)", "cuda", None),
            ("GPU 3: error when allocating memory for the table. Stopping.", "cuda", None),
            ("org.example.SplitAndRetryOOM: GPU OutOfMemory: could not split the batch", "cuda", None),
            ("[saver.cpp] CUresult error result=2 func=cu_mem_create line=103", "cuda", None),
            ("Failure in vkAllocateMemory at 191 mvulkan.cpp  ErrCode=-2", "vulkan", None),
            ("OpenCL error: CL_MEM_OBJECT_ALLOCATION_FAILURE in clCreateBuffer", "opencl", None),
            ("vkAllocateMemory failed -2", "vulkan", None),
            ("CUDA error - cannot allocate big buffer for DAG.", "claymore", None),
            ("CUDA error in func 'solver::init' at line 243 : Out of Memory", "cuda", None),
            ("RuntimeError: CudaTable_ZEROS: array allocation failed.", "cuda", None),
            (
                "pool.cpp:416 ALLOCATION failed to find 2452160512B throwing out of memory GPU_MGR:0",
                "heavydb",
                Some(2_452_160_512),
            ),
            ("Error: the query couldn't keep its columns in GPU memory", "cuda", None),
            ("[h264_nvenc @ 0x5581] CreateBitstreamBuffer failed: out of memory (10)", "ffmpeg", None),
            ("WARN Task 3: org.example.RetryOOM: the GPU task should retry", "cuda", None),
            ("ASSERT FAILED: Failed to allocate mem on device 0", "cuda", None),
            ("Exception: Failed to allocate 3211264 bytes from DEVICE [0] memory", "cuda", Some(3_211_264)),
            (
                "WARN Out of [DEVICE] memory, host memory will be used instead: requested bytes: [8415128]",
                "cuda",
                Some(8_415_128),
            ),
            (
                "MINER: Can't find a nonce with device #1, Device does not have enough free memory. Required: 2.00 GB",
                "cuda",
                Some(2 << 30),
            ),
            ("[render/Pool] OUT OF VIDEO MEMORY! ( vmaAllocateMemory )", "vulkan", None),
            ("Out of video memory trying to make a texture. Make sure that the card has enough.", "cuda", None),
            ("# SOLVER: ERROR: Failed to allocate device memory (field.cu:605 in allocate())", "cuda", None),
            ("libgomp: nvptx_alloc error: out of memory", "libgomp", None),
            ("solver::Abort::0::Out of gpu memory. Free: 443590246 Asked: 829440204 !!!", "cuda", Some(829_440_204)),
            ("ERROR:openfold3.runner:OOM for query 3", "openfold3", None),
            ("packer: OPENCL Error: cl_mem_object_allocation_failure", "opencl", None),
            ("err:   DxvkMemoryAllocator: Memory allocation failed", "dxvk", None),
            ("uncaught exception: NSomeCudaLib::TOutOfMemoryError", "cuda", None),
            (
                "[error] Vulkan: vkAllocateMemory failed: not enough device memory (requested 1073741824 bytes)",
                "vulkan",
                Some(1 << 30),
            ),
        ] {
            let words = read_line(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(words.verdict, Verdict::GpuOom, "{line}");
            assert_eq!(words.pattern.framework, framework, "{line}");
            assert_eq!(words.facts.requested_bytes, requested, "{line}");
            assert!(words.certainty < 0.65, "{line}");
        }
        let found = read_line("ERROR: GPU 1 ran out of memory while allocating 2.50 GB for the particle grid");
        assert_eq!(found.and_then(|words| words.facts.device), Some(1));
    }

    #[test]
    fn words_of_nobody_are_those_of_cuda_unless_a_tool_of_the_host_says_them() {
        for line in ["step 55: out of memory", "main.cu:34: out of memory", "alloc failed - out of memory"] {
            assert_eq!(of_nobody(line).map(|words| words.pattern.framework.as_str()), Some("cuda"), "{line}");
        }
        for line in [
            "error: out of memory",
            "fatal error: runtime: out of memory",
            "git: out of memory",
            "out of memory",
            "step 55: Out of memory",
            "host memory: out of memory",
            "[17] ERROR:  out of memory",
        ] {
            assert!(of_nobody(line).is_none(), "{line}");
        }
    }

    /// Some programs throw an exception of the interface, and print its text on the next line.
    #[test]
    fn an_exception_of_a_device_makes_the_next_line_one_of_a_device() {
        let thrown = "terminate called after throwing an instance of 'gpu::Error'\n  what():  grid_alloc.hpp(42):\n";
        let other = "terminate called after throwing an instance of 'io::Error'\n  what():  grid_alloc.hpp(42):\n";
        let read_below = |above: &str| read("error: out of memory", "error: out of memory", above, 3);
        assert_eq!(read_below(thrown).map(|words| words.verdict), Some(Verdict::GpuOom));
        assert!(read_below(other).is_none_or(|words| words.verdict != Verdict::GpuOom));
    }

    #[test]
    fn the_words_of_an_interface_name_the_program_around_them() {
        let metal = pattern("metal", Verdict::GpuOom).unwrap();
        let failed = "command buffer 1 failed with status 5";
        assert_eq!(of_api(metal, &[failed, "ggml_metal_graph_compute: begin"]), Some("llama.cpp"));
        assert_eq!(of_api(metal, &[failed, "vulkan is not used"]), None, "another interface is not a program");
        let torch = pattern("pytorch", Verdict::GpuOom).unwrap();
        assert_eq!(of_api(torch, &[failed, "ggml"]), None, "a library has named itself");
    }

    #[test]
    fn what_speaks_against_it_outweighs_them() {
        for line in [
            "- Fixed a CUDA out of memory error in the trainer (#1234)",
            "If you run into GPU out of memory errors, reduce the batch size.",
            "# How to avoid out of memory on the GPU",
            "oom_retry: true",
            "If the GPU memory is full, the editor stops. Then close it.",
            "GPU memory: 3.2 GiB of 24 GiB in use",
            "failed to allocate 12 GiB of host memory for the CUDA staging buffer",
            "out of shared memory: a GPU kernel needs more shared memory than a block has",
            "No space left on device: failed to allocate a GPU cache file on disk",
            "mmap failed: cannot allocate memory",
            "This helps to reduce GPU memory so that training does not run out of memory",
            "[INFO] Allocated 8.00 GiB on GPU 0",
            "Allocation of 2 GPUs failed: the queue is full",
            "Vulkan: check for OUT_OF_DEVICE_MEMORY.",
            "vkAllocateMemory returned VK_ERROR_OUT_OF_HOST_MEMORY in staging.cpp",
            "How much GPU memory do I need so that it does not run out of memory?",
            "error: allocation of 64 KiB failed: cudaMalloc() returned cudaErrorNotSupported",
            "java.lang.RuntimeException: Failed to allocate 400 bytes from HOST memory",
            "It's supposed to be possible that a buffer raises a GPU out of memory error",
            "You are running out of memory on the GPU, try a smaller batch",
            "ERROR: CpuRetryOOM: CPU OutOfMemory: could not split the batch for the GPU",
            "The miner says that \"cuda error out of memory\" since yesterday",
            "A 4K file fails with a CUDA out of memory error. The card has 12 GB.",
            "When I fold a long sequence I get a \"RuntimeError: Out of CUDA memory\" error",
            "It looks like the GPU tried to allocate 500 MB of device memory, and failed.",
            "Device was lost. This can happen due to insufficient memory or other GPU constraints.",
            "0: OpenCL CL_OUT_OF_RESOURCES (-5) error in hash.c:404 - Copy data back",
            "OpenCL CL_INVALID_BUFFER_SIZE (-61) error in hash.c:131 - Error allocating memory",
            "call to cuMemAllocHost returned error 205: Map failed",
            "error: Gpu API call (CL_OUT_OF_RESOURCES) in openCLMemcpy2D, cl_operations.cpp:214",
        ] {
            let found = read_line(line);
            assert!(found.is_none_or(|words| words.verdict != Verdict::GpuOom), "{line}");
        }
    }
}

//! What a stack says about the allocation that it made: which part of a training program was running, and which line.
//!
//! The stacks of a trace are a prefix tree in which a caller always comes before what it calls, so that one pass over
//! the tree answers for all of them.

use oomph_trace::{Frame, FrameId, StackId, Strings, Trace};

/// A set of things that one or more frames of a stack say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs(u16);

impl Signs {
    /// Building a module, moving it, or loading its weights.
    pub const LOAD: Signs = Signs(1);
    /// Inside a module's call.
    pub const FORWARD: Signs = Signs(1 << 1);
    /// On autograd's side.
    pub const BACKWARD: Signs = Signs(1 << 2);
    /// Inside an optimizer's `step`.
    pub const STEP: Signs = Signs(1 << 3);
    /// Inside an optimizer's code.
    pub const OPTIMIZER: Signs = Signs(1 << 4);
    /// Where an optimizer makes its state.
    pub const STATE: Signs = Signs(1 << 5);
    /// A cache of keys and values.
    pub const KV_CACHE: Signs = Signs(1 << 6);
    /// Bringing a batch to the device.
    pub const INPUT: Signs = Signs(1 << 7);
    /// Working memory of a library.
    pub const WORKSPACE: Signs = Signs(1 << 8);
    /// The stack has a Python frame.
    pub const PYTHON: Signs = Signs(1 << 9);
    /// Gradient checkpointing, computing the forward pass again.
    pub const RECOMPUTE: Signs = Signs(1 << 10);
    /// A convolution.
    pub const CONVOLUTION: Signs = Signs(1 << 11);
    /// Where DDP makes the buckets that it collects gradients in.
    pub const BUCKETS: Signs = Signs(1 << 12);
    /// Inside a closure that an optimizer's `step` calls, which runs forward and backward: Lightning does all its training so.
    pub const CLOSURE: Signs = Signs(1 << 13);

    /// Whether any of these signs is there.
    pub fn any(self, of: Signs) -> bool {
        self.0 & of.0 != 0
    }

    /// These signs and those.
    pub const fn and(self, more: Signs) -> Signs {
        Signs(self.0 | more.0)
    }

    /// These signs without those.
    const fn without(self, less: Signs) -> Signs {
        Signs(self.0 & !less.0)
    }
}

/// What a stack within an optimizer's step says that a closure called from there is not.
const OF_STEPS: Signs = Signs::STEP.and(Signs::OPTIMIZER).and(Signs::STATE);

/// What is known of one stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StackFacts {
    pub signs: Signs,
    /// The innermost Python frame outside of PyTorch and Python's own library, or failing that the innermost one.
    pub line: Option<FrameId>,
    /// Whether `line` lies outside of PyTorch.
    outside: bool,
}

/// The facts of every stack of a trace.
pub(super) struct Facts(Vec<StackFacts>);

impl Facts {
    pub fn of(trace: &Trace) -> Self {
        let frames: Vec<FrameFacts> = (0..trace.frames.len() as u32)
            .map(|id| trace.frames.get(FrameId(id)).map_or(FrameFacts::default(), |frame| read(&frame, &trace.strings)))
            .collect();
        let mut facts: Vec<StackFacts> = Vec::with_capacity(trace.stacks.len());
        facts.push(StackFacts::default());
        for node in 1..trace.stacks.len() as u32 {
            let caller = trace.stacks.caller(StackId(node));
            let mut fact = facts.get(caller.0 as usize).copied().unwrap_or_default();
            if let Some(id) = trace.stacks.frame(StackId(node)) {
                let frame = frames.get(id.0 as usize).copied().unwrap_or_default();
                if fact.signs.any(Signs::STEP)
                    && (frame.closure || frame.signs.any(Signs::FORWARD.and(Signs::BACKWARD)))
                {
                    fact.signs = fact.signs.without(OF_STEPS).and(Signs::CLOSURE);
                }
                fact.signs = fact.signs.and(frame.signs);
                // Autograd's worker threads call Python from C++: the outermost Python frame is then PyTorch's own,
                // where the program's thread begins with a module of the program.
                if caller == StackId::NONE && frame.torch {
                    fact.signs = fact.signs.and(Signs::BACKWARD);
                }
                if frame.signs.any(Signs::PYTHON) && (!frame.library || !fact.outside) {
                    fact.line = Some(id);
                    fact.outside = !frame.library;
                }
            }
            facts.push(fact);
        }
        Self(facts)
    }

    /// Whether any stack has one of these signs.
    pub fn has(&self, signs: Signs) -> bool {
        self.0.iter().any(|fact| fact.signs.any(signs))
    }

    /// The facts of a stack.
    pub fn get(&self, stack: StackId) -> StackFacts {
        self.0.get(stack.0 as usize).copied().unwrap_or_default()
    }
}

/// What one frame shows.
#[derive(Clone, Copy, Debug, Default)]
struct FrameFacts {
    signs: Signs,
    /// A Python frame of PyTorch, or of oomph's hook in its place.
    torch: bool,
    /// A Python frame of PyTorch or of Python's own library.
    library: bool,
    /// By its name a function that computes a loss for the optimizer that calls it.
    closure: bool,
}

fn read(frame: &Frame, strings: &Strings) -> FrameFacts {
    let (name, file) = (strings.get(frame.name), strings.get(frame.file));
    if !file.ends_with(".py") && !file.starts_with('<') {
        return FrameFacts { signs: native_signs(name), ..FrameFacts::default() };
    }
    let path = file.replace('\\', "/");
    if starts_programs(&path) {
        return FrameFacts::default();
    }
    if is_hook(&path) {
        // The hook is called by PyTorch from C++ and says nothing of the program. As the outermost frame it counts as
        // PyTorch's own frames would: on autograd's side.
        return FrameFacts { torch: true, ..FrameFacts::default() };
    }
    // A program may well lie in a folder of that name; PyTorch lies among the packages, or in its own repository.
    let torch =
        ["-packages/torch/", "/pytorch/torch/"].iter().any(|place| path.contains(place)) || path.starts_with("torch/");
    let standard = path.starts_with("<frozen") || is_standard_library(&path);
    let mut signs = python_signs(name, &path, torch).and(Signs::PYTHON);
    if torch && path.ends_with("/checkpoint.py") {
        match name {
            "unpack_hook" | "recompute_fn" => signs = signs.and(Signs::BACKWARD).and(Signs::RECOMPUTE),
            // The reentrant kind computes forward again, which its modules show, and then runs a backward pass in here.
            "backward" => signs = signs.and(Signs::BACKWARD),
            _ => {}
        }
    }
    let closure = !torch && (name.contains("closure") || name == "training_step");
    // A tensor's override stands between PyTorch and the line that called it, and says nothing of what was asked.
    FrameFacts { signs, torch, library: torch || standard || name == "__torch_function__", closure }
}

/// The part of the hook that runs the program's script in the interpreter's stead: the outermost frames of a dry run.
fn starts_programs(path: &str) -> bool {
    ["/python/oomph/mainscript.py", "/python/oomph/loops/sources.py"].iter().any(|file| path.ends_with(file))
        || path.contains("/python/oomph/server/")
}

/// Code of oomph's own hook, which is between the program and PyTorch in a dry run.
fn is_hook(path: &str) -> bool {
    path.contains("/python/oomph/")
}

fn is_standard_library(path: &str) -> bool {
    path.contains("/lib/python3") && !path.contains("-packages/")
}

/// The signs of a C++ frame, which has a symbol's name where symbols were there.
fn native_signs(name: &str) -> Signs {
    let mut signs = Signs::default();
    if name.contains("torch::autograd::Engine::") || name.contains("torch::autograd::python::PythonEngine::") {
        signs = signs.and(Signs::BACKWARD);
    }
    let lower = |part: &str| name.contains(part);
    if lower("Workspace") && (lower("cublas") || lower("cudnn") || lower("CUDABlas") || lower("cusolver"))
        || lower("at::cuda::getCurrentCUDABlasHandle")
    {
        signs = signs.and(Signs::WORKSPACE);
    }
    if lower("cudnn_convolution") || lower("cudnn_conv") {
        signs = signs.and(Signs::CONVOLUTION);
    }
    signs
}

fn python_signs(name: &str, path: &str, torch: bool) -> Signs {
    let known = if torch { torch_signs(name, path) } else { library_signs(name, path) };
    match known {
        Some(signs) => signs,
        None if name == "forward" => Signs::FORWARD,
        None => Signs::default(),
    }
}

/// What a function of PyTorch's own is known to do.
fn torch_signs(name: &str, path: &str) -> Option<Signs> {
    let ends = |suffix: &str| path.ends_with(suffix);
    if ends("nn/modules/module.py") {
        return Some(module_signs(name));
    }
    if ends("/nn/modules/conv.py") && name.ends_with("forward") {
        return Some(Signs::FORWARD.and(Signs::CONVOLUTION));
    }
    if path.contains("/optim/") && !ends("/swa_utils.py") && !ends("/lr_scheduler.py") {
        return Some(optimizer_signs(name, ends("/optim/optimizer.py")));
    }
    if path.contains("/nn/modules/") && matches!(name, "__init__" | "reset_parameters")
        || ends("/nn/init.py")
        || ends("/nn/parameter.py")
        || ends("/torch/serialization.py")
    {
        return Some(Signs::LOAD);
    }
    if path.contains("/autograd/") && matches!(name, "backward" | "grad" | "_engine_run_backward" | "_make_grads")
        || ends("/torch/_tensor.py") && name == "backward"
    {
        return Some(Signs::BACKWARD);
    }
    if path.contains("/utils/data/") {
        return Some(Signs::INPUT);
    }
    // The buckets are made anew in the first step, in the order in which the gradients came.
    if ends("/nn/parallel/distributed.py") && matches!(name, "_ddp_init_helper" | "_pre_forward") {
        return Some(Signs::BUCKETS);
    }
    let moves_input = ends("/torch/distributed/utils.py") && matches!(name, "_to_kwargs" | "_recursive_to")
        || ends("/nn/parallel/scatter_gather.py")
        || ends("/nn/parallel/_functions.py") && name == "forward";
    moves_input.then_some(Signs::INPUT)
}

/// What a method of `torch.nn.Module` does.
fn module_signs(name: &str) -> Signs {
    const LOADS: [&str; 12] = [
        "to",
        "_apply",
        "convert",
        "cuda",
        "half",
        "float",
        "double",
        "bfloat16",
        "to_empty",
        "load_state_dict",
        "_load_from_state_dict",
        "load",
    ];
    match name {
        "_call_impl" | "_wrapped_call_impl" | "__call__" => Signs::FORWARD,
        _ if LOADS.contains(&name) => Signs::LOAD,
        _ => Signs::default(),
    }
}

/// What a function of another library, or of the program, is known to do.
fn library_signs(name: &str, path: &str) -> Option<Signs> {
    let file = path.rsplit('/').next().unwrap_or(path);
    if makes_cache(name, path, file) {
        return Some(Signs::KV_CACHE);
    }
    // Every optimizer that derives from PyTorch's own passes its wrapper; these are the ones that do not.
    if name == "step" && path.to_ascii_lowercase().contains("optim")
        || path.contains("bitsandbytes/optim/")
        || path.contains("apex/optimizers/")
        || path.contains("deepspeed/ops/adam/")
    {
        return Some(optimizer_signs(name, false));
    }
    if loads_weights(name, path) {
        return Some(Signs::LOAD);
    }
    let moves_input = matches!(
        name,
        "send_to_device" | "_prepare_input" | "_prepare_inputs" | "move_data_to_device" | "batch_to_device"
    ) || name.contains("collate");
    moves_input.then_some(Signs::INPUT)
}

/// Whether a function of another library than PyTorch brings a model's weights to the card.
fn loads_weights(name: &str, path: &str) -> bool {
    const LOADERS: [&str; 10] = [
        "safetensors/torch.py",
        "accelerate/utils/modeling.py",
        "accelerate/big_modeling.py",
        "transformers/modeling_utils.py",
        "transformers/core_model_loading.py",
        "diffusers/models/model_loading_utils.py",
        "diffusers/models/modeling_utils.py",
        "diffusers/loaders/single_file_utils.py",
        "bitsandbytes/nn/modules.py",
        "timm/models/_builder.py",
    ];
    LOADERS.iter().any(|loader| path.ends_with(loader)) && name != "forward"
        || makes_weights(name)
        || path.contains("/model_loader/")
        || path.contains("/integrations/bitsandbytes")
        || path.contains("peft/tuners/") && matches!(name, "__init__" | "update_layer" | "inject_adapter")
        || matches!(
            name,
            "from_pretrained"
                | "load_checkpoint"
                | "load_state_dict"
                | "load_model"
                | "prepare_model_for_kbit_training"
                | "get_peft_model"
        )
}

/// Whether a function lays out a cache of keys and values, by the names that servers and runtimes give it.
fn makes_cache(name: &str, path: &str, file: &str) -> bool {
    let lays_out = ["init", "alloc", "create", "make", "build", "setup"].iter().any(|verb| name.contains(verb));
    file == "cache_utils.py"
        || ["kv_cache", "KVCache", "key_value_cache", "past_key_value"].iter().any(|word| name.contains(word))
        || lays_out && name.contains("cache") && !name.contains("weight")
        || matches!(file, "cache_engine.py" | "kv_cache.py" | "kv_cache_utils.py")
        || path.contains("/mem_cache/")
}

/// Whether a function makes or fills the weights of a model: FlexGen's `init_weight_list`, vLLM's `create_weights`.
fn makes_weights(name: &str) -> bool {
    let makes = ["init", "alloc", "create", "make", "load", "process", "shard"].iter().any(|verb| name.contains(verb));
    makes && name.contains("weight") && !name.contains("optim")
}

fn optimizer_signs(name: &str, base_class: bool) -> Signs {
    let signs = Signs::OPTIMIZER;
    if name == "step" || base_class && matches!(name, "wrapper" | "profile_hook_step") {
        return signs.and(Signs::STEP);
    }
    let makes_state = matches!(name, "_init_group" | "init_state" | "get_state_buffer" | "_init_state" | "state_init")
        // Adagrad makes its state when it is constructed.
        || name == "__init__";
    if makes_state { signs.and(Signs::STATE) } else { signs }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts_of(stacks: &[&[(&str, &str)]]) -> Vec<(Signs, Option<String>)> {
        let mut trace = Trace::default();
        let ids: Vec<StackId> = stacks
            .iter()
            .map(|frames| {
                let frames: Vec<FrameId> = frames
                    .iter()
                    .map(|(file, name)| {
                        let (name, file) = (trace.strings.intern(name), trace.strings.intern(file));
                        trace.frames.intern(Frame { name, file, line: 1 })
                    })
                    .collect();
                trace.stacks.intern(frames)
            })
            .collect();
        let facts = Facts::of(&trace);
        ids.iter()
            .map(|&id| {
                let fact = facts.get(id);
                let line = fact.line.and_then(|id| trace.frames.get(id));
                (fact.signs, line.map(|frame| trace.strings.get(frame.file).to_owned()))
            })
            .collect()
    }

    const MODULE: &str = "/v/lib/python3.12/site-packages/torch/nn/modules/module.py";

    #[test]
    fn a_closure_of_an_optimizer_is_not_its_step() {
        const ADAM: &str = "/v/site-packages/torch/optim/adam.py";
        const PRECISION: &str = "/v/site-packages/lightning/pytorch/plugins/precision/precision.py";
        let step = [("train.py", "<module>"), ("/v/site-packages/torch/optim/optimizer.py", "wrapper"), (ADAM, "step")];
        let in_step = |frames: &[(&'static str, &'static str)]| [&step[..], frames].concat();
        let facts = facts_of(&[
            &in_step(&[(ADAM, "_init_group")]),
            &in_step(&[(PRECISION, "_wrap_closure"), ("train.py", "training_step"), (MODULE, "_call_impl")]),
            &in_step(&[(PRECISION, "_wrap_closure"), ("train.py", "training_step")]),
            &in_step(&[("train.py", "closure"), ("/v/site-packages/torch/_tensor.py", "backward")]),
        ]);
        let of_steps = OF_STEPS.and(Signs::CLOSURE);
        assert!(facts[0].0.any(Signs::STATE) && !facts[0].0.any(Signs::CLOSURE));
        assert!(facts[1].0.any(Signs::FORWARD) && !facts[1].0.any(OF_STEPS));
        assert!(facts[2].0.any(of_steps) && !facts[2].0.any(OF_STEPS.and(Signs::FORWARD)));
        assert!(facts[3].0.any(Signs::BACKWARD) && !facts[3].0.any(OF_STEPS));
    }

    #[test]
    fn the_parts_of_a_training_step_are_distinguished() {
        let facts = facts_of(&[
            &[("train.py", "<module>"), (MODULE, "to"), (MODULE, "_apply")],
            &[("train.py", "<module>"), (MODULE, "_call_impl"), ("/p/model.py", "forward"), (MODULE, "_call_impl")],
            &[
                ("train.py", "<module>"),
                ("/v/site-packages/torch/optim/optimizer.py", "wrapper"),
                ("/v/site-packages/torch/optim/adam.py", "step"),
                ("/v/site-packages/torch/optim/adam.py", "_init_group"),
            ],
            &[("/v/site-packages/torch/autograd/function.py", "apply"), ("/p/kernels.py", "backward")],
        ]);
        assert!(facts[0].0.any(Signs::LOAD) && !facts[0].0.any(Signs::FORWARD));
        assert_eq!(facts[0].1.as_deref(), Some("train.py"));
        assert!(facts[1].0.any(Signs::FORWARD));
        assert_eq!(facts[1].1.as_deref(), Some("/p/model.py"));
        assert!(facts[2].0.any(Signs::STEP) && facts[2].0.any(Signs::STATE));
        assert!(facts[3].0.any(Signs::BACKWARD));
        assert!(!facts[1].0.any(Signs::BACKWARD));
    }

    #[test]
    fn servers_that_lay_out_their_memory_ahead_are_known_by_their_functions() {
        let facts = facts_of(&[
            &[("flex_opt.py", "init_all_weights"), ("flex_opt.py", "init_weight_list"), ("backend.py", "allocate")],
            &[("flex_opt.py", "init_cache"), ("backend.py", "init_cache_one_gpu_batch"), ("backend.py", "allocate")],
            &[("/v/vllm/v1/worker/gpu_model_runner.py", "_allocate_kv_cache_tensors")],
            &[("/v/vllm/model_executor/layers/linear.py", "create_weights")],
            &[("serve.py", "clear_cache")],
        ]);
        let is = |index: usize| (facts[index].0.any(Signs::LOAD), facts[index].0.any(Signs::KV_CACHE));
        assert_eq!(
            [is(0), is(1), is(2), is(3), is(4)],
            [(true, false), (false, true), (false, true), (true, false), (false, false)]
        );
    }

    #[test]
    fn the_buckets_of_ddp_are_no_inputs() {
        let file = "/v/site-packages/torch/nn/parallel/distributed.py";
        let moved = "/v/site-packages/torch/distributed/utils.py";
        let facts = facts_of(&[
            &[("train.py", "<module>"), (file, "__init__"), (file, "_ddp_init_helper")],
            &[("train.py", "<module>"), (MODULE, "_call_impl"), (file, "forward"), (file, "_pre_forward")],
            &[("train.py", "<module>"), (file, "forward"), (file, "_pre_forward"), (moved, "_to_kwargs")],
        ]);
        let is = |index: usize| (facts[index].0.any(Signs::BUCKETS), facts[index].0.any(Signs::INPUT));
        assert_eq!([is(0), is(1), is(2)], [(true, false), (true, false), (true, true)]);
    }

    #[test]
    fn a_program_in_a_folder_called_torch_is_a_program() {
        let facts = facts_of(&[&[("/home/me/torch/train.py", "<module>"), ("/home/me/torch/net.py", "work")]]);
        assert!(!facts[0].0.any(Signs::BACKWARD));
        assert_eq!(facts[0].1.as_deref(), Some("/home/me/torch/net.py"));
    }

    #[test]
    fn native_frames_are_read_by_their_symbols() {
        let facts = facts_of(&[&[("??", "torch::autograd::Engine::thread_main(...)"), ("??", "at::native::add")]]);
        assert!(facts[0].0.any(Signs::BACKWARD) && !facts[0].0.any(Signs::PYTHON));
        assert_eq!(facts[0].1, None);
    }
}

//! What the program was doing when it failed, from its traceback and from the words of the message.

use std::sync::LazyLock;

use oomph_remedy::Operation;
use regex::{Regex, RegexSet};

use super::site::Frame;

/// What a frame (file, function and source line) says about the operation, the most telling first: a frame deep inside
/// attention is also inside `forward`, `generate` and a trainer's loop.
const TELLING: &[(Operation, &str)] = &[
    (
        Operation::OptimizerInit,
        r"_init_group|_init_state\b|exp_avg(?:_sq)?.{0,20}(?:zeros|empty)_like|state\[p\]\[.{0,20}zeros|init_state8?bit|init_optimizer_state",
    ),
    (
        Operation::AttentionScores,
        r"eager_attention|attention_probs|attn_weights ?=|attention_scores|attn_scores|get_attention_scores|get_attention_map|baddbmm|scaled_dot_product_attention|softmax\(attn|einsum\(.{0,4}b i d,? ?b j d|sparse_attn_indexer",
    ),
    (
        Operation::Logits,
        r"cross_entropy|lm_head|logits\.(?:float|to|contiguous|view)|logits ?=.{0,40}(?:float|upcast)|log_softmax|ForCausalLMLoss|nll_loss|gather_logprobs|logprobs",
    ),
    (
        Operation::VaeDecode,
        r"autoencoder|first_stage_model|decode_first_stage|vae[._](?:decode|encode)|vae\.py|decode_latents|_decode\(.{0,12}latent|VAEDecode",
    ),
    (
        Operation::KvCacheInit,
        r"initialize_kv_cache|_initialize_kv_caches|allocate_kv_cache|determine_(?:num_)?available|profile_run|StaticCache|init_memory_pool|_create_buffers|create_kv_cache|cache_engine",
    ),
    (
        Operation::GraphCapture,
        r"capture_model|capture_graph|cuda_graph_runner|graph_capture|CUDAGraph|make_graphed_callables|cudagraph",
    ),
    (
        Operation::Save,
        r"save_checkpoint|save_pretrained|save_model|_save\b|full_state_dict|FULL_STATE_DICT|torch\.save\(",
    ),
    (
        Operation::Resume,
        r"load_checkpoint|resume_from_checkpoint|load_optimizer|_load_from_checkpoint|torch\.load\(|load_state_dict",
    ),
    (
        Operation::Load,
        r"from_pretrained|_load_state_dict_into|load_model|in convert\b|\bt\.to\(device|_apply\(|\.cuda\(\)|model\.to\(|load_weights|_load_pretrained_model|set_module_tensor_to_device|flatten_tensors|load_checkpoint_in_model|_materialize|dispatch_model",
    ),
    (
        Operation::Communication,
        r"all_gather|all_reduce|reduce_scatter|broadcast_coalesced|_broadcast|all_to_all|ncclAll",
    ),
    (
        Operation::OptimizerStep,
        r"torch[/\\]optim|optimizer\.step|_multi_tensor_|_foreach_|_fused_adam|bitsandbytes[/\\]optim|clip_grad_norm|fused_adam",
    ),
    (
        Operation::Backward,
        r"_engine_run_backward|run_backward|loss\.backward|autograd\.backward|accelerator\.backward|in backward\b|scaler\.scale\(loss\)",
    ),
    (
        Operation::Evaluation,
        r"evaluation_loop|prediction_step|validation_step|\btest_step|predict_step|nested_concat|nested_gather|pad_across_processes|compute_metrics|trainer\.evaluate|def validate|\bvalidate\(|\bevaluate\(",
    ),
    (
        Operation::Denoise,
        // A U-Net alone is as likely one that segments pictures.
        r"KSampler|sample_euler|k_diffusion|unet_?(?:1d|2d|3d|motion|spatio)|openaimodel|diffusion_?model|unet\(.{0,60}(?:latent|timestep|encoder_hidden|\bt\b)|transformer_flux|denoise|noise_pred|sampling\.py|p_sample|dpm_?solver|comfy[/\\]samplers",
    ),
    (
        Operation::Generation,
        r"generation[/\\]utils|in generate\b|\.generate\(|_sample\(|decode_one|text_generation|generate_token",
    ),
    // A method of this name may also serve requests for pictures or texts, which are seen first.
    (Operation::Evaluation, r"\.predict(?:_on_batch)?\("),
    (Operation::DataLoading, r"pin_memory|dataloader|collate_fn|default_collate|to_device\(batch|_prepare_inputs"),
    (
        Operation::ContextInit,
        r"_lazy_init|_cuda_init|cuInit|set_device\(|cudaSetDevice|cuCtxCreate|cuDevicePrimaryCtxRetain",
    ),
    (
        Operation::Forward,
        r"in forward\b|_call_impl|def forward|model\(|self\.forward|train_step|training_step|compute_loss",
    ),
];

static SET: LazyLock<Option<RegexSet>> =
    LazyLock::new(|| RegexSet::new(TELLING.iter().map(|(_, words)| format!("(?i:{words})"))).ok());

/// A loss by the names of its functions.
static LOSS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i:\w*(?:cross_entropy|log_softmax|nll_loss)\w*)").ok());

/// What a frame of a network of convolutions has, and what one with attention has.
static CONVOLVES: LazyLock<Option<[Regex; 2]>> = LazyLock::new(|| {
    let convolves = r"(?i:\bconv(?:_?transpose)?[123]d|convolution|_conv_forward|nn[/\\]modules[/\\]conv\.py|batch_?norm[/\\.(]|max_?pool|resnet|densenet|efficientnet|mobilenet|convnext|\bvgg|unet\b)";
    let attends = r"(?i:attention|attn|transformer|\bvit(?:\b|_)|swin|diffusers|diffusion|unet_?(?:1d|2d|3d|motion|spatio)|latent)";
    Some([Regex::new(convolves).ok()?, Regex::new(attends).ok()?])
});

/// The operation that the frames show, if they show one.
pub(crate) fn of_frames(frames: &[Frame]) -> Option<Operation> {
    let set = SET.as_ref()?;
    let frames = within_a_closure(frames);
    let mut best: Option<usize> = None;
    let mut in_a_module = false;
    let mut evaluates = false;
    for frame in frames.iter().rev().take(60) {
        let (function, code) = (frame.function.as_deref().unwrap_or(""), frame.code.as_deref().unwrap_or(""));
        // `cross_entropy(model(x), y)` has not come to its loss while the model is at work.
        let code = match LOSS.as_ref().filter(|_| in_a_module) {
            Some(loss) => loss.replace_all(code, "loss"),
            None => code.into(),
        };
        let words = format!("{} in {function} {code}", frame.file);
        let matches = set.matches(&words);
        if let Some(first) = matches.iter().next() {
            best = Some(best.map_or(first, |best| best.min(first)));
        }
        // The line of a step of an evaluation may compute its loss itself.
        evaluates = evaluates || matches.iter().any(|place| TELLING[place].0 == Operation::Evaluation);
        in_a_module = in_a_module || calls_a_module(frame);
    }
    match best.map(|place| TELLING[place].0) {
        // What makes a loss of training smaller does nothing for one that is only looked at.
        Some(Operation::Logits) if evaluates => Some(Operation::Evaluation),
        operation => operation,
    }
}

/// The frames of what an optimizer's step calls, where it is given a closure that computes the loss and its gradients, as
/// Lightning does: the step itself has not begun. All frames otherwise.
fn within_a_closure(frames: &[Frame]) -> &[Frame] {
    let calls = |frame: &Frame| {
        let of_torch = frame.file.replace('\\', "/").contains("torch/optim/");
        of_torch && frame.code.as_deref().is_some_and(|code| code.contains("closure()"))
    };
    let is_closure = |frame: &Frame| matches!(frame.function.as_deref(), Some("closure" | "_wrap_closure"));
    let steps = frames.iter().position(|frame| frame.file.replace('\\', "/").contains("torch/optim/"));
    let Some(steps) = steps else { return frames };
    let called = frames[steps..].iter().rposition(|frame| calls(frame) || is_closure(frame));
    called.map_or(frames, |place| &frames[steps + place + 1..])
}

/// What went on within an evaluation: its forward pass, where a model is at work below its innermost frame.
pub(crate) fn within(operation: Option<Operation>, frames: &[Frame]) -> Option<Operation> {
    let set = SET.as_ref().filter(|_| operation == Some(Operation::Evaluation))?;
    let evaluation = TELLING.iter().position(|(operation, _)| *operation == Operation::Evaluation)?;
    let last = frames.iter().rposition(|frame| {
        let words = format!("{} in {}", frame.file, frame.function.as_deref().unwrap_or(""));
        set.matches(&words).matched(evaluation)
    })?;
    frames[last..].iter().any(calls_a_module).then_some(Operation::Forward)
}

/// Whether the model that runs is wrapped for data-parallel training.
pub(crate) fn in_ddp(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| frame.file.replace('\\', "/").ends_with("/nn/parallel/distributed.py"))
}

/// Whether a frame is the call of a module.
fn calls_a_module(frame: &Frame) -> bool {
    matches!(frame.function.as_deref(), Some("_call_impl" | "_wrapped_call_impl" | "__call__"))
}

/// Whether the frames and the message are of a network of convolutions without attention; `None` where they do not show it.
pub(crate) fn convolves(frames: &[Frame], message: &str, named: Option<&str>) -> Option<bool> {
    let [convolves, attends] = CONVOLVES.as_ref()?;
    let of = |frame: &Frame| {
        let (function, code) = (frame.function.as_deref().unwrap_or(""), frame.code.as_deref().unwrap_or(""));
        format!("{} in {function} {code}", frame.file)
    };
    let words: Vec<String> = frames.iter().map(of).chain([format!("{message} {}", named.unwrap_or(""))]).collect();
    let any = |regex: &Regex| words.iter().any(|words| regex.is_match(words));
    (any(convolves) && !any(attends)).then_some(true)
}

/// The operation that the message itself names.
pub(crate) fn of_message(pattern: &str, message: &str, named: Option<&str>) -> Option<Operation> {
    let named = named.unwrap_or("");
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word) || named.contains(word));
    Some(match pattern {
        "vllm.kv-cache-too-small"
        | "vllm.kv-cache-tokens"
        | "vllm.no-cache-blocks"
        | "sglang.static-fraction"
        | "ggml.context"
        | "ggml.kv-cache" => Operation::KvCacheInit,
        "sglang.graph" => Operation::GraphCapture,
        "nccl.cuda-failure" => Operation::Communication,
        "tgi.prefill" | "sglang.pool" => Operation::Generation,
        _ if says(&["kv cache", "KV cache"]) => Operation::KvCacheInit,
        _ if says(&["VAE decoding", "VAE encoding"]) => Operation::VaeDecode,
        _ if says(&["during sampling"]) => Operation::Denoise,
        _ if says(&["cuCtxCreate", "PrimaryCtxRetain", "cuInit"]) => Operation::ContextInit,
        // JAX names the compiled program, whose name is that of the user's function.
        _ if named.starts_with("jit_") && evaluates(named) => Operation::Evaluation,
        _ if says(&["loading model", "load model", "load_model", "unable to allocate CUDA"]) => Operation::Load,
        _ => return None,
    })
}

/// Whether a function is one of an evaluation by its name.
fn evaluates(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    ["eval", "evaluate", "evaluation", "test", "valid", "validate", "validation", "predict", "infer", "inference"]
        .iter()
        .any(|word| words.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, function: &str, code: &str) -> Frame {
        Frame {
            file: file.to_owned(),
            line: 1,
            function: Some(function.to_owned()),
            code: Some(code.to_owned()),
            log_line: 1,
        }
    }

    #[test]
    fn every_expression_compiles() {
        assert!(SET.is_some());
    }

    #[test]
    fn the_most_telling_frame_wins() {
        let trainer = frame("transformers/trainer.py", "training_step", "loss = self.compute_loss(model, inputs)");
        let cases = [
            (
                frame("torch/optim/adamw.py", "_init_group", "state[\"exp_avg\"] = torch.zeros_like("),
                Operation::OptimizerInit,
            ),
            (frame("torch/optim/adamw.py", "step", "adamw("), Operation::OptimizerStep),
            (
                frame("modeling_llama.py", "eager_attention_forward", "attn_weights = torch.matmul(query, key)"),
                Operation::AttentionScores,
            ),
            (
                frame("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss("),
                Operation::Logits,
            ),
            (frame("train.py", "main", "loss.backward()"), Operation::Backward),
            (
                frame("diffusers/models/autoencoders/vae.py", "forward", "sample = up_block(sample)"),
                Operation::VaeDecode,
            ),
            (frame("torch/nn/modules/module.py", "convert", "return t.to(device, dtype)"), Operation::Load),
            (frame("model.py", "forward", "x = self.mlp(x)"), Operation::Forward),
        ];
        for (inner, expected) in cases {
            assert_eq!(of_frames(&[trainer.clone(), inner.clone()]), Some(expected), "{inner:?}");
        }
        assert_eq!(of_frames(&[]), None);
    }

    #[test]
    fn a_loss_that_waits_for_its_model_is_not_what_runs() {
        let line = frame("train.py", "training_step", "loss = F.cross_entropy(self.net(pictures), labels)");
        let call = frame("torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)");
        let inside = frame("torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(");
        assert_eq!(of_frames(&[line.clone(), call.clone(), inside.clone()]), Some(Operation::Forward));
        assert_eq!(of_frames(std::slice::from_ref(&line)), Some(Operation::Logits));
        let of_loss = frame("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(");
        assert_eq!(of_frames(&[line, call, of_loss]), Some(Operation::Logits));
    }

    #[test]
    fn a_closure_of_an_optimizer_is_no_step_of_it() {
        let closure = [
            frame("torch/optim/sgd.py", "step", "loss = closure()"),
            frame("lightning/pytorch/plugins/precision/precision.py", "_wrap_closure", "closure_result = closure()"),
            frame(
                "lightning/pytorch/loops/optimization/automatic.py",
                "closure",
                "self._backward_fn(step_output.loss)",
            ),
        ];
        let of = |inner: Frame| of_frames(&[closure.as_slice(), &[inner]].concat());
        assert_eq!(of(frame("torch/_tensor.py", "backward", "torch.autograd.backward(")), Some(Operation::Backward));
        assert_eq!(of(frame("net.py", "training_step", "y = self(x)")), Some(Operation::Forward));
        let steps = of(frame("torch/optim/sgd.py", "_multi_tensor_sgd", "torch._foreach_add_(grads, params)"));
        assert_eq!(steps, Some(Operation::OptimizerStep));
    }

    #[test]
    fn a_loss_of_an_evaluation_is_part_of_it() {
        let step = frame("tagger.py", "test_step", "self.log(\"loss\", F.cross_entropy(logits, labels))");
        let loss = frame("torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss(");
        assert_eq!(of_frames(&[step, loss]), Some(Operation::Evaluation));
    }

    #[test]
    fn a_prediction_is_an_evaluation() {
        let call = frame("longdocs.py", "main", "scores = model.predict(documents, verbose=0)");
        let inside =
            frame("keras/src/utils/traceback_utils.py", "error_handler", "raise e.with_traceback(filtered_tb)");
        assert_eq!(of_frames(&[call.clone(), inside]), Some(Operation::Evaluation));
        let model = frame("model.py", "forward", "x = self.mlp(x)");
        assert_eq!(of_frames(&[call.clone(), model]), Some(Operation::Evaluation));
        let serves = frame("predict.py", "predict", "text = self.model.generate(**inputs)");
        assert_eq!(of_frames(&[call, serves]), Some(Operation::Generation));
    }

    #[test]
    fn an_evaluation_runs_out_in_its_model_or_while_it_gathers() {
        let frames = |step: &str| {
            [
                frame("lightning/pytorch/loops/evaluation_loop.py", "run", "self._evaluation_step(batch)"),
                frame("torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)"),
                frame("segment.py", "validation_step", step),
            ]
        };
        let gathers = frames("self.outputs.append(torch.cat(parts))");
        let operation = of_frames(&gathers);
        assert_eq!(operation, Some(Operation::Evaluation));
        assert_eq!(within(operation, &gathers), None, "DDP calls the step as a model");
        let mut computes = frames("logits = self(x)").to_vec();
        computes.push(frame("torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)"));
        assert_eq!(within(of_frames(&computes), &computes), Some(Operation::Forward));
        assert_eq!(within(Some(Operation::Backward), &computes), None);
    }

    #[test]
    fn a_unet_that_segments_does_not_denoise() {
        let segments = frame("segment.py", "training_step", "mask = self.unet(x)");
        assert_eq!(of_frames(&[segments]), Some(Operation::Forward));
        for code in ["noise_pred = self.unet(latents, t)", "x = self.unet(sample, timestep, encoder_hidden_states)"] {
            assert_eq!(of_frames(&[frame("pipe.py", "step", code)]), Some(Operation::Denoise), "{code}");
        }
    }

    #[test]
    fn a_network_of_convolutions_is_known_by_its_frames() {
        let of = |frames: &[Frame]| convolves(frames, "CUDA out of memory.", None);
        let resnet = frame("torchvision/models/resnet.py", "forward", "out = self.conv3(out)");
        let linear = frame("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight, self.bias)");
        let attends = frame("model.py", "forward", "x = self.attention(self.norm(x))");
        assert_eq!(of(std::slice::from_ref(&resnet)), Some(true));
        assert_eq!(of(&[linear]), None);
        assert_eq!(of(&[attends, resnet]), None, "a network with both");
        assert_eq!(convolves(&[], "OOM when allocating tensor", Some("model/conv2d_3/convolution")), Some(true));
    }
}

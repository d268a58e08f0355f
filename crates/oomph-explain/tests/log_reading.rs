//! Logs as users have them, read whole: which failure is the root, where it was, what was being done, what to do.

use oomph_explain::log::{self, Failure, Report};
use oomph_remedy::{Cause, Operation};

fn first(text: &str) -> Failure {
    log::explain_text(text).failures.into_iter().next().expect("a failure")
}

fn causes(failure: &Failure) -> Vec<Cause> {
    failure.causes.iter().map(|cause| cause.cause).collect()
}

const TRAINING: &str = r#"***** Running training *****
  Num examples = 52,002
  Instantaneous batch size per device = 8
  Gradient Accumulation steps = 4
  Number of trainable parameters = 6,738,415,616
  0%|          | 0/4875 [00:00<?, ?it/s]
Traceback (most recent call last):
  File "/home/me/finetune.py", line 212, in <module>
    main()
  File "/home/me/finetune.py", line 205, in main
    trainer.train()
  File "/v/lib/python3.12/site-packages/transformers/trainer.py", line 2325, in train
    return inner_training_loop(
  File "/v/lib/python3.12/site-packages/torch/optim/adamw.py", line 129, in _init_group
    state["exp_avg"] = torch.zeros_like(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB. GPU 0 has a total capacity of 79.11 GiB of which 80.69 MiB is free. Including non-PyTorch memory, this process has 79.01 GiB memory in use. Of the allocated memory 77.87 GiB is allocated by PyTorch, and 614.05 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)
"#;

#[test]
fn a_trainer_that_dies_in_the_optimizer() {
    let failure = first(TRAINING);
    assert!(failure.is_gpu_oom);
    assert_eq!(failure.framework.as_deref(), Some("pytorch"));
    assert_eq!(failure.front_end.as_deref(), Some("transformers"));
    assert_eq!(failure.operation, Some(Operation::OptimizerInit));
    assert_eq!(failure.line, 16);
    assert_eq!(failure.facts.lines["requested_bytes"], 16);
    let site = failure.site.as_ref().unwrap();
    assert_eq!(
        (site.file.as_str(), site.line, site.code.as_deref()),
        ("/home/me/finetune.py", 205, Some("trainer.train()"))
    );
    assert_eq!(failure.causes[0].cause, Cause::Full);
    // 614 MiB of slack cover 172 MiB, but the card is full: fragmentation may be named, never first.
    assert!(!failure.remedies.is_empty());
    let ids: Vec<_> = failure.remedies.iter().map(|remedy| remedy.id.as_str()).collect();
    assert!(ids.iter().any(|id| ["adam-8bit", "lora", "paged-adam-8bit", "adafactor"].contains(id)), "{ids:?}");
    assert!(!ids.contains(&"micro-batch"), "activations are gone when the optimizer makes its state: {ids:?}");
    assert!(failure.avoid.iter().any(|avoid| avoid.id == "empty-cache"));
}

#[test]
fn ranks_that_write_over_each_other() {
    let text = "[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File \"/job/a.py\", line 11, in step
[rank0]:   File \"/job/b.py\", line 22, in step
[rank1]:     one()
[rank0]:     two()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank1]: GPU 1 has a total capacity of 8.00 GiB of which 100.00 MiB is free.
[rank0]: GPU 0 has a total capacity of 8.00 GiB of which 200.00 MiB is free.
";
    let Report { failures, .. } = log::explain_text(text);
    assert_eq!(failures.len(), 2);
    for (failure, rank, file, line, requested, free) in [
        (&failures[0], 1, "/job/a.py", 11, 1u64 << 30, 100u64 << 20),
        (&failures[1], 0, "/job/b.py", 22, 2 << 30, 200 << 20),
    ] {
        assert_eq!((failure.rank, failure.facts.device), (Some(rank), Some(rank)));
        let site = failure.site.as_ref().unwrap();
        assert_eq!((site.file.as_str(), site.line), (file, line));
        assert_eq!((failure.facts.requested_bytes, failure.facts.free_bytes), (Some(requested), Some(free)));
    }
}

#[test]
fn the_root_is_the_failure_that_ended_the_run() {
    let mut text = String::from(
        "WARNING: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB already \
         allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch), skipping batch\n",
    );
    text.push_str(&"step: loss 0.1\n".repeat(20_000));
    text.push_str(
        "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB \
                   already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n",
    );
    text.push_str("RuntimeError: DataLoader worker (pid 61138) is killed by signal: Killed.\n");
    let Report { failures, .. } = log::explain_text(&text);
    assert_eq!(failures.len(), 3);
    assert_eq!((failures[0].facts.requested_bytes, failures[0].line), (Some(3 << 30), 20_002));
    assert!(
        !failures[1].is_gpu_oom,
        "the killed worker is a consequence, and comes before the failure that was survived"
    );
    assert!(failures[2].survived);
}

#[test]
fn llama_cpp_reports_one_failure_in_four_lines() {
    let failure = first(
        "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes\n\
         load_tensors: offloaded 49/49 layers to GPU\nllama_context: n_ctx         = 131072\n\
         ggml_backend_cuda_buffer_type_alloc_buffer: allocating 24576.00 MiB on device 0: cudaMalloc failed: out of memory\n\
         alloc_tensor_range: failed to allocate CUDA0 buffer of size 25769803776\n\
         llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n",
    );
    assert_eq!(failure.framework.as_deref(), Some("llama.cpp"));
    assert_eq!((failure.facts.requested_bytes, failure.facts.device), (Some(25_769_803_776), Some(0)));
    assert_eq!(failure.line, 5);
    assert!(causes(&failure).contains(&Cause::KvCache) && causes(&failure).contains(&Cause::ContextLength));
    assert!(!failure.remedies.is_empty());
}

#[test]
fn a_dump_of_tensorflow_becomes_a_heap() {
    let mut text = String::from(
        "W tensorflow/core/common_runtime/bfc_allocator.cc:462] Allocator (GPU_0_bfc) ran out of memory trying to allocate \
         1.00GiB (rounded to 1073741824)requested by op Conv2D\n\
         I tensorflow/core/common_runtime/bfc_allocator.cc:1010] BFCAllocator dump for GPU_0_bfc\n\
         I tensorflow/core/common_runtime/bfc_allocator.cc:1017] Bin (256): \tTotal Chunks: 2, Chunks in use: 2. 1.0KiB \
         allocated for chunks. 1.0KiB in use in bin. 12B client-requested in use in bin.\n\
         I tensorflow/core/common_runtime/bfc_allocator.cc:1046] Next region of size 3221225472\n",
    );
    for index in 0..1000 {
        text.push_str(&format!(
            "I tensorflow/core/common_runtime/bfc_allocator.cc:1066] {} at 7f{index:04x}00000 of size 2097152 next {index}\n",
            if index % 2 == 0 { "InUse" } else { "Free " }
        ));
    }
    text.push_str(
        "I tensorflow/core/common_runtime/bfc_allocator.cc:1107] Sum Total of in-use chunks: 1000.0MiB\n\
         I tensorflow/core/common_runtime/bfc_allocator.cc:1114] Stats: \nLimit:                      3221225472\n\
         InUse:                      1048576000\nMaxInUse:                   2097152000\nNumAllocs:                        12\n\n\
         W tensorflow/core/framework/op_kernel.cc:1780] OP_REQUIRES failed at conv_ops.cc:446 : RESOURCE_EXHAUSTED: OOM when \
         allocating tensor with shape[256,1024,32,32] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by \
         allocator GPU_0_bfc\n",
    );
    let Report { failures, .. } = log::explain_text(&text);
    assert_eq!(failures.len(), 1, "one crash, however often it is reported");
    let failure = &failures[0];
    let heap = failure.derived.heap.as_ref().expect("the heap");
    assert_eq!((heap.in_use_chunks, heap.free_chunks, heap.largest_free_bytes), (500, 500, 2_097_152));
    assert_eq!(heap.limit_bytes, Some(3_221_225_472));
    assert!(heap.fragmentation > 0.99);
    assert_eq!(failure.derived.tensor_bytes, Some(1 << 30));
    assert_eq!((failure.facts.requested_bytes, failure.facts.device), (Some(1 << 30), Some(0)));
}

#[test]
fn what_jax_prints_is_reported_in_its_own_words() {
    // The allocator is TensorFlow's, and so are its words; a path through Keras makes no program of Keras'.
    let log = "\
W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 7.32GiB (rounded to 7864320000)requested by op \n\
I external/xla/xla/tsl/framework/bfc_allocator.cc:1106] InUse at 7f0000000000 of size 10748000000 next 18446744073709551615\n\
I external/xla/xla/tsl/framework/bfc_allocator.cc:1140] Stats: \nLimit:                        16.70GiB\n\
InUse:                        10.01GiB\nMaxInUse:                     14.01GiB\n\
Traceback (most recent call last):\n  File \"/home/u/train.py\", line 57, in <module>\n    state, loss = train_step(state, batch, key)\n\
  File \"/v/site-packages/keras/src/backend/jax/trainer.py\", line 10, in f\n\
jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7.32GiB.\n";
    let failure = first(log);
    assert_eq!((failure.framework.as_deref(), failure.front_end.as_deref()), (Some("jax"), None));
    assert_eq!(failure.facts.limit_bytes, Some(17_931_488_460));
    assert!(!causes(&failure).contains(&Cause::Limit), "three quarters of a card are JAX's own");
    let written: Vec<&str> = failure.remedies.iter().map(|offer| offer.apply.as_str()).collect();
    assert!(written.iter().any(|apply| apply.contains("jax.checkpoint")), "{written:?}");
    assert!(written.iter().all(|apply| !apply.contains("keras") && !apply.contains("tf.")), "{written:?}");

    let unknown = log.lines().take(1).collect::<String>();
    assert_eq!(first(&unknown).framework.as_deref(), Some("jax"), "where its sources lay");
    let tensorflow = unknown.replace("external/xla/xla", "external/local_xla/xla");
    assert_eq!(first(&tensorflow).framework.as_deref(), Some("tensorflow"));
}

#[test]
fn the_kernel_killed_it() {
    let failure = first("Out of memory: Killed process 4242 (python) total-vm:99999kB, anon-rss:88888kB\n");
    assert!(!failure.is_gpu_oom);
    assert_eq!(failure.not_oom.as_ref().unwrap().kind.id(), "killed");
    assert_eq!(failure.causes[0].cause, Cause::HostMemory);
}

#[test]
fn windows_line_ends_colours_and_prefixes_do_not_matter() {
    let plain = first(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\nGPU 3 has a total capacity of 8.00 GiB",
    );
    for text in [
        "\u{1b}[31mtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\u{1b}[0m\r\nGPU 3 has a total capacity of 8.00 GiB\r\n",
        "web-1  | torch.OutOfMemoryError: CUDA out of memory. Tried to\nweb-1  | allocate 1.00 GiB.\nweb-1  | GPU 3 has a total capacity of 8.00 GiB",
        " 10%|█  | 1/9\r 20%|██ | 2/9\rtorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 3 has a total capacity of 8.00 GiB",
        "2026-11-21 06:00:00,123 ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00\n2026-11-21 06:00:00,123 ERROR GiB. GPU 3 has a total capacity of 8.00 GiB",
    ] {
        let failure = first(text);
        assert_eq!(failure.facts.requested_bytes, plain.facts.requested_bytes, "{text}");
        assert_eq!(failure.facts.device, Some(3), "{text}");
        assert_eq!(failure.facts.capacity_bytes, Some(8 << 30), "{text}");
    }
}

#[test]
fn the_json_has_the_fields_of_the_contract() {
    let failure = serde_json::to_value(first(TRAINING)).unwrap();
    for field in ["is_gpu_oom", "framework", "era", "facts", "derived", "causes", "site", "remedies", "avoid", "line"] {
        assert!(failure.get(field).is_some(), "{field}");
    }
    for field in [
        "device",
        "requested_bytes",
        "capacity_bytes",
        "free_bytes",
        "allocated_bytes",
        "reserved_bytes",
        "process_bytes",
    ] {
        assert!(failure["facts"].get(field).is_some(), "{field}");
    }
    let cause = &failure["causes"][0];
    assert_eq!(cause["cause"], "full");
    assert!(cause["confidence"].is_number() && cause["because"].is_string() && cause.get("bytes").is_some());
    let remedy = &failure["remedies"][0];
    for field in ["id", "title", "apply", "frees_bytes", "cost"] {
        assert!(remedy.get(field).is_some(), "{field}");
    }
    assert!(failure["avoid"][0]["id"].is_string() && failure["avoid"][0]["because"].is_string());
}

/// Lines of at most `width` characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[test]
fn however_a_log_was_written_its_figures_are_the_same() {
    let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 3 has a total capacity of \
                   31.36 GiB of which 471.69 MiB is free. Including non-PyTorch memory, this process has 16.63 GiB memory \
                   in use. Of the allocated memory 15.03 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch \
                   but unallocated.";
    let figures = |failure: Failure| {
        let facts = failure.facts;
        let sizes = [facts.requested_bytes, facts.capacity_bytes, facts.free_bytes, facts.process_bytes];
        (failure.is_gpu_oom, facts.device, sizes, facts.allocated_bytes, facts.unallocated_bytes)
    };
    let whole = figures(first(message));
    assert!(whole.0 && whole.2.iter().all(Option::is_some) && whole.4.is_some());
    let words = wrapped(message, 60);
    for prefix in ["", "[trainer3]: ", "web-1  | ", "2026-11-20T12:00:01.123456789Z stderr F ", "+", "a/train.log:17:"]
    {
        let text: String = words.iter().map(|line| format!("{prefix}{line}\r\n")).collect();
        assert_eq!(figures(first(&text)), whole, "{text}");
    }
    // A terminal breaks lines within words and figures.
    let letters: Vec<char> = message.chars().collect();
    for width in [80, 97] {
        let broken: Vec<String> = letters.chunks(width).map(|line| line.iter().collect()).collect();
        assert_eq!(figures(first(&broken.join("\n"))), whole, "{broken:?}");
    }
    // Windows PowerShell writes UTF-16.
    let bytes: Vec<u8> = std::iter::once(0xfeff).chain(message.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let report = log::explain(&bytes[..], &log::Options::default()).unwrap();
    assert_eq!(figures(report.failures.into_iter().next().expect("a failure")), whole);
}

#[test]
fn words_that_two_lines_share_are_found() {
    let failure = first(
        "ValueError: Free memory on device cuda:0 (7.34/15.49 GiB) on startup is less than\ndesired GPU memory \
         utilization (0.8, 12.39 GiB). Decrease GPU memory utilization",
    );
    assert!(failure.is_gpu_oom);
    assert_eq!((failure.framework.as_deref(), failure.line), (Some("vllm"), 1));
    assert_eq!(failure.facts.requested_bytes, Some((12.39 * f64::from(1 << 30)) as u64));
    assert!(first("trainer-1  | CUDA driver error: out of memory\n").is_gpu_oom, "the service's name is not a pipe");
}

#[test]
fn a_compiled_program_of_jax_that_evaluates_gets_the_remedies_of_an_evaluation() {
    let log = "W1123 23:42:03.9 6934 bfc_allocator.cc:514] Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.05GiB \
        (rounded to 3276801024)requested by op \nIf the cause is memory fragmentation maybe the environment variable \
        'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \n\
        Traceback (most recent call last):\n  File \"/p/train.py\", line 68, in main\n    print(accuracy)\n\
        jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3.05GiB. \
        [executable_name='jit_eval_step'] [tf-allocator-allocation-error='']\n";
    let failure = first(log);
    assert_eq!(failure.operation, Some(Operation::Evaluation));
    let ids: Vec<&str> = failure.remedies.iter().map(|offer| offer.id.as_str()).collect();
    assert!(ids.iter().take(2).any(|id| *id == "eval-batch"), "{ids:?}");
    assert!(!ids.contains(&"gradient-checkpointing"), "{ids:?}");
}

#[test]
fn a_warning_of_a_library_is_not_the_place() {
    let log = "/v/site-packages/keras/src/trainers/epoch_iterator.py:74: UserWarning: `shuffle=True` was passed\n  \
        self.data_adapter = data_adapters.get_data_adapter(\n\
        W0000 00:00:17.2 17430 bfc_allocator.cc:502] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.38GiB \
        (rounded to 2559653376)requested by op \nTraceback (most recent call last):\n  File \"/p/words.py\", line 38, in \
        <module>\n    model.fit(data)\n  File \"/v/site-packages/keras/src/utils/traceback_utils.py\", line 122, in \
        error_handler\n    raise e.with_traceback(filtered_tb) from None\n\
        tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n";
    let site = first(log).site.expect("the traceback names the user's line");
    assert_eq!((site.file.as_str(), site.line), ("/p/words.py", 38));
}

#[test]
fn the_limit_of_onnx_runtimes_arena_is_the_cause_where_its_message_says_so() {
    let log = "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned \
        while running Conv node. Name:'' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 \
        Available memory of 502267904 is smaller than requested bytes of 629145600\n";
    let failure = first(log);
    assert_eq!(causes(&failure)[0], Cause::Limit);
    // What is left below the limit is not what the card has free.
    assert_eq!((failure.facts.requested_bytes, failure.facts.free_bytes), (Some(629_145_600), None));
    assert!(failure.remedies.iter().any(|remedy| remedy.id == "raise-limit"), "{:?}", failure.remedies);
}

#[test]
fn cudas_own_words_are_named_by_the_library_that_their_line_names() {
    for (log, framework) in [
        ("openmm.OpenMMException: Error creating array positions: CUDA_ERROR_OUT_OF_MEMORY (2)\n", "openmm"),
        (
            "2024-01-01 00:00:00.1: E tensorflow/stream_executor/cuda/cuda_dnn.cc:334] Could not create cudnn handle: \
             CUDNN_STATUS_ALLOC_FAILED\n",
            "tensorflow",
        ),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n", "pytorch"),
        ("CUDA_ERROR_OUT_OF_MEMORY: out of memory\n", "cuda"),
    ] {
        let failure = first(log);
        assert!(failure.is_gpu_oom, "{log}");
        assert_eq!(failure.framework.as_deref(), Some(framework), "{log}");
    }
}

#[test]
fn kokkos_says_in_which_memory_it_could_not_allocate() {
    let old = |space: &str, why: &str| {
        format!(
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  Kokkos failed to allocate memory \
             for label \"cells\".  Allocation using MemorySpace named \"{space}\" failed with the following error:  Allocation \
             of size 1.5 G failed{why}\n"
        )
    };
    let new = |space: &str| {
        format!("  what():  Kokkos ERROR: {space} memory space failed to allocate 1.5 GiB (label=\"cells\").\n")
    };
    let full = ", likely due to insufficient memory.  (The allocation mechanism was cudaMalloc().)";
    let host = ", likely due to insufficient memory.  (The allocation mechanism was standard malloc().)";
    for (log, pattern) in [(old("Cuda", full), "kokkos.label"), (new("Cuda"), "kokkos.space")] {
        let failure = first(&log);
        assert_eq!((failure.pattern.as_str(), failure.is_gpu_oom), (pattern, true), "{log}");
        assert_eq!(failure.framework.as_deref(), Some("kokkos"));
        assert_eq!(failure.facts.requested_bytes, Some(3 << 29));
    }
    let other = " because of an unknown error.  (The allocation mechanism was cudaMalloc().  The Cuda allocation returned the \
                 error code \"cudaErrorNotSupported\".)";
    for log in [old("Host", host), new("Host"), new("CudaHostPinned"), old("Cuda", other)] {
        let failures = log::explain_text(&log).failures;
        assert!(
            failures.iter().all(|failure| !failure.pattern.starts_with("kokkos.") && !failure.is_gpu_oom),
            "{failures:?}"
        );
    }
}

#[test]
fn an_error_of_cudarc_is_cudarcs_unless_its_user_is_named() {
    let error = "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")";
    let panic = format!(
        "thread 'main' panicked at src/bin/trainer.rs:23:61:\ncalled `Result::unwrap()` on an `Err` value: {error}\n"
    );
    for (log, framework) in [
        (format!("Error: {error}\n"), "cudarc"),
        (panic, "cudarc"),
        (format!("Error: {error}\n\nStack backtrace:\n   0: candle_core::error::Error::bt\n"), "candle"),
        (format!("candle-worker\nerror: training failed: {error}\n"), "candle"),
    ] {
        let failure = first(&log);
        assert!(failure.is_gpu_oom, "{log}");
        assert_eq!(failure.framework.as_deref(), Some(framework), "{log}");
        assert_eq!(failure.backend.as_deref(), Some("cuda"), "{log}");
    }
}

/// A traceback of a training step of Lightning's, down to some inner frames.
fn of_lightning(step: &str, inner: &str) -> String {
    let packages = "/v/lib/python3.12/site-packages";
    format!(
        "Traceback (most recent call last):\n  File \"/home/me/resnet.py\", line 51, in <module>\n    trainer.fit(Classifier(), data)\n  \
         File \"{packages}/lightning/pytorch/trainer/trainer.py\", line 560, in fit\n    call._call_and_handle_interrupt(\n  \
         File \"/home/me/resnet.py\", line 31, in training_step\n    {step}\n  \
         File \"{packages}/torch/nn/modules/module.py\", line 1778, in _wrapped_call_impl\n    return self._call_impl(*args, **kwargs)\n\
         {inner}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 98.00 MiB. GPU 0 has a total capacity of 3.94 GiB of \
         which 60.00 MiB is free. Including non-PyTorch memory, this process has 3.88 GiB memory in use. Of the allocated memory \
         3.60 GiB is allocated by PyTorch, and 30.00 MiB is reserved by PyTorch but unallocated.\n"
    )
}

#[test]
fn a_network_of_convolutions_gets_no_advice_for_language_models() {
    let inner = "  File \"/v/lib/python3.12/site-packages/torchvision/models/resnet.py\", line 154, in forward\n    \
                 out = self.conv3(out)\n";
    let failure = first(&of_lightning("loss = F.cross_entropy(self.net(pictures), labels)", inner));
    assert_eq!(failure.front_end.as_deref(), Some("lightning"));
    assert_eq!(failure.operation, Some(Operation::Forward));
    let ids: Vec<_> = failure.remedies.iter().map(|remedy| remedy.id.as_str()).collect();
    for wrong in ["sdpa", "flash-attention", "weights-int8", "lora", "fused-cross-entropy", "chunked-cross-entropy"] {
        assert!(!ids.contains(&wrong), "{ids:?}");
    }
    // What it is offered is in Lightning's words.
    let words = |id: &str| failure.remedies.iter().find(|remedy| remedy.id == id).map(|remedy| remedy.apply.as_str());
    assert!(words("micro-batch").is_some_and(|words| words.contains("accumulate_grad_batches")), "{ids:?}");
    assert!(words("autocast").is_none_or(|words| words.contains("Trainer(precision=")), "{ids:?}");
}

#[test]
fn what_an_evaluation_would_move_is_no_figure_of_its_request() {
    let inner = "  File \"/home/me/resnet.py\", line 40, in forward\n    x = self.up(torch.cat([x, kept], dim=1))\n";
    let log = of_lightning("logits = self(x)", inner).replace("training_step", "validation_step");
    let log = log.replace(
        "call._call_and_handle_interrupt(\n",
        "call._call_and_handle_interrupt(\n  File \"/v/lib/python3.12/site-packages/lightning/pytorch/loops/evaluation_loop.py\", \
         line 145, in run\n    self._evaluation_step(batch)\n",
    );
    let failure = first(&log);
    assert_eq!(failure.operation, Some(Operation::Evaluation), "{:?}", failure.site);
    let frees = |id: &str| failure.remedies.iter().find(|remedy| remedy.id == id).map(|remedy| remedy.frees_bytes);
    assert_eq!(frees("eval-accumulation").flatten(), None);
    assert!(frees("eval-batch").is_some(), "{:?}", failure.remedies);
}

#[test]
fn a_model_in_ddp_trains_on_several_cards() {
    let packages = "/v/lib/python3.12/site-packages";
    let log = format!(
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/job/ddp.py\", line 37, in main\n[rank1]:     logits = model(tokens)\n\
         [rank1]:   File \"{packages}/torch/nn/parallel/distributed.py\", line 1912, in forward\n[rank1]:     else self._run_ddp_forward(*inputs)\n\
         [rank1]:   File \"/job/ddp.py\", line 23, in forward\n[rank1]:     return self.head(self.encoder(self.embed(tokens)))\n\
         [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 1 has a total capacity of 4.00 GiB of \
         which 59.00 MiB is free. Including non-PyTorch memory, this process has 3.94 GiB memory in use. Of the allocated memory \
         3.79 GiB is allocated by PyTorch, and 5.91 MiB is reserved by PyTorch but unallocated.\n"
    );
    let failure = first(&log);
    let words = |id: &str| failure.remedies.iter().find(|remedy| remedy.id == id).map(|remedy| remedy.apply.as_str());
    let ids: Vec<_> = failure.remedies.iter().map(|remedy| remedy.id.as_str()).collect();
    assert_eq!(
        words("gradient-bucket-view"),
        Some("DistributedDataParallel(model, gradient_as_bucket_view=True)"),
        "{ids:?}"
    );
    assert_eq!(words("no-grad"), None, "it trains: {ids:?}");
}

#[test]
fn two_messages_of_one_width_keep_their_figures() {
    let message = |time: &str| {
        format!(
            "\u{1b}[1;31m2026-11-28 07:55:{time} [E:onnxruntime:, sequential_executor.cc:677 ExecuteKernel] Non-zero status \
             code returned while running Conv node. Status Message: bfc_arena.cc:360 void* \
             onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory for \
             requested buffer of size 822083584"
        )
    };
    for between in ["\n", "\n\n", "\n\u{1b}[m\n"] {
        let failure = first(&[message("15.1"), message("15.7")].join(between));
        assert_eq!(failure.facts.requested_bytes, Some(822_083_584), "{between:?}");
        assert_eq!(failure.times, 2);
    }
}

#[test]
fn a_binding_that_cannot_make_its_context_is_answered_in_its_own_words() {
    let message = "RuntimeError: Failed to create llama_context (model='summary-3b.gguf', requested n_ctx=24659, model \
        n_ctx_train=65536). Common causes: requested context size too large for available memory (OOM), n_ctx exceeds what \
        the model supports, or invalid context parameters. Try lowering n_ctx or n_batch.\n";
    let log = format!(
        "Traceback (most recent call last):\n  File \"/w/router.py\", line 38, in ticket\n    return \
         str(self.models[\"summary\"](text))\n  File \"/v/lib/python3.12/site-packages/cyllama/api.py\", line 1034, in \
         _ensure_context\n    ctx = LlamaContext(self.model, ctx_params)\n  File \"cyllama/llama/llama_cpp.pyx\", line \
         2372, in cyllama.llama.llama_cpp.LlamaContext.__init__\n{message}"
    );
    for log in [log.as_str(), message] {
        let failure = first(log);
        assert!(failure.is_gpu_oom);
        assert_eq!(failure.framework.as_deref(), Some("llama.cpp"));
        assert_eq!((failure.facts.requested_bytes, failure.facts.context_tokens), (None, Some(24659)));
        assert_eq!(causes(&failure)[..2], [Cause::ContextLength, Cause::KvCache]);
        let remedies: Vec<_> = failure.remedies.iter().map(|offer| (offer.id.as_str(), offer.apply.as_str())).collect();
        assert_eq!(remedies[0], ("shorter-context", "n_ctx=12330"));
        assert!(remedies.iter().all(|(_, apply)| !apply.starts_with('-')), "{remedies:?}");
    }
    let site = first(&log).site.expect("the traceback names the user's line");
    assert_eq!((site.file.as_str(), site.line), ("/w/router.py", 38));
}

#[test]
fn a_buffer_that_llama_cpp_names_says_more_than_its_binding() {
    let log = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8208.00 MiB on device 0: cudaMalloc failed: out of memory\n\
        ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 8606711808\n\
        graph_reserve: failed to allocate compute buffers\n\
        llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers\n\
        Traceback (most recent call last):\n  File \"/w/embed.py\", line 19, in <module>\n    \
        context = llama_cpp.LlamaContext(model, wishes)\n  File \"cyllama/llama/llama_cpp.pyx\", line 2372, in \
        cyllama.llama.llama_cpp.LlamaContext.__init__\nRuntimeError: Failed to create llama_context (model='3b.gguf', \
        requested n_ctx=16384, model n_ctx_train=131072). Common causes: requested context size too large for available \
        memory (OOM), n_ctx exceeds what the model supports, or invalid context parameters. Try lowering n_ctx or n_batch.\n";
    let failure = first(log);
    assert_eq!(failure.facts.requested_bytes, Some(8_606_711_808));
    assert!(!causes(&failure).contains(&Cause::KvCache), "{:?}", failure.causes);
    let first = &failure.remedies[0];
    assert_eq!((first.id.as_str(), first.apply.as_str()), ("smaller-compute-buffer", "n_ubatch=128"));
    let cache =
        log.replace("compute buffers", "buffer for kv cache").replace("compute pp buffers", "buffer for kv cache");
    let failure = self::first(&cache);
    assert_eq!(causes(&failure)[0], Cause::KvCache);
    let applied: Vec<&str> = failure.remedies.iter().map(|offer| offer.apply.as_str()).collect();
    for words in ["type_k=8, type_v=8", "offload_kqv=False", "n_ctx=8192"] {
        assert!(applied.contains(&words), "{words}: {applied:?}");
    }
}

#[test]
fn what_tensorflow_could_do_without_is_not_the_failure() {
    let benign = "W0000 00:00:17.1 15 bfc_allocator.cc:311] Allocator (GPU_0_bfc) ran out of memory trying to allocate \
        955.02MiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could \
        be performance gains if more memory were available.\n\
        W0000 00:00:17.2 15 gpu_utils.cc:69] Failed to allocate memory for convolution redzone checking; skipping this check. \
        This is benign and only means that we won't check cudnn for out-of-bounds reads and writes.\n";
    let report = log::explain_text(benign);
    assert!(report.failures.iter().all(|failure| failure.survived), "{:?}", report.failures);
    let error = "Traceback (most recent call last):\n  File \"/w/capped.py\", line 41, in <module>\n    bag = embed(batch)\n\
        tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n";
    let failure = first(&format!("{benign}{error}"));
    assert_eq!((failure.survived, failure.facts.requested_bytes), (false, None));
    assert_eq!(failure.site.map(|site| site.line), Some(41));
}

#[test]
fn the_limit_of_a_pool_is_that_of_its_dump() {
    let log = |requested: &str, in_use: &str| {
        format!(
            "W0000 00:00:17.1 12 hlo_rematerialization.cc:3204] Can't reduce memory use below 8.90GiB (9558700360 bytes) by \
             rematerialization; only reduced to {requested} , down from {requested} originally\n\
             W0000 00:00:17.2 12 bfc_allocator.cc:502] Allocator (GPU_0_bfc) ran out of memory trying to allocate {requested} \
             (rounded to 1)requested by op \nCurrent allocation summary follows.\n\
             I0000 00:00:17.3 12 bfc_allocator.cc:1110] Stats: \nLimit:                        10.13GiB\n\
             InUse:                       {in_use}\nMaxInUse:                      9.19GiB\n\n\
             Traceback (most recent call last):\n  File \"/w/longdocs.py\", line 53, in main\n    scores = \
             model.predict(documents, verbose=0)\n\
             tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:\n"
        )
    };
    let failure = first(&log("18.09GiB", "121.36MiB"));
    assert_eq!(failure.facts.limit_bytes, Some((10.13 * f64::from(1 << 30)) as u64));
    assert_eq!(causes(&failure)[0], Cause::TooLarge);
    assert_eq!(failure.operation, Some(Operation::Evaluation));
    let ids: Vec<_> = failure.remedies.iter().map(|offer| offer.id.as_str()).collect();
    assert!(ids.contains(&"eval-batch"), "{ids:?}");
    assert!(!ids.contains(&"micro-batch") && !ids.contains(&"gradient-checkpointing"), "{ids:?}");
    // Both together are within the limit: only the pieces of what is free were too small.
    let failure = first(&log("3.00GiB", "6.11GiB"));
    assert_eq!(causes(&failure), [Cause::Fragmentation]);
    assert_eq!(failure.remedies[0].apply, "TF_GPU_ALLOCATOR=cuda_malloc_async");
    assert!(failure.remedies.len() > 1, "smaller tensors fit smaller pieces, too");
}

#[test]
fn a_figure_is_rounded_as_the_report_rounds_it() {
    let failure =
        first("Failed to allocate memory for requested buffer of size 10871635968 [E:onnxruntime:, bfc_arena.cc:360]");
    assert!(failure.causes[0].because.contains("10.13 GiB"), "{}", failure.causes[0].because);
}

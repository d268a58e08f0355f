//! The runtime files in a started program: preloaded, found by the loader, and on Python's path.

#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;
use std::time::Duration;

use oomph_launch::{CacheDir, Exit, HookConfig, Launch, Output, RunFolder, RuntimeFiles, Stop, StopMode, Values};

/// A library that says that it was loaded, once per process.
const LIBRARY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void) {
    char name[4096];
    snprintf(name, sizeof name, "%s/loaded", getenv("OOMPH_RUN"));
    FILE *file = fopen(name, "a");
    if (file) { fputs("x", file); fclose(file); }
}
int cuInit(int flags) { return flags + 42; }
"#;

/// Opens the library under three names. All of them must be the one that was preloaded.
const PROGRAM: &str = r#"
import ctypes, os, oomph_hook_probe
handles = {ctypes.CDLL(name)._handle for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.12")}
assert len(handles) == 1, handles
assert ctypes.CDLL(None).cuInit(0) == 42
assert os.path.exists(os.environ["TRITON_LIBCUDA_PATH"] + "/libcuda.so.1")
assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ
assert os.environ["PYTHONPATH"].endswith(":/theirs"), os.environ["PYTHONPATH"]
open(os.environ["OOMPH_RUN"] + "/done", "w").close()
"#;

#[test]
fn a_program_finds_the_runtime_even_in_an_awkward_place() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("library.c"), LIBRARY).unwrap();
    let output = place.path().join("library.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]).arg(place.path().join("library.c"));
    if !compiler.arg("-o").arg(&output).status().is_ok_and(|status| status.success()) {
        return;
    }
    let library = fs::read(output).unwrap();
    let files = RuntimeFiles { vgpu_library: &library, python: &[("oomph_hook_probe.py", b"")] };

    for name in ["plain", "Jane Doe's: cache"] {
        let runtime = files.unpack(&CacheDir::at(place.path().join(name)).unwrap()).unwrap();
        let config = HookConfig {
            schema: Default::default(),
            stop: Stop { mode: StopMode::Exit, steps: 0, budget_seconds: None },
            follow: true,
            values: Values::Off,
            allow_writes: false,
            network: Default::default(),
            random_weights: false,
            program_root: place.path().to_owned(),
            history: false,
            history_entries: None,
            names: true,
            remedies: Vec::new(),
            edited: Default::default(),
            ranks: None,
            routing: Default::default(),
            batches: Default::default(),
            unknown_sizes: Default::default(),
            pools: Default::default(),
            guard: None,
            reads: false,
            bytecode: None,
            compare: None,
        };
        let run = RunFolder::create(&config).unwrap();
        let outcome = Launch::new("/usr/bin/env")
            .args(["python3", "-c", PROGRAM])
            .env("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
            .env("PYTHONPATH", "/theirs")
            .output(Output::Capture)
            .timeout(Some(Duration::from_secs(60)))
            .virtual_gpu(&runtime, &run, &["libcudart.so.12"])
            .unwrap()
            .run()
            .unwrap();
        assert_eq!(outcome.exit, Exit::Code(0), "{name}: {}", outcome.stderr_tail);
        assert!(!outcome.stderr_tail.contains("cannot be preloaded"), "{name}: {}", outcome.stderr_tail);
        assert!(run.path().join("done").exists());
        assert!(!fs::read(run.path().join("loaded")).unwrap().is_empty());
    }
}

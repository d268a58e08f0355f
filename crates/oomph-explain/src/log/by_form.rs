//! The name of a program that no table holds, by the forms in which logs name programs: a package in a traceback, the
//! folder above a program's sources, the class of an exception, the program of a system log, a file that is run.

use std::sync::LazyLock;

use regex::Regex;

use super::programs;
use super::site::Frame;

/// Packages that many programs use and that are not programs themselves.
const TOOLS: &[&str] = &[
    "absl",
    "aiohttp",
    "anyio",
    "asyncio",
    "celery",
    "click",
    "concurrent",
    "contextlib",
    "cython",
    "datasets",
    "decorator",
    "django",
    "einops",
    "fastapi",
    "fire",
    "flask",
    "functorch",
    "future",
    "gevent",
    "gradio",
    "gradio_client",
    "gunicorn",
    "httpx",
    "huggingface_hub",
    "hydra",
    "importlib",
    "ipykernel",
    "ipython",
    "ipywidgets",
    "joblib",
    "jupyter",
    "loguru",
    "lightning_utilities",
    "mlflow",
    "multiprocess",
    "multiprocessing",
    "nose",
    "numpy",
    "nvidia",
    "omegaconf",
    "pandas",
    "pil",
    "pip",
    "pkg_resources",
    "pluggy",
    "pydantic",
    "pytest",
    "_pytest",
    "requests",
    "rich",
    "rq",
    "safetensors",
    "scipy",
    "setuptools",
    "six",
    "sklearn",
    "spyder",
    "spyder_kernels",
    "starlette",
    "streamlit",
    "tenacity",
    "tensorboard",
    "tokenizers",
    "torchvision",
    "torchaudio",
    "tornado",
    "tqdm",
    "typer",
    "urllib3",
    "uvicorn",
    "wandb",
    "websockets",
    "werkzeug",
    "wrapt",
    "zmq",
    "skimage",
    "h5py",
    "matplotlib",
    "networkx",
    "psutil",
    "ml_collections",
    "torchtext",
    "torchmetrics",
    "comet_ml",
    "triton",
    "accelerate",
    "fsspec",
    "dateutil",
    "cffi",
    "yaml",
    "simtk",
    "imageio",
];

/// Folders, classes and programs whose names say nothing of whose they are.
const GENERIC: &[&str] = &[
    "app",
    "application",
    "apps",
    "backend",
    "backends",
    "bash",
    "bin",
    "build",
    "builds",
    "build-release",
    "c",
    "cc",
    "checkouts",
    "code",
    "common",
    "compute",
    "concurrent",
    "conda",
    "containerd",
    "content",
    "core",
    "cpp",
    "cuda",
    "cudart",
    "debug",
    "dev",
    "dist",
    "dlls",
    "docker",
    "dockerd",
    "documents",
    "downloads",
    "envs",
    "examples",
    "exe",
    "external",
    "framework",
    "ggml",
    "git",
    "github",
    "gpu",
    "hip",
    "home",
    "host",
    "include",
    "inc",
    "index",
    "install",
    "internal",
    "io",
    "java",
    "kernel",
    "kernels",
    "kernels_src",
    "lib",
    "lib64",
    "libs",
    "local",
    "machine",
    "main",
    "master",
    "mnt",
    "modules",
    "node",
    "opencl",
    "opt",
    "org",
    "out",
    "packages",
    "plugins",
    "project",
    "projects",
    "python",
    "python3",
    "registry",
    "release",
    "releases",
    "repo",
    "repos",
    "repository",
    "root",
    "runner",
    "runtime",
    "scala",
    "server",
    "site-packages",
    "source",
    "sources",
    "src",
    "std",
    "subprojects",
    "sudo",
    "system",
    "systemd",
    "test",
    "tests",
    "third_party",
    "thirdparty",
    "tmp",
    "tools",
    "user",
    "users",
    "usr",
    "utils",
    "var",
    "vendor",
    "work",
    "workdir",
    "worker",
    "workspace",
    "sh",
    "cmd",
    "powershell",
    "conhost",
    "builtins",
    "multiprocessing",
    "subprocess",
    "javax",
    "ubuntu",
    "scratch",
    "data",
    "cxx",
    "frontend",
    "desktop",
    "software",
    "programs",
    "library",
    "storage",
    "rust",
    "rustc",
    "go",
    "runc",
    "kubelet",
];

struct Forms {
    package: Regex,
    julia: Regex,
    crate_of_rust: Regex,
    go: Regex,
    sources: Regex,
    class: Regex,
    syslog: Regex,
    logger: Regex,
    service: Regex,
    run: Regex,
    banner: Regex,
}

static FORMS: LazyLock<Option<Forms>> = LazyLock::new(|| {
    Some(Forms {
        package: Regex::new(r"(?:site|dist)-packages[/\\]([A-Za-z]\w+)(?:[/\\]|\.py)").ok()?,
        julia: Regex::new(r"\.julia[/\\](?:packages|dev)[/\\](\w+)[/\\]").ok()?,
        crate_of_rust: Regex::new(r"registry[/\\]src[/\\][^/\\]+[/\\]([A-Za-z][\w-]*?)-\d+\.\d+").ok()?,
        go: Regex::new(r"(?:^|[^/\w])github\.com/[\w.-]+/([\w.-]+?)(?:@|/)").ok()?,
        sources: Regex::new(
            r"[/\\]([A-Za-z][\w.+-]{1,40})[/\\](?:src|[Ss]ource|csrc|include|lib|core|cpp)[/\\](?:[\w.+-]+[/\\]){0,8}[\w.+-]+\.(?:cuh?|cc?|cpp|cxx|hpp|h|inl|mm?|rs|f90|fpp|swift)\b",
        )
        .ok()?,
        class: Regex::new(r"(?:^|[\s:>(\x22'])([A-Za-z]\w{2,30})(?:(?:\.|::)\w+)+(?:Error|Exception|exception|error)\b").ok()?,
        syslog: Regex::new(
            r"^(?:[A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)\s\S+\s([A-Za-z][\w.-]{2,30})\[\d+\]:",
        )
        .ok()?,
        // Python's own form of a log, and the service that Docker Compose puts before each line.
        logger: Regex::new(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):([a-z]\w+)(?:\.\w+)*:").ok()?,
        service: Regex::new(r"^([A-Za-z][\w-]{2,30}?)[-_]\d{1,3}\s+\|\s").ok()?,
        run: Regex::new(r"(?:^|[\s>\\/])([A-Za-z][\w.-]{2,40})\.exe\b").ok()?,
        banner: Regex::new(r"^\W{0,4}([A-Za-z][\w+-]{2,24}),?\s\(?(?:v|version\s|Version\s|release\s)\d+\.\d+").ok()?,
    })
});

fn says_nothing(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.len() < 3 || GENERIC.contains(&lower.as_str()) || lower.starts_with("python")
}

/// A folder's name without the release or the state that is often put behind it.
fn without_release(folder: &str) -> &str {
    let end = folder
        .match_indices(['-', '_'])
        .find(|(at, _)| {
            let rest = folder[at + 1..].to_ascii_lowercase();
            rest.trim_start_matches('v').starts_with(|first: char| first.is_ascii_digit())
                || ["main", "master", "dev", "devel", "clean", "build", "source", "src", "fork", "release"]
                    .contains(&rest.as_str())
        })
        .map_or(folder.len(), |(at, _)| at);
    &folder[..end]
}

/// The outermost package of a traceback that is neither a framework nor a tool.
pub(crate) fn package(frames: &[Frame], library: &str) -> Option<String> {
    let forms = FORMS.as_ref()?;
    frames.iter().find_map(|frame| {
        let found = forms.package.captures(&frame.file)?;
        let name = &found[1];
        let known = programs::speaker(&format!("site-packages/{name}/")).is_some();
        let tool = TOOLS.contains(&name.to_ascii_lowercase().as_str()) || name.starts_with('_');
        (!known && !tool && name != library).then(|| name.to_owned())
    })
}

/// The program whose words a line of an interface's error are; `message` begins with that line, `above` ends before it.
pub(crate) fn program(line: &str, message: &str, above: &[&str]) -> Option<String> {
    let forms = FORMS.as_ref()?;
    let named = |found: &str| {
        let name = without_release(found);
        let known = programs::speaker(name).is_some_and(programs::is_interface);
        (!says_nothing(name) && !known).then(|| name.to_owned())
    };
    let first = |regex: &Regex, text: &str| regex.captures_iter(text).take(8).find_map(|found| named(&found[1]));
    let near = || [line, message].into_iter().chain(above.iter().rev().copied());
    let in_code = [&forms.julia, &forms.crate_of_rust, &forms.go, &forms.sources, &forms.class];
    in_code
        .into_iter()
        .find_map(|regex| near().find_map(|text| first(regex, text)))
        .or_else(|| [&forms.syslog, &forms.logger, &forms.service].into_iter().find_map(|regex| first(regex, line)))
        .or_else(|| near().find_map(|text| first(&forms.run, text)))
        .or_else(|| near().find_map(|text| first(&forms.banner, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_the_form_of_a_line() {
        for (line, name) in [
            (r"CUDA Runtime Error: out of memory at E:\redactor\src\buffer.h:55", Some("redactor")),
            ("out of memory in /home/u/mesher-3.1.3-rc1/src/acc/cuda/alloc.cuh at line 436", Some("mesher")),
            ("Mar 1 10:00:00 box splatd[81]: CUDA error: out of memory", Some("splatd")),
            ("Unhandled: Rayne.Graphics.Vulkan.VulkanException: ErrorOutOfDeviceMemory", Some("Rayne")),
            ("@ ~/.julia/packages/Oceanic/x81/src/fields.jl:3", Some("Oceanic")),
            ("ERROR:foldit.runner.main:OOM for query 3", Some("foldit")),
            ("ERROR:root:OOM for query 3", None),
            ("splatd-1  | CUDA error: out of memory", Some("splatd")),
            (r"C:\Users\Me\Desktop\pic>tracer-cli.exe -i a.jpg", Some("tracer-cli")),
            (
                "panicked at /root/.cargo/registry/src/index-6f17/splatter-core-0.3.1/src/lib.rs:3:5",
                Some("splatter-core"),
            ),
            ("github.com/acme/llamabox/runner.go:12", Some("llamabox")),
            ("see https://github.com/acme/llamabox/issues/3", None),
            ("/home/u/src/main.cu:3: out of memory", None),
            ("terminate called after throwing an instance of 'std::runtime_error'", None),
            ("Solverkit (v1.2) on CUDA", Some("Solverkit")),
        ] {
            assert_eq!(program(line, line, &[]).as_deref(), name, "{line}");
        }
    }

    #[test]
    fn the_outermost_package_that_is_no_tool_is_named() {
        let frame = |file: &str| Frame { file: file.to_owned(), ..Frame::default() };
        let frames = [
            frame("/home/u/train.py"),
            frame("/usr/lib/python3/site-packages/tqdm/std.py"),
            frame("/usr/lib/python3/site-packages/segmentor/train.py"),
            frame("/usr/lib/python3/site-packages/torch/nn/module.py"),
        ];
        assert_eq!(package(&frames, "pytorch").as_deref(), Some("segmentor"));
        assert_eq!(package(&frames[3..], "pytorch"), None);
    }
}

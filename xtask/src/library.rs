//! The libraries that the virtual GPU replaces: their headers, their files, and whose name is whose.

use crate::table::LIBRARIES;

/// One library, which has one table.
#[derive(Debug)]
pub struct Library {
    /// The table's name.
    pub name: &'static str,
    /// Headers that declare its functions; each is read on its own, because some exclude each other.
    pub headers: &'static [&'static str],
    /// Sets of macros that show more of its names.
    pub modes: &'static [&'static [&'static str]],
    /// How the names of its files begin. Only what they export is taken as exported by the library.
    pub files: &'static [&'static str],
}

const PLAIN: &[&[&str]] = &[&[]];
/// The default names, those of per-thread default streams, and the older versions of renamed functions.
const CUDA_MODES: &[&[&str]] = &[&[], &["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"], &["-D__CUDA_API_VERSION_INTERNAL"]];

/// All of them, in the order of the tables.
pub const ALL: [Library; LIBRARIES.len()] = [
    Library {
        name: "driver",
        headers: &["cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "driver_more.h"],
        modes: CUDA_MODES,
        files: &["libcuda.so"],
    },
    Library {
        name: "runtime",
        headers: &[
            "cuda_runtime_api.h",
            "cuda_profiler_api.h",
            "cuda_gl_interop.h",
            "cuda_egl_interop.h",
            "cuda_vdpau_interop.h",
            "runtime_internal.h",
        ],
        modes: CUDA_MODES,
        files: &["libcudart.so"],
    },
    Library {
        name: "cublas",
        headers: &["cublas_v2.h", "cublas.h", "cublasXt.h"],
        modes: PLAIN,
        files: &["libcublas.so"],
    },
    Library { name: "cublaslt", headers: &["cublasLt.h"], modes: PLAIN, files: &["libcublasLt.so"] },
    Library { name: "cudnn", headers: &["cudnn.h", "cudnn_backend.h"], modes: PLAIN, files: &["libcudnn.so"] },
    // libcufftw is left out: its names are FFTW's, and a program may use the real FFTW.
    Library { name: "cufft", headers: &["cufft.h", "cufftXt.h"], modes: PLAIN, files: &["libcufft.so"] },
    Library { name: "curand", headers: &["curand.h"], modes: PLAIN, files: &["libcurand.so"] },
    Library {
        name: "cusolver",
        headers: &["cusolverDn.h", "cusolverSp.h", "cusolverSp_LOWLEVEL_PREVIEW.h", "cusolverRf.h", "cusolverMg.h"],
        modes: PLAIN,
        files: &["libcusolver.so", "libcusolverMg.so"],
    },
    Library {
        name: "cusparse",
        headers: &["cusparse.h"],
        modes: &[&[], &["-DCUSPARSE_ENABLE_EXPERIMENTAL_API"]],
        files: &["libcusparse.so"],
    },
    Library { name: "cusparselt", headers: &["cusparselt_in_c.h"], modes: PLAIN, files: &["libcusparseLt.so"] },
    Library {
        name: "cupti",
        headers: &[
            "cupti.h",
            "cupti_pcsampling.h",
            "cupti_profiler_target.h",
            "cupti_profiler_host.h",
            "cupti_range_profiler.h",
            "cupti_pmsampling.h",
            "cupti_sass_metrics.h",
        ],
        modes: PLAIN,
        files: &["libcupti.so"],
    },
    Library { name: "nccl", headers: &["nccl.h"], modes: PLAIN, files: &["libnccl.so"] },
    Library {
        name: "nvml",
        headers: &["nvml.h"],
        modes: &[&[], &["-DNVML_NO_UNVERSIONED_FUNC_DEFS"]],
        files: &["libnvidia-ml.so"],
    },
];

/// The library whose function this is by its name.
pub fn owner(name: &str) -> Option<&'static str> {
    // Longer prefixes first: every one of these also begins with `cu`.
    const PREFIXES: &[(&str, &str)] = &[
        ("cublasLt", "cublaslt"),
        ("cublas", "cublas"),
        ("cudnn", "cudnn"),
        ("cufft", "cufft"),
        ("curand", "curand"),
        ("cusolver", "cusolver"),
        ("pegasus", "cusolver"),
        ("cusparseLt", "cusparselt"),
        ("cusparse", "cusparse"),
        ("cupti", "cupti"),
        ("nccl", "nccl"),
        ("pnccl", "nccl"),
        ("nvml", "nvml"),
        ("__cuda", "runtime"),
        ("cuda", "runtime"),
    ];
    // GPUDirect Storage is a library of its own, which works on files and stays real.
    if name.starts_with("cuFile") {
        return None;
    }
    let named = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, library)| *library);
    // What is left are the driver's: `cu` and a capital.
    let driver = || {
        let third = name.strip_prefix("cu").and_then(|rest| rest.bytes().next());
        third.is_some_and(|byte| byte.is_ascii_uppercase()).then_some("driver")
    };
    named.or_else(driver)
}

/// Whether the library of this table exports the name for others to call. The rest of its exports (C++ names,
/// injection hooks that other loaders search for) must not be ours, because somebody may find them by accident.
pub fn is_public(library: &Library, name: &str) -> bool {
    !name.starts_with("_Z") && owner(name) == Some(library.name)
}

/// Whether this is a name of the C++ runtime, which NVIDIA's libraries carry within themselves: nobody means theirs.
pub fn is_cxx_runtime(name: &str) -> bool {
    // Constructors and members of std, its free functions, type information, operators new and delete.
    ["_ZNSt", "_ZNKSt", "_ZSt", "_ZTISt", "_ZTSSt", "_ZTVSt", "_ZTINSt", "_ZTSNSt", "_ZTVNSt", "_Zn", "_Zd"]
        .iter()
        .any(|start| name.starts_with(start))
        || name.contains("__cxxabi")
        || name.contains("__gnu_cxx")
        || name.starts_with("__cxa")
}

/// The library that a shared object of this file name belongs to.
pub fn of_file(file_name: &str) -> Option<&'static Library> {
    ALL.iter().find(|library| {
        library.files.iter().any(|stem| {
            file_name.strip_prefix(stem).is_some_and(|version| version.is_empty() || version.starts_with('.'))
        })
    })
}

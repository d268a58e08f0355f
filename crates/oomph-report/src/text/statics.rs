//! Shows a run that a statically linked CUDA runtime kept from the virtual GPU: the cause, and what each family of
//! programs can do about it.

use super::page::{Ink, Page};
use crate::clean;

/// What is known of a family's builds, by how its files begin: below Python's packages, or by their own name.
///
/// `docs/frameworks.md` has what was run of each.
const FAMILIES: [(&[&str], &str); 6] = [
    (
        &["xgboost/", "libxgboost"],
        "Every build of XGBoost has it, since its CMake files name the static runtime: another channel or a build from \
         source does not help. `oomph plan` does not size boosted trees",
    ),
    (
        &["cupy/", "cupy_backends/", "cupyx/"],
        "Every build of CuPy has it, since its setup names the static runtime: another channel or a build from source does \
         not help. `oomph plan` does not size array programs. Kernels of numba.cuda call the driver and do run",
    ),
    (
        &[
            "cuda/bindings/",
            "librmm",
            "rmm/",
            "libcudf",
            "pylibcudf/",
            "cudf/",
            "libcuml",
            "cuml/",
            "libcugraph",
            "libraft",
            "pylibraft/",
            "libcuvs",
            "libkvikio",
            "kvikio/",
        ],
        "RAPIDS' wheels have it, and so has every build of cuda-bindings, which its Python packages call: another channel \
         does not help. `oomph plan` does not size data frames. Kernels of numba.cuda call the driver and do run",
    ),
    (
        &["ctranslate2", "libctranslate2"],
        "CTranslate2's wheels have it. `oomph plan MODEL --task generate` says what a language model needs with PyTorch; it \
         knows nothing about CTranslate2's own buffers and quantization",
    ),
    (&["catboost/", "_catboost"], "CatBoost's wheels have it. `oomph plan` does not size boosted trees"),
    (
        &["lightgbm/", "lib_lightgbm"],
        "A build from source does not, with the CMake settings USE_CUDA=ON and CMAKE_CUDA_RUNTIME_LIBRARY=Shared (pip: \
         --no-binary lightgbm --config-settings=cmake.define.NAME=VALUE for each). `oomph plan` does not size boosted trees",
    ),
];

/// The advice for a program that its user compiles.
const OWN: &str = "Link it dynamically: `nvcc --cudart shared`, or CMake -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared. For a package \
                   that pip installed that means a build from source, where its build files allow it. `oomph plan` says \
                   what a language or image model needs without running it";

/// A file whose CUDA runtime is its own.
pub(super) fn print(page: &mut Page, file: &str, error: &str) {
    let why = format!(
        " {} has the CUDA runtime linked in statically, so its CUDA calls do not reach the virtual GPU",
        clean(file)
    );
    page.paragraph(0, 2, &[(Ink::Bad, "oomph could not run this:"), (Ink::Strong, &why)]);
    if !error.is_empty() {
        page.paragraph(2, 4, &[(Ink::Strong, "error"), (Ink::Plain, &format!(" {}", clean(error)))]);
    }
    let text = "The run says nothing about the program or its GPU memory, even if the program went on with the CPU.";
    page.paragraph(2, 4, &[(Ink::Plain, text)]);
    page.paragraph(2, 4, &[(Ink::Plain, advice(file))]);
}

fn advice(file: &str) -> &'static str {
    let known = FAMILIES.iter().find(|(starts, _)| starts.iter().any(|start| file.starts_with(start)));
    known.map_or(OWN, |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_known_by_their_files() {
        let named = [
            ("xgboost/lib/libxgboost.so", "boosted trees"),
            ("libxgboost.so", "XGBoost"),
            ("cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so", "CuPy"),
            ("cuda/bindings/_bindings/cyruntime.cpython-312-x86_64-linux-gnu.so", "RAPIDS"),
            ("librmm/lib64/librmm.so", "RAPIDS"),
            ("ctranslate2.libs/libctranslate2-a7a60d30.so.4.8.5", "CTranslate2"),
            ("catboost/_catboost.so", "CatBoost"),
            ("lightgbm/lib/lib_lightgbm.so", "USE_CUDA=ON"),
            ("solver", "nvcc --cudart shared"),
        ];
        for (file, word) in named {
            assert!(advice(file).contains(word), "{file}: {}", advice(file));
        }
    }
}

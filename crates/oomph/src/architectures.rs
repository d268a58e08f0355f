//! Finds the cards that a program's kernels run on.
//!
//! A program holds machine code for some generations of cards (`sm_75`), and at most the text of its kernels for the
//! newest (`compute_120`), which the driver compiles. A card without either has the memory and not the code. PyTorch says
//! itself what it was built for, before a kernel is launched, and JAX by the CUDA that its plugin compiles with; of other
//! files the virtual GPU sees it at a launch.

use oomph_gpu::Gpu;

use crate::observation::Observation;

/// One generation that kernels were built for.
struct Built {
    capability: (u32, u32),
    /// Text, which runs on every later card, and not machine code.
    is_text: bool,
    /// Only for this very generation: `sm_90a`.
    is_exact: bool,
}

impl Built {
    /// From `sm_75`, `sm_90a` or `compute_120`.
    fn parse(name: &str) -> Option<Self> {
        let (kind, number) = name.split_once('_')?;
        let digits = number.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let number: u32 = digits.parse().ok()?;
        Some(Self { capability: (number / 10, number % 10), is_text: kind == "compute", is_exact: name.ends_with('a') })
    }

    fn runs_on(&self, (major, minor): (u32, u32)) -> bool {
        match self {
            Self { is_exact: true, capability, .. } => *capability == (major, minor),
            Self { is_text: true, capability, .. } => *capability <= (major, minor),
            // Machine code runs on later cards of the same major version.
            Self { capability, .. } => capability.0 == major && capability.1 <= minor,
        }
    }
}

/// Whether kernels that were built for `architectures` run on a card; true where nothing is known of them.
fn run_on<S: AsRef<str>>(architectures: &[S], gpu: &Gpu) -> bool {
    let capability = gpu.compute_capability();
    let mut known = architectures.iter().filter_map(|name| Built::parse(name.as_ref())).peekable();
    known.peek().is_none() || known.any(|built| built.runs_on((capability.major, capability.minor)))
}

/// Whether all that a run launched kernels of has code for a card.
pub fn all_run_on(run: &Observation, gpu: &Gpu) -> bool {
    without_code(run, gpu).is_none()
}

/// The sentence for a card that something of the run has no kernels for.
pub fn missing(run: &Observation, gpu: &Gpu) -> Option<String> {
    let what = without_code(run, gpu)?;
    let capability = gpu.compute_capability();
    Some(format!(
        "{what} has no kernels for {} (compute capability {}.{}), so that the program would end there with an error such \
         as \"no kernel image is available\", whatever its memory: another build may have them",
        gpu.name, capability.major, capability.minor
    ))
}

/// What has no code for a card: PyTorch or JAX with its version, or a file.
fn without_code(run: &Observation, gpu: &Gpu) -> Option<String> {
    if let Some(hook) = run.hooks.reports.iter().find(|hook| !run_on(&hook.architectures, gpu)) {
        let named = ["torch", "jax", "numba"].into_iter().find_map(|name| Some((name, hook.frameworks.get(name)?)));
        return Some(named.map_or("PyTorch of this build".to_owned(), |(name, version)| format!("{name} {version}")));
    }
    run.ledger.code().into_iter().find(|(built, _)| !run_on(built, gpu)).map(|(_, file)| file.to_owned())
}

#[cfg(test)]
mod tests {
    use oomph_gpu::Catalogue;

    fn runs(architectures: &[&str], gpu: &str) -> bool {
        let names: Vec<String> = architectures.iter().map(|&name| name.to_owned()).collect();
        super::run_on(&names, Catalogue::builtin().get(gpu).expect("a card of the catalogue"))
    }

    #[test]
    fn machine_code_runs_on_later_cards_of_its_generation_and_text_on_all_later_ones() {
        let wheel = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"];
        for gpu in ["rtx-2060", "a100-40gb", "rtx-3060", "rtx-4090", "h100", "rtx-5090"] {
            assert!(runs(&wheel, gpu), "{gpu}");
        }
        for gpu in ["gtx-1050", "gtx-1060-3gb", "v100-16gb"] {
            assert!(!runs(&wheel, gpu), "{gpu}");
        }
        assert!(runs(&["sm_50", "compute_60"], "rtx-5090"));
        assert!(runs(&["sm_90a"], "h100") && !runs(&["sm_90a"], "rtx-4090"));
    }

    #[test]
    fn nothing_known_is_nothing_excluded() {
        assert!(runs(&[], "gtx-1050") && runs(&["a word", "sm_"], "gtx-1050"));
    }
}

//! What is not an out-of-memory error of a GPU, though it looks or is called like one.

use serde::{Serialize, Serializer};

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident $id:literal $what:literal $look:literal,)*) => {
        /// A failure that is not a GPU's memory running out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[$doc])* $variant,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$variant),*];

            /// The word that data files and JSON use.
            pub fn id(self) -> &'static str {
                match self { $(Kind::$variant => $id,)* }
            }

            /// The kind of this word.
            pub fn from_id(id: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.id() == id)
            }

            /// What it is, in one sentence.
            pub fn what(self) -> &'static str {
                match self { $(Kind::$variant => $what,)* }
            }

            /// Where to look, in one sentence.
            pub fn look(self) -> &'static str {
                match self { $(Kind::$variant => $look,)* }
            }
        }
    };
}

kinds! {
    /// The operating system killed the process.
    Killed "killed"
        "The operating system killed the process, most often because host memory (not the GPU's) ran out."
        "See `dmesg` or `journalctl -k` for a line with `oom-kill` at that time; use fewer DataLoader workers, load the data or the weights in parts, or add memory or swap.",
    /// A container, cgroup or job limit on host memory was hit.
    ContainerLimit "container-limit"
        "A limit on host memory, set for the container or job, was exceeded; the GPU's memory is not involved."
        "Raise the memory limit of the container or job (`resources.limits.memory`, `--mem`, `docker run --memory`), or use fewer workers and less data at a time.",
    /// An allocation in host memory failed.
    HostMemory "host-memory"
        "An allocation in the computer's own memory failed; the GPU's memory is not involved."
        "Compare the size with `free -g`; process the data in parts or in a smaller dtype, or add memory or swap (on Windows: a larger paging file).",
    /// `/dev/shm` is too small or full.
    SharedMemory "shared-memory"
        "The shared memory of the computer (/dev/shm), through which DataLoader workers and NCCL pass data, is too small."
        "See `df -h /dev/shm`; start the container with `--shm-size=8g` or `--ipc=host`, or set `num_workers=0`.",
    /// A kernel touched memory that it may not touch.
    IllegalAccess "illegal-access"
        "A kernel read or wrote outside its memory; this is a bug in a kernel or an index out of range, not a lack of memory."
        "Run again with `CUDA_LAUNCH_BLOCKING=1` for the true line, then under `compute-sanitizer`; check indices, custom kernels and their versions.",
    /// An assertion inside a kernel failed.
    DeviceAssert "device-assert"
        "An assertion inside a GPU kernel failed, most often an index or a class label out of range; memory is not the cause."
        "Run the same batch on the CPU, or with `CUDA_LAUNCH_BLOCKING=1`, for the true line; check that labels are in 0..classes and token ids below the vocabulary.",
    /// A library of CUDA failed for another reason.
    LibraryFailure "library-failure"
        "A library of CUDA (cuBLAS, cuDNN) reported a failure that does not say why; a full card is one cause, an earlier error in a kernel a commoner one."
        "Run with `CUDA_LAUNCH_BLOCKING=1` for the first error; watch `nvidia-smi` while it starts: if the card is full just before, treat it as out of memory.",
    /// Driver, library or device are missing or do not fit together.
    Driver "driver"
        "The driver, the CUDA libraries and the device do not work together; memory is not the cause."
        "Run `nvidia-smi` in the same environment; after a driver update restart the machine, in a container pass `--gpus all`, and check that the driver supports the CUDA version.",
    /// The card or its link failed.
    Hardware "hardware"
        "The driver reports a fault of the card or its link (an Xid event), not a lack of memory."
        "Look up the Xid number in NVIDIA's Xid catalogue; check power, seating, temperature and `nvidia-smi -q -d ECC`.",
    /// The on-chip memory of a multiprocessor is too small for a kernel.
    OnChipMemory "on-chip-memory"
        "A kernel asks for more on-chip shared memory or registers than one multiprocessor of this GPU has; the card's memory is not involved."
        "Use smaller block sizes or fewer `num_stages` for the Triton kernel, or a version of it that is tuned for this GPU.",
    /// An OpenCL device refuses an allocation above a limit of its own.
    DeviceLimit "device-limit"
        "The program finds the largest single allocation of the device, or the computer's free memory, too small for this job."
        "Free host memory first, check that the device is the GPU and not the CPU, and use a smaller workload.",
    /// A disk is full.
    Disk "disk"
        "A disk is full or its quota is used up; memory is not the cause."
        "See `df -h` and `df -i` for the folder that the message names, and for /tmp and the cache folders (HF_HOME, TORCH_HOME, pip's cache).",
    /// A number went wrong, not memory.
    Numeric "numeric"
        "The model produced values that are not numbers (NaN), usually an overflow in half precision; memory is not the cause."
        "Run the part that the message names in full precision (AUTOMATIC1111: `--no-half-vae`, or `--no-half` on old cards).",
    /// A size was computed wrongly.
    WrongSize "wrong-size"
        "The program requested more memory than any card can have: a size was computed wrongly, by an overflow, a negative number or an index taken for a size. The card is not full."
        "Print the shapes just before the line that failed; look for a negative or overflowing length, a product of indices, and values that were never initialised.",
    /// A setting is wrong or contradicts another.
    Configuration "configuration"
        "A setting contradicts another one; no allocation failed here."
        "Correct the setting that the message names.",
    /// The text talks about memory errors; none happened here.
    ConfigurationText "configuration-text"
        "This is a script, a setting or a text that mentions memory errors; no error happened here."
        "Give the log that the program printed instead.",
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Kind {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Kind".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let words: Vec<&str> = Self::ALL.iter().map(|kind| kind.id()).collect();
        schemars::json_schema!({ "type": "string", "enum": words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_sentences_are_sentences() {
        for (place, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(Kind::from_id(kind.id()), Some(*kind));
            assert!(Kind::ALL[..place].iter().all(|other| other.id() != kind.id()));
            for sentence in [kind.what(), kind.look()] {
                assert!(sentence.ends_with('.') && sentence.starts_with(char::is_uppercase), "{sentence}");
            }
        }
    }
}

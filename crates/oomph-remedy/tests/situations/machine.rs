//! The machine around the program: neighbours, limits, the driver, the container.

use oomph_remedy::{Cause, Framework, Memory, Operation, Platform, Situation};

use super::{Case, GIB, MIB, of, training};

#[expect(clippy::too_many_lines, reason = "a table")]
pub fn cases() -> Vec<Case> {
    use Framework::{Docker, Jax, Jupyter, Keras, Pytorch, Tensorflow, Transformers};
    let mut neighbour = training(&[Transformers, Pytorch], Cause::OtherProcess, Operation::Backward);
    neighbour.memory = Memory {
        requested: Some(200 * MIB),
        capacity: Some(79 * GIB),
        free: Some(100 * MIB),
        other_processes: Some(72 * GIB),
        ..Memory::default()
    };
    let mut spill = training(&[Pytorch], Cause::DriverSpill, Operation::Forward);
    spill.platform = Some(Platform::Windows);
    spill.memory.capacity = Some(8 * GIB);
    spill.memory.allocated = Some(17 * GIB);
    let mut notebook = of(&[Jupyter, Pytorch], Cause::Leak);
    notebook.notebook = true;
    let mut limit = of(&[Pytorch], Cause::Limit);
    limit.memory =
        Memory { capacity: Some(24 * GIB), allowed: Some(6 * GIB), requested: Some(GIB), ..Memory::default() };
    let mut shm = of(&[Docker, Pytorch], Cause::HostMemory);
    shm.operation = Some(Operation::DataLoading);
    vec![
        Case {
            name: "another process holds 72 of 79 GiB",
            situation: neighbour,
            first: "free-other-processes",
            among: &[],
            never: &["micro-batch", "gradient-checkpointing", "lora"],
            avoid: &["blame-your-program", "kill-all-python"],
            words: &["nvidia-smi"],
        },
        Case {
            name: "Windows spills 17 GiB on an 8 GiB card",
            situation: spill,
            first: "micro-batch",
            among: &["gradient-checkpointing"],
            never: &["expandable-segments"],
            avoid: &["more-vram-than-the-card"],
            words: &[],
        },
        Case {
            name: "a notebook that kept its last exception",
            situation: notebook,
            first: "detach-losses",
            among: &["restart-notebook-kernel", "release-earlier-phase"],
            never: &["micro-batch"],
            avoid: &["empty-cache-for-leak"],
            words: &["Kernel > Restart"],
        },
        Case {
            name: "a fraction of the card is allowed",
            situation: limit,
            first: "raise-limit",
            among: &[],
            never: &["expandable-segments"],
            avoid: &[],
            words: &["set_per_process_memory_fraction"],
        },
        Case {
            name: "bus error in a container's DataLoader",
            situation: shm,
            first: "larger-shm",
            among: &[],
            never: &["micro-batch", "adam-8bit"],
            avoid: &["gpu-settings-for-host-memory"],
            words: &["--shm-size"],
        },
        Case {
            name: "TensorFlow, one tensor too many",
            situation: training(&[Keras, Tensorflow], Cause::Full, Operation::Forward),
            first: "micro-batch",
            among: &["gradient-checkpointing"],
            never: &["memory-growth", "expandable-segments"],
            avoid: &["growth-lowers-nothing"],
            words: &["model.fit"],
        },
        Case {
            name: "JAX shares its card",
            situation: of(&[Jax], Cause::OtherProcess),
            first: "free-other-processes",
            among: &["memory-growth"],
            never: &["micro-batch"],
            avoid: &["kill-all-python"],
            words: &["XLA_PYTHON_CLIENT_PREALLOCATE=false"],
        },
        Case {
            name: "JAX in training",
            situation: training(&[Jax], Cause::Full, Operation::Backward),
            first: "larger-pool-share",
            among: &["donate-buffers", "gradient-checkpointing"],
            never: &["memory-growth"],
            avoid: &["sharing-is-not-need"],
            words: &["optax.MultiSteps"],
        },
        Case {
            name: "a program that nobody knows",
            situation: of(&[Framework::Machine], Cause::Full),
            first: "less-at-a-time",
            among: &[],
            never: &["micro-batch", "smaller-batch"],
            avoid: &[],
            words: &["nvidia-smi"],
        },
        Case {
            name: "a quota of HAMi that shows as the card",
            situation: Situation {
                memory: Memory { capacity: Some(8 * GIB), allowed: Some(8 * GIB), ..Memory::default() },
                ..of(&[Framework::Hami, Pytorch], Cause::Limit)
            },
            first: "raise-limit",
            among: &["micro-batch"],
            never: &["expandable-segments"],
            avoid: &["empty-cache"],
            words: &["nvidia.com/gpumem"],
        },
        Case {
            name: "nothing is known but PyTorch",
            situation: of(&[Pytorch], Cause::Unknown),
            first: "micro-batch",
            among: &["gradient-checkpointing", "half-weights"],
            never: &["expandable-segments", "resume-on-cpu", "eval-accumulation"],
            avoid: &["empty-cache"],
            words: &[],
        },
    ]
}

//! Crashes as people report them, as situations, with what a good answer contains.

mod images;
mod machine;
mod serving;
mod training;

use oomph_remedy::{Cause, Framework, Memory, Operation, Situation, Task};

pub const GIB: u64 = 1 << 30;
pub const MIB: u64 = 1 << 20;

/// A situation and what must be said in it.
pub struct Case {
    pub name: &'static str,
    pub situation: Situation,
    /// The first remedy.
    pub first: &'static str,
    /// Remedies that must be offered too.
    pub among: &'static [&'static str],
    /// Remedies that cannot help.
    pub never: &'static [&'static str],
    /// Advice that must be contradicted.
    pub avoid: &'static [&'static str],
    /// Words that must be said.
    pub words: &'static [&'static str],
}

fn of(frameworks: &[Framework], cause: Cause) -> Situation {
    Situation::of(frameworks.iter().copied(), cause)
}

fn training(frameworks: &[Framework], cause: Cause, operation: Operation) -> Situation {
    Situation { task: Some(Task::Training), operation: Some(operation), ..of(frameworks, cause) }
}

fn inference(frameworks: &[Framework], cause: Cause, operation: Operation) -> Situation {
    Situation { task: Some(Task::Inference), operation: Some(operation), ..of(frameworks, cause) }
}

fn memory(requested: u64, capacity: u64, free: u64, allocated: u64, reserved: u64) -> Memory {
    Memory {
        requested: Some(requested),
        capacity: Some(capacity),
        free: Some(free),
        allocated: Some(allocated),
        reserved: Some(reserved),
        ..Memory::default()
    }
}

/// All of them.
pub fn cases() -> Vec<Case> {
    [training::cases(), images::cases(), serving::cases(), machine::cases()].into_iter().flatten().collect()
}

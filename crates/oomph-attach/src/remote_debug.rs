//! Uses CPython 3.14's own protocol to run a script from outside (PEP 768).
//!
//! The interpreter's state begins with the offsets of what is needed. The path of the script and a flag are written
//! into the state of the main thread, and a bit that makes it look; nothing is stopped and no code runs before the
//! interpreter itself looks.

use crate::elf::Module;
use crate::error::AttachError;
use crate::memory::Memory;
use crate::process;
use crate::target::{self, Target};

/// The bytes of the offsets that are read.
const OFFSETS: usize = 760;
/// What they begin with.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// "Please stop" among the reasons for which the interpreter looks up from the program.
const PLEASE_STOP: u8 = 1 << 5;

/// Where the offsets lie that are needed, in CPython 3.14.
mod at {
    pub const VERSION: usize = 8;
    pub const INTERPRETERS_HEAD: usize = 40;
    pub const INTERPRETER_SIZE: usize = 48;
    pub const THREADS_MAIN: usize = 80;
    pub const THREAD_SIZE: usize = 176;
    pub const EVAL_BREAKER: usize = 712;
    pub const SUPPORT: usize = 720;
    pub const ENABLED: usize = 728;
    pub const PENDING_CALL: usize = 736;
    pub const SCRIPT_PATH: usize = 744;
    pub const SCRIPT_PATH_SIZE: usize = 752;
}

/// The places in the main thread's state that are written.
struct Plan {
    memory: Memory,
    eval_breaker: u64,
    pending_call: u64,
    script_path: u64,
    script_path_size: u64,
}

/// Whether this way is open for a target that may be traced.
///
/// # Errors
/// The reason why not, one clause.
pub(crate) fn check(target: &Target) -> Result<(), String> {
    plan(target).map(|_| ())
}

fn plan(target: &Target) -> Result<Plan, String> {
    match target.python.map(|python| python.minor) {
        Some(14) => {}
        Some(0) | None => return Err("the version of its Python is not known".to_owned()),
        Some(minor @ ..14) => return Err(format!("CPython 3.{minor} has no remote debugging; 3.14 and later do")),
        Some(minor) => return Err(format!("CPython 3.{minor} is newer than this oomph")),
    }
    if target.forbids_remote_debug {
        return Err("it was started with remote debugging off (PYTHON_DISABLE_REMOTE_DEBUG)".to_owned());
    }
    let pid = target.pid;
    let memory = Memory::open(pid).map_err(|error| format!("its memory cannot be opened: {error}"))?;
    let mappings = process::mappings(pid).map_err(|error| format!("its mappings cannot be read: {error}"))?;
    let mapping = target::module_mapping(pid, &mappings).ok_or("no interpreter is mapped")?;
    let module = Module::read(pid, &mappings, &mapping).ok_or_else(|| {
        format!("{} is not the file that the process has loaded; it was replaced since", mapping.path)
    })?;
    let runtime =
        module.py_runtime.or_else(|| module.address("_PyRuntime")).ok_or("its interpreter hides its state")?;
    let mut offsets = [0; OFFSETS];
    memory.read(runtime, &mut offsets).map_err(|error| format!("its interpreter's state cannot be read: {error}"))?;
    if &offsets[..8] != COOKIE {
        return Err("its interpreter's state does not begin as it should".to_owned());
    }
    let field = |at: usize| offsets[at..at + 8].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let version = field(at::VERSION);
    // Before the first release the layout changed from one to the next.
    if version >> 16 != 0x030e || version & 0xf0 != 0xf0 {
        return Err(format!("its version ({version:#010x}) is not a release of CPython 3.14"));
    }
    let (thread_size, interpreter_size) = (field(at::THREAD_SIZE), field(at::INTERPRETER_SIZE));
    let support = field(at::SUPPORT);
    let within =
        field(at::SCRIPT_PATH).checked_add(field(at::SCRIPT_PATH_SIZE)).and_then(|end| end.checked_add(support));
    if within.is_none_or(|end| end > thread_size) || thread_size > 1 << 20 || interpreter_size > 1 << 24 {
        return Err("its interpreter was built without remote debugging".to_owned());
    }
    let word = |address: u64| memory.word(address).map_err(|error| format!("its memory cannot be read: {error}"));
    let interpreter = word(runtime.wrapping_add(field(at::INTERPRETERS_HEAD)))?;
    if interpreter == 0 {
        return Err("its Python is starting or ending".to_owned());
    }
    let enabled = word(interpreter.wrapping_add(field(at::ENABLED)))? & 0xffff_ffff;
    if enabled == 0 {
        return Err("it was started with remote debugging off (-X disable-remote-debug)".to_owned());
    }
    let thread = word(interpreter.wrapping_add(field(at::THREADS_MAIN)))?;
    if thread == 0 {
        return Err("its Python is starting or ending".to_owned());
    }
    Ok(Plan {
        memory,
        eval_breaker: thread.wrapping_add(field(at::EVAL_BREAKER)),
        pending_call: thread.wrapping_add(support).wrapping_add(field(at::PENDING_CALL)),
        script_path: thread.wrapping_add(support).wrapping_add(field(at::SCRIPT_PATH)),
        script_path_size: field(at::SCRIPT_PATH_SIZE),
    })
}

/// Has a script run.
///
/// # Errors
/// When the interpreter takes none, or its memory cannot be written.
pub(crate) fn send(target: &Target, script: &str) -> Result<(), AttachError> {
    let no_way = |reason: String| AttachError::NoWay { pid: target.pid, reason };
    let plan = plan(target).map_err(no_way)?;
    let mut path = script.as_bytes().to_vec();
    path.push(0);
    if path.len() as u64 > plan.script_path_size {
        return Err(no_way(format!("the path of the script is too long: {script}")));
    }
    let write = |address: u64, bytes: &[u8]| {
        plan.memory
            .write(address, bytes)
            .map_err(|error| AttachError::io(format!("write into the memory of process {}", target.pid), error))
    };
    write(plan.script_path, &path)?;
    write(plan.pending_call, &1i32.to_le_bytes())?;
    // Only the byte with the bit: the upper part of the word is a version that other threads may be changing.
    let mut breaker = [0];
    plan.memory
        .read(plan.eval_breaker, &mut breaker)
        .map_err(|error| AttachError::io(format!("read the memory of process {}", target.pid), error))?;
    write(plan.eval_breaker, &[breaker[0] | PLEASE_STOP])
}

/// Takes back a script that has not been looked at: its file will be gone.
pub(crate) fn cancel(target: &Target) {
    if let Ok(plan) = plan(target) {
        let _ = plan.memory.write(plan.pending_call, &0i32.to_le_bytes());
    }
}

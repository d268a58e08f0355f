//! Sends a script into CPython 3.9 to 3.14 through `ptrace`, without a debugger, a breakpoint or a patch.
//!
//! One thread of the target is stopped for some microseconds and its instruction pointer is set to a short routine,
//! which saves every register, calls `Py_AddPendingCall`, restores every register and jumps back. CPython
//! then runs the pending call in its main thread, with the lock of the interpreter held, between two instructions of
//! the program; the call runs the script of the errand.
//!
//! Why the target is safe, in the order in which things happen:
//!
//! 1. The routine and the script's text are written into bytes behind the end of a library's code, in the last page of
//!    it ([`cave`]). No file and no other process sees that, and nothing in the target refers to those bytes.
//! 2. A thread is stopped (`PTRACE_SEIZE`, `PTRACE_INTERRUPT`; never `PTRACE_O_EXITKILL`). Only one, because nothing
//!    here needs the others to be stopped, and each stop interrupts a system call.
//! 3. 16 bytes below the stopped thread's red zone receive what it continues with. Nobody owns them.
//! 4. One system call sets the registers: the target's before it, the routine's after it. A killed attacher has made
//!    the call or has not.
//! 5. The thread is let go. From the fourth step on the target needs this process no more: the kernel lets a thread go
//!    whose tracer dies.
//!
//! Why the call cannot lock up the target: `Py_AddPendingCall` allocates nothing and takes one lock, which is held for
//! some instructions by whoever adds or takes a pending call. Only a thread that does not hold it may be redirected,
//! and [`thread`] shows which do not: those inside a system call, because none is made with the lock held, and those in
//! a function of CPython or of a library that has no part in pending calls. A thread inside a signal handler may have
//! been interrupted anywhere and is not used.

mod cave;
mod stub;
mod thread;

use std::time::{Duration, Instant};

use crate::elf::Module;
use crate::error::AttachError;
use crate::memory::Memory;
use crate::process::{self, Mapping, Status};
use crate::target::{self, Target};

pub(crate) use thread::wake;

/// How long a thread in a fit state is looked for.
const LOOKING: Duration = Duration::from_secs(5);

/// What has to be known of a target before anything is changed.
struct Plan {
    memory: Memory,
    mappings: Vec<Mapping>,
    module: Module,
    add_pending_call: u64,
    run_string: u64,
    /// The address of the return path of signal handlers, by which one is recognized on a stack.
    signal_return: Option<u64>,
    cave: cave::Cave,
}

/// Whether this way is open for a target that may be traced.
///
/// # Errors
/// The reason why not, one clause.
pub(crate) fn check(target: &Target) -> Result<(), String> {
    match target.python.map(|python| python.minor) {
        Some(9..=14) => {}
        Some(minor @ 15..) => return Err(format!("CPython 3.{minor} is newer than this oomph")),
        Some(0) | None => return Err("the version of its Python is not known".to_owned()),
        Some(minor) => return Err(format!("CPython 3.{minor} is too old; 3.9 and later are known")),
    }
    if target.forbids_remote_debug {
        return Err("it was started with remote debugging off (PYTHON_DISABLE_REMOTE_DEBUG)".to_owned());
    }
    plan(target).map(|_| ())
}

fn plan(target: &Target) -> Result<Plan, String> {
    let pid = target.pid;
    let status = Status::read(&process::folder(pid)).ok_or("it has ended")?;
    if matches!(status.state(), 'T' | 't') {
        return Err(format!("it is stopped; continue it with kill -CONT {pid}"));
    }
    if status.text("x86_Thread_features").is_some_and(|features| features.contains("shstk")) {
        return Err("it runs with a shadow stack".to_owned());
    }
    let memory = Memory::open(pid).map_err(|error| format!("its memory cannot be opened: {error}"))?;
    let mappings = process::mappings(pid).map_err(|error| format!("its mappings cannot be read: {error}"))?;
    let mapping = target::module_mapping(pid, &mappings).ok_or("no interpreter is mapped")?;
    let module = Module::read(pid, &mappings, &mapping).ok_or_else(|| {
        format!("{} is not the file that the process has loaded; it was replaced since", mapping.path)
    })?;
    let minor = target.python.map_or(0, |python| python.minor);
    let find = |name: &str| module.address(name).ok_or_else(|| format!("{} does not export {name}", module.path));
    if !is_initialized(&memory, find("_PyRuntime")?, minor) {
        return Err("its Python is starting or ending".to_owned());
    }
    let (add_pending_call, run_string) = (find("Py_AddPendingCall")?, find("PyRun_SimpleString")?);
    let cave = cave::find(pid, &memory, &mappings, &module).ok_or("no place for the routine was found")?;
    let signal_return = thread::signal_return(&memory, &mappings);
    Ok(Plan { memory, mappings, module, add_pending_call, run_string, signal_return, cave })
}

/// Whether the interpreter is up: before that, and in its last moments, there is no list of pending calls.
fn is_initialized(memory: &Memory, runtime: u64, minor: u8) -> bool {
    if minor >= 13 {
        // The state begins with offsets, among them that of the list of interpreters.
        let cookie = memory.read_some(runtime, 8);
        let head = memory.word(runtime.wrapping_add(40)).unwrap_or(u64::MAX);
        return cookie == b"xdebugpy"
            && head < 1 << 20
            && memory.word(runtime.wrapping_add(head)).is_ok_and(|interpreter| interpreter != 0);
    }
    // Four flags, one after the other: preinitializing, preinitialized, core initialized, initialized. Since 3.11 there
    // is one before them, of the structure itself.
    let flags: Vec<u32> = memory
        .read_some(runtime, 20)
        .chunks_exact(4)
        .map(|flag| u32::from_le_bytes([flag[0], flag[1], flag[2], flag[3]]))
        .collect();
    let own: &[u32] = if minor >= 11 { &[1, 0, 1, 1, 1] } else { &[0, 1, 1, 1] };
    flags.starts_with(own)
}

/// Has a script run.
///
/// # Errors
/// When no thread of the target is in a fit state, or the kernel refuses.
pub(crate) fn send(target: &Target, script: &str, end: Instant) -> Result<(), AttachError> {
    let no_way = |reason: String| AttachError::NoWay { pid: target.pid, reason };
    let plan = plan(target).map_err(no_way)?;
    let text = stub::text(script);
    let code = stub::routine(plan.add_pending_call, plan.run_string, &text);
    if code.len() > plan.cave.length {
        return Err(no_way(format!("the routine has {} bytes and the place for it {}", code.len(), plan.cave.length)));
    }
    plan.cave
        .fill(&plan.memory, &code)
        .map_err(|error| AttachError::io(format!("write into the memory of process {}", target.pid), error))?;
    let end = end.min(Instant::now() + LOOKING);
    // In a thread of its own: the kernel lets everything go that a tracing thread has not, when that ends.
    let work = || thread::redirect(target.pid, &plan, end);
    let result = std::thread::scope(|scope| scope.spawn(work).join());
    match result {
        Ok(Ok(())) => Ok(()),
        Ok(Err(reason)) => Err(no_way(reason)),
        Err(_) => Err(no_way("the tracing thread failed".to_owned())),
    }
}

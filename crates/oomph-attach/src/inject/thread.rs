//! Chooses the thread to redirect, stops it and lets it go.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Plan;
use super::stub::{FRAME, RED_ZONE, STACK};
use crate::memory::{Memory, nix_pid};
use crate::process::{self, Mapping};
use crate::waits::{waits_for_lock, waits_in};

/// How long one thread may take to stop. One that waits for a device takes any time.
const STOPPING: Duration = Duration::from_millis(300);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_micros(200);
/// Between two rounds over all threads.
const ROUND: Duration = Duration::from_millis(3);
/// How much of a stack is searched for the frame of a signal handler.
const SEARCHED: usize = 128 << 10;

const FUTEX: u64 = libc::SYS_futex.cast_unsigned();
const RESTART_SYSCALL: u64 = 219;
/// System calls that fail with EINTR when they are stopped, although no signal arrived: programs that are not Python
/// do not always expect that. (epoll_wait, epoll_pwait, epoll_pwait2, semop, semtimedop, msgsnd, msgrcv,
/// rt_sigtimedwait, io_getevents)
const FRAIL: [u64; 9] = [232, 281, 441, 65, 220, 69, 70, 128, 208];

/// System calls that wait. What a signal handler may do does not include them, so that a thread in one is in no handler
/// that interrupted something else. (read, poll, select, pause, nanosleep, accept, recvfrom, recvmsg, wait4, futex,
/// clock_nanosleep, epoll_wait, waitid, pselect6, ppoll, epoll_pwait, accept4)
const WAITS: [u64; 17] = [0, 7, 23, 34, 35, 43, 45, 47, 61, 202, 230, 232, 247, 270, 271, 281, 288];

/// What the kernel leaves in the accumulator of a thread whose system call was interrupted and is to be made again.
const RESTARTS: [i64; 3] = [-512, -513, -514];
/// The same, for calls that go on with the rest of their time.
const RESTART_BLOCK: i64 = -516;

/// Stops one thread after the other until one may be redirected, and redirects it.
///
/// # Errors
/// The reason why none was, one clause.
pub(super) fn redirect(pid: u32, plan: &Plan, end: Instant) -> Result<(), String> {
    let mut last = String::from("no thread could be stopped");
    let mut round = 0;
    loop {
        for (thread, _) in candidates(pid, round > 20) {
            match stop(nix_pid(thread)) {
                Ok(Some(stopped)) => match stopped.redirect(plan, thread == pid) {
                    Ok(()) => return Ok(()),
                    Err(reason) => last = reason,
                },
                Ok(None) => "a thread did not stop; it waits for a device".clone_into(&mut last),
                Err(Errno::EPERM) => return Err("the kernel does not allow tracing it".to_owned()),
                // The thread has ended meanwhile.
                Err(Errno::ESRCH) => {}
                Err(error) => last = format!("a thread could not be stopped: {error}"),
            }
        }
        if Instant::now() >= end {
            return Err(format!("no thread was in a state in which it may be interrupted: {last}"));
        }
        round += 1;
        std::thread::sleep(ROUND);
    }
}

/// Ends the main thread's wait for a lock with EINTR, after which CPython looks for calls and waits on.
pub(crate) fn wake(pid: u32) {
    if !waits_for_lock(pid) {
        return;
    }
    let work = || {
        let Ok(Some(stopped)) = stop(nix_pid(pid)) else { return };
        let Ok(registers) = ptrace::getregs(stopped.0) else { return };
        let (accumulator, instruction) = continuation(&registers, true);
        if registers.orig_rax == FUTEX && accumulator == (-(Errno::EINTR as i64)).cast_unsigned() {
            let changed = user_regs_struct { rax: accumulator, rip: instruction, orig_rax: u64::MAX, ..registers };
            let _ = ptrace::setregs(stopped.0, changed);
        }
    };
    let _ = std::thread::scope(|scope| scope.spawn(work).join());
}

/// The threads worth a try, the best first, with what each waits in.
fn candidates(pid: u32, any: bool) -> Vec<(u32, Option<u64>)> {
    let mut found: Vec<(u32, Option<u64>)> =
        process::threads(pid).into_iter().map(|thread| (thread, waits_in(pid, thread))).collect();
    found.retain(|(thread, call)| any || *thread == pid || !call.is_some_and(|call| FRAIL.contains(&call)));
    // The main thread first where it waits for a lock, because it can be woken for the call; then others that wait; then
    // the main thread, then the rest.
    found.sort_by_key(|(thread, call)| match (*thread == pid, call) {
        (true, Some(FUTEX)) => 0,
        (false, Some(call)) if !FRAIL.contains(call) => 1,
        (true, _) => 2,
        _ => 3,
    });
    // A program with hundreds of threads has hundreds that wait alike.
    found.truncate(16);
    found
}

/// A stopped thread. It is let go when this is dropped.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = ptrace::detach(self.0, None);
    }
}

/// Stops a thread. `None` where it does not stop in time; then the end of this thread lets it go.
fn stop(thread: Pid) -> Result<Option<Stopped>, Errno> {
    ptrace::seize(thread, ptrace::Options::empty())?;
    ptrace::interrupt(thread)?;
    let end = Instant::now() + STOPPING;
    loop {
        match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG))? {
            WaitStatus::PtraceEvent(_, Signal::SIGTRAP, _) => return Ok(Some(Stopped(thread))),
            // Stopped by a job-control signal: it stays so, and is of no use.
            WaitStatus::PtraceEvent(..) => {
                let _ = ptrace::detach(thread, None);
                return Ok(None);
            }
            // A signal came first; the thread gets it, and stops afterwards.
            WaitStatus::Stopped(_, signal) => ptrace::cont(thread, signal)?,
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Err(Errno::ESRCH),
            _ => {}
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

impl Stopped {
    /// Lets the thread go on through the routine.
    fn redirect(self, plan: &Plan, is_main: bool) -> Result<(), String> {
        let registers = ptrace::getregs(self.0).map_err(|error| format!("its registers cannot be read: {error}"))?;
        fit(plan, &registers)?;
        let (accumulator, instruction) = continuation(&registers, is_main);
        let frame = registers.rsp.wrapping_sub(RED_ZONE + FRAME);
        let mut words = [0; 16];
        words[..8].copy_from_slice(&accumulator.to_le_bytes());
        words[8..].copy_from_slice(&instruction.to_le_bytes());
        plan.memory.write(frame, &words).map_err(|error| format!("its stack cannot be written: {error}"))?;
        // Without a number of a system call the kernel restarts none in the routine; the thread does, afterwards.
        let changed = user_regs_struct { rip: plan.cave.address, rsp: frame, orig_rax: u64::MAX, ..registers };
        ptrace::setregs(self.0, changed).map_err(|error| format!("its registers cannot be set: {error}"))
    }
}

/// What the thread continues with after the routine: its accumulator and its instruction.
///
/// This is what the kernel does itself for a thread that is let go inside a system call.
fn continuation(registers: &user_regs_struct, is_main: bool) -> (u64, u64) {
    let is_in_call = registers.orig_rax.cast_signed() >= 0;
    let result = registers.rax.cast_signed();
    // The instruction `syscall` has two bytes.
    let again = registers.rip.wrapping_sub(2);
    let is_interrupted = RESTARTS.contains(&result) || result == RESTART_BLOCK;
    if !is_in_call || !is_interrupted {
        return (registers.rax, registers.rip);
    }
    // A wait for a lock may end with EINTR at any time, and CPython's main thread then looks for pending calls.
    if is_main && registers.orig_rax == FUTEX {
        return ((-(Errno::EINTR as i64)).cast_unsigned(), registers.rip);
    }
    if result == RESTART_BLOCK { (RESTART_SYSCALL, again) } else { (registers.orig_rax, again) }
}

/// Whether a thread in this state holds no lock that the call needs.
///
/// # Errors
/// The reason why that is not certain, one clause.
fn fit(plan: &Plan, registers: &user_regs_struct) -> Result<(), String> {
    // The code segment of 64-bit programs.
    if registers.cs != 0x33 {
        return Err("it is a 32-bit program".to_owned());
    }
    let stack = plan.mappings.iter().find(|mapping| mapping.holds(registers.rsp)).cloned();
    // The stack may be of a thread that was started since the mappings were read.
    let stack = stack.or_else(|| {
        let fresh = process::mappings(plan.memory.pid().as_raw().cast_unsigned()).ok()?;
        fresh.into_iter().find(|mapping| mapping.holds(registers.rsp))
    });
    let room = stack.as_ref().filter(|stack| stack.writable).map(|stack| registers.rsp - stack.start);
    let grows = stack.as_ref().is_some_and(|stack| stack.path == "[stack]");
    if room.is_none_or(|room| room < STACK && !grows) {
        return Err("a thread has too little stack".to_owned());
    }
    let is_in_call = registers.orig_rax.cast_signed() >= 0;
    if is_in_call && WAITS.contains(&registers.orig_rax) {
        return Ok(());
    }
    let above = stack.map_or(0, |stack| stack.end - registers.rsp);
    if is_in_handler(plan, registers.rsp, above) {
        return Err("a thread is in a signal handler".to_owned());
    }
    // No system call is made with the lock held.
    if is_in_call {
        return Ok(());
    }
    if plan.module.code.iter().any(|(start, end)| (*start..*end).contains(&registers.rip)) {
        return match plan.module.function(registers.rip) {
            Some(name) if !is_of_pending_calls(name) => Ok(()),
            _ => Err("a thread is in a part of the interpreter that may hold a lock".to_owned()),
        };
    }
    let place = plan.mappings.iter().find(|mapping| mapping.holds(registers.rip));
    match place {
        Some(place) if is_of_locks(place) => Err(format!("a thread is in {}", place.name())),
        Some(_) => Ok(()),
        None => Err("a thread is in code that was loaded just now".to_owned()),
    }
}

/// Whether an exported function of CPython has a part in pending calls, or calls what has without calling anything else.
fn is_of_pending_calls(name: &str) -> bool {
    name != "_PyEval_EvalFrameDefault"
        && ["Pending", "PyThread", "Mutex", "ParkingLot", "CheckSignals", "_PyEval_", "Semaphore"]
            .iter()
            .any(|part| name.contains(part))
}

/// Whether code is of the C library, of the loader, or of an allocator with critical sections of its own.
fn is_of_locks(place: &Mapping) -> bool {
    let name = place.name();
    ["libc.so", "libc-", "ld-", "libpthread", "[vdso]", "[vsyscall]"].iter().any(|start| name.starts_with(start))
        || name.contains("malloc")
}

/// Whether the frame of a signal handler is on the stack. A stale one counts too; another thread or moment will do.
fn is_in_handler(plan: &Plan, stack_pointer: u64, above: u64) -> bool {
    let Some(signal_return) = plan.signal_return else { return false };
    let stack =
        plan.memory.read_some(stack_pointer, usize::try_from(above).map_or(SEARCHED, |above| above.min(SEARCHED)));
    stack.chunks_exact(8).any(|word| word == signal_return.to_le_bytes())
}

/// Where the C library's return path of signal handlers is: `mov rax, 15; syscall`.
pub(super) fn signal_return(memory: &Memory, mappings: &[Mapping]) -> Option<u64> {
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
    let is_library = |mapping: &&Mapping| {
        let name = mapping.name();
        let starts = ["libc.so", "libc-", "libpthread", "ld-musl"].iter().any(|start| name.starts_with(start));
        mapping.executable && starts
    };
    mappings.iter().filter(is_library).find_map(|mapping| {
        let code = memory.read_some(mapping.start, usize::try_from(mapping.end - mapping.start).ok()?.min(4 << 20));
        let place = code.windows(CODE.len()).position(|window| window == CODE)?;
        Some(mapping.start + place as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(orig_rax: i64, rax: i64) -> user_regs_struct {
        // Safe zeroes: the type has no default, and a child's registers would be another program's.
        let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let thread = nix_pid(child.id());
        let stopped = stop(thread).unwrap().unwrap();
        let found = ptrace::getregs(thread).unwrap();
        drop(stopped);
        let mut child = child;
        child.kill().unwrap();
        child.wait().unwrap();
        user_regs_struct { orig_rax: orig_rax.cast_unsigned(), rax: rax.cast_unsigned(), rip: 1000, ..found }
    }

    #[test]
    fn system_calls_are_made_again_as_the_kernel_does() {
        let of = |call, result, is_main| continuation(&registers(call, result), is_main);
        assert_eq!(of(0, -512, false), (0, 998));
        assert_eq!(of(35, -516, true), (RESTART_SYSCALL, 998));
        assert_eq!(of(202, -512, true), ((-4i64).cast_unsigned(), 1000));
        assert_eq!(of(202, -512, false), (202, 998));
        assert_eq!(of(0, 17, false), (17, 1000));
        // Not in a system call: the accumulator is the program's, whatever is in it.
        assert_eq!(of(-1, -512, true), ((-512i64).cast_unsigned(), 1000));
    }

    #[test]
    fn functions_of_pending_calls_are_known() {
        for name in ["Py_AddPendingCall", "_PyEval_SignalReceived", "PyThread_acquire_lock", "PyErr_CheckSignals"] {
            assert!(is_of_pending_calls(name), "{name}");
        }
        for name in ["_PyEval_EvalFrameDefault", "PyLong_FromLong", "PyDict_GetItem"] {
            assert!(!is_of_pending_calls(name), "{name}");
        }
    }
}

//! Forks: every lock of this library is free in a forked child (see [`crate::lock`]), and a child of a process that used
//! CUDA gets no card.
//!
//! A real driver does not survive a fork: calls of a child whose parent had initialised it are answered by
//! `CUDA_ERROR_NOT_INITIALIZED`. Children of the fork server are runs of their own and say so ([`oomph_forked_afresh`]).

use crate::gpu::gpu;
use crate::lock;

/// Registers for notice of every fork. Called once, when the library is loaded: handlers that are registered later run
/// before this one at a fork, and may take locks of this library then.
pub fn follow() {
    // SAFETY: the three are `extern "C"` functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

extern "C" fn before() {
    lock::before_fork();
}

extern "C" fn in_parent() {
    lock::after_fork_in_parent();
}

extern "C" fn in_child() {
    let is_orderly = lock::after_fork_in_child();
    gpu().forked(is_orderly);
}

/// Makes a child of the fork server a process like one that was started: what the server's imports asked of CUDA, this
/// process has asked itself. The server has one thread and no contexts, so nothing was lost in the fork.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn oomph_forked_afresh() {
    gpu().forked_afresh();
}

//! Children that are forked while other threads are at work: none hangs, and none gets the card of its parent.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type Init = unsafe extern "C" fn(u32) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type MallocAsync = unsafe extern "C" fn(*mut *mut c_void, usize, *mut c_void) -> c_int;
type FreeAsync = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type CreateEvent = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Event = unsafe extern "C" fn(*mut c_void) -> c_int;
type Text = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;
type Register = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Afresh = unsafe extern "C" fn();

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 3;
const CAPACITY: u64 = 1 << 30;
const THREADS: usize = 4;
/// A child that works for so long hangs: it needs some milliseconds.
const HANGS: Duration = Duration::from_secs(300);

#[derive(Clone, Copy)]
struct Cuda {
    allocate: Allocate,
    free: Free,
    malloc: Malloc,
    malloc_async: MallocAsync,
    free_async: FreeAsync,
    create_event: CreateEvent,
    destroy_event: Event,
    name: Text,
    register: Register,
    init: Init,
}

impl Cuda {
    /// Takes and gives back what lies behind most locks.
    fn work(&self) -> c_int {
        let (mut block, mut pooled, mut event) = (0, ptr::null_mut(), ptr::null_mut());
        // SAFETY: the out-parameters live, and what is freed was made here.
        unsafe {
            let status = (self.allocate)(&raw mut block, 3 << 20);
            if status != SUCCESS {
                return status;
            }
            (self.malloc_async)(&raw mut pooled, 1 << 20, ptr::null_mut());
            (self.create_event)(&raw mut event);
            (self.destroy_event)(event);
            (self.free_async)(pooled, ptr::null_mut());
            (self.free)(block)
        }
    }
}

/// What a child saw, as its exit status.
fn child_of(cuda: Cuda, afresh: Option<Afresh>) -> c_int {
    let mut block = 0;
    let mut memory = ptr::null_mut();
    let mut name = ptr::null();
    // SAFETY: the out-parameters live. Registering nothing only counts.
    unsafe {
        if let Some(afresh) = afresh {
            afresh();
            return if cuda.work() == SUCCESS { 0 } else { 1 };
        }
        // A library that is loaded in a child registers its kernels, and errors have names.
        (cuda.register)(ptr::null_mut());
        let named = (cuda.name)(NOT_INITIALIZED, &raw mut name) == SUCCESS;
        let refused = [
            (cuda.init)(0),
            (cuda.allocate)(&raw mut block, 1 << 20),
            (cuda.malloc)(&raw mut memory, 1 << 20),
            cuda.work(),
        ];
        if named && refused == [NOT_INITIALIZED; 4] { 0 } else { 2 }
    }
}

/// Forks a child; its status, or none if it hangs, in which case it is killed.
fn fork(child: impl FnOnce() -> c_int) -> Option<c_int> {
    // SAFETY: the child calls the library, which is what this is about, and leaves without running what the test's
    // harness left to be run at the end.
    let pid = unsafe {
        match libc::fork() {
            0 => libc::_exit(child()),
            pid => pid,
        }
    };
    assert!(pid > 0, "no process could be made");
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the child is this process's own.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if begun.elapsed() > HANGS => {
                // SAFETY: as above, and it was not waited for yet.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &raw mut status, 0);
                }
                return None;
            }
            0 => std::thread::sleep(Duration::from_micros(200)),
            _ => return Some(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -status }),
        }
    }
}

#[test]
fn children_of_a_busy_parent_never_hang_and_get_no_card() {
    let run = tempfile::tempdir().expect("a temporary folder");
    let library = common::open(run.path(), CAPACITY);
    // SAFETY: these are the types of the CUDA functions of these names, and of the library's own.
    let (cuda, retain, set_current, afresh) = unsafe {
        let cuda = Cuda {
            allocate: common::function(library, "cuMemAlloc_v2"),
            free: common::function(library, "cuMemFree_v2"),
            malloc: common::function(library, "cudaMalloc"),
            malloc_async: common::function(library, "cudaMallocAsync"),
            free_async: common::function(library, "cudaFreeAsync"),
            create_event: common::function(library, "cudaEventCreate"),
            destroy_event: common::function(library, "cudaEventDestroy"),
            name: common::function(library, "cuGetErrorName"),
            register: common::function(library, "__cudaRegisterFatBinary"),
            init: common::function(library, "cuInit"),
        };
        let retain: Retain = common::function(library, "cuDevicePrimaryCtxRetain");
        let set_current: SetCurrent = common::function(library, "cuCtxSetCurrent");
        (cuda, retain, set_current, common::function::<Afresh>(library, "oomph_forked_afresh"))
    };

    // Before anybody used CUDA a child may: it is the first.
    let first = || {
        let mut memory = ptr::null_mut();
        // The runtime makes the driver ready, and the thread's context.
        // SAFETY: the out-parameter lives.
        if unsafe { (cuda.malloc)(&raw mut memory, 1 << 20) } == SUCCESS { cuda.work() } else { -1 }
    };
    assert_eq!(fork(first), Some(SUCCESS), "the parent had not used CUDA");

    let forks: usize = std::env::var("OOMPH_FORKS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut context = ptr::null_mut();
        // SAFETY: the out-parameter lives, and the context is what was just given.
        unsafe {
            assert_eq!((cuda.init)(0), SUCCESS);
            assert_eq!((retain)(&raw mut context, 0), SUCCESS);
            assert_eq!((set_current)(context), SUCCESS);
        }
        for _ in 0..THREADS {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(cuda.work(), SUCCESS);
                }
            });
        }
        let (mut hung, mut wrong) = (0, Vec::new());
        for number in 0..forks {
            // Every other child is one of the fork server's kind, which goes through the locks.
            let afresh = (number % 2 == 1).then_some(afresh);
            match fork(|| child_of(cuda, afresh)) {
                Some(0) => {}
                Some(status) => wrong.push(status),
                None => hung += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!((hung, wrong), (0, Vec::new()), "children that hung, and what others saw, of {forks}");
    });
}

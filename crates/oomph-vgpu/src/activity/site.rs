//! Which instruction of the program called.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static FOLLOWING: AtomicBool = AtomicBool::new(false);

/// Frames that are looked at in search of one outside this library and the CUDA libraries it stands for.
const DEEPEST: usize = 12;

// The unwinder of the C runtime, which Rust's own standard library links for its backtraces; the names and types are
// those of the Itanium C++ ABI, "Exception Handling", level I.
unsafe extern "C" {
    fn _Unwind_Backtrace(visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// Whether stacks are walked from now on.
pub fn follow(following: bool) {
    FOLLOWING.store(following, Ordering::Relaxed);
}

/// As [`innermost_outside`] where sites are followed, else 0.
#[inline]
pub fn of_caller() -> usize {
    if FOLLOWING.load(Ordering::Relaxed) { innermost_outside() } else { 0 }
}

struct Walk {
    found: usize,
    left: usize,
}

/// The return address of the innermost call from outside this library; 0 where none is found.
#[cold]
pub fn innermost_outside() -> usize {
    let mut walk = Walk { found: 0, left: DEEPEST };
    // SAFETY: `visit` has the type that the unwinder calls, and the argument outlives the walk.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.found
}

extern "C" fn visit(context: *mut c_void, argument: *mut c_void) -> c_int {
    const NO_REASON: c_int = 0;
    const END_OF_STACK: c_int = 5;
    // SAFETY: the argument is the `Walk` of `walk`, which nobody else uses while the stack is walked.
    let walk = unsafe { &mut *argument.cast::<Walk>() };
    // SAFETY: the context is the unwinder's own, valid during this call.
    let address = unsafe { _Unwind_GetIP(context) };
    walk.left -= 1;
    if address == 0 || walk.left == 0 {
        return END_OF_STACK;
    }
    if own().is_some_and(|(first, last)| (first..last).contains(&address)) {
        return NO_REASON;
    }
    walk.found = address;
    END_OF_STACK
}

/// The addresses of this library's code.
fn own() -> Option<(usize, usize)> {
    static OWN: OnceLock<Option<(usize, usize)>> = OnceLock::new();
    *OWN.get_or_init(|| {
        let mut search = Search { address: visit as *const () as usize, found: None };
        // SAFETY: `consider` has the type that is called, and the argument outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(consider), (&raw mut search).cast()) };
        search.found
    })
}

struct Search {
    address: usize,
    found: Option<(usize, usize)>,
}

unsafe extern "C" fn consider(info: *mut libc::dl_phdr_info, _size: usize, argument: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description of one object, and the argument is the `Search` of `own`.
    let (info, search) = unsafe { (&*info, &mut *argument.cast::<Search>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader says where the headers are and how many.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let first = info.dlpi_addr as usize + header.p_vaddr as usize;
        let range = (first, first + header.p_memsz as usize);
        if (range.0..range.1).contains(&search.address) {
            search.found = Some(range);
            return 1;
        }
    }
    0
}

/// Where an address lies, for somebody who has the files.
pub struct Place {
    /// The program or library.
    pub module: String,
    /// The address in its file's own terms, as debug information counts.
    pub offset: usize,
    /// The function, where the symbols tell.
    pub function: Option<String>,
}

/// Says where a return address lies.
pub fn place(address: usize) -> Option<Place> {
    if address == 0 {
        return None;
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // A return address may be the first of the next function, so the call itself is looked up.
    let call = address - 1;
    // SAFETY: the function fills the structure and keeps nothing.
    if unsafe { libc::dladdr(call as *const c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all-zero bytes are a valid value, and a success has filled it.
    let info = unsafe { info.assume_init() };
    // SAFETY: the loader's names are zero-terminated and live as long as the object is loaded.
    let text = |name: *const libc::c_char| {
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    };
    // The program itself is named as it was typed.
    let module = text(info.dli_fname)
        .filter(|name| name.starts_with('/'))
        .or_else(|| std::env::current_exe().ok().map(|path| path.to_string_lossy().into_owned()))?;
    Some(Place { module, offset: call - info.dli_fbase as usize, function: text(info.dli_sname) })
}

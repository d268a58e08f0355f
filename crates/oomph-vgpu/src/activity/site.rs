//! Which instructions of the program led to a call; in Python, which line, where the hook says so.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::place::{DEEPEST, Place, Stack};
use super::script::{self, Lines};
use crate::loaded;
use crate::lock::Once;

/// Most call sites that are distinguished.
const MOST: usize = 1 << 16;

// The unwinder of the C runtime, which Rust's own standard library links for its backtraces; the names and types are
// those of the Itanium C++ ABI, "Exception Handling", level I.
unsafe extern "C" {
    fn _Unwind_Backtrace(visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int, argument: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// The stacks of this process.
pub struct Stacks {
    /// Whether they are walked.
    followed: AtomicBool,
    /// The addresses of this library.
    own: Once<Option<Range<usize>>>,
}

impl Stacks {
    /// Stacks that are not walked.
    pub const fn new() -> Self {
        Self { followed: AtomicBool::new(false), own: Once::new() }
    }

    /// Whether stacks are walked from now on.
    pub fn follow(&self, followed: bool) {
        self.followed.store(followed, Ordering::Relaxed);
    }

    /// The call from outside this library that is under way; `None` where sites are not followed or none is found.
    #[inline]
    pub fn of_caller(&self) -> Option<Stack> {
        if self.followed.load(Ordering::Relaxed) { self.walk() } else { script::stack() }
    }

    /// Where the innermost call from outside this library lies, whether sites are followed or not.
    pub fn innermost_outside(&self) -> Option<Place> {
        place(self.walk()?[0])
    }

    /// The return addresses of the call from outside this library that is under way; `None` where there are none.
    #[cold]
    fn walk(&self) -> Option<Stack> {
        let own = self.own.get_or_init(|| loaded::file_of(visit as *const () as usize).map(|file| file.range)).as_ref();
        // This library's own frames come first.
        let mut walk = Walk { stack: [0; DEEPEST], found: 0, left: 2 * DEEPEST, own };
        // SAFETY: `visit` has the type that the unwinder calls, and the argument outlives the walk.
        unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
        (walk.found > 0).then_some(walk.stack)
    }
}

/// The call sites seen so far.
#[derive(Clone, Default)]
pub struct Sites {
    known: HashMap<Stack, Site>,
    stacks: Vec<Stack>,
}

/// A call site by its number; `UNKNOWN` where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(u32);

impl Site {
    pub const UNKNOWN: Self = Self(0);
}

impl Sites {
    /// The site of a stack.
    pub fn of(&mut self, stack: Option<Stack>) -> Site {
        let Some(stack) = stack else { return Site::UNKNOWN };
        if let Some(site) = self.known.get(&stack) {
            return *site;
        }
        if self.stacks.len() >= MOST {
            return Site::UNKNOWN;
        }
        self.stacks.push(stack);
        // No more than `MOST`, so it fits.
        let site = Site(self.stacks.len() as u32);
        self.known.insert(stack, site);
        site
    }

    /// Where the return addresses of a site lie, the innermost first.
    pub fn frames(&self, site: Site, lines: &Lines) -> Vec<Place> {
        let stack = (site.0 as usize).checked_sub(1).and_then(|index| self.stacks.get(index));
        stack.map(|stack| places(stack, lines)).unwrap_or_default()
    }
}

/// Where the return addresses of a stack lie, the innermost first.
pub fn places(stack: &Stack, lines: &Lines) -> Vec<Place> {
    if let Some(line) = lines.place(stack) {
        return vec![line];
    }
    stack.iter().take_while(|address| **address != 0).filter_map(|address| place(*address)).collect()
}

struct Walk<'a> {
    stack: Stack,
    found: usize,
    left: usize,
    own: Option<&'a Range<usize>>,
}

extern "C" fn visit(context: *mut c_void, argument: *mut c_void) -> c_int {
    const NO_REASON: c_int = 0;
    const END_OF_STACK: c_int = 5;
    // SAFETY: the argument is the `Walk` of `walk`, which nobody else uses while the stack is walked.
    let walk = unsafe { &mut *argument.cast::<Walk<'_>>() };
    // SAFETY: the context is the unwinder's own, valid during this call.
    let address = unsafe { _Unwind_GetIP(context) };
    walk.left -= 1;
    if address == 0 || walk.left == 0 {
        return END_OF_STACK;
    }
    if walk.own.is_some_and(|own| own.contains(&address)) {
        return NO_REASON;
    }
    let Some(slot) = walk.stack.get_mut(walk.found) else { return END_OF_STACK };
    *slot = address;
    walk.found += 1;
    NO_REASON
}

/// Says where a return address lies.
fn place(address: usize) -> Option<Place> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // A return address may be the first of the next function, so the call itself is looked up.
    let call = address - 1;
    // SAFETY: the function fills the structure and keeps nothing.
    if unsafe { libc::dladdr(call as *const c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all-zero bytes are a valid value, and a success has filled it.
    let info = unsafe { info.assume_init() };
    let text = |name: *const libc::c_char| {
        if name.is_null() {
            return None;
        }
        // SAFETY: the loader's names are zero-terminated and live as long as the object is loaded.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    };
    // The program itself is named as it was typed.
    let module = text(info.dli_fname)
        .filter(|name| name.starts_with('/'))
        .or_else(|| std::env::current_exe().ok().map(|path| path.to_string_lossy().into_owned()))?;
    Some(Place { module, offset: call - info.dli_fbase as usize, function: text(info.dli_sname) })
}

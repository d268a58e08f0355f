//! A link namespace of its own for a library, and what makes it safe to call.
//!
//! A library in another namespace has its own libc, which knows nothing of the threads that the program's libc starts.
//! Two things follow.
//!
//! Its tables of character classes are not set up in them: the first `isspace` would follow a null pointer. Asking it
//! for the global locale sets them up.
//!
//! Its environment is the array that the program's libc had at the time, which that libc frees when it grows. So it gets
//! a copy that stays.
//!
//! And the two libcs share one thing that neither knows of: the thread's table of thread-specific data. Each libc
//! numbers its keys from 0, so the values of one would be taken for those of the other; and whichever libc first uses a
//! part of the table allocates it, while the program's own libc frees it at the thread's end. cuDNN creates some forty
//! keys, enough for both to be seen.
//!
//! So the two are kept apart. In the new libc, the first [`FIRST`] numbers are taken before the library is loaded; its
//! keys then lie where the program has none. In the program's libc, one key is kept in each part of the table that the
//! library may use, and every thread sets these before it enters, so that the program's libc is the one that allocates.

use crate::lock::{Mutex, Once, Rank};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first key number that the library may get. Programs use a few dozen keys, and a libc has 1,024.
const FIRST: u32 = 512;
/// Keys in a part of the table that glibc allocates at once.
const PART: u32 = 32;
/// Parts that are set aside: room for 124 keys.
const PARTS: usize = 4;

/// The environment variable that a namespace has and the program has not. A library that is loaded there opens the
/// driver, and so a second instance of this library, which recognizes by it where it is.
const VARIABLE: &str = "OOMPH_NAMESPACE";

/// Whether this instance of the library serves a library in a namespace, and not the program.
pub fn is_inside() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// `LC_GLOBAL_LOCALE`
const GLOBAL_LOCALE: isize = -1;

type Key = libc::pthread_key_t;
type KeyCreate = unsafe extern "C" fn(*mut Key, Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
type UseLocale = unsafe extern "C" fn(isize) -> isize;
type KeyDelete = unsafe extern "C" fn(Key) -> c_int;

/// Whether a number is the first of a part that is set aside: the program's libc keeps it.
fn is_programs(key: Key) -> bool {
    key >= FIRST && (key - FIRST).is_multiple_of(PART)
}

/// Takes all free numbers up to the last part that is set aside, and gives back those that are not wanted. Returns what
/// is kept.
///
/// # Safety
/// The functions are `pthread_key_create` and `pthread_key_delete` of one libc.
unsafe fn reserve(create: KeyCreate, delete: KeyDelete, wanted: impl Fn(Key) -> bool) -> Vec<Key> {
    let last = FIRST + PART * (PARTS as u32 - 1);
    let mut keys: Vec<Key> = Vec::new();
    for _ in 0..=last {
        let mut key = 0;
        // SAFETY: the caller's promise; the out-parameter is a local variable.
        if unsafe { create(&raw mut key, None) } != 0 {
            break;
        }
        keys.push(key);
        if key >= last {
            break;
        }
    }
    keys.retain(|key| {
        if !wanted(*key) {
            // SAFETY: the caller's promise; the key was created above and nobody knows of it.
            unsafe { delete(*key) };
        }
        wanted(*key)
    });
    keys
}

/// More namespaces than this library makes; glibc allows 16 in all.
const MOST_NAMESPACES: usize = 8;

/// The namespaces that this library made.
pub struct Namespaces {
    /// The keys of the program's libc, one in each part that is set aside.
    keys: Once<Vec<Key>>,
    /// `uselocale` of each namespace, in the order in which they were made.
    locales: [AtomicUsize; MOST_NAMESPACES],
    /// How many namespaces there are.
    count: AtomicUsize,
    /// Held while one is made, so that each gets a place of its own.
    making: Mutex<()>,
}

thread_local! {
    // `const` and without a destructor, so that a thread's end runs no code of this library.
    /// How many namespaces this thread is prepared for.
    static PREPARED: Cell<usize> = const { Cell::new(0) };
}

impl Namespaces {
    /// None yet.
    pub const fn new() -> Namespaces {
        Namespaces {
            keys: Once::new(),
            locales: [const { AtomicUsize::new(0) }; MOST_NAMESPACES],
            count: AtomicUsize::new(0),
            making: Mutex::new(Rank::Namespaces, ()),
        }
    }

    fn programs_keys(&self) -> &[Key] {
        // SAFETY: both functions are of the libc that this library is linked with.
        self.keys.get_or_init(|| unsafe { reserve(libc::pthread_key_create, libc::pthread_key_delete, is_programs) })
    }

    /// Prepares this thread for calls into every namespace. Cheap after the first time.
    #[inline]
    fn enter(&self) {
        let count = self.count.load(Ordering::Acquire);
        if PREPARED.get() != count {
            self.prepare(count);
        }
    }

    #[cold]
    fn prepare(&self, count: usize) {
        for key in self.programs_keys() {
            // A value that is not null makes libc allocate the part; nobody reads it.
            // SAFETY: the key is valid, and the value is never followed.
            unsafe { libc::pthread_setspecific(*key, std::ptr::without_provenance(1)) };
        }
        for locale in self.locales.iter().take(count).skip(PREPARED.get()) {
            let address = locale.load(Ordering::Relaxed);
            if address != 0 {
                // SAFETY: the address is that of `uselocale`; the argument stands for the locale that is in use anyway.
                unsafe {
                    let function = std::mem::transmute::<*const c_void, UseLocale>(address as *const c_void);
                    function(GLOBAL_LOCALE);
                }
            }
        }
        PREPARED.set(count);
    }

    /// Makes a namespace that holds a libc and nothing else.
    pub fn make(&self) -> Result<Namespace<'_>, String> {
        let _making = self.making.lock();
        let libc = open(libc::LM_ID_NEWLM, c"libc.so.6")?;
        let mut id: libc::Lmid_t = 0;
        // SAFETY: the handle is open, and the request writes one `Lmid_t`.
        if unsafe { libc::dlinfo(libc, libc::RTLD_DI_LMID, (&raw mut id).cast()) } != 0 {
            return Err(error());
        }
        let find = |name: &CStr| {
            // SAFETY: the handle is open.
            let address = unsafe { libc::dlsym(libc, name.as_ptr()) };
            if address.is_null() { Err(format!("its libc has no {}", name.to_string_lossy())) } else { Ok(address) }
        };
        // SAFETY: the types are those that POSIX gives the functions.
        let (create, delete) = unsafe {
            (
                std::mem::transmute::<*mut c_void, KeyCreate>(find(c"pthread_key_create")?),
                std::mem::transmute::<*mut c_void, KeyDelete>(find(c"pthread_key_delete")?),
            )
        };
        // The numbers below belong to the program, as do the first ones of every part.
        // SAFETY: both functions are of the namespace's libc.
        unsafe { reserve(create, delete, |key| key < FIRST || is_programs(key)) };
        // SAFETY: this is the libc's own variable, which nothing in the new namespace has read yet.
        unsafe { find(c"environ")?.cast::<*const *const c_char>().write(environment()) };
        let locale = find(c"uselocale")?;
        let place = self.count.load(Ordering::Acquire);
        self.locales.get(place).ok_or("there are too many namespaces")?.store(locale as usize, Ordering::Relaxed);
        self.count.store(place + 1, Ordering::Release);
        self.enter();
        Ok(Namespace { id, all: self })
    }
}

/// A namespace.
#[derive(Clone, Copy)]
pub struct Namespace<'a> {
    id: libc::Lmid_t,
    all: &'a Namespaces,
}

impl Namespace<'_> {
    /// Loads a library into the namespace. It is never unloaded.
    pub fn load(self, path: &CStr) -> Result<*mut c_void, String> {
        self.enter();
        open(self.id, path)
    }

    /// Prepares this thread for a call into the namespace.
    #[inline]
    pub fn enter(self) {
        self.all.enter();
    }
}

/// A copy of the program's environment that is never freed, as C keeps it: terminated strings, and a null at the end.
fn environment() -> *const *const c_char {
    let mut strings: Vec<*const c_char> = std::env::vars_os()
        .chain([(VARIABLE.into(), "1".into())])
        .filter_map(|(name, value)| {
            let mut line = name.into_encoded_bytes();
            line.push(b'=');
            line.extend(value.into_encoded_bytes());
            Some(CString::new(line).ok()?.into_raw().cast_const())
        })
        .collect();
    strings.push(std::ptr::null());
    Box::leak(strings.into_boxed_slice()).as_ptr()
}

fn open(namespace: libc::Lmid_t, path: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name is a terminated string. Running the library's initializers is what loading it means.
    let handle = unsafe { libc::dlmopen(namespace, path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(error()) } else { Ok(handle) }
}

/// What the loader complains of.
fn error() -> String {
    // SAFETY: the function returns null or a terminated string that stays until this thread's next such call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;

    #[test]
    fn the_keys_of_two_libcs_lie_apart() {
        let all = &gpu().cudnn.libraries.namespaces;
        let namespace = all.make().expect("a namespace can be made");
        let libc = namespace.load(c"libc.so.6").expect("its libc can be found");
        for key in all.programs_keys() {
            assert!(is_programs(*key));
        }
        // SAFETY: functions of the namespace's libc by their POSIX types, and local variables.
        unsafe {
            let create: KeyCreate = std::mem::transmute(libc::dlsym(libc, c"pthread_key_create".as_ptr()));
            let mut keys = [0; 40];
            for key in &mut keys {
                assert_eq!(create(key, None), 0);
            }
            assert!(keys.iter().all(|key| *key > FIRST && !is_programs(*key)), "{keys:?}");
            let mut own = 0;
            assert_eq!(libc::pthread_key_create(&raw mut own, None), 0);
            assert!(own < FIRST, "the program's numbers are given back");
            assert_eq!(libc::pthread_key_delete(own), 0);
        }
    }

    #[test]
    fn a_thread_that_entered_can_end() {
        let namespace = gpu().cudnn.libraries.namespaces.make().expect("a namespace can be made");
        let libc = namespace.load(c"libc.so.6").expect("its libc can be found") as usize;
        let thread = std::thread::spawn(move || {
            namespace.enter();
            type Set = unsafe extern "C" fn(Key, *const c_void) -> c_int;
            // SAFETY: as above; the value is never followed.
            unsafe {
                let libc = libc as *mut c_void;
                let create: KeyCreate = std::mem::transmute(libc::dlsym(libc, c"pthread_key_create".as_ptr()));
                let set: Set = std::mem::transmute(libc::dlsym(libc, c"pthread_setspecific".as_ptr()));
                type Class = unsafe extern "C" fn(c_int) -> c_int;
                let class: Class = std::mem::transmute(libc::dlsym(libc, c"isspace".as_ptr()));
                assert_ne!(class(c_int::from(b' ')), 0);
                for _ in 0..60 {
                    let mut key = 0;
                    assert_eq!(create(&raw mut key, None), 0);
                    assert_eq!(set(key, std::ptr::without_provenance(8)), 0);
                }
            }
        });
        assert!(thread.join().is_ok());
    }
}

//! What version a library says that it is. Frameworks refuse one that is older than what they were built for.

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use crate::loader;

/// Major, minor and patch.
pub type Version = [c_int; 3];

/// A library whose version is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// How its file name begins.
    pub prefix: &'static str,
    /// Its function of the shape `cublasGetProperty(type, &value)`.
    pub property: &'static CStr,
    /// What to say where it is not mapped, by the major version of CUDA: the newest of that series, 11 to 13.
    pub known: [Version; 3],
}

/// A function of the user's own library, which is mapped although the preloaded symbols precede it.
///
/// `None` where the program opened the library by name, which the preloaded one answered with itself.
pub fn real(prefix: &str, symbol: &CStr) -> Option<*mut c_void> {
    let path = CString::new(loader::mapped_library(prefix)?).ok()?;
    // SAFETY: the path is a terminated string, and the file is mapped already, so that no code of it is run.
    // `dlmopen` is used because this library replaces `dlopen`.
    let handle = unsafe { libc::dlmopen(libc::LM_ID_BASE, path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: the handle is open and never closed, and the name is a terminated string.
    let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
    // A library that lacks the symbol has it looked up in its dependencies, of which this library is one.
    let own = crate::exports::address(symbol.to_str().ok()?).map(|own| own.cast_mut().cast::<c_void>());
    (!address.is_null() && own != Some(address)).then_some(address)
}

/// The version of the user's own library, or else the newest one of the CUDA series in use.
pub fn of(library: Library) -> Version {
    asked(library).unwrap_or_else(|| {
        let [eleven, twelve, thirteen] = library.known;
        match loader::runtime_major() {
            ..=11 => eleven,
            12 => twelve,
            _ => thirteen,
        }
    })
}

fn asked(library: Library) -> Option<Version> {
    let address = real(library.prefix, library.property)?;
    // SAFETY: every NVIDIA library has this function in this shape; it needs neither a handle nor a card.
    let property: unsafe extern "C" fn(c_int, *mut c_int) -> c_int = unsafe { std::mem::transmute(address) };
    let mut version = [0; 3];
    for (kind, part) in (0..).zip(&mut version) {
        // SAFETY: as above; the out-parameter is a local variable.
        if unsafe { property(kind, part) } != 0 {
            return None;
        }
    }
    (version != [0; 3]).then_some(version)
}

/// Defines a function that finds a library's version once.
macro_rules! library_version {
    ($prefix:literal, $property:literal, $eleven:expr, $twelve:expr, $thirteen:expr) => {
        fn version() -> $crate::cublas::versions::Version {
            static VERSION: ::std::sync::OnceLock<$crate::cublas::versions::Version> = ::std::sync::OnceLock::new();
            *VERSION.get_or_init(|| {
                $crate::cublas::versions::of($crate::cublas::versions::Library {
                    prefix: $prefix,
                    property: $property,
                    known: [$eleven, $twelve, $thirteen],
                })
            })
        }
    };
}
pub(crate) use library_version;

/// The number that the `GetProperty` functions call by this type: 0 major, 1 minor, 2 patch.
pub fn property(version: Version, kind: c_int) -> Option<c_int> {
    version.get(usize::try_from(kind).ok()?).copied()
}

/// The number of the CUDA runtime, as `cudaRuntimeGetVersion` has it, that the libraries were built for.
pub fn runtime_number() -> usize {
    static NUMBER: OnceLock<usize> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let asked = real("libcublas.so.", c"cublasGetCudartVersion").map(|address| {
            // SAFETY: the function takes nothing and returns a `size_t`.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> usize>(address)() }
        });
        asked.filter(|number| *number > 0).unwrap_or(loader::runtime_major() as usize * 1000)
    })
}

/// Writes an out-parameter that may be null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise; programs may pass any alignment inside packed structures.
        unsafe { to.write_unaligned(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_mapped_says_the_newest_of_its_series() {
        let library = Library {
            prefix: "libno-such-library.so.",
            property: c"noSuchFunction",
            known: [[11, 1, 0], [12, 2, 0], [13, 3, 0]],
        };
        // No CUDA runtime is mapped into a test program, which counts as 13.
        assert_eq!(of(library), [13, 3, 0]);
        assert_eq!(property([13, 3, 1], 2), Some(1));
        assert_eq!(property([13, 3, 1], 3), None);
        assert_eq!(property([13, 3, 1], -1), None);
    }
}

//! The dynamic loader's part: programs that open NVIDIA's libraries by name get this one.
//!
//! Preloading is enough for a program whose libraries are linked; JAX, TensorFlow and others open theirs at run time.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fork;
use crate::gpu::gpu;

/// Libraries that this one replaces, by the beginning of their file name. The compilers (nvrtc, nvJitLink, nvvm)
/// are not among them: they work without a card.
const REPLACED: [&[u8]; 13] = [
    b"libcuda.so",
    b"libcudart.so",
    b"libcublas.so",
    b"libcublasLt.so",
    b"libcudnn",
    b"libcufft.so",
    b"libcusolver.so",
    b"libcusparse.so",
    b"libcusparseLt.so",
    b"libnccl.so",
    b"libcupti.so",
    b"libcurand.so",
    b"libnvidia-ml.so",
];

/// Where the real `dlopen` is. It is found when the library is loaded, because the stub below must not call anything
/// on its way there; and it is a static of its own, because the stub names it.
static REAL_DLOPEN: AtomicUsize = AtomicUsize::new(0);

/// What the loader calls when it has loaded this library. A constant.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    fork::follow();
    // SAFETY: the name is a terminated string.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    REAL_DLOPEN.store(real as usize, Ordering::Relaxed);
}

/// Whether a library name is one that this library replaces.
fn is_replaced(path: &[u8]) -> bool {
    REPLACED.iter().any(|known| file_name(path).starts_with(known))
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// What the stub does next.
#[repr(C)]
struct Verdict {
    /// A handle to return at once, or null to go on to the real function.
    handle: *mut c_void,
    /// The flags for the real function.
    flags: c_int,
}

/// Decides about one `dlopen`.
unsafe extern "C" fn decide(path: *const c_char, flags: c_int) -> Verdict {
    // Deep binding would let a library's own dependencies win over the preloaded symbols.
    let flags = flags & !libc::RTLD_DEEPBIND;
    let none = Verdict { handle: std::ptr::null_mut(), flags };
    if path.is_null() || gpu().cards().is_empty() {
        return none;
    }
    // SAFETY: `dlopen`'s contract: a terminated string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !is_replaced(path) {
        return none;
    }
    let (Some(own), real) = (own_path(), REAL_DLOPEN.load(Ordering::Relaxed)) else { return none };
    if real == 0 {
        return none;
    }
    // SAFETY: the address came from `dlsym("dlopen")`.
    let real: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = unsafe { std::mem::transmute(real) };
    // SAFETY: this library is loaded, so opening it again only counts a reference.
    let handle = unsafe { real(own.as_ptr(), flags) };
    if let Some(name) = toolkit_name(own, file_name(path)) {
        // SAFETY: the call comes from this library, so that its RPATH applies, where the name is a link to it.
        let named = unsafe { real(name.as_ptr(), flags) };
        // PyTorch is linked with NVIDIA's own library of this name: once that is loaded, the loader knows it by the name.
        if !named.is_null() && named != handle {
            // SAFETY: the handle came from `dlopen`, and nobody else has it.
            unsafe { libc::dlclose(named) };
        }
    }
    Verdict { handle, flags }
}

/// The name to open this library by so that the dynamic loader also knows it by that name, where the runtime's folder
/// has a link of it. ONNX Runtime's wheels open the toolkit by its path and count on the libraries that are linked with
/// it finding it loaded.
fn toolkit_name(own: &CStr, name: &[u8]) -> Option<CString> {
    let link = Path::new(OsStr::from_bytes(own.to_bytes())).parent()?.join("toolkit").join(OsStr::from_bytes(name));
    if link.exists() { CString::new(name).ok() } else { None }
}

/// The file that this library was loaded from.
pub fn own_path() -> Option<&'static CStr> {
    let find = || {
        // SAFETY: all-zero is a valid `Dl_info`, and the address is one of this library.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let found = libc::dladdr(decide as *const c_void, &raw mut info);
            (found != 0 && !info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname).to_owned())
        }
    };
    gpu().own_path.get_or_init(find).as_deref()
}

/// `dlopen`, with NVIDIA's libraries replaced.
///
/// glibc looks at the return address to find whose RPATH applies, so everything else must reach the real function by a
/// jump, with the caller's return address on top of the stack. That cannot be said in Rust.
#[cfg(all(target_arch = "x86_64", not(test)))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {decide}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jnz 2f",
        "mov esi, edx",
        "jmp qword ptr [rip + {real}]",
        "2:",
        "ret",
        decide = sym decide,
        real = sym REAL_DLOPEN,
    )
}

/// As above, for 64-bit Arm.
#[cfg(all(target_arch = "aarch64", not(test)))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {decide}",
        "cbnz x0, 2f",
        "mov w2, w1",
        "ldp x0, x1, [sp, #16]",
        "mov w1, w2",
        "ldp x29, x30, [sp], #32",
        "adrp x16, {real}",
        "ldr x16, [x16, #:lo12:{real}]",
        "br x16",
        "2:",
        "ldp x29, x30, [sp], #32",
        "ret",
        decide = sym decide,
        real = sym REAL_DLOPEN,
    )
}

/// The major version of the CUDA runtime that the program is linked against, from the name of the mapped library.
pub fn runtime_major() -> u32 {
    let find = || mapped_library("libcudart.so.").and_then(|path| major_of(&path)).unwrap_or(13);
    *gpu().runtime_major.get_or_init(find)
}

/// The path of a mapped library whose file name begins with `prefix`.
pub fn mapped_library(prefix: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let own = own_path().and_then(|path| path.to_str().ok()).unwrap_or_default();
    maps.lines()
        .filter_map(|line| line.find('/').and_then(|at| line.get(at..)))
        .find(|path| *path != own && path.rsplit('/').next().is_some_and(|name| name.starts_with(prefix)))
        .map(str::to_owned)
}

fn major_of(path: &str) -> Option<u32> {
    path.rsplit_once(".so.")?.1.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_libraries_are_replaced_and_compilers_are_not() {
        for path in ["libcudart.so.13", "/x/y/libcudnn_graph.so.9", "libcublasLt.so", "libnvidia-ml.so.1"] {
            assert!(is_replaced(path.as_bytes()), "{path}");
        }
        for path in ["libnvrtc.so.12", "libcudadevrt.a", "libc.so.6", "/libcuda.so/libm.so", ""] {
            assert!(!is_replaced(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn versions_are_read_from_names() {
        assert_eq!(major_of("/a/libcudart.so.12"), Some(12));
        assert_eq!(major_of("/a/libcudart.so.11.0"), Some(11));
        assert_eq!(major_of("/a/libcudart.so"), None);
    }
}

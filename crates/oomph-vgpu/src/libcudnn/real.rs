//! The user's own libcudnn, loaded in addition to this library and asked what it knows without a GPU.
//!
//! It lives in a link namespace of its own: its internal calls must not come back to the preloaded symbols, and the
//! preloaded symbols must not be taken for its own. Its sub-libraries (`libcudnn_graph.so.9` and the others) find each
//! other there through their own search paths. A `libcuda.so.1` that it finds there is a second, inert instance of this
//! library, which is no matter: the deviceless mode does not need one.

use crate::lock::Once;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::attribute::{Descriptor, Elements, Places, TYPE_CHAR};
use super::namespace::{Namespace, Namespaces};
use super::props;
use super::status::{CudnnStatus, Result};
use crate::boundary::{Any, Room, pass};

/// The first version with a deviceless mode.
const FIRST_DEVICELESS: usize = 90_800;
/// What a program hears where no libcudnn is found at all: the newest version that this crate was checked with, because
/// frameworks refuse an older one than they were built for.
const DEFAULT_VERSION: usize = 92_600;

type Create = unsafe extern "C" fn(i32, *mut *mut c_void) -> u32;
type OfDescriptor = unsafe extern "C" fn(*mut c_void) -> u32;
type Set = unsafe extern "C" fn(*mut c_void, i32, i32, i64, *const c_void) -> u32;
type Get = unsafe extern "C" fn(*mut c_void, i32, i32, i64, *mut i64, *mut c_void) -> u32;
type Number = unsafe extern "C" fn() -> usize;
type LastError = unsafe extern "C" fn(*mut c_char, usize);

/// The functions of a loaded libcudnn that need no GPU.
///
/// Calling them is sound because the library is loaded and never unloaded, their types are those of `cudnn_graph.h`, and
/// [`Descriptor`], [`Elements`] and [`Places`] hold what its documentation asks of the arguments. This argument is that of
/// each `unsafe` block in the calls below.
pub struct Real {
    create: Create,
    destroy: OfDescriptor,
    finalize: OfDescriptor,
    set: Set,
    get: Get,
    /// Libraries before 9 have none.
    last_error: Option<LastError>,
    /// What the library says that it is, 92600 for 9.26.
    pub version: usize,
    namespace: Namespace<'static>,
}

impl Real {
    /// `cudnnBackendCreateDescriptor`
    pub fn create(&self, kind: i32) -> Result<Descriptor<'static>> {
        self.namespace.enter();
        let mut made = std::ptr::null_mut();
        // SAFETY: see above; the out-parameter is a local variable.
        CudnnStatus::check(unsafe { (self.create)(kind, &raw mut made) })?;
        // SAFETY: the library made it just now.
        Ok(unsafe { pass::<Any, _>(made) })
    }

    /// `cudnnBackendDestroyDescriptor`
    pub fn destroy(&self, descriptor: Descriptor<'_>) -> Result<()> {
        self.namespace.enter();
        // SAFETY: see above.
        CudnnStatus::check(unsafe { (self.destroy)(descriptor.pointer()) })
    }

    /// `cudnnBackendFinalize`
    pub fn finalize(&self, descriptor: Descriptor<'_>) -> Result<()> {
        self.namespace.enter();
        // SAFETY: see above.
        CudnnStatus::check(unsafe { (self.finalize)(descriptor.pointer()) })
    }

    /// `cudnnBackendSetAttribute`
    pub fn set(&self, descriptor: Descriptor<'_>, name: i32, elements: Elements<'_>) -> Result<()> {
        self.namespace.enter();
        let (kind, count, address) = (elements.kind(), elements.count(), elements.address());
        // SAFETY: see above.
        CudnnStatus::check(unsafe { (self.set)(descriptor.pointer(), name, kind, count, address) })
    }

    /// `cudnnBackendGetAttribute`, and how many elements it says there are.
    pub fn get(&self, descriptor: Descriptor<'_>, name: i32, places: Places<'_>) -> (i64, Result<()>) {
        self.namespace.enter();
        let (kind, room, address) = (places.held().kind(), places.held().count(), places.address());
        let mut count = 0;
        // SAFETY: see above; the count is a local variable.
        let status = unsafe { (self.get)(descriptor.pointer(), name, kind, room, &raw mut count, address) };
        (count, CudnnStatus::check(status))
    }

    /// What the library last complained of on this thread.
    pub fn last_error(&self) -> String {
        let mut text = [0_u8; 1024];
        self.write_last_error(Room::to(&mut text));
        CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().trim().to_owned()).unwrap_or_default()
    }

    /// Writes what the library last complained of; whether it could be asked.
    pub fn write_last_error(&self, message: Room<'_, u8>) -> bool {
        let Some(last_error) = self.last_error else { return false };
        self.namespace.enter();
        // SAFETY: see above; the function writes at most as many bytes as there is room for, with a terminator.
        unsafe { last_error(message.address().cast(), message.count()) };
        true
    }

    /// Whether the library answers without a GPU.
    pub fn is_deviceless(&self) -> bool {
        self.version >= FIRST_DEVICELESS
    }
}

/// The libraries that were looked for.
pub struct Libraries {
    /// The library that the program itself uses.
    users: Once<Option<Real>>,
    /// The newer one that `OOMPH_CUDNN` names.
    newer: Once<Option<Real>>,
    /// Where they are loaded.
    pub namespaces: Namespaces,
}

impl Libraries {
    /// None was looked for yet.
    pub const fn new() -> Libraries {
        Libraries { users: Once::new(), newer: Once::new(), namespaces: Namespaces::new() }
    }

    /// The library that the program itself uses. What goes wrong is said to `warn`, once.
    pub fn users(&'static self, warn: impl FnOnce(&str)) -> Option<&'static Real> {
        let find = || mapped().or_else(beside_packages).or_else(in_library_folders);
        self.users.get_or_init(|| self.load(&find()?).map_err(|why| warn(&why)).ok()).as_ref()
    }

    /// The library that is asked: the program's own if it answers without a GPU, or the newer one that `OOMPH_CUDNN`
    /// names. Descriptors' numbers never change between versions, so a newer library understands an older program.
    pub fn asked(&'static self, warn: impl Fn(&str)) -> Option<&'static Real> {
        let find = || std::env::var_os("OOMPH_CUDNN");
        match self.users(&warn) {
            Some(own) if own.is_deviceless() => Some(own),
            _ => self
                .newer
                .get_or_init(|| {
                    let newer = self.load(Path::new(&find()?)).map_err(|why| warn(&why)).ok();
                    newer.filter(Real::is_deviceless)
                })
                .as_ref(),
        }
    }

    /// The version that the program hears: its own library's, whichever one is asked, because frameworks compare it with
    /// the one they were built for.
    pub fn version(&'static self, warn: impl Fn(&str)) -> usize {
        self.users(&warn).or_else(|| self.asked(&warn)).map_or(DEFAULT_VERSION, |real| real.version)
    }

    /// Loads a libcudnn into a namespace of its own. What goes wrong is a sentence for the report.
    pub fn load(&'static self, path: &Path) -> std::result::Result<Real, String> {
        try_load(&self.namespaces, path)
            .map_err(|why| format!("cuDNN's library could not be loaded to be asked for its workspaces: {why}"))
    }
}

/// Whether a file is a libcudnn and not a link to this library under its name.
fn is_libcudnn(path: &Path) -> bool {
    let real = path.canonicalize();
    real.is_ok_and(|real| real.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libcudnn.so")))
}

/// The libcudnn that is mapped already: a library that a framework was linked with is loaded even where the preloaded
/// symbols precede it.
fn mapped() -> Option<PathBuf> {
    files_in_maps().into_iter().find(|path| is_libcudnn(path))
}

/// The libcudnn of the Python environment that something in this process was loaded from. JAX and TensorFlow open it
/// at run time, which the preloaded library answers with itself, so that it is never mapped.
fn beside_packages() -> Option<PathBuf> {
    files_in_maps().into_iter().find_map(|path| {
        let folder = path
            .ancestors()
            .find(|folder| folder.file_name().is_some_and(|name| name == "site-packages" || name == "dist-packages"))?;
        ["libcudnn.so.9", "libcudnn.so.8"]
            .iter()
            .map(|name| folder.join("nvidia/cudnn/lib").join(name))
            .find(|path| is_libcudnn(path))
    })
}

/// The libcudnn of the system.
fn in_library_folders() -> Option<PathBuf> {
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/cuda/lib64", "/usr/lib64"];
    std::env::split_paths(&listed)
        .chain(usual.iter().map(PathBuf::from))
        .flat_map(|folder| ["libcudnn.so.9", "libcudnn.so.8"].map(|name| folder.join(name)))
        .find(|path| is_libcudnn(path))
}

/// The files that are mapped into this process.
fn files_in_maps() -> Vec<PathBuf> {
    // The kernel's list can hold names that are not UTF-8.
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let mut files: Vec<PathBuf> = maps
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.iter().position(|byte| *byte == b'/').and_then(|at| line.get(at..)))
        .map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)))
        .collect();
    files.dedup();
    files
}

/// The sub-libraries that answer questions, in the order of their needs. They are loaded by their full paths before
/// cuDNN looks for them, because it would look in `LD_LIBRARY_PATH` first, where another version may lie.
const SUBLIBRARIES: [&str; 5] = [
    "libcudnn_graph.so.9",
    "libcudnn_heuristic.so.9",
    "libcudnn_engines_precompiled.so.9",
    "libcudnn_engines_runtime_compiled.so.9",
    "libcudnn_engines_tensor_ir.so.9",
];

/// What NVIDIA's compiler, with which cuDNN builds kernels such as those of attention, opens by its bare name. In the
/// program PyTorch has loaded it; CUDA 13.0's compiler does not look in its own folder, and no kernel could be built without.
fn compilers_builtins(cudnn: &Path) -> Vec<PathBuf> {
    let is_builtins =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libnvrtc-builtins.so"));
    let mapped: Vec<PathBuf> = files_in_maps().into_iter().filter(is_builtins).collect();
    if !mapped.is_empty() {
        return mapped;
    }
    // Wheels have the compiler in a folder next to that of cuDNN: `nvidia/cuda_nvrtc/lib` or, since CUDA 13, `nvidia/cu13/lib`.
    let packages = cudnn.ancestors().nth(3).into_iter().flat_map(|folder| folder.read_dir().into_iter().flatten());
    packages
        .flatten()
        .filter(|package| matches!(package.file_name().as_bytes(), [b'c', b'u', b'0'..=b'9', ..] | b"cuda_nvrtc"))
        .flat_map(|package| package.path().join("lib").read_dir().into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(is_builtins)
        .collect()
}

fn try_load(namespaces: &'static Namespaces, path: &Path) -> std::result::Result<Real, String> {
    let terminated =
        |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name holds a zero".to_owned());
    let namespace = namespaces.make()?;
    for builtins in compilers_builtins(path) {
        // Without it cuDNN still answers for what it need not compile.
        let _ = namespace.load(&terminated(&builtins)?);
    }
    for name in SUBLIBRARIES {
        // Not every version has all of them, and one that is missing is missed by cuDNN itself.
        let sibling = path.with_file_name(name);
        if sibling.exists() {
            let _ = namespace.load(&terminated(&sibling)?);
        }
    }
    let handle = namespace.load(&terminated(path)?)?;
    let find = |name: &CStr| {
        // SAFETY: the handle is open, and it is never closed.
        let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if address.is_null() { Err(format!("it has no {}", name.to_string_lossy())) } else { Ok(address) }
    };
    // SAFETY: the types are those of `cudnn_graph.h`, which have not changed since cuDNN 8.0.
    unsafe {
        Ok(Real {
            create: std::mem::transmute::<*mut c_void, Create>(find(c"cudnnBackendCreateDescriptor")?),
            destroy: std::mem::transmute::<*mut c_void, OfDescriptor>(find(c"cudnnBackendDestroyDescriptor")?),
            finalize: std::mem::transmute::<*mut c_void, OfDescriptor>(find(c"cudnnBackendFinalize")?),
            set: std::mem::transmute::<*mut c_void, Set>(find(c"cudnnBackendSetAttribute")?),
            get: std::mem::transmute::<*mut c_void, Get>(find(c"cudnnBackendGetAttribute")?),
            last_error: find(c"cudnnGetLastErrorString")
                .ok()
                .map(|address| std::mem::transmute::<*mut c_void, LastError>(address)),
            version: std::mem::transmute::<*mut c_void, Number>(find(c"cudnnGetVersion")?)(),
            namespace,
        })
    }
}

/// The CUDA runtime that the program uses, 13000 for CUDA 13, by the name of the library that is mapped; 0 where none
/// is. libcudnn has a function for it, which would wake the runtime inside libcudnn.
pub fn runtime_version() -> usize {
    files_in_maps()
        .iter()
        .filter_map(|path| path.file_name()?.to_str()?.strip_prefix("libcudart.so.")?.split('.').next()?.parse().ok())
        .map(|major: usize| major * 1000)
        .next()
        .unwrap_or(0)
}

const DEVICEPROP_DESCRIPTOR: i32 = 38;
const ATTR_DEVICEPROP_JSON: i32 = 2702;

/// A finalized device-properties descriptor for a card.
pub fn describe(real: &Real, props: &props::Props) -> std::result::Result<Descriptor<'static>, String> {
    let json = props::props_json(props);
    let refused = |status| format!("status {status}: {}", real.last_error());
    let descriptor = real.create(DEVICEPROP_DESCRIPTOR).map_err(refused)?;
    let text = Elements::of(TYPE_CHAR, json.as_bytes());
    real.set(descriptor, ATTR_DEVICEPROP_JSON, text).map_err(refused)?;
    real.finalize(descriptor).map_err(refused)?;
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_compilers_library_is_found_beside_the_wheels_of_cudnn() {
        let root = std::env::temp_dir().join(format!("oomph-nvrtc-{}", std::process::id()));
        for folder in ["cudnn/lib", "cu13/lib", "cuda_nvrtc/lib", "cuda_runtime/lib"] {
            fs::create_dir_all(root.join("nvidia").join(folder)).expect("a folder can be made");
        }
        let new = root.join("nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
        let old = root.join("nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.8");
        for file in [&new, &old, &root.join("nvidia/cu13/lib/libnvrtc.so.13")] {
            fs::write(file, "").expect("a file can be made");
        }
        let mut found = compilers_builtins(&root.join("nvidia/cudnn/lib/libcudnn.so.9"));
        found.sort();
        assert_eq!(found, [new, old]);
        fs::remove_dir_all(&root).expect("the folder is there");
        assert_eq!(compilers_builtins(Path::new("libcudnn.so.9")), [] as [PathBuf; 0]);
    }
}

//! What the virtual device itself costs: the calls that programs make most often, through the library's own exports.
//!
//! The library is opened as a program would get it, because linking it would replace the benchmark's own `dlopen`.
#![allow(missing_docs)]

use std::ffi::{CString, c_int, c_void};
use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, criterion_group, criterion_main};
use oomph_ledger::{DeviceDescription, LEDGER_FILE, Ledger, RUN_FOLDER_VARIABLE};

type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Launch = unsafe extern "C" fn(*const c_void, [u32; 3], [u32; 3], *mut *mut c_void, usize, *mut c_void) -> c_int;
type Attributes = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;

const MIB: usize = 1 << 20;

/// The library that this build made: it lies beside the benchmark, one folder up.
fn library() -> PathBuf {
    let mut folder = std::env::current_exe().unwrap_or_default();
    folder.pop();
    let beside = folder.join("liboomph_vgpu.so");
    if beside.exists() { beside } else { folder.join("../liboomph_vgpu.so") }
}

/// A function of the library.
///
/// # Safety
/// `F` must be the type of the function that the library exports by this name.
unsafe fn function<F: Copy>(library: *mut c_void, name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the library is open, and the caller vouches for the type.
    unsafe {
        let address = libc::dlsym(library, name.as_ptr());
        assert!(!address.is_null(), "{name:?} is not exported");
        std::mem::transmute_copy(&address)
    }
}

fn open(run: &Path) -> *mut c_void {
    let card = DeviceDescription {
        name: "bench".into(),
        capacity_bytes: 1 << 40,
        cc_major: 9,
        sm_count: 132,
        ..DeviceDescription::default()
    };
    let ledger = run.join(LEDGER_FILE);
    let _ = std::fs::remove_file(&ledger);
    Ledger::create(&ledger, &[card]).expect("a ledger in the temporary folder");
    // SAFETY: no other thread reads the environment yet.
    unsafe { std::env::set_var(RUN_FOLDER_VARIABLE, run) };
    let path = CString::new(library().into_os_string().into_encoded_bytes()).unwrap_or_default();
    // SAFETY: a terminated path of this workspace's own library.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{path:?} cannot be opened: build it first with `cargo build --release -p oomph-vgpu`");
    library
}

fn device_calls(criterion: &mut Criterion) {
    let run = std::env::temp_dir().join(format!("oomph-bench-{}", std::process::id()));
    std::fs::create_dir_all(&run).expect("a temporary folder");
    let library = open(&run);
    // SAFETY: these are the types of the CUDA functions of these names.
    let (malloc, free, launch, attributes): (Malloc, Free, Launch, Attributes) = unsafe {
        (
            function(library, "cudaMalloc"),
            function(library, "cudaFree"),
            function(library, "cudaLaunchKernel"),
            function(library, "cudaPointerGetAttributes"),
        )
    };
    let allocate = |size: usize| {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: CUDA's contract.
        assert_eq!(unsafe { malloc(&raw mut pointer, size) }, 0);
        pointer
    };
    let live: Vec<_> = (0..10_000).map(|_| allocate(2 * MIB)).collect();
    for size in [MIB / 2, 2 * MIB, 20 * MIB, 1024 * MIB] {
        criterion.bench_function(&format!("cudaMalloc+cudaFree {} KiB, 10,000 live", size >> 10), |bencher| {
            bencher.iter(|| {
                let pointer = allocate(black_box(size));
                // SAFETY: the pointer was just handed out.
                unsafe { free(pointer) }
            });
        });
    }
    criterion.bench_function("cudaLaunchKernel", |bencher| {
        let one = [1; 3];
        // SAFETY: a launch reads none of its arguments here.
        bencher.iter(|| unsafe {
            launch(black_box(std::ptr::null()), one, one, std::ptr::null_mut(), 0, std::ptr::null_mut())
        });
    });
    criterion.bench_function("cudaPointerGetAttributes, 10,000 live", |bencher| {
        let mut room = [0_u64; 8];
        // SAFETY: the room is larger than the structure.
        bencher.iter(|| unsafe { attributes(room.as_mut_ptr().cast(), black_box(live[5_000])) });
    });
    let _ = std::fs::remove_dir_all(&run);
}

criterion_group!(benches, device_calls);
criterion_main!(benches);

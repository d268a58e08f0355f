//! What the virtual device itself costs: the calls that programs make most often, through the library's own exports.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::ffi::{c_int, c_void};
use std::hint::black_box;

use common::{function, open};
use criterion::{Criterion, criterion_group, criterion_main};

type Malloc = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Launch = unsafe extern "C" fn(*const c_void, [u32; 3], [u32; 3], *mut *mut c_void, usize, *mut c_void) -> c_int;
type Attributes = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;

const MIB: usize = 1 << 20;

fn device_calls(criterion: &mut Criterion) {
    let run = std::env::temp_dir().join(format!("oomph-bench-{}", std::process::id()));
    std::fs::create_dir_all(&run).expect("a temporary folder");
    let library = open(&run, 1 << 40);
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
        // SAFETY: there is more space than the structure needs.
        bencher.iter(|| unsafe { attributes(room.as_mut_ptr().cast(), black_box(live[5_000])) });
    });
    let _ = std::fs::remove_dir_all(&run);
}

criterion_group!(benches, device_calls);
criterion_main!(benches);

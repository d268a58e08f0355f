//! What a real card was asked, asked of the virtual one: an H100 SXM with driver 580.159.04, read on 2026-11-26.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use oomph_ledger::DeviceDescription;

const MIB: usize = 1 << 20;
const STACK: c_int = 0;

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Count = unsafe extern "C" fn(*mut c_int) -> c_int;
type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type SetCurrent = unsafe extern "C" fn(*mut c_void) -> c_int;
type Pop = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;
type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
type Allocate = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type AllocateAsync = unsafe extern "C" fn(*mut u64, usize, *mut c_void) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type FreeAsync = unsafe extern "C" fn(u64, *mut c_void) -> c_int;
type SynchronizeStream = unsafe extern "C" fn(*mut c_void) -> c_int;
type CreateStream = unsafe extern "C" fn(*mut *mut c_void, c_uint, c_int) -> c_int;
type SetLimit = unsafe extern "C" fn(c_int, usize) -> c_int;
type Limit = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type Load = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int;
type Range = unsafe extern "C" fn(*mut u64, *mut usize, u64) -> c_int;
type Begin = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;
type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
type Fill = unsafe extern "C" fn(u64, u8, usize) -> c_int;
type Copy = unsafe extern "C" fn(*mut c_void, u64, usize) -> c_int;
type Procedure = unsafe extern "C" fn(*const c_void, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;
type Create = unsafe extern "C" fn(*mut c_void) -> c_int;
type Workspace = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> c_int;
type Text = unsafe extern "C" fn(c_int, *mut *const c_void) -> c_int;

/// A function of the library's, by its CUDA name.
macro_rules! of {
    ($library:ident, $name:literal, $kind:ty) => {{
        // SAFETY: this is the type of the CUDA function of this name.
        let function: $kind = unsafe { common::function($library, $name) };
        function
    }};
}

/// One test, because a process opens the library once, and because what is asked before `cuInit` comes first.
#[test]
fn the_card_answers_as_a_real_one() {
    let run = tempfile::tempdir().expect("a temporary folder");
    let card = DeviceDescription {
        name: "NVIDIA H100 80GB HBM3".into(),
        capacity_bytes: 85_017_493_504,
        context_bytes: 552_402_944,
        cc_major: 9,
        sm_count: 132,
        max_threads_per_sm: 2048,
        ..DeviceDescription::default()
    };
    let library = common::open_card(run.path(), &card);
    refused_without_a_context(library);
    wrong_calls(library);
    handles(library);
    memory(library);
}

/// What libraries hold for a handle. The card had 2 MiB more with cuBLAS's first one.
fn handles(library: *mut c_void) {
    let info = of!(library, "cuMemGetInfo_v2", Info);
    let left = || {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the out-parameters live, here and below.
        assert_eq!(unsafe { info(&raw mut free, &raw mut total) }, 0);
        free
    };
    let taken = |create: Create, destroy: Option<Create>| {
        let (before, mut handle) = (left(), ptr::null_mut::<c_void>());
        assert_eq!(unsafe { create((&raw mut handle).cast()) }, 0);
        let taken = (before - left()) / MIB;
        if let Some(destroy) = destroy {
            assert_eq!(unsafe { destroy(handle) }, 0);
            assert_eq!(left(), before, "a handle that ends gives back what it took");
        }
        taken
    };
    let cublas = of!(library, "cublasCreate_v2", Create);
    assert_eq!(taken(cublas, Some(of!(library, "cublasDestroy_v2", Create))), 64);
    let cudnn = of!(library, "cudnnCreate", Create);
    assert_eq!(taken(cudnn, Some(of!(library, "cudnnDestroy", Create))), 8);
    assert_eq!(taken(of!(library, "cusolverDnCreate", Create), None), 96);

    // PyTorch brings a workspace of its own, and the handle's stays.
    let bring = of!(library, "cublasSetWorkspace_v2", Workspace);
    let (before, mut handle) = (left(), ptr::null_mut::<c_void>());
    unsafe {
        assert_eq!(cublas((&raw mut handle).cast()), 0);
        assert_eq!(bring(handle, ptr::without_provenance_mut(512), 32 * MIB), 0);
    }
    assert_eq!(before - left(), 64 * MIB);
}

/// Leaves the primary context current.
fn refused_without_a_context(library: *mut c_void) {
    let (init, count) = (of!(library, "cuInit", Init), of!(library, "cuDeviceGetCount", Count));
    let (info, synchronize) = (of!(library, "cuMemGetInfo_v2", Info), of!(library, "cuCtxSynchronize", Synchronize));
    let (retain, pop) = (of!(library, "cuDevicePrimaryCtxRetain", Retain), of!(library, "cuCtxPopCurrent_v2", Pop));
    let (set, allocate) = (of!(library, "cuCtxSetCurrent", SetCurrent), of!(library, "cuMemAlloc_v2", Allocate));
    let (mut cards, mut free, mut total, mut context, mut block) = (0, 0, 0, ptr::null_mut(), 0);
    // SAFETY: the out-parameters live, here and below.
    unsafe {
        assert_eq!(count(&raw mut cards), 3);
        assert_eq!((init(0), count(&raw mut cards), cards), (0, 0, 1));
        assert_eq!(info(&raw mut free, &raw mut total), 201);
        assert_eq!((retain(&raw mut context, 0), set(context)), (0, 0));
        assert_eq!((info(&raw mut free, &raw mut total), free), (0, 84_465_090_560));
        assert_eq!(pop(&raw mut context), 0);
        assert_eq!((synchronize(), allocate(&raw mut block, 16)), (201, 201));
        let mut none = ptr::null_mut();
        assert_eq!((pop(&raw mut none), synchronize()), (0, 201), "it stays without one");
        assert_eq!(set(context), 0);
    }
}

fn wrong_calls(library: *mut c_void) {
    let mut host = [0_u8; 4096];
    let address = host.as_mut_ptr();
    let (mut number, mut place, mut size, mut made) = (0, 0, 0, ptr::null_mut());
    let attribute = of!(library, "cuDeviceGetAttribute", Attribute);
    let (load, load_file) = (of!(library, "cuModuleLoadData", Load), of!(library, "cuModuleLoad", Load));
    let (unregister, begin) =
        (of!(library, "cuMemHostUnregister", SetCurrent), of!(library, "cuStreamBeginCapture_v2", Begin));
    let (fill, copy) = (of!(library, "cuMemsetD8_v2", Fill), of!(library, "cuMemcpyDtoH_v2", Copy));
    let procedure = of!(library, "cuGetProcAddress_v2", Procedure);
    let end = of!(library, "cuStreamEndCapture", End);
    let name = of!(library, "cuGetErrorName", Text);
    let (allocate, range) = (of!(library, "cuMemAlloc_v2", Allocate), of!(library, "cuMemGetAddressRange_v2", Range));
    // SAFETY: as above; texts end with a zero byte.
    unsafe {
        assert_eq!(allocate(ptr::null_mut(), 16), 1);
        assert_eq!(range(&raw mut place, &raw mut size, 0x123_4567), 500);
        assert_eq!((attribute(&raw mut number, 9999, 0), attribute(ptr::null_mut(), 1, 0)), (1, 1));
        assert_eq!(end(ptr::null_mut(), &raw mut made), 401);
        assert_eq!(begin(ptr::null_mut(), 0), 900);
        assert_eq!(load(&raw mut made, ptr::null()), 1);
        assert_eq!(load(&raw mut made, c"not a module".as_ptr().cast()), 200);
        assert_eq!(load(&raw mut made, c"// by hand\n.version 7.0\n.target sm_80\n".as_ptr().cast()), 0);
        assert_eq!(load_file(&raw mut made, c"/nowhere".as_ptr().cast()), 301);
        assert_eq!(unregister(address.cast()), 713);
        assert_eq!(fill(0, 0, 16), 1);
        assert_eq!((copy(address.cast(), 0, 16), copy(address.cast(), 0, 0)), (1, 0));
        assert_eq!(procedure(c"cuNothing".as_ptr().cast(), &raw mut made, 12_000, 0, &raw mut number), 0);
        assert_eq!((made, number), (ptr::null_mut(), 1));
        let mut text = ptr::without_provenance(1);
        assert_eq!((name(12_345, &raw mut text), text), (1, ptr::null()));
    }
}

fn memory(library: *mut c_void) {
    let (info, allocate) = (of!(library, "cuMemGetInfo_v2", Info), of!(library, "cuMemAlloc_v2", Allocate));
    let (free, free_async) = (of!(library, "cuMemFree_v2", Free), of!(library, "cuMemFreeAsync", FreeAsync));
    let allocate_async = of!(library, "cuMemAllocAsync", AllocateAsync);
    let (create, synchronize) = (
        of!(library, "cuStreamCreateWithPriority", CreateStream),
        of!(library, "cuStreamSynchronize", SynchronizeStream),
    );
    let (limit, set_limit) = (of!(library, "cuCtxGetLimit", Limit), of!(library, "cuCtxSetLimit", SetLimit));
    let left = || {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the out-parameters live, here and below, and what is freed was handed out.
        assert_eq!(unsafe { info(&raw mut free, &raw mut total) }, 0);
        free
    };
    let start = left();
    let pages = |size: usize| {
        let mut blocks = [0; 40];
        let taken = blocks.each_mut().map(|block| {
            assert_eq!(unsafe { allocate(block, size) }, 0);
            start - left()
        });
        let least = blocks.map(|block| 1_usize << block.trailing_zeros()).into_iter().min();
        assert!(blocks.iter().all(|block| unsafe { free(*block) } == 0));
        assert_eq!(left(), start);
        (taken[0], taken[1], taken[39], least)
    };
    assert_eq!(pages(65_536), (2 * MIB, 2 * MIB, 4 * MIB, Some(65_536)));
    assert_eq!(pages(MIB), (2 * MIB, 2 * MIB, 40 * MIB, Some(MIB)));
    assert_eq!(pages(MIB + 1).2, 80 * MIB);

    let null = ptr::null_mut();
    let pool = |sizes: &[usize], between: &dyn Fn()| {
        let mut blocks = vec![0; sizes.len()];
        let taken: Vec<usize> = blocks
            .iter_mut()
            .zip(sizes)
            .map(|(block, size)| {
                between();
                let before = left();
                assert_eq!(unsafe { allocate_async(block, *size, null) }, 0);
                before - left()
            })
            .collect();
        assert!(blocks.iter().all(|block| unsafe { free_async(*block, null) } == 0));
        assert_eq!(unsafe { synchronize(null) }, 0);
        taken
    };
    let sizes = [1, MIB, 10 * MIB, 40 * MIB, 100 * MIB, 33 * MIB];
    let grown = [32, 0, 0, 32, 96, 32].map(|size| size * MIB);
    assert_eq!(pool(&sizes, &|| {}), grown);
    assert_eq!(left(), start, "a synchronized pool that is free gave everything back");
    // Other blocks lie behind the pool's.
    let behind = || {
        let mut block = 0;
        assert_eq!(unsafe { allocate(&raw mut block, 4 * MIB) }, 0);
    };
    assert_eq!(pool(&sizes, &behind), grown);

    let start = left();
    let taken: Vec<usize> = (0..12)
        .map(|_| {
            let mut stream = ptr::null_mut();
            assert_eq!(unsafe { create(&raw mut stream, 1, -1) }, 0);
            (start - left()) / MIB
        })
        .collect();
    assert_eq!(taken, [0, 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6]);

    let (start, mut stack) = (left(), 0);
    unsafe {
        assert_eq!((set_limit(STACK, 65_536), start - left()), (0, 17_439_916_032));
        // With the limit lowered again, 78 blocks of 1 GiB fitted on the card, which they cannot next to such stacks.
        assert_eq!((set_limit(STACK, 1024), start - left()), (0, 0));
        assert_eq!((limit(&raw mut stack, STACK), stack), (0, 1024));
        assert_eq!(set_limit(STACK, 1 << 20), 2, "the card cannot hold so large stacks");
        assert_eq!((limit(&raw mut stack, STACK), stack), (0, 1024));
        assert_eq!((set_limit(2, 512 * MIB), start - left()), (0, 0));
        assert_eq!((set_limit(3, 4), limit(&raw mut stack, 3), limit(&raw mut stack, 99)), (215, 215, 1));
    }
}

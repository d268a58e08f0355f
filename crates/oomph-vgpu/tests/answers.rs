//! Answers that programs rely on without looking: refusals that say why in the report, and out-parameters that are
//! always written.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use oomph_ledger::{LEDGER_FILE, Ledger};

const NOT_FOUND: c_int = 500;

type ExportTable = unsafe extern "C" fn(*mut *const c_void, *const [u8; 16]) -> c_int;
/// The 64 bytes of a handle, which CUDA takes by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Shared([u64; 8]);
type IpcHandle = unsafe extern "C" fn(*mut Shared, *mut c_void) -> c_int;
type IpcOpen = unsafe extern "C" fn(*mut *mut c_void, Shared, u32) -> c_int;
type IpcClose = unsafe extern "C" fn(*mut c_void) -> c_int;
type Rectangle = unsafe extern "C" fn(&[u64; 16]) -> c_int;
type Allocate = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type Edges = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut usize) -> c_int;
type Dependencies = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut usize) -> c_int;
type Update = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut [u64; 3]) -> c_int;

type Load = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int;
type Symbol = unsafe extern "C" fn(*mut *mut c_void, *mut usize, *mut c_void, *const c_char) -> c_int;

/// One test, because a process opens the library once.
#[test]
fn refusals_are_named_and_answers_are_whole() {
    let run = tempfile::tempdir().expect("a temporary folder");
    let library = common::open(run.path(), 1 << 30);
    let ledger = || Ledger::read(&run.path().join(LEDGER_FILE)).expect("the ledger is readable");
    let warnings = || ledger().warnings().join("\n");
    // SAFETY: CUDA's types and contracts, here and below.
    unsafe {
        // What a runtime that is linked in statically asks first.
        let export_table: ExportTable = common::function(library, "cuGetExportTable");
        let mut table = ptr::without_provenance(1);
        assert_eq!(export_table(&raw mut table, &[7; 16]), NOT_FOUND);
        assert!(table.is_null());
        assert_eq!(ledger().static_runtimes().len(), 1);

        // A rectangle of 3 rows of 8 bytes, out of host rows of 16 and into rows without gaps, and its first row back.
        let copy: Rectangle = common::function(library, "cuMemcpy2D_v2");
        let card_allocate: Allocate = common::function(library, "cudaMalloc");
        let mut card = ptr::null_mut();
        assert_eq!(card_allocate(&raw mut card, 4096), 0);
        let rows: Vec<u8> = (0..48).collect();
        let mut back = [0_u8; 24];
        let (host, device) = (1, 2);
        let (rows_at, back_at, card_at) = (rows.as_ptr() as u64, back.as_mut_ptr() as u64, card as u64);
        let sent = [4, 0, host, rows_at, 0, 0, 16, 0, 0, device, 0, card_at, 0, 8, 8, 3];
        let read = [0, 0, device, 0, card_at, 0, 0, 0, 0, host, back_at, 0, 0, 0, 24, 1];
        assert_eq!((copy(&sent), copy(&read)), (0, 0));
        assert_eq!(back[..16], [4, 5, 6, 7, 8, 9, 10, 11, 20, 21, 22, 23, 24, 25, 26, 27]);

        // What PyTorch asks when a tensor goes to another process.
        let allocate: Allocate = common::function(library, "cudaMalloc");
        let handle: IpcHandle = common::function(library, "cudaIpcGetMemHandle");
        let mut pointer = ptr::null_mut();
        assert_eq!(allocate(&raw mut pointer, 4096), 0);
        let (open, close): (IpcOpen, IpcClose) =
            (common::function(library, "cudaIpcOpenMemHandle"), common::function(library, "cudaIpcCloseMemHandle"));
        let mut shared = Shared([0; 8]);
        assert_eq!(handle(&mut shared, pointer), 0);
        assert!(warnings().contains("CUDA IPC"), "{}", warnings());
        let mut opened = ptr::null_mut();
        assert_eq!(open(&raw mut opened, shared, 1), 201, "a process does not open its own");
        // As it comes from another process: addresses of its own, of the same size, that nobody is charged for.
        shared.0[1] += 1;
        assert_eq!(open(&raw mut opened, shared, 1), 0);
        assert!(!opened.is_null() && opened != pointer);
        assert_eq!((close(opened), close(opened), close(pointer)), (0, 1, 1));

        // What XLA loads for the constants of a program: an image without a kernel, whose header lists no section's name.
        let load: Load = common::function(library, "cuModuleLoadData");
        let symbol: Symbol = common::function(library, "cuModuleGetGlobal_v2");
        let mut image = [0_u8; 128];
        image[..4].copy_from_slice(b"\x7fELF");
        (image[0x28], image[0x3c]) = (64, 1);
        let mut module = ptr::null_mut();
        assert_eq!(load(&raw mut module, image.as_ptr().cast()), 0);
        let (mut at, mut bytes) = (ptr::without_provenance_mut(1), 1);
        assert_eq!(symbol(&raw mut at, &raw mut bytes, module, c"missing".as_ptr()), NOT_FOUND);
        assert!(at.is_null() && bytes == 0);

        // CUDA 13's shapes: without a runtime in the process, the newest is assumed.
        let edges: Edges = common::function(library, "cudaGraphGetEdges");
        let dependencies: Dependencies = common::function(library, "cudaGraphNodeGetDependencies");
        let dependents: Dependencies = common::function(library, "cudaGraphNodeGetDependentNodes");
        let update: Update = common::function(library, "cudaGraphExecUpdate");
        let none = ptr::null_mut();
        for which in 0..3 {
            let mut count = usize::MAX;
            let status = match which {
                0 => edges(none, none, none, none, &raw mut count),
                1 => dependencies(none, none, none, &raw mut count),
                _ => dependents(none, none, none, &raw mut count),
            };
            assert_eq!((status, count), (0, 0));
        }
        let mut result = [u64::MAX; 3];
        assert_eq!(update(none, none, &raw mut result), 0);
        assert_eq!(result, [0; 3]);
    }
}

//! The books of device memory, through the library's own exports: whatever a program allocates and frees, in whatever
//! order and from how many threads, blocks never overlap and the sums are right.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use oomph_ledger::{Kind, LEDGER_FILE, Ledger};
use proptest::prelude::*;

const MIB: usize = 1 << 20;
/// The driver's granularity, in bytes.
const GRANULE: usize = 2 * MIB;
/// The card's capacity, in bytes: little, so that it runs full.
const CAPACITY: usize = 1 << 30;
const OUT_OF_MEMORY: c_int = 2;

type Allocate = unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int;
type AllocateAsync = unsafe extern "C" fn(*mut *mut c_void, usize, *mut c_void) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type FreeAsync = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Info = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
type Synchronize = unsafe extern "C" fn() -> c_int;
type Create = unsafe extern "C" fn(*mut u64, usize, *const Property, u64) -> c_int;
type Release = unsafe extern "C" fn(u64) -> c_int;
type DefaultPool = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type PoolAttribute = unsafe extern "C" fn(*mut c_void, c_int, *mut u64) -> c_int;
type AddNode = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_void, usize, *mut NodeParameters) -> c_int;
type AddAnyNode = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_void,
    *const c_void,
    *const c_void,
    usize,
    *mut ConditionalParameters,
) -> c_int;
type Instantiate = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, u64) -> c_int;

/// The filled part of `CUmemAllocationProp`: pinned memory on card 0.
#[repr(C)]
struct Property {
    kind: c_int,
    handle_kinds: c_int,
    location_kind: c_int,
    location: c_int,
    rest: [u64; 2],
}

const ON_CARD: Property = Property { kind: 1, handle_kinds: 0, location_kind: 1, location: 0, rest: [0; 2] };

/// `cudaMemAllocNodeParams`.
#[repr(C)]
struct NodeParameters {
    pool: Property,
    more_pool: [u64; 7],
    access: [u64; 2],
    size: usize,
    pointer: *mut c_void,
}

/// `cudaGraphNodeParams` of a conditional node.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConditionalParameters {
    kind: c_int,
    reserved: [c_int; 3],
    handle: u64,
    condition: u32,
    size: u32,
    graphs: *mut *mut c_void,
    rest: [u64; 27],
}

/// The device, as a CUDA program sees it.
struct Cuda {
    run: tempfile::TempDir,
    malloc: Allocate,
    free: Free,
    malloc_async: AllocateAsync,
    free_async: FreeAsync,
    info: Info,
    synchronize: Synchronize,
    create: Create,
    release: Release,
    default_pool: DefaultPool,
    pool_attribute: PoolAttribute,
    library: usize,
}

fn cuda() -> &'static Cuda {
    static CUDA: OnceLock<Cuda> = OnceLock::new();
    CUDA.get_or_init(|| {
        let run = tempfile::tempdir().expect("a temporary folder");
        let library = common::open(run.path(), CAPACITY as u64);
        // SAFETY: these are the types of the CUDA functions of these names.
        unsafe {
            Cuda {
                run,
                malloc: common::function(library, "cudaMalloc"),
                free: common::function(library, "cudaFree"),
                malloc_async: common::function(library, "cudaMallocAsync"),
                free_async: common::function(library, "cudaFreeAsync"),
                info: common::function(library, "cudaMemGetInfo"),
                synchronize: common::function(library, "cudaDeviceSynchronize"),
                create: common::function(library, "cuMemCreate"),
                release: common::function(library, "cuMemRelease"),
                default_pool: common::function(library, "cudaDeviceGetDefaultMemPool"),
                pool_attribute: common::function(library, "cudaMemPoolGetAttribute"),
                library: library as usize,
            }
        }
    })
}

/// What a program holds.
#[derive(Debug)]
enum Held {
    Plain { start: usize, size: usize },
    Pooled { start: usize, size: usize },
    Physical { handle: u64, size: usize },
}

impl Cuda {
    fn malloc(&self, size: usize) -> Result<usize, c_int> {
        let mut pointer = ptr::null_mut();
        // SAFETY: CUDA's contract, as for every call below.
        let status = unsafe { (self.malloc)(&raw mut pointer, size) };
        if status == 0 { Ok(pointer as usize) } else { Err(status) }
    }

    fn take(&self, what: u8, size: usize) -> Result<Held, c_int> {
        let mut pointer = ptr::null_mut();
        match what {
            0 => self.malloc(size).map(|start| Held::Plain { start, size }),
            1 => match unsafe { (self.malloc_async)(&raw mut pointer, size, ptr::null_mut()) } {
                0 => Ok(Held::Pooled { start: pointer as usize, size }),
                status => Err(status),
            },
            _ => {
                let (mut handle, size) = (0, size.next_multiple_of(GRANULE));
                match unsafe { (self.create)(&raw mut handle, size, &ON_CARD, 0) } {
                    0 => Ok(Held::Physical { handle, size }),
                    status => Err(status),
                }
            }
        }
    }

    fn give(&self, held: &Held) -> c_int {
        unsafe {
            match held {
                Held::Plain { start, .. } => (self.free)(*start as *mut c_void),
                Held::Pooled { start, .. } => (self.free_async)(*start as *mut c_void, ptr::null_mut()),
                Held::Physical { handle, .. } => (self.release)(*handle),
            }
        }
    }

    /// Bytes of the card that are in use, as the program sees it.
    fn used(&self) -> usize {
        let (mut free, mut total) = (0, 0);
        assert_eq!(unsafe { (self.info)(&raw mut free, &raw mut total) }, 0);
        assert_eq!(total, CAPACITY);
        total - free
    }

    /// Bytes that the stream-ordered pool holds of the card, and bytes of them in blocks.
    fn pool(&self) -> (usize, usize) {
        const RESERVED: c_int = 5;
        const USED: c_int = 7;
        let (mut pool, mut reserved, mut used) = (ptr::null_mut(), 0, 0);
        unsafe {
            assert_eq!((self.default_pool)(&raw mut pool, 0), 0);
            assert_eq!((self.pool_attribute)(pool, RESERVED, &raw mut reserved), 0);
            assert_eq!((self.pool_attribute)(pool, USED, &raw mut used), 0);
        }
        (reserved as usize, used as usize)
    }

    fn synchronize(&self) {
        assert_eq!(unsafe { (self.synchronize)() }, 0);
    }

    fn ledger(&self) -> Ledger {
        Ledger::read(&self.run.path().join(LEDGER_FILE)).expect("the ledger is readable")
    }
}

/// Checks everything that must hold at any time.
fn check(cuda: &Cuda, held: &[Held]) {
    let mut ranges: Vec<(usize, usize)> = held
        .iter()
        .filter_map(|held| match held {
            Held::Plain { start, size } | Held::Pooled { start, size } => Some((*start, start + size)),
            Held::Physical { .. } => None,
        })
        .collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "blocks overlap: {ranges:x?}");

    // Blocks of more than a megabyte have granules of their own, others share them, and a pool reports what it has.
    let (pool, in_blocks) = cuda.pool();
    let (mut least, mut most, mut pooled) = (pool, pool, 0);
    for held in held {
        match held {
            Held::Plain { size, .. } if *size <= MIB => most += GRANULE,
            Held::Plain { size, .. } | Held::Physical { size, .. } => {
                least += size.next_multiple_of(GRANULE);
                most += size.next_multiple_of(GRANULE);
            }
            Held::Pooled { size, .. } => pooled += size.next_multiple_of(512),
        }
    }
    assert_eq!(pooled, in_blocks);
    let used = cuda.used();
    assert!((least..=most).contains(&used), "{used} bytes are in use, which is not between {least} and {most}");
    assert!(used <= CAPACITY);

    // The ledger says the same as the program sees, and its kinds sum up at the peak.
    let ledger = cuda.ledger();
    assert_eq!(ledger.devices()[0].used_bytes, used as u64);
    if let Some(process) = ledger.processes().first() {
        let books = &process.devices[0];
        assert_eq!(Kind::ALL.iter().map(|kind| books.at_peak(*kind)).sum::<u64>(), books.peak_bytes);
        assert_eq!(books.peak_bytes, ledger.devices()[0].peak_bytes);
    }
}

/// Sizes as programs ask for them: from a few bytes to more than the card has, most of them ordinary.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1..MIB, 4 => MIB..64 * MIB, 1 => 64 * MIB..CAPACITY, 1 => Just(2 * CAPACITY), 2 => Just(GRANULE), 1 => Just(MIB)]
}

#[derive(Clone, Debug)]
enum Step {
    Take(u8, usize),
    Give(prop::sample::Index),
    Synchronize,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3_u8, sizes()).prop_map(|(what, size)| Step::Take(what, size)),
        5 => any::<prop::sample::Index>().prop_map(Step::Give),
        1 => Just(Step::Synchronize),
    ];
    prop::collection::vec(step, 1..200)
}

/// What a program holds, given back in the end, and also when a check fails: the next case begins with an empty card.
struct Everything<'a>(&'a Cuda, Vec<Held>);

impl Drop for Everything<'_> {
    fn drop(&mut self) {
        for held in &self.1 {
            assert_eq!(self.0.give(held), 0);
        }
    }
}

/// Does what the steps say, and gives everything back at the end.
fn play(cuda: &Cuda, steps: &[Step], after_each: impl Fn(&[Held])) {
    let mut everything = Everything(cuda, Vec::new());
    for step in steps {
        let held = &mut everything.1;
        match step {
            Step::Take(what, size) => match cuda.take(*what, *size) {
                Ok(taken) => held.push(taken),
                Err(status) => assert_eq!(status, OUT_OF_MEMORY),
            },
            Step::Give(index) if !held.is_empty() => {
                let given = held.swap_remove(index.index(held.len()));
                assert_eq!(cuda.give(&given), 0);
            }
            Step::Give(_) => {}
            Step::Synchronize => cuda.synchronize(),
        }
        after_each(held);
    }
}

fn config(cases: u32) -> ProptestConfig {
    // A failure is printed; there is no file of failures to keep next to a test of its own harness.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// One test, because the card is one: what others do on it would be counted in.
#[test]
fn the_books_balance() {
    let cuda = cuda();
    assert_eq!(cuda.used(), 0);
    let mut runner = proptest::test_runner::TestRunner::new(config(128));
    runner
        .run(&steps(), |steps| {
            play(cuda, &steps, |held| check(cuda, held));
            cuda.synchronize();
            prop_assert_eq!(cuda.used(), 0, "everything was given back");
            Ok(())
        })
        .unwrap();

    // Several threads at once: nothing is known of the moments between, and everything at the end.
    let mut runner = proptest::test_runner::TestRunner::new(config(16));
    runner
        .run(&prop::collection::vec(steps(), 4), |all| {
            std::thread::scope(|scope| {
                for steps in &all {
                    scope.spawn(|| play(cuda, steps, |_| {}));
                }
            });
            cuda.synchronize();
            prop_assert_eq!(cuda.used(), 0, "everything was given back");
            Ok(())
        })
        .unwrap();
    a_block_is_freed_once(cuda);
    a_graph_keeps_its_memory_until_its_last_executable_goes(cuda);
    a_conditional_node_comes_with_graphs_to_fill(cuda);
    a_request_that_may_go_unmet_is_no_refusal(cuda);
    a_byte_that_tensorflow_reads_is_a_flag(cuda);
}

fn a_block_is_freed_once(cuda: &Cuda) {
    for size in [1000, 3 * MIB] {
        let block = cuda.take(0, size).expect("the card is empty");
        assert_eq!(cuda.give(&block), 0);
        assert_ne!(cuda.give(&block), 0, "what was freed is not there to be freed again");
    }
}

fn a_graph_keeps_its_memory_until_its_last_executable_goes(cuda: &Cuda) {
    let library = cuda.library as *mut c_void;
    // SAFETY: CUDA's types and contracts.
    unsafe {
        let create: unsafe extern "C" fn(*mut *mut c_void, u32) -> c_int = common::function(library, "cudaGraphCreate");
        let add: AddNode = common::function(library, "cudaGraphAddMemAllocNode");
        let instantiate: Instantiate = common::function(library, "cudaGraphInstantiateWithFlags");
        let destroy: Free = common::function(library, "cudaGraphDestroy");
        let destroy_executable: Free = common::function(library, "cudaGraphExecDestroy");
        let (mut graph, mut node, mut executable) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        assert_eq!(create(&raw mut graph, 0), 0);
        let mut parameters = NodeParameters {
            pool: ON_CARD,
            more_pool: [0; 7],
            access: [0; 2],
            size: 3 * MIB,
            pointer: ptr::null_mut(),
        };
        assert_eq!(size_of::<NodeParameters>(), 120);
        assert_eq!(add(&raw mut node, graph, ptr::null(), 0, &raw mut parameters), 0);
        assert!(!parameters.pointer.is_null() && !node.is_null());
        parameters.size = 2 * CAPACITY;
        assert_eq!(add(&raw mut node, graph, ptr::null(), 0, &raw mut parameters), OUT_OF_MEMORY);
        assert_eq!(cuda.used(), 2 * GRANULE);
        assert_eq!(instantiate(&raw mut executable, graph, 0), 0);
        assert_eq!(destroy(graph), 0);
        assert_eq!(cuda.used(), 2 * GRANULE);
        assert_eq!(destroy_executable(executable), 0);
        assert_eq!(cuda.used(), 0);
    }
}

/// XLA and others look up the graphs of the branches right after they add the node.
fn a_conditional_node_comes_with_graphs_to_fill(cuda: &Cuda) {
    const CONDITIONAL: c_int = 13;
    const SWITCH: u32 = 2;
    let library = cuda.library as *mut c_void;
    // SAFETY: CUDA's types and contracts; the parameters have the 256 bytes of `cudaGraphNodeParams`.
    unsafe {
        let create: unsafe extern "C" fn(*mut *mut c_void, u32) -> c_int = common::function(library, "cudaGraphCreate");
        let add: AddAnyNode = common::function(library, "cudaGraphAddNode_v2");
        let destroy: Free = common::function(library, "cudaGraphDestroy");
        let (mut graph, mut node) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(create(&raw mut graph, 0), 0);
        let mut parameters = ConditionalParameters {
            kind: CONDITIONAL,
            reserved: [0; 3],
            handle: 1,
            condition: SWITCH,
            size: 3,
            graphs: ptr::null_mut(),
            rest: [0; 27],
        };
        assert_eq!(size_of::<ConditionalParameters>(), 256);
        assert_eq!(add(&raw mut node, graph, ptr::null(), ptr::null(), 0, &raw mut parameters), 0);
        let graphs = std::slice::from_raw_parts(parameters.graphs, 3);
        assert!(graphs.iter().all(|graph| !graph.is_null()) && graphs[0] != graphs[1] && graphs[1] != graphs[2]);
        // A branch has branches of its own.
        let mut inner = ConditionalParameters { graphs: ptr::null_mut(), size: 1, ..parameters };
        assert_eq!(add(&raw mut node, graphs[2], ptr::null(), ptr::null(), 0, &raw mut inner), 0);
        assert!(!(*inner.graphs).is_null());
        // XLA refuses a captured graph without a node that depends on no other.
        type Nodes = unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut usize) -> c_int;
        let roots: Nodes = common::function(library, "cudaGraphGetRootNodes");
        let mut count = 0;
        assert_eq!(roots(graph, ptr::null_mut(), &raw mut count), 0);
        assert_eq!(count, 1);
        let mut found = [ptr::null_mut(); 2];
        count = found.len();
        assert_eq!(roots(graph, found.as_mut_ptr(), &raw mut count), 0);
        assert!(count == 1 && !found[0].is_null() && found[1].is_null());
        inner.size = 0;
        assert_ne!(add(&raw mut node, graph, ptr::null(), ptr::null(), 0, &raw mut inner), 0, "no branch at all");
        assert_eq!(destroy(graph), 0);
    }
}

/// A pool asks for more than it needs, and takes less where the card has no more.
fn a_request_that_may_go_unmet_is_no_refusal(cuda: &Cuda) {
    let nearly_all = cuda.malloc(CAPACITY - 2 * GRANULE).expect("the card is empty");
    let before = cuda.ledger().refusals();
    let pooled = cuda.take(1, MIB).expect("there is a granule left");
    assert_eq!(cuda.ledger().refusals(), before);
    assert!(cuda.take(1, CAPACITY).is_err());
    assert_eq!(cuda.ledger().refusals(), before + 1);
    assert_eq!((cuda.give(&pooled), cuda.give(&Held::Plain { start: nearly_all, size: 0 })), (0, 0));
    cuda.synchronize();
    assert_eq!(cuda.used(), 0);
}

/// A condition that no kernel computed is what lay there before, and any byte but these two ends the process.
fn a_byte_that_tensorflow_reads_is_a_flag(cuda: &Cuda) {
    let library = cuda.library as *mut c_void;
    // SAFETY: these are the types of the functions of these names.
    let (fill, copy, are_flags) = unsafe {
        let fill: unsafe extern "C" fn(*mut c_void, c_int, usize) -> c_int = common::function(library, "cudaMemset");
        let copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int =
            common::function(library, "cudaMemcpy");
        let are_flags: unsafe extern "C" fn() = common::function(library, "oomph_bytes_are_flags");
        (fill, copy, are_flags)
    };
    let block = cuda.malloc(MIB).expect("the card is empty");
    let place = block as *mut c_void;
    let read = |value: c_int, count: usize| {
        let mut host = [7_u8; 4];
        // SAFETY: the block and the array are large enough.
        unsafe {
            assert_eq!(fill(place, value, 16), 0);
            assert_eq!(copy(host.as_mut_ptr().cast(), place, count, 2), 0);
        }
        host
    };
    assert_eq!(read(128, 1), [128, 7, 7, 7], "it is a byte for everybody else");
    // SAFETY: it takes nothing.
    unsafe { are_flags() };
    assert_eq!((read(128, 1), read(0, 1), read(0, 1)), ([1, 7, 7, 7], [0, 7, 7, 7], [1, 7, 7, 7]));
    assert_eq!(read(128, 2), [128, 128, 7, 7]);
    // SAFETY: the block is large enough.
    assert_eq!(unsafe { copy(place, [0_u8].as_ptr().cast(), 1, 1) }, 0);
    // SAFETY: as above; the array is as well.
    let sent = |mut host: [u8; 1]| unsafe { (copy(host.as_mut_ptr().cast(), place, 1, 2), host) };
    assert_eq!((sent([7]), sent([7])), ((0, [0]), (0, [1])), "what the host wrote is read unchanged, once");
    assert_eq!(cuda.give(&Held::Plain { start: block, size: 0 }), 0);
    cuda.synchronize();
}

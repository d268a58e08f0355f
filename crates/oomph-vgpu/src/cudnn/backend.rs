//! The graph API: questions go to the real library, or to the model where no library answers without a GPU.

use crate::boundary::put;
use crate::lock::{Mutex, MutexGuard, Once, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oomph_ledger::MAX_DEVICES;

use super::object::{BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED, SUCCESS};
use super::real::{self, Real};
use super::{model, props, work};
use crate::device;

pub(super) const TYPE_HANDLE: i32 = 0;
pub(super) const TYPE_INT64: i32 = 3;
pub(super) const TYPE_DESCRIPTOR: i32 = 15;

pub(super) const ENGINE: i32 = 2;
pub(super) const ENGINE_CONFIG: i32 = 3;
pub(super) const HEURISTICS: i32 = 4;
pub(super) const PLAN: i32 = 5;
const VARIANT_PACK: i32 = 16;

pub(super) const ATTR_HEURISTICS_RESULTS: i32 = 202;
pub(super) const ATTR_HEURISTICS_MODE: i32 = 200;
const ATTR_HEURISTICS_DEVICEPROP: i32 = 204;
const ATTR_CONFIG_WORKSPACE: i32 = 303;
pub(super) const ATTR_PLAN_CONFIG: i32 = 401;
pub(super) const ATTR_PLAN_WORKSPACE: i32 = 402;
const ATTR_PLAN_DEVICEPROP: i32 = 407;
const ATTR_ENGINE_DEVICEPROP: i32 = 1307;

/// `CUDNN_HEUR_MODE_FALLBACK`: engines that always work, for when no other does.
pub(super) const MODE_FALLBACK: i32 = 2;
/// Where they stand among those that heuristics propose.
const LAST_RESORT: u8 = 128;

/// Where answers come from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// A libcudnn that needs no GPU.
    Real(&'static Real),
    /// The model: workspaces are estimates.
    Model,
}

/// Decides where answers come from, once: descriptors of the two sources cannot be mixed.
pub(super) fn source() -> Source {
    static SOURCE: Once<Source> = Once::new();
    *SOURCE.get_or_init(|| {
        let Some(real) = real::asked() else {
            let why = match real::users() {
                Some(own) => format!("cuDNN {} cannot be asked without a GPU (9.8 and newer can)", spoken(own.version)),
                None => "no libcudnn was found to be asked".to_owned(),
            };
            crate::gpu::gpu().warn(&format!(
                "{why}, so convolution workspaces are modelled: from 0 up to a copy of the tensors in channels-last order"
            ));
            return Source::Model;
        };
        // A card that the library refuses is found out now, while the model can still take over.
        if let Some(card) = props::current()
            && let Err(why) = real::describe(real, &card)
        {
            crate::gpu::gpu().warn(&format!(
                "cuDNN {} does not know {} ({why}), so convolution workspaces are modelled",
                spoken(real.version),
                card.name
            ));
            return Source::Model;
        }
        if let Some(own) = real::users().filter(|own| own.version != real.version) {
            crate::gpu::gpu().warn(&format!(
                "cuDNN {} cannot be asked without a GPU, so {} was asked for the workspaces of convolutions",
                spoken(own.version),
                spoken(real.version)
            ));
        }
        Source::Real(real)
    })
}

/// A version number as people write it.
fn spoken(version: usize) -> String {
    if version >= 90_000 {
        format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    } else {
        format!("{}.{}.{}", version / 1000, version / 100 % 10, version % 100)
    }
}

/// What is remembered of a descriptor of the real library.
#[derive(Clone, Copy)]
struct Known {
    kind: i32,
    /// For an engine configuration or a plan: its place in the order that the heuristics gave. For heuristics: the place
    /// of their first answer.
    rank: u8,
    /// For an engine configuration or a plan: which answer of heuristics it is from; 0 is none.
    answer: u32,
    /// For a plan: how many executions still pretend to take time.
    trials: u8,
    /// For a plan that is not made in earnest: its workspace.
    workspace: Option<i64>,
}

/// What is remembered of all of them.
struct Memory {
    descriptors: BTreeMap<usize, Known>,
    /// How many answers heuristics gave.
    answers: u32,
    /// The answers of which a plan was made.
    made: BTreeSet<u32>,
}

static MEMORY: Mutex<Memory> =
    Mutex::new(Rank::BackendDescriptors, Memory { descriptors: BTreeMap::new(), answers: 0, made: BTreeSet::new() });

fn memory() -> MutexGuard<'static, Memory> {
    // The memory is valid after every statement that changes it.
    MEMORY.lock()
}

fn known(descriptor: *mut c_void) -> Option<Known> {
    memory().descriptors.get(&(descriptor as usize)).copied()
}

/// Stands for every variant pack: it names data, and data does not matter here.
static VARIANT_PACKS: u64 = 0;

fn is_variant_pack(descriptor: *mut c_void) -> bool {
    ptr::eq(descriptor.cast(), &raw const VARIANT_PACKS)
}

/// Makes a descriptor.
pub unsafe fn cudnnBackendCreateDescriptor(kind: i32, out: *mut *mut c_void) -> u32 {
    if out.is_null() {
        return BAD_PARAM;
    }
    if kind == VARIANT_PACK {
        // SAFETY: `out` is not null, and cuDNN's contract lets it be written. Nothing is ever written behind it.
        unsafe { put(out, (&raw const VARIANT_PACKS).cast_mut().cast()) };
        return SUCCESS;
    }
    match source() {
        Source::Real(real) => {
            // SAFETY: the arguments are the program's, for the function that it meant to call.
            let status = unsafe { real.create(kind, out) };
            if status == SUCCESS && matches!(kind, ENGINE | ENGINE_CONFIG | HEURISTICS | PLAN) {
                // SAFETY: the call succeeded, so it wrote the address.
                let address = unsafe { out.read_unaligned() } as usize;
                let new = Known { kind, rank: 0, answer: 0, trials: 0, workspace: None };
                memory().descriptors.insert(address, new);
            }
            status
        }
        // SAFETY: the program's out-parameter.
        Source::Model => unsafe { model::create(kind, out) },
    }
}

/// Ends a descriptor.
pub unsafe fn cudnnBackendDestroyDescriptor(descriptor: *mut c_void) -> u32 {
    if is_variant_pack(descriptor) {
        return SUCCESS;
    }
    match source() {
        Source::Real(real) => {
            memory().descriptors.remove(&(descriptor as usize));
            work::forget(descriptor);
            // SAFETY: the program's descriptor, which the same library made.
            unsafe { real.destroy(descriptor) }
        }
        // SAFETY: the program's descriptor, which the model made.
        Source::Model => unsafe { model::destroy(descriptor) },
    }
}

/// Initializes a descriptor in the program's own memory: deprecated, and never used by frameworks.
pub unsafe fn cudnnBackendInitialize(_descriptor: *mut c_void) -> u32 {
    NOT_SUPPORTED
}

/// Sets an attribute.
pub unsafe fn cudnnBackendSetAttribute(
    descriptor: *mut c_void,
    name: i32,
    kind: i32,
    count: i64,
    elements: *const c_void,
) -> u32 {
    // A handle belongs to a GPU, which the library must not look for.
    if kind == TYPE_HANDLE || is_variant_pack(descriptor) {
        return SUCCESS;
    }
    match source() {
        Source::Real(real) => {
            // SAFETY: the program's arguments.
            unsafe { work::set(descriptor, name, kind, count, elements) };
            if count == 1 && !elements.is_null() {
                match name {
                    ATTR_PLAN_CONFIG => {
                        // SAFETY: the program passes one descriptor.
                        choose(real, descriptor, unsafe { elements.cast::<*mut c_void>().read_unaligned() })
                    }
                    // SAFETY: the program passes one number.
                    ATTR_HEURISTICS_MODE if unsafe { elements.cast::<i32>().read_unaligned() } == MODE_FALLBACK => {
                        if let Some(heuristics) = memory().descriptors.get_mut(&(descriptor as usize)) {
                            heuristics.rank = LAST_RESORT;
                        }
                    }
                    _ => {}
                }
            }
            // SAFETY: the arguments are the program's, for the function that it meant to call.
            unsafe { real.set(descriptor, name, kind, count, elements) }
        }
        // SAFETY: the program's arguments.
        Source::Model => unsafe { model::set(descriptor, name, kind, count, elements) },
    }
}

/// Reads an attribute.
pub unsafe fn cudnnBackendGetAttribute(
    descriptor: *mut c_void,
    name: i32,
    kind: i32,
    requested: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> u32 {
    if kind == TYPE_HANDLE || is_variant_pack(descriptor) {
        // SAFETY: cuDNN's contract: the count is null or may be written.
        unsafe { put(count, 0) };
        return SUCCESS;
    }
    match source() {
        Source::Real(real) => {
            if let Some(workspace) = known(descriptor).and_then(|known| known.workspace) {
                if name == ATTR_PLAN_WORKSPACE && kind == TYPE_INT64 {
                    // SAFETY: cuDNN's contract: room for the elements, and a count that is null or may be written.
                    unsafe {
                        if requested > 0 {
                            put(elements.cast(), workspace);
                        }
                        put(count, 1);
                    }
                    return SUCCESS;
                }
                // SAFETY: the program's descriptor, which has all that it needs.
                let status = unsafe { make(real, descriptor) };
                if status != SUCCESS {
                    return status;
                }
            }
            let mut written = 0;
            // SAFETY: the arguments are the program's, but for the count, which is passed on below.
            let status = unsafe { real.get(descriptor, name, kind, requested, &raw mut written, elements) };
            // SAFETY: cuDNN's contract: the count is null or may be written.
            unsafe { put(count, written) };
            if status == SUCCESS && name == ATTR_HEURISTICS_RESULTS && kind == TYPE_DESCRIPTOR && !elements.is_null() {
                // SAFETY: the library filled that many descriptors of the program's array.
                unsafe { number(descriptor, elements.cast(), written.min(requested)) };
            }
            status
        }
        // SAFETY: the program's arguments.
        Source::Model => unsafe { model::get(descriptor, name, kind, requested, count, elements) },
    }
}

/// Finalizes a descriptor. Those that would look for a GPU are given the virtual one first.
pub unsafe fn cudnnBackendFinalize(descriptor: *mut c_void) -> u32 {
    if is_variant_pack(descriptor) {
        return SUCCESS;
    }
    match source() {
        Source::Real(real) => {
            // SAFETY: the program's descriptor, which the same library made.
            unsafe {
                if known(descriptor).is_some_and(|known| known.workspace.is_some()) {
                    SUCCESS
                } else {
                    make(real, descriptor)
                }
            }
        }
        // SAFETY: the program's descriptor, which the model made.
        Source::Model => unsafe { model::finalize(descriptor) },
    }
}

/// Finalizes a descriptor of the real library.
///
/// # Safety
/// The descriptor is one of that library's.
unsafe fn make(real: &Real, descriptor: *mut c_void) -> u32 {
    let known = known(descriptor);
    let attribute = match known.map(|known| known.kind) {
        Some(ENGINE) => ATTR_ENGINE_DEVICEPROP,
        Some(HEURISTICS) => ATTR_HEURISTICS_DEVICEPROP,
        Some(PLAN) => ATTR_PLAN_DEVICEPROP,
        // SAFETY: the caller's promise.
        _ => return unsafe { real.finalize(descriptor) },
    };
    let Some(card) = current_card(real) else { return NOT_INITIALIZED };
    // SAFETY: the caller's promise; the card's descriptor is finalized and never destroyed.
    let status = unsafe {
        // A refusal here shows in the finalization, with the library's own status.
        real.set(descriptor, attribute, TYPE_DESCRIPTOR, 1, (&raw const card).cast());
        real.finalize(descriptor)
    };
    if status == SUCCESS
        && let Some(Known { kind: PLAN, answer, .. }) = known
    {
        let mut memory = memory();
        memory.made.insert(answer);
        if let Some(plan) = memory.descriptors.get_mut(&(descriptor as usize)) {
            plan.workspace = None;
        }
    }
    status
}

/// Numbers the engine configurations that heuristics gave.
///
/// # Safety
/// There are `count` descriptors.
unsafe fn number(heuristics: *mut c_void, configs: *const usize, count: i64) {
    let mut memory = memory();
    memory.answers = memory.answers.wrapping_add(1);
    let answer = memory.answers;
    let first = memory.descriptors.get(&(heuristics as usize)).map_or(0, |heuristics| heuristics.rank);
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's promise.
        let config = unsafe { configs.add(index).read_unaligned() };
        work::found(heuristics, config);
        if let Some(config) = memory.descriptors.get_mut(&config) {
            config.rank = first.saturating_add(u8::try_from(index).unwrap_or(u8::MAX));
            config.answer = answer;
        }
    }
}

/// Notes which engine configuration a plan is made of. A program that makes a second plan of the same answer is about
/// to measure them all, and many would be compiled, for minutes. Nothing is ever executed, so such a plan is not made in
/// earnest: its workspace is the configuration's, which is always the same number.
fn choose(real: &Real, plan: *mut c_void, config: *mut c_void) {
    let Some(Known { rank, answer, .. }) = known(config) else { return };
    let mut workspace = [-1_i64];
    let mut count = 0;
    if answer != 0 && memory().made.contains(&answer) {
        // SAFETY: the program's configuration, and room for one number.
        unsafe {
            real.get(config, ATTR_CONFIG_WORKSPACE, TYPE_INT64, 1, &raw mut count, workspace.as_mut_ptr().cast());
        }
    }
    let [workspace] = workspace;
    if let Some(plan) = memory().descriptors.get_mut(&(plan as usize)) {
        (plan.rank, plan.answer, plan.trials) = (rank, answer, TRIALS);
        plan.workspace = (count == 1 && workspace >= 0).then_some(workspace);
    }
}

/// The device-properties descriptor of the current card, made when it is first asked for.
fn current_card(real: &Real) -> Option<*mut c_void> {
    static CARDS: [AtomicUsize; MAX_DEVICES] = [const { AtomicUsize::new(0) }; MAX_DEVICES];
    let place = CARDS.get(device::current()?.card)?;
    let made = place.load(Ordering::Acquire);
    if made != 0 {
        return Some(made as *mut c_void);
    }
    let new = match real::describe(real, &props::current()?) {
        Ok(new) => new,
        Err(why) => {
            crate::gpu::gpu().warn(&format!("cuDNN refused the card: {why}"));
            return None;
        }
    };
    match place.compare_exchange(0, new as usize, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Some(new),
        Err(first) => {
            // SAFETY: another thread was faster; nobody has seen this one.
            unsafe { real.destroy(new) };
            Some(first as *mut c_void)
        }
    }
}

/// How many executions of a plan pretend to take time: enough for a benchmark (`cudnnFind...`, PyTorch's
/// `cudnn.benchmark`) to warm up and to measure.
const TRIALS: u8 = 8;
/// How much longer a plan takes than the one before it in the order of the heuristics.
const STEP: Duration = Duration::from_micros(10);
/// Plans further down than this are not distinguished; the benchmark wants the first.
const LAST_STEP: u32 = 5;

/// Executes a plan: nothing moves. A benchmark measures the time between two events, which would be noise here, so the
/// first executions of a plan take the longer the further down the heuristics put it: the benchmark then chooses what
/// the heuristics would.
pub unsafe fn cudnnBackendExecute(_handle: *mut c_void, plan: *mut c_void, _variant_pack: *mut c_void) -> u32 {
    if !matches!(source(), Source::Real(_)) {
        return SUCCESS;
    }
    work::executed(plan);
    let rank = {
        let mut memory = memory();
        match memory.descriptors.get_mut(&(plan as usize)) {
            Some(plan) if plan.trials > 0 => {
                plan.trials -= 1;
                u32::from(plan.rank)
            }
            _ => 0,
        }
    };
    if rank > 0 {
        let end = Instant::now() + STEP * rank.min(LAST_STEP);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
    SUCCESS
}

/// The workspace of a plan, for callers that do not read the attribute.
pub unsafe fn cudnnGetExecutionPlanWorkspaceSize(
    _handle: *mut c_void,
    plan: *mut c_void,
    _variant_pack: *mut c_void,
    size: *mut usize,
) -> u32 {
    let mut bytes = 0_i64;
    let mut count = 0_i64;
    // SAFETY: the plan is the program's; the out-parameters are local variables.
    let status = unsafe {
        let bytes = (&raw mut bytes).cast();
        cudnnBackendGetAttribute(plan, ATTR_PLAN_WORKSPACE, TYPE_INT64, 1, &raw mut count, bytes)
    };
    // SAFETY: cuDNN's contract: the size is null or may be written.
    unsafe { put(size, usize::try_from(bytes).unwrap_or(0)) };
    status
}

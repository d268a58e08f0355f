//! The graph API, as programs call it.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use super::descriptors;
use super::source::source;
use crate::boundary::{Memory, Out};
use crate::gpu::gpu;
use crate::libcudnn::Source;
use crate::libcudnn::attribute::{ATTR_PLAN_WORKSPACE, Descriptor, Elements, Places, TYPE_INT64, VARIANT_PACK};
use crate::libcudnn::status::{CudnnStatus, Result};

/// Makes a descriptor.
pub fn cudnnBackendCreateDescriptor(kind: i32, out: Out<'_, *mut c_void>) -> Result<()> {
    if out.is_null() {
        return Err(CudnnStatus::BAD_PARAM);
    }
    out.set(if kind == VARIANT_PACK {
        // Nothing is ever written behind it.
        (&raw const gpu().cudnn.variant_packs).cast_mut().cast()
    } else {
        descriptors::create(kind)?.pointer()
    });
    Ok(())
}

/// Ends a descriptor.
pub fn cudnnBackendDestroyDescriptor(descriptor: Descriptor<'_>) -> Result<()> {
    descriptors::destroy(descriptor)
}

/// Initializes a descriptor in the program's own memory: deprecated, and never used by frameworks.
pub fn cudnnBackendInitialize(_descriptor: *mut c_void) -> Result<()> {
    Err(CudnnStatus::NOT_SUPPORTED)
}

/// Sets an attribute.
pub fn cudnnBackendSetAttribute(
    descriptor: Descriptor<'_>,
    name: i32,
    kind: i32,
    count: i64,
    elements: Memory<'_>,
) -> Result<()> {
    // SAFETY: cuDNN's contract: null, or as many elements of the type.
    let elements = unsafe { Elements::new(kind, count, elements.address()) };
    descriptors::set(descriptor, name, elements)
}

/// Reads an attribute.
pub fn cudnnBackendGetAttribute(
    descriptor: Descriptor<'_>,
    name: i32,
    kind: i32,
    requested: i64,
    count: Out<'_, i64>,
    elements: Memory<'_>,
) -> Result<()> {
    // SAFETY: cuDNN's contract: null, or room for as many elements of the type. Where they are descriptors, the program
    // made them and passes them to be filled.
    let places = unsafe { Places::new(kind, requested, elements.address()) };
    descriptors::get(descriptor, name, places, count)
}

/// Finalizes a descriptor.
pub fn cudnnBackendFinalize(descriptor: Descriptor<'_>) -> Result<()> {
    descriptors::finalize(descriptor)
}

/// How much longer a plan takes than the one before it in the order of the heuristics.
const STEP: Duration = Duration::from_micros(10);
/// Plans further down than this are not distinguished; the benchmark wants the first.
const LAST_STEP: u8 = 5;

/// Executes a plan: nothing moves. A benchmark measures the time between two events, which would be noise here, so the
/// first executions of a plan take the longer the further down the heuristics put it: the benchmark then chooses what
/// the heuristics would.
pub fn cudnnBackendExecute(_handle: *mut c_void, plan: Descriptor<'_>, _variant_pack: *mut c_void) -> Result<()> {
    if !matches!(source(), Source::Real(_)) {
        return Ok(());
    }
    let product = gpu().cudnn.computations.lock().product(plan.address());
    match product {
        Some(product) => gpu().work.product(product),
        None => gpu().work.kernel(0),
    }
    let rank = gpu().cudnn.plans.lock().execute(plan.address());
    if rank > 0 {
        let end = Instant::now() + STEP * u32::from(rank.min(LAST_STEP));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
    Ok(())
}

/// The workspace of a plan, for callers that do not read the attribute.
pub fn cudnnGetExecutionPlanWorkspaceSize(
    _handle: *mut c_void,
    plan: Descriptor<'_>,
    _variant_pack: *mut c_void,
    size: Out<'_, usize>,
) -> Result<()> {
    let (mut bytes, mut count) = ([0_i64], 0);
    let status = descriptors::get(plan, ATTR_PLAN_WORKSPACE, Places::of(TYPE_INT64, &mut bytes), Out::to(&mut count));
    let [bytes] = bytes;
    size.set(usize::try_from(bytes).unwrap_or(0));
    status
}

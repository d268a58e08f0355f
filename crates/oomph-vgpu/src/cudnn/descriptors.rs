//! Descriptors of the graph API: questions go to the real library, or to the model.
#![deny(unsafe_code)]

use super::source::{source, warn};
use super::{card, model};
use crate::boundary::Out;
use crate::device;
use crate::gpu::gpu;
use crate::libcudnn::Source;
use crate::libcudnn::attribute::{
    ATTR_CONFIG_WORKSPACE, ATTR_ENGINE_DEVICEPROP, ATTR_HEURISTICS_DEVICEPROP, ATTR_HEURISTICS_MODE,
    ATTR_HEURISTICS_RESULTS, ATTR_PLAN_CONFIG, ATTR_PLAN_DEVICEPROP, ATTR_PLAN_WORKSPACE, Descriptor, ENGINE,
    ENGINE_CONFIG, Elements, HEURISTICS, MODE_FALLBACK, PLAN, Places, TYPE_DESCRIPTOR, TYPE_HANDLE, TYPE_INT64,
};
use crate::libcudnn::real::{self, Real};
use crate::libcudnn::status::{CudnnStatus, Result};

/// Whether a descriptor is the one that stands for all variant packs.
fn is_variant_pack(descriptor: Descriptor<'_>) -> bool {
    descriptor.address() == (&raw const gpu().cudnn.variant_packs) as usize
}

/// Makes a descriptor.
pub fn create(kind: i32) -> Result<Descriptor<'static>> {
    let real = match source() {
        Source::Real(real) => real,
        Source::Model => return Ok(model::create(kind)),
    };
    let made = real.create(kind)?;
    if matches!(kind, ENGINE | ENGINE_CONFIG | HEURISTICS | PLAN) {
        gpu().cudnn.plans.lock().add(made.address(), kind);
    }
    Ok(made)
}

/// Ends a descriptor.
pub fn destroy(descriptor: Descriptor<'_>) -> Result<()> {
    if is_variant_pack(descriptor) {
        return Ok(());
    }
    match source() {
        Source::Real(real) => {
            gpu().cudnn.plans.lock().forget(descriptor.address());
            gpu().cudnn.computations.lock().forget(descriptor.address());
            real.destroy(descriptor)
        }
        Source::Model => model::destroy(descriptor),
    }
}

/// Sets an attribute.
pub fn set(descriptor: Descriptor<'_>, name: i32, elements: Elements<'_>) -> Result<()> {
    // A handle belongs to a GPU, which the library must not look for.
    if elements.kind() == TYPE_HANDLE || is_variant_pack(descriptor) {
        return Ok(());
    }
    let real = match source() {
        Source::Real(real) => real,
        Source::Model => return model::set(descriptor, name, elements),
    };
    gpu().cudnn.computations.lock().set(descriptor.address(), name, elements);
    if elements.count() == 1 {
        match name {
            ATTR_PLAN_CONFIG => {
                if let Some(config) = elements.descriptor(0) {
                    choose(real, descriptor, config);
                }
            }
            ATTR_HEURISTICS_MODE if elements.word(0) == Some(MODE_FALLBACK) => {
                gpu().cudnn.plans.lock().falls_back(descriptor.address());
            }
            _ => {}
        }
    }
    real.set(descriptor, name, elements)
}

/// Reads an attribute, and how many elements it has.
pub fn get(descriptor: Descriptor<'_>, name: i32, places: Places<'_>, count: Out<'_, i64>) -> Result<()> {
    let kind = places.held().kind();
    if kind == TYPE_HANDLE || is_variant_pack(descriptor) {
        count.set(0);
        return Ok(());
    }
    let real = match source() {
        Source::Real(real) => real,
        Source::Model => return model::get(descriptor, name, places, count),
    };
    let workspace = gpu().cudnn.plans.lock().workspace(descriptor.address());
    if let Some(workspace) = workspace {
        if name == ATTR_PLAN_WORKSPACE && kind == TYPE_INT64 {
            places.set_long(on_a_card(descriptor, workspace));
            count.set(1);
            return Ok(());
        }
        make(real, descriptor)?;
    }
    let (written, status) = real.get(descriptor, name, places);
    count.set(written);
    let is_workspace = status.is_ok() && name == ATTR_PLAN_WORKSPACE && kind == TYPE_INT64;
    if let Some(bytes) = places.held().long(0).filter(|_| is_workspace) {
        places.set_long(on_a_card(descriptor, bytes));
    }
    if status.is_ok() && name == ATTR_HEURISTICS_RESULTS && kind == TYPE_DESCRIPTOR && !places.held().is_null() {
        let written = usize::try_from(written).unwrap_or(0);
        let configs: Vec<usize> =
            (0..written).map_while(|index| places.held().descriptor(index)).map(Descriptor::address).collect();
        gpu().cudnn.computations.lock().found(descriptor.address(), &configs);
        gpu().cudnn.plans.lock().number(descriptor.address(), &configs);
    }
    status
}

/// The workspace of a plan on the current card, of what the library says without one.
fn on_a_card(plan: Descriptor<'_>, bytes: i64) -> i64 {
    let known = gpu().cudnn.computations.lock().workspace(plan.address());
    let (Some(known), Ok(said), Some(device)) = (known, u64::try_from(bytes), device::current()) else { return bytes };
    let card = &device.description;
    i64::try_from(known.on(said, card.cc_major, card.sm_count)).unwrap_or(bytes)
}

/// Finalizes a descriptor.
pub fn finalize(descriptor: Descriptor<'_>) -> Result<()> {
    if is_variant_pack(descriptor) {
        return Ok(());
    }
    match source() {
        Source::Real(real) => {
            let workspace = gpu().cudnn.plans.lock().workspace(descriptor.address());
            if workspace.is_some() { Ok(()) } else { make(real, descriptor) }
        }
        Source::Model => model::finalize(descriptor),
    }
}

/// Finalizes a descriptor of the real library. One that would look for a GPU is given the virtual one first.
fn make(real: &Real, descriptor: Descriptor<'_>) -> Result<()> {
    let kind = gpu().cudnn.plans.lock().kind(descriptor.address());
    let attribute = match kind {
        Some(ENGINE) => ATTR_ENGINE_DEVICEPROP,
        Some(HEURISTICS) => ATTR_HEURISTICS_DEVICEPROP,
        Some(PLAN) => ATTR_PLAN_DEVICEPROP,
        _ => return real.finalize(descriptor),
    };
    let card = current_card(real).ok_or(CudnnStatus::NOT_INITIALIZED)?;
    // A refusal here shows in the finalization, with the library's own status.
    let _ = real.set(descriptor, attribute, Elements::descriptors(&[card]));
    real.finalize(descriptor)?;
    gpu().cudnn.plans.lock().finish(descriptor.address());
    Ok(())
}

/// Notes which engine configuration a plan is made of. A program that makes a second plan of the same answer is about
/// to measure them all, and many would be compiled, for minutes. Nothing is ever executed, so such a plan is not made in
/// earnest: its workspace is the configuration's, which is always the same number.
fn choose(real: &Real, plan: Descriptor<'_>, config: Descriptor<'_>) {
    let measured = gpu().cudnn.plans.lock().is_measured(config.address());
    let Some(measured) = measured else { return };
    let mut workspace = [-1_i64];
    let count =
        if measured { real.get(config, ATTR_CONFIG_WORKSPACE, Places::of(TYPE_INT64, &mut workspace)).0 } else { 0 };
    let [workspace] = workspace;
    let workspace = (count == 1 && workspace >= 0).then_some(workspace);
    gpu().cudnn.plans.lock().choose(plan.address(), config.address(), workspace);
}

/// The device-properties descriptor of the current card, made when it is first asked for.
fn current_card(real: &Real) -> Option<Descriptor<'static>> {
    let place = gpu().cudnn.cards.get(device::current()?.card)?;
    if let Some(made) = place.get() {
        return Some(*made);
    }
    let new = match real::describe(real, &card::current()?) {
        Ok(new) => new,
        Err(why) => {
            warn(&format!("cuDNN refused the card: {why}"));
            return None;
        }
    };
    let first = *place.get_or_init(|| new);
    if first != new {
        // Another thread was faster, and nobody has seen this one.
        let _ = real.destroy(new);
    }
    Some(first)
}

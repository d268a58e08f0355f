//! cuRAND: generators that remember whether they fill host or device memory. What they would draw is zeros.
#![allow(clippy::missing_safety_doc)]

use std::ffi::{c_int, c_void};

use crate::cublas::versions::{library_version, property, put};
use crate::{device, transfer};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 101;
const OUT_OF_RANGE: u32 = 104;

library_version!("libcurand.so.", "curand", [10, 3, 0], [10, 3, 10], [10, 4, 5]);

/// Whether the generator fills host memory.
const HOST: u64 = 0x6f6f_6d70_6863_7572;

/// Makes a generator for device memory. What its state takes on a card (some MiB for the larger kinds) is not charged:
/// it is not documented.
pub unsafe fn curandCreateGenerator(out: *mut *mut c_void, _kind: c_int) -> u32 {
    if device::activate_current().is_err() {
        return NOT_INITIALIZED;
    }
    // SAFETY: cuRAND's contract: an out-parameter that may be written.
    unsafe { put(out, crate::handle::fresh()) };
    SUCCESS
}

/// Makes a generator for host memory, which needs no card.
pub unsafe fn curandCreateGeneratorHost(out: *mut *mut c_void, _kind: c_int) -> u32 {
    let generator = crate::handle::fresh();
    if generator.is_null() {
        return NOT_INITIALIZED;
    }
    // SAFETY: a fresh handle is memory that may be written, and the out-parameter may be by cuRAND's contract.
    unsafe {
        generator.cast::<u64>().write_unaligned(HOST);
        put(out, generator);
    }
    SUCCESS
}

/// Fills what a generator writes with zeros. Small device ranges too, because a host may read them back.
unsafe fn draw(generator: *mut c_void, to: *mut c_void, count: usize, element: usize) -> u32 {
    if generator.is_null() {
        return NOT_INITIALIZED;
    }
    let bytes = count.saturating_mul(element);
    // SAFETY: cuRAND's contract: a generator that was made here, and room for what is drawn.
    unsafe {
        if generator.cast::<u64>().read_unaligned() == HOST && !to.is_null() {
            to.cast::<u8>().write_bytes(0, bytes);
        } else {
            transfer::fill(to, 0, 1, bytes);
        }
    }
    SUCCESS
}

/// Defines the functions that draw numbers of one size in bytes.
macro_rules! draws {
    ($($name:ident($element:literal $(, $parameter:ident: $kind:ty)*);)*) => {$(
        /// Draws zeros.
        pub unsafe fn $name(generator: *mut c_void, to: *mut c_void, count: usize $(, $parameter: $kind)*) -> u32 {
            // SAFETY: cuRAND's contract is that of `draw`.
            unsafe { draw(generator, to, count, $element) }
        }
    )*};
}
draws! {
    curandGenerate(4);
    curandGenerateLongLong(8);
    curandGenerateUniform(4);
    curandGenerateUniformDouble(8);
    curandGenerateNormal(4, _mean: f32, _deviation: f32);
    curandGenerateNormalDouble(8, _mean: f64, _deviation: f64);
    curandGenerateLogNormal(4, _mean: f32, _deviation: f32);
    curandGenerateLogNormalDouble(8, _mean: f64, _deviation: f64);
    curandGeneratePoisson(4, _lambda: f64);
}

/// The version in one number: 10310 for 10.3.10.
pub unsafe fn curandGetVersion(value: *mut c_int) -> u32 {
    let [major, minor, patch] = version();
    // SAFETY: cuRAND's contract: an out-parameter that may be written.
    unsafe { put(value, major * 1000 + minor * 100 + patch) };
    SUCCESS
}

/// One part of the version.
pub unsafe fn curandGetProperty(kind: c_int, value: *mut c_int) -> u32 {
    let Some(part) = property(version(), kind) else { return OUT_OF_RANGE };
    // SAFETY: cuRAND's contract: an out-parameter that may be written.
    unsafe { put(value, part) };
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_generator_fills_host_memory() {
        let mut generator = std::ptr::null_mut();
        let mut drawn = [1_f32; 3];
        // SAFETY: the out-parameter and the array are local variables.
        unsafe {
            assert_eq!(curandCreateGeneratorHost(&raw mut generator, 100), SUCCESS);
            assert_eq!(curandGenerateUniform(generator, drawn.as_mut_ptr().cast(), 2), SUCCESS);
            assert_eq!(curandGenerateUniform(std::ptr::null_mut(), drawn.as_mut_ptr().cast(), 2), NOT_INITIALIZED);
        }
        assert_eq!(drawn, [0.0, 0.0, 1.0]);
    }
}

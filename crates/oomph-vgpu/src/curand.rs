//! cuRAND: generators that remember whether they fill host or device memory. What they would draw is zeros.
use std::ffi::{c_int, c_void};

use crate::boundary::{In, Out, Room, statuses};
use crate::cublas::versions::{library_version, property};
use crate::gpu::gpu;
use crate::{device, transfer};

statuses! {
    /// `curandStatus`
    pub CurandStatus {
        /// There is no card, or a generator was not made.
        NOT_INITIALIZED = 101,
        /// An argument is out of range.
        OUT_OF_RANGE = 104,
    }
}

library_version!(Curand, "libcurand.so.", "curand", [10, 3, 0], [10, 3, 10], [10, 4, 5]);

/// Whether the generator fills host memory.
const HOST: u64 = 0x6f6f_6d70_6863_7572;

/// Makes a generator for device memory. What its state takes on a card (some MiB for the larger kinds) is not charged:
/// it is not documented.
pub fn curandCreateGenerator(out: Out<'_, *mut c_void>, _kind: c_int) -> Result<(), CurandStatus> {
    device::activate_current().map_err(|_| CurandStatus::NOT_INITIALIZED)?;
    out.set(gpu().handles.fresh());
    Ok(())
}

/// Makes a generator for host memory, which needs no card.
pub fn curandCreateGeneratorHost(out: Out<'_, *mut c_void>, _kind: c_int) -> Result<(), CurandStatus> {
    let generator = gpu().handles.fresh_with(HOST);
    if generator.is_null() {
        return Err(CurandStatus::NOT_INITIALIZED);
    }
    out.set(generator);
    Ok(())
}

/// Fills what a generator writes with zeros. Small device ranges too, because a host may read them back.
fn draw<T>(generator: In<'_, u64>, to: Room<'_, T>) -> Result<(), CurandStatus> {
    let kind = generator.get().ok_or(CurandStatus::NOT_INITIALIZED)?;
    let bytes = to.count().saturating_mul(size_of::<T>());
    let address: *mut c_void = to.address().cast();
    // SAFETY: the argument of `boundary`: the program has room for as many numbers as it counts, and zeros are numbers.
    unsafe {
        if kind == HOST && !address.is_null() {
            address.cast::<u8>().write_bytes(0, bytes);
        } else {
            transfer::fill(address, 0, 1, bytes);
        }
    }
    Ok(())
}

/// Defines the functions that draw numbers of one type.
macro_rules! draws {
    ($($name:ident($element:ty $(, $parameter:ident: $kind:ty)*);)*) => {$(
        /// Draws zeros.
        pub fn $name(
            generator: In<'_, u64>, to: Room<'_, $element>, _count: usize $(, $parameter: $kind)*
        ) -> Result<(), CurandStatus> {
            draw(generator, to)
        }
    )*};
}
draws! {
    curandGenerate(u32);
    curandGenerateLongLong(u64);
    curandGenerateUniform(f32);
    curandGenerateUniformDouble(f64);
    curandGenerateNormal(f32, _mean: f32, _deviation: f32);
    curandGenerateNormalDouble(f64, _mean: f64, _deviation: f64);
    curandGenerateLogNormal(f32, _mean: f32, _deviation: f32);
    curandGenerateLogNormalDouble(f64, _mean: f64, _deviation: f64);
    curandGeneratePoisson(u32, _lambda: f64);
}

/// The version in one number: 10310 for 10.3.10.
pub fn curandGetVersion(value: Out<'_, c_int>) -> Result<(), CurandStatus> {
    let [major, minor, patch] = version();
    value.set(major * 1000 + minor * 100 + patch);
    Ok(())
}

/// One part of the version.
pub fn curandGetProperty(kind: c_int, value: Out<'_, c_int>) -> Result<(), CurandStatus> {
    value.set(property(version(), kind).ok_or(CurandStatus::OUT_OF_RANGE)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_generator_fills_host_memory() {
        let mut made = std::ptr::null_mut();
        assert_eq!(curandCreateGeneratorHost(Out::to(&mut made), 100), Ok(()));
        // SAFETY: what was made is the address of a generator.
        let generator: In<u64> = unsafe { crate::boundary::pass::<crate::boundary::Any, _>(made) };
        let mut drawn = [1_f32; 3];
        assert_eq!(curandGenerateUniform(generator, Room::to(&mut drawn[..2]), 2), Ok(()));
        let none = curandGenerateUniform(In::null(), Room::to(&mut drawn), 3);
        assert_eq!(none, Err(CurandStatus::NOT_INITIALIZED));
        assert_eq!(drawn, [0.0, 0.0, 1.0]);
    }
}

//! The attributes of descriptors: where they lie in the structures that a program sees, and what they are at first.

use std::ffi::{c_int, c_void};

use crate::boundary::{Items, Memory, Out, Room};
use crate::cublas::CublasStatus;

/// One attribute of a descriptor: its number in the header, its size in bytes, and what it is before it is set.
pub(super) struct Attribute(c_int, usize, u64);

/// `cublasLtMatmulDescAttributes_t`. Before it is set, a matrix's fill mode is full (2), the epilogue is the default
/// one (1), and data types follow the output's (-1).
pub(super) const MATMUL: [Attribute; 36] = [
    Attribute(0, 4, 0),
    Attribute(1, 4, 0),
    Attribute(2, 4, 0),
    Attribute(3, 4, 0),
    Attribute(4, 4, 0),
    Attribute(5, 4, 0),
    Attribute(6, 4, 2),
    Attribute(7, 4, 1),
    Attribute(8, 8, 0),
    Attribute(10, 8, 0),
    Attribute(11, 8, 0),
    Attribute(12, 8, 0),
    Attribute(13, 8, 0),
    Attribute(14, 8, 0),
    Attribute(15, 4, 0),
    Attribute(17, 8, 0),
    Attribute(18, 8, 0),
    Attribute(19, 8, 0),
    Attribute(20, 8, 0),
    Attribute(21, 8, 0),
    Attribute(22, 4, u32::MAX as u64),
    Attribute(23, 8, 0),
    Attribute(24, 8, 0),
    Attribute(25, 1, 0),
    Attribute(26, 4, u32::MAX as u64),
    Attribute(31, 4, 0),
    Attribute(32, 4, 0),
    Attribute(33, 4, 0),
    Attribute(34, 4, 0),
    Attribute(35, 4, 0),
    Attribute(36, 8, 0),
    Attribute(37, 4, 0),
    Attribute(38, 8, 0),
    Attribute(39, 8, 0),
    Attribute(40, 8, 0),
    Attribute(41, 4, 0),
];
/// `cublasLtMatrixLayoutAttribute_t`: type, order, rows, columns, leading dimension, batch count (1), its stride, plane
/// offset, batch mode.
pub(super) const LAYOUT: [Attribute; 9] = [
    Attribute(0, 4, 0),
    Attribute(1, 4, 0),
    Attribute(2, 8, 0),
    Attribute(3, 8, 0),
    Attribute(4, 8, 0),
    Attribute(5, 4, 1),
    Attribute(6, 8, 0),
    Attribute(7, 8, 0),
    Attribute(8, 4, 0),
];
/// `cublasLtMatmulPreferenceAttributes_t`: any reduction scheme and implementation, alignments of 256 bytes.
pub(super) const PREFERENCE: [Attribute; 9] = [
    Attribute(0, 4, 0),
    Attribute(1, 8, 0),
    Attribute(3, 4, u32::MAX as u64),
    Attribute(5, 4, 256),
    Attribute(6, 4, 256),
    Attribute(7, 4, 256),
    Attribute(8, 4, 256),
    Attribute(9, 4, 0),
    Attribute(12, 8, u64::MAX),
];
/// `cublasLtMatrixTransformDescAttributes_t`: scale type, pointer mode, two transpositions.
pub(super) const TRANSFORM: [Attribute; 4] =
    [Attribute(0, 4, 0), Attribute(1, 4, 0), Attribute(2, 4, 0), Attribute(3, 4, 0)];
/// `cublasLtEmulationDescAttributes_t`.
pub(super) const EMULATION: [Attribute; 6] = [
    Attribute(0, 4, 0),
    Attribute(1, 4, 0xffff),
    Attribute(2, 4, 0),
    Attribute(3, 4, 0),
    Attribute(4, 4, 0),
    Attribute(5, 8, 0),
];
/// `cublasLtMatmulAlgoConfigAttributes_t`, inside a `cublasLtMatmulAlgo_t`.
pub(super) const ALGORITHM: [Attribute; 9] = [
    Attribute(0, 4, 0),
    Attribute(1, 4, 0),
    Attribute(2, 4, 1),
    Attribute(3, 4, 0),
    Attribute(4, 4, 0),
    Attribute(5, 4, 0),
    Attribute(6, 4, 0),
    Attribute(7, 2, 0),
    Attribute(8, 2, 0),
];

/// Sizes of the opaque structures, in bytes.
pub(super) const MATMUL_BYTES: usize = 256;
pub(super) const SMALL_BYTES: usize = 64;
/// The size of the first one in CUDA 11, before the attributes from 31 on.
pub(super) const FIRST_MATMUL_BYTES: usize = 23 * 8;
/// Size of `cublasLtMatmulAlgo_t`.
pub(super) const ALGORITHM_BYTES: usize = 64;

/// Where an attribute lies in its descriptor: after those before it.
pub(super) fn place(table: &[Attribute], number: c_int) -> Option<(usize, usize)> {
    let mut offset = 0;
    for Attribute(known, size, _) in table {
        if *known == number {
            return Some((offset, *size));
        }
        offset += size;
    }
    None
}

/// Writes the initial value of every attribute, and zeros behind them.
///
/// # Safety
/// The structure has `bytes` bytes, and is not null.
pub(super) unsafe fn initialize(table: &[Attribute], at: Memory<'_>, bytes: usize) {
    let at = at.address().cast::<u8>();
    // SAFETY: the caller's structure has `bytes` bytes.
    unsafe { at.write_bytes(0, bytes) };
    let mut offset = 0;
    for Attribute(_, size, value) in table {
        if offset + size > bytes {
            return;
        }
        let value = value.to_le_bytes();
        // SAFETY: as above, and a value has at least `size` bytes, which is at most 8.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), at.add(offset), (*size).min(value.len())) };
        offset += size;
    }
}

/// Sets an attribute of a descriptor that was initialized here. One that is not remembered is accepted: it changes nothing
/// that is answered here.
pub(super) fn set(table: &[Attribute], at: Memory<'_>, number: c_int, from: Items<'_, u8>) -> Result<(), CublasStatus> {
    if at.is_null() || from.is_null() {
        return Err(CublasStatus::INVALID_VALUE);
    }
    let Some((offset, size)) = place(table, number) else { return Ok(()) };
    if from.count() < size {
        return Err(CublasStatus::INVALID_VALUE);
    }
    let field = at.address().cast::<u8>().wrapping_add(offset);
    for (index, byte) in from.iter().take(size).enumerate() {
        // SAFETY: the library's contract: a descriptor that was initialized here, with room for the attributes that the
        // program's header has.
        unsafe { field.add(index).write(byte) };
    }
    Ok(())
}

/// Reads an attribute. Without room the size that is needed is written, as documented.
pub(super) fn get(
    table: &[Attribute],
    at: Memory<'_>,
    number: c_int,
    to: Room<'_, u8>,
    written: Out<'_, usize>,
) -> Result<(), CublasStatus> {
    if at.is_null() {
        return Err(CublasStatus::INVALID_VALUE);
    }
    let (offset, size) = place(table, number).ok_or(CublasStatus::INVALID_VALUE)?;
    written.set(size);
    if to.count() == 0 {
        return Ok(());
    }
    if to.count() < size || to.is_null() {
        return Err(CublasStatus::INVALID_VALUE);
    }
    let field = at.address().cast::<u8>().wrapping_add(offset);
    // SAFETY: as for `set`.
    to.fill((0..size).map(|index| unsafe { field.add(index).read() }));
    Ok(())
}

/// Sets an attribute that is a number.
pub(super) fn set_number(table: &[Attribute], at: Memory<'_>, number: c_int, value: u64) {
    // A descriptor that is not null takes every number.
    let _ = set(table, at, number, Items::of(&value.to_le_bytes()));
}

/// Makes a descriptor of 8-byte words, which is initialized before it is handed out.
pub(super) fn create<const WORDS: usize>(
    out: Out<'_, *mut c_void>,
    initialize: impl FnOnce(Memory<'_>) -> Result<(), CublasStatus>,
) -> Result<(), CublasStatus> {
    let out = out.given().ok_or(CublasStatus::INVALID_VALUE)?;
    let mut words = Box::new([0_u64; WORDS]);
    initialize(Memory::to(&mut words[..]))?;
    out.set(Box::into_raw(words).cast());
    Ok(())
}

/// Ends a descriptor that [`create`] made with as many words.
pub(super) fn destroy<const WORDS: usize>(at: Memory<'_>) -> Result<(), CublasStatus> {
    if !at.is_null() {
        // SAFETY: the library's contract: only descriptors that a `Create` function made are destroyed, once.
        drop(unsafe { Box::from_raw(at.address().cast::<[u64; WORDS]>()) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(table: &[Attribute]) -> usize {
        table.iter().map(|Attribute(_, size, _)| size).sum()
    }

    #[test]
    fn every_descriptor_holds_its_attributes() {
        assert!(total(&MATMUL) <= MATMUL_BYTES, "{}", total(&MATMUL));
        assert!(place(&MATMUL, 31).is_some_and(|(offset, _)| offset <= FIRST_MATMUL_BYTES));
        for table in [&LAYOUT[..], &PREFERENCE, &TRANSFORM, &EMULATION, &ALGORITHM] {
            assert!(total(table) <= SMALL_BYTES, "{}", total(table));
        }
    }
}

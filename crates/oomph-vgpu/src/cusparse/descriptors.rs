//! Descriptors of matrices and vectors, which answer with what was put in them.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::cublas::versions::put;
use crate::cusparse::{INVALID_VALUE, SUCCESS};

const MAGIC: u64 = 0x6f6f_6d70_6873_7061;

/// A matrix or a vector, sparse or dense. Only the fields of its kind are used.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    magic: u64,
    /// `cusparseFormat_t`, 0 for what has none.
    pub(super) format: c_int,
    pub(super) rows: i64,
    pub(super) columns: i64,
    /// Elements of what is sparse; the leading dimension of a dense matrix.
    pub(super) elements: i64,
    /// Row offsets or row indices, column indices, values; a dense one has only values.
    pub(super) pointers: [usize; 3],
    /// Types of the offsets, of the indices and of the values.
    pub(super) types: [c_int; 3],
    pub(super) base: c_int,
    pub(super) order: c_int,
    batches: c_int,
    batch_stride: i64,
    /// Fill mode and kind of the diagonal.
    attributes: [c_int; 2],
}

/// A descriptor before its fields are filled in.
pub(super) const EMPTY: Descriptor = Descriptor {
    magic: MAGIC,
    format: 0,
    rows: 0,
    columns: 0,
    elements: 0,
    pointers: [0; 3],
    types: [0; 3],
    base: 0,
    order: 0,
    batches: 1,
    batch_stride: 0,
    attributes: [0; 2],
};

/// The descriptor at an address.
///
/// # Safety
/// `address` is null or was handed out here and not destroyed, and nobody else uses it meanwhile: cuSPARSE leaves the
/// sharing of descriptors to the program.
pub(super) unsafe fn get<'a>(address: *mut c_void) -> Option<&'a mut Descriptor> {
    let descriptor = address.cast::<Descriptor>();
    if descriptor.is_null() || !descriptor.is_aligned() {
        return None;
    }
    // SAFETY: the caller's promise.
    let descriptor = unsafe { &mut *descriptor };
    (descriptor.magic == MAGIC).then_some(descriptor)
}

/// Makes a descriptor and writes its address.
unsafe fn create(out: *mut *mut c_void, descriptor: Descriptor) -> u32 {
    if out.is_null() || descriptor.rows < 0 || descriptor.columns < 0 || descriptor.elements < 0 {
        return INVALID_VALUE;
    }
    let made = Box::into_raw(Box::new(descriptor));
    // SAFETY: cuSPARSE's contract: an out-parameter that may be written.
    unsafe { put(out, made.cast()) };
    SUCCESS
}

unsafe fn destroy(address: *mut c_void) -> u32 {
    // SAFETY: cuSPARSE's contract is that of `get`.
    match unsafe { get(address) } {
        Some(descriptor) => {
            descriptor.magic = 0;
            // SAFETY: the address came from `Box::into_raw`, as its magic number said, and the program gives it up.
            drop(unsafe { Box::from_raw(address.cast::<Descriptor>()) });
            SUCCESS
        }
        None if address.is_null() => SUCCESS,
        None => INVALID_VALUE,
    }
}

/// Defines functions of one shape under several names.
macro_rules! named {
    ($($(#[$doc:meta])* [$($name:ident)+] $parameters:tt $body:block)*) => {$(
        named!(@each [$($name)+] [$(#[$doc])*] $parameters $body);
    )*};
    (@each [$($name:ident)+] $docs:tt $parameters:tt $body:block) => {
        $(named!(@one $name $docs $parameters $body);)+
    };
    (@one $name:ident [$($docs:tt)*] ($($parameter:ident: $kind:ty),* $(,)?) $body:block) => {
        $($docs)*
        pub unsafe fn $name($($parameter: $kind),*) -> u32 $body
    };
}

type Out = *mut *mut c_void;
type Ptr = *mut c_void;

named! {
    /// A matrix by rows, compressed.
    [cusparseCreateCsr cusparseCreateConstCsr]
        (
        out: Out, rows: i64, columns: i64, elements: i64, offsets: Ptr, indices: Ptr, values: Ptr, offsets_type: c_int,
        indices_type: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        // SAFETY: cuSPARSE's contract is that of `create`.
        unsafe { create(out, Descriptor { format: 1, rows, columns, elements, pointers, types, base, ..EMPTY }) }
    }
    /// A matrix by columns, compressed.
    [cusparseCreateCsc cusparseCreateConstCsc]
        (
        out: Out, rows: i64, columns: i64, elements: i64, offsets: Ptr, indices: Ptr, values: Ptr, offsets_type: c_int,
        indices_type: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        // SAFETY: as above.
        unsafe { create(out, Descriptor { format: 2, rows, columns, elements, pointers, types, base, ..EMPTY }) }
    }
    /// A matrix by coordinates.
    [cusparseCreateCoo cusparseCreateConstCoo]
        (
        out: Out, rows: i64, columns: i64, elements: i64, row_indices: Ptr, column_indices: Ptr, values: Ptr,
        index: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [row_indices as usize, column_indices as usize, values as usize];
        let types = [index, index, kind];
        // SAFETY: as above.
        unsafe { create(out, Descriptor { format: 3, rows, columns, elements, pointers, types, base, ..EMPTY }) }
    }
    /// A matrix of blocks by rows. Its sizes are counted in blocks.
    [cusparseCreateBsr cusparseCreateConstBsr]
        (
        out: Out, rows: i64, columns: i64, elements: i64, _row_block: i64, _column_block: i64, offsets: Ptr,
        indices: Ptr, values: Ptr, offsets_type: c_int, indices_type: c_int, base: c_int, kind: c_int, order: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        // SAFETY: as above.
        unsafe {
            create(out, Descriptor { format: 6, rows, columns, elements, pointers, types, base, order, ..EMPTY })
        }
    }
    /// A matrix of blocks with as many in every row.
    [cusparseCreateBlockedEll cusparseCreateConstBlockedEll]
        (
        out: Out, rows: i64, columns: i64, _size: i64, ell_columns: i64, indices: Ptr, values: Ptr, index: c_int,
        base: c_int, kind: c_int,
    ) {
        let pointers = [0, indices as usize, values as usize];
        let types = [index, index, kind];
        let elements = rows.saturating_mul(ell_columns);
        // SAFETY: as above.
        unsafe { create(out, Descriptor { format: 5, rows, columns, elements, pointers, types, base, ..EMPTY }) }
    }
    /// A matrix of slices.
    [cusparseCreateSlicedEll cusparseCreateConstSlicedEll]
        (
        out: Out, rows: i64, columns: i64, elements: i64, _stored: i64, _slice: i64, offsets: Ptr, indices: Ptr,
        values: Ptr, offsets_type: c_int, indices_type: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        // SAFETY: as above.
        unsafe { create(out, Descriptor { format: 7, rows, columns, elements, pointers, types, base, ..EMPTY }) }
    }
    /// A sparse vector.
    [cusparseCreateSpVec cusparseCreateConstSpVec]
        (
        out: Out, size: i64, elements: i64, indices: Ptr, values: Ptr, index: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [0, indices as usize, values as usize];
        let types = [index, index, kind];
        // SAFETY: as above.
        unsafe { create(out, Descriptor { rows: size, columns: 1, elements, pointers, types, base, ..EMPTY }) }
    }
    /// A dense matrix.
    [cusparseCreateDnMat cusparseCreateConstDnMat]
        (
        out: Out, rows: i64, columns: i64, ld: i64, values: Ptr, kind: c_int, order: c_int,
    ) {
        let (pointers, types) = ([0, 0, values as usize], [0, 0, kind]);
        // SAFETY: as above.
        unsafe { create(out, Descriptor { rows, columns, elements: ld, pointers, types, order, ..EMPTY }) }
    }
    /// A dense vector.
    [cusparseCreateDnVec cusparseCreateConstDnVec]
        (out: Out, size: i64, values: Ptr, kind: c_int) {
        let (pointers, types) = ([0, 0, values as usize], [0, 0, kind]);
        // SAFETY: as above.
        unsafe { create(out, Descriptor { rows: size, columns: 1, elements: size, pointers, types, ..EMPTY }) }
    }
    /// Ends a descriptor.
    [cusparseDestroySpMat cusparseDestroySpVec cusparseDestroyDnMat cusparseDestroyDnVec]
        (address: Ptr) {
        // SAFETY: cuSPARSE's contract is that of `destroy`.
        unsafe { destroy(address) }
    }
    /// Everything about a matrix that is compressed by rows or by columns.
    [cusparseCsrGet cusparseConstCsrGet cusparseCscGet cusparseConstCscGet]
        (
        address: Ptr, rows: *mut i64, columns: *mut i64, elements: *mut i64, offsets: Out, indices: Out, values: Out,
        offsets_type: *mut c_int, indices_type: *mut c_int, base: *mut c_int, kind: *mut c_int,
    ) {
        // SAFETY: cuSPARSE's contract: a descriptor, and out-parameters that may be written.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            put_sizes(known, rows, columns, elements);
            let [first, second, third] = known.pointers.map(|pointer| pointer as *mut c_void);
            put(offsets, first);
            put(indices, second);
            put(values, third);
            let [first, second, third] = known.types;
            put(offsets_type, first);
            put(indices_type, second);
            put(base, known.base);
            put(kind, third);
        }
        SUCCESS
    }
    /// Everything about a matrix by coordinates.
    [cusparseCooGet cusparseConstCooGet]
        (
        address: Ptr, rows: *mut i64, columns: *mut i64, elements: *mut i64, row_indices: Out, column_indices: Out,
        values: Out, index: *mut c_int, base: *mut c_int, kind: *mut c_int,
    ) {
        // SAFETY: as above.
        unsafe {
            let second = ptr::null_mut();
            cusparseCsrGet(
                address, rows, columns, elements, row_indices, column_indices, values, index, second, base, kind,
            )
        }
    }
    /// Everything about a sparse vector.
    [cusparseSpVecGet cusparseConstSpVecGet]
        (
        address: Ptr, size: *mut i64, elements: *mut i64, indices: Out, values: Out, index: *mut c_int,
        base: *mut c_int, kind: *mut c_int,
    ) {
        // SAFETY: as above.
        unsafe {
            let (columns, offsets, indices_type) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            cusparseCsrGet(address, size, columns, elements, offsets, indices, values, index, indices_type, base, kind)
        }
    }
    /// Everything about a dense matrix.
    [cusparseDnMatGet cusparseConstDnMatGet]
        (
        address: Ptr, rows: *mut i64, columns: *mut i64, ld: *mut i64, values: Out, kind: *mut c_int, order: *mut c_int,
    ) {
        // SAFETY: as above.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            put_sizes(known, rows, columns, ld);
            let ([.., pointer], [.., of]) = (known.pointers, known.types);
            put(values, pointer as *mut c_void);
            put(kind, of);
            put(order, known.order);
        }
        SUCCESS
    }
    /// Everything about a dense vector.
    [cusparseDnVecGet cusparseConstDnVecGet]
        (address: Ptr, size: *mut i64, values: Out, kind: *mut c_int) {
        // SAFETY: as above.
        unsafe { cusparseDnMatGet(address, size, ptr::null_mut(), ptr::null_mut(), values, kind, ptr::null_mut()) }
    }
    /// The values of anything.
    [cusparseSpMatGetValues cusparseConstSpMatGetValues cusparseSpVecGetValues cusparseConstSpVecGetValues
     cusparseDnMatGetValues cusparseConstDnMatGetValues cusparseDnVecGetValues cusparseConstDnVecGetValues]
        (
        address: Ptr, values: Out,
    ) {
        // SAFETY: as above.
        unsafe {
            let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
            cusparseDnMatGet(address, none, none, none, values, nothing, nothing)
        }
    }
    /// Other values for anything.
    [cusparseSpMatSetValues cusparseSpVecSetValues cusparseDnMatSetValues cusparseDnVecSetValues]
        (
        address: Ptr, values: Ptr,
    ) {
        // SAFETY: cuSPARSE's contract is that of `get`.
        let Some(known) = (unsafe { get(address) }) else { return INVALID_VALUE };
        let [.., place] = &mut known.pointers;
        *place = values as usize;
        SUCCESS
    }
    /// Other arrays for a sparse matrix.
    [cusparseCsrSetPointers cusparseCscSetPointers cusparseCooSetPointers]
        (
        address: Ptr, offsets: Ptr, indices: Ptr, values: Ptr,
    ) {
        // SAFETY: as above.
        let Some(known) = (unsafe { get(address) }) else { return INVALID_VALUE };
        known.pointers = [offsets as usize, indices as usize, values as usize];
        SUCCESS
    }
    /// The size of a sparse matrix.
    [cusparseSpMatGetSize]
        (address: Ptr, rows: *mut i64, columns: *mut i64, elements: *mut i64) {
        // SAFETY: cuSPARSE's contract: a descriptor, and out-parameters that may be written.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            put_sizes(known, rows, columns, elements);
        }
        SUCCESS
    }
    /// The format of a sparse matrix.
    [cusparseSpMatGetFormat]
        (address: Ptr, format: *mut c_int) {
        // SAFETY: as above.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            put(format, known.format);
        }
        SUCCESS
    }
    /// The number of the first index.
    [cusparseSpMatGetIndexBase cusparseSpVecGetIndexBase]
        (address: Ptr, base: *mut c_int) {
        // SAFETY: as above.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            put(base, known.base);
        }
        SUCCESS
    }
    /// How many matrices there are one after the other.
    [cusparseSpMatSetStridedBatch]
        (address: Ptr, batches: c_int) {
        // SAFETY: as above.
        unsafe { set_batches(address, batches, 0) }
    }
    [cusparseDnMatSetStridedBatch cusparseCooSetStridedBatch]
        (address: Ptr, batches: c_int, stride: i64) {
        // SAFETY: as above.
        unsafe { set_batches(address, batches, stride) }
    }
    [cusparseCsrSetStridedBatch]
        (address: Ptr, batches: c_int, _offsets: i64, stride: i64) {
        // SAFETY: as above.
        unsafe { set_batches(address, batches, stride) }
    }
    [cusparseBsrSetStridedBatch]
        (address: Ptr, batches: c_int, _offsets: i64, _indices: i64, stride: i64) {
        // SAFETY: as above.
        unsafe { set_batches(address, batches, stride) }
    }
    [cusparseSpMatGetStridedBatch]
        (address: Ptr, batches: *mut c_int) {
        // SAFETY: as above.
        unsafe { cusparseDnMatGetStridedBatch(address, batches, ptr::null_mut()) }
    }
    [cusparseDnMatGetStridedBatch]
        (address: Ptr, batches: *mut c_int, stride: *mut i64) {
        // SAFETY: as above.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            put(batches, known.batches);
            put(stride, known.batch_stride);
        }
        SUCCESS
    }
    /// The fill mode (0) or the kind of diagonal (1) of a triangular matrix.
    [cusparseSpMatSetAttribute]
        (address: Ptr, number: c_int, from: *const c_int, size: usize) {
        // SAFETY: cuSPARSE's contract: a descriptor, and `size` bytes to read.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            let Some(place) = usize::try_from(number).ok().and_then(|at| known.attributes.get_mut(at)) else {
                return INVALID_VALUE;
            };
            if from.is_null() || size < size_of::<c_int>() {
                return INVALID_VALUE;
            }
            *place = from.read_unaligned();
        }
        SUCCESS
    }
    [cusparseSpMatGetAttribute]
        (address: Ptr, number: c_int, to: *mut c_int, size: usize) {
        // SAFETY: cuSPARSE's contract: a descriptor, and `size` bytes to write.
        unsafe {
            let Some(known) = get(address) else { return INVALID_VALUE };
            let Some(value) = usize::try_from(number).ok().and_then(|at| known.attributes.get(at)) else {
                return INVALID_VALUE;
            };
            if size < size_of::<c_int>() {
                return INVALID_VALUE;
            }
            put(to, *value);
        }
        SUCCESS
    }
}

unsafe fn put_sizes(known: &Descriptor, rows: *mut i64, columns: *mut i64, elements: *mut i64) {
    // SAFETY: the caller's promise: out-parameters that may be written.
    unsafe {
        put(rows, known.rows);
        put(columns, known.columns);
        put(elements, known.elements);
    }
}

unsafe fn set_batches(address: *mut c_void, batches: c_int, stride: i64) -> u32 {
    // SAFETY: cuSPARSE's contract is that of `get`.
    let Some(known) = (unsafe { get(address) }) else { return INVALID_VALUE };
    known.batches = batches;
    known.batch_stride = stride;
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cusparse::cusparseSpMV_bufferSize;

    #[test]
    fn a_matrix_answers_with_what_was_put_in_it() {
        let mut at = ptr::null_mut();
        let (mut rows, mut columns, mut elements, mut format) = (0, 0, 0, 0);
        let mut values = ptr::null_mut();
        let pointer = |number: usize| number as *mut c_void;
        // SAFETY: the out-parameters are local variables; the descriptor is destroyed last; its arrays are not used.
        unsafe {
            let none = ptr::null_mut();
            assert_eq!(
                cusparseCreateCsr(&raw mut at, 3, 4, 5, pointer(16), pointer(32), pointer(48), 2, 2, 0, 0),
                SUCCESS
            );
            assert_eq!(cusparseSpMatGetSize(at, &raw mut rows, &raw mut columns, &raw mut elements), SUCCESS);
            assert_eq!((rows, columns, elements), (3, 4, 5));
            assert_eq!(cusparseSpMatGetFormat(at, &raw mut format), SUCCESS);
            assert_eq!(format, 1);
            assert_eq!(cusparseSpMatGetValues(at, &raw mut values), SUCCESS);
            assert_eq!(values as usize, 48);
            assert_eq!(cusparseSpMatGetValues(none, &raw mut values), INVALID_VALUE);
            let mut bytes = 0;
            assert_eq!(cusparseSpMV_bufferSize(none, 0, none, at, none, none, none, 0, 0, &raw mut bytes), SUCCESS);
            assert_eq!(bytes, 16);
            assert_eq!(cusparseDestroySpMat(at), SUCCESS);
            assert_eq!(cusparseCreateDnVec(&raw mut at, -1, none, 0), INVALID_VALUE);
        }
    }
}

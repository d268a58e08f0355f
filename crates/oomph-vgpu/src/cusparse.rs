//! cuSPARSE: descriptors that answer with what was put in them, and the sizes of buffers.
//!
//! **Model of the buffers.** cuSPARSE documents no sizes. A product with a dense matrix or vector takes an index for each
//! row, by which its work is divided; a triangular solve two indices for each row and each element; a sort the
//! keys and the permutation twice. They are small beside the operands, and were not compared with the library.
//!
//! **Sizes that depend on values.** How many elements the product or the sum of two sparse matrices has is known only
//! when it is computed, which it never is. The product is given as many elements as it has terms when the second
//! factor's elements are spread evenly over its rows, the sum as many as both together; the report is told.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::cublas::versions::{library_version, property, put};
use crate::{device, trace};

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 3;

library_version!("libcusparse.so.", c"cusparseGetProperty", [11, 7, 5], [12, 5, 10], [12, 9, 4]);

const MAGIC: u64 = 0x6f6f_6d70_6873_7061;

/// A matrix or a vector, sparse or dense. Only the fields of its kind are used.
#[derive(Clone, Debug, Default)]
struct Descriptor {
    magic: u64,
    /// `cusparseFormat_t`, 0 for what has none.
    format: c_int,
    rows: i64,
    columns: i64,
    /// Elements of what is sparse; the leading dimension of a dense matrix.
    elements: i64,
    /// Row offsets or row indices, column indices, values; a dense one has only values.
    pointers: [usize; 3],
    /// Types of the offsets, of the indices and of the values.
    types: [c_int; 3],
    base: c_int,
    order: c_int,
    batches: c_int,
    batch_stride: i64,
    /// Fill mode and kind of the diagonal.
    attributes: [c_int; 2],
}

/// The descriptor at an address.
///
/// # Safety
/// `address` is null or was handed out here and not destroyed, and nobody else uses it meanwhile: cuSPARSE leaves the
/// sharing of descriptors to the program.
unsafe fn get<'a>(address: *mut c_void) -> Option<&'a mut Descriptor> {
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
    let made = Box::into_raw(Box::new(Descriptor { magic: MAGIC, batches: 1, ..descriptor }));
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
    (@each [$($name:ident)+] $docs:tt $parameters:tt $body:block) => { $(named!(@one $name $docs $parameters $body);)+ };
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
        unsafe { create(out, Descriptor { format: 1, rows, columns, elements, pointers, types, base, ..Descriptor::default() }) }
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
        unsafe { create(out, Descriptor { format: 2, rows, columns, elements, pointers, types, base, ..Descriptor::default() }) }
    }
    /// A matrix by coordinates.
    [cusparseCreateCoo cusparseCreateConstCoo]
        (
        out: Out, rows: i64, columns: i64, elements: i64, row_indices: Ptr, column_indices: Ptr, values: Ptr, index: c_int,
        base: c_int, kind: c_int,
    ) {
        let pointers = [row_indices as usize, column_indices as usize, values as usize];
        let types = [index, index, kind];
        // SAFETY: as above.
        unsafe { create(out, Descriptor { format: 3, rows, columns, elements, pointers, types, base, ..Descriptor::default() }) }
    }
    /// A matrix of blocks by rows. Its sizes are counted in blocks.
    [cusparseCreateBsr cusparseCreateConstBsr]
        (
        out: Out, rows: i64, columns: i64, elements: i64, _row_block: i64, _column_block: i64, offsets: Ptr, indices: Ptr,
        values: Ptr, offsets_type: c_int, indices_type: c_int, base: c_int, kind: c_int, order: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        // SAFETY: as above.
        unsafe {
            create(out, Descriptor { format: 6, rows, columns, elements, pointers, types, base, order, ..Descriptor::default() })
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
        unsafe { create(out, Descriptor { format: 5, rows, columns, elements, pointers, types, base, ..Descriptor::default() }) }
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
        unsafe { create(out, Descriptor { format: 7, rows, columns, elements, pointers, types, base, ..Descriptor::default() }) }
    }
    /// A sparse vector.
    [cusparseCreateSpVec cusparseCreateConstSpVec]
        (
        out: Out, size: i64, elements: i64, indices: Ptr, values: Ptr, index: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [0, indices as usize, values as usize];
        let types = [index, index, kind];
        // SAFETY: as above.
        unsafe { create(out, Descriptor { rows: size, columns: 1, elements, pointers, types, base, ..Descriptor::default() }) }
    }
    /// A dense matrix.
    [cusparseCreateDnMat cusparseCreateConstDnMat]
        (
        out: Out, rows: i64, columns: i64, ld: i64, values: Ptr, kind: c_int, order: c_int,
    ) {
        let (pointers, types) = ([0, 0, values as usize], [0, 0, kind]);
        // SAFETY: as above.
        unsafe { create(out, Descriptor { rows, columns, elements: ld, pointers, types, order, ..Descriptor::default() }) }
    }
    /// A dense vector.
    [cusparseCreateDnVec cusparseCreateConstDnVec]
        (out: Out, size: i64, values: Ptr, kind: c_int) {
        let (pointers, types) = ([0, 0, values as usize], [0, 0, kind]);
        // SAFETY: as above.
        unsafe { create(out, Descriptor { rows: size, columns: 1, elements: size, pointers, types, ..Descriptor::default() }) }
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
        unsafe { cusparseCsrGet(address, rows, columns, elements, row_indices, column_indices, values, index, ptr::null_mut(), base, kind) }
    }
    /// Everything about a sparse vector.
    [cusparseSpVecGet cusparseConstSpVecGet]
        (
        address: Ptr, size: *mut i64, elements: *mut i64, indices: Out, values: Out, index: *mut c_int, base: *mut c_int,
        kind: *mut c_int,
    ) {
        // SAFETY: as above.
        unsafe {
            cusparseCsrGet(
                address, size, ptr::null_mut(), elements, ptr::null_mut(), indices, values, index, ptr::null_mut(), base, kind,
            )
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
        unsafe { cusparseDnMatGet(address, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), values, ptr::null_mut(), ptr::null_mut()) }
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
            let Some(place) = usize::try_from(number).ok().and_then(|at| known.attributes.get_mut(at)) else { return INVALID_VALUE };
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
            let Some(value) = usize::try_from(number).ok().and_then(|at| known.attributes.get(at)) else { return INVALID_VALUE };
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

/// Bytes of an index by its `cusparseIndexType_t`.
fn index_bytes(kind: c_int) -> i64 {
    match kind {
        1 => 2,
        3 => 8,
        _ => 4,
    }
}

/// Bytes of a value by its `cudaDataType`.
fn value_bytes(kind: c_int) -> i64 {
    match kind {
        3 | 8 => 1,
        2 | 14 => 2,
        1 | 4 => 8,
        5 => 16,
        _ => 4,
    }
}

impl Descriptor {
    fn index_bytes(&self) -> i64 {
        let [offsets, indices, _] = self.types;
        index_bytes(offsets).max(index_bytes(indices))
    }

    fn value_bytes(&self) -> i64 {
        let [.., values] = self.types;
        value_bytes(values)
    }

    /// An index for each row.
    fn rows_buffer(&self) -> i64 {
        self.rows.saturating_add(1).saturating_mul(self.index_bytes())
    }

    /// Two indices for each row and each element.
    fn solve_buffer(&self) -> i64 {
        self.rows.saturating_add(self.elements).saturating_mul(2 * self.index_bytes())
    }
}

/// The terms of a product if the second factor's elements are spread evenly over its rows.
fn products(first: &Descriptor, second: &Descriptor) -> i64 {
    if second.rows <= 0 {
        return 0;
    }
    let terms = i128::from(first.elements) * i128::from(second.elements) / i128::from(second.rows);
    i64::try_from(terms).unwrap_or(i64::MAX)
}

/// Writes a number of bytes.
unsafe fn put_bytes(to: *mut usize, bytes: i64) {
    // SAFETY: the caller's promise: an out-parameter that may be written.
    unsafe { put(to, usize::try_from(bytes).unwrap_or(0)) };
}

/// Defines functions that write the size of a buffer for a sparse matrix among their parameters.
macro_rules! buffers {
    ($($name:ident($($parameter:ident: $kind:ty),*) of $matrix:ident to $size:ident = $bytes:expr;)*) => {$(
        /// The size of a buffer.
        pub unsafe fn $name(_handle: *mut c_void, $($parameter: $kind),*) -> u32 {
            let bytes: fn(&Descriptor) -> i64 = $bytes;
            // SAFETY: cuSPARSE's contract: a descriptor, and an out-parameter that may be written.
            unsafe {
                let Some(known) = get($matrix) else { return INVALID_VALUE };
                put_bytes($size, bytes(known));
            }
            SUCCESS
        }
    )*};
}
type Size = *mut usize;
buffers! {
    cusparseSpMV_bufferSize(_op: c_int, _alpha: Ptr, a: Ptr, _x: Ptr, _beta: Ptr, _y: Ptr, _compute: c_int, _alg: c_int, size: Size)
        of a to size = Descriptor::rows_buffer;
    cusparseSpMM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, a: Ptr, _b: Ptr, _beta: Ptr, _c: Ptr, _compute: c_int, _alg: c_int, size: Size
    ) of a to size = Descriptor::rows_buffer;
    cusparseSDDMM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, _a: Ptr, _b: Ptr, _beta: Ptr, c: Ptr, _compute: c_int, _alg: c_int, size: Size
    ) of c to size = Descriptor::rows_buffer;
    cusparseSpSV_bufferSize(
        _op: c_int, _alpha: Ptr, a: Ptr, _x: Ptr, _y: Ptr, _compute: c_int, _alg: c_int, _descriptor: Ptr, size: Size
    ) of a to size = Descriptor::solve_buffer;
    cusparseSpSM_bufferSize(
        _op_a: c_int, _op_b: c_int, _alpha: Ptr, a: Ptr, _b: Ptr, _c: Ptr, _compute: c_int, _alg: c_int, _descriptor: Ptr, size: Size
    ) of a to size = Descriptor::solve_buffer;
    cusparseSparseToDense_bufferSize(a: Ptr, _b: Ptr, _alg: c_int, size: Size) of a to size = |_| 0;
    cusparseDenseToSparse_bufferSize(_a: Ptr, b: Ptr, _alg: c_int, size: Size) of b to size = Descriptor::rows_buffer;
}

/// Defines the sizes of sorts: keys and permutation, twice.
macro_rules! sorts {
    ($($name:ident)*) => {$(
        /// The size of a sort's buffer.
        pub unsafe fn $name(
            _handle: *mut c_void, _m: c_int, _n: c_int, elements: c_int, _first: Ptr, _second: Ptr, size: Size,
        ) -> u32 {
            // SAFETY: cuSPARSE's contract: an out-parameter that may be written.
            unsafe { put_bytes(size, i64::from(elements.max(0)) * 16) };
            SUCCESS
        }
    )*};
}
sorts! { cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt cusparseXcscsort_bufferSizeExt }

/// The first step of a product: without a buffer it says how large one must be.
pub unsafe fn cusparseSpGEMM_workEstimation(
    _handle: *mut c_void,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: Ptr,
    a: Ptr,
    b: Ptr,
    _beta: Ptr,
    _c: Ptr,
    _compute: c_int,
    _alg: c_int,
    descriptor: Ptr,
    size: Size,
    buffer: Ptr,
) -> u32 {
    // SAFETY: cuSPARSE's contract: descriptors, one of which `createDescr` made, and an out-parameter.
    unsafe {
        let (Some(a), Some(b)) = (get(a).cloned(), get(b).cloned()) else { return INVALID_VALUE };
        put(descriptor.cast::<i64>(), products(&a, &b));
        if buffer.is_null() {
            put_bytes(size, a.rows.saturating_add(a.elements).saturating_mul(8));
        }
    }
    SUCCESS
}

/// How many terms the product has.
pub unsafe fn cusparseSpGEMM_getNumProducts(descriptor: Ptr, count: *mut i64) -> u32 {
    if descriptor.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: cuSPARSE's contract: what `createDescr` made, and an out-parameter that may be written.
    unsafe { put(count, descriptor.cast::<i64>().read_unaligned()) };
    SUCCESS
}

/// The second step: the terms before they are added up. From here on the product has a number of elements.
pub unsafe fn cusparseSpGEMM_compute(
    _handle: *mut c_void,
    _op_a: c_int,
    _op_b: c_int,
    _alpha: Ptr,
    a: Ptr,
    b: Ptr,
    _beta: Ptr,
    c: Ptr,
    _compute: c_int,
    _alg: c_int,
    _descriptor: Ptr,
    size: Size,
    buffer: Ptr,
) -> u32 {
    // SAFETY: as above.
    unsafe {
        let (Some(a), Some(b)) = (get(a).cloned(), get(b).cloned()) else { return INVALID_VALUE };
        let Some(c) = get(c) else { return INVALID_VALUE };
        let terms = products(&a, &b);
        if buffer.is_null() {
            put_bytes(size, terms.saturating_mul(a.index_bytes().saturating_add(a.value_bytes())));
        } else {
            c.elements = terms.min(c.rows.saturating_mul(c.columns));
            guessed();
        }
    }
    SUCCESS
}

/// The sum's elements: both matrices' together, at most all there can be.
pub unsafe fn cusparseXcsrgeam2Nnz(
    _handle: *mut c_void,
    m: c_int,
    n: c_int,
    _a: Ptr,
    a_elements: c_int,
    _a_offsets: Ptr,
    _a_indices: Ptr,
    _b: Ptr,
    b_elements: c_int,
    _b_offsets: Ptr,
    _b_indices: Ptr,
    _c: Ptr,
    _c_offsets: Ptr,
    total: *mut c_int,
    _workspace: Ptr,
) -> u32 {
    let most = i64::from(m.max(0)) * i64::from(n.max(0));
    let elements = (i64::from(a_elements) + i64::from(b_elements)).min(most);
    // SAFETY: cuSPARSE's contract: an out-parameter on the host or on the device, which is host memory here.
    unsafe { put(total, c_int::try_from(elements).unwrap_or(c_int::MAX)) };
    guessed();
    SUCCESS
}

fn guessed() {
    trace::warn(
        "The size of a sum or product of sparse matrices depends on values that were not computed; it was estimated.",
    );
}

/// Makes a handle. What the library allocates for one is not documented, so nothing is charged.
pub unsafe fn cusparseCreate(out: *mut *mut c_void) -> u32 {
    if device::activate_current().is_err() {
        return NOT_INITIALIZED;
    }
    // SAFETY: cuSPARSE's contract: an out-parameter that may be written.
    unsafe { put(out, crate::handle::fresh()) };
    SUCCESS
}

/// The version in one number: 12510 for 12.5.10.
pub unsafe fn cusparseGetVersion(_handle: *mut c_void, value: *mut c_int) -> u32 {
    let [major, minor, patch] = version();
    // SAFETY: cuSPARSE's contract: an out-parameter that may be written.
    unsafe { put(value, major * 1000 + minor * 100 + patch) };
    SUCCESS
}

/// One part of the version.
pub unsafe fn cusparseGetProperty(kind: c_int, value: *mut c_int) -> u32 {
    let Some(part) = property(version(), kind) else { return INVALID_VALUE };
    // SAFETY: as above.
    unsafe { put(value, part) };
    SUCCESS
}

/// The name of a status.
pub unsafe fn cusparseGetErrorName(status: c_int) -> *const c_char {
    let name = match status {
        0 => c"CUSPARSE_STATUS_SUCCESS",
        1 => c"CUSPARSE_STATUS_NOT_INITIALIZED",
        2 => c"CUSPARSE_STATUS_ALLOC_FAILED",
        3 => c"CUSPARSE_STATUS_INVALID_VALUE",
        10 => c"CUSPARSE_STATUS_NOT_SUPPORTED",
        11 => c"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
        _ => c"CUSPARSE_STATUS_INTERNAL_ERROR",
    };
    name.as_ptr()
}

/// What a status means.
pub unsafe fn cusparseGetErrorString(status: c_int) -> *const c_char {
    let text = match status {
        0 => c"success",
        1 => c"initialization error",
        2 => c"out of memory",
        3 => c"invalid value",
        10 => c"operation not supported",
        11 => c"insufficient resources",
        _ => c"internal error",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_answers_with_what_was_put_in_it() {
        let mut at = ptr::null_mut();
        let (mut rows, mut columns, mut elements, mut format) = (0, 0, 0, 0);
        let mut values = ptr::null_mut();
        let pointer = |number: usize| number as *mut c_void;
        // SAFETY: the out-parameters are local variables, and the descriptor is destroyed last; its arrays are not used.
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

    #[test]
    fn the_terms_of_a_product_are_counted_evenly() {
        let matrix = |rows, elements| Descriptor { rows, elements, ..Descriptor::default() };
        assert_eq!(products(&matrix(10, 50), &matrix(20, 60)), 150);
        assert_eq!(products(&matrix(10, 50), &matrix(0, 0)), 0);
        assert_eq!(products(&matrix(10, i64::MAX), &matrix(1, i64::MAX)), i64::MAX);
    }
}

//! Descriptors of matrices and vectors, which answer with what was put in them.

use std::ffi::{c_int, c_void};

use crate::boundary::{self, Handle, In, Object, Room, hand_out};
use crate::cusparse::CusparseStatus;

const MAGIC: u64 = 0x6f6f_6d70_6873_7061;

/// A matrix or a vector, sparse or dense. Only the fields of its kind are used.
#[derive(Clone, Debug)]
pub struct Descriptor {
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

// SAFETY: cuSPARSE leaves the sharing of descriptors to the program, and the mark is written only when one is given up.
unsafe impl Object for Descriptor {
    fn is_live(&self) -> bool {
        self.magic == MAGIC
    }
}

/// The descriptor of a handle, or what cuSPARSE answers to others.
pub(super) fn known<'a>(handle: &'a Handle<'_, Descriptor>) -> Result<&'a Descriptor, CusparseStatus> {
    handle.get().ok_or(CusparseStatus::INVALID_VALUE)
}

/// The descriptor of a handle, to be changed.
pub(super) fn change<'a>(handle: &'a mut Handle<'_, Descriptor>) -> Result<&'a mut Descriptor, CusparseStatus> {
    handle.edit().ok_or(CusparseStatus::INVALID_VALUE)
}

/// Makes a descriptor and writes its address.
fn create(out: Out<'_>, descriptor: Descriptor) -> Result<(), CusparseStatus> {
    if out.is_null() || descriptor.rows < 0 || descriptor.columns < 0 || descriptor.elements < 0 {
        return Err(CusparseStatus::INVALID_VALUE);
    }
    out.set(hand_out(descriptor));
    Ok(())
}

fn destroy(handle: Handle<'_, Descriptor>) -> Result<(), CusparseStatus> {
    if handle.is_null() {
        return Ok(());
    }
    handle.take().ok_or(CusparseStatus::INVALID_VALUE)?.magic = 0;
    Ok(())
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
        pub fn $name($($parameter: $kind),*) -> Result<(), CusparseStatus> $body
    };
}

type Out<'a> = boundary::Out<'a, *mut c_void>;
type Number<'a> = boundary::Out<'a, c_int>;
type Size<'a> = boundary::Out<'a, i64>;
type Known<'a> = Handle<'a, Descriptor>;
type Ptr = *mut c_void;

named! {
    /// A matrix by rows, compressed.
    [cusparseCreateCsr cusparseCreateConstCsr]
        (
        out: Out<'_>, rows: i64, columns: i64, elements: i64, offsets: Ptr, indices: Ptr, values: Ptr, offsets_type: c_int,
        indices_type: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        create(out, Descriptor { format: 1, rows, columns, elements, pointers, types, base, ..EMPTY })
    }
    /// A matrix by columns, compressed.
    [cusparseCreateCsc cusparseCreateConstCsc]
        (
        out: Out<'_>, rows: i64, columns: i64, elements: i64, offsets: Ptr, indices: Ptr, values: Ptr, offsets_type: c_int,
        indices_type: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        create(out, Descriptor { format: 2, rows, columns, elements, pointers, types, base, ..EMPTY })
    }
    /// A matrix by coordinates.
    [cusparseCreateCoo cusparseCreateConstCoo]
        (
        out: Out<'_>, rows: i64, columns: i64, elements: i64, row_indices: Ptr, column_indices: Ptr, values: Ptr,
        index: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [row_indices as usize, column_indices as usize, values as usize];
        let types = [index, index, kind];
        create(out, Descriptor { format: 3, rows, columns, elements, pointers, types, base, ..EMPTY })
    }
    /// A matrix of blocks by rows. Its sizes are counted in blocks.
    [cusparseCreateBsr cusparseCreateConstBsr]
        (
        out: Out<'_>, rows: i64, columns: i64, elements: i64, _row_block: i64, _column_block: i64, offsets: Ptr,
        indices: Ptr, values: Ptr, offsets_type: c_int, indices_type: c_int, base: c_int, kind: c_int, order: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        create(out, Descriptor { format: 6, rows, columns, elements, pointers, types, base, order, ..EMPTY })
    }
    /// A matrix of blocks with as many in every row.
    [cusparseCreateBlockedEll cusparseCreateConstBlockedEll]
        (
        out: Out<'_>, rows: i64, columns: i64, _size: i64, ell_columns: i64, indices: Ptr, values: Ptr, index: c_int,
        base: c_int, kind: c_int,
    ) {
        let pointers = [0, indices as usize, values as usize];
        let types = [index, index, kind];
        let elements = rows.saturating_mul(ell_columns);
        create(out, Descriptor { format: 5, rows, columns, elements, pointers, types, base, ..EMPTY })
    }
    /// A matrix of slices.
    [cusparseCreateSlicedEll cusparseCreateConstSlicedEll]
        (
        out: Out<'_>, rows: i64, columns: i64, elements: i64, _stored: i64, _slice: i64, offsets: Ptr, indices: Ptr,
        values: Ptr, offsets_type: c_int, indices_type: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [offsets as usize, indices as usize, values as usize];
        let types = [offsets_type, indices_type, kind];
        create(out, Descriptor { format: 7, rows, columns, elements, pointers, types, base, ..EMPTY })
    }
    /// A sparse vector.
    [cusparseCreateSpVec cusparseCreateConstSpVec]
        (
        out: Out<'_>, size: i64, elements: i64, indices: Ptr, values: Ptr, index: c_int, base: c_int, kind: c_int,
    ) {
        let pointers = [0, indices as usize, values as usize];
        let types = [index, index, kind];
        create(out, Descriptor { rows: size, columns: 1, elements, pointers, types, base, ..EMPTY })
    }
    /// A dense matrix.
    [cusparseCreateDnMat cusparseCreateConstDnMat]
        (
        out: Out<'_>, rows: i64, columns: i64, ld: i64, values: Ptr, kind: c_int, order: c_int,
    ) {
        let (pointers, types) = ([0, 0, values as usize], [0, 0, kind]);
        create(out, Descriptor { rows, columns, elements: ld, pointers, types, order, ..EMPTY })
    }
    /// A dense vector.
    [cusparseCreateDnVec cusparseCreateConstDnVec]
        (out: Out<'_>, size: i64, values: Ptr, kind: c_int) {
        let (pointers, types) = ([0, 0, values as usize], [0, 0, kind]);
        create(out, Descriptor { rows: size, columns: 1, elements: size, pointers, types, ..EMPTY })
    }
    /// Ends a descriptor.
    [cusparseDestroySpMat cusparseDestroySpVec cusparseDestroyDnMat cusparseDestroyDnVec]
        (handle: Known<'_>) {
        destroy(handle)
    }
    /// Everything about a matrix that is compressed by rows or by columns.
    [cusparseCsrGet cusparseConstCsrGet cusparseCscGet cusparseConstCscGet]
        (
        handle: Known<'_>, rows: Size<'_>, columns: Size<'_>, elements: Size<'_>, offsets: Out<'_>, indices: Out<'_>, values: Out<'_>,
        offsets_type: Number<'_>, indices_type: Number<'_>, base: Number<'_>, kind: Number<'_>,
    ) {
            let known = known(&handle)?;
            put_sizes(known, rows, columns, elements);
            let [first, second, third] = known.pointers.map(|pointer| pointer as *mut c_void);
            offsets.set(first);
            indices.set(second);
            values.set(third);
            let [first, second, third] = known.types;
            offsets_type.set(first);
            indices_type.set(second);
            base.set(known.base);
            kind.set(third);
        Ok(())
    }
    /// Everything about a matrix by coordinates.
    [cusparseCooGet cusparseConstCooGet]
        (
        handle: Known<'_>, rows: Size<'_>, columns: Size<'_>, elements: Size<'_>, row_indices: Out<'_>, column_indices: Out<'_>,
        values: Out<'_>, index: Number<'_>, base: Number<'_>, kind: Number<'_>,
    ) {
            let second = boundary::Out::null();
            cusparseCsrGet(
                handle, rows, columns, elements, row_indices, column_indices, values, index, second, base, kind,
            )
    }
    /// Everything about a sparse vector.
    [cusparseSpVecGet cusparseConstSpVecGet]
        (
        handle: Known<'_>, size: Size<'_>, elements: Size<'_>, indices: Out<'_>, values: Out<'_>, index: Number<'_>,
        base: Number<'_>, kind: Number<'_>,
    ) {
            let (columns, offsets, indices_type) = (boundary::Out::null(), boundary::Out::null(), boundary::Out::null());
            cusparseCsrGet(handle, size, columns, elements, offsets, indices, values, index, indices_type, base, kind)
    }
    /// Everything about a dense matrix.
    [cusparseDnMatGet cusparseConstDnMatGet]
        (
        handle: Known<'_>, rows: Size<'_>, columns: Size<'_>, ld: Size<'_>, values: Out<'_>, kind: Number<'_>, order: Number<'_>,
    ) {
            let known = known(&handle)?;
            put_sizes(known, rows, columns, ld);
            let ([.., pointer], [.., of]) = (known.pointers, known.types);
            values.set(pointer as *mut c_void);
            kind.set(of);
            order.set(known.order);
        Ok(())
    }
    /// Everything about a dense vector.
    [cusparseDnVecGet cusparseConstDnVecGet]
        (handle: Known<'_>, size: Size<'_>, values: Out<'_>, kind: Number<'_>) {
        let none = boundary::Out::null();
        cusparseDnMatGet(handle, size, none, none, values, kind, boundary::Out::null())
    }
    /// The values of anything.
    [cusparseSpMatGetValues cusparseConstSpMatGetValues cusparseSpVecGetValues cusparseConstSpVecGetValues
     cusparseDnMatGetValues cusparseConstDnMatGetValues cusparseDnVecGetValues cusparseConstDnVecGetValues]
        (
        handle: Known<'_>, values: Out<'_>,
    ) {
            let (none, nothing) = (boundary::Out::null(), boundary::Out::null());
            cusparseDnMatGet(handle, none, none, none, values, nothing, nothing)
    }
    /// Other values for anything.
    [cusparseSpMatSetValues cusparseSpVecSetValues cusparseDnMatSetValues cusparseDnVecSetValues]
        (
        handle: Known<'_>, values: Ptr,
    ) {
        let mut handle = handle;
        let known = change(&mut handle)?;
        let [.., place] = &mut known.pointers;
        *place = values as usize;
        Ok(())
    }
    /// Other arrays for a sparse matrix.
    [cusparseCsrSetPointers cusparseCscSetPointers cusparseCooSetPointers]
        (
        handle: Known<'_>, offsets: Ptr, indices: Ptr, values: Ptr,
    ) {
        let mut handle = handle;
        let known = change(&mut handle)?;
        known.pointers = [offsets as usize, indices as usize, values as usize];
        Ok(())
    }
    /// The size of a sparse matrix.
    [cusparseSpMatGetSize]
        (handle: Known<'_>, rows: Size<'_>, columns: Size<'_>, elements: Size<'_>) {
            let known = known(&handle)?;
            put_sizes(known, rows, columns, elements);
        Ok(())
    }
    /// The format of a sparse matrix.
    [cusparseSpMatGetFormat]
        (handle: Known<'_>, format: Number<'_>) {
            let known = known(&handle)?;
            format.set(known.format);
        Ok(())
    }
    /// The number of the first index.
    [cusparseSpMatGetIndexBase cusparseSpVecGetIndexBase]
        (handle: Known<'_>, base: Number<'_>) {
            let known = known(&handle)?;
            base.set(known.base);
        Ok(())
    }
    /// How many matrices there are one after the other.
    [cusparseSpMatSetStridedBatch]
        (handle: Known<'_>, batches: c_int) {
        set_batches(handle, batches, 0)
    }
    [cusparseDnMatSetStridedBatch cusparseCooSetStridedBatch]
        (handle: Known<'_>, batches: c_int, stride: i64) {
        set_batches(handle, batches, stride)
    }
    [cusparseCsrSetStridedBatch]
        (handle: Known<'_>, batches: c_int, _offsets: i64, stride: i64) {
        set_batches(handle, batches, stride)
    }
    [cusparseBsrSetStridedBatch]
        (handle: Known<'_>, batches: c_int, _offsets: i64, _indices: i64, stride: i64) {
        set_batches(handle, batches, stride)
    }
    [cusparseSpMatGetStridedBatch]
        (handle: Known<'_>, batches: Number<'_>) {
        cusparseDnMatGetStridedBatch(handle, batches, boundary::Out::null())
    }
    [cusparseDnMatGetStridedBatch]
        (handle: Known<'_>, batches: Number<'_>, stride: Size<'_>) {
            let known = known(&handle)?;
            batches.set(known.batches);
            stride.set(known.batch_stride);
        Ok(())
    }
    /// The fill mode (0) or the kind of diagonal (1) of a triangular matrix.
    [cusparseSpMatSetAttribute]
        (handle: Known<'_>, number: c_int, from: In<'_, c_int>, size: usize) {
        let mut handle = handle;
        let known = change(&mut handle)?;
        let place = usize::try_from(number).ok().and_then(|at| known.attributes.get_mut(at));
        let place = place.ok_or(CusparseStatus::INVALID_VALUE)?;
        if size < size_of::<c_int>() {
            return Err(CusparseStatus::INVALID_VALUE);
        }
        *place = from.get().ok_or(CusparseStatus::INVALID_VALUE)?;
        Ok(())
    }
    [cusparseSpMatGetAttribute]
        (handle: Known<'_>, number: c_int, to: Room<'_, u8>, size: usize) {
        let known = known(&handle)?;
        let value = usize::try_from(number).ok().and_then(|at| known.attributes.get(at));
        let value = value.ok_or(CusparseStatus::INVALID_VALUE)?;
        if size < size_of::<c_int>() {
            return Err(CusparseStatus::INVALID_VALUE);
        }
        to.fill(value.to_ne_bytes());
        Ok(())
    }
}

fn put_sizes(known: &Descriptor, rows: Size<'_>, columns: Size<'_>, elements: Size<'_>) {
    rows.set(known.rows);
    columns.set(known.columns);
    elements.set(known.elements);
}

fn set_batches(mut handle: Known<'_>, batches: c_int, stride: i64) -> Result<(), CusparseStatus> {
    let known = change(&mut handle)?;
    known.batches = batches;
    known.batch_stride = stride;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::{Any, pass};
    use crate::cusparse::cusparseSpMV_bufferSize;
    use std::ptr;

    #[test]
    fn a_matrix_answers_with_what_was_put_in_it() {
        let mut at = ptr::null_mut();
        let (mut rows, mut columns, mut elements, mut format) = (0, 0, 0, 0);
        let mut values = ptr::null_mut();
        let pointer = |number: usize| number as *mut c_void;
        let none = ptr::null_mut();
        let made = cusparseCreateCsr(Out::to(&mut at), 3, 4, 5, pointer(16), pointer(32), pointer(48), 2, 2, 0, 0);
        assert_eq!(made, Ok(()));
        // SAFETY: the descriptor is destroyed last; its arrays are not used.
        let matrix = || unsafe { pass::<Any, Known>(at) };
        let sizes = (Size::to(&mut rows), Size::to(&mut columns), Size::to(&mut elements));
        assert_eq!(cusparseSpMatGetSize(matrix(), sizes.0, sizes.1, sizes.2), Ok(()));
        assert_eq!((rows, columns, elements), (3, 4, 5));
        assert_eq!(cusparseSpMatGetFormat(matrix(), Number::to(&mut format)), Ok(()));
        assert_eq!(format, 1);
        assert_eq!(cusparseSpMatGetValues(matrix(), Out::to(&mut values)), Ok(()));
        assert_eq!(values as usize, 48);
        // SAFETY: null may be passed, and is not a descriptor.
        let nothing: Known = unsafe { pass::<Any, _>(none) };
        assert_eq!(cusparseSpMatGetValues(nothing, Out::to(&mut values)), Err(CusparseStatus::INVALID_VALUE));
        let mut bytes = 0;
        let size = boundary::Out::to(&mut bytes);
        assert_eq!(cusparseSpMV_bufferSize(none, 0, none, matrix(), none, none, none, 0, 0, size), Ok(()));
        assert_eq!(bytes, 16);
        assert_eq!(cusparseDestroySpMat(matrix()), Ok(()));
        assert_eq!(cusparseCreateDnVec(Out::null(), 1, none, 0), Err(CusparseStatus::INVALID_VALUE));
        let mut other = none;
        assert_eq!(cusparseCreateDnVec(Out::to(&mut other), -1, none, 0), Err(CusparseStatus::INVALID_VALUE));
    }
}

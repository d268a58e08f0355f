//! What the graph API passes: descriptors, and the elements of their attributes.
//!
//! The numbers are those of `cudnnBackendDescriptorType_t`, `cudnnBackendAttributeName_t` and
//! `cudnnBackendAttributeType_t`.

use std::ffi::c_void;
use std::marker::PhantomData;

use crate::boundary::{Any, FromC, Items, Plain, Room, pass_many};

/// Types of elements.
pub const TYPE_HANDLE: i32 = 0;
pub const TYPE_DATA_TYPE: i32 = 1;
pub const TYPE_INT64: i32 = 3;
pub const TYPE_DESCRIPTOR: i32 = 15;
pub const TYPE_CHAR: i32 = 24;

/// Kinds of descriptors.
pub const ENGINE: i32 = 2;
pub const ENGINE_CONFIG: i32 = 3;
pub const HEURISTICS: i32 = 4;
pub const PLAN: i32 = 5;
pub const VARIANT_PACK: i32 = 16;
pub const TENSOR: i32 = 17;

/// Names of attributes.
pub const ATTR_HEURISTICS_MODE: i32 = 200;
pub const ATTR_HEURISTICS_RESULTS: i32 = 202;
pub const ATTR_HEURISTICS_DEVICEPROP: i32 = 204;
pub const ATTR_CONFIG_ENGINE: i32 = 300;
pub const ATTR_CONFIG_WORKSPACE: i32 = 303;
pub const ATTR_PLAN_CONFIG: i32 = 401;
pub const ATTR_PLAN_WORKSPACE: i32 = 402;
pub const ATTR_PLAN_DEVICEPROP: i32 = 407;
pub const ATTR_TENSOR_TYPE: i32 = 901;
pub const ATTR_TENSOR_DIMENSIONS: i32 = 902;
pub const ATTR_TENSOR_STRIDES: i32 = 903;
pub const ATTR_ENGINE_DEVICEPROP: i32 = 1307;

/// `CUDNN_HEUR_MODE_FALLBACK`: engines that always work, for when no other does.
pub const MODE_FALLBACK: i32 = 2;

/// The bytes of an element of a type.
pub fn element_size(kind: i32) -> usize {
    match kind {
        // HANDLE, INT64, DOUBLE, VOID_PTR, BACKEND_DESCRIPTOR
        0 | 3 | 5 | 6 | 15 => 8,
        // BOOLEAN, CHAR
        2 | 24 => 1,
        // FRACTION
        26 => 16,
        // FLOAT, INT32 and the enumerations
        _ => 4,
    }
}

/// A descriptor of the graph API, which the program holds by its address. The real library made it, or the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Descriptor<'a> {
    address: usize,
    call: PhantomData<&'a c_void>,
}

impl FromC<Any> for Descriptor<'_> {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        Descriptor { address: pointer as usize, call: PhantomData }
    }
}

impl Descriptor<'_> {
    /// The address as a number, which identifies the descriptor.
    pub fn address(self) -> usize {
        self.address
    }

    /// The address, for the functions that are passed descriptors.
    pub fn pointer(self) -> *mut c_void {
        self.address as *mut c_void
    }
}

/// The elements of an attribute that is set: as many of its type as are counted, or null.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    kind: i32,
    count: i64,
    address: *const c_void,
    bytes: Items<'a, u8>,
}

/// How many bytes elements have; none where the number is below 0.
fn bytes(kind: i32, count: i64) -> usize {
    usize::try_from(count).unwrap_or(0).saturating_mul(element_size(kind))
}

/// How many elements of a type some values are; none if they have another size, or would be taken for descriptors.
fn count<T>(kind: i32, values: &[T]) -> i64 {
    let fits = size_of::<T>() == element_size(kind) && kind != TYPE_DESCRIPTOR;
    if fits { i64::try_from(values.len()).unwrap_or(0) } else { 0 }
}

impl<'a> Elements<'a> {
    /// What the program passes.
    ///
    /// # Safety
    /// The address is null, or that of `count` elements of the type, which live as long as the result. If the type is that
    /// of descriptors, each is null or a descriptor of the graph API.
    pub unsafe fn new(kind: i32, count: i64, address: *const c_void) -> Elements<'a> {
        // SAFETY: the caller's promise.
        let items = unsafe { pass_many::<Any, _>(address.cast_mut(), bytes(kind, count)) };
        Elements { kind, count, address, bytes: items }
    }

    /// Numbers that this library passes itself.
    pub fn of<T: Plain>(kind: i32, values: &'a [T]) -> Elements<'a> {
        // SAFETY: the values are as many, and have the size of the type, which is not that of descriptors.
        unsafe { Elements::new(kind, count(kind, values), values.as_ptr().cast()) }
    }

    /// Descriptors that this library passes itself.
    pub fn descriptors(values: &'a [Descriptor<'_>]) -> Elements<'a> {
        // SAFETY: the values are as many descriptors, each of which is an address.
        unsafe { Elements::new(TYPE_DESCRIPTOR, values.len() as i64, values.as_ptr().cast()) }
    }

    /// `cudnnBackendAttributeType_t`
    pub fn kind(self) -> i32 {
        self.kind
    }

    /// How many elements the program says there are, whether or not it passes any.
    pub fn count(self) -> i64 {
        self.count
    }

    /// Whether the program passes nothing.
    pub fn is_null(self) -> bool {
        self.address.is_null()
    }

    /// Where the elements lie, for the function that they are passed on to.
    pub fn address(self) -> *const c_void {
        self.address
    }

    /// The bytes of an element; `None` beyond the last, or if elements have another size.
    fn element<const N: usize>(self, index: usize) -> Option<[u8; N]> {
        if N != element_size(self.kind) {
            return None;
        }
        let begin = index.checked_mul(N)?;
        let mut element = [0; N];
        for (at, byte) in element.iter_mut().enumerate() {
            *byte = self.bytes.get(begin.checked_add(at)?)?;
        }
        Some(element)
    }

    /// An element of a type that has 32 bits.
    pub fn word(self, index: usize) -> Option<i32> {
        self.element(index).map(i32::from_ne_bytes)
    }

    /// An element of a type that has 64 bits.
    pub fn long(self, index: usize) -> Option<i64> {
        self.element(index).map(i64::from_ne_bytes)
    }

    /// A descriptor.
    pub fn descriptor(self, index: usize) -> Option<Descriptor<'a>> {
        let address = self.element(index).filter(|_| self.kind == TYPE_DESCRIPTOR)?;
        Some(Descriptor { address: usize::from_ne_bytes(address), call: PhantomData })
    }

    /// The bytes of all elements.
    pub fn bytes(self) -> impl Iterator<Item = u8> + use<'a> {
        self.bytes.iter()
    }
}

/// Room for the elements of an attribute that is read, or null. Of descriptors it holds those that are to be filled.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    held: Elements<'a>,
    room: Room<'a, u8>,
}

impl<'a> Places<'a> {
    /// Room of the program's.
    ///
    /// # Safety
    /// As for [`Elements::new`], and the elements may be written.
    pub unsafe fn new(kind: i32, count: i64, address: *mut c_void) -> Places<'a> {
        // SAFETY: the caller's promise.
        unsafe {
            let room = pass_many::<Any, _>(address, bytes(kind, count));
            Places { held: Elements::new(kind, count, address), room }
        }
    }

    /// Room for numbers that this library wants itself.
    pub fn of<T: Plain>(kind: i32, values: &'a mut [T]) -> Places<'a> {
        // SAFETY: there is room for as many values, which have the size of the type, which is not that of descriptors.
        unsafe { Places::new(kind, count(kind, values), values.as_mut_ptr().cast()) }
    }

    /// Descriptors of this library's that are to be filled.
    pub fn descriptors(values: &'a mut [Descriptor<'_>]) -> Places<'a> {
        // SAFETY: the values are as many descriptors, each of which is an address.
        unsafe { Places::new(TYPE_DESCRIPTOR, values.len() as i64, values.as_mut_ptr().cast()) }
    }

    /// What lies there before the call.
    pub fn held(self) -> Elements<'a> {
        self.held
    }

    /// Where the elements go, for the function that it is passed on to.
    pub fn address(self) -> *mut c_void {
        self.room.address().cast()
    }

    /// Writes one element of a type that has 64 bits, if there is room for it.
    pub fn set_long(self, value: i64) {
        if self.room.count() >= size_of::<i64>() {
            self.fill(&value.to_ne_bytes());
        }
    }

    /// Writes elements, as far as there is room for their bytes.
    pub fn fill(self, bytes: &[u8]) {
        self.room.fill(bytes.iter().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_by_their_type_and_number() {
        let sides = [2_i64, 64];
        let elements = Elements::of(TYPE_INT64, &sides);
        assert_eq!((elements.long(0), elements.long(1), elements.long(2)), (Some(2), Some(64), None));
        assert_eq!((elements.word(0), elements.descriptor(0)), (None, None));
        assert_eq!(Elements::of(TYPE_INT64, &[1_i32]).count(), 0, "the type has another size");
        assert_eq!(Elements::of(TYPE_DESCRIPTOR, &[1_i64]).count(), 0, "a number is not a descriptor");
    }

    #[test]
    fn nothing_is_written_beyond_the_room() {
        let mut numbers = [7_i64, 8];
        let places = Places::of(TYPE_INT64, &mut numbers[..1]);
        places.fill(&[0; 16]);
        assert_eq!(numbers, [0, 8]);
        // SAFETY: null is what the program may pass.
        unsafe { Places::new(TYPE_INT64, 1, std::ptr::null_mut()) }.set_long(1);
    }
}

//! The objects behind cuDNN's opaque pointers, and the way out of a function: statuses and out-parameters.

use std::ffi::c_void;
use std::ptr;

use crate::boundary::put;

/// The call did what it says.
pub const SUCCESS: u32 = 0;
/// There is no card, or no library.
pub const NOT_INITIALIZED: u32 = 1001;
/// An argument is null or out of range.
pub const BAD_PARAM: u32 = 2000;
/// cuDNN has no such operation.
pub const NOT_SUPPORTED: u32 = 3000;

/// A structure that the program knows only by its address.
pub trait Object: Sized {
    /// Tells the structures apart, so that a pointer of the wrong kind is refused rather than believed.
    const KIND: u64;
}

/// What the address points at.
#[repr(C)]
struct Tagged<T> {
    kind: u64,
    value: T,
}

/// Mixed into every kind, so that memory that happens to hold a small number is not taken for an object.
const SEAL: u64 = 0x6f6f_6d70_6400_0000;

/// Makes an object and writes its address.
///
/// # Safety
/// `out` is null or may be written.
pub unsafe fn create<T: Object>(out: *mut *mut c_void, value: T) -> u32 {
    if out.is_null() {
        return BAD_PARAM;
    }
    let object = Box::new(Tagged { kind: SEAL | T::KIND, value });
    // SAFETY: the caller's promise.
    unsafe { put(out, Box::into_raw(object).cast()) };
    SUCCESS
}

/// The object at an address; `None` where the address holds none of this kind.
///
/// # Safety
/// `address` is null or was handed out by cuDNN (any kind of object), and nobody else writes the object meanwhile:
/// cuDNN leaves the sharing of descriptors between threads to the program.
pub unsafe fn get<'a, T: Object>(address: *mut c_void) -> Option<&'a mut T> {
    let object = address.cast::<Tagged<T>>();
    if object.is_null() || !object.is_aligned() {
        return None;
    }
    // SAFETY: every object begins with its kind, and the caller promises that this is one.
    if unsafe { (*object).kind } != SEAL | T::KIND {
        return None;
    }
    // SAFETY: the kind says that the value is a `T`; the caller promises that it is not shared.
    Some(unsafe { &mut (*object).value })
}

/// Ends an object.
///
/// # Safety
/// As for [`get`], and the address is not used again.
pub unsafe fn destroy<T: Object>(address: *mut c_void) -> u32 {
    // SAFETY: the caller's promise.
    if unsafe { get::<T>(address) }.is_none() {
        // Destroying nothing is allowed; destroying something else is the program's error.
        return if address.is_null() { SUCCESS } else { BAD_PARAM };
    }
    // SAFETY: the object was made by `create` from a box of this very type, as its kind says.
    let mut object = unsafe { Box::from_raw(address.cast::<Tagged<T>>()) };
    // A second destruction of the same address should find no kind.
    // SAFETY: the field is a valid place for the write, which must not be optimized away before the memory is freed.
    unsafe { ptr::write_volatile(&raw mut object.kind, 0) };
    SUCCESS
}

/// Copies numbers into an array of the program's, up to `room`.
///
/// # Safety
/// `out` is null or has room for `room` elements.
pub unsafe fn put_all<T: Copy>(out: *mut T, room: i32, values: &[T]) {
    if out.is_null() {
        return;
    }
    for (index, value) in values.iter().take(usize::try_from(room).unwrap_or(0)).enumerate() {
        // SAFETY: `index` is below `room`.
        unsafe { out.add(index).write_unaligned(*value) };
    }
}

/// Reads an array of the program's.
///
/// # Safety
/// `from` is null or holds `count` elements.
pub unsafe fn take<T: Copy>(from: *const T, count: i32) -> Vec<T> {
    if from.is_null() {
        return Vec::new();
    }
    // SAFETY: `index` is below `count`.
    (0..usize::try_from(count).unwrap_or(0)).map(|index| unsafe { from.add(index).read_unaligned() }).collect()
}

/// Defines a descriptor whose only life is to be made, set, read back and destroyed.
macro_rules! descriptor {
    ($(#[$doc:meta])* $name:ident = $kind:literal, $create:ident, $destroy:ident) => {
        impl $crate::cudnn::object::Object for $name {
            const KIND: u64 = $kind;
        }

        #[doc = concat!("Makes a [`", stringify!($name), "`].")]
        pub unsafe fn $create(out: *mut *mut ::std::ffi::c_void) -> u32 {
            // SAFETY: cuDNN's contract: the out-parameter is null or may be written.
            unsafe { $crate::cudnn::object::create(out, $name::default()) }
        }

        #[doc = concat!("Ends a [`", stringify!($name), "`].")]
        pub unsafe fn $destroy(address: *mut ::std::ffi::c_void) -> u32 {
            // SAFETY: cuDNN's contract: a descriptor of this kind, not used again.
            unsafe { $crate::cudnn::object::destroy::<$name>(address) }
        }
    };
}
pub(crate) use descriptor;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct One(u32);
    #[derive(Default)]
    struct Other;
    descriptor!(One = 1, create_one, destroy_one);
    descriptor!(Other = 2, create_other, destroy_other);

    #[test]
    fn an_object_is_known_by_its_kind() {
        let mut one = ptr::null_mut();
        let mut other = ptr::null_mut();
        // SAFETY: the out-parameters are local variables, and each address is destroyed once.
        unsafe {
            assert_eq!(create_one(&raw mut one), SUCCESS);
            assert_eq!(create_other(&raw mut other), SUCCESS);
            assert_eq!(get::<One>(one).map(|value| value.0), Some(0));
            assert!(get::<One>(other).is_none());
            assert!(get::<One>(ptr::null_mut()).is_none());
            assert_eq!(destroy_one(other), BAD_PARAM);
            assert_eq!(destroy_one(one), SUCCESS);
            assert_eq!(destroy_other(other), SUCCESS);
            assert_eq!(create_one(ptr::null_mut()), BAD_PARAM);
        }
    }
}

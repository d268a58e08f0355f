//! Parameters whose type another parameter says.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::{Any, FromC, Plain};

/// One value of the program's, or null. CUDA's getters and setters of attributes pass such a pointer; which type the
/// value has follows from the attribute's number.
#[derive(Clone, Copy, Debug)]
pub struct Untyped<'a> {
    at: *mut c_void,
    call: PhantomData<&'a c_void>,
}

// SAFETY: an address may be any. A program that passes several promises of each what it promises of one.
unsafe impl Plain for Untyped<'_> {}

impl FromC<Any> for Untyped<'_> {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        Untyped { at: pointer, call: PhantomData }
    }
}

impl<'a> Untyped<'a> {
    /// The parameter, unless the program passed nothing.
    pub fn given(self) -> Option<Untyped<'a>> {
        (!self.at.is_null()).then_some(self)
    }

    /// The value, of the type that CUDA documents for the attribute.
    pub fn get<T: Plain>(self) -> Option<T> {
        // SAFETY: see the module's description of `boundary`; the attribute says that the value has this type.
        (!self.at.is_null()).then(|| unsafe { self.at.cast::<T>().read_unaligned() })
    }

    /// Writes the value, of the type that CUDA documents for the attribute, if it is wanted.
    pub fn set<T: Copy>(self, value: T) {
        if !self.at.is_null() {
            // SAFETY: as for `get`.
            unsafe { self.at.cast::<T>().write_unaligned(value) };
        }
    }

    /// A parameter of a call from within this library.
    #[cfg(test)]
    pub fn to<T>(value: &'a mut T) -> Untyped<'a> {
        Untyped { at: std::ptr::from_mut(value).cast(), call: PhantomData }
    }
}

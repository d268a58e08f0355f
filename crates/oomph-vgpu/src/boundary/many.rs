//! Parameters that are several values, with the number of them that another parameter gives.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use super::{Any, FromCounted, Number, Plain, Record};

/// Implements the conversions of a type that holds a pointer and a number of values.
macro_rules! several {
    ($($name:ident)*) => {$(
        impl<T> FromCounted<Any> for $name<'_, T> {
            #[inline(always)]
            unsafe fn from_counted(pointer: *mut c_void, count: usize) -> Self {
                $name { at: pointer.cast(), count, call: PhantomData }
            }
        }

        impl<T> FromCounted<Number<T>> for $name<'_, T> {
            #[inline(always)]
            unsafe fn from_counted(pointer: *mut c_void, count: usize) -> Self {
                $name { at: pointer.cast(), count, call: PhantomData }
            }
        }

        impl<T> $name<'_, T> {
            /// Whether the program passed nothing.
            pub fn is_null(self) -> bool {
                self.at.is_null()
            }

            /// How many values the program says there are, whether or not it passed any.
            pub fn count(self) -> usize {
                self.count
            }
        }

        impl<'a, T> $name<'a, T> {
            /// A parameter of a call from within this library.
            pub fn to(values: &'a mut [T]) -> $name<'a, T> {
                $name { at: values.as_mut_ptr(), count: values.len(), call: PhantomData }
            }

            /// A parameter that is not given, with what the program says of it.
            pub fn null(count: usize) -> $name<'a, T> {
                $name { at: ptr::null_mut(), count, call: PhantomData }
            }
        }

        impl<T> Clone for $name<'_, T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<'_, T> {}
    )*};
}
several! { Items Room }

/// Values that the program passes, or null.
#[derive(Debug)]
pub struct Items<'a, T> {
    at: *mut T,
    count: usize,
    call: PhantomData<&'a T>,
}

impl<'a, T: Plain> Items<'a, T> {
    /// One of the values.
    pub fn get(self, index: usize) -> Option<T> {
        // SAFETY: see the module's description; the index is below the number of values.
        (!self.at.is_null() && index < self.count).then(|| unsafe { self.at.add(index).read_unaligned() })
    }

    /// The values; none for null.
    pub fn iter(self) -> impl Iterator<Item = T> + use<'a, T> {
        let count = if self.at.is_null() { 0 } else { self.count };
        (0..count).filter_map(move |index| self.get(index))
    }

    /// A parameter of a call from within this library, which is only read.
    pub fn of(values: &'a [T]) -> Items<'a, T> {
        Items { at: values.as_ptr().cast_mut(), count: values.len(), call: PhantomData }
    }
}

/// Room for values that the program wants, or null where it does not.
#[derive(Debug)]
pub struct Room<'a, T> {
    at: *mut T,
    count: usize,
    call: PhantomData<&'a T>,
}

impl<T: Copy> Room<'_, T> {
    /// Writes one of the values, if there is room for it.
    pub fn set(self, index: usize, value: T) {
        if !self.at.is_null() && index < self.count {
            // SAFETY: see the module's description; the index is below the number of values.
            unsafe { self.at.add(index).write_unaligned(value) };
        }
    }

    /// Writes values as far as there is room for them.
    pub fn fill(self, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().take(self.count).enumerate() {
            self.set(index, value);
        }
    }
}

impl<T> Room<'_, T> {
    /// The first of the places, for code that asks for an address.
    pub fn address(self) -> *mut T {
        self.at
    }
}

impl<'a, const N: usize> Room<'a, [u8; N]> {
    /// The places as structures, whose other bytes are the program's; none for null.
    pub fn records(self) -> impl Iterator<Item = Record<'a, N>> {
        let count = if self.at.is_null() { 0 } else { self.count };
        (0..count).map(move |index| Record::at(self.at.wrapping_add(index).cast()))
    }
}

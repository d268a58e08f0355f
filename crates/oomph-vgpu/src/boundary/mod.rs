//! Typed parameters and statuses: what a C caller passes, made into values that safe functions work with.
//!
//! The build script writes an `unsafe extern "C"` function for each line of the tables. Each converts its pointers with
//! [`pass`] and [`pass_many`], calls the hand-written function, and converts its answer with [`Answer`]. The hand-written
//! function's signature says what a pointer becomes:
//!
//! - [`In`], [`Out`], [`InOut`]: one value, read, written or both;
//! - [`Items`], [`Room`]: several values, as many as the parameter in brackets says (`name: out bytes1[length]`);
//! - [`Record`]: a structure whose fields lie at known places;
//! - [`Text`]: a string that ends with a zero byte;
//! - [`Handle`]: an object of this library that the program holds by its address; [`Held`] among several;
//! - [`Memory`]: a place of the program's or of a card;
//! - [`Untyped`]: one value, whose type another parameter says;
//! - [`Callback`]: a function of the program's;
//! - [`OncePointer`]: a number that is a pointer in an older version of CUDA;
//! - a raw pointer, or a number: nothing is looked at.
//!
//! **Why the conversions are sound.** The caller of an exported function promises what CUDA's header and documentation
//! say of it: a pointer is null or points to the named value (or to as many as are counted), which stays valid, and is
//! written by nobody else, until the call returns. The signature of the hand-written function repeats the header's types,
//! and the types here keep to that promise: each has the lifetime of the call, treats null as absent, reads and writes
//! without asking for an alignment (programs pass pointers into packed structures), and reads only [`Plain`] values. No
//! reference is made to the program's memory, so that two parameters may point to the same value. This argument is that of
//! each `unsafe` block in this module; where one needs more, the block says it.

#![allow(dead_code, reason = "all kinds of parameters have the same methods, whichever of them are used")]

mod callback;
mod many;
mod object;
mod older;
mod untyped;

pub use callback::*;
pub use many::*;
pub use object::*;
pub use older::*;
pub use untyped::*;

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ptr;

/// A table's type that names no number: any pointer can stand for it.
#[derive(Debug)]
pub struct Any;

/// A table's pointer to a number of type `T`.
#[derive(Debug)]
pub struct Number<T>(PhantomData<T>);

/// A value of which every pattern of bits is valid.
///
/// # Safety
/// Any bytes of the type's size must be a value of it.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($number:ty)*) => {$(
        // SAFETY: a number has a value for every pattern of bits.
        unsafe impl Plain for $number {}
    )*};
}
plain! { u8 i8 u16 i16 u32 i32 u64 i64 usize f32 f64 }
// SAFETY: an address may be any; reading what lies there needs an argument of its own.
unsafe impl<T> Plain for *mut T {}
// SAFETY: as above.
unsafe impl<T> Plain for *const T {}
// SAFETY: the elements are plain, and nothing lies between them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// What a pointer of the table's type `K` can become.
pub trait FromC<K>: Sized {
    /// Makes a parameter of a pointer.
    ///
    /// # Safety
    /// The pointer is what CUDA requires of the parameter (see the module's description).
    unsafe fn from_c(pointer: *mut c_void) -> Self;
}

/// What a pointer to counted values of the table's type `K` can become.
pub trait FromCounted<K>: Sized {
    /// Makes a parameter of a pointer and the number of values there.
    ///
    /// # Safety
    /// As for [`FromC::from_c`], for each of the values.
    unsafe fn from_counted(pointer: *mut c_void, count: usize) -> Self;
}

/// What a number of type `N` can become. The driver API passes addresses on a card as numbers.
pub trait FromValue<N>: Sized {
    /// Makes a parameter of a number.
    ///
    /// # Safety
    /// The number is what CUDA requires of the parameter (see the module's description).
    unsafe fn from_value(number: N) -> Self;
}

impl<N> FromValue<N> for N {
    #[inline(always)]
    unsafe fn from_value(number: N) -> Self {
        number
    }
}

/// Makes a parameter of a number.
///
/// # Safety
/// As for [`FromValue::from_value`].
#[inline(always)]
pub unsafe fn pass_value<N, T: FromValue<N>>(number: N) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::from_value(number) }
}

/// Makes a parameter of a pointer.
///
/// # Safety
/// As for [`FromC::from_c`].
#[inline(always)]
pub unsafe fn pass<K, T: FromC<K>>(pointer: *mut c_void) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::from_c(pointer) }
}

/// Makes a parameter of a pointer to several values.
///
/// # Safety
/// As for [`FromCounted::from_counted`].
#[inline(always)]
pub unsafe fn pass_many<K, T: FromCounted<K>>(pointer: *mut c_void, count: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { T::from_counted(pointer, count) }
}

/// A number of values; nothing below 0 is one.
#[inline(always)]
pub fn length(count: impl TryInto<usize>) -> usize {
    count.try_into().unwrap_or(0)
}

/// A number of values that lies behind a pointer, 0 for null.
///
/// # Safety
/// As for [`FromC::from_c`].
#[inline(always)]
pub unsafe fn counted<N: Plain + TryInto<usize>>(pointer: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    unsafe { pass::<Any, In<'_, N>>(pointer) }.get().map_or(0, length)
}

/// Implements the conversions of a type that holds a pointer.
macro_rules! one {
    ($($name:ident)*) => {$(
        impl<T> FromC<Any> for $name<'_, T> {
            #[inline(always)]
            unsafe fn from_c(pointer: *mut c_void) -> Self {
                $name { at: pointer.cast(), call: PhantomData }
            }
        }

        impl<T> FromC<Number<T>> for $name<'_, T> {
            #[inline(always)]
            unsafe fn from_c(pointer: *mut c_void) -> Self {
                $name { at: pointer.cast(), call: PhantomData }
            }
        }

        impl<T> $name<'_, T> {
            /// Whether the program passed nothing.
            pub fn is_null(self) -> bool {
                self.at.is_null()
            }
        }

        impl<'a, T> $name<'a, T> {
            /// The parameter, unless the program passed nothing.
            pub fn given(self) -> Option<$name<'a, T>> {
                (!self.at.is_null()).then_some(self)
            }

            /// A parameter of a call from within this library.
            pub fn to(value: &'a mut T) -> $name<'a, T> {
                $name { at: value, call: PhantomData }
            }

            /// A parameter that is not given.
            pub fn null() -> $name<'a, T> {
                $name { at: ptr::null_mut(), call: PhantomData }
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
one! { In Out InOut }

/// The driver API calls an address of a card's a 64-bit number.
impl<T> FromC<Number<u64>> for Out<'_, *mut T> {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        Out { at: pointer.cast(), call: PhantomData }
    }
}

/// A value that the program passes, or null.
#[derive(Debug)]
pub struct In<'a, T> {
    at: *mut T,
    call: PhantomData<&'a T>,
}

impl<T: Plain> In<'_, T> {
    /// The value.
    pub fn get(self) -> Option<T> {
        // SAFETY: see the module's description.
        (!self.at.is_null()).then(|| unsafe { self.at.read_unaligned() })
    }
}

/// A place for a value that the program wants, or null where it does not.
#[derive(Debug)]
pub struct Out<'a, T> {
    at: *mut T,
    call: PhantomData<&'a T>,
}

impl<T: Copy> Out<'_, T> {
    /// Writes the value, if it is wanted.
    #[inline(always)]
    pub fn set(self, value: T) {
        if !self.at.is_null() {
            // SAFETY: see the module's description.
            unsafe { self.at.write_unaligned(value) };
        }
    }
}

/// A value that the program passes and wants back, or null.
#[derive(Debug)]
pub struct InOut<'a, T> {
    at: *mut T,
    call: PhantomData<&'a T>,
}

impl<T: Plain> InOut<'_, T> {
    /// The value that was passed.
    pub fn get(self) -> Option<T> {
        // SAFETY: see the module's description.
        (!self.at.is_null()).then(|| unsafe { self.at.read_unaligned() })
    }

    /// Writes a value, if it is wanted.
    pub fn set(self, value: T) {
        if !self.at.is_null() {
            // SAFETY: see the module's description.
            unsafe { self.at.write_unaligned(value) };
        }
    }
}

/// A structure of at least `N` bytes whose fields are read and written at their places, or null. Its other bytes are the
/// program's and stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a, const N: usize> {
    at: *mut u8,
    call: PhantomData<&'a u8>,
}

impl<const N: usize> FromC<Any> for Record<'_, N> {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        Record { at: pointer.cast(), call: PhantomData }
    }
}

impl<'a, const N: usize> Record<'a, N> {
    /// The structure at an address for which the argument above holds.
    fn at(at: *mut u8) -> Record<'a, N> {
        Record { at, call: PhantomData }
    }

    /// The structure, unless the program passed nothing.
    pub fn given(self) -> Option<Record<'a, N>> {
        (!self.at.is_null()).then_some(self)
    }

    /// Where it lies, for what is done after the call.
    pub fn address(self) -> usize {
        self.at as usize
    }

    /// A structure within this one, or null where it does not lie within.
    pub fn part<const M: usize>(self, offset: usize) -> Record<'a, M> {
        Record::at(self.field::<[u8; M]>(offset).map_or(ptr::null_mut(), |part| part.cast()))
    }

    /// The address of a field that lies within the structure.
    fn field<T>(self, offset: usize) -> Option<*mut T> {
        let within = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= N);
        (!self.at.is_null() && within).then(|| self.at.wrapping_add(offset).cast())
    }

    /// Reads the field at an offset in bytes; `None` if it is not within the structure.
    pub fn read<T: Plain>(self, offset: usize) -> Option<T> {
        // SAFETY: see the module's description; the field lies within the structure.
        self.field(offset).map(|field: *mut T| unsafe { field.read_unaligned() })
    }

    /// Writes the field at an offset in bytes.
    pub fn write<T: Copy>(self, offset: usize, value: T) {
        if let Some(field) = self.field::<T>(offset) {
            // SAFETY: see the module's description; the field lies within the structure.
            unsafe { field.write_unaligned(value) };
        }
    }
}

/// A string of the program's that ends with a zero byte, or null.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    at: *const c_char,
    call: PhantomData<&'a c_char>,
}

impl FromC<Any> for Text<'_> {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        Text { at: pointer.cast(), call: PhantomData }
    }
}

impl<'a> Text<'a> {
    /// The string.
    pub fn get(self) -> Option<&'a CStr> {
        // SAFETY: see the module's description. It is the one reference to the program's memory: a program does not change
        // a name while it passes it.
        (!self.at.is_null()).then(|| unsafe { CStr::from_ptr(self.at) })
    }
}

/// Memory of the program's or of a card, or null. How much of it a call reads or writes follows from the call's other
/// parameters, so that whoever uses the address says in an `unsafe` block what those are.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    at: *mut c_void,
    call: PhantomData<&'a c_void>,
}

impl FromC<Any> for Memory<'_> {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        Memory { at: pointer, call: PhantomData }
    }
}

impl FromValue<u64> for Memory<'_> {
    #[inline(always)]
    unsafe fn from_value(number: u64) -> Self {
        Memory { at: number as *mut c_void, call: PhantomData }
    }
}

impl<'a> Memory<'a> {
    /// Whether the program passed nothing.
    pub fn is_null(self) -> bool {
        self.at.is_null()
    }

    /// Where it begins.
    pub fn address(self) -> *mut c_void {
        self.at
    }

    /// A parameter of a call from within this library.
    pub fn to<T>(values: &'a mut [T]) -> Memory<'a> {
        Memory { at: values.as_mut_ptr().cast(), call: PhantomData }
    }
}

// Raw pointers pass as they are, for functions that look at them themselves.
impl<T, K> FromC<K> for *mut T {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        pointer.cast()
    }
}

impl<T, K> FromC<K> for *const T {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        pointer.cast()
    }
}

/// A status of an API, which is not its success.
pub trait Status: Copy {
    /// The number that the program sees.
    fn number(self) -> u32;

    /// Remembers the status, in an API that can be asked for the last one that it answered with.
    #[inline(always)]
    fn remember(self) {}
}

/// The number of a status that the program gets now.
#[inline(always)]
pub fn failed(status: impl Status) -> u32 {
    status.remember();
    status.number()
}

/// What a hand-written function answers, as the value that a C caller gets.
pub trait Answer<R> {
    /// The value.
    fn answer(self) -> R;
}

impl<S: Status> Answer<u32> for Result<(), S> {
    #[inline(always)]
    fn answer(self) -> u32 {
        self.map_or_else(failed, |()| 0)
    }
}

/// A status that is not the call's own but what the program asked for.
impl<S: Status> Answer<u32> for Option<S> {
    #[inline(always)]
    fn answer(self) -> u32 {
        self.map_or(0, Status::number)
    }
}

impl Answer<*const c_char> for &'static CStr {
    #[inline(always)]
    fn answer(self) -> *const c_char {
        self.as_ptr()
    }
}

/// Defines the status type of an API, so that no function answers with another API's number. Success is `Ok`.
macro_rules! statuses {
    ($(#[$doc:meta])* $visible:vis $name:ident { $($(#[$about:meta])* $status:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible struct $name(u32);

        impl $name {
            $($(#[$about])* pub const $status: $name = $name($number);)*
        }

        impl $crate::boundary::Status for $name {
            fn number(self) -> u32 {
                self.0
            }
        }
    };
}
pub(crate) use statuses;

#[cfg(test)]
mod tests {
    use super::*;

    statuses! { Few { FIRST = 7, } }

    #[test]
    fn null_is_absent_and_nothing_is_written_to_it() {
        // SAFETY: null is what every parameter may be.
        unsafe {
            let none = ptr::null_mut();
            assert_eq!(pass::<Any, In<u32>>(none).get(), None);
            pass::<Number<u64>, Out<u64>>(none).set(1);
            assert!(pass::<Any, InOut<u32>>(none).given().is_none());
            let items: Items<u16> = pass_many::<Any, _>(none, 3);
            assert_eq!((items.get(0), items.iter().count(), items.count()), (None, 0, 3));
            pass_many::<Any, Room<u8>>(none, 3).fill([1, 2]);
            assert_eq!(pass::<Any, Record<8>>(none).read::<u8>(0), None);
            assert_eq!(pass::<Any, Text>(none).get(), None);
            assert_eq!(counted::<u32>(none), 0);
        }
    }

    #[test]
    fn values_are_read_and_written_at_any_address() {
        let mut bytes = [0_u8; 9];
        // SAFETY: the eight bytes from the second on are the array's.
        unsafe { pass::<Any, Out<u64>>(bytes.as_mut_ptr().add(1).cast()) }.set(u64::MAX);
        assert_eq!(bytes, [0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(Items::of(&[1_i64, 2]).iter().sum::<i64>(), 3);
    }

    #[test]
    fn nothing_beyond_what_was_counted_is_touched() {
        let mut room = [9_u8; 3];
        // SAFETY: two of the array's three bytes are counted.
        unsafe { pass_many::<Number<u8>, Room<u8>>(room.as_mut_ptr().cast(), 2) }.fill([1, 2, 3]);
        assert_eq!(room, [1, 2, 9]);
        assert_eq!((length(-1_i32), length(3_u32)), (0, 3));
        // SAFETY: the record has the three bytes of the array.
        let record: Record<3> = unsafe { pass::<Any, _>(room.as_mut_ptr().cast()) };
        record.write(2, 7_u16);
        assert_eq!((record.read::<u16>(2), record.read::<u8>(2)), (None, Some(9)));
    }

    #[test]
    fn success_is_0_and_a_failure_its_number() {
        assert_eq!(Result::<(), Few>::Ok(()).answer(), 0);
        assert_eq!(Result::<(), Few>::Err(Few::FIRST).answer(), 7);
    }
}

//! Objects that this library makes and programs hold by their addresses.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::{Any, FromC, Plain};

/// An object of this library that programs hold by its address.
///
/// # Safety
/// [`Object::is_live`] must be sound to call on an object that another thread uses: what it looks at is not written
/// through `&self` but atomically.
pub unsafe trait Object: Sized {
    /// Whether the object's mark says that this is one of its kind, and was not destroyed.
    fn is_live(&self) -> bool;

    /// As [`Object::is_live`], at an address that may hold another kind of object. Kinds that programs confuse look at no
    /// more than the mark that all of them begin with.
    ///
    /// # Safety
    /// An object lies there that [`hand_out`] made, of this kind or of one that begins with the same mark.
    unsafe fn is_live_at(at: *const Self) -> bool {
        // SAFETY: the caller's promise; there is one kind only.
        unsafe { &*at }.is_live()
    }
}

/// Hands an object out; the program holds it until it is taken back by [`Handle::take`].
pub fn hand_out<T: Object>(object: T) -> *mut c_void {
    Box::into_raw(Box::new(object)).cast()
}

/// The handle of an object of this library, or null. The program promises that it was made by [`hand_out`] and not
/// destroyed; the object's mark catches the mistakes that are usual.
#[derive(Debug)]
pub struct Handle<'a, T> {
    at: *mut T,
    call: PhantomData<&'a T>,
}

impl<T> FromC<Any> for Handle<'_, T> {
    #[inline(always)]
    unsafe fn from_c(pointer: *mut c_void) -> Self {
        Handle { at: pointer.cast(), call: PhantomData }
    }
}

impl<T: Object> Handle<'_, T> {
    /// Whether the program passed nothing.
    pub fn is_null(&self) -> bool {
        self.at.is_null()
    }

    /// The handle as a number, for what is done after the call.
    pub fn address(&self) -> usize {
        self.at as usize
    }

    /// The object.
    pub fn get(&self) -> Option<&T> {
        if self.at.is_null() || !self.at.is_aligned() {
            return None;
        }
        // SAFETY: see the module's description and the handle's. The objects' fields that change are atomic, or changed
        // through `edit`, which has the handle to itself. A reference is made to what is known to be of this kind.
        unsafe { T::is_live_at(self.at).then(|| &*self.at) }
    }

    /// The object, to be changed. Its kind of object is one that CUDA lets a program use in one thread at a time.
    pub fn edit(&mut self) -> Option<&mut T> {
        self.get()?;
        // SAFETY: as for `get`; the program uses the object nowhere else during the call.
        Some(unsafe { &mut *self.at })
    }

    /// Takes an object back that the program gives up.
    pub fn take(self) -> Option<Box<T>> {
        self.get()?;
        // SAFETY: as for `get`; the address came from `hand_out`, as the object's mark said.
        Some(unsafe { Box::from_raw(self.at) })
    }
}

/// The handle of an object as a value of the program's, which passes several of them in an array.
#[derive(Debug)]
#[repr(transparent)]
pub struct Held<'a, T> {
    at: *mut T,
    call: PhantomData<&'a T>,
}

impl<T> Clone for Held<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Held<'_, T> {}

// SAFETY: an address may be any. What is read from the program is a handle by the same promise as a parameter.
unsafe impl<T> Plain for Held<'_, T> {}

impl<'a, T: Object> Held<'a, T> {
    /// The handle.
    pub fn handle(self) -> Handle<'a, T> {
        Handle { at: self.at, call: PhantomData }
    }
}

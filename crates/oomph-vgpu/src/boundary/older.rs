//! Parameters whose meaning differs between versions of CUDA.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::{Any, FromC, FromValue};

/// A number that is a pointer in the function's older shape. Which of them a program passes, the version of its runtime
/// says.
#[derive(Clone, Copy, Debug)]
pub struct OncePointer<'a> {
    word: usize,
    call: PhantomData<&'a c_void>,
}

impl FromValue<usize> for OncePointer<'_> {
    #[inline(always)]
    unsafe fn from_value(word: usize) -> Self {
        OncePointer { word, call: PhantomData }
    }
}

impl FromValue<u64> for OncePointer<'_> {
    #[inline(always)]
    unsafe fn from_value(word: u64) -> Self {
        OncePointer { word: word as usize, call: PhantomData }
    }
}

impl OncePointer<'_> {
    /// The parameter of the older shape, which the program's runtime must be known to have.
    pub fn pointer<T: FromC<Any>>(self) -> T {
        // SAFETY: see the module's description of `boundary`; whoever asks has looked at the version.
        unsafe { T::from_c(self.word as *mut c_void) }
    }
}

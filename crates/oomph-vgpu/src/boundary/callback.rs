//! Functions of the program's that this library calls.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::{Any, FromC};

/// A function of the program's, or null. `F` is its type. Whoever calls it holds no lock.
#[derive(Clone, Copy, Debug)]
pub struct Callback<'a, F> {
    function: Option<F>,
    call: PhantomData<&'a F>,
}

/// Implements the conversion and the call of a type of functions.
macro_rules! callable {
    ($($name:ident($($parameter:ident: $kind:ty),*);)*) => {$(
        /// A type of functions that programs pass.
        pub type $name = unsafe extern "C" fn($($kind),*);

        impl FromC<Any> for Callback<'_, $name> {
            #[inline(always)]
            unsafe fn from_c(pointer: *mut c_void) -> Self {
                // SAFETY: see the module's description of `boundary`; the pointer is null, which is `None`, or that of a
                // function of this type.
                let function = unsafe { std::mem::transmute::<*mut c_void, Option<$name>>(pointer) };
                Callback { function, call: PhantomData }
            }
        }

        impl Callback<'_, $name> {
            /// Calls the function, unless the program passed nothing.
            pub fn call(self, $($parameter: $kind),*) {
                if let Some(function) = self.function {
                    // SAFETY: as for the conversion; the program's data is what it passed along with the function.
                    unsafe { function($($parameter),*) };
                }
            }
        }
    )*};
}
callable! {
    HostFunction(data: *mut c_void);
    StreamCallback(stream: *mut c_void, status: u32, data: *mut c_void);
}

impl<F> Callback<'_, F> {
    /// Whether the program passed nothing.
    pub fn is_null(&self) -> bool {
        self.function.is_none()
    }
}

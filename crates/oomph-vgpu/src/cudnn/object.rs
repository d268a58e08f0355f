//! The objects behind cuDNN's opaque pointers.

use std::ffi::c_void;

use crate::boundary::{self, Object, Out, hand_out};
use crate::libcudnn::status::{CudnnStatus, Result};

/// A structure that the program knows only by its address.
pub trait Kind {
    /// Distinguishes the structures, so that a pointer of the wrong kind is refused rather than believed.
    const KIND: u64;
}

/// What the address points at.
#[repr(C)]
pub struct Sealed<T> {
    seal: u64,
    value: T,
}

/// Mixed into every kind, so that memory that happens to hold a small number is not taken for an object.
const SEAL: u64 = 0x6f6f_6d70_6400_0000;

// SAFETY: cuDNN leaves the sharing of descriptors between threads to the program, and the seal is written only when an
// object is given up.
unsafe impl<T: Kind> Object for Sealed<T> {
    fn is_live(&self) -> bool {
        self.seal == SEAL | T::KIND
    }

    unsafe fn is_live_at(at: *const Self) -> bool {
        // SAFETY: the caller's promise: an object of cuDNN's, and each begins with its seal.
        unsafe { (*at).seal == SEAL | T::KIND }
    }
}

/// The handle of one kind of object.
pub type Handle<'a, T> = boundary::Handle<'a, Sealed<T>>;
/// The handle of one kind of object, among several that the program passes.
pub type Held<'a, T> = boundary::Held<'a, Sealed<T>>;

/// The object of a handle, or what cuDNN answers to others.
pub fn known<'a, T: Kind>(handle: &'a Handle<'_, T>) -> Result<&'a T> {
    handle.get().map(|object| &object.value).ok_or(CudnnStatus::BAD_PARAM)
}

/// The object of a handle, to be changed.
pub fn change<'a, T: Kind>(handle: &'a mut Handle<'_, T>) -> Result<&'a mut T> {
    handle.edit().map(|object| &mut object.value).ok_or(CudnnStatus::BAD_PARAM)
}

/// Makes an object, whose address the program holds until it is destroyed.
pub fn make<T: Kind>(value: T) -> *mut c_void {
    hand_out(Sealed { seal: SEAL | T::KIND, value })
}

/// Makes an object and writes its address.
pub fn create<T: Kind>(out: Out<'_, *mut c_void>, value: T) -> Result<()> {
    if out.is_null() {
        return Err(CudnnStatus::BAD_PARAM);
    }
    out.set(make(value));
    Ok(())
}

/// Ends an object.
pub fn destroy<T: Kind>(handle: Handle<'_, T>) -> Result<()> {
    // Destroying nothing is allowed; destroying something else is the program's error.
    if handle.is_null() {
        return Ok(());
    }
    let mut object = handle.take().ok_or(CudnnStatus::BAD_PARAM)?;
    // A second destruction of the same address should find no seal, so the compiler must believe that this is read.
    object.seal = 0;
    std::hint::black_box(&object.seal);
    Ok(())
}

/// Defines a descriptor whose only life is to be made, set, read back and destroyed.
macro_rules! descriptor {
    ($(#[$doc:meta])* $name:ident = $kind:literal, $create:ident, $destroy:ident) => {
        impl $crate::cudnn::object::Kind for $name {
            const KIND: u64 = $kind;
        }

        #[doc = concat!("Makes a [`", stringify!($name), "`].")]
        pub fn $create(
            out: $crate::boundary::Out<'_, *mut ::std::ffi::c_void>,
        ) -> $crate::libcudnn::status::Result<()> {
            $crate::cudnn::object::create(out, $name::default())
        }

        #[doc = concat!("Ends a [`", stringify!($name), "`].")]
        pub fn $destroy(descriptor: $crate::cudnn::object::Handle<'_, $name>) -> $crate::libcudnn::status::Result<()> {
            $crate::cudnn::object::destroy(descriptor)
        }
    };
}
pub(crate) use descriptor;

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::boundary::{Any, pass};

    #[derive(Default)]
    pub struct One(u32);
    #[derive(Default)]
    pub struct Other;
    descriptor!(One = 1, create_one, destroy_one);
    descriptor!(Other = 2, create_other, destroy_other);

    /// The handle that the program passes.
    fn handle<'a, T: Kind>(address: *mut c_void) -> Handle<'a, T> {
        // SAFETY: the addresses are null or those of objects that are made and not yet destroyed.
        unsafe { pass::<Any, _>(address) }
    }

    #[test]
    fn an_object_is_known_by_its_kind() {
        let mut one = ptr::null_mut();
        let mut other = ptr::null_mut();
        assert_eq!(create_one(Out::to(&mut one)), Ok(()));
        assert_eq!(create_other(Out::to(&mut other)), Ok(()));
        assert_eq!(known::<One>(&handle(one)).map(|value| value.0), Ok(0));
        assert!(known::<One>(&handle(other)).is_err());
        assert!(known::<One>(&handle(ptr::null_mut())).is_err());
        assert_eq!(destroy_one(handle(other)), Err(CudnnStatus::BAD_PARAM));
        assert_eq!(destroy_one(handle(one)), Ok(()));
        assert_eq!(destroy_other(handle(other)), Ok(()));
        assert_eq!(destroy_other(handle(ptr::null_mut())), Ok(()));
        assert_eq!(create_one(Out::null()), Err(CudnnStatus::BAD_PARAM));
    }
}

//! Calls as a program makes them: through the exported functions, with C's types.

use std::ffi::c_void;
use std::ptr;

use crate::exports;

const BAD_PARAM: u32 = 2000;
const FLOAT: i32 = 0;
const HALF: i32 = 2;
const LSTM: i32 = 2;

/// A descriptor.
fn made(create: unsafe extern "C" fn(*mut c_void) -> u32) -> *mut c_void {
    let mut descriptor: *mut c_void = ptr::null_mut();
    // SAFETY: the out-parameter is a local variable.
    assert_eq!(unsafe { create(at(&mut descriptor)) }, 0);
    descriptor
}

/// The address of a value, as C passes it.
fn at<T>(value: &mut T) -> *mut c_void {
    ptr::from_mut(value).cast()
}

#[test]
fn arrays_are_as_long_as_the_program_says() {
    let tensor = made(exports::cudnnCreateTensorDescriptor);
    let (mut sides, mut strides) = ([2_i32, 3, 4, 5], [60_i32, 20, 5, 1]);
    let (mut kind, mut rank, mut first_sides, mut first_strides) = (-1_i32, -1_i32, [7_i32; 3], [7_i32; 3]);
    // SAFETY: the descriptor is alive, and the arrays are as long as is said.
    unsafe {
        let set = |rank, sides, strides| exports::cudnnSetTensorNdDescriptor(tensor, HALF, rank, sides, strides);
        assert_eq!(set(4, at(&mut sides), at(&mut strides)), 0);
        assert_eq!(set(9, at(&mut sides), at(&mut strides)), BAD_PARAM, "cuDNN has eight dimensions");
        assert_eq!(set(-1, at(&mut sides), at(&mut strides)), BAD_PARAM);
        assert_eq!(set(4, ptr::null_mut(), at(&mut strides)), BAD_PARAM);
        let (sides, strides) = (at(&mut first_sides), at(&mut first_strides));
        assert_eq!(exports::cudnnGetTensorNdDescriptor(tensor, 2, at(&mut kind), at(&mut rank), sides, strides), 0);
        // Whoever wants only the type passes null for the others.
        let null = ptr::null_mut();
        assert_eq!(exports::cudnnGetTensorNdDescriptor(tensor, 8, at(&mut kind), null, null, null), 0);
    }
    assert_eq!((kind, rank, first_sides, first_strides), (HALF, 4, [2, 3, 7], [60, 20, 7]));
}

#[test]
fn a_descriptor_of_another_kind_is_refused() {
    let tensor = made(exports::cudnnCreateTensorDescriptor);
    let mut bytes = 7_usize;
    // SAFETY: descriptors of this library, and local variables.
    unsafe {
        assert_eq!(exports::cudnnGetFilterSizeInBytes(tensor, at(&mut bytes)), BAD_PARAM);
        assert_eq!(exports::cudnnDestroyFilterDescriptor(tensor), BAD_PARAM);
        assert_eq!(exports::cudnnDestroyTensorDescriptor(tensor), 0);
        assert_eq!(exports::cudnnDestroyTensorDescriptor(ptr::null_mut()), 0);
        assert_eq!(exports::cudnnCreateTensorDescriptor(ptr::null_mut()), BAD_PARAM);
    }
    assert_eq!(bytes, 7, "a refused call writes nothing");
}

#[test]
fn a_network_is_measured_by_the_tensors_of_its_steps() {
    let (network, tensor) = (made(exports::cudnnCreateRNNDescriptor), made(exports::cudnnCreateTensorDescriptor));
    let filter = made(exports::cudnnCreateFilterDescriptor);
    let null = ptr::null_mut();
    let mut bytes = 7_usize;
    // SAFETY: descriptors of this library, and arrays that are as long as is said.
    unsafe {
        assert_eq!(exports::cudnnSetTensor4dDescriptor(tensor, 0, FLOAT, 4, 8, 1, 1), 0);
        assert_eq!(exports::cudnnSetRNNDescriptor_v6(null, network, 16, 1, null, 0, 0, LSTM, 0, FLOAT), 0);
        let mut reserve = |mut steps: [*mut c_void; 3], count| {
            let status = exports::cudnnGetRNNTrainingReserveSize(null, network, count, at(&mut steps), at(&mut bytes));
            (status, bytes)
        };
        // Five numbers of 4 bytes for each of 16 hidden ones, in 3 steps of 4 sequences, and 256 bytes.
        assert_eq!(reserve([tensor; 3], 3), (0, 4096));
        assert_eq!(reserve([tensor, filter, tensor], 3), (BAD_PARAM, 0));
        assert_eq!(reserve([tensor, filter, tensor], 1), (0, 1536));
        assert_eq!(reserve([tensor; 3], 0), (BAD_PARAM, 0));
    }
}

//! The driver's linker, `cuLink*`: what programs use that compile kernels at run time and have no nvJitLink.
//!
//! Nothing runs here, so nothing is linked. What a program does with the result is to load it and look its kernels up,
//! so the result of one image is that image, and that of several is PTX text in which every kernel is found.

use std::ffi::{OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;

use crate::boundary::{Items, Out, Room, Text};
use crate::cubin::ELF_MAGIC;
use crate::cuda::{Opaque, functions};
use crate::gpu::{Link, gpu};
use crate::status::{CudaStatus, DriverStatus};

/// `CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES` of `CUjit_option`: the size of a buffer
/// that the linker replaces by the length of what it wrote.
const LOG_SIZES: [c_int; 2] = [4, 6];
/// An image of several inputs. A driver makes machine code of PTX itself, whatever its kernels are called.
const SEVERAL: &[u8] = b".version 8.0\n.target sm_50\n.address_size 64\n\0";
/// Larger inputs than any are not copied, in bytes.
const MOST_BYTES: usize = 1 << 30;

functions! { DriverStatus:
    cuLinkCreate_v2(_count: c_uint, options: Items<'_, c_int>, values: Room<'_, *mut c_void>, to: Out<'_, Opaque>)
        = create(options, values, to);
    cuLinkAddData_v2(
        state: Opaque, _kind: c_int, data: Items<'_, u8>, size: usize, _name: *const c_char, _count: c_uint,
        _options: *mut c_int, _values: *mut *mut c_void
    ) = {
        if data.is_null() || size == 0 || size > MOST_BYTES {
            return Err(CudaStatus::INVALID_VALUE.into());
        }
        add(state, data.iter().collect())
    };
    cuLinkAddFile_v2(
        state: Opaque, _kind: c_int, path: Text<'_>, _count: c_uint, _options: *mut c_int,
        _values: *mut *mut c_void
    ) = {
        let path = path.get().ok_or(CudaStatus::INVALID_VALUE)?;
        let data = std::fs::read(OsStr::from_bytes(path.to_bytes())).map_err(|_| CudaStatus::FILE_NOT_FOUND)?;
        add(state, data)
    };
    cuLinkComplete(state: Opaque, to: Out<'_, *mut c_void>, size: Out<'_, usize>) = complete(state, to, size);
    cuLinkDestroy(state: Opaque)
        = gpu().links.lock().remove(&(state as usize)).map(drop).ok_or(CudaStatus::INVALID_HANDLE);
}

fn create(options: Items<'_, c_int>, values: Room<'_, *mut c_void>, to: Out<'_, Opaque>) -> Result<(), CudaStatus> {
    let to = to.given().ok_or(CudaStatus::INVALID_VALUE)?;
    for (at, option) in options.iter().enumerate() {
        if LOG_SIZES.contains(&option) {
            // Both logs are empty.
            values.set(at, std::ptr::null_mut());
        }
    }
    let state = gpu().handles.fresh();
    gpu().links.lock().insert(state as usize, Link::default());
    to.set(state);
    Ok(())
}

fn add(state: Opaque, data: Vec<u8>) -> Result<(), CudaStatus> {
    let mut links = gpu().links.lock();
    links.get_mut(&(state as usize)).ok_or(CudaStatus::INVALID_HANDLE)?.inputs.push(data);
    Ok(())
}

/// Writes the address and the size of the image, which the linker keeps.
fn complete(state: Opaque, to: Out<'_, *mut c_void>, size: Out<'_, usize>) -> Result<(), CudaStatus> {
    let mut links = gpu().links.lock();
    let link = links.get_mut(&(state as usize)).ok_or(CudaStatus::INVALID_HANDLE)?;
    let made = link.image.take().or_else(|| linked(std::mem::take(&mut link.inputs)));
    let image = link.image.insert(made.ok_or(CudaStatus::INVALID_VALUE)?);
    to.set(image.as_mut_ptr().cast());
    size.set(image.len());
    Ok(())
}

/// One image of all inputs; `None` without any.
fn linked(mut inputs: Vec<Vec<u8>>) -> Option<Vec<u8>> {
    match inputs.len() {
        0 => None,
        1 => {
            let mut image = inputs.pop()?;
            if !image.starts_with(&ELF_MAGIC) {
                // Text ends with a zero byte, which those who pass its length may leave out.
                image.push(0);
            }
            Some(image)
        }
        _ => Some(SEVERAL.to_vec()),
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "the test reads the image as a program does")]
mod tests {
    use super::*;

    const NULL: *mut c_void = std::ptr::null_mut();

    /// Links these inputs and gives the image, and the size that was left for the error log.
    fn link(inputs: &[&[u8]]) -> Result<(Vec<u8>, usize), DriverStatus> {
        let options = [LOG_SIZES[1], 0];
        let mut values = [4096 as *mut c_void, 32 as *mut c_void];
        let (mut state, mut image, mut size) = (NULL, NULL, 0);
        assert_eq!(cuLinkCreate_v2(2, Items::of(&options), Room::to(&mut values), Out::to(&mut state)), Ok(()));
        for input in inputs {
            let none = (std::ptr::null_mut(), std::ptr::null_mut());
            let name = c"input".as_ptr();
            let added = cuLinkAddData_v2(state, 1, Items::of(input), input.len(), name, 0, none.0, none.1);
            assert_eq!(added, Ok(()));
        }
        cuLinkComplete(state, Out::to(&mut image), Out::to(&mut size))?;
        // SAFETY: the linker, which lives until it is destroyed below, holds an image of that size.
        let made = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec();
        assert_eq!(values[1] as usize, 32, "another option's value is the program's");
        assert_eq!(cuLinkDestroy(state), Ok(()));
        assert_eq!(cuLinkDestroy(state), Err(CudaStatus::INVALID_HANDLE.into()));
        Ok((made, values[0] as usize))
    }

    #[test]
    fn one_image_is_itself_and_the_logs_are_empty() {
        assert_eq!(link(&[b".version 8.0"]), Ok((b".version 8.0\0".to_vec(), 0)));
        assert_eq!(link(&[b"\x7fELF"]), Ok((b"\x7fELF".to_vec(), 0)));
        assert_eq!(link(&[b".version 8.0", b"\x7fELF"]), Ok((SEVERAL.to_vec(), 0)));
        assert_eq!(link(&[]), Err(CudaStatus::INVALID_VALUE.into()));
    }
}

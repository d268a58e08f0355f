//! Images of kernels as CUDA passes them: a pointer without a size.
//!
//! What is behind the pointer is read as far as the image's own headers say, as the driver does, and understood by
//! `cubin.rs`.

use std::ptr::NonNull;

use crate::cubin::{self, Code, ELF_HEADER_BYTES, ELF_MAGIC, FAT_HEADER_BYTES};

/// What an image holds; `None` for an image that cannot be read (a fat binary or PTX, whose
/// code a driver would choose or make).
///
/// # Safety
/// `image` must point to a whole image.
pub unsafe fn code(image: NonNull<u8>) -> Option<Code> {
    // SAFETY: every image is longer than four bytes or is text with a terminator.
    if unsafe { bytes(image, ELF_MAGIC.len()) } != ELF_MAGIC {
        return None;
    }
    // SAFETY: it is an ELF file, so its header is there.
    let table_end = cubin::table_end(unsafe { bytes(image, ELF_HEADER_BYTES) })?;
    // SAFETY: the section table belongs to the image, whose wholeness the caller promises.
    let size = cubin::elf_bytes(unsafe { bytes(image, table_end) })?;
    // SAFETY: as above, for the sections.
    cubin::code(unsafe { bytes(image, size) })
}

/// How PTX says which version of it a text is, which it has to.
const PTX_VERSION: &[u8] = b".version";

/// How a library of several images begins.
const ARCHIVE: &[u8] = b"!<arch>";

/// Whether an image is a text that is not PTX. What has other bytes than those of texts before its end may be a format
/// that is not known here, and an image that holds nothing is not refused either.
///
/// # Safety
/// As for [`code`].
pub unsafe fn is_other_text(image: NonNull<u8>) -> bool {
    let mut length = 0;
    loop {
        // SAFETY: what lies before is text without a terminator, so the image goes on.
        let text = unsafe { bytes(image, length + 1) };
        match text {
            [] | [0] => return false,
            [.., 0] => return true,
            [.., letter] if !(letter.is_ascii_graphic() || letter.is_ascii_whitespace()) => return false,
            text if text.ends_with(PTX_VERSION) || text == ARCHIVE => return false,
            _ => length += 1,
        }
    }
}

/// The architectures in a fat binary, and whether each has machine code (or PTX).
///
/// # Safety
/// `binary` must point to a whole fat binary, or be null.
pub unsafe fn architectures(binary: *const u8) -> Vec<(u32, bool)> {
    let Some(binary) = NonNull::new(binary.cast_mut()) else { return Vec::new() };
    // SAFETY: a fat binary begins with a header of this size.
    let Some(size) = cubin::fat_bytes(unsafe { bytes(binary, FAT_HEADER_BYTES) }) else { return Vec::new() };
    // SAFETY: the header says how long the binary is, whose wholeness the caller promises.
    cubin::architectures(unsafe { bytes(binary, size) })
}

/// # Safety
/// `size` bytes must be readable at `start`, and must not change while the slice is in use.
unsafe fn bytes<'image>(start: NonNull<u8>, size: usize) -> &'image [u8] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(image: &[u8]) -> bool {
        let image = NonNull::new(image.as_ptr().cast_mut()).expect("a slice lies somewhere");
        // SAFETY: each ends with a zero byte, or is an image by its first bytes.
        unsafe { is_other_text(image) }
    }

    #[test]
    fn texts_are_ptx_or_no_image() {
        assert!(is_refused(b"not a module\0"));
        assert!(!is_refused(b"// made by hand\n\n.version 7.0\n.target sm_80\n\0"));
        assert!(!is_refused(b"\0"), "an image that holds nothing");
        assert!(!is_refused(b"!<arch>\n\0"));
        assert!(!is_refused(b"\x7fELF"));
        assert!(!is_refused(&0xba55_ed50_u32.to_le_bytes()));
    }
}

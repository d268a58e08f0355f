//! Files that a program maps are read where they are touched, and not ahead.
//!
//! A program that maps its weights asks for them to be read at once, because it is about to send them to the card
//! (llama.cpp does). Here a large copy moves nothing, so nobody would look at what was read: a file of 40 GB would be
//! fetched from the disk into as much of the host's memory for nothing. Both requests are hints, and a system may
//! ignore them.

use std::ffi::{c_int, c_void};

/// `mmap`, without the wish that a file's pages be there from the start. Anonymous memory is what it would be.
///
/// It is called from anywhere, before this library is initialized too, so it uses nothing of it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    size: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let flags = if flags & libc::MAP_ANONYMOUS == 0 { flags & !libc::MAP_POPULATE } else { flags };
    // SAFETY: these are the arguments of the system call of that name, and the caller keeps its contract. On 64-bit
    // systems it takes the offset in bytes, as the function does; like it, `syscall` sets `errno` and gives -1.
    unsafe { libc::syscall(libc::SYS_mmap, address, size, protection, flags, file, offset) as *mut c_void }
}

/// The name under which programs that are built for large files call it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    size: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's contract; on 64-bit systems the two are one.
    unsafe { mmap(address, size, protection, flags, file, offset) }
}

/// `posix_madvise`, which has nothing to say about what will be needed.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_madvise(address: *mut c_void, size: usize, advice: c_int) -> c_int {
    // As in glibc: dropping pages, which `madvise` does at once, is not advice.
    if matches!(advice, libc::POSIX_MADV_WILLNEED | libc::POSIX_MADV_DONTNEED) {
        return 0;
    }
    // SAFETY: the caller's contract is that of `madvise`, whose numbers for the other advices are the same.
    if unsafe { libc::syscall(libc::SYS_madvise, address, size, advice) } == 0 {
        return 0;
    }
    // SAFETY: `errno` has a place in every thread.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// Pages of the mapping that are in memory.
    fn resident(address: *mut c_void, size: usize) -> usize {
        let mut pages = vec![0_u8; size / 4096];
        // SAFETY: the range was mapped, and there is a byte for each of its pages.
        assert_eq!(unsafe { libc::mincore(address, size, pages.as_mut_ptr()) }, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn a_mapped_file_is_not_read_ahead_and_reads_as_ever() {
        let size = 64 << 20;
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"first").unwrap();
        file.set_len(size as u64).unwrap();
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping of a file of that size, at a place that the system chooses.
        let address = unsafe { mmap64(std::ptr::null_mut(), size, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        assert_ne!(address, libc::MAP_FAILED);
        assert!(resident(address, size) < 1024, "the file was read when it was mapped");
        // SAFETY: the mapping is as long as that.
        unsafe {
            assert_eq!(std::slice::from_raw_parts(address.cast::<u8>(), 6), b"first\0");
            assert_eq!(posix_madvise(address, size, libc::POSIX_MADV_WILLNEED), 0);
            assert_eq!(posix_madvise(address, size, libc::POSIX_MADV_RANDOM), 0);
            assert_eq!(posix_madvise(address.byte_add(1), size, libc::POSIX_MADV_RANDOM), libc::EINVAL);
        }
    }

    #[test]
    fn a_mapping_that_cannot_be_made_says_why() {
        // SAFETY: no file has this number.
        let address = unsafe { mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE, -1, 0) };
        assert_eq!(address, libc::MAP_FAILED);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
    }
}

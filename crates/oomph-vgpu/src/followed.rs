//! Follows the blocks that PyTorch's allocator hands out, so that the hook knows which of them hold nothing yet.
//!
//! The allocator gives the same address again and again, out of this library's sight. What the hook noted of the values in a
//! block would therefore outlive it, and a tensor that no seen operation filled would take the values of one that lay
//! there before. So the function `allocate` of the allocator's object (the second after its destructors in every PyTorch
//! since 1.0) is replaced: the object gets a copy of its table of functions with that entry exchanged.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::gpu::gpu;

/// Entries of the allocator's table that are copied: more than it has.
const ENTRIES: usize = 256;
/// Entries in front of the table's address: where the object begins, and its type.
const BEFORE: usize = 2;
/// The entry of `allocate`, behind two destructors.
const ALLOCATE: usize = BEFORE + 2;

/// The allocator's own `allocate`.
static ALLOCATES: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Follows an allocator from now on. False where it cannot be.
///
/// # Safety
/// `allocator` is an object of C++ whose class derives from PyTorch's `c10::Allocator` in the first place, and that lives as
/// long as the process.
pub unsafe fn follow(allocator: *mut c_void) -> bool {
    if allocator.is_null() || !ALLOCATES.load(Ordering::Acquire).is_null() {
        return false;
    }
    let place = allocator.cast::<usize>();
    // SAFETY: an object of a class with virtual functions begins with the address of their table.
    let table = unsafe { place.read() };
    let Some(mut copy) = copied(table - BEFORE * size_of::<usize>()) else { return false };
    let Some(entry) = copy.get_mut(ALLOCATE) else { return false };
    ALLOCATES.store(std::ptr::with_exposed_provenance_mut(*entry), Ordering::Release);
    *entry = (allocate as *const c_void).expose_provenance();
    let copy: &'static mut [usize] = copy.leak();
    // SAFETY: the object can be written to, as every object can; the table has all entries of the one before.
    unsafe { place.write(copy.as_ptr().add(BEFORE).expose_provenance()) };
    true
}

/// The words at an address, up to the end of the memory that can be read there.
fn copied(address: usize) -> Option<Vec<usize>> {
    let mut words = vec![0_usize; BEFORE + ENTRIES];
    let size = words.len() * size_of::<usize>();
    let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address), iov_len: size };
    // SAFETY: the local memory is that of `words`; the other is only read, by the kernel, which refuses what cannot be.
    let done = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    words.truncate(usize::try_from(done).ok()? / size_of::<usize>());
    (words.len() > ALLOCATE).then_some(words)
}

/// Notes a block that the allocator hands out.
extern "C" fn handed_out(address: *mut c_void, size: usize) {
    if address.is_null() || size == 0 {
        return;
    }
    let handed = &gpu().handed;
    if let Some((byte, length)) = handed.first_bytes(size) {
        // SAFETY: the block is the caller's alone, and memory of a virtual card is the host's.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), byte, length) };
    }
    handed.add(address.addr(), size);
}

/// What the table has in the place of `allocate`: calls it, and has [`handed_out`] note what it gives.
///
/// It gives a structure of four words, which the caller has room for, and throws where the card is full. An exception goes
/// through no function of Rust here, so this is one of the machine's own, with the notes that unwinding needs.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn allocate() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbx, -16",
        "mov rbx, rdx",
        "call qword ptr [rip + {allocates}]",
        "mov rsi, rbx",
        "mov rbx, rax",
        "mov rdi, qword ptr [rax]",
        "call {handed_out}",
        "mov rax, rbx",
        "pop rbx",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        allocates = sym ALLOCATES,
        handed_out = sym handed_out,
    )
}

/// As above, for 64-bit Arm, where the caller's room is given in `x8`.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn allocate() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "stp x19, x20, [sp, #16]",
        ".cfi_offset x19, -16",
        ".cfi_offset x20, -8",
        "mov x19, x1",
        "mov x20, x8",
        "adrp x16, {allocates}",
        "ldr x16, [x16, #:lo12:{allocates}]",
        "blr x16",
        "ldr x0, [x20]",
        "mov x1, x19",
        "bl {handed_out}",
        "ldp x19, x20, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "ret",
        ".cfi_endproc",
        allocates = sym ALLOCATES,
        handed_out = sym handed_out,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `c10::DataPtr` is to a caller.
    #[repr(C)]
    struct DataPtr([usize; 4]);

    extern "C" fn destroyed() {}

    extern "C" fn gives(object: *const [usize; 2], size: usize) -> DataPtr {
        // SAFETY: the test gives an object of two words.
        let block = unsafe { (*object)[1] };
        DataPtr([block, size, 3, 4])
    }

    #[test]
    fn an_allocator_is_followed_and_answers_as_before() {
        let entry = |function: *const c_void| function.expose_provenance();
        let mut table = vec![0_usize; BEFORE + ENTRIES];
        table[BEFORE] = entry(destroyed as *const c_void);
        table[BEFORE + 1] = entry(destroyed as *const c_void);
        table[ALLOCATE] = entry(gives as *const c_void);
        let block = vec![0xff_u8; 64].leak();
        let object = Box::leak(Box::new([
            table.leak()[BEFORE..].as_ptr().expose_provenance(),
            block.as_ptr().expose_provenance(),
        ]));
        // SAFETY: the object looks like one of C++ and is never freed.
        assert!(unsafe { follow((&raw mut *object).cast()) });
        // SAFETY: the table has that many entries.
        let now = unsafe { std::ptr::with_exposed_provenance::<usize>(object[0]).add(2).read() };
        // SAFETY: what is there now takes the place of `gives`.
        let now: extern "C" fn(*const [usize; 2], usize) -> DataPtr = unsafe { std::mem::transmute(now) };
        assert_eq!(now(&raw const *object, 64).0, [object[1], 64, 3, 4]);
        assert_eq!(block, [0; 64], "a small block begins as zeros");

        let handed = &gpu().handed;
        // SAFETY: the number is never freed.
        assert_eq!(unsafe { handed.waiting().read_volatile() }, 1);
        let mut room = [[0; 2]; 4];
        assert_eq!(handed.take(&mut room), 1);
        assert_eq!(room[0], [object[1], 64]);
        assert_eq!(handed.take(&mut room), 0);
    }
}

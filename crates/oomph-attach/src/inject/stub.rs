//! Writes the routine that a redirected thread runs, as machine code of x86-64.

/// The routine up to the address of `Py_AddPendingCall`.
///
/// It is entered with the stack pointer at two words: the accumulator and the instruction that the thread continues
/// with, right below its red zone.
const ENTER: &[u8] = &[
    0x9c, // pushfq
    0x50, 0x53, 0x51, 0x52, 0x56, 0x57, 0x55, // push rax, rbx, rcx, rdx, rsi, rdi, rbp
    0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, // push r8, r9, r10, r11
    0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, // push r12, r13, r14, r15
    0xfc, // cld
    0x48, 0x89, 0xe5, // mov rbp, rsp
    // The size of the area for all other registers that are in use on this machine.
    0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 13
    0x31, 0xc9, // xor ecx, ecx
    0x0f, 0xa2, // cpuid
    0x48, 0x29, 0xdc, // sub rsp, rbx
    0x48, 0x83, 0xe4, 0xc0, // and rsp, -64
    // The header of the area, which has to be zero: 64 bytes behind the first 512.
    0x31, 0xc0, // xor eax, eax
    0x48, 0x89, 0x84, 0x24, 0x00, 0x02, 0x00, 0x00, // mov [rsp+0x200], rax
    0x48, 0x89, 0x84, 0x24, 0x08, 0x02, 0x00, 0x00, // mov [rsp+0x208], rax
    0x48, 0x89, 0x84, 0x24, 0x10, 0x02, 0x00, 0x00, // mov [rsp+0x210], rax
    0x48, 0x89, 0x84, 0x24, 0x18, 0x02, 0x00, 0x00, // mov [rsp+0x218], rax
    0x48, 0x89, 0x84, 0x24, 0x20, 0x02, 0x00, 0x00, // mov [rsp+0x220], rax
    0x48, 0x89, 0x84, 0x24, 0x28, 0x02, 0x00, 0x00, // mov [rsp+0x228], rax
    0x48, 0x89, 0x84, 0x24, 0x30, 0x02, 0x00, 0x00, // mov [rsp+0x230], rax
    0x48, 0x89, 0x84, 0x24, 0x38, 0x02, 0x00, 0x00, // mov [rsp+0x238], rax
    0x83, 0xc8, 0xff, // or eax, -1
    0x83, 0xca, 0xff, // or edx, -1
    0x48, 0x0f, 0xae, 0x24, 0x24, // xsave64 [rsp]
    0x49, 0x89, 0xe4, // mov r12, rsp
    0x48, 0x8d, 0x3d, 0x40, 0x00, 0x00, 0x00, // lea rdi, [rip+CALLBACK]
    0x48, 0x8d, 0x35, 0x50, 0x00, 0x00, 0x00, // lea rsi, [rip+TEXT]
    0x48, 0xb8, // mov rax, ...
];

/// The rest of it.
const LEAVE: &[u8] = &[
    0xff, 0xd0, // call rax
    0x4c, 0x89, 0xe4, // mov rsp, r12
    0x83, 0xc8, 0xff, // or eax, -1
    0x83, 0xca, 0xff, // or edx, -1
    0x48, 0x0f, 0xae, 0x2c, 0x24, // xrstor64 [rsp]
    0x48, 0x89, 0xec, // mov rsp, rbp
    0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, // pop r15, r14, r13, r12
    0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, // pop r11, r10, r9, r8
    0x5d, 0x5f, 0x5e, 0x5a, 0x59, 0x5b, 0x58, // pop rbp, rdi, rsi, rdx, rcx, rbx, rax
    0x9d, // popfq
    0x58, // pop rax
    0xc2, 0x80, 0x00, // ret 128, over the red zone
];

/// The pending call, `int callback(char *text)`, up to the address of `PyRun_SimpleString`.
const CALLBACK: &[u8] = &[
    0x48, 0x83, 0xec, 0x08, // sub rsp, 8
    0x48, 0xb8, // mov rax, ...
];

/// The rest of it: no error is handed on, because the text hands on none.
const CALLBACK_END: &[u8] = &[
    0xff, 0xd0, // call rax
    0x31, 0xc0, // xor eax, eax
    0x48, 0x83, 0xc4, 0x08, // add rsp, 8
    0xc3, // ret
];

/// The size of the words below the red zone.
pub(super) const FRAME: u64 = 16;
/// What the x86-64 ABI leaves to a function below its stack pointer.
pub(super) const RED_ZONE: u64 = 128;
/// How much stack the routine takes: the registers, up to 11 KiB of vectors and tiles, and the call.
pub(super) const STACK: u64 = 32 << 10;

/// The routine, the pending call and the text, in one piece.
pub(super) fn routine(add_pending_call: u64, run_string: u64, text: &[u8]) -> Vec<u8> {
    let mut code = Vec::with_capacity(512);
    code.extend(ENTER);
    code.extend(add_pending_call.to_le_bytes());
    code.extend(LEAVE);
    code.extend(CALLBACK);
    code.extend(run_string.to_le_bytes());
    code.extend(CALLBACK_END);
    code.extend(text);
    code.push(0);
    code
}

/// The Python text that the pending call runs. It leaves no name and no open file behind, raises nothing, and hands a Ctrl-C on that
/// arrives meanwhile.
pub(super) fn text(script: &str) -> Vec<u8> {
    format!(
        "try:\n exec((lambda f:(f.read(),f.close())[0])(__import__('io').open({script:?})),{{}})\nexcept KeyboardInterrupt:\n \
         __import__('_thread').interrupt_main()\nexcept BaseException:\n pass\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two relative addresses in the routine lead to the pending call and to the text.
    #[test]
    fn the_parts_lie_where_the_code_expects_them() {
        let text = text("/tmp/a/errand.py");
        let code = routine(1, 2, &text);
        let relative = |at: usize| {
            assert_eq!((code[at], code[at + 1]), (0x48, 0x8d));
            let offset = i32::from_le_bytes(code[at + 3..at + 7].try_into().unwrap());
            at + 7 + usize::try_from(offset).unwrap()
        };
        let first = ENTER.len() - 2 - 14;
        assert_eq!(&code[relative(first)..][..4], &CALLBACK[..4]);
        assert_eq!(&code[relative(first + 7)..][..text.len()], text);
        assert_eq!(code.last(), Some(&0));
        assert!(code.len() < super::super::cave::NEEDED, "{}", code.len());
    }
}

//! Reads and writes the memory of another process.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::process;

/// The memory of a process.
#[derive(Debug)]
pub(crate) struct Memory {
    pid: Pid,
    file: File,
}

impl Memory {
    /// Opens it; this takes the same permission as tracing.
    pub fn open(pid: u32) -> io::Result<Self> {
        let path = process::folder(pid).join("mem");
        Ok(Self { pid: nix_pid(pid), file: OpenOptions::new().read(true).write(true).open(path)? })
    }

    /// Whose memory it is.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Fills the buffer.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, address)
    }

    /// Reads as many bytes as are mapped.
    pub fn read_some(&self, address: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0; length];
        let remote = RemoteIoVec { base: usize::try_from(address).unwrap_or(0), len: length };
        let read = process_vm_readv(self.pid, &mut [IoSliceMut::new(&mut buffer)], &[remote]).unwrap_or(0);
        buffer.truncate(read);
        buffer
    }

    /// Reads a little-endian word; both architectures that matter are little-endian.
    pub fn word(&self, address: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes; pages that only can be read become private copies.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }
}

pub(crate) fn nix_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

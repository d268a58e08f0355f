//! Finds room for the routine: the bytes between the end of a file's code and the end of that page.
//!
//! They are mapped and executable because the kernel maps whole pages, and nothing of the file refers to them. Only
//! files are taken that a program never unloads.

use crate::elf::Module;
use crate::memory::Memory;
use crate::process::Mapping;

/// How many bytes are needed.
pub(super) const NEEDED: usize = 528;
/// The unit that the kernel maps.
const PAGE: u64 = 4096;
/// Begins the place, so that the next attacher finds it again.
const MARK: &[u8; 16] = b"oomph-attach/1\0\0";

/// A place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cave {
    /// Where the routine begins.
    pub address: u64,
    /// How many bytes there are.
    pub length: usize,
}

/// Finds one, or the one that an earlier attacher found.
pub(super) fn find(pid: u32, memory: &Memory, mappings: &[Mapping], python: &Module) -> Option<Cave> {
    let is_lasting = |mapping: &&Mapping| {
        let name = mapping.name();
        ["libc.so", "libc-", "ld-linux", "ld-musl", "libm.so", "libm-", "libpthread", "libdl"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let mut places = places(python, mappings);
    for mapping in mappings.iter().filter(|mapping| mapping.executable && mapping.inode > 0).filter(is_lasting) {
        if let Some(module) = Module::read(pid, mappings, mapping) {
            places.extend(self::places(&module, mappings));
        }
    }
    let is_marked = |place: &&(u64, u64)| memory.read_some(place.0, MARK.len()) == MARK;
    let (start, end) = places.iter().find(is_marked).or_else(|| {
        let needed = (NEEDED + MARK.len()) as u64;
        places.iter().find(|(start, end)| end - start >= needed)
    })?;
    let address = start + MARK.len() as u64;
    Some(Cave { address, length: usize::try_from(end - address).ok()? })
}

impl Cave {
    /// Puts the routine into the place, and a mark before it.
    ///
    /// # Errors
    /// When the kernel does not allow writing to code.
    pub fn fill(&self, memory: &Memory, code: &[u8]) -> std::io::Result<()> {
        let mut bytes = MARK.to_vec();
        bytes.extend(code);
        memory.write(self.address - MARK.len() as u64, &bytes)
    }
}

/// The free ends of a file's executable segments: from an address to another.
fn places(module: &Module, mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let place = |(_, end): &(u64, u64)| {
        let start = end.next_multiple_of(16);
        let last = end.next_multiple_of(PAGE);
        let is_mapped = |mapping: &Mapping| {
            mapping.executable && mapping.path == module.path && mapping.start <= start && last <= mapping.end
        };
        (start < last && mappings.iter().any(is_mapped)).then_some((start, last))
    };
    module.code.iter().filter_map(place).collect()
}

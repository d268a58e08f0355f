//! Reads the parts of an ELF file that are needed: its place in memory, its symbols, sections and executable segments.

use std::fs;
use std::path::Path;

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, ReadCache};

use crate::process::{self, Mapping};

/// A file that is mapped into a process.
#[derive(Debug)]
pub(crate) struct Module {
    /// The file's path as the target sees it.
    pub path: String,
    /// Defined dynamic functions and objects: name, address in memory, size.
    pub symbols: Vec<Symbol>,
    /// Executable segments: first address and the address behind the last byte that is the file's own.
    pub code: Vec<(u64, u64)>,
    /// The section that CPython puts its state in.
    pub py_runtime: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub name: String,
    pub address: u64,
    pub size: u64,
    pub is_function: bool,
}

impl Module {
    /// Reads the file behind a mapping. `None` where it cannot be read or is not what is mapped any more.
    pub fn read(pid: u32, mappings: &[Mapping], of: &Mapping) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;

        let file = process::folder(pid).join("root").join(of.path.trim_start_matches('/'));
        let is_same = |path: &Path| fs::metadata(path).is_ok_and(|found| found.ino() == of.inode);
        // An upgrade replaces files that are in use; the kernel still has the executable then.
        let exe = process::folder(pid).join("exe");
        let file = [file, exe].into_iter().find(|path| is_same(path))?;
        Self::parse(&file, mappings, of)
    }

    fn parse(file: &Path, mappings: &[Mapping], of: &Mapping) -> Option<Self> {
        let data = ReadCache::new(fs::File::open(file).ok()?);
        let data = &data;
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        // The mapping of a file's beginning, and what its first segment says of where that belongs.
        let base = mappings.iter().find(|mapping| mapping.path == of.path && mapping.offset == 0)?.start;
        let first = segments
            .iter()
            .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
            .find(|segment| segment.p_offset(endian) < 0x1000)?;
        let bias = base.wrapping_sub(first.p_vaddr(endian).wrapping_sub(first.p_offset(endian)));
        let code = segments
            .iter()
            .filter(|segment| segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian) & elf::PF_X != 0)
            .map(|segment| {
                let start = segment.p_vaddr(endian).wrapping_add(bias);
                (start, start.saturating_add(segment.p_memsz(endian)))
            })
            .collect();
        let sections = header.sections(endian, data).ok();
        let mut module = Self { path: of.path.clone(), symbols: Vec::new(), code, py_runtime: None };
        let Some(sections) = sections else { return Some(module) };
        module.py_runtime = sections
            .section_by_name(endian, b".PyRuntime")
            .map(|(_, section)| section.sh_addr(endian).wrapping_add(bias));
        if let Ok(table) = sections.symbols(endian, data, elf::SHT_DYNSYM) {
            for symbol in table.iter().filter(|symbol| symbol.st_shndx(endian) != elf::SHN_UNDEF) {
                let kind = symbol.st_type();
                if kind != elf::STT_FUNC && kind != elf::STT_OBJECT {
                    continue;
                }
                let Ok(name) = table.symbol_name(endian, symbol) else { continue };
                module.symbols.push(Symbol {
                    name: String::from_utf8_lossy(name).into_owned(),
                    address: symbol.st_value(endian).wrapping_add(bias),
                    size: symbol.st_size(endian),
                    is_function: kind == elf::STT_FUNC,
                });
            }
        }
        Some(module)
    }

    /// The address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|symbol| symbol.name == name).map(|symbol| symbol.address)
    }

    /// The exported function that an address lies in.
    pub fn function(&self, address: u64) -> Option<&str> {
        let holds = |symbol: &&Symbol| {
            symbol.is_function && address >= symbol.address && address < symbol.address.saturating_add(symbol.size)
        };
        self.symbols.iter().find(holds).map(|symbol| symbol.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test program's own C library, against the addresses that the program itself sees.
    #[test]
    fn a_library_is_read_where_it_lies() {
        let pid = std::process::id();
        let mappings = process::mappings(pid).unwrap();
        let library =
            mappings.iter().find(|mapping| mapping.name().starts_with("libc.so") && mapping.executable).unwrap();
        let module = Module::read(pid, &mappings, library).unwrap();
        let getpid = module.address("getpid").unwrap();
        assert!(library.holds(getpid));
        assert_eq!(module.function(getpid + 1).map(|name| name.trim_start_matches('_')), Some("getpid"));
        let (start, end) = module.code[0];
        assert!(library.holds(start) && library.holds(end - 1), "{start:x} {end:x} {library:x?}");
    }
}

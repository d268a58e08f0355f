//! What the images of kernels say: ELF cubins and fat binaries, as bytes.
//!
//! Images come from the program itself, but a truncated file may be among them, so nothing is read beyond the bytes
//! that are given, and nothing that contradicts itself is believed. This file knows nothing of the rest of the crate,
//! so that the fuzzer can include it.

use std::collections::BTreeMap;

/// How an ELF image begins.
pub const ELF_MAGIC: [u8; 4] = [0x7f, b'E', b'L', b'F'];
/// Size of an ELF image's header, in bytes.
pub const ELF_HEADER_BYTES: usize = 64;
/// Size of a fat binary's header, in bytes.
pub const FAT_HEADER_BYTES: usize = 16;
const FAT_MAGIC: u32 = 0xba55_ed50;
const FAT_ENTRY_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
/// Larger images than any are not believed, in bytes.
const MOST_BYTES: usize = 1 << 30;
const SYMBOL_BYTES: usize = 24;
/// Kinds of sections: a table of symbols, and bytes that are not in the file.
const SYMBOL_TABLE: u32 = 2;
const NO_BITS: u32 = 8;
/// The kind of symbols that are variables, in the lower bits of their `st_info`.
const OBJECT: u8 = 1;
/// Global variables begin at multiples of this, in bytes, as in memory that was allocated.
const ALIGNMENT: usize = 256;

/// Kinds of entries in `.nv.info.KERNEL` sections: `EIATTR_MAX_THREADS`, `EIATTR_FRAME_SIZE`.
const INFO_MAX_THREADS: u8 = 0x05;
const INFO_FRAME_SIZE: u8 = 0x11;

/// What frameworks ask about a kernel. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Most threads of a block.
    pub max_threads: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory.
    pub shared: u32,
    /// Local memory per thread: what spilled.
    pub local: u32,
    /// Architecture of the machine code, as 10 * major + minor.
    pub arch: u32,
}

/// The kernels of an image, by name.
pub type Kernels = BTreeMap<Vec<u8>, Attributes>;

/// Global variables of an image. XLA keeps the constants of a program there. Sizes and offsets in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Globals {
    /// What all of them take together.
    pub size: usize,
    /// Where each begins, and how long it is.
    pub named: BTreeMap<Vec<u8>, (usize, usize)>,
    /// What the image says is in them, and where it begins; the rest is zero.
    pub contents: Vec<(usize, Vec<u8>)>,
}

/// What an image holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// Its kernels. An image of constants has none.
    pub kernels: Kernels,
    /// Its global variables.
    pub globals: Globals,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?)).ok()
}

/// Where the section table of an image ends, in bytes from its start, as the header says.
pub fn table_end(header: &[u8]) -> Option<usize> {
    let table = usize_at(header, 0x28)?;
    let count = usize::from(u16_at(header, 0x3c)?);
    let end = table.checked_add(count.checked_mul(SECTION_HEADER_BYTES)?)?;
    (end <= MOST_BYTES).then_some(end)
}

/// The size of an image, in bytes, as its section table says. `image` reaches to [`table_end`] at least.
pub fn elf_bytes(image: &[u8]) -> Option<usize> {
    // Sections may follow the table.
    let end = sections(image)?.iter().filter_map(Section::end).max().unwrap_or(0).max(table_end(image)?);
    (end <= MOST_BYTES).then_some(end)
}

struct Section {
    name: usize,
    kind: u32,
    /// For a table of symbols, the section of their names.
    link: usize,
    info: u32,
    offset: usize,
    size: usize,
}

impl Section {
    /// Where its bytes end in the file; sections without bytes there (`SHT_NOBITS`) have no end.
    fn end(&self) -> Option<usize> {
        if self.kind == NO_BITS { None } else { self.offset.checked_add(self.size) }
    }

    fn bytes<'image>(&self, image: &'image [u8]) -> &'image [u8] {
        self.end().and_then(|end| image.get(self.offset..end)).unwrap_or_default()
    }
}

fn sections(image: &[u8]) -> Option<Vec<Section>> {
    let table = usize_at(image, 0x28)?;
    let count = usize::from(u16_at(image, 0x3c)?);
    (0..count)
        .map(|index| {
            let at = table.checked_add(index * SECTION_HEADER_BYTES)?;
            let header = image.get(at..at.checked_add(SECTION_HEADER_BYTES)?)?;
            Some(Section {
                name: u32_at(header, 0)? as usize,
                kind: u32_at(header, 4)?,
                offset: usize_at(header, 24)?,
                size: usize_at(header, 32)?,
                link: u32_at(header, 40)? as usize,
                info: u32_at(header, 44)?,
            })
        })
        .collect()
}

/// Reads a whole cubin. The registers of a kernel are in the upper byte of its `.text` section's `sh_info`, its
/// shared memory is the size of `.nv.shared.KERNEL`, and its frame and thread limit are in `.nv.info.KERNEL`.
pub fn code(image: &[u8]) -> Option<Code> {
    let all = sections(image)?;
    let names = all.get(usize::from(u16_at(image, 0x3e)?))?.bytes(image);
    let name_of = |section: &Section| text_at(names, section.name);
    let flags = u32_at(image, 0x30)?;
    // Newer cubins keep the architecture in the second byte of the flags, older ones in the first.
    let (first, second) = (flags & 0xff, flags >> 8 & 0xff);
    let arch = if (30..=200).contains(&second) { second } else { first };
    let mut kernels = Kernels::new();
    for section in &all {
        if let Some(kernel) = name_of(section).strip_prefix(b".text.") {
            let attributes = Attributes { max_threads: 1024, registers: section.info >> 24, shared: 0, local: 0, arch };
            kernels.insert(kernel.to_vec(), attributes);
        }
    }
    for section in &all {
        let name = name_of(section);
        if let Some(attributes) = name.strip_prefix(b".nv.shared.").and_then(|kernel| kernels.get_mut(kernel)) {
            attributes.shared = u32::try_from(section.size).unwrap_or(u32::MAX);
        }
        if let Some(attributes) = name.strip_prefix(b".nv.info.").and_then(|kernel| kernels.get_mut(kernel)) {
            read_info(section.bytes(image), attributes);
        }
    }
    // The third bank is that of `__constant__` variables, which hosts find by name as well.
    let kinds: [&[u8]; 3] = [b".nv.global", b".nv.managed", b".nv.constant3"];
    let is_global = |section: &Section| kinds.iter().any(|kind| name_of(section).starts_with(kind));
    Some(Code { kernels, globals: globals(image, &all, is_global) })
}

/// The variables in the sections of an image for which `is_global` holds.
fn globals(image: &[u8], all: &[Section], is_global: impl Fn(&Section) -> bool) -> Globals {
    let mut size = 0_usize;
    let mut contents = Vec::new();
    let starts: Vec<Option<usize>> = all
        .iter()
        .map(|section| {
            let start = size.checked_next_multiple_of(ALIGNMENT)?;
            is_global(section).then_some(())?;
            size = start.checked_add(section.size)?;
            let bytes = section.bytes(image);
            if !bytes.is_empty() {
                contents.push((start, bytes.to_vec()));
            }
            Some(start)
        })
        .collect();
    let mut named = BTreeMap::new();
    for table in all.iter().filter(|section| section.kind == SYMBOL_TABLE) {
        let names = all.get(table.link).map_or(&[][..], |section| section.bytes(image));
        for symbol in table.bytes(image).chunks_exact(SYMBOL_BYTES) {
            let (Some(name), Some(section), Some(value), Some(length)) =
                (u32_at(symbol, 0), u16_at(symbol, 6), usize_at(symbol, 8), usize_at(symbol, 16))
            else {
                continue;
            };
            let is_object = symbol.get(4).is_some_and(|info| info & 0xf == OBJECT);
            let Some(start) = starts.get(usize::from(section)).copied().flatten().filter(|_| is_object) else {
                continue;
            };
            let within = start.checked_add(value).filter(|at| at.checked_add(length).is_some_and(|end| end <= size));
            if let Some(at) = within {
                named.insert(text_at(names, name as usize).to_vec(), (at, length));
            }
        }
    }
    Globals { size, named, contents }
}

/// The text that begins at a place in a section of texts.
fn text_at(texts: &[u8], at: usize) -> &[u8] {
    let rest = texts.get(at..).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Walks the entries of an info section: format, attribute, then a value or a sized payload.
fn read_info(mut bytes: &[u8], attributes: &mut Attributes) {
    while let [format, attribute, rest @ ..] = bytes {
        let Some(value) = u16_at(rest, 0) else { return };
        // Format 4 has a payload of `value` bytes; the others hold their value in place.
        let payload_size = if *format == 4 { usize::from(value) } else { 0 };
        let Some(payload) = rest.get(2..2 + payload_size) else { return };
        match *attribute {
            INFO_MAX_THREADS => {
                let dimensions = [u32_at(payload, 0), u32_at(payload, 4), u32_at(payload, 8)];
                let threads = dimensions.iter().flatten().try_fold(1_u32, |all, one| all.checked_mul((*one).max(1)));
                attributes.max_threads = threads.filter(|threads| *threads > 0).unwrap_or(1024).min(1024);
            }
            INFO_FRAME_SIZE => attributes.local = u32_at(payload, 4).unwrap_or(0),
            _ => {}
        }
        bytes = rest.get(2 + payload_size..).unwrap_or_default();
    }
}

/// The size of a fat binary, in bytes, as its header says; `None` where the header is not one.
pub fn fat_bytes(header: &[u8]) -> Option<usize> {
    let (FAT_MAGIC, header_bytes, size) = (u32_at(header, 0)?, u16_at(header, 6)?, usize_at(header, 8)?) else {
        return None;
    };
    size.checked_add(usize::from(header_bytes)).filter(|end| *end <= MOST_BYTES)
}

/// The architectures in a fat binary, and whether each has machine code (or PTX).
pub fn architectures(binary: &[u8]) -> Vec<(u32, bool)> {
    let mut found = Vec::new();
    let (Some(end), Some(start)) = (fat_bytes(binary), u16_at(binary, 6)) else { return found };
    let binary = binary.get(..end).unwrap_or(binary);
    let mut at = usize::from(start);
    while let Some(entry) = at.checked_add(FAT_ENTRY_BYTES).and_then(|after| binary.get(at..after)) {
        let (Some(kind), Some(entry_header), Some(payload), Some(arch)) =
            (u16_at(entry, 0), u32_at(entry, 4), usize_at(entry, 8), u32_at(entry, 28))
        else {
            break;
        };
        found.push((arch & 0xff, kind == 2));
        let step = (entry_header as usize).saturating_add(payload);
        // An entry that is shorter than its own header is not an entry; one of no length would be read forever.
        if step < FAT_ENTRY_BYTES {
            break;
        }
        at = at.saturating_add(step);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_not_read() {
        assert!(code(&[]).is_none());
        let mut lying = vec![0_u8; 64];
        lying[..4].copy_from_slice(&ELF_MAGIC);
        lying[0x28] = 0xff;
        lying[0x3c] = 9;
        assert!(code(&lying).is_none());
    }

    #[test]
    fn info_entries_are_walked_to_the_end() {
        let mut attributes = Attributes { max_threads: 1024, registers: 0, shared: 0, local: 0, arch: 90 };
        let mut bytes = vec![3, 0x1b, 0xff, 0];
        bytes.extend([4, INFO_FRAME_SIZE, 8, 0, 1, 0, 0, 0, 64, 0, 0, 0]);
        bytes.extend([4, INFO_MAX_THREADS, 12, 0, 128, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4]);
        read_info(&bytes, &mut attributes);
        assert_eq!((attributes.local, attributes.max_threads), (64, 128));
    }

    #[test]
    fn an_image_of_constants_has_no_kernel_and_its_variables_have_their_sizes() {
        let mut names = vec![0_u8];
        let mut name = |text: &str| {
            let at = names.len() as u32;
            names.extend(text.bytes().chain([0]));
            at
        };
        let (table, init, rest) = (name(".symtab"), name(".nv.global.init"), name(".nv.global"));
        let (first, second, kernel) = (name("first"), name("second"), name("kernel"));
        let symbol = |name: u32, kind: u8, section: u16, value: u64, size: u64| {
            let head = [&name.to_le_bytes()[..], &[0x10 | kind, 0], &section.to_le_bytes()].concat();
            [head, value.to_le_bytes().to_vec(), size.to_le_bytes().to_vec()].concat()
        };
        let symbols =
            [symbol(first, OBJECT, 2, 4, 8), symbol(second, OBJECT, 3, 0, 3 << 30), symbol(kernel, 2, 3, 0, 8)]
                .concat();
        let contents = [9_u8; 12];
        let section = |name: u32, kind: u32, offset: usize, size: u64, link: u32| {
            let mut header = vec![0_u8; SECTION_HEADER_BYTES];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
            header[32..40].copy_from_slice(&size.to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            header
        };
        let at = ELF_HEADER_BYTES;
        let (after_names, after_symbols) = (at + names.len(), at + names.len() + symbols.len());
        let headers = [
            section(0, 3, at, names.len() as u64, 0),
            section(table, SYMBOL_TABLE, after_names, symbols.len() as u64, 0),
            section(init, 1, after_symbols, contents.len() as u64, 0),
            section(rest, NO_BITS, 0, 3 << 30, 0),
        ];
        let mut image = vec![0_u8; ELF_HEADER_BYTES];
        image[..4].copy_from_slice(&ELF_MAGIC);
        image[0x28..0x30].copy_from_slice(&((after_symbols + contents.len()) as u64).to_le_bytes());
        image[0x3c] = headers.len() as u8;
        image.extend([&names[..], &symbols, &contents, &headers.concat()].concat());
        let found = code(&image).expect("it can be read");
        assert!(found.kernels.is_empty());
        assert_eq!(found.globals.size, ALIGNMENT + (3 << 30));
        let named = [(b"first".to_vec(), (4, 8)), (b"second".to_vec(), (ALIGNMENT, 3 << 30))];
        assert_eq!(found.globals.named, BTreeMap::from(named));
        assert_eq!(found.globals.contents, [(0, contents.to_vec())]);
    }

    #[test]
    fn the_architectures_of_a_fat_binary_are_listed_until_it_ends() {
        let entry = |kind: u16, arch: u32, payload: u64| {
            let mut entry = vec![0_u8; FAT_ENTRY_BYTES];
            entry[..2].copy_from_slice(&kind.to_le_bytes());
            entry[4..8].copy_from_slice(&(FAT_ENTRY_BYTES as u32).to_le_bytes());
            entry[8..16].copy_from_slice(&payload.to_le_bytes());
            entry[28..32].copy_from_slice(&arch.to_le_bytes());
            entry.resize(FAT_ENTRY_BYTES + payload as usize, 0xff);
            entry
        };
        let entries = [entry(2, 80, 24), entry(2, 90, 0), entry(1, 90, 8)].concat();
        let mut binary = FAT_MAGIC.to_le_bytes().to_vec();
        binary.extend([1, 0, FAT_HEADER_BYTES as u8, 0]);
        binary.extend((entries.len() as u64).to_le_bytes());
        binary.extend(entries);
        assert_eq!(fat_bytes(&binary[..FAT_HEADER_BYTES]), Some(binary.len()));
        assert_eq!(architectures(&binary), [(80, true), (90, true), (90, false)]);
        assert_eq!(architectures(&binary[..binary.len() - 30]), [(80, true), (90, true)], "the last one is cut");
        assert_eq!(architectures(&binary[..10]), []);
        binary[8..16].fill(0xff);
        assert_eq!(architectures(&binary), [], "its size is not to be believed");
    }
}

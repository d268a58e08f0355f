//! What the images of kernels say: ELF cubins, fat binaries and PTX.
//!
//! Images come from the program itself, but a truncated file may be among them, so nothing is read beyond what the
//! headers announce, and nothing that contradicts itself is believed.

use std::ptr::NonNull;

use crate::module::{Attributes, Kernels};

const ELF_MAGIC: [u8; 4] = [0x7f, b'E', b'L', b'F'];
const FAT_MAGIC: u32 = 0xba55_ed50;
const SECTION_HEADER_BYTES: usize = 64;
/// Larger images than any are not believed, in bytes.
const MOST_BYTES: usize = 1 << 30;

/// Kinds of entries in `.nv.info.KERNEL` sections: `EIATTR_MAX_THREADS`, `EIATTR_FRAME_SIZE`.
const INFO_MAX_THREADS: u8 = 0x05;
const INFO_FRAME_SIZE: u8 = 0x11;

/// The kernels of an image with their attributes; `None` for an image that cannot be read (a fat binary or PTX, whose
/// code a driver would choose or make).
///
/// # Safety
/// `image` must point to a whole image.
pub unsafe fn kernels(image: NonNull<u8>) -> Option<Kernels> {
    // SAFETY: every image is longer than an ELF header or is text with a terminator; the magic is read first.
    let header = unsafe { std::slice::from_raw_parts(image.as_ptr(), 4) };
    if header != ELF_MAGIC {
        return None;
    }
    // SAFETY: it is an ELF file, so its 64-byte header is there.
    let header = unsafe { std::slice::from_raw_parts(image.as_ptr(), 64) };
    let size = elf_size(header)?;
    // SAFETY: the section table lies at the end of the image, whose wholeness the caller promises.
    let table = unsafe { std::slice::from_raw_parts(image.as_ptr(), size) };
    // The section table may be followed by sections, so the size is what the table says.
    let size = sections(table)?.iter().filter_map(Section::end).max().unwrap_or(size).max(size);
    if size > MOST_BYTES {
        return None;
    }
    // SAFETY: as above.
    read_elf(unsafe { std::slice::from_raw_parts(image.as_ptr(), size) })
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

/// The end of the section table.
fn elf_size(header: &[u8]) -> Option<usize> {
    let table = usize_at(header, 0x28)?;
    let count = usize::from(u16_at(header, 0x3c)?);
    let size = table.checked_add(count.checked_mul(SECTION_HEADER_BYTES)?)?;
    (size <= MOST_BYTES).then_some(size)
}

struct Section {
    name: usize,
    kind: u32,
    info: u32,
    offset: usize,
    size: usize,
}

impl Section {
    /// Where its bytes end in the file; sections without bytes there (`SHT_NOBITS`) have no end.
    fn end(&self) -> Option<usize> {
        if self.kind == 8 { None } else { self.offset.checked_add(self.size) }
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
            Some(Section {
                name: u32_at(image, at)? as usize,
                kind: u32_at(image, at + 4)?,
                offset: usize_at(image, at + 24)?,
                size: usize_at(image, at + 32)?,
                info: u32_at(image, at + 44)?,
            })
        })
        .collect()
}

/// Reads a whole cubin. The registers of a kernel stand in the upper byte of its `.text` section's `sh_info`, its
/// shared memory is the size of `.nv.shared.KERNEL`, and its frame and thread limit are in `.nv.info.KERNEL`.
fn read_elf(image: &[u8]) -> Option<Kernels> {
    let all = sections(image)?;
    let names = all.get(usize::from(u16_at(image, 0x3e)?))?.bytes(image);
    let name_of = |section: &Section| -> &[u8] {
        let rest = names.get(section.name..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    };
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
    Some(kernels)
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

/// The architectures in a fat binary, and whether each has machine code (or PTX).
///
/// # Safety
/// `data` must point to a whole fat binary, or be null.
pub unsafe fn architectures(data: *const u8) -> Vec<(u32, bool)> {
    let mut found = Vec::new();
    if data.is_null() {
        return found;
    }
    // SAFETY: a fat binary begins with a 16-byte header.
    let header = unsafe { std::slice::from_raw_parts(data, 16) };
    let (Some(FAT_MAGIC), Some(header_bytes), Some(size)) = (u32_at(header, 0), u16_at(header, 6), usize_at(header, 8))
    else {
        return found;
    };
    if size > MOST_BYTES {
        return found;
    }
    let mut at = usize::from(header_bytes);
    let end = at.saturating_add(size);
    while at + 64 <= end {
        // SAFETY: the entry's header lies inside the size that the binary's header announces.
        let entry = unsafe { std::slice::from_raw_parts(data.add(at), 64) };
        let (Some(kind), Some(entry_header), Some(payload), Some(arch)) =
            (u16_at(entry, 0), u32_at(entry, 4), usize_at(entry, 8), u32_at(entry, 28))
        else {
            break;
        };
        found.push((arch & 0xff, kind == 2));
        let step = (entry_header as usize).saturating_add(payload);
        if step == 0 {
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
        assert!(read_elf(&[]).is_none());
        let mut lying = vec![0_u8; 64];
        lying[..4].copy_from_slice(&ELF_MAGIC);
        lying[0x28] = 0xff;
        lying[0x3c] = 9;
        assert!(read_elf(&lying).is_none());
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
}

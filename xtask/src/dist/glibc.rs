//! Reads from a program which glibc it needs.
//!
//! A loader refuses a program that names a version of a symbol that its glibc does not have, whether the symbol is called
//! or not. The virtual GPU lies in the program as data, is loaded into other programs later, and has to pass as well.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader as _, VerneedIterator};
use object::{Endianness, elf};

/// A version of glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32, u32);

/// The oldest glibc that what is handed out runs with: that of RHEL 8 and Debian 10.
pub const PROMISED: Version = Version(2, 28);

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

/// The newest version of glibc that a program and the library in it name.
///
/// # Errors
/// When it is newer than promised, when the file cannot be read, or when there is no library in it.
pub fn check(program: &Path) -> Result<Version> {
    let data = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let images = images(&data);
    if images.len() < 2 {
        bail!("{} holds no library, so the virtual GPU is missing", program.display());
    }
    let needed = images.into_iter().flatten().max().context("the program needs no glibc, which cannot be")?;
    if needed > PROMISED {
        bail!("{} needs glibc {needed}, newer than the {PROMISED} that is promised", program.display());
    }
    Ok(needed)
}

/// What each program or library needs that lies in these bytes.
fn images(data: &[u8]) -> Vec<BTreeSet<Version>> {
    // Data inside a program may begin anywhere; a copy of its own begins where headers can be read.
    let image = |start: usize| {
        let copy = data[start..].to_vec();
        needed(&copy)
    };
    memchr::memmem::find_iter(data, &elf::ELFMAG).filter_map(image).collect()
}

/// What one image needs; `None` for what only begins like one.
fn needed(image: &[u8]) -> Option<BTreeSet<Version>> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, image).ok()?;
    sections.iter().find(|section| section.sh_type(endian) == elf::SHT_DYNSYM)?;
    let mut versions = BTreeSet::new();
    if let Some((entries, strings)) = sections.gnu_verneed(endian, image).ok()? {
        let strings = sections.strings(endian, image, strings).ok()?;
        collect(entries, endian, |offset| strings.get(offset).ok(), &mut versions)?;
    }
    Some(versions)
}

fn collect<'data>(
    mut entries: VerneedIterator<'data, FileHeader64<Endianness>>,
    endian: Endianness,
    name: impl Fn(u32) -> Option<&'data [u8]>,
    versions: &mut BTreeSet<Version>,
) -> Option<()> {
    while let Some((_, mut names)) = entries.next().ok()? {
        while let Some(entry) = names.next().ok()? {
            versions.extend(version(name(entry.vna_name.get(endian))?));
        }
    }
    Some(())
}

/// The version in `GLIBC_2.28`; none in the names of other libraries' versions.
fn version(name: &[u8]) -> Option<Version> {
    let mut numbers = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.split('.').map(str::parse);
    Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(version(b"GLIBC_2.2.5"), Some(Version(2, 2)));
        assert!(version(b"GLIBC_2.9") < version(b"GLIBC_2.28"));
        assert_eq!(version(b"GCC_3.0"), None);
        assert_eq!(version(b"GLIBC_PRIVATE"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_names_what_it_needs() {
        let test = fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = images(&test);
        assert_eq!(found.len(), 1, "a test holds no library");
        assert!(found[0].iter().max() >= Some(&Version(2, 17)), "{found:?}");
        // The same inside other data, as the virtual GPU lies in oomph.
        for before in [64, 67] {
            let mut carrier = b"\x7fELF, or so it begins".to_vec();
            carrier.resize(before, 0);
            carrier.extend_from_slice(&test);
            assert_eq!(images(&carrier), found, "{before} bytes before it");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_without_the_library_does_not_pass() {
        let fault = check(&std::env::current_exe().unwrap()).unwrap_err().to_string();
        assert!(fault.contains("virtual GPU is missing"), "{fault}");
    }
}

//! Reads from a program which glibc it needs.
//!
//! A loader refuses a program that names a version of a symbol that its glibc does not have, whether the symbol is called
//! or not. The virtual GPU is packed into the program, is loaded into other programs later, and has to pass as well.

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

/// The newest version of glibc that these programs and libraries name.
///
/// # Errors
/// When it is newer than promised, or when a file cannot be read or needs no glibc.
pub fn check(files: &[&Path]) -> Result<Version> {
    let mut newest = Version(0, 0);
    for file in files {
        let data = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let needed = needed(&data).and_then(|versions| versions.into_iter().max());
        let needed = needed.with_context(|| format!("{} names no glibc, so it is no program", file.display()))?;
        if needed > PROMISED {
            bail!("{} needs glibc {needed}, newer than the {PROMISED} that is promised", file.display());
        }
        newest = newest.max(needed);
    }
    Ok(newest)
}

/// What a program or library needs; `None` for other files.
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
        let test = std::env::current_exe().unwrap();
        let found = needed(&fs::read(&test).unwrap()).unwrap();
        assert!(found.iter().max() >= Some(&Version(2, 17)), "{found:?}");
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let fault = check(&[&text]).unwrap_err().to_string();
        assert!(fault.contains("Cargo.toml names no glibc"), "{fault}");
    }
}

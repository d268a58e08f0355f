//! Detects whether machine code brings its own copy of the CUDA runtime.
//!
//! The virtual GPU takes the place of `libcudart.so` and of the driver. A runtime that was linked in statically
//! cannot be replaced, and it talks to the driver through private tables (`cuGetExportTable`) that nobody else
//! can fill.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, Object, ObjectSection, ReadCache};

/// Text that every CUDA runtime since 9.0 carries among its constants: the name of its shared memory file. A program
/// that links the runtime dynamically has no reason to hold it.
const RUNTIME_MARK: &[u8] = b"/cudart.shm.";

/// How many libraries of one program are looked at.
const MOST_LIBRARIES: usize = 64;

/// Constants beyond this size are not searched: no runtime hides in gigabytes of tables.
const MOST_CONSTANTS: u64 = 256 << 20;

/// What a file says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Linkage {
    /// The libraries that it needs, by name.
    pub(crate) needed: Vec<String>,
    /// Where it looks for them, as written.
    search: Vec<String>,
    /// The mark of a CUDA runtime was found in it.
    marked: bool,
}

impl Linkage {
    /// Reads a file. `None` when it is no 64-bit ELF file or is damaged: then the loader has the word.
    pub(crate) fn read(file: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(file).ok()?);
        let mut linkage = Self::default();
        linkage.read_dynamic(&cache)?;
        if !linkage.links_runtime() {
            let elf = object::File::parse(&cache).ok()?;
            linkage.marked = elf
                .sections()
                .filter(|section| section.name().is_ok_and(|name| name.starts_with(".rodata")))
                .filter(|section| section.size() <= MOST_CONSTANTS)
                .any(|section| section.data().is_ok_and(|data| memchr::memmem::find(data, RUNTIME_MARK).is_some()));
        }
        Some(linkage)
    }

    fn read_dynamic(&mut self, cache: &ReadCache<File>) -> Option<()> {
        let header = object::elf::FileHeader64::<Endianness>::parse(cache).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, cache).ok()?;
        // A program without a dynamic section is linked statically as a whole; it needs nothing.
        let Some((entries, strings)) = sections.dynamic(endian, cache).ok()? else { return Some(()) };
        let strings = sections.strings(endian, cache, strings).ok()?;
        for entry in entries {
            let list = match entry.tag(endian) {
                object::elf::DT_NEEDED => &mut self.needed,
                object::elf::DT_RPATH | object::elf::DT_RUNPATH => &mut self.search,
                _ => continue,
            };
            let text = u32::try_from(entry.val(endian)).ok().and_then(|at| strings.get(at).ok());
            list.extend(text.map(|text| String::from_utf8_lossy(text).into_owned()));
        }
        Some(())
    }

    /// Whether it uses a CUDA runtime that can be replaced. Wheels rename it (`libcudart-d0da41ae.so.11.0`).
    fn links_runtime(&self) -> bool {
        self.needed.iter().any(|name| name.starts_with("libcudart"))
    }

    /// Whether a CUDA runtime is part of the file.
    pub(crate) fn has_static_runtime(&self) -> bool {
        self.marked
    }

    /// The needed libraries in the program's own folder. Those of the system do not matter here.
    fn companions(&self, file: &Path) -> Vec<PathBuf> {
        let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let folders: Vec<PathBuf> = self
            .search
            .iter()
            .flat_map(|list| list.split(':'))
            .filter(|folder| !folder.is_empty())
            .map(|folder| PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)))
            .collect();
        let wanted = self.needed.iter().filter(|name| !is_replaced(name));
        wanted.filter_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())).collect()
    }
}

/// Libraries of NVIDIA carry a static runtime themselves. The virtual GPU takes their place as well.
fn is_replaced(library: &str) -> bool {
    const NAMES: [&str; 12] = [
        "libcuda.",
        "libcudart",
        "libcublas",
        "libcudnn",
        "libcufft",
        "libcurand",
        "libcusolver",
        "libcusparse",
        "libnccl",
        "libcupti",
        "libnvidia-ml",
        "libnv",
    ];
    NAMES.iter().any(|name| library.starts_with(name))
}

/// The first file of a program (itself or a library next to it) that carries a CUDA runtime of its own.
pub(crate) fn find_static_runtime(program: &Path) -> Option<PathBuf> {
    let mut open = vec![crate::program::real_path(program)];
    let mut seen = BTreeSet::new();
    while let Some(file) = open.pop() {
        if seen.len() >= MOST_LIBRARIES || !seen.insert(file.clone()) {
            continue;
        }
        let Some(linkage) = Linkage::read(&file) else { continue };
        if linkage.has_static_runtime() {
            return Some(file);
        }
        open.extend(linkage.companions(&file).iter().map(|path| crate::program::real_path(path)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// Compiles a program; `None` without a C compiler.
    fn compile(folder: &Path, name: &str, source: &str, arguments: &[&str]) -> Option<PathBuf> {
        let output = folder.join(name);
        let input = folder.join(format!("{name}.c"));
        fs::write(&input, source).unwrap();
        let done = Command::new("cc").arg(&input).arg("-o").arg(&output).args(arguments).status().ok()?;
        done.success().then_some(output)
    }

    #[test]
    fn a_runtime_inside_a_program_or_its_library_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let marked = r#"const char *volatile mark = "/cudart.shm.%x.%x.%llx"; int f(void) { return mark[0]; }"#;
        let Some(library) = compile(folder.path(), "libown.so", marked, &["-shared", "-fPIC", "-Wl,-soname,libown.so"])
        else {
            return;
        };
        assert_eq!(find_static_runtime(&library), Some(crate::program::real_path(&library)));
        let main = "int f(void); int main(void) { return f(); }";
        let program = compile(folder.path(), "uses", main, &[&at("libown.so"), "-Wl,-rpath,$ORIGIN"]).unwrap();
        assert_eq!(find_static_runtime(&program), Some(crate::program::real_path(&library)));
        let plain = compile(folder.path(), "plain", "int main(void) { return 0; }", &[]).unwrap();
        assert_eq!(find_static_runtime(&plain), None);

        // The mark next to a runtime that can be replaced proves nothing.
        fs::copy(&library, folder.path().join("libcudart.so.12")).unwrap();
        compile(folder.path(), "libcudart.so.13", marked, &["-shared", "-fPIC", "-Wl,-soname,libcudart.so.13"])
            .unwrap();
        let both = format!("{marked} int main(void) {{ return f(); }}");
        let dynamic = compile(
            folder.path(),
            "dynamic",
            &both,
            &["-Wl,--no-as-needed", &at("libcudart.so.13"), "-Wl,-rpath,$ORIGIN"],
        )
        .unwrap();
        assert_eq!(find_static_runtime(&dynamic), None);
    }

    #[test]
    fn what_is_no_program_is_let_through() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("text", b"#!/bin/sh\n".as_slice()), ("cut", b"\x7fELF\x02\x01\x01"), ("empty", b"")] {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            assert_eq!(find_static_runtime(&path), None);
        }
        let mut own = fs::read(std::env::current_exe().unwrap()).unwrap();
        own.truncate(own.len() / 2);
        fs::write(folder.path().join("half"), own).unwrap();
        assert_eq!(find_static_runtime(&folder.path().join("half")), None);
    }
}

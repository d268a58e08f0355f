//! Makes small libraries that carry the versions of the CUDA toolkit's symbols and nothing else.
//!
//! A program that is linked against `libcudart.so.13` names the version of each symbol that it takes from there, and the
//! loader prints a warning where the file of that name has no versions. The virtual GPU is one file under many names, so it
//! has none. Such a program finds a stub instead, which needs the virtual GPU, where the symbols are.

/// How a library of the driver is found from the stubs' folder: the virtual GPU, which is loaded already.
const NEEDED: &str = "libcuda.so.1";

const EHDR: usize = 64;
const PHDR: usize = 56;
const SYMBOL: usize = 24;
const VERDEF: usize = 20;
const VERDAUX: usize = 8;
const DYNAMIC: usize = 16;

/// x86-64 and AArch64, by the numbers that ELF gives them.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(not(target_arch = "x86_64"))]
const MACHINE: u16 = 183;

/// Whether a library of the toolkit has versions; each of them has one, which is called like the library.
pub fn is_versioned(name: &str) -> bool {
    !name.starts_with("libnccl")
}

/// The file of a stub.
pub fn stub(name: &str) -> Vec<u8> {
    let mut strings = vec![0_u8];
    let mut add = |text: &str| {
        let at = strings.len() as u64;
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    let (soname, needed) = (add(name), add(NEEDED));
    strings.resize(strings.len().next_multiple_of(8), 0);

    let string_table = EHDR + 3 * PHDR;
    let symbols = string_table + strings.len();
    let hash = symbols + SYMBOL;
    let versions = hash + 16;
    let definitions = versions + 8;
    let dynamic = definitions + 2 * (VERDEF + VERDAUX);
    let dynamic = dynamic.next_multiple_of(8);
    let entries: [(u64, u64); 11] = [
        (1, needed),                       // DT_NEEDED
        (14, soname),                      // DT_SONAME
        (4, hash as u64),                  // DT_HASH
        (5, string_table as u64),          // DT_STRTAB
        (6, symbols as u64),               // DT_SYMTAB
        (10, strings.len() as u64),        // DT_STRSZ
        (11, SYMBOL as u64),               // DT_SYMENT
        (0x6fff_fff0, versions as u64),    // DT_VERSYM
        (0x6fff_fffc, definitions as u64), // DT_VERDEF
        (0x6fff_fffd, 2),                  // DT_VERDEFNUM
        (0, 0),                            // DT_NULL
    ];
    let end = dynamic + entries.len() * DYNAMIC;

    let mut file = header();
    // Older loaders write into the dynamic section, so all of it is writable; nothing of it is run.
    segment(&mut file, 1, 0, end);
    segment(&mut file, 2, dynamic, entries.len() * DYNAMIC);
    segment(&mut file, 0x6474_e551, 0, 0);
    file.extend(&strings);
    file.resize(hash, 0);
    // A hash table with one bucket and the symbol that every table begins with.
    for word in [1_u32, 1, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    file.resize(definitions, 0);
    // The file's own name, and the version.
    definition(&mut file, (1, 1), name, soname, VERDEF + VERDAUX);
    definition(&mut file, (0, 2), name, soname, 0);
    file.resize(dynamic, 0);
    for (tag, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file
}

fn header() -> Vec<u8> {
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend(3_u16.to_le_bytes());
    file.extend(MACHINE.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    // No entry point; the program headers follow; no section headers.
    for word in [0_u64, EHDR as u64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [EHDR as u16, PHDR as u16, 3, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file
}

/// A segment that is read and written, at the address that is its place in the file.
fn segment(file: &mut Vec<u8>, kind: u32, at: usize, size: usize) {
    file.extend(kind.to_le_bytes());
    file.extend(6_u32.to_le_bytes());
    for word in [at, at, at, size, size] {
        file.extend((word as u64).to_le_bytes());
    }
    let alignment: u64 = if kind == 1 { 0x10000 } else { 8 };
    file.extend(alignment.to_le_bytes());
}

/// A version with its flags and its number; `next` is how far the next one is.
fn definition(file: &mut Vec<u8>, (flags, number): (u16, u16), name: &str, text: u64, next: usize) {
    for half in [1_u16, flags, number, 1] {
        file.extend(half.to_le_bytes());
    }
    for word in [elf_hash(name), VERDEF as u32, next as u32, text as u32, 0] {
        file.extend(word.to_le_bytes());
    }
}

/// The hash of a name, as the System V ABI defines it.
fn elf_hash(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_hash_of_the_abi() {
        assert_eq!(elf_hash("GLIBC_2.2.5"), 0x0969_1a75);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_program_that_names_versions_finds_them_and_its_symbols() {
        use std::fs;
        use std::process::Command;

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let compile = |code: &str, to: &str, options: &[&str]| {
            fs::write(at("code.c"), code).unwrap();
            let mut compiler = Command::new("cc");
            compiler.current_dir(folder.path()).args(["code.c", "-o", to]).args(options);
            assert!(compiler.status().unwrap().success(), "{to}");
        };
        fs::write(at("map"), "libx.so.1 { global: *; };").unwrap();
        let versioned = ["-shared", "-fPIC", "-Wl,-soname,libx.so.1", "-Wl,--version-script=map"];
        compile("int answer(void) { return 1; }", "libx.so.1", &versioned);
        let linked = ["-L.", "-l:libx.so.1", "-Wl,-rpath,$ORIGIN"];
        compile("int answer(void); int main(void) { return answer() == 7 ? 0 : 1; }", "program", &linked);
        compile("int answer(void) { return 7; }", NEEDED, &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
        fs::write(at("libx.so.1"), stub("libx.so.1")).unwrap();
        let mut program = Command::new(at("program"));
        let ran = program.env("LD_PRELOAD", at(NEEDED)).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.is_empty(), "{said}");
    }
}

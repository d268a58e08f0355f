//! The files that a process consists of: the program and its libraries, as the loader knows them.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

/// A file that is loaded, and where.
pub struct File {
    /// Its name, without its folder.
    pub name: String,
    /// The addresses from its first segment to the end of its last.
    pub range: Range<usize>,
}

/// The file that an address belongs to. `dladdr` would look through all of its symbols as well.
pub fn file_of(address: usize) -> Option<File> {
    struct Search {
        address: usize,
        found: Option<File>,
    }

    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands on what `file_of` gave it, and the loader's own description of a file.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the loader says where the headers are and how many.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        let ends = loaded.map(|header| (header.p_vaddr as usize, (header.p_vaddr + header.p_memsz) as usize));
        let Some((start, end)) = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))) else { return 0 };
        let base = info.dlpi_addr as usize;
        let range = base + start..base + end;
        if !range.contains(&search.address) {
            return 0;
        }
        let path = if info.dlpi_name.is_null() {
            String::new()
        } else {
            // SAFETY: the name is a string of the loader's.
            unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
        };
        // The program itself has no name there.
        let path = if path.is_empty() { std::env::current_exe().unwrap_or_default() } else { path.into() };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        search.found = Some(File { name, range });
        1
    }

    let mut search = Search { address, found: None };
    // SAFETY: the callback gets what it is made for, and no reference outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_belongs_to_the_program_and_a_number_to_nothing() {
        let file = file_of(file_of as *const () as usize).expect("code lies in a file");
        assert!(std::env::current_exe().unwrap().ends_with(&file.name), "{}", file.name);
        assert!(file.range.contains(&(file_of as *const () as usize)));
        assert!(file_of(1).is_none());
    }
}

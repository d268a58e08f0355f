//! Reads single lines of a program's source.

use std::fs;
use std::io::Read;
use std::path::Path;

use oomph_report::Site;

/// A source file longer than this is not searched for a line.
const LONGEST_SOURCE: u64 = 8 << 20;

/// The text of a line of the program.
pub fn source_line(directory: &Path, site: &Site) -> Option<String> {
    let path = directory.join(&site.file);
    let file = fs::File::open(&path).ok()?;
    // A pipe or a device of that name must not be read.
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LONGEST_SOURCE).read_to_end(&mut bytes).ok()?;
    let index = usize::try_from(site.line.checked_sub(1)?).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').nth(index)?;
    let line = String::from_utf8_lossy(line).trim().to_owned();
    (!line.is_empty() && line.len() < 4096).then_some(line)
}

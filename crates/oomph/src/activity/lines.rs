//! Which line of a program a call came from, by its debug information.

use std::collections::HashMap;
use std::path::Path;

use addr2line::Loader;
use oomph_launch::activity::CodePlace;

/// What marks a source file as somebody else's: the toolkit's and the system's headers, Rust's standard library and what
/// Cargo downloads.
const FOREIGN: [&str; 5] = ["/include/", "/rustc/", "/rustlib/", "/.cargo/registry/", "/.cargo/git/"];

/// Looks up lines, one file read once.
#[derive(Default)]
pub struct Lines {
    loaders: HashMap<String, Option<Loader>>,
}

impl Lines {
    /// The innermost line that is the program's own as `file:line`, or what comes nearest to it; `None` where nothing is
    /// known of the call.
    pub fn of(&mut self, frames: &[CodePlace]) -> Option<String> {
        let mut nearest = None;
        for frame in frames {
            let loader = self.loaders.entry(frame.module.clone()).or_insert_with(|| Loader::new(&frame.module).ok());
            let Some(lines) = loader.as_ref().map(|loader| source_lines(loader, frame.offset)) else { continue };
            if let Some(own) = lines.iter().find(|line| !line.foreign) {
                return Some(own.place.clone());
            }
            nearest = nearest.or_else(|| lines.into_iter().next_back().map(|line| line.place));
        }
        nearest.or_else(|| frames.first().map(|frame| self.function(frame)))
    }

    /// The function of a call, or its address where no symbol tells it.
    fn function(&self, frame: &CodePlace) -> String {
        let module = file_name(&frame.module);
        let loader = self.loaders.get(&frame.module).and_then(Option::as_ref);
        let symbol = frame.function.as_deref().or_else(|| loader?.find_symbol(frame.offset));
        match symbol {
            Some(symbol) => format!("{} in {module}", addr2line::demangle_auto(symbol.into(), None)),
            None => format!("{module}+{:#x}", frame.offset),
        }
    }
}

struct Line {
    place: String,
    foreign: bool,
}

/// The lines of an address, the innermost of what is inlined there first.
fn source_lines(loader: &Loader, offset: u64) -> Vec<Line> {
    let mut lines = Vec::new();
    let Ok(mut frames) = loader.find_frames(offset) else { return lines };
    while let Ok(Some(frame)) = frames.next() {
        if let Some((file, line)) = frame.location.and_then(|location| Some((location.file?, location.line?))) {
            let foreign = FOREIGN.iter().any(|part| file.contains(part));
            lines.push(Line { place: format!("{}:{line}", file_name(file)), foreign });
        }
    }
    lines
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, function: Option<&str>) -> CodePlace {
        CodePlace { module: module.into(), offset: 16, function: function.map(Into::into) }
    }

    #[test]
    fn without_debug_information_the_function_is_told_and_without_symbols_the_address() {
        let mut lines = Lines::default();
        let named = frame("/nowhere/prog", Some("_ZN5plate4stepEv"));
        assert_eq!(lines.of(&[named, frame("/nowhere/prog", Some("main"))]).unwrap(), "plate::step() in prog");
        assert_eq!(lines.of(&[frame("/nowhere/prog", None)]).unwrap(), "prog+0x10");
        assert_eq!(lines.of(&[]), None);
    }
}

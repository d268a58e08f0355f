//! Finds the source line of a call, from debug information.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use addr2line::Loader;
use oomph_launch::activity::CodePlace;
use oomph_report::Site;

use super::element::{Element, of_line};

/// A file of source with more bytes is not read.
const LONGEST_SOURCE: u64 = 4 << 20;

/// What marks a source file as somebody else's: the toolkit's and the system's headers, Rust's standard library and what
/// Cargo downloads, wherever its folder is.
const FOREIGN: [&str; 5] = ["/include/", "/rustc/", "/rustlib/", "/registry/src/", "/git/checkouts/"];

/// How the files of libraries are called that are shipped without debug information and take memory for their users:
/// llama.cpp's, whose buffers hold weights in the types of its model files.
const LIBRARIES: [&str; 1] = ["libggml"];

/// Libraries whose buffers people use in the place of CUDA's own calls.
const WRAPPERS: [&str; 4] = ["candle", "burn", "cudarc", "thrust"];

/// A line of the program's own that led to a call.
pub struct Own {
    /// The frame of the call that it lies in.
    pub frame: usize,
    /// The line as `file:line`.
    pub place: String,
    /// Its file, as the debug information has it.
    pub file: String,
    /// Its number.
    pub line: u64,
}

/// Looks up lines, one file read once.
#[derive(Default)]
pub struct Lines {
    loaders: HashMap<String, Option<Loader>>,
    /// The places reported for calls that no line or function of the program's own led to.
    libraries: BTreeSet<String>,
    /// The files and numbers of the program's own lines, by their places.
    sources: HashMap<String, (String, u64)>,
}

impl Lines {
    /// The innermost line that is the program's own as `file:line`, or what comes nearest to it: the innermost function of
    /// its own, a line of a library, a function of one; `None` where nothing is known of the call.
    pub fn of(&mut self, frames: &[CodePlace]) -> Option<String> {
        let mut nearest = None;
        for frame in frames {
            let lines = self.lines(frame);
            if let Some(own) = lines.iter().find(|line| !line.foreign) {
                let place = own.place();
                self.sources.insert(place.clone(), (own.file.clone(), own.line));
                return Some(place);
            }
            nearest = nearest.or_else(|| lines.last().map(Line::place));
        }
        if let Some(function) = self.own_function(frames) {
            return Some(function);
        }
        if let Some(place) = nearest {
            self.libraries.insert(place.clone());
            return Some(place);
        }
        let first = frames.first()?;
        let place = self.function(first);
        if LIBRARIES.iter().any(|library| file_name(&first.module).starts_with(library)) {
            self.libraries.insert(place.clone());
        }
        Some(place)
    }

    /// The lines of the program's own that led to a call, the innermost first, each with the frame that it lies in; what
    /// comes nearest where there is no debug information.
    pub fn chain(&mut self, frames: &[CodePlace]) -> Vec<Own> {
        let mut chain: Vec<Own> = Vec::new();
        for (number, frame) in frames.iter().enumerate() {
            for line in self.lines(frame).into_iter().filter(|line| !line.foreign) {
                let place = line.place();
                if chain.last().is_none_or(|last| last.place != place) {
                    chain.push(Own { frame: number, place, file: line.file, line: line.line });
                }
            }
        }
        if chain.is_empty()
            && let Some(place) = self.of(frames)
            && !self.is_library(&place)
        {
            chain.push(Own { frame: 0, place, file: String::new(), line: 0 });
        }
        chain
    }

    /// The library of those that wrap CUDA's calls that a call went through.
    pub fn library(&mut self, frames: &[CodePlace]) -> Option<&'static str> {
        let mut names: Vec<String> = Vec::new();
        for frame in frames {
            names.extend(self.lines(frame).into_iter().filter(|line| line.foreign).map(|line| line.file));
            names.extend(self.symbol(frame));
        }
        WRAPPERS.into_iter().find(|wrapper| names.iter().any(|name| name.contains(wrapper)))
    }

    /// What the line of a place says of the numbers that it allocates.
    pub fn element(&self, place: &str) -> Element {
        let Some((file, line)) = self.sources.get(place) else { return Element::Unknown };
        let is_source = std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() <= LONGEST_SOURCE);
        let text = is_source.then(|| std::fs::read_to_string(file).ok()).flatten().unwrap_or_default();
        let number = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        text.lines().nth(number).map_or(Element::Unknown, of_line)
    }

    /// Whether a place is a library's: nothing of the program's own led there, as far as is known.
    pub fn is_library(&self, place: &str) -> bool {
        self.libraries.contains(place)
    }

    /// The innermost function of the crate that a Rust program's `main` is in, or that is called like the program:
    /// without line tables the crates that it calls CUDA through are not known by their files.
    pub fn own_function(&mut self, frames: &[CodePlace]) -> Option<String> {
        for frame in frames {
            self.load(&frame.module);
        }
        let names: Vec<Option<String>> = frames.iter().map(|frame| self.symbol(frame)).collect();
        let main = |name: &String| name.strip_suffix("::main").filter(|of| !of.contains("::")).map(str::to_owned);
        let started = names.iter().flatten().rev().find_map(main);
        let (frame, name) = frames.iter().zip(names).find_map(|(frame, name)| {
            let own = started.clone().unwrap_or_else(|| file_name(&frame.module).replace('-', "_"));
            let path = name.as_deref()?.trim_start_matches('<').strip_prefix(&own)?;
            path.starts_with("::").then_some((frame, name?))
        })?;
        Some(in_module(name, frame))
    }

    /// The innermost line that is the program's own, with its function.
    pub fn own(&mut self, frames: &[CodePlace]) -> Option<Site> {
        let own = frames.iter().find_map(|frame| self.lines(frame).into_iter().find(|line| !line.foreign))?;
        Some(Site { file: own.file, line: own.line, function: own.function, text: None, cell: None })
    }

    /// The lines of a call, the innermost of what is inlined there first; none without debug information.
    fn lines(&mut self, frame: &CodePlace) -> Vec<Line> {
        if frame.module.ends_with(".py") {
            // A line of Python, which the hook named: the offset is its number.
            let function = frame.function.clone().unwrap_or_default();
            return vec![Line { file: frame.module.clone(), line: frame.offset, function, foreign: false }];
        }
        self.load(&frame.module).map(|loader| source_lines(loader, frame.offset)).unwrap_or_default()
    }

    fn load(&mut self, module: &str) -> Option<&Loader> {
        self.loaders.entry(module.into()).or_insert_with(|| Loader::new(module).ok()).as_ref()
    }

    /// The function of a call, or its address where no symbol gives it.
    fn function(&self, frame: &CodePlace) -> String {
        match self.symbol(frame) {
            Some(name) => in_module(name, frame),
            None => format!("{}+{:#x}", file_name(&frame.module), frame.offset),
        }
    }

    /// The function of a call as its author wrote it, where a symbol gives it and its file was loaded.
    fn symbol(&self, frame: &CodePlace) -> Option<String> {
        let loader = self.loaders.get(&frame.module).and_then(Option::as_ref);
        let symbol = frame.function.as_deref().or_else(|| loader?.find_symbol(frame.offset))?;
        Some(addr2line::demangle_auto(symbol.into(), None).into_owned())
    }
}

/// A function with the file that it is in, unless its own name begins with that.
fn in_module(name: String, frame: &CodePlace) -> String {
    let module = file_name(&frame.module);
    if name.strip_prefix(&module.replace('-', "_")).is_some_and(|rest| rest.starts_with("::")) {
        return name;
    }
    format!("{name} in {module}")
}

struct Line {
    file: String,
    line: u64,
    function: String,
    foreign: bool,
}

impl Line {
    fn place(&self) -> String {
        // Of what Cargo downloaded, the crate or the repository.
        let below = |(part, at): (&str, usize)| self.file.split_once(part)?.1.split('/').nth(at);
        if let Some(name) = [("/registry/src/", 1), ("/git/checkouts/", 0)].into_iter().find_map(below) {
            return format!("{name}/{}:{}", file_name(&self.file), self.line);
        }
        let path = Path::new(&self.file);
        let name = file_name(&self.file);
        // A Rust program has many files of this name, one in each folder.
        match path.parent().and_then(Path::file_name).filter(|_| name == "mod.rs") {
            Some(folder) => format!("{}/{name}:{}", folder.to_string_lossy(), self.line),
            None => format!("{name}:{}", self.line),
        }
    }
}

/// The lines of an address, the innermost of what is inlined there first.
fn source_lines(loader: &Loader, offset: u64) -> Vec<Line> {
    let mut lines = Vec::new();
    let Ok(mut frames) = loader.find_frames(offset) else { return lines };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.as_ref().and_then(|name| name.demangle().ok()).unwrap_or_default().into_owned();
        if let Some((file, line)) = frame.location.and_then(|location| Some((location.file?, location.line?))) {
            let foreign = FOREIGN.iter().any(|part| file.contains(part));
            lines.push(Line { file: file.into(), line: line.into(), function, foreign });
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
    fn without_debug_information_the_function_is_reported_and_without_symbols_the_address() {
        let mut lines = Lines::default();
        let named = frame("/nowhere/prog", Some("_ZN5plate4stepEv"));
        assert_eq!(lines.of(&[named, frame("/nowhere/prog", Some("main"))]).unwrap(), "plate::step() in prog");
        assert_eq!(lines.of(&[frame("/nowhere/prog", None)]).unwrap(), "prog+0x10");
        assert_eq!(lines.of(&[]), None);
        let buffer = lines.of(&[frame("/nowhere/libggml-cuda.so", Some("alloc_buffer"))]).unwrap();
        assert_eq!(buffer, "alloc_buffer in libggml-cuda.so");
        assert!(lines.is_library(&buffer) && !lines.is_library("prog+0x10"));
    }

    #[test]
    fn a_line_of_python_is_the_programs_own() {
        let mut lines = Lines::default();
        let frame = CodePlace { module: "/home/me/prices.py".into(), offset: 23, function: Some("main".into()) };
        assert_eq!(lines.of(std::slice::from_ref(&frame)).unwrap(), "prices.py:23");
        let site = lines.own(&[frame]).unwrap();
        assert_eq!((site.file.as_str(), site.line, site.function.as_str()), ("/home/me/prices.py", 23, "main"));
    }

    #[test]
    fn a_module_is_identified_by_its_folder_and_a_line_of_a_crate_by_the_crate() {
        let line = |file: &str| Line { file: file.into(), line: 3, function: String::new(), foreign: false }.place();
        let registry = "/home/me/.cargo/registry/src/index.crates.io-1/cudarc-0.19.10/src/driver/result.rs";
        assert_eq!(line(registry), "cudarc-0.19.10/result.rs:3");
        assert_eq!(
            (line("/a/src/layers/mod.rs").as_str(), line("/a/src/main.rs").as_str()),
            ("layers/mod.rs:3", "main.rs:3")
        );
    }

    #[test]
    fn without_line_tables_a_rust_program_is_distinguished_from_the_crates_it_calls() {
        let mut lines = Lines::default();
        let inner = frame("/nowhere/train-it", Some("_ZN6cudarc6driver5alloc17h0123456789abcdefE"));
        let own = frame("/nowhere/train-it", Some("_ZN8train_it7Network7forward17h0123456789abcdefE"));
        let main = frame("/nowhere/train-it", Some("_ZN8train_it4main17h0123456789abcdefE"));
        let called = |frames: &[CodePlace]| Lines::default().of(frames).unwrap();
        assert_eq!(called(&[inner.clone(), own.clone(), main.clone()]), "train_it::Network::forward");
        // A thread has no main of the program's; a file may be called otherwise than its crate.
        assert_eq!(called(&[inner.clone(), own.clone()]), "train_it::Network::forward");
        let renamed = |frame: &CodePlace| CodePlace { module: "/nowhere/prog".into(), ..frame.clone() };
        let all = [renamed(&inner), renamed(&own), renamed(&main)];
        assert_eq!(called(&all), "train_it::Network::forward in prog");
        assert_eq!(lines.own_function(&[inner]), None);
    }
}

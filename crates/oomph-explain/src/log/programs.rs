//! Which program and which library a text names, by the table in `programs.toml`.
//!
//! Messages of an interface ("CUDA error: out of memory") are the same from every program, so what failed is recognised
//! by the words around them: modules in a traceback, folders of sources, prefixes of a logger, classes of errors.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde::Deserialize;

/// How near to the user a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// What people start.
    Application,
    /// What programs are made of.
    Library,
    /// What is inside of libraries, too: it hides no framework.
    Part,
    /// A framework with messages of its own.
    Framework,
    /// A programming interface.
    Interface,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    applications: Vec<Vec<String>>,
    libraries: Vec<Vec<String>>,
    parts: Vec<Vec<String>>,
    frameworks: Vec<Vec<String>>,
    interfaces: Vec<Vec<String>>,
}

/// How a word is recognised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A whole word.
    Word,
    /// A part of a path or of a module's name.
    Module,
    /// As it is written.
    Exact,
}

struct Table {
    programs: Vec<(&'static str, Kind)>,
    words: Vec<(usize, Form, String)>,
    finder: AhoCorasick,
}

static TABLE: LazyLock<Option<Table>> = LazyLock::new(Table::load);

impl Table {
    fn load() -> Option<Self> {
        let file: File = toml::from_str(include_str!("programs.toml")).ok()?;
        let lists = [
            (Kind::Application, file.applications),
            (Kind::Library, file.libraries),
            (Kind::Part, file.parts),
            (Kind::Framework, file.frameworks),
            (Kind::Interface, file.interfaces),
        ];
        let (mut programs, mut words) = (Vec::new(), Vec::new());
        for (kind, rows) in lists {
            for row in rows {
                let mut row = row.into_iter();
                // The table lives as long as the program.
                let name: &'static str = Box::leak(row.next()?.into_boxed_str());
                for word in row {
                    let (form, word) = match (word.strip_prefix('='), word.strip_prefix('/')) {
                        (Some(exact), _) => (Form::Exact, exact.to_owned()),
                        (_, Some(module)) => (Form::Module, module.to_owned()),
                        _ => (Form::Word, word),
                    };
                    words.push((programs.len(), form, word));
                }
                programs.push((name, kind));
            }
        }
        let finder = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::DFA))
            .build(words.iter().map(|(_, _, word)| word))
            .ok()?;
        Some(Self { programs, words, finder })
    }

    /// The program that a text names and that `rank` puts first; the table's order decides between equals.
    fn best<K: Ord>(&self, text: &[u8], rank: impl Fn(&'static str, Kind) -> Option<K>) -> Option<&'static str> {
        let mut best: Option<(K, usize)> = None;
        for hit in self.finder.find_overlapping_iter(text) {
            let (owner, form, word) = &self.words[hit.pattern().as_usize()];
            if best.as_ref().is_some_and(|(_, known)| known == owner) {
                continue;
            }
            let (name, kind) = self.programs[*owner];
            let Some(rank) = rank(name, kind) else { continue };
            let better = best.as_ref().is_none_or(|(known, place)| (&rank, *owner) < (known, *place));
            if better && stands(text, hit.start(), hit.end(), *form, word) {
                best = Some((rank, *owner));
            }
        }
        best.map(|(_, owner)| self.programs[owner].0)
    }
}

/// Whether a word at a place of a text is there in its form.
fn stands(text: &[u8], start: usize, end: usize, form: Form, word: &str) -> bool {
    let before = start.checked_sub(1).map(|at| text[at]);
    let after = text.get(end).copied();
    // A list of what is installed says nothing about what ran.
    if text[end..].starts_with(b"==") {
        return false;
    }
    let letters = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphabetic());
    match form {
        Form::Exact => &text[start..end] == word.as_bytes(),
        Form::Word => {
            let (first, last) = (text[start], text[end - 1]);
            let next_but_one = text.get(end + 1).copied();
            let begins = !letters(before)
                && !before.is_some_and(|byte| byte.is_ascii_digit() && first.is_ascii_digit())
                || before.is_some_and(|byte| byte.is_ascii_lowercase()) && first.is_ascii_uppercase()
                || text[..start].ends_with(b"lib") && !letters(start.checked_sub(4).map(|at| text[at]));
            let ends = !letters(after)
                || after.is_some_and(|byte| byte.is_ascii_uppercase())
                    && (last.is_ascii_lowercase() || next_but_one.is_some_and(|byte| byte.is_ascii_lowercase()));
            begins && ends
        }
        Form::Module => {
            let dotted = after == Some(b'.') && letters(text.get(end + 1).copied());
            let in_path = matches!(after, Some(b'/' | b'\\')) || dotted;
            let versioned = after == Some(b'-') && text.get(end + 1).is_some_and(u8::is_ascii_digit);
            let behind_slash = matches!(before, Some(b'/' | b'\\'));
            let begins_token = matches!(before, None | Some(b' ' | b'"' | b'\'' | b'[' | b'(' | b'<' | b'\t' | b'\n'));
            behind_slash && (in_path || versioned) || begins_token && (dotted || in_path && after != Some(b'.'))
        }
    }
}

/// The library, or else the program, whose message a text is: what is nearest to the failure.
pub(crate) fn speaker(text: &str) -> Option<&'static str> {
    let rank = |_: &'static str, kind: Kind| {
        Some(match kind {
            Kind::Library | Kind::Part => 0,
            Kind::Framework => 1,
            Kind::Application => 2,
            Kind::Interface => 3,
        })
    };
    TABLE.as_ref()?.best(text.as_bytes(), rank)
}

/// The outermost program that a text names, other than the one whose words they are.
pub(crate) fn outermost(text: &[u8], library: &str) -> Option<&'static str> {
    let only_interface = is_interface(library);
    let rank = |name: &'static str, kind: Kind| match kind {
        _ if name == library => None,
        Kind::Application | Kind::Library => Some(kind),
        Kind::Part if only_interface => Some(kind),
        _ => None,
    };
    TABLE.as_ref()?.best(text, rank)
}

/// What kind a name of the table is of.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    TABLE.as_ref()?.programs.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// Whether a name is of a programming interface, whose own words name no program.
pub(crate) fn is_interface(name: &str) -> bool {
    name == "cuda" || kind(name) == Some(Kind::Interface)
}

/// Every name of the table.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.as_ref().into_iter().flat_map(|table| table.programs.iter().map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        assert!(names().count() > 300);
        let mut seen = std::collections::BTreeSet::new();
        assert!(names().all(|name| seen.insert(name)), "a name has one row");
        assert_eq!(kind("comfyui"), Some(Kind::Application));
        assert!(is_interface("cuda") && is_interface("vulkan") && !is_interface("pytorch"));
    }

    #[test]
    fn words_are_whole() {
        for (text, name) in [
            ("[LuxCore][1180.2] Memory used", Some("luxcore")),
            (r"D:\a\1\Luxcore\src\device.cpp", Some("luxcore")),
            ("openmm.OpenMMException: no", Some("openmm")),
            ("/x/libmxnet.so(+0x49)", Some("mxnet")),
            ("site-packages/vllm/worker.py", Some("vllm")),
            ("vllm==0.6.1", None),
            ("a torchlight in the dark", None),
            ("the ray of light, and then timm.", None),
            ("ray.exceptions.RayTaskError", Some("ray")),
            ("File \"/usr/lib/python3/dist-packages/timm/layers/x.py\"", Some("timm")),
            ("/home/u/.cargo/registry/src/index-1/burn-0.13.1/src/x.rs", Some("burn")),
        ] {
            assert_eq!(speaker(text), name, "{text}");
        }
    }

    #[test]
    fn a_library_speaks_and_an_application_is_around_it() {
        let text = "/home/u/lammps/lib/kokkos/core/src/Kokkos_CudaSpace.cpp: out of memory";
        assert_eq!(speaker(text), Some("kokkos"));
        assert_eq!(outermost(text.as_bytes(), "kokkos"), Some("lammps"));
        assert_eq!(outermost(b"site-packages/cv2/gapi.py", "pytorch"), None, "a part hides no framework");
        assert_eq!(outermost(b"[h264_nvenc @ 0x1]", "cuda"), Some("ffmpeg"));
    }
}

//! Counts what a reader of the code has to be careful with, and fails where there is more than is allowed.
//!
//! The compiler and clippy hold the rest: an `unsafe` block without an argument, a function of a library that answers with
//! a bare number, and a function of more than `too-many-lines-threshold` lines (`clippy.toml`) do not pass.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tokens::{after_item, attribute, is_of_tests, is_punct, word};
use crate::words::tracked;

/// Variables of the whole process that the virtual GPU may have; `docs/decisions/015` says what they are for.
const STATICS: usize = 8;

/// Functions that may be longer than `clippy.toml` allows: tables of tests, and one story of a test.
const LONG: usize = 6;

const VGPU: &str = "crates/oomph-vgpu/src/";

/// What was found in one file, or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Blocks, functions and implementations that are `unsafe`.
    unsafes: usize,
    /// Variables of the whole process.
    statics: usize,
    /// Variables of each thread.
    of_threads: usize,
    /// Functions that clippy would call too long and that have a reason.
    long: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.unsafes += other.unsafes;
        self.statics += other.statics;
        self.of_threads += other.of_threads;
        self.long += other.long;
    }
}

/// Counts in the repository and prints a table.
///
/// # Errors
/// When there is more than is allowed, or a source cannot be read.
pub fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut all, mut vgpu) = (Counts::default(), Counts::default());
    let mut unsafe_by_module: BTreeMap<String, usize> = BTreeMap::new();
    for path in tracked(&root)?.into_iter().filter(|path| path.ends_with(".rs")) {
        // A file may be deleted and still be tracked.
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        let found = counted(tokens);
        all.add(found);
        if let Some(below) = path.strip_prefix(VGPU) {
            vgpu.add(found);
            let module = below.split(['/', '.']).next().unwrap_or_default().to_owned();
            *unsafe_by_module.entry(module).or_default() += found.unsafes;
        }
    }
    unsafe_by_module.retain(|_, count| *count > 0);
    println!("virtual GPU, without its tests");
    println!("  unsafe                        {:5}", vgpu.unsafes);
    for (module, count) in &unsafe_by_module {
        println!("    {module:<27} {count:5}");
    }
    println!("  variables of the process      {:5}  at most {STATICS}", vgpu.statics);
    println!("  variables of each thread      {:5}", vgpu.of_threads);
    println!("everything");
    println!("  functions with leave to be long {:3}  at most {LONG}", all.long);
    ensure!(
        vgpu.statics <= STATICS,
        "the virtual GPU has {} variables of the process, and {STATICS} are allowed: make it a field of `Gpu`",
        vgpu.statics
    );
    ensure!(all.long <= LONG, "{} functions have leave to be long, and {LONG} are allowed: divide one", all.long);
    Ok(())
}

/// Counts in a file's tokens. What is for tests only does not count, except that a long function is long there as well.
fn counted(tokens: TokenStream) -> Counts {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Counts::default();
    let mut at = 0;
    while at < tokens.len() {
        if let Some((attribute, next)) = attribute(&tokens, at) {
            found.long += usize::from(gives_leave(&attribute));
            at = next;
            if is_of_tests(&attribute) {
                let end = after_item(&tokens, next);
                found.long += counted(tokens[next..end].iter().cloned().collect()).long;
                at = end;
            }
            continue;
        }
        match (word(&tokens, at).as_deref(), &tokens[at]) {
            (Some("unsafe"), _) => found.unsafes += usize::from(!is_of_a_type(&tokens[at + 1..])),
            (Some("static"), _) if !is_lifetime(&tokens, at) => found.statics += 1,
            (Some("thread_local"), _) => {
                if let Some(TokenTree::Group(body)) = tokens.get(at + 2) {
                    found.of_threads += counted(body.stream()).statics;
                    at += 2;
                }
            }
            (_, TokenTree::Group(group)) => found.add(counted(group.stream())),
            _ => {}
        }
        at += 1;
    }
    found
}

/// Whether an attribute lets a function be long.
fn gives_leave(attribute: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(lints)) = attribute.get(1) else { return false };
    let is_leave = matches!(word(attribute, 0).as_deref(), Some("allow" | "expect"));
    let names_it = |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name == "too_many_lines");
    is_leave && lints.stream().into_iter().any(|token| names_it(&token))
}

/// Whether what follows `unsafe` is the rest of a function pointer's type, which runs nothing.
fn is_of_a_type(rest: &[TokenTree]) -> bool {
    let named = rest.iter().position(|token| matches!(token, TokenTree::Ident(name) if name == "fn"));
    // `extern "C"` at most may stand between.
    let Some(at) = named.filter(|at| *at <= 2) else { return false };
    matches!(rest.get(at + 1), Some(TokenTree::Group(parameters)) if parameters.delimiter() == Delimiter::Parenthesis)
}

/// Whether the word is the name of the lifetime `'static`.
fn is_lifetime(tokens: &[TokenTree], at: usize) -> bool {
    at > 0 && is_punct(tokens, at - 1, '\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_counts_and_what_looks_like_it_does_not() {
        let text = r##"
            static A: &'static str = "unsafe { static }"; // unsafe {}
            thread_local! { static B: Cell<u8> = const { Cell::new(0) }; static C: u8 = 0; }
            unsafe fn f(g: unsafe extern "C" fn(u8), h: unsafe fn()) { unsafe { g(1) } }
            unsafe impl Send for A {}
            #[expect(clippy::too_many_lines, reason = "a literal")]
            fn long() {}
            #[cfg(test)]
            mod tests {
                static D: u8 = 0;
                fn f() { unsafe {} }
                #[test]
                #[expect(clippy::too_many_lines, reason = "a literal")]
                fn long() {}
            }
        "##;
        let found = counted(text.parse().expect("tokens"));
        assert_eq!(found, Counts { unsafes: 3, statics: 1, of_threads: 2, long: 2 });
    }
}

//! Draws the module graph of each crate and finds cycles.
//!
//! An arrow goes from a module to a sibling that code in it (or below it) names by a path: `use` declarations and paths
//! that begin with `crate`, `self` or `super`. Re-exports are followed to the module that defines a name. Code under
//! `#[cfg(test)]` does not count. Every level is a graph of its own: the crate's top modules, and the children of each
//! module.
//!
//! `data/layers.toml` lists the arrows of the cycles that are left. An arrow that is in a cycle and not in the list
//! fails, so no cycle can arise or grow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use proc_macro2::{TokenStream, TokenTree};

use crate::tokens::{after_item, attribute, is_of_tests, is_punct, word};

/// A module's path below the crate's root; empty for the root.
type ModulePath = Vec<String>;

/// Where an arrow comes from: a file and a line, from the repository's root.
type Place = (String, usize);

/// The arrows between the children of one module, each with a place that has it.
type Graph = BTreeMap<(String, String), Place>;

/// Arrows that may be in cycles, by level (`oomph-model`, or `oomph-model::architecture`).
type Allowed = BTreeMap<String, BTreeSet<String>>;

const ALLOWED: &str = "xtask/data/layers.toml";

/// A path that code names.
struct Reference {
    from: ModulePath,
    path: Vec<String>,
    place: Place,
}

/// A crate's modules.
#[derive(Default)]
struct Modules {
    /// Every module.
    all: BTreeSet<ModulePath>,
    /// By module: the names that `use` declarations bring into it, and what they are.
    imports: BTreeMap<ModulePath, BTreeMap<String, Vec<String>>>,
    references: Vec<Reference>,
}

/// What to do with what was found.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Draw this crate only.
    pub only: Option<String>,
    /// Say only what fails.
    pub quiet: bool,
    /// Take arrows that are gone out of the list (or write a list where there is none).
    pub write: bool,
}

/// Checks the workspace's crates.
///
/// # Errors
/// When there is a cycle that is not listed, or a source cannot be read.
pub fn run(request: &Request) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let allowed_path = root.join(ALLOWED);
    let allowed: Allowed = if allowed_path.exists() {
        toml::from_str(&std::fs::read_to_string(&allowed_path)?).context(ALLOWED)?
    } else {
        Allowed::new()
    };
    let mut found = Allowed::new();
    let mut problems = Vec::new();
    let mut levels = 0;
    for (name, source) in crates(&root)? {
        if request.only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        let modules = Modules::read(&root, &source)?;
        for (parent, graph) in modules.graphs() {
            levels += 1;
            let level = std::iter::once(&name).chain(&parent).cloned().collect::<Vec<_>>().join("::");
            let cycles = cycles(&graph);
            if !request.quiet && (parent.is_empty() || request.only.is_some()) {
                draw(&level, &graph, &cycles);
            }
            for ((from, to), (file, line)) in in_cycles(&graph, &cycles) {
                let arrow = format!("{from} -> {to}");
                if !allowed.get(&level).is_some_and(|arrows| arrows.contains(&arrow)) {
                    problems.push(format!("{level}: {arrow} ({file}:{line})"));
                }
                found.entry(level.clone()).or_default().insert(arrow);
            }
        }
    }
    let count: usize = found.values().map(BTreeSet::len).sum();
    println!("layers: {levels} levels, {count} arrows in {} cycles that are left", found.len());
    if request.write && request.only.is_none() {
        std::fs::write(&allowed_path, written(&found, &allowed))?;
        if allowed.is_empty() {
            return Ok(());
        }
    }
    ensure!(
        problems.is_empty(),
        "arrows that close a cycle between modules (move what both need into a module below them):\n  {}",
        problems.join("\n  ")
    );
    Ok(())
}

/// The crates of the repository: their names and the root of each, in alphabetical order.
pub fn crates(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let sources = ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file));
        found.extend(sources.into_iter().find(|file| file.exists()).map(|file| (name, file)));
    }
    found.sort();
    Ok(found)
}

impl Modules {
    fn read(root: &Path, source: &Path) -> Result<Self> {
        let mut modules = Self::default();
        modules.read_file(root, source, Vec::new(), true)?;
        Ok(modules)
    }

    /// Reads a module's file. `owns_folder`: its children lie next to it (`lib.rs`, `mod.rs`), not in a folder of its name.
    fn read_file(&mut self, root: &Path, file: &Path, module: ModulePath, owns_folder: bool) -> Result<()> {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{}: {error}", file.display()))?;
        let folder = if owns_folder {
            file.parent().map(Path::to_path_buf).unwrap_or_default()
        } else {
            file.with_extension("")
        };
        let shown = file.strip_prefix(root).unwrap_or(file).display().to_string();
        self.read_module(&Source { root, folder, shown }, module, tokens)
    }

    fn read_module(&mut self, source: &Source<'_>, module: ModulePath, tokens: TokenStream) -> Result<()> {
        self.all.insert(module.clone());
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut path_attribute = None;
        while at < tokens.len() {
            if let Some((attribute, next)) = attribute(&tokens, at) {
                if is_of_tests(&attribute) {
                    at = after_item(&tokens, next);
                    path_attribute = None;
                } else {
                    path_attribute = path_attribute.or_else(|| path_of(&attribute));
                    at = next;
                }
                continue;
            }
            at = match (word(&tokens, at).as_deref(), word(&tokens, at + 1)) {
                (Some("mod"), Some(name)) => {
                    let mut child = module.clone();
                    child.push(name.clone());
                    match tokens.get(at + 2) {
                        // `#[path = "."]` makes a module whose children lie in the crate's folder: `oomph-vgpu` brings all
                        // of them into its root, and the code names them there.
                        Some(TokenTree::Group(body)) if path_attribute.as_deref() == Some(".") => {
                            self.read_module(source, module.clone(), body.stream())?;
                        }
                        Some(TokenTree::Group(body)) => {
                            let inner = Source { folder: source.folder.join(&name), ..source.clone() };
                            self.read_module(&inner, child, body.stream())?;
                        }
                        _ => self.read_child(source, &name, child, path_attribute.take())?,
                    }
                    at + 3
                }
                (Some("use"), _) => {
                    let end = (at..tokens.len()).find(|&at| is_punct(&tokens, at, ';')).unwrap_or(tokens.len());
                    let line = tokens[at].span().start().line;
                    self.read_use(source, &module, &tokens[at + 1..end], line);
                    end + 1
                }
                _ => self.read_tokens(source, &module, &tokens, at)?,
            };
            path_attribute = None;
        }
        Ok(())
    }

    fn read_child(&mut self, source: &Source<'_>, name: &str, child: ModulePath, path: Option<String>) -> Result<()> {
        if let Some(path) = path {
            return self.read_file(source.root, &source.folder.join(path), child, true);
        }
        let flat = source.folder.join(format!("{name}.rs"));
        if flat.exists() {
            return self.read_file(source.root, &flat, child, false);
        }
        let nested = source.folder.join(name).join("mod.rs");
        // What a build script generates is not here.
        if nested.exists() { self.read_file(source.root, &nested, child, true) } else { Ok(()) }
    }

    fn read_use(&mut self, source: &Source<'_>, module: &ModulePath, tokens: &[TokenTree], line: usize) {
        let mut leaves = Vec::new();
        use_leaves(tokens, &mut Vec::new(), &mut leaves);
        for (path, alias) in leaves {
            let place = (source.shown.clone(), line);
            if let Some(path) = absolute(module, &path, &self.all) {
                if let Some(name) = alias {
                    self.imports.entry(module.clone()).or_default().insert(name, path.clone());
                }
                self.references.push(Reference { from: module.clone(), path, place });
            }
        }
    }

    /// Reads what is neither a module nor an import from one token on: a path, a group, or something without either.
    fn read_tokens(
        &mut self,
        source: &Source<'_>,
        module: &ModulePath,
        tokens: &[TokenTree],
        at: usize,
    ) -> Result<usize> {
        match &tokens[at] {
            TokenTree::Group(group) => {
                // A function may hold imports and modules of its own; they count for the module around it.
                self.read_module(source, module.clone(), group.stream())?;
                Ok(at + 1)
            }
            TokenTree::Ident(first) => {
                let mut path = vec![first.to_string()];
                let mut next = at + 1;
                while is_punct(tokens, next, ':') && is_punct(tokens, next + 1, ':') {
                    let Some(name) = word(tokens, next + 2) else { break };
                    path.push(name);
                    next += 3;
                }
                let is_relative = path.len() > 1 && matches!(path[0].as_str(), "crate" | "self" | "super");
                if let Some(path) = is_relative.then(|| absolute(module, &path, &self.all)).flatten() {
                    let place = (source.shown.clone(), first.span().start().line);
                    self.references.push(Reference { from: module.clone(), path, place });
                }
                Ok(next)
            }
            _ => Ok(at + 1),
        }
    }

    /// The module that a path leads to, re-exports followed.
    fn target(&self, path: &[String]) -> ModulePath {
        let mut path = path.to_vec();
        // Each round follows one re-export; two that name each other end here.
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|&depth| self.all.contains(&path[..depth])).unwrap_or(0);
            let (module, rest) = path.split_at(depth);
            let Some(name) = rest.first() else { return module.to_vec() };
            let Some(import) = self.imports.get(module).and_then(|imports| imports.get(name)) else {
                return module.to_vec();
            };
            path = import.iter().chain(&rest[1..]).cloned().collect();
        }
        Vec::new()
    }

    /// The graph of each module that has children.
    fn graphs(&self) -> BTreeMap<ModulePath, Graph> {
        let mut graphs: BTreeMap<ModulePath, Graph> = BTreeMap::new();
        for reference in &self.references {
            let (from, to) = (&reference.from, self.target(&reference.path));
            let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
            if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                let graph = graphs.entry(from[..common].to_vec()).or_default();
                graph.entry((a.clone(), b.clone())).or_insert_with(|| reference.place.clone());
            }
        }
        graphs
    }
}

/// Where a module's text comes from.
#[derive(Clone)]
struct Source<'a> {
    root: &'a Path,
    /// Where its children's files are.
    folder: PathBuf,
    /// The file, as messages name it.
    shown: String,
}

/// The file of `#[path = "..."]`.
fn path_of(attribute: &[TokenTree]) -> Option<String> {
    match (word(attribute, 0).as_deref(), attribute.get(2)) {
        (Some("path"), Some(TokenTree::Literal(path))) => Some(path.to_string().trim_matches('"').to_owned()),
        _ => None,
    }
}

/// The paths that a `use` declaration names, and the name that each brings in; `None` for a glob or `_`.
fn use_leaves(tokens: &[TokenTree], prefix: &mut Vec<String>, leaves: &mut Vec<(Vec<String>, Option<String>)>) {
    let mut start = 0;
    while start < tokens.len() {
        let end = (start..tokens.len()).find(|&at| is_punct(tokens, at, ',')).unwrap_or(tokens.len());
        let part = &tokens[start..end];
        let depth = prefix.len();
        let mut alias = None;
        let mut is_group = false;
        let mut is_glob = false;
        let mut at = 0;
        while at < part.len() {
            match &part[at] {
                TokenTree::Ident(name) if name == "as" => {
                    alias = word(part, at + 1);
                    at += 1;
                }
                TokenTree::Ident(name) => prefix.push(name.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    use_leaves(&inner, prefix, leaves);
                    is_group = true;
                }
                TokenTree::Punct(punct) => is_glob |= punct.as_char() == '*',
                TokenTree::Literal(_) => {}
            }
            at += 1;
        }
        if !is_group && prefix.len() > depth {
            // `use a::{self}` names `a`.
            if depth > 0 && prefix.last().is_some_and(|name| name == "self") {
                prefix.pop();
            }
            let name = if is_glob { None } else { alias.or_else(|| prefix.last().cloned()) };
            leaves.push((prefix.clone(), name.filter(|name| name != "_")));
        }
        prefix.truncate(depth);
        start = end + 1;
    }
}

/// A path from the crate's root; `None` where it leads to another crate.
fn absolute(module: &ModulePath, path: &[String], known: &BTreeSet<ModulePath>) -> Option<Vec<String>> {
    let mut base = match path[0].as_str() {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module.split_last().map(|(_, parent)| parent.to_vec())?,
        child => {
            let mut own = module.clone();
            own.push(child.to_owned());
            // A module is declared before what it re-exports in every crate here.
            return known.contains(&own).then(|| [own.as_slice(), &path[1..]].concat());
        }
    };
    for name in &path[1..] {
        if name == "super" {
            base.pop();
        } else {
            base.push(name.clone());
        }
    }
    Some(base)
}

/// The cycles of a graph: sets of modules of which each reaches each.
fn cycles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let names: BTreeSet<&String> = graph.keys().flat_map(|(from, to)| [from, to]).collect();
    let reached = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut open = vec![start];
        while let Some(name) = open.pop() {
            for (_, to) in graph.keys().filter(|(from, _)| from == name) {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<&String>> = names.iter().map(|name| (*name, reached(name))).collect();
    let mut cycles: Vec<BTreeSet<String>> = Vec::new();
    for name in names {
        if reach[name].contains(name) && !cycles.iter().any(|cycle| cycle.contains(name)) {
            cycles.push(
                reach[name].iter().filter(|other| reach[**other].contains(name)).map(|name| (*name).clone()).collect(),
            );
        }
    }
    cycles
}

/// The arrows between modules of one cycle.
fn in_cycles<'a>(
    graph: &'a Graph,
    cycles: &'a [BTreeSet<String>],
) -> impl Iterator<Item = (&'a (String, String), &'a Place)> {
    graph.iter().filter(|((from, to), _)| cycles.iter().any(|cycle| cycle.contains(from) && cycle.contains(to)))
}

/// Prints a level from the bottom up: first what needs nothing, then what needs only what was printed.
fn draw(level: &str, graph: &Graph, cycles: &[BTreeSet<String>]) {
    println!("{level}");
    let mut left: BTreeSet<&String> = graph.keys().flat_map(|(from, to)| [from, to]).collect();
    let needs =
        |name: &String| graph.keys().filter(move |(from, _)| from == name).map(|(_, to)| to).collect::<Vec<_>>();
    let is_cyclic = |a: &String, b: &String| cycles.iter().any(|cycle| cycle.contains(a) && cycle.contains(b));
    while !left.is_empty() {
        let ready: Vec<&String> = left
            .iter()
            .copied()
            .filter(|name| needs(name).iter().all(|other| !left.contains(other) || is_cyclic(name, other)))
            // All of a cycle come together, once what they need is there.
            .filter(|name| {
                let of_cycle = cycles.iter().find(|cycle| cycle.contains(*name));
                of_cycle.is_none_or(|cycle| {
                    cycle
                        .iter()
                        .all(|member| needs(member).iter().all(|other| !left.contains(other) || cycle.contains(*other)))
                })
            })
            .collect();
        for name in &ready {
            let arrows: Vec<String> = needs(name)
                .iter()
                .map(|other| if is_cyclic(name, other) { format!("{other}*") } else { (*other).clone() })
                .collect();
            println!("  {name}{}{}", if arrows.is_empty() { "" } else { " -> " }, arrows.join(", "));
        }
        if ready.is_empty() {
            break;
        }
        left.retain(|name| !ready.contains(name));
    }
}

fn written(found: &Allowed, allowed: &Allowed) -> String {
    let mut text = String::from(
        "# Arrows between modules that are in a cycle today, by crate or parent module. The list only gets shorter: cut a\n\
         # cycle, then run `cargo xtask layers --write`. A new arrow into a cycle fails the check.\n\n",
    );
    for (level, arrows) in found {
        let kept =
            arrows.iter().filter(|arrow| allowed.is_empty() || allowed.get(level).is_some_and(|a| a.contains(*arrow)));
        let lines: Vec<String> = kept.map(|arrow| format!("    \"{arrow}\",\n")).collect();
        if !lines.is_empty() {
            text.push_str(&format!("\"{level}\" = [\n{}]\n", lines.concat()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(root: &str, files: &[(&str, &str)]) -> BTreeMap<ModulePath, Graph> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files.iter().chain([&("lib.rs", root)]) {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        Modules::read(folder.path(), &folder.path().join("lib.rs")).expect("the crate reads").graphs()
    }

    fn arrows(graph: &Graph) -> Vec<String> {
        graph.keys().map(|(from, to)| format!("{from}>{to}")).collect()
    }

    #[test]
    fn paths_imports_and_reexports_make_arrows() {
        let graphs = graph(
            "mod a; mod b; mod c; pub use c::Thing;",
            &[
                ("a.rs", "use crate::{b::{self, X}, Thing}; fn f() { b::g() }"),
                ("b.rs", "fn g() -> crate::c::Thing { println!(\"{}\", 1); todo!() }"),
                ("c.rs", "pub struct Thing; // crate::a is not code\n#[cfg(test)] mod tests { use crate::a; }"),
            ],
        );
        assert_eq!(arrows(&graphs[&Vec::new()]), ["a>b", "a>c", "b>c"]);
        assert_eq!(cycles(&graphs[&Vec::new()]), Vec::<BTreeSet<String>>::new());
    }

    #[test]
    fn cycles_are_found_at_every_level() {
        let graphs = graph(
            "mod a;",
            &[
                ("a/mod.rs", "mod x; mod y; pub struct P;"),
                ("a/x.rs", "use super::y::Y; use super::P;"),
                ("a/y.rs", "use crate::a::x::X;"),
            ],
        );
        let level = &graphs[&vec!["a".to_owned()]];
        assert_eq!(arrows(level), ["x>y", "y>x"]);
        assert_eq!(in_cycles(level, &cycles(level)).count(), 2);
    }
}

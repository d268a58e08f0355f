//! `cargo run -p xtask -- api`: writes the tables from headers and libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use crate::header::{self, Header, Kind, Prototype};
use crate::library::{self, Library};
use crate::preprocess::HeaderSet;
use crate::table::{self, Class, Entry, Line, Return, Type, Value};
use crate::{elf, rules, versions};

/// What the command was asked to do.
#[derive(Debug)]
pub struct Request {
    /// Folders with headers, oldest CUDA first.
    pub include: Vec<PathBuf>,
    /// Folders with shared objects.
    pub libs: Vec<PathBuf>,
    /// Where the tables are.
    pub api: PathBuf,
    /// Only say whether they would change.
    pub check: bool,
    /// Take the in and out of parameters from the rules even where the table already says something.
    pub rewrite_parameters: bool,
}

/// A function as one set of headers declares it.
#[derive(Clone, Debug)]
struct Declared {
    params: Vec<(String, Type)>,
    returns: Return,
    class: Class,
    /// Its parameters were others in another version, so that only what all versions agree on is written.
    changed: bool,
    /// The types as written, to recognise names that are twins.
    written: Vec<header::CType>,
    /// What a caller can notice of a change: how values are passed, and how large the structs are.
    shape: String,
    /// The set that it is from.
    label: String,
}

/// All that is known of one library.
#[derive(Debug, Default)]
struct Known {
    declared: BTreeMap<String, Declared>,
    /// Shapes that a name had before, oldest first.
    earlier: BTreeMap<String, Vec<(String, String)>>,
    exported: BTreeSet<String>,
}

/// Runs the command.
pub fn run(request: &Request) -> Result<()> {
    let mut known: BTreeMap<&str, Known> =
        library::ALL.iter().map(|library| (library.name, Known::default())).collect();
    let mut proc_versions = versions::Versions::default();
    for root in &request.include {
        let set = HeaderSet::find(root)?;
        eprintln!("{} from {}", set.label, root.display());
        for library in &library::ALL {
            let entry = known.entry(library.name).or_default();
            read_headers(library, &set, entry)?;
        }
        proc_versions.read(&set)?;
    }
    for root in &request.libs {
        for path in elf::shared_objects(root) {
            let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(library) = library::of_file(&file_name) else { continue };
            let symbols = elf::symbols(&path)?;
            let entry = known.entry(library.name).or_default();
            entry.exported.extend(symbols.functions.into_iter().filter(|name| library::is_public(library, name)));
        }
    }
    let mut changed = Vec::new();
    for library in &library::ALL {
        let path = request.api.join(format!("{}.api", library.name));
        let before = fs::read_to_string(&path).unwrap_or_default();
        let existing = table::parse(&before).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        let lines = lines(library, &known[library.name], existing, request.rewrite_parameters);
        summarise(library.name, &lines);
        put(&path, &before, &render(library, &lines), request.check, &mut changed)?;
    }
    let driver = &known["driver"].declared;
    let text = proc_versions.render(|symbol| driver.contains_key(symbol));
    let path = request.api.join("driver-versions.txt");
    let before = fs::read_to_string(&path).unwrap_or_default();
    put(&path, &before, &text, request.check, &mut changed)?;
    if request.check && !changed.is_empty() {
        bail!("these would change: {}", changed.join(", "));
    }
    Ok(())
}

fn put(path: &Path, before: &str, after: &str, check: bool, changed: &mut Vec<String>) -> Result<()> {
    if before == after {
        return Ok(());
    }
    changed.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    if check {
        return Ok(());
    }
    fs::write(path, after).with_context(|| format!("cannot write {}", path.display()))
}

fn read_headers(library: &Library, set: &HeaderSet, known: &mut Known) -> Result<()> {
    // A name's first declaration within one set counts: the modes repeat the ordinary names.
    let mut seen = BTreeSet::new();
    for (name, flags) in library.headers.iter().flat_map(|name| library.modes.iter().map(move |flags| (name, flags))) {
        if !set.has(name) {
            continue;
        }
        // An interoperation header that does not fit this set costs its own names only, and it is said.
        let (header, sizes) = match read_header(set, name, flags) {
            Ok(read) => read,
            Err(error) => {
                eprintln!("  skipped: {error:#}");
                continue;
            }
        };
        for prototype in &header.prototypes {
            if !library::is_public(library, &prototype.name) || !seen.insert(prototype.name.clone()) {
                continue;
            }
            let Some(mut declared) = declare(library.name, prototype, &header, &sizes, &set.label) else {
                eprintln!("  {}: not understood: {}", set.label, prototype.name);
                continue;
            };
            if let Some(older) = known.declared.remove(&prototype.name) {
                agree(&older, &mut declared);
                if older.shape != declared.shape {
                    known.earlier.entry(prototype.name.clone()).or_default().push((older.label, older.shape));
                }
            }
            known.declared.insert(prototype.name.clone(), declared);
        }
    }
    Ok(())
}

/// One symbol serves the programs of every version. Where a struct grew, only its older size may be written; where the
/// parameters changed, what is written must be written at that place in every version, or the function would write
/// through whatever an older program left in a register.
fn agree(older: &Declared, newer: &mut Declared) {
    let passed = |declared: &Declared| -> Vec<Value> {
        declared.params.iter().map(|(_, k)| same_registers(k.passed())).collect()
    };
    newer.changed = older.changed || passed(older) != passed(newer);
    for (index, (_, kind)) in newer.params.iter_mut().enumerate() {
        let before = older.params.get(index).map(|(_, kind)| *kind);
        match (*kind, before) {
            (Type::Out(Value::Bytes(size)), Some(Type::Out(Value::Bytes(before)))) => {
                *kind = Type::Out(Value::Bytes(size.min(before)));
            }
            (Type::In(_), _) => {}
            (kind_now, before) if newer.changed && before != Some(kind_now) => *kind = Type::In(Value::Ptr),
            _ => {}
        }
    }
}

fn read_header(set: &HeaderSet, name: &str, flags: &[&str]) -> Result<(Header, BTreeMap<String, usize>)> {
    let header = header::parse(&set.expand(name, flags)?);
    let sizes = set.sizes(name, flags, header.complete.keys())?;
    Ok((header, sizes))
}

fn declare(
    library: &str,
    prototype: &Prototype,
    header: &Header,
    sizes: &BTreeMap<String, usize>,
    label: &str,
) -> Option<Declared> {
    let returns = rules::returned(&prototype.returns, header, sizes)?;
    let mut params: Vec<(String, Type)> = Vec::new();
    let mut shape = String::from("(");
    for (index, param) in prototype.params.iter().enumerate() {
        let resolved = header.resolve(&param.ctype);
        let kind = rules::parameter(library, &prototype.name, index, &param.name, &resolved, header, sizes)?;
        let mut name = param.name.clone();
        if !table::is_name(&name) || params.iter().any(|(other, _)| *other == name) {
            name = format!("p{index}");
        }
        let _ = write!(shape, "{}{name}: {}", if index == 0 { "" } else { ", " }, same_registers(kind.passed()));
        // The layout of a struct matters where programs read it: in CUDA itself.
        if let (Kind::Struct(kind), 1) = (&resolved.kind, resolved.points_to_const.len())
            && matches!(library, "driver" | "runtime")
        {
            let _ = write!(shape, " to bytes{}", sizes.get(kind).copied().unwrap_or(0));
        }
        params.push((name, kind));
    }
    shape.push(')');
    rules::mark_sized(&prototype.name, library, &mut params);
    let class = rules::class(library, prototype);
    let written = prototype.params.iter().map(|param| param.ctype.clone()).collect();
    // Names of parameters are no part of what a caller can notice.
    Some(Declared {
        params,
        returns,
        class,
        changed: false,
        written,
        shape: without_names(&shape),
        label: label.to_owned(),
    })
}

/// Signedness and the two names of 64-bit integers do not change how a value is passed.
fn same_registers(value: Value) -> Value {
    match value {
        Value::Number("u32") => Value::Number("i32"),
        Value::Number("u64" | "usize") => Value::Number("i64"),
        other => other,
    }
}

fn without_names(shape: &str) -> String {
    let inside = shape.trim_start_matches('(').trim_end_matches(')');
    let types: Vec<&str> = inside.split(", ").map(|param| param.split_once(": ").map_or(param, |(_, t)| t)).collect();
    format!("({})", types.join(", "))
}

/// The name of which this is another spelling, with the same parameters in the same headers: the ordinary name for
/// one of per-thread default streams, the newest version for an older one.
fn twin(library: &str, name: &str, declared: &BTreeMap<String, Declared>) -> Option<String> {
    let this = declared.get(name)?;
    let same = |other: &str| {
        other != name
            && declared.get(other).is_some_and(|other| {
                other.written == this.written && other.shape == this.shape && other.returns == this.returns
            })
    };
    if let Some(base) = ["_ptsz", "_ptds"].iter().find_map(|suffix| name.strip_suffix(suffix)) {
        return same(base).then(|| base.to_owned());
    }
    // The runtime's versions differ in the meaning of structs of the same name, and NVML's in meaning altogether.
    if library != "driver" {
        return None;
    }
    const MEAN_SOMETHING_ELSE: &[&str] = &["cuDeviceGetUuid"];
    let base =
        name.rsplit_once("_v").filter(|(_, number)| number.parse::<u32>().is_ok()).map_or(name, |(base, _)| base);
    if MEAN_SOMETHING_ELSE.contains(&base) {
        return None;
    }
    let mut newest = None;
    for number in 2..10 {
        let other = format!("{base}_v{number}");
        if declared.contains_key(&other) {
            newest = Some(other);
        }
    }
    newest.filter(|newest| same(newest))
}

/// Whether this is a function from before CUDA 3.2, whose device pointers and sizes have 32 bits: an address of today
/// does not fit into them. Its second version has wider ones.
fn is_32_bit(name: &str, declared: &BTreeMap<String, Declared>) -> bool {
    let number = |kind: &Type| match kind {
        Type::In(Value::Number(number)) | Type::Out(Value::Number(number)) => *number,
        _ => "",
    };
    let (Some(old), Some(new)) = (declared.get(name), declared.get(&format!("{name}_v2"))) else { return false };
    let mut pairs = old.params.iter().zip(&new.params);
    let same_places = old.params.len() == new.params.len();
    same_places && pairs.any(|((_, old), (_, new))| number(old) == "u32" && matches!(number(new), "u64" | "usize"))
}

/// Follows twins to the name that has a function of its own. Each step goes to a newer name or to one without a
/// suffix, so this ends; the bound is there for the reader.
fn last_twin(library: &str, name: &str, declared: &BTreeMap<String, Declared>) -> Option<String> {
    let mut last = twin(library, name, declared)?;
    for _ in 0..4 {
        match twin(library, &last, declared) {
            Some(next) => last = next,
            None => break,
        }
    }
    Some(last)
}

fn lines(library: &Library, known: &Known, existing: Vec<Line>, rewrite_parameters: bool) -> Vec<Line> {
    let mut existing: BTreeMap<String, Line> = existing.into_iter().map(|line| (line.name.clone(), line)).collect();
    let mut names: BTreeSet<String> = known.declared.keys().chain(&known.exported).cloned().collect();
    names.extend(existing.keys().cloned());
    let mut lines = Vec::new();
    for name in names {
        let before = existing.remove(&name);
        let entry = match known.declared.get(&name) {
            Some(declared) => match last_twin(library.name, &name, &known.declared) {
                Some(target) => Entry::Alias(target),
                None => Entry::Function {
                    class: if is_32_bit(&name, &known.declared) { Class::Unsupported } else { declared.class },
                    params: declared.params.clone(),
                    returns: declared.returns,
                },
            },
            None => undeclared(library.name, &name, known),
        };
        let entry = match &before {
            Some(before) => merged(&before.entry, entry, known.declared.contains_key(&name), rewrite_parameters),
            None => entry,
        };
        let generated = known.earlier.get(&name).map(|earlier| remark(earlier)).unwrap_or_default();
        let by_hand = before.map(|line| line.remark).unwrap_or_default();
        let remark = if generated.is_empty() { by_hand } else { generated };
        lines.push(Line { name, entry, remark });
    }
    lines
}

/// A name that is exported and that no header declares. A variant of a declared name is that function.
fn undeclared(library: &str, name: &str, known: &Known) -> Entry {
    let variant_of = ["_ptsz", "_ptds"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .or_else(|| name.strip_prefix('p').filter(|rest| rest.starts_with("nccl")));
    if let Some(base) = variant_of
        && (known.declared.contains_key(base) || known.exported.contains(base))
    {
        return Entry::Alias(base.to_owned());
    }
    let prototype = Prototype { name: name.to_owned(), returns: header::CType::default(), params: Vec::new() };
    Entry::Function { class: rules::class(library, &prototype), params: Vec::new(), returns: Return::Status }
}

/// What is in the table wins wherever it was decided by hand: the class always, and the in and out of the
/// parameters as long as the function is still called in the same way.
fn merged(before: &Entry, fresh: Entry, is_declared: bool, rewrite_parameters: bool) -> Entry {
    match (before, fresh) {
        (before, _) if !is_declared => before.clone(),
        (
            Entry::Function { class, params: old, returns },
            Entry::Function { params: new, returns: fresh_returns, .. },
        ) => {
            let called = |params: &[(String, Type)]| -> Vec<Value> {
                params.iter().map(|(_, kind)| same_registers(kind.passed())).collect()
            };
            let keep = !rewrite_parameters && called(old) == called(&new) && *returns == fresh_returns;
            let params = if keep { old.clone() } else { new };
            Entry::Function { class: *class, params, returns: fresh_returns }
        }
        // Somebody made a function of its own of a name that could be an alias, or an alias of a function.
        (before, _) => before.clone(),
    }
}

fn remark(earlier: &[(String, String)]) -> String {
    let list: Vec<String> = earlier.iter().map(|(label, shape)| format!("until {label}: {shape}")).collect();
    list.join("; ")
}

fn render(library: &Library, lines: &[Line]) -> String {
    let mut text = format!(
        "# The functions that the virtual GPU exports for {}, one a line, sorted by name:\n\
         #     NAME CLASS (param: type, ...) [-> type]      or      NAME alias TARGET\n\
         # CLASS is answered (by the function of that name in src/), compute (success, nothing moves) or unsupported\n\
         # (refused and reported). `out` marks pointers that are written: a zero, a fresh handle, an empty string\n\
         # (`out str`), as many zero bytes as the next argument says (`out sized`), or -1 (`out nowhere`).\n\
         # `[count]` marks a pointer to as many values as that parameter says, `[*count]` to as many as lies behind it.\n\
         # Without `->` a 32-bit status is returned. `cargo run -p xtask -- api` adds functions and keeps what is\n\
         # decided here: classes, `out`s, aliases. A remark `until CUDA x` is an older shape under the same name.\n\n",
        library.name
    );
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn summarise(library: &str, lines: &[Line]) {
    let mut counts = BTreeMap::new();
    for line in lines {
        let word = match &line.entry {
            Entry::Alias(_) => "alias",
            Entry::Function { class, .. } => class.word(),
        };
        *counts.entry(word).or_insert(0) += 1;
    }
    println!("{library}: {counts:?}");
}

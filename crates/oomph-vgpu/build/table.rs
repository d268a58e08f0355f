//! The format of `api/*.api`: one exported function to a line.
//!
//! This file is shared by the build script, which turns the tables into code, and by `xtask`, which writes them, so
//! that there is one definition of the format. It uses nothing but the standard library.

use std::fmt::{self, Display};

/// The tables, in the order in which functions are numbered.
pub const LIBRARIES: &[&str] = &[
    "driver",
    "runtime",
    "cublas",
    "cublaslt",
    "cudnn",
    "cufft",
    "curand",
    "cusolver",
    "cusparse",
    "cusparselt",
    "cupti",
    "nccl",
    "nvml",
];

/// How an exported function is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A hand-written function answers.
    Answered,
    /// It writes its out-parameters and returns success.
    Compute,
    /// It writes its out-parameters and returns the not-supported status.
    Unsupported,
}

impl Class {
    /// The word in the table.
    pub fn word(self) -> &'static str {
        match self {
            Class::Answered => "answered",
            Class::Compute => "compute",
            Class::Unsupported => "unsupported",
        }
    }

    fn from_word(word: &str) -> Option<Class> {
        [Class::Answered, Class::Compute, Class::Unsupported].into_iter().find(|class| class.word() == word)
    }
}

/// A value as it crosses the boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Any pointer, and any opaque handle.
    Ptr,
    /// An integer or a floating-point number, by its Rust name.
    Number(&'static str),
    /// A struct of so many bytes, passed like integers or in memory.
    Bytes(usize),
    /// `cuComplex`.
    C32,
    /// `cuDoubleComplex`.
    C64,
}

/// The numbers that the tables know.
const NUMBERS: &[&str] = &["i32", "u32", "i64", "u64", "usize", "f32", "f64"];

/// The largest struct that a line may name; anything larger is a mistake in the table.
const LARGEST_STRUCT: usize = 1 << 20;

impl Value {
    fn from_word(word: &str) -> Option<Value> {
        Some(match word {
            "ptr" => Value::Ptr,
            "c32" => Value::C32,
            "c64" => Value::C64,
            _ => {
                if let Some(number) = NUMBERS.iter().find(|number| **number == word) {
                    Value::Number(number)
                } else {
                    let size = word.strip_prefix("bytes")?.parse().ok()?;
                    if size == 0 || size > LARGEST_STRUCT {
                        return None;
                    }
                    Value::Bytes(size)
                }
            }
        })
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Ptr => f.write_str("ptr"),
            Value::Number(number) => f.write_str(number),
            Value::Bytes(size) => write!(f, "bytes{size}"),
            Value::C32 => f.write_str("c32"),
            Value::C64 => f.write_str("c64"),
        }
    }
}

/// A parameter's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Passed in, and left alone.
    In(Value),
    /// A pointer to a value that the function writes: zero.
    Out(Value),
    /// A pointer to a handle that the function makes.
    OutHandle,
    /// A pointer to a string that the function names: the empty one.
    OutStr,
    /// A pointer to as many zero bytes as the next parameter, a `usize`, says.
    OutSized,
    /// A pointer to the index of something that is not there: -1.
    OutNowhere,
    /// A pointer to several values, as many as another parameter says. Of those that are written, a function that is
    /// not answered writes the first.
    Many {
        /// Whether the function writes them.
        written: bool,
        /// One of them, or `ptr` where the table does not say what they are.
        value: Value,
        /// How many there are.
        count: Count,
    },
}

/// The parameter that says how many values another one points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Its place among the parameters, from 0.
    pub param: usize,
    /// Whether it points to the number, which is read before the call.
    pub behind: bool,
}

impl Count {
    /// Reads `NAME` or `*NAME`.
    fn parse(text: &str, params: &[(String, Type)]) -> Result<Count, String> {
        let (name, behind) = text.strip_prefix('*').map_or((text, false), |name| (name, true));
        let found = params.iter().enumerate().find(|(_, (known, _))| known == name);
        let (param, (_, kind)) = found.ok_or_else(|| format!("`{name}` counts, and is not a parameter"))?;
        let counts = match kind {
            Type::In(Value::Number(number)) => !behind && !number.starts_with('f'),
            Type::Out(Value::Number(number)) => behind && !number.starts_with('f'),
            _ => false,
        };
        if counts { Ok(Count { param, behind }) } else { Err(format!("`{text}` is not a number that counts")) }
    }
}

impl Type {
    fn parse(text: &str) -> Option<Type> {
        match text.strip_prefix("out ").map(str::trim) {
            None => Value::from_word(text).map(Type::In),
            Some("handle") => Some(Type::OutHandle),
            Some("str") => Some(Type::OutStr),
            Some("sized") => Some(Type::OutSized),
            Some("nowhere") => Some(Type::OutNowhere),
            Some(word) => Value::from_word(word).map(Type::Out),
        }
    }

    /// What the caller passes: every out-parameter is a pointer.
    pub fn passed(self) -> Value {
        match self {
            Type::In(value) => value,
            _ => Value::Ptr,
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::In(value) => value.fmt(f),
            Type::Out(value) => write!(f, "out {value}"),
            Type::OutHandle => f.write_str("out handle"),
            Type::OutStr => f.write_str("out str"),
            Type::OutSized => f.write_str("out sized"),
            Type::OutNowhere => f.write_str("out nowhere"),
            Type::Many { written, value, .. } => write!(f, "{}{value}", if *written { "out " } else { "" }),
        }
    }
}

/// What a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// The library's status; not written in the table.
    Status,
    /// Nothing.
    Void,
    /// A C string.
    Str,
    /// Anything else.
    Value(Value),
}

/// What a line declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A function of its own.
    Function {
        /// How it is treated.
        class: Class,
        /// Its parameters: name and type.
        params: Vec<(String, Type)>,
        /// What it returns.
        returns: Return,
    },
    /// Another name of the function named here.
    Alias(String),
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The exported name.
    pub name: String,
    /// What it is.
    pub entry: Entry,
    /// The remark at the end of the line, without its `#`; empty if there is none.
    pub remark: String,
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Entry::Alias(target) => write!(f, "{} alias {target}", self.name)?,
            Entry::Function { class, params, returns } => {
                write!(f, "{} {} (", self.name, class.word())?;
                for (index, (name, kind)) in params.iter().enumerate() {
                    write!(f, "{}{name}: {kind}", if index == 0 { "" } else { ", " })?;
                    if let Type::Many { count, .. } = kind {
                        let counted = params.get(count.param).map_or("", |(name, _)| name);
                        write!(f, "[{}{counted}]", if count.behind { "*" } else { "" })?;
                    }
                }
                f.write_str(")")?;
                match returns {
                    Return::Status => {}
                    Return::Void => f.write_str(" -> void")?,
                    Return::Str => f.write_str(" -> str")?,
                    Return::Value(value) => write!(f, " -> {value}")?,
                }
            }
        }
        if !self.remark.is_empty() {
            write!(f, " # {}", self.remark)?;
        }
        Ok(())
    }
}

/// Reads one line; `Ok(None)` for an empty one or a comment.
pub fn parse_line(text: &str) -> Result<Option<Line>, String> {
    let (code, remark) = text.split_once('#').unwrap_or((text, ""));
    let (code, remark) = (code.trim(), remark.trim().to_owned());
    if code.is_empty() {
        return Ok(None);
    }
    let (name, rest) = code.split_once(' ').ok_or("a name without a class")?;
    if !is_name(name) {
        return Err(format!("`{name}` is not a name"));
    }
    let name = name.to_owned();
    let (word, rest) = rest.trim_start().split_once(' ').ok_or("a class without parameters")?;
    if word == "alias" {
        let target = rest.trim();
        if !is_name(target) || target == name {
            return Err(format!("`{target}` is not a name to be an alias of"));
        }
        return Ok(Some(Line { name, entry: Entry::Alias(target.to_owned()), remark }));
    }
    let class = Class::from_word(word).ok_or_else(|| format!("`{word}` is not a class"))?;
    let inside = rest.trim_start().strip_prefix('(').ok_or("no `(` after the class")?;
    let (inside, after) = inside.split_once(')').ok_or("no `)` after the parameters")?;
    let mut params = Vec::new();
    let mut counts = Vec::new();
    for param in inside.split(',').map(str::trim).filter(|param| !param.is_empty()) {
        let (name, kind) = param.split_once(':').ok_or_else(|| format!("no type in `{param}`"))?;
        let (name, kind) = (name.trim(), kind.trim());
        if !is_name(name) {
            return Err(format!("`{name}` is not a name"));
        }
        let (kind, count) = match kind.strip_suffix(']').and_then(|kind| kind.split_once('[')) {
            Some((kind, count)) => (kind, Some(count)),
            None => (kind, None),
        };
        counts.extend(count.map(|count| (params.len(), count)));
        params.push((name.to_owned(), Type::parse(kind).ok_or_else(|| format!("`{kind}` is not a type"))?));
    }
    for (index, count) in counts {
        let count = Count::parse(count, &params)?;
        let Some((name, kind)) = params.get_mut(index) else { continue };
        *kind = match *kind {
            Type::In(value @ Value::Ptr) => Type::Many { written: false, value, count },
            Type::Out(value) => Type::Many { written: true, value, count },
            _ => return Err(format!("`{name}` cannot be counted")),
        };
    }
    for (index, (name, kind)) in params.iter().enumerate() {
        let next = params.get(index + 1).map(|(_, next)| *next);
        if *kind == Type::OutSized && next != Some(Type::In(Value::Number("usize"))) {
            return Err(format!("`{name}` is sized, and no usize follows it"));
        }
    }
    let returns = match after.trim() {
        "" => Return::Status,
        text => match text.strip_prefix("->").map(str::trim) {
            Some("void") => Return::Void,
            Some("str") => Return::Str,
            Some(word) => {
                Return::Value(Value::from_word(word).ok_or_else(|| format!("`{word}` is not a type to return"))?)
            }
            None => return Err(format!("`{text}` after the parameters")),
        },
    };
    Ok(Some(Line { name, entry: Entry::Function { class, params, returns }, remark }))
}

/// Reads a table; an error names the line.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (index, text) in text.lines().enumerate() {
        match parse_line(text) {
            Ok(line) => lines.extend(line),
            Err(error) => return Err(format!("line {}: {error}", index + 1)),
        }
    }
    Ok(lines)
}

/// Whether this can be the name of a C symbol or parameter.
pub fn is_name(text: &str) -> bool {
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

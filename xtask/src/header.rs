//! Reads C declarations out of a preprocessed header.
//!
//! This is not a C compiler: it knows typedefs, struct and enum names, and function prototypes, which is all that the
//! tables need. Sizes are left to the real compiler. Whatever it does not understand, it skips; it never panics,
//! because a new header must at worst lose one function, which the export check then names.

use std::collections::{BTreeMap, BTreeSet};

/// A type as written in a declaration, with typedef names not yet resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CType {
    /// The words of the type without qualifiers, for example `unsigned int`, `struct dim3`, `cudaStream_t`.
    pub base: String,
    /// Whether the innermost type is `const`.
    pub base_const: bool,
    /// One entry per pointer level, outermost last; true where that pointer itself is `const`.
    pub pointers: Vec<bool>,
    /// A pointer to a function, spelled in place.
    pub function: bool,
}

/// One parameter of a prototype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Empty where the header gives none.
    pub name: String,
    /// The type as written.
    pub ctype: CType,
}

/// A function prototype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// The name that the linker sees.
    pub name: String,
    /// What it returns.
    pub returns: CType,
    /// Its parameters, none for `(void)`.
    pub params: Vec<Param>,
}

/// What a typedef name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typedef {
    /// Another type.
    Same(CType),
    /// An anonymous enum.
    Enum,
    /// An anonymous struct or union, which can only be named by the typedef.
    Anonymous,
    /// A function type or a pointer to a function.
    Function,
}

/// Everything found in one preprocessed text.
#[derive(Debug, Default)]
pub struct Header {
    /// Typedefs by name.
    pub typedefs: BTreeMap<String, Typedef>,
    /// Complete structs and unions (`struct X`, or the typedef's name if anonymous) with the name of their first member.
    pub complete: BTreeMap<String, String>,
    /// Prototypes in the order of the text.
    pub prototypes: Vec<Prototype>,
    /// Typedefs of pointers to functions with their parameters, such as those of `cudaTypedefs.h`.
    pub function_types: Vec<Prototype>,
}

/// Reads the declarations of `text`.
pub fn parse(text: &str) -> Header {
    let tokens = without_attributes(&lex(text));
    let mut header = Header::default();
    for declaration in split_declarations(&tokens) {
        read_declaration(declaration, &mut header);
    }
    header
}

fn lex(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        at += 1;
        if byte.is_ascii_whitespace() {
            continue;
        }
        if byte == b'#' {
            while at < bytes.len() && bytes[at] != b'\n' {
                at += 1;
            }
            continue;
        }
        if byte == b'"' || byte == b'\'' {
            while at < bytes.len() && bytes[at] != byte {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            at = (at + 1).min(bytes.len());
        } else if is_word(byte) {
            while at < bytes.len() && is_word(bytes[at]) {
                at += 1;
            }
        } else if text[start..].starts_with("...") {
            at += 2;
        }
        // Bytes outside ASCII appear only in strings; a cut inside one of them is skipped rather than guessed.
        if let Some(token) = text.get(start..at) {
            tokens.push(token);
        }
    }
    tokens
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn is_identifier(token: &str) -> bool {
    token.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
}

/// The index after the bracket that closes the one at `open`.
fn after_bracket(tokens: &[&str], open: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return index + 1;
                }
            }
            _ => {}
        }
    }
    tokens.len()
}

fn without_attributes<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    const NOISE: &[&str] = &[
        "extern",
        "__extension__",
        "__restrict",
        "__restrict__",
        "restrict",
        "volatile",
        "register",
        "_Noreturn",
        "__cdecl",
        "__stdcall",
    ];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at] {
            "__attribute__" | "__attribute" | "__declspec" | "__asm__" | "asm" | "_Alignas" => {
                at += 1;
                if tokens.get(at) == Some(&"(") {
                    at = after_bracket(tokens, at);
                }
            }
            token => {
                if !NOISE.contains(&token) && !token.starts_with('"') {
                    kept.push(token);
                }
                at += 1;
            }
        }
    }
    kept
}

/// Cuts a translation unit at its top-level semicolons and function bodies.
fn split_declarations<'s, 't>(tokens: &'s [&'t str]) -> Vec<&'s [&'t str]> {
    let mut declarations = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < tokens.len() {
        match tokens[at] {
            ";" => {
                declarations.push(&tokens[start..at]);
                at += 1;
                start = at;
            }
            "{" => {
                let after = after_bracket(tokens, at);
                let is_body = tokens[start..at].last() == Some(&")");
                at = after;
                if is_body {
                    start = at;
                }
            }
            "(" | "[" => at = after_bracket(tokens, at),
            _ => at += 1,
        }
    }
    declarations
}

fn read_declaration(tokens: &[&str], header: &mut Header) {
    let is_typedef = tokens.first() == Some(&"typedef");
    let tokens = if is_typedef { &tokens[1..] } else { tokens };
    let mut declared = Declared { tokens, at: 0, header };
    let Some(base) = declared.base() else { return };
    let rest = declared.at;
    for declarator in split_commas(&tokens[rest..]) {
        let Some(read) = read_declarator(declarator, &base.ctype) else { continue };
        if read.name.is_empty() {
            continue;
        }
        if is_typedef {
            let meaning = match (read.params, read.ctype.function) {
                (Some(params), _) => {
                    header.function_types.push(Prototype {
                        name: read.name.clone(),
                        returns: read.ctype,
                        params: read_params(params),
                    });
                    Typedef::Function
                }
                (None, true) => Typedef::Function,
                (None, false) if base.ctype.base.is_empty() && read.ctype.pointers.is_empty() => {
                    if let Some(first) = &base.first_member {
                        header.complete.insert(read.name.clone(), first.clone());
                        Typedef::Anonymous
                    } else {
                        Typedef::Enum
                    }
                }
                (None, false) => Typedef::Same(read.ctype),
            };
            header.typedefs.insert(read.name, meaning);
        } else if let Some(params) = read.params
            && !read.pointer_to_function
        {
            let params = read_params(params);
            header.prototypes.push(Prototype { name: read.name, returns: read.ctype, params });
        }
    }
}

struct Base {
    ctype: CType,
    /// The first member of a struct whose body is here.
    first_member: Option<String>,
}

struct Declared<'a, 't> {
    tokens: &'a [&'t str],
    at: usize,
    header: &'a mut Header,
}

impl Declared<'_, '_> {
    /// Reads the specifiers before the declarators, and notes structs that are defined in place.
    fn base(&mut self) -> Option<Base> {
        let mut words: Vec<&str> = Vec::new();
        let mut base = Base { ctype: CType::default(), first_member: None };
        while let Some(&token) = self.tokens.get(self.at) {
            match token {
                "const" => base.ctype.base_const = true,
                "static" | "inline" | "__inline" | "__inline__" => {}
                "struct" | "union" | "enum" => {
                    let tag = self.tokens.get(self.at + 1).copied().filter(|tag| is_identifier(tag));
                    let mut next = self.at + 1 + usize::from(tag.is_some());
                    if self.tokens.get(next) == Some(&"{") {
                        let after = after_bracket(self.tokens, next);
                        if token != "enum" {
                            let body = self.tokens.get(next + 1..after.saturating_sub(1)).unwrap_or_default();
                            let first = first_member(body);
                            if let Some(tag) = tag {
                                self.header.complete.insert(format!("{token} {tag}"), first.clone());
                            }
                            base.first_member = Some(first);
                        }
                        next = after;
                    }
                    if let Some(tag) = tag {
                        base.ctype.base = format!("{token} {tag}");
                    }
                    self.at = next;
                    self.qualifiers(&mut base.ctype);
                    return Some(base);
                }
                _ if !is_identifier(token) => break,
                _ => {
                    let number_word = is_number_word(token);
                    if !words.is_empty() && (!number_word || !words.iter().all(|word| is_number_word(word))) {
                        break;
                    }
                    words.push(token);
                }
            }
            self.at += 1;
        }
        if words.is_empty() {
            return None;
        }
        base.ctype.base = words.join(" ");
        self.qualifiers(&mut base.ctype);
        Some(base)
    }

    fn qualifiers(&mut self, ctype: &mut CType) {
        while self.tokens.get(self.at) == Some(&"const") {
            ctype.base_const = true;
            self.at += 1;
        }
    }
}

fn is_number_word(word: &str) -> bool {
    matches!(
        word,
        "unsigned" | "signed" | "long" | "short" | "int" | "char" | "float" | "double" | "void" | "_Bool" | "_Complex"
    )
}

/// The name of the first member of a struct body; `size` and `version` there mean that the caller fills it in.
fn first_member(body: &[&str]) -> String {
    let end = body.iter().position(|token| matches!(*token, ";" | "[" | "," | ":" | "{")).unwrap_or(body.len());
    body[..end].iter().rev().find(|token| is_identifier(token)).map(|token| (*token).to_owned()).unwrap_or_default()
}

struct Declarator<'a, 't> {
    name: String,
    ctype: CType,
    /// The parameters, if this declares a function or a pointer to one.
    params: Option<&'a [&'t str]>,
    pointer_to_function: bool,
}

/// Reads one declarator: `*name`, `name[4]`, `name(params)`, `(*name)(params)`.
fn read_declarator<'a, 't>(tokens: &'a [&'t str], base: &CType) -> Option<Declarator<'a, 't>> {
    let mut ctype = base.clone();
    let mut at = 0;
    while let Some(&token) = tokens.get(at) {
        match token {
            "*" => ctype.pointers.push(false),
            "const" => {
                if let Some(last) = ctype.pointers.last_mut() {
                    *last = true;
                } else {
                    ctype.base_const = true;
                }
            }
            _ => break,
        }
        at += 1;
    }
    let mut declarator = Declarator { name: String::new(), ctype, params: None, pointer_to_function: false };
    match tokens.get(at) {
        Some(&"(") => {
            // Either a parenthesised function name or a pointer to a function; the star distinguishes them.
            let after = after_bracket(tokens, at);
            let inside = tokens.get(at + 1..after.saturating_sub(1)).unwrap_or_default();
            declarator.pointer_to_function = inside.contains(&"*");
            let mut names = inside.iter().filter(|token| is_identifier(token) && **token != "const");
            declarator.name = names.next().map(|token| (*token).to_owned()).unwrap_or_default();
            at = after;
            if declarator.pointer_to_function && inside.contains(&"[") {
                declarator.ctype.pointers.push(false);
            }
        }
        Some(token) if is_identifier(token) => {
            declarator.name = (*token).to_owned();
            at += 1;
        }
        _ => {}
    }
    match tokens.get(at) {
        Some(&"(") => {
            let after = after_bracket(tokens, at);
            declarator.params = Some(tokens.get(at + 1..after.saturating_sub(1)).unwrap_or_default());
        }
        Some(&"[") => declarator.ctype.pointers.push(false),
        _ => {}
    }
    Some(declarator)
}

fn split_commas<'s, 't>(tokens: &'s [&'t str]) -> Vec<&'s [&'t str]> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < tokens.len() {
        match tokens[at] {
            "," => {
                parts.push(&tokens[start..at]);
                at += 1;
                start = at;
            }
            "(" | "[" | "{" => at = after_bracket(tokens, at),
            _ => at += 1,
        }
    }
    if start < tokens.len() {
        parts.push(&tokens[start..]);
    }
    parts
}

fn read_params(tokens: &[&str]) -> Vec<Param> {
    let mut params = Vec::new();
    let mut scratch = Header::default();
    for part in split_commas(tokens) {
        let mut declared = Declared { tokens: part, at: 0, header: &mut scratch };
        let Some(base) = declared.base() else { continue };
        let rest = declared.at;
        let Some(read) = read_declarator(part.get(rest..).unwrap_or_default(), &base.ctype) else { continue };
        let mut ctype = read.ctype;
        ctype.function = read.params.is_some();
        if ctype.base == "void" && ctype.pointers.is_empty() && !ctype.function {
            continue;
        }
        params.push(Param { name: read.name, ctype });
    }
    params
}

/// What a written type comes down to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The innermost type.
    pub kind: Kind,
    /// For each pointer level, outermost first, whether what it points to is const.
    pub points_to_const: Vec<bool>,
}

/// The innermost type of a resolved type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `void`.
    Void,
    /// A number with a name from the tables (`i32`, `usize`, ...); 8- and 16-bit ones are `i8`, `u8`, `i16`, `u16`.
    Number(&'static str),
    /// An enum; the tables write it as `i32`.
    Enum,
    /// A complete struct or union, by the name that C knows it under.
    Struct(String),
    /// A struct that the header does not define.
    Opaque,
    /// A function.
    Function,
}

impl Header {
    /// Follows typedefs to the end.
    pub fn resolve(&self, ctype: &CType) -> Resolved {
        let mut kind = Kind::Opaque;
        // Collected innermost first: the constness of what each pointer level points to.
        let mut levels: Vec<bool> = Vec::new();
        let mut layers = vec![ctype.clone()];
        let mut seen = BTreeSet::new();
        if ctype.function {
            return Resolved { kind: Kind::Function, points_to_const: vec![false; ctype.pointers.len() + 1] };
        }
        loop {
            let name = layers[layers.len() - 1].base.clone();
            if let Some(number) = number_named(&name) {
                kind = number;
                break;
            }
            if !seen.insert(name.clone()) {
                break;
            }
            match self.typedefs.get(&name) {
                Some(Typedef::Same(next)) => layers.push(next.clone()),
                Some(Typedef::Enum) => kind = Kind::Enum,
                Some(Typedef::Anonymous) => kind = Kind::Struct(name.clone()),
                Some(Typedef::Function) => {
                    kind = Kind::Function;
                    levels.push(false);
                }
                None if name.starts_with("enum ") => kind = Kind::Enum,
                None if self.complete.contains_key(&name) => kind = Kind::Struct(name.clone()),
                None => {}
            }
            if !matches!(self.typedefs.get(&name), Some(Typedef::Same(_))) {
                break;
            }
        }
        let mut is_const = false;
        for layer in layers.iter().rev() {
            is_const |= layer.base_const;
            for &pointer_const in &layer.pointers {
                levels.push(is_const);
                is_const = pointer_const;
            }
        }
        levels.reverse();
        Resolved { kind, points_to_const: levels }
    }
}

/// Names whose meaning is fixed by the platform (64-bit Linux) rather than by the headers.
fn number_named(name: &str) -> Option<Kind> {
    let mut words: Vec<&str> = name.split(' ').collect();
    words.sort_unstable();
    Some(match words.join(" ").as_str() {
        "void" => Kind::Void,
        "char" | "char signed" | "int8_t" => Kind::Number("i8"),
        "char unsigned" | "uint8_t" | "_Bool" | "bool" => Kind::Number("u8"),
        "short" | "int short" | "int16_t" | "short signed" => Kind::Number("i16"),
        "short unsigned" | "int short unsigned" | "uint16_t" => Kind::Number("u16"),
        "int" | "signed" | "int signed" | "int32_t" => Kind::Number("i32"),
        "unsigned" | "int unsigned" | "uint32_t" | "cuuint32_t" => Kind::Number("u32"),
        "long" | "int long" | "long long" | "int long long" | "int64_t" | "ptrdiff_t" | "ssize_t" => {
            Kind::Number("i64")
        }
        "long unsigned"
        | "int long unsigned"
        | "long long unsigned"
        | "int long long unsigned"
        | "uint64_t"
        | "cuuint64_t" => Kind::Number("u64"),
        "size_t" | "uintptr_t" => Kind::Number("usize"),
        "float" => Kind::Number("f32"),
        "double" => Kind::Number("f64"),
        _ => return None,
    })
}

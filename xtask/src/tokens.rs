//! Reads Rust's tokens: attributes, and where items end. Strings and comments are no code here.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The name at this place.
pub fn word(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at) {
        Some(TokenTree::Ident(name)) => Some(name.to_string()),
        _ => None,
    }
}

/// Whether this sign is at this place.
pub fn is_punct(tokens: &[TokenTree], at: usize, wanted: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// The attribute that begins here, and where it ends.
pub fn attribute(tokens: &[TokenTree], at: usize) -> Option<(Vec<TokenTree>, usize)> {
    let inner = usize::from(is_punct(tokens, at + 1, '!'));
    match tokens.get(at + 1 + inner) {
        Some(TokenTree::Group(group)) if is_punct(tokens, at, '#') && group.delimiter() == Delimiter::Bracket => {
            // An attribute of the file itself (`#![...]`) does not make the next item one of tests.
            let attribute = if inner == 1 { Vec::new() } else { group.stream().into_iter().collect() };
            Some((attribute, at + 2 + inner))
        }
        _ => None,
    }
}

/// Whether an attribute is a `cfg` that names `test` other than in `not(...)`.
pub fn is_of_tests(attribute: &[TokenTree]) -> bool {
    fn names_test(tokens: TokenStream) -> bool {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        (0..tokens.len()).any(|at| match &tokens[at] {
            TokenTree::Ident(name) => name == "test",
            TokenTree::Group(group) => {
                (at == 0 || word(&tokens, at - 1).as_deref() != Some("not")) && names_test(group.stream())
            }
            _ => false,
        })
    }
    match (word(attribute, 0).as_deref(), attribute.get(1)) {
        (Some("cfg"), Some(TokenTree::Group(condition))) => names_test(condition.stream()),
        (Some("test"), None) => true,
        _ => false,
    }
}

/// Where the item ends that begins here: behind its semicolon or its braces.
pub fn after_item(tokens: &[TokenTree], at: usize) -> usize {
    let ends = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    // The braces of `use a::{b, c};` do not end it.
    let is_use = (at..tokens.len().min(at + 3)).any(|at| word(tokens, at).as_deref() == Some("use"));
    (at..tokens.len())
        .find(|&at| if is_use { is_punct(tokens, at, ';') } else { ends(&tokens[at]) })
        .map_or(tokens.len(), |at| at + 1)
}

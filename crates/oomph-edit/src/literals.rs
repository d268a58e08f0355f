//! Reads values that are written out in code.

use crate::source::At;

/// The value of a string, a number or a name; `None` for what has to be computed.
pub(crate) fn plain(at: At<'_>) -> Option<String> {
    match at.node.kind() {
        "string" => string(at),
        "integer" | "float" | "true" | "false" | "none" => Some(at.text().to_owned()),
        "unary_operator" => Some(at.text().to_owned()),
        _ => None,
    }
}

/// The contents of a string without prefix, escapes or values in it.
pub(crate) fn string(at: At<'_>) -> Option<String> {
    if at.node.kind() != "string" {
        return None;
    }
    let text = at.text();
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| text.starts_with(quote))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!inner.contains('\\')).then(|| inner.to_owned())
}

/// The plain values of a list, a tuple or a set.
pub(crate) fn listed(at: At<'_>) -> Vec<String> {
    if !matches!(at.node.kind(), "list" | "tuple" | "set") {
        return Vec::new();
    }
    let count = at.node.named_child_count();
    (0..count).filter_map(|place| at.node.named_child(place)).filter_map(|node| plain(at.with(node))).collect()
}

//! A Python file with its concrete syntax tree.

use std::ops::Range;
use std::path::Path;

use tree_sitter::{Node, Parser, Tree};

/// A file with more bytes is generated, and nobody wants it patched.
const LONGEST: usize = 1 << 20;

/// A file without syntax errors.
#[derive(Debug)]
pub struct Source {
    text: String,
    tree: Tree,
}

impl Source {
    /// Parses a file; `None` where it is not valid Python, or too long.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let mut parser = Parser::new();
        parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
        let tree = parser.parse(text, None)?;
        (!tree.root_node().has_error()).then(|| Self { text: text.to_owned(), tree })
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The node of the whole file.
    pub fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    /// The text of a node.
    pub fn of(&self, node: Node<'_>) -> &str {
        self.slice(node.byte_range())
    }

    /// The text of a range; empty where the range is outside this text.
    pub fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    /// Every node of a kind, in the order of the text.
    pub fn all(&self, kind: &str) -> Vec<Node<'_>> {
        within(self.root()).filter(|node| node.kind() == kind).collect()
    }

    /// The statements that begin on a line, counted from 1.
    pub fn statements_at(&self, line: usize) -> Vec<Node<'_>> {
        let on = |node: &Node<'_>| is_statement(*node) && node.start_position().row + 1 == line;
        within(self.root()).filter(on).collect()
    }

    /// The white space before the first word of the line of a node.
    pub fn indentation(&self, node: Node<'_>) -> &str {
        let start = self.line_start(node.start_byte());
        let line = self.slice(start..self.text.len());
        let width = line.len() - line.trim_start_matches([' ', '\t']).len();
        self.slice(start..start + width)
    }

    /// One level of indentation, as this file has it.
    pub fn unit(&self) -> String {
        for block in self.all("block") {
            let Some(outer) = block.parent() else { continue };
            let (inside, outside) = (self.indentation(block), self.indentation(outer));
            if block.start_position().row != outer.start_position().row
                && let Some(unit) = inside.strip_prefix(outside)
                && !unit.is_empty()
            {
                return unit.to_owned();
            }
        }
        "    ".to_owned()
    }

    /// How this file ends its lines.
    pub fn newline(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// Where the line of a place begins.
    pub fn line_start(&self, place: usize) -> usize {
        self.slice(0..place).rfind('\n').map_or(0, |end| end + 1)
    }

    /// Where the line after that of a place begins.
    pub fn line_end(&self, place: usize) -> usize {
        self.slice(place..self.text.len()).find('\n').map_or(self.text.len(), |end| place + end + 1)
    }

    /// The whole lines from the first to the last of these statements; `None` where they share a line with others, so
    /// that they cannot be indented or moved by themselves.
    pub fn whole_lines(&self, first: Node<'_>, last: Node<'_>) -> Option<Range<usize>> {
        let start = self.line_start(first.start_byte());
        let end = self.line_end(last.end_byte().saturating_sub(1).max(last.start_byte()));
        let after = self.slice(last.end_byte()..end).trim();
        let alone = self.slice(start..first.start_byte()).trim().is_empty();
        (alone && (after.is_empty() || after.starts_with('#') || last.end_byte() >= end)).then_some(start..end)
    }
}

/// A node with the file that it is in.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub file: &'a Path,
    pub source: &'a Source,
    pub node: Node<'a>,
}

impl<'a> At<'a> {
    /// Another node of the same file.
    pub fn with(self, node: Node<'a>) -> Self {
        Self { node, ..self }
    }

    /// Its text.
    pub fn text(self) -> &'a str {
        self.source.of(self.node)
    }
}

/// The first of these names that a file does not use.
pub fn unused(source: &Source, names: &[&'static str]) -> Option<&'static str> {
    let used = |name: &str| source.all("identifier").into_iter().any(|node| source.of(node) == name);
    names.iter().copied().find(|name| !used(name))
}

/// All nodes below and including one, parents first.
pub fn within(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let mut waiting = vec![node];
    std::iter::from_fn(move || {
        let next = waiting.pop()?;
        let count = u32::try_from(next.named_child_count()).unwrap_or(0);
        waiting.extend((0..count).rev().filter_map(|place| next.named_child(place as usize)));
        Some(next)
    })
}

/// The nodes around one, the innermost first.
pub fn around(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    std::iter::successors(node.parent(), Node::parent)
}

/// Whether a node is a statement of a block.
pub fn is_statement(node: Node<'_>) -> bool {
    node.is_named() && node.kind() != "comment" && node.parent().is_some_and(|parent| is_block(parent))
}

fn is_block(node: Node<'_>) -> bool {
    matches!(node.kind(), "block" | "module")
}

/// The innermost statement that holds a node.
pub fn statement_of(node: Node<'_>) -> Option<Node<'_>> {
    std::iter::once(node).chain(around(node)).find(|node| is_statement(*node))
}

/// The function that holds a node.
pub fn function_of(node: Node<'_>) -> Option<Node<'_>> {
    around(node).find(|node| node.kind() == "function_definition")
}

/// The statements of a block.
pub fn statements(block: Node<'_>) -> Vec<Node<'_>> {
    let count = block.named_child_count();
    (0..count).filter_map(|place| block.named_child(place)).filter(|node| node.kind() != "comment").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_fault_is_not_edited() {
        assert!(Source::parse("def f(:\n").is_none());
        assert!(Source::parse("").is_some());
    }

    #[test]
    fn the_files_own_indentation_and_lines_are_found() {
        let source = Source::parse("if a:\n  b = 1; c = 2\n  d = 3  # three\n").unwrap();
        assert_eq!(source.unit(), "  ");
        let block = source.all("block")[0];
        let [b, c, d] = statements(block)[..] else { panic!("three statements") };
        assert!(source.whole_lines(b, b).is_none());
        assert_eq!(source.slice(source.whole_lines(b, c).unwrap()), "  b = 1; c = 2\n");
        assert_eq!(source.slice(source.whole_lines(d, d).unwrap()), "  d = 3  # three\n");
        assert_eq!(source.indentation(c), "  ");
    }
}

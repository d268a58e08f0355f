//! Edits a text by replacing, inserting and indenting, with every other byte kept.

use std::ops::Range;

use tree_sitter::Node;

use crate::source::{Source, within};

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; empty where something is inserted.
    pub range: Range<usize>,
    /// What comes there.
    pub text: String,
}

impl Edit {
    /// Something in place of a node.
    pub fn replace(node: Node<'_>, text: impl Into<String>) -> Self {
        Self { range: node.byte_range(), text: text.into() }
    }

    /// Something before a place.
    pub fn insert(place: usize, text: impl Into<String>) -> Self {
        Self { range: place..place, text: text.into() }
    }
}

/// The text with all edits made; `None` where two of them overlap.
pub fn edited(text: &str, edits: &[Edit]) -> Option<String> {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    // What is inserted at one place comes in the order in which it was asked for.
    sorted.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let mut result = String::with_capacity(text.len());
    let mut place = 0;
    for edit in sorted {
        if edit.range.start < place {
            return None;
        }
        result.push_str(text.get(place..edit.range.start)?);
        result.push_str(&edit.text);
        place = edit.range.end;
    }
    result.push_str(text.get(place..)?);
    Some(result)
}

/// Indents the lines of some statements by one level, below a line that begins a block. `None` where they share lines
/// with others, or where a text over several lines would change.
pub fn wrapped(source: &Source, first: Node<'_>, last: Node<'_>, head: &str) -> Option<Vec<Edit>> {
    let lines = source.whole_lines(first, last)?;
    let (unit, indentation) = (source.unit(), source.indentation(first));
    let in_range = |node: &Node<'_>| node.start_byte() >= lines.start && node.end_byte() <= lines.end;
    let long = |node: &Node<'_>| node.start_position().row != node.end_position().row;
    let block = first.parent()?;
    if within(block).any(|node| node.kind() == "string" && in_range(&node) && long(&node)) {
        return None;
    }
    let mut edits = vec![Edit::insert(lines.start, format!("{indentation}{head}{}", source.newline()))];
    let mut place = lines.start;
    while place < lines.end {
        let end = source.line_end(place);
        if !source.slice(place..end).trim().is_empty() {
            edits.push(Edit::insert(place, unit.clone()));
        }
        place = end.max(place + 1);
    }
    Some(edits)
}

/// Lines after a statement, with its indentation. `None` where the statement shares its line with others.
pub fn lines_after(source: &Source, statement: Node<'_>, lines: &[String]) -> Option<Edit> {
    let range = source.whole_lines(statement, statement)?;
    let newline = source.newline();
    let indentation = source.indentation(statement);
    let mut text = String::new();
    // The last line of a file may lack its end.
    let ends = source.slice(range.clone()).ends_with('\n');
    if !ends {
        text.push_str(newline);
    }
    for (place, line) in lines.iter().enumerate() {
        text.push_str(&format!("{indentation}{line}"));
        if ends || place + 1 < lines.len() {
            text.push_str(newline);
        }
    }
    Some(Edit::insert(range.end, text))
}

/// Takes a statement out, with its line where it has one of its own; what would leave a block empty becomes `pass`.
pub fn without_statement(source: &Source, statement: Node<'_>) -> Edit {
    let alone = statement.parent().is_none_or(|block| crate::source::statements(block).len() < 2);
    match source.whole_lines(statement, statement).filter(|_| !alone) {
        Some(range) => Edit { range, text: String::new() },
        None => Edit::replace(statement, "pass"),
    }
}

/// A line that imports something, after the last import at the top of the file; `None` where the file has it already.
pub fn import(source: &Source, line: &str) -> Option<Edit> {
    let root = source.root();
    let statements = crate::source::statements(root);
    let imports = |node: &&Node<'_>| {
        matches!(node.kind(), "import_statement" | "import_from_statement" | "future_import_statement")
    };
    if statements.iter().any(|node| source.of(*node).trim() == line) {
        return None;
    }
    let newline = source.newline();
    // Imports further down may come after the code that needs this one.
    let is_text = |node: &Node<'_>| {
        node.kind() == "expression_statement" && node.named_child(0).is_some_and(|node| node.kind() == "string")
    };
    let last = statements.iter().take_while(|node| imports(node) || is_text(node)).filter(imports).last();
    match last {
        Some(last) => {
            let end = source.line_end(last.end_byte().saturating_sub(1));
            let text = if source.slice(0..end).ends_with('\n') {
                format!("{line}{newline}")
            } else {
                format!("{newline}{line}")
            };
            Some(Edit::insert(end, text))
        }
        None => {
            // After a docstring and the line that names the interpreter.
            let first = statements.first()?;
            let place = if is_text(first) {
                source.line_end(first.end_byte().saturating_sub(1))
            } else {
                source.line_start(first.start_byte())
            };
            Some(Edit::insert(place, format!("{line}{newline}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::statements;

    #[test]
    fn edits_keep_what_they_do_not_name() {
        let edits = [Edit { range: 4..5, text: "2".into() }, Edit::insert(0, "# \u{e9}\n")];
        assert_eq!(edited("a = 1 # \u{e9}\r\n", &edits).unwrap(), "# \u{e9}\na = 2 # \u{e9}\r\n");
        let overlapping = [Edit { range: 0..3, text: String::new() }, Edit { range: 2..4, text: String::new() }];
        assert!(edited("abcdef", &overlapping).is_none());
    }

    #[test]
    fn statements_are_wrapped_with_their_comments() {
        let text = "for x in d:\n\tif x:\n\t\t# one\n\t\ta()\n\n\t\tb(\n\t\t\t1)\n\tc()\n";
        let source = Source::parse(text).unwrap();
        let block = source.all("block")[1];
        let inner = statements(block);
        let edits = wrapped(&source, inner[0], inner[1], "with y:").unwrap();
        let wanted = "for x in d:\n\tif x:\n\t\t# one\n\t\twith y:\n\t\t\ta()\n\n\t\t\tb(\n\t\t\t\t1)\n\tc()\n";
        assert_eq!(edited(text, &edits).unwrap(), wanted);
    }

    #[test]
    fn a_text_over_several_lines_is_not_indented() {
        let source = Source::parse("a = '''x\ny'''\n").unwrap();
        let statement = statements(source.root())[0];
        assert!(wrapped(&source, statement, statement, "with y:").is_none());
    }

    #[test]
    fn an_import_goes_below_the_others() {
        let text = "\"\"\"What it does.\"\"\"\nimport a\nfrom b import (\n    c)\n\nx = 1\n";
        let source = Source::parse(text).unwrap();
        let edit = import(&source, "import z").unwrap();
        assert_eq!(
            edited(text, &[edit]).unwrap(),
            "\"\"\"What it does.\"\"\"\nimport a\nfrom b import (\n    c)\nimport z\n\nx = 1\n"
        );
        assert!(import(&source, "import a").is_none());
        let text = "import a\nx = a.b()\nimport c\n";
        let edit = import(&Source::parse(text).unwrap(), "import z").unwrap();
        assert_eq!(edited(text, &[edit]).unwrap(), "import a\nimport z\nx = a.b()\nimport c\n");
    }
}

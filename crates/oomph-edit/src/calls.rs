//! Finds calls and their arguments.

use tree_sitter::Node;

use crate::edit::Edit;
use crate::source::{At, Source};

/// A call: `torch.optim.Adam(model.parameters(), lr=1e-3)`.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub at: At<'a>,
    pub function: Node<'a>,
    pub arguments: Node<'a>,
}

impl<'a> Call<'a> {
    pub fn of(at: At<'a>) -> Option<Self> {
        let function = at.node.child_by_field_name("function")?;
        let arguments = at.node.child_by_field_name("arguments")?;
        (arguments.kind() == "argument_list").then_some(Self { at, function, arguments })
    }

    /// What is called, in full: `torch.optim.Adam`.
    pub fn path(&self) -> &'a str {
        self.at.source.of(self.function)
    }

    /// The last name of what is called: `Adam`.
    pub fn name(&self) -> &'a str {
        match self.function.kind() {
            "attribute" => self.function.child_by_field_name("attribute").map_or("", |node| self.at.source.of(node)),
            "identifier" => self.path(),
            _ => "",
        }
    }

    /// The object whose method is called.
    pub fn object(&self) -> Option<Node<'a>> {
        if self.function.kind() == "attribute" { self.function.child_by_field_name("object") } else { None }
    }

    /// The arguments without a name.
    pub fn positional(&self) -> Vec<Node<'a>> {
        let plain = |node: &Node<'a>| !matches!(node.kind(), "keyword_argument" | "comment" | "dictionary_splat");
        self.each().into_iter().filter(plain).collect()
    }

    /// The `name=value` of a name.
    pub fn keyword(&self, name: &str) -> Option<Node<'a>> {
        let is = |node: &Node<'a>| {
            node.kind() == "keyword_argument"
                && node.child_by_field_name("name").is_some_and(|found| self.at.source.of(found) == name)
        };
        self.each().into_iter().find(is)
    }

    /// The value of a named argument.
    pub fn value(&self, name: &str) -> Option<At<'a>> {
        self.keyword(name)?.child_by_field_name("value").map(|node| self.at.with(node))
    }

    /// The value of an argument by its name or its place.
    pub fn argument(&self, name: &str, place: usize) -> Option<At<'a>> {
        self.value(name).or_else(|| self.positional().get(place).map(|node| self.at.with(*node)))
    }

    /// What the call takes its further arguments from: `cfg` of `**cfg`.
    pub fn splat(&self) -> Option<At<'a>> {
        let splat = self.each().into_iter().find(|node| node.kind() == "dictionary_splat")?;
        splat.named_child(0).map(|node| self.at.with(node))
    }

    fn each(&self) -> Vec<Node<'a>> {
        let count = self.arguments.named_child_count();
        (0..count)
            .filter_map(|place| self.arguments.named_child(place))
            .filter(|node| node.kind() != "comment")
            .collect()
    }

    /// Adds `name=value` after the last argument, on a line of its own where each argument has one.
    pub fn adding(&self, name: &str, value: &str) -> Edit {
        let source = self.at.source;
        let arguments = self.each();
        let Some(last) = arguments.last() else {
            return Edit::insert(self.arguments.start_byte() + 1, format!("{name}={value}"));
        };
        let own_lines = arguments.len() > 1
            && arguments.windows(2).all(|pair| pair[0].end_position().row < pair[1].start_position().row)
            || arguments.len() == 1 && self.arguments.start_position().row < last.start_position().row;
        // A generator without parentheses must stay alone, so it gets its own.
        let separator =
            if own_lines { format!(",{}{}", source.newline(), source.indentation(*last)) } else { ", ".to_owned() };
        Edit::insert(last.end_byte(), format!("{separator}{name}={value}"))
    }

    /// Sets `name=value`, where the argument is there or not.
    pub fn setting(&self, name: &str, value: &str) -> Edit {
        match self.value(name) {
            Some(present) => Edit::replace(present.node, value),
            None => self.adding(name, value),
        }
    }

    /// Takes a named argument out, with its comma.
    pub fn without(&self, name: &str) -> Option<Edit> {
        let node = self.keyword(name)?;
        Some(removed(self.at.source, node))
    }
}

/// Takes one of several things between commas out.
pub(crate) fn removed(source: &Source, node: Node<'_>) -> Edit {
    let comma = |node: Node<'_>| node.kind() == ",";
    let range = match (node.prev_sibling().filter(|near| comma(*near)), node.next_sibling().filter(|near| comma(*near)))
    {
        (Some(before), _) => before.start_byte()..node.end_byte(),
        (None, Some(after)) => {
            let rest = source.slice(after.end_byte()..source.text().len());
            let gap = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            node.start_byte()..after.end_byte() + gap
        }
        (None, None) => node.byte_range(),
    };
    Edit { range, text: String::new() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::edit::edited;

    fn with(text: &str, change: impl Fn(Call<'_>) -> Edit) -> String {
        let source = Source::parse(text).unwrap();
        let at = At { file: Path::new("a.py"), source: &source, node: source.all("call")[0] };
        edited(text, &[change(Call::of(at).unwrap())]).unwrap()
    }

    #[test]
    fn arguments_are_added_as_the_others_are_written() {
        let add = |call: Call<'_>| call.setting("b", "2");
        assert_eq!(with("f(a=1)\n", add), "f(a=1, b=2)\n");
        assert_eq!(with("f()\n", add), "f(b=2)\n");
        assert_eq!(with("f(a=1, b=3)\n", add), "f(a=1, b=2)\n");
        assert_eq!(with("f(\n    a=1,\n    c=3,\n)\n", add), "f(\n    a=1,\n    c=3,\n    b=2,\n)\n");
        assert_eq!(with("f(a,\n  c=3)  # x\n", add), "f(a,\n  c=3,\n  b=2)  # x\n");
    }

    #[test]
    fn an_argument_goes_with_its_comma() {
        let remove = |call: Call<'_>| call.without("b").unwrap();
        assert_eq!(with("f(a, b=1)\n", remove), "f(a)\n");
        assert_eq!(with("f(b=1, a=2)\n", remove), "f(a=2)\n");
        assert_eq!(with("f(b=1)\n", remove), "f()\n");
    }
}

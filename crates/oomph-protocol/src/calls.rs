//! Changes of a program's own memory calls that the virtual GPU tries in their place: what a line would take of the card
//! if its author changed it. `oomph fix` sets them, and starts the unmodified program.

use std::fmt::Write as _;

/// The variable that holds them, as [`write`] spells them.
pub const VARIABLE: &str = "OOMPH_CALLS";

/// What becomes of the memory that is allocated through a place of the program's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is managed memory, whose pages may lie in the host's memory.
    Managed,
    /// What such a place allocated before is freed first: one block is held at a time for each place.
    Newest,
    /// It is a part of what was asked for: the work is done in so many parts, one after the other.
    Parts(u64),
}

/// A place, and what becomes of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of it.
    pub change: Change,
    /// The program or library, or the Python file.
    pub module: String,
    /// The address in the file's own terms; of a Python file the line.
    pub offset: u64,
}

/// Rules as a text for [`VARIABLE`], one a line.
pub fn write(rules: &[Rule]) -> String {
    let mut text = String::new();
    for Rule { change, module, offset } in rules {
        let word = match change {
            Change::Managed => "managed".to_owned(),
            Change::Newest => "newest".to_owned(),
            Change::Parts(parts) => format!("parts/{parts}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word}\t{offset}\t{module}");
    }
    text
}

/// The rules of a text; what is not understood is left out.
pub fn read(text: &str) -> Vec<Rule> {
    text.lines().filter_map(rule).collect()
}

fn rule(line: &str) -> Option<Rule> {
    let mut fields = line.splitn(3, '\t');
    let (word, offset, module) = (fields.next()?, fields.next()?, fields.next()?);
    let change = match word {
        "managed" => Change::Managed,
        "newest" => Change::Newest,
        _ => Change::Parts(word.strip_prefix("parts/")?.parse().ok().filter(|parts| *parts > 0)?),
    };
    Some(Rule { change, module: module.to_owned(), offset: offset.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let of = |change, module: &str| Rule { change, module: module.into(), offset: 17 };
        let rules = [of(Change::Managed, "/a b/\tc"), of(Change::Newest, "/x.py"), of(Change::Parts(4), "/y")];
        assert_eq!(read(&write(&rules)), rules);
        assert_eq!(read("parts/0\t1\t/a\nother\t1\t/a\nmanaged\tx\t/a\nmanaged\n"), []);
    }
}

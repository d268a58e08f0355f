//! Evidence from a run of which remedies the program uses already.

use std::collections::BTreeSet;

use crate::remedy::Shown;

/// Facts about a program in the words of the catalogue's `shown_by`: a name, such as `autocast`, or a name and a value, such as
/// `attention=sdpa`.
///
/// The facts are the program's and the conclusions are the catalogue's, so that whoever looks at a program knows no remedy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen(BTreeSet<String>);

impl Seen {
    /// Adds a fact where it holds.
    pub fn add(&mut self, holds: bool, name: &str) {
        if holds {
            self.0.insert(name.to_owned());
        }
    }

    /// Adds the value of something, where it has one.
    pub fn value(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.0.insert(format!("{name}={value}"));
        }
    }

    pub(crate) fn shows(&self, shown: &Shown) -> bool {
        shown.all.iter().all(|fact| self.0.contains(fact)) && !shown.none.iter().any(|fact| self.0.contains(fact))
    }
}

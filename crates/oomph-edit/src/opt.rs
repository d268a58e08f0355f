//! An option of a program: how it is typed, what it takes, and where it is written.

use std::ops::Range;
use std::path::PathBuf;

/// An option of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opt {
    /// How it is typed, the first spelling first.
    pub flags: Vec<String>,
    /// What the program calls it.
    pub name: String,
    /// What it takes.
    pub kind: OptKind,
    /// Its default, where that is a plain value.
    pub default: Option<String>,
    /// The values that it takes, where they are listed.
    pub choices: Vec<String>,
    /// Whether it is declared for a Python function, whose parameters have its name.
    pub parameter: bool,
    /// Where it is written, if it is in a configuration file that the program itself reads.
    pub written: Option<Written>,
}

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptKind {
    /// Nothing: naming it switches something on.
    Switch,
    /// Nothing: naming it switches something off.
    OffSwitch,
    /// A value.
    Value,
    /// `True` or `False`.
    Truth,
}

impl Opt {
    /// The spelling that reads best.
    pub fn flag(&self) -> &str {
        self.flags.iter().find(|flag| flag.starts_with("--")).or(self.flags.first()).map_or("", String::as_str)
    }

    /// Its value on a command line, or its default; a switch has `True` or `False`.
    pub fn value_in(&self, arguments: &[String]) -> Option<String> {
        let mut value = match self.kind {
            OptKind::Switch => Some("False".to_owned()),
            OptKind::OffSwitch => Some("True".to_owned()),
            _ => self.default.clone(),
        };
        for (place, word) in arguments.iter().enumerate() {
            let (flag, given) = word.split_once('=').map_or((word.as_str(), None), |(flag, given)| (flag, Some(given)));
            if !self.flags.iter().any(|known| known == flag) {
                continue;
            }
            value = match self.kind {
                OptKind::Switch => Some("True".to_owned()),
                OptKind::OffSwitch => Some("False".to_owned()),
                _ => given.map(str::to_owned).or_else(|| arguments.get(place + 1).cloned()),
            };
        }
        value
    }

    /// Gives it a value on a command line; a switch is named, whatever the value.
    pub fn set(&self, arguments: &mut Vec<String>, value: &str) {
        let is = |word: &str| self.flags.iter().any(|known| known == word);
        let switch = matches!(self.kind, OptKind::Switch | OptKind::OffSwitch);
        // The last one counts.
        for place in (0..arguments.len()).rev() {
            if let Some((flag, _)) = arguments[place].split_once('=')
                && is(flag)
            {
                arguments[place] = format!("{flag}={value}");
                return;
            }
            if is(&arguments[place]) {
                if !switch && place + 1 < arguments.len() {
                    value.clone_into(&mut arguments[place + 1]);
                }
                return;
            }
        }
        if self.flag().is_empty() {
            return;
        }
        if !self.flag().starts_with('-') {
            arguments.push(format!("{}={value}", self.flag()));
            return;
        }
        arguments.push(self.flag().to_owned());
        if !switch {
            arguments.push(value.to_owned());
        }
    }
}

/// Where a setting is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub file: PathBuf,
    /// The keys that lead to it: `data`, `batch_size`.
    pub keys: Vec<String>,
    /// The bytes of its value.
    pub range: Range<usize>,
}

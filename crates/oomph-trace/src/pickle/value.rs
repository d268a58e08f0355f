//! What a pickle's stack holds.

use std::ops::Range;

use crate::{StringId, figure};

/// A value of a pickle. Lists and dicts live in a [`Heap`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// `None`, and everything that no memory file needs: bytes, integers of more than 64 bits.
    Nothing,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    Float(f64),
    Text(StringId),
    /// A list or a tuple, by its place in the heap.
    List(u32),
    /// A tuple of two whole numbers, by its place in the heap's pairs: pool ids, mostly, one with each event.
    Pair(u32),
    /// A dict, by its place in the heap.
    Dict(u32),
    /// What a list or dict was recognised as.
    Atom(Atom),
}

impl Value {
    /// As an address or a size: signed writers wrapped addresses above 2^63, so that they are wrapped back.
    pub(crate) fn unsigned(self) -> Option<u64> {
        match self {
            Value::Int(value) => Some(value as u64),
            Value::Unsigned(value) => Some(value),
            Value::Bool(value) => Some(u64::from(value)),
            Value::Float(value) => (value >= 0.0).then_some(value as u64),
            _ => None,
        }
    }

    /// As a number of bytes; `None` where there is none.
    ///
    /// # Errors
    /// When it is negative, not finite, or larger than any memory.
    pub(crate) fn bytes(self, field: &str) -> Result<Option<u64>, String> {
        match self {
            Value::Int(value) => figure::whole(field, i128::from(value)).map(Some),
            Value::Unsigned(value) => figure::whole(field, i128::from(value)).map(Some),
            Value::Float(value) => figure::fraction(field, value).map(Some),
            Value::Nothing => Err(format!("{field} has no value of at most 64 bits, {}", figure::REFUSAL)),
            _ => Ok(self.unsigned()),
        }
    }

    /// As a signed number.
    pub(crate) fn signed(self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(value),
            Value::Unsigned(value) => Some(i64::try_from(value).unwrap_or(i64::MAX)),
            Value::Bool(value) => Some(i64::from(value)),
            Value::Float(value) => Some(value as i64),
            _ => None,
        }
    }

    /// As a yes or no.
    pub(crate) fn truth(self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(value),
            Value::Int(value) => Some(value != 0),
            _ => None,
        }
    }
}

/// A record that the [`Shapes`](super::Shapes) made of a list or a dict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Atom {
    /// What kind of record; the shapes' own numbering.
    pub(crate) kind: u8,
    /// Which one of its kind.
    pub(crate) index: u32,
}

/// A list or a tuple.
// There is one for each event of a history, and most are a stack: a boxed vector keeps those small.
#[allow(clippy::box_collection)]
#[derive(Clone, Debug, Default)]
pub(crate) enum List {
    #[default]
    Empty,
    /// The whole list is one record. A closed one cannot go on: it was used.
    Atom { atom: Atom, closed: bool },
    /// Records of one kind, by runs of their numbers: a history of a million events is one run.
    Records(Box<Records>),
    /// Anything else.
    Values(Box<Vec<Value>>),
    /// Taken out by [`Heap::take`].
    Taken,
}

/// Records of one kind in order.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    pub(crate) kind: u8,
    pub(crate) runs: Vec<Range<u32>>,
}

impl List {
    /// A list of these values, which are at least one.
    pub(super) fn of(items: &[Value], heap: &Heap) -> List {
        if let Some(Value::Atom(first)) = items.first().map(|&item| heap.resolve(item)) {
            let mut records = Records { kind: first.kind, runs: Vec::new() };
            // One item after the other: a list of many records is never there twice.
            if items.iter().all(|&item| records.push(heap.resolve(item))) {
                return List::Records(Box::new(records));
            }
        }
        List::Values(Box::new(items.to_vec()))
    }
}

impl Records {
    /// Adds a value at the end, if it is a record of the kind.
    fn push(&mut self, value: Value) -> bool {
        let Value::Atom(atom) = value else { return false };
        if atom.kind != self.kind {
            return false;
        }
        match self.runs.last_mut() {
            Some(run) if run.end == atom.index => run.end += 1,
            _ => self.runs.push(atom.index..atom.index.saturating_add(1)),
        }
        true
    }

    /// Adds values at the end as long as they are records of the kind, and says how many were.
    pub(super) fn extend(&mut self, values: &[Value]) -> usize {
        values.iter().take_while(|&&value| self.push(value)).count()
    }

    /// The records one by one.
    pub(super) fn values(&self) -> Vec<Value> {
        let atom = |index| Value::Atom(Atom { kind: self.kind, index });
        self.runs.iter().cloned().flatten().map(atom).collect()
    }
}

/// A dict.
// As for lists.
#[allow(clippy::box_collection)]
#[derive(Clone, Debug)]
pub(crate) enum Dict {
    /// Not filled yet. Where it is remembered, so that the memory of it can follow what it becomes.
    Empty { memo: u32 },
    /// It was recognised as a record.
    Atom(Atom),
    /// Anything else, in the order of the file.
    Items(Box<Vec<(Value, Value)>>),
}

impl Default for Dict {
    fn default() -> Self {
        Dict::Empty { memo: u32::MAX }
    }
}

/// Every list and dict that was not dropped for a record.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    pub(super) lists: Vec<List>,
    pub(super) dicts: Vec<Dict>,
    pub(super) pairs: Vec<(u64, u64)>,
    /// Bytes in the boxes of lists and dicts, about.
    pub(super) boxed: usize,
}

impl Heap {
    /// What a value is now: a dict that became a record after the value was copied is that record.
    #[inline]
    pub(crate) fn resolve(&self, value: Value) -> Value {
        match value {
            Value::Dict(dict) => match self.dicts.get(dict as usize) {
                Some(&Dict::Atom(atom)) => Value::Atom(atom),
                _ => value,
            },
            Value::List(list) => match self.lists.get(list as usize) {
                Some(&List::Atom { atom, .. }) => Value::Atom(atom),
                _ => value,
            },
            _ => value,
        }
    }

    /// The items of a dict that is not a record.
    pub(crate) fn items(&self, value: Value) -> &[(Value, Value)] {
        match value {
            Value::Dict(dict) => match self.dicts.get(dict as usize) {
                Some(Dict::Items(items)) => items,
                _ => &[],
            },
            _ => &[],
        }
    }

    /// The list of a value, if it is one.
    pub(crate) fn list(&self, value: Value) -> Option<&List> {
        match value {
            Value::List(list) => self.lists.get(list as usize),
            _ => None,
        }
    }

    /// Takes a list's contents, so that a list which a hostile file uses twice is not copied twice.
    /// [`List::Taken`] is left, unless the list is empty.
    pub(crate) fn take(&mut self, value: Value) -> Option<List> {
        let Value::List(list) = value else { return None };
        let slot = self.lists.get_mut(list as usize)?;
        match slot {
            List::Empty => Some(List::Empty),
            _ => Some(std::mem::replace(slot, List::Taken)),
        }
    }

    /// A tuple of two whole numbers.
    pub(super) fn new_pair(&mut self, a: u64, b: u64) -> Value {
        if self.pairs.last() != Some(&(a, b)) {
            self.pairs.push((a, b));
        }
        Value::Pair((self.pairs.len() - 1) as u32)
    }

    /// Makes a list a record from now on.
    pub(crate) fn set_atom(&mut self, value: Value, atom: Atom) {
        if let Value::List(list) = value
            && let Some(slot) = self.lists.get_mut(list as usize)
        {
            *slot = List::Atom { atom, closed: true };
        }
    }

    /// The two numbers of a pair, or of a list of two numbers.
    pub(crate) fn pair(&self, value: Value) -> Option<(u64, u64)> {
        match value {
            Value::Pair(pair) => self.pairs.get(pair as usize).copied(),
            Value::List(_) => match self.list(value)? {
                List::Values(values) => match values[..] {
                    [a, b] => Some((a.unsigned()?, b.unsigned()?)),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// About how many bytes of memory the heap holds.
    pub(super) fn held(&self) -> usize {
        self.lists.capacity() * size_of::<List>()
            + self.dicts.capacity() * size_of::<Dict>()
            + self.pairs.capacity() * 16
            + self.boxed
    }
}

//! The memo of a pickle.

use hashbrown::HashMap;

use super::value::Value;

/// Memo entries whose numbers do not follow those before them.
const SPARSE: usize = 1 << 16;

/// What was remembered.
#[derive(Default)]
pub(super) struct Memo {
    /// Writers number their entries from 0 on...
    dense: Vec<Value>,
    /// ...and the entries of one that does not are kept here, so that a large number costs no large table.
    sparse: HashMap<u32, Value>,
}

impl Memo {
    pub(super) fn len(&self) -> u32 {
        (self.dense.len() + self.sparse.len()) as u32
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<Value> {
        match self.dense.get(index as usize) {
            Some(&value) => Some(value),
            None => self.sparse.get(&index).copied(),
        }
    }

    /// Says whether there was room.
    pub(super) fn put(&mut self, index: u32, value: Value) -> bool {
        if index as usize == self.dense.len() && self.sparse.is_empty() {
            self.dense.push(value);
        } else if let Some(known) = self.dense.get_mut(index as usize) {
            *known = value;
        } else {
            self.sparse.insert(index, value);
        }
        self.sparse.len() <= SPARSE
    }

    /// Replaces an entry if it is still `old`.
    pub(super) fn replace(&mut self, index: u32, old: Value, new: Value) {
        if let Some(known) = self.dense.get_mut(index as usize)
            && *known == old
        {
            *known = new;
        }
    }

    pub(super) fn held(&self) -> usize {
        self.dense.capacity() * size_of::<Value>() + self.sparse.capacity() * 24
    }
}

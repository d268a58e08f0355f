//! Lines of Python that lead to a call. The hook says which is under way where it is the user's own call that allocates or
//! copies, as in Numba: walking Python's stack at every call of a framework would cost too much, and each line would be
//! the framework's own.

use std::cell::Cell;

use super::place::{Place, Stack};
use crate::lock::{Mutex, Rank};

/// Most lines that are distinguished.
const MOST: usize = 1 << 12;
/// What the stack of a line has in the place of its first return address: no code lies that high. The number of the line
/// is added.
const FIRST: usize = usize::MAX - MOST;

thread_local! {
    // Threads of the program are on different lines. `const` and without a destructor.
    /// The line that is under way in this thread, counted from 1; 0 where none is.
    static UNDER_WAY: Cell<usize> = const { Cell::new(0) };
}

/// The lines of Python that calls came from.
pub struct Lines(Mutex<Vec<Place>>);

impl Lines {
    /// None yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Rank::PythonLines, Vec::new()))
    }

    /// Has the calls of this thread come from a line from now on; from none where there is no `place`.
    pub fn set_current(&self, place: Option<Place>) {
        UNDER_WAY.set(place.map_or(0, |place| self.number(place)));
    }

    /// The number of a line, counted from 1; 0 where there are too many.
    fn number(&self, place: Place) -> usize {
        let mut lines = self.0.lock();
        let known = lines.iter().position(|known| (&known.module, known.offset) == (&place.module, place.offset));
        match known {
            Some(index) => index + 1,
            None if lines.len() + 1 < MOST => {
                lines.push(place);
                lines.len()
            }
            None => 0,
        }
    }

    /// The line that a stack is of, if it is of one.
    pub fn place(&self, stack: &Stack) -> Option<Place> {
        let number = stack[0].checked_sub(FIRST)?;
        self.0.lock().get(number.checked_sub(1)?).cloned()
    }
}

/// The line under way in this thread, as a stack.
pub fn stack() -> Option<Stack> {
    let number = UNDER_WAY.get();
    (number > 0).then(|| {
        let mut stack = Stack::default();
        stack[0] = FIRST + number;
        stack
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_under_way_until_another_or_none_is() {
        let lines = Lines::new();
        assert!(stack().is_none());
        let at = |offset| {
            let (module, function) = ("/a/prices.py".to_owned(), Some("main".to_owned()));
            lines.set_current(Some(Place { module, offset, function }));
            stack().unwrap()
        };
        let (first, second) = (at(3), at(8));
        assert!(first != second && at(3) == first, "a line is one site");
        let place = lines.place(&second).unwrap();
        assert_eq!((place.module.as_str(), place.offset, place.function.as_deref()), ("/a/prices.py", 8, Some("main")));
        lines.set_current(None);
        assert!(stack().is_none());
        assert!(lines.place(&[4096; 24]).is_none());
    }
}

//! Lines of Python that lead to a call. The hook says which is under way where it is the user's own call that allocates or
//! copies, as in Numba: walking Python's stack at every call of a framework would cost too much, and each line would be
//! the framework's own.

use crate::fork::Mutex;
use std::cell::Cell;
use std::ffi::{CStr, c_char};

use super::place::{Place, Stack};

/// Most lines that are distinguished.
const MOST: usize = 1 << 12;
/// What the stack of a line has in the place of its first return address: no code lies that high. The number of the line
/// is added.
const FIRST: usize = usize::MAX - MOST;

static LINES: Mutex<Vec<Place>> = Mutex::new(Vec::new());

thread_local! {
    /// The line that is under way in this thread, counted from 1; 0 where none is.
    static UNDER_WAY: Cell<usize> = const { Cell::new(0) };
}

/// Has the calls of this thread come from a line of a Python file from now on; from none where `file` is null.
///
/// # Safety
/// Both texts must be null or zero-terminated.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn oomph_python_line(file: *const c_char, line: u32, function: *const c_char) {
    // SAFETY: the caller's promise.
    let text =
        |text: *const c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    let number =
        text(file).map_or(0, |module| number(Place { module, offset: line as usize, function: text(function) }));
    UNDER_WAY.set(number);
}

/// The number of a line, counted from 1; 0 where there are too many.
fn number(place: Place) -> usize {
    let mut lines = LINES.lock();
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

/// The line under way in this thread, as a stack.
pub fn stack() -> Option<Stack> {
    let number = UNDER_WAY.get();
    (number > 0).then(|| {
        let mut stack = Stack::default();
        stack[0] = FIRST + number;
        stack
    })
}

/// The line that a stack is of, if it is of one.
pub fn place(stack: &Stack) -> Option<Place> {
    let number = stack[0].checked_sub(FIRST)?;
    LINES.lock().get(number.checked_sub(1)?).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_under_way_until_another_or_none_is() {
        assert!(stack().is_none());
        let at = |line| {
            // SAFETY: the texts are zero-terminated.
            unsafe { oomph_python_line(c"/a/prices.py".as_ptr(), line, c"main".as_ptr()) };
            stack().unwrap()
        };
        let (first, second) = (at(3), at(8));
        assert!(first != second && at(3) == first, "a line is one site");
        let place = place(&second).unwrap();
        assert_eq!((place.module.as_str(), place.offset, place.function.as_deref()), ("/a/prices.py", 8, Some("main")));
        // SAFETY: null says that none is under way.
        unsafe { oomph_python_line(std::ptr::null(), 0, std::ptr::null()) };
        assert!(stack().is_none());
        assert!(super::place(&[4096; 24]).is_none());
    }
}

//! The name that the commands are called by: `oomph collect` hands over to `oomph-fleet collect`, and then every command
//! that is printed is one of `oomph`.

use std::borrow::Cow;
use std::env;
use std::path::Path;

/// A text in which each command is spelt as this program was called.
#[must_use]
pub fn spelt(text: &str) -> Cow<'_, str> {
    if !is_called_oomph() {
        return Cow::Borrowed(text);
    }
    let text = text.replace("oomph-fleet collect", "oomph collect").replace("oomph-fleet query", "oomph query");
    Cow::Owned(text)
}

/// Whether `oomph` started this program.
#[must_use]
pub fn is_called_oomph() -> bool {
    env::args_os().next().is_some_and(|name| Path::new(&name).file_stem().is_some_and(|stem| stem == "oomph"))
}

//! Shows the progress of a search on stderr: one changing line on a terminal, separate lines otherwise.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// With the value `lines`, what is being tried is written as lines where stderr is not a terminal.
const VARIABLE: &str = "OOMPH_PROGRESS";

/// Shows what is being tried.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    /// Nothing is shown by a quiet run.
    pub fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        // The template is constant and has only known keys; a plain spinner would do as well.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>3} trying {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        let lines = bar.is_hidden() && !quiet && std::env::var_os(VARIABLE).is_some_and(|value| value == "lines");
        Self { bar, lines }
    }

    /// Says what is being tried.
    pub fn tell(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if self.lines {
            output::say(&format!("oomph: trying {}", oomph_report::clean(what)));
        }
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

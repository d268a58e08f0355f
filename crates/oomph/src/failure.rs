//! Reports an error as one line, with a hint where there is one.

use std::fmt;
use std::process::ExitCode;

use oomph_report::clean;

/// The exit statuses, as `--help` documents them.
pub mod status {
    /// It fits, or what was asked for is done.
    pub const DONE: u8 = 0;
    /// It does not fit.
    pub const DOES_NOT_FIT: u8 = 1;
    /// Wrong usage, or something that is needed is missing or cannot be read.
    pub const USAGE: u8 = 2;
    /// The program failed for another reason.
    pub const PROGRAM_FAILED: u8 = 3;
    /// A search ended with its time, before it had an answer.
    pub const OUT_OF_TIME: u8 = 4;
}

/// An error with advice.
#[derive(Debug)]
pub struct Hinted {
    message: String,
    hint: String,
}

impl Hinted {
    /// An error of one line, and one line of advice.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// The advice.
    #[cfg(target_os = "linux")]
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for Hinted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// An [`anyhow::Error`] with advice.
pub fn hinted(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted::new(message, hint).into()
}

/// Says on stderr what went wrong.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // The whole chain on one line; what a library's error says of its cause already is not said twice.
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    crate::output::say(&format!("error: {}", clean(&line)));
    if let Some(details) = error.downcast_ref::<oomph_launch::LaunchError>().map(oomph_launch::LaunchError::details) {
        for line in details.lines() {
            crate::output::say(&format!("  {}", clean(line)));
        }
    }
    if let Some(hinted) = error.downcast_ref::<Hinted>() {
        crate::output::say(&format!("hint: {}", clean(&hinted.hint)));
    }
    ExitCode::from(status::USAGE)
}

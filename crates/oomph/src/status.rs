//! The exit statuses of oomph, as `--help` documents them, and those of programs as a shell shows them.

use std::process::ExitCode;

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
/// Under `oomph run`: the program died of GPU memory with a remedy too, and no other is left.
pub const NO_REMEDY_LEFT: u8 = 78;

/// What a shell adds to the number of a signal that ended a program.
pub const SIGNAL: i32 = 128;

/// The exit status of a run that a signal ended.
pub fn interrupted(signal: i32) -> ExitCode {
    of_program(signal.saturating_add(SIGNAL))
}

/// The exit status of a program, passed on.
pub fn of_program(status: i32) -> ExitCode {
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}

//! Reports an error as one line, with a hint where there is one.

use std::fmt;
use std::process::ExitCode;

use oomph_report::clean;

/// An error with advice.
#[derive(Clone, Debug)]
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
    #[cfg(any(test, target_os = "linux"))]
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

/// Advice for a name that is not known: the one that was probably meant, else `otherwise`.
pub fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>, otherwise: &str) -> String {
    let likeness = |name: &str| strsim::jaro_winkler(&unknown.to_lowercase(), &name.to_lowercase());
    let best = known.map(|name| (likeness(name), name)).max_by(|one, other| one.0.total_cmp(&other.0));
    match best {
        Some((likeness, name)) if likeness >= 0.8 => format!("did you mean `{name}`?"),
        _ => otherwise.to_owned(),
    }
}

/// Has a write beyond the host's limit for files (`ulimit -f`) fail as any other, where it would end this process. Programs that
/// are started do not inherit that.
pub fn outlive_the_limit_of_files() {
    #[cfg(unix)]
    // It fails for signals that no process may handle.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default());
}

/// What a write beyond the host's limit for files fails with; the number is the same on Linux and macOS.
const FILE_TOO_LARGE: i32 = 27;

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
    let os_error = |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<std::io::Error>()?.raw_os_error();
    if let Some(hinted) = error.downcast_ref::<Hinted>() {
        crate::output::say(&format!("hint: {}", clean(&hinted.hint)));
    } else if cfg!(unix) && error.chain().any(|cause| os_error(cause) == Some(FILE_TOO_LARGE)) {
        crate::output::say("hint: the host limits the size of files (ulimit -f), or the disk cannot hold one so large");
    }
    ExitCode::from(crate::status::USAGE)
}

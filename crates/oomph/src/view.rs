//! `oomph view`: opens a recording in the browser.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use oomph_explain::snapshot::{self, Explanation};

use crate::cli::ViewArgs;
use crate::html::{self, Shown, Writing, last_part};
use crate::status;
use crate::{explain, output};

/// Reads the recordings, writes the page and opens it.
///
/// # Errors
/// When a file cannot be read or written.
pub fn run(args: &ViewArgs, quiet: bool) -> Result<ExitCode> {
    let options = explain::options(&args.reading);
    if let Some(path) = &args.output {
        output::writable(path)?;
    }
    let mut shown = Vec::new();
    for path in &args.files {
        let trace = explain::read(path, &args.reading.options())?;
        let names = explain::names_of(&args.reading, path)?;
        let explanation = snapshot::explain(&trace, &options, names.as_ref());
        shown.push(Shown { name: path.display().to_string(), trace, names, explanation });
    }
    let empty = |explanation: &Explanation| explanation.devices.is_empty();
    for shown in shown.iter().filter(|shown| empty(&shown.explanation)) {
        output::say(&format!("oomph: no GPU memory events in {}", shown.name));
    }
    let mut title: Vec<String> = args.files.iter().take(3).map(|path| last_part(path)).collect();
    if args.files.len() > 3 {
        title.push(format!("and {} more", args.files.len() - 3));
    }
    let title = title.join(", ");
    let temporary;
    let path: &Path = match &args.output {
        Some(path) => path,
        None => {
            // The browser reads the page after oomph has ended, so the file stays.
            let file = tempfile::Builder::new().prefix("oomph-").suffix(".html").tempfile();
            temporary =
                file.and_then(|file| file.keep().map_err(|error| error.error)).context("cannot write a page")?.1;
            &temporary
        }
    };
    html::write(&Writing { title, path, private: args.private, compare: false }, None, &shown, &options)?;
    if args.output.is_some() {
        output::tell(&format!("oomph: wrote {}", path.display()), quiet);
    } else if open(path) {
        output::tell(&format!("oomph: opened {} in the browser", path.display()), quiet);
    } else {
        output::say(&format!("oomph: no browser was found; open {} in one", path.display()));
    }
    Ok(ExitCode::from(status::DONE))
}

/// Opens a file in the user's browser; whether something was found that does.
fn open(path: &Path) -> bool {
    let openers: &[&[&str]] = if cfg!(target_os = "macos") {
        &[&["open"]]
    } else if cfg!(windows) {
        &[&["cmd", "/C", "start", ""]]
    } else {
        // Without a display these would open a browser of the terminal, or never return.
        let display = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER"].iter().any(|name| std::env::var_os(name).is_some());
        let wsl = std::env::var_os("WSL_DISTRO_NAME").is_some();
        match (display, wsl) {
            (_, true) => &[&["wslview"], &["xdg-open"]],
            (true, _) => &[&["xdg-open"], &["gio", "open"], &["sensible-browser"]],
            (false, false) => &[],
        }
    };
    openers.iter().any(|opener| {
        let Some((program, first)) = opener.split_first() else { return false };
        let mut command = Command::new(program);
        command.args(first).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok()
    })
}

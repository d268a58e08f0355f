//! Detects from a file's first bytes whether it is a log or a recording.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use oomph_trace::{ReadOptions, Trace};

use crate::failure::hinted;

/// How much is looked at.
const PEEK: usize = 64 << 10;
/// How often a followed file is looked at for more.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A file that can be explained.
pub enum Input {
    /// Text.
    Log(Box<dyn Read + Send>),
    /// A snapshot or a trace.
    Recording(Box<dyn Read + Send>),
}

/// Opens a file, or standard input for `-`. A compressed log may grow to any size where `any_growth` says so.
///
/// # Errors
/// When it cannot be opened or read, or is a folder.
pub fn open(path: &Path, any_growth: bool) -> Result<Input> {
    let context = || format!("cannot read {}", path.display());
    let reader: Box<dyn Read + Send> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        if path.is_dir() {
            return Err(hinted(
                format!("{} is a folder", path.display()),
                "give the files in it: logs, snapshots or traces",
            ));
        }
        oomph_trace::open(path).with_context(context)?
    };
    let mut reader = BufReader::with_capacity(PEEK, reader);
    let start = reader.fill_buf().with_context(context)?;
    let recording = oomph_trace::is_recording(start);
    Ok(if recording {
        Input::Recording(Box::new(reader))
    } else {
        Input::Log(oomph_trace::unpacked(reader, any_growth).with_context(context)?)
    })
}

/// Reads a recording.
///
/// # Errors
/// When it breaks off, or is not what it says it is.
pub fn recording(reader: Box<dyn Read + Send>, name: &str, options: &ReadOptions) -> Result<Trace> {
    Ok(oomph_trace::read_from(reader, name, options)?)
}

/// A log that is still being written: a file is read on at its end, a pipe until it closes.
///
/// # Errors
/// When it cannot be opened.
pub fn following(path: &Path) -> Result<Box<dyn Read + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(Growing(oomph_trace::open(path).with_context(|| format!("cannot read {}", path.display()))?)))
}

/// A file at whose end more is waited for.
struct Growing(Box<dyn Read + Send>);

impl Read for Growing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer)? {
                0 if !buffer.is_empty() => thread::sleep(POLL_INTERVAL),
                read => return Ok(read),
            }
        }
    }
}

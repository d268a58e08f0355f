//! Connects to the door: a Unix socket that the hook opens in programs under `oomph run` (`python/oomph/door.py`).
//!
//! It needs no permission to trace, because the program itself runs the script. The kernel gives each side the identity
//! of the other, and both accept only the same user or root.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use oomph_protocol::paths;

use crate::error::AttachError;
use crate::process;
use crate::target::Target;

/// The hook answers at once, or the program is stopped.
const ANSWERS: Duration = Duration::from_secs(5);

/// Whether this way is open.
///
/// # Errors
/// The reason why not, one clause.
pub(crate) fn check(target: &Target) -> Result<(), String> {
    path(target).map(|_| ())
}

/// The socket of a target, as this process sees it.
fn path(target: &Target) -> Result<PathBuf, String> {
    let Some(run) = &target.run_folder else { return Err("it does not run under oomph".to_owned()) };
    let below = PathBuf::from(paths::DOOR).join(format!("{}{}", target.inner_pid, paths::DOOR_END));
    let inside = process::folder(target.pid).join("root").join(run.strip_prefix("/").unwrap_or(run)).join(&below);
    let found =
        [run.join(&below), inside].into_iter().find_map(|path| Some((std::fs::symlink_metadata(&path).ok()?, path)));
    let Some((metadata, path)) = found else {
        return Err("its run opened no door, or it has not imported torch yet".to_owned());
    };
    let me = nix::unistd::geteuid();
    if metadata.uid() != target.uid || !(me.is_root() || metadata.uid() == me.as_raw()) {
        return Err("its door belongs to another user".to_owned());
    }
    Ok(path)
}

/// Has a script run.
///
/// # Errors
/// When the hook does not answer.
pub(crate) fn send(target: &Target, script: &str, end: Instant) -> Result<(), AttachError> {
    let no_way = |reason: String| AttachError::NoWay { pid: target.pid, reason };
    let path = path(target).map_err(no_way)?;
    let io = |error: std::io::Error| AttachError::io(format!("use the door of process {}", target.pid), error);
    let mut stream = UnixStream::connect(&path).map_err(io)?;
    let peer = getsockopt(&stream, PeerCredentials).map_err(|error| io(error.into()))?;
    if peer.uid() != target.uid && peer.uid() != 0 {
        return Err(no_way("another process answers at its door".to_owned()));
    }
    let limit = end.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(100), ANSWERS);
    stream.set_read_timeout(Some(limit)).map_err(io)?;
    stream.set_write_timeout(Some(limit)).map_err(io)?;
    stream.write_all(format!("{script}\n").as_bytes()).map_err(io)?;
    let mut answer = String::new();
    stream.take(256).read_to_string(&mut answer).map_err(io)?;
    match answer.trim_end() {
        "ok" => Ok(()),
        other => Err(no_way(format!("its door says: {other}"))),
    }
}

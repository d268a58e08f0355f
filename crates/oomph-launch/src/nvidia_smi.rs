//! Gives the programs of a run an `nvidia-smi` that answers for the virtual cards.
//!
//! It is this executable, which asks the virtual GPU's NVML (`oomph-smi`). A script of the tool's name starts it: from a
//! folder of the runtime, which comes first on the program's `PATH`, and from its usual place in the private view. The
//! script names the run where the environment does not, because programs start tools with an environment of their own.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use oomph_protocol::paths;

#[cfg(target_os = "linux")]
use crate::permissions::write_private;

/// The name of the tool.
pub(crate) const NAME: &str = paths::NVIDIA_SMI;

/// Where the driver's packages install it.
const USUAL_PLACE: &str = "/usr/bin";

/// The argument that makes this executable the tool. The library that answers and the tool's own arguments follow.
const ARGUMENT: &str = "--as-nvidia-smi";

/// What this process was started to answer, if a script of the tool's name started it: the NVML to ask, and the tool's
/// own arguments.
pub fn asked() -> Option<(OsString, Vec<OsString>)> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
        return None;
    }
    Some((arguments.next()?, arguments.collect()))
}

/// The script of a run: of any run where none is given.
pub(crate) fn script(executable: &Path, library: &Path, run: Option<&Path>) -> Vec<u8> {
    let mut text = b"#!/bin/sh\n".to_vec();
    if let Some(run) = run {
        text.extend(format!("[ -n \"${0}\" ] || {0}=", paths::RUN_VARIABLE).bytes());
        text.extend(quoted(run.as_os_str()));
        text.extend(format!("\nexport {}\n", paths::RUN_VARIABLE).bytes());
    }
    text.extend(b"exec ");
    text.extend(quoted(executable.as_os_str()));
    text.extend(format!(" {ARGUMENT} ").bytes());
    text.extend(quoted(library.as_os_str()));
    text.extend(b" \"$@\"\n");
    text
}

/// A word as a shell reads it.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in word.as_encoded_bytes() {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            other => text.push(*other),
        }
    }
    text.push(b'\'');
    text
}

/// Writes the script of a run into its folder, for the private view.
///
/// # Errors
/// When the folder cannot be written.
#[cfg(target_os = "linux")]
pub(crate) fn write_for(run: &Path, executable: &Path, library: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let path = run.join(paths::NVIDIA_SMI);
    write_private(&path, &script(executable, library, Some(run)))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn write_for(_run: &Path, _executable: &Path, _library: &Path) -> io::Result<()> {
    Ok(())
}

/// Where the tool is shown in a private view: in place of the machine's own, or where that would be. None where the
/// folder does not exist.
pub(crate) fn place() -> Option<PathBuf> {
    let folder = Path::new(USUAL_PLACE);
    // A view is made of paths without links.
    std::fs::canonicalize(folder.join(NAME))
        .or_else(|_| Ok::<_, io::Error>(std::fs::canonicalize(folder)?.join(NAME)))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_quote_what_they_name() {
        let text = script(Path::new("/it's here/oomph"), Path::new("/a b/lib"), Some(Path::new("/run/oomph-1")));
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "#!/bin/sh\n[ -n \"$OOMPH_RUN\" ] || OOMPH_RUN='/run/oomph-1'\nexport OOMPH_RUN\n\
             exec '/it'\\''s here/oomph' --as-nvidia-smi '/a b/lib' \"$@\"\n"
        );
        let text = script(Path::new("/bin/oomph"), Path::new("/lib"), None);
        assert_eq!(String::from_utf8(text).unwrap(), "#!/bin/sh\nexec '/bin/oomph' --as-nvidia-smi '/lib' \"$@\"\n");
    }
}

//! Opens a file that a user names, which may be a pipe without a writer.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a file for reading. A pipe is not waited for: one that nobody writes into is an error after two seconds, not a
/// command that hangs.
///
/// # Errors
/// When the system refuses, or when nobody writes into a pipe.
pub fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    #[cfg(unix)]
    if let Some(pipe) = pipe::Pipe::at(path)? {
        return Ok(Box::new(pipe));
    }
    Ok(Box::new(File::open(path)?))
}

#[cfg(unix)]
mod pipe {
    use std::fs::{self, File};
    use std::io::{self, Read};
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    /// How long a pipe without a writer is looked at: whoever writes may have to open it yet.
    const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

    /// How often a pipe is looked at.
    const LOOK: Duration = Duration::from_millis(5);

    /// A pipe with a name, opened without waiting.
    pub(super) struct Pipe {
        file: File,
        opened: Instant,
        /// Whether somebody was seen to write: the end of the pipe is only then the end of what is in it.
        has_writer: bool,
    }

    impl Pipe {
        /// The pipe at a path, if it is one.
        pub(super) fn at(path: &Path) -> io::Result<Option<Self>> {
            if !fs::metadata(path)?.file_type().is_fifo() {
                return Ok(None);
            }
            let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
            Ok(Some(Self { file, opened: Instant::now(), has_writer: false }))
        }
    }

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            loop {
                match self.file.read(buffer) {
                    Ok(0) if buffer.is_empty() || self.has_writer => return Ok(0),
                    Ok(0) if self.opened.elapsed() < IDLE_TIMEOUT => {}
                    Ok(0) => {
                        let text = "it is a pipe that nobody writes into; start the program that writes first";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                    }
                    Ok(read) => {
                        self.has_writer = true;
                        return Ok(read);
                    }
                    // There is a writer, which has nothing to say yet.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.has_writer = true,
                    Err(error) => return Err(error),
                }
                thread::sleep(LOOK);
            }
        }
    }
}

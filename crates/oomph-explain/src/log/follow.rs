//! Reading a log while it is written.

use std::io::{self, Read};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::encoding::Utf8;
use super::report::Report;
use super::scan::Scanner;
use super::{Options, scan};

/// Silence after which what is there is looked at: the rest of a message follows within moments, if it follows.
const QUIET: Duration = Duration::from_millis(400);
/// Blocks that may wait: a fast writer is slowed down rather than buffered without end.
const WAITING: usize = 4;

/// Reads a log that is still being written, to its end, and calls `changed` with what is known whenever there is another
/// failure.
///
/// A message is known at the latest 0.4 s after the writer falls silent; a busy log is looked at as it arrives.
///
/// # Errors
/// Those of the reader, after what was read before them was looked at.
pub fn follow<R: Read + Send + 'static>(
    reader: R,
    options: &Options,
    mut changed: impl FnMut(&Report),
) -> io::Result<Report> {
    let mut reader = Utf8::new(reader);
    let (sender, receiver) = sync_channel::<io::Result<Vec<u8>>>(WAITING);
    // The thread ends with the reader, or with the receiver; it is not joined, since a read may never return.
    thread::spawn(move || {
        let mut block = vec![0; scan::BLOCK / 4];
        loop {
            let sent = match reader.read(&mut block) {
                Ok(0) => return,
                Ok(read) => sender.send(Ok(block[..read].to_vec())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // The receiver gets the error; whether it still listens no longer matters here.
                    let _ = sender.send(Err(error));
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    let mut scanner = Scanner::new(options.most_failures);
    let mut known = 0;
    let mut unsettled = false;
    loop {
        let count = match receiver.recv_timeout(QUIET) {
            Ok(Ok(block)) => {
                scanner.feed(&block);
                unsettled = true;
                scanner.count()
            }
            Ok(Err(error)) => return Err(error),
            Err(RecvTimeoutError::Timeout) if unsettled => {
                unsettled = false;
                scanner.settle()
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(scanner.finish()),
        };
        if count > known {
            known = count;
            changed(&scanner.clone().finish());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer whose last piece comes only when the failure in the pieces before it is known.
    struct Writer {
        pieces: Vec<&'static [u8]>,
        known: std::sync::mpsc::Receiver<()>,
    }

    impl Read for Writer {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.pieces.is_empty() {
                return Ok(0);
            }
            if self.pieces.len() == 1 {
                let waited = self.known.recv_timeout(Duration::from_secs(60));
                waited.map_err(|_| io::Error::other("the failure was not known while the log went on"))?;
            }
            let piece = self.pieces.remove(0);
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn a_failure_is_known_while_the_log_goes_on() {
        let (tell, known) = std::sync::mpsc::channel();
        let writer = Writer {
            pieces: vec![
                b"step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried to ",
                b"allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB\n",
                b"step 2\n",
            ],
            known,
        };
        let mut found = Vec::new();
        let report = follow(writer, &Options::default(), |report| {
            found.push(report.failures.len());
            tell.send(()).unwrap();
        })
        .unwrap();
        assert_eq!(report.failures[0].facts.requested_bytes, Some(2 << 30));
        assert_eq!(report.lines, 3);
        assert_eq!(found, [1]);
    }
}

//! Runs one command of oomph as a separate process: collects its output, and ends it with everything it started.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use oomph_launch::{Ending, end_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

/// How long a command has to end its program and to remove what it made.
const GRACE: Duration = Duration::from_secs(8);

/// How often a client hears that a command still runs.
const BEAT: Duration = Duration::from_secs(10);

/// The most of a document that is read, in bytes.
const MOST_STDOUT: u64 = 64 << 20;

/// The most of the messages that is kept, in bytes: their end.
const MOST_MESSAGES: usize = 4096;

/// The most of one line of the messages that is looked at, in bytes.
const MOST_LINE: usize = 1024;

/// A command to run.
pub struct Job {
    /// The words after `oomph`.
    pub arguments: Vec<OsString>,
    /// The folder to run in; none for that of the server.
    pub directory: Option<PathBuf>,
}

/// What a command came to.
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote on stdout.
    pub stdout: Vec<u8>,
    messages: Messages,
}

impl Finished {
    /// The end of what it and its program wrote on stderr.
    pub fn messages(&self) -> String {
        String::from_utf8_lossy(&self.messages.end.iter().copied().collect::<Vec<_>>()).trim().to_owned()
    }

    /// What it says itself of what went wrong: its error and its advice, else the end of the messages.
    pub fn said(&self) -> String {
        let all = self.messages();
        let own = all.lines().skip_while(|line| !line.starts_with("error: ")).collect::<Vec<_>>().join("\n");
        if own.is_empty() { all } else { own }
    }
}

impl Job {
    /// Runs the command to its end and sends `tell` each line that says what it is doing. None where `cancelled`
    /// came first: then no process of it is left.
    ///
    /// # Errors
    /// When it cannot be started or waited for.
    pub async fn run(
        self,
        cancelled: impl Future<Output = ()>,
        tell: UnboundedSender<String>,
    ) -> io::Result<Option<Finished>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&self.arguments).env("OOMPH_PROGRESS", "lines").env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let mut child = command.spawn()?;
        let stdout = tokio::spawn(read(child.stdout.take()));
        let mut stderr = child.stderr.take();
        let mut messages = Messages::default();
        let mut chunk = [0; 4096];
        let (begun, mut doing) = (Instant::now(), String::new());
        let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + BEAT, BEAT);
        tokio::pin!(cancelled);
        let status = loop {
            tokio::select! {
                read = some_of(&mut stderr, &mut chunk) => {
                    for line in messages.add(&chunk[..read]) {
                        // Nobody listens to a client that is gone, whose call is about to be cancelled.
                        let _ = tell.send(line.clone());
                        doing = line;
                    }
                }
                status = child.wait() => break status?,
                () = &mut cancelled => {
                    end(&mut child).await;
                    return Ok(None);
                }
                _ = beat.tick() => {
                    let _ = tell.send(format!("{doing} ({} s)", begun.elapsed().as_secs()).trim().to_owned());
                }
            }
        };
        // What is still in the pipe. A process that was left behind would keep it open.
        while let Ok(read @ 1..) =
            tokio::time::timeout(Duration::from_millis(50), some_of(&mut stderr, &mut chunk)).await
        {
            messages.add(&chunk[..read]);
        }
        let stdout =
            tokio::time::timeout(GRACE, stdout).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(Some(Finished { status, stdout, messages }))
    }
}

/// Ends a command and waits until it is gone.
async fn end(child: &mut Child) {
    let Some(leader) = child.id() else { return };
    end_group(leader, Ending::Asked);
    let gone = cfg!(target_os = "linux") && tokio::time::timeout(GRACE, child.wait()).await.is_ok();
    if !gone {
        end_group(leader, Ending::Killed);
        let _ = child.kill().await;
    }
}

/// Everything from a pipe.
async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What was read before an error shows itself as a document that is cut short.
        let _ = pipe.take(MOST_STDOUT).read_to_end(&mut bytes).await;
    }
    bytes
}

/// Some bytes from a pipe. From one that has come to its end nothing ever comes.
async fn some_of(pipe: &mut Option<impl AsyncRead + Unpin>, chunk: &mut [u8]) -> usize {
    if let Some(open) = pipe {
        match open.read(chunk).await {
            Ok(read @ 1..) => return read,
            _ => *pipe = None,
        }
    }
    std::future::pending().await
}

/// What a command writes on stderr: the end of it, and the lines of its own.
#[derive(Default)]
struct Messages {
    end: VecDeque<u8>,
    line: Vec<u8>,
}

impl Messages {
    /// Takes some bytes, and gives the lines in which oomph says what it is doing, without its name.
    fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        self.end.extend(bytes);
        self.end.drain(..self.end.len().saturating_sub(MOST_MESSAGES));
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                lines.extend(line.strip_prefix(b"oomph: ").map(|line| String::from_utf8_lossy(line).into_owned()));
            } else if self.line.len() < MOST_LINE {
                self.line.push(*byte);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_oomph_are_distinguished_from_those_of_the_program() {
        let mut messages = Messages::default();
        assert!(messages.add(b"step 1\noomph: making an envi").is_empty());
        assert_eq!(messages.add(b"ronment\nloss 3\noomph: ready\n"), ["making an environment", "ready"]);
    }

    #[test]
    fn a_program_without_line_breaks_takes_no_memory() {
        let mut messages = Messages::default();
        for _ in 0..100 {
            messages.add(&[b'x'; 4096]);
        }
        assert!(messages.end.len() <= MOST_MESSAGES && messages.line.len() <= MOST_LINE);
    }
}

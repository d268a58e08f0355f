//! Exchanges messages between the ranks that run as processes of one machine.
//!
//! Small messages are exchanged for real, through files in the run folder: counts, flags, shapes and pickled objects,
//! which hosts read back. The messages of a running rank are real. A rank that does not run (`--ranks`) is taken to be like this one,
//! and what it would send is what a running rank sends to the neighbour at the same distance.
//!
//! The ranks of a communicator meet in a folder that is named after its unique id:
//!
//! | file | what it is |
//! |---|---|
//! | `RANK` | the process that is that rank |
//! | `present` | the ranks that run, with commas, where not all of them do; written by the Python hook |
//! | `SEQUENCE.RANK` | a rank's part in a collective |
//! | `FROM-TO.SEQUENCE` | a message from one rank to another |
//!
//! Waiting happens on the host, in the call. CUDA would wait on the stream, but results that are computed on the CPU
//! need their inputs now. A rank that died is not waited for, and every wait is bounded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::gpu::gpu;
use crate::lock::{Mutex, Once, Rank};

/// Larger messages are not exchanged, in bytes: what hosts read back is small.
const LARGEST: usize = 1 << 16;
/// Likewise for numbers with a fraction, of which little more than norms and losses is read back.
const LARGEST_FRACTIONS: usize = 1 << 10;
/// The longest wait for a rank that lives. PyTorch itself gives up after ten minutes.
const RANK_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest wait for a rank that was never seen, where no launcher declared several ranks on this machine.
const UNSEEN_RANK_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages to ranks that do not run stay for those that copy them, the last so many of each pair.
const KEPT: u64 = 256;

/// Whether a buffer is exchanged between ranks. All ranks of a collective agree on it.
pub fn is_exchanged(kind: i32, bytes: usize) -> bool {
    bytes <= if kind < 6 { LARGEST } else { LARGEST_FRACTIONS }
}

/// The ranks of one communicator that run.
#[derive(Debug)]
pub struct Meeting {
    /// Where they meet; without one this rank is alone.
    folder: Option<PathBuf>,
    ranks: usize,
    rank: usize,
    begun: Instant,
    /// The ranks that run, or none where all do.
    present: Once<Option<Vec<usize>>>,
    /// Ranks that are not waited for any more.
    lost: Mutex<Vec<usize>>,
    collectives: AtomicU64,
    /// Messages so far, by sender and receiver.
    messages: Mutex<BTreeMap<(usize, usize), u64>>,
    /// This rank's parts in collectives that others may still have to read.
    posted: Mutex<Vec<PathBuf>>,
}

impl Meeting {
    /// A rank that no other rank talks to.
    pub fn alone(ranks: usize, rank: usize) -> Meeting {
        Meeting {
            folder: None,
            ranks,
            rank,
            begun: Instant::now(),
            present: Once::new(),
            lost: Mutex::new(Rank::LostRanks, Vec::new()),
            collectives: AtomicU64::new(0),
            messages: Mutex::new(Rank::Messages, BTreeMap::new()),
            posted: Mutex::new(Rank::PostedFiles, Vec::new()),
        }
    }

    /// Comes to the place that all ranks know by this name, of letters, digits and hyphens.
    pub fn join(name: &str, ranks: usize, rank: usize) -> Meeting {
        let mut meeting = Meeting::alone(ranks, rank);
        if ranks > 1
            && let Some(run) = crate::books::trusted_folder()
        {
            meeting.come_to(&Path::new(&run).join(oomph_protocol::paths::RANKS).join(name));
        }
        meeting
    }

    fn come_to(&mut self, folder: &Path) {
        let pid = std::process::id().to_string();
        if fs::create_dir_all(folder).is_ok() && put(&folder.join(self.rank.to_string()), pid.as_bytes()) {
            self.folder = Some(folder.to_owned());
        }
    }

    /// The name of this place, for those that are derived from it.
    pub fn name(&self) -> Option<&str> {
        self.folder.as_ref()?.file_name()?.to_str()
    }

    /// The parts of all ranks in the next collective, by rank, with nothing for this one and those that do not run.
    pub fn share(&self, mine: &[u8]) -> Vec<Option<Vec<u8>>> {
        let sequence = self.post(Some(mine));
        let all = self.read(sequence, 0..self.ranks);
        // Whoever took part in this one is done with all before it.
        let mut posted = self.posted.lock();
        let last = posted.pop();
        for path in posted.drain(..) {
            let _ = fs::remove_file(path);
        }
        posted.extend(last);
        all
    }

    /// This rank's part in a collective that has one receiver; the receiver gets the parts of the others.
    pub fn gather(&self, mine: &[u8], root: usize) -> Option<Vec<Option<Vec<u8>>>> {
        let receives = root == self.rank;
        let sequence = self.post((!receives).then_some(mine));
        receives.then(|| self.read(sequence, 0..self.ranks))
    }

    /// What the root sends to all, where this rank is not the root itself and the root runs.
    pub fn spread(&self, mine: &[u8], root: usize) -> Option<Vec<u8>> {
        let sends = root == self.rank;
        let sequence = self.post(sends.then_some(mine));
        if sends { None } else { self.read(sequence, root..root + 1).pop().flatten() }
    }

    /// Puts up this rank's part of the next collective and gives the collective's number.
    fn post(&self, part: Option<&[u8]>) -> u64 {
        let sequence = self.collectives.fetch_add(1, Ordering::Relaxed);
        if let (Some(folder), Some(part)) = (&self.folder, part) {
            let path = folder.join(format!("{sequence}.{}", self.rank));
            put(&path, part);
            self.posted.lock().push(path);
        }
        sequence
    }

    fn read(&self, sequence: u64, ranks: std::ops::Range<usize>) -> Vec<Option<Vec<u8>>> {
        ranks.map(|rank| self.wait_for(&[(rank, format!("{sequence}.{rank}"))]).map(|(bytes, _)| bytes)).collect()
    }

    /// Sends a message to one rank.
    pub fn send(&self, peer: usize, bytes: &[u8]) {
        let sequence = self.count(self.rank, peer);
        let Some(folder) = &self.folder else { return };
        put(&folder.join(message(self.rank, peer, sequence)), bytes);
        if let Some(old) = sequence.checked_sub(KEPT) {
            let _ = fs::remove_file(folder.join(message(self.rank, peer, old)));
        }
    }

    /// The next message from one rank. From a rank that does not run: the same one between two ranks that are as far
    /// apart, of which at least the sender runs.
    pub fn receive(&self, peer: usize) -> Option<Vec<u8>> {
        let sequence = self.count(peer, self.rank);
        let folder = self.folder.as_ref()?;
        if self.runs(peer) {
            let (bytes, name) = self.wait_for(&[(peer, message(peer, self.rank, sequence))])?;
            if self.present().is_none() {
                let _ = fs::remove_file(folder.join(name));
            }
            return Some(bytes);
        }
        let to = |from: usize| (from + self.rank).checked_sub(peer).filter(|to| *to < self.ranks);
        let likes: Vec<_> = (0..self.ranks)
            .filter(|from| *from != self.rank && self.runs(*from))
            .filter_map(|from| Some((from, message(from, to(from)?, sequence))))
            .collect();
        Some(self.wait_for(&likes)?.0)
    }

    fn count(&self, from: usize, to: usize) -> u64 {
        let mut messages = self.messages.lock();
        let next = messages.entry((from, to)).or_default();
        *next += 1;
        *next - 1
    }

    fn present(&self) -> Option<&Vec<usize>> {
        let read = || {
            let text = fs::read_to_string(self.folder.as_ref()?.join("present")).ok()?;
            Some(text.split(',').filter_map(|rank| rank.trim().parse().ok()).collect())
        };
        self.present.get_or_init(read).as_ref()
    }

    fn runs(&self, rank: usize) -> bool {
        self.present().is_none_or(|present| present.contains(&rank)) && !self.lost.lock().contains(&rank)
    }

    /// Waits for the first of several files, each of which one rank writes; gives its contents and its name.
    fn wait_for(&self, files: &[(usize, String)]) -> Option<(Vec<u8>, String)> {
        let folder = self.folder.as_ref()?;
        let begun = Instant::now();
        let mut pause = Duration::from_micros(20);
        let mut looked: Option<Instant> = None;
        loop {
            let mut hope = false;
            // Whether somebody still comes is looked at now and then only.
            let look = looked.is_none_or(|time| time.elapsed() > Duration::from_millis(50));
            for (rank, name) in files.iter().filter(|(rank, _)| *rank != self.rank && self.runs(*rank)) {
                hope = true;
                if let Ok(bytes) = fs::read(folder.join(name)) {
                    return Some((bytes, name.clone()));
                }
                if look && !self.may_come(*rank, begun.elapsed()) {
                    // Its last words may have come in between.
                    if let Ok(bytes) = fs::read(folder.join(name)) {
                        return Some((bytes, name.clone()));
                    }
                    self.lost.lock().push(*rank);
                }
            }
            if !hope {
                return None;
            }
            if look {
                looked = Some(Instant::now());
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }

    /// Whether a rank is still worth waiting for.
    fn may_come(&self, rank: usize, waited: Duration) -> bool {
        let Some(folder) = &self.folder else { return false };
        let pid = fs::read_to_string(folder.join(rank.to_string())).ok().and_then(|text| text.parse::<u32>().ok());
        match pid {
            // Another rank of this process: a thread may well wait for itself.
            Some(pid) if pid == std::process::id() => return false,
            Some(pid) if !lives(pid) => return false,
            // The time since this rank came counts for all unseen ranks together.
            None if self.begun.elapsed() > UNSEEN_RANK_TIMEOUT && !has_siblings() => return false,
            None if self.begun.elapsed() > RANK_TIMEOUT => return false,
            _ => {}
        }
        if waited > RANK_TIMEOUT {
            gpu().warn(
                "a rank waited ten minutes in vain for what another one sends; it went on as if all ranks were alike",
            );
        }
        waited <= RANK_TIMEOUT
    }
}

fn message(from: usize, to: usize, sequence: u64) -> String {
    format!("{from}-{to}.{sequence}")
}

/// Writes a file that appears as a whole.
fn put(path: &Path, bytes: &[u8]) -> bool {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let gpu = gpu();
        if !gpu.libraries.exchange_failed.swap(true, Ordering::Relaxed) {
            gpu.warn("ranks could not tell each other what they sent, because the run folder cannot be written");
        }
    }
    written.is_ok()
}

/// Whether a process runs: it is there, and is not one that only its parent has not asked about yet.
fn lives(pid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, Some('Z' | 'X'))
}

/// Whether a launcher said that this process is one of several ranks.
fn has_siblings() -> bool {
    ["LOCAL_WORLD_SIZE", "WORLD_SIZE"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|text| text.trim().parse::<u32>().is_ok_and(|ranks| ranks > 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(folder: &Path, ranks: usize, rank: usize) -> Meeting {
        let mut meeting = Meeting::alone(ranks, rank);
        meeting.come_to(folder);
        // Tests are ranks of one process, which would not wait for each other.
        fs::write(folder.join(rank.to_string()), "1").unwrap();
        meeting
    }

    #[test]
    fn ranks_that_run_are_heard() {
        let folder = tempfile::tempdir().unwrap();
        let one = meeting(folder.path(), 2, 0);
        let other = meeting(folder.path(), 2, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(other.share(b"other"), [Some(b"one".to_vec()), None]);
                assert_eq!(other.spread(b"", 0), Some(b"root".to_vec()));
                assert_eq!(other.gather(b"part", 0), None);
                other.send(0, b"message");
                assert_eq!(other.share(b"end"), [Some(b"end".to_vec()), None]);
            });
            assert_eq!(one.share(b"one"), [None, Some(b"other".to_vec())]);
            assert_eq!(one.spread(b"root", 0), None);
            assert_eq!(one.gather(b"", 0), Some(vec![None, Some(b"part".to_vec())]));
            assert_eq!(one.receive(1), Some(b"message".to_vec()));
            assert_eq!(one.share(b"end"), [None, Some(b"end".to_vec())]);
        });
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.len() <= 4, "what everybody has read is removed: {left:?}");
    }

    #[test]
    fn a_rank_that_does_not_run_is_like_one_that_does() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("present"), "0,1,63").unwrap();
        let [first, second, last] = [0, 1, 63].map(|rank| meeting(folder.path(), 64, rank));
        first.send(1, b"stage");
        second.send(2, b"stage of the second");
        assert_eq!(second.receive(0), Some(b"stage".to_vec()), "one that runs sends for itself");
        assert_eq!(last.receive(62), Some(b"stage".to_vec()), "one that does not sends what another one does");
        last.send(62, b"back");
        assert_eq!(second.receive(2), Some(b"back".to_vec()));
        std::thread::scope(|scope| {
            for meeting in [&first, &second, &last] {
                scope.spawn(move || {
                    assert_eq!(meeting.spread(b"", 40), None);
                    let parts = meeting.share(&[meeting.rank as u8]);
                    let heard: Vec<usize> = parts.iter().flatten().map(|part| part[0].into()).collect();
                    let others: Vec<usize> = [0, 1, 63].into_iter().filter(|rank| *rank != meeting.rank).collect();
                    assert_eq!((parts.len(), heard), (64, others));
                });
            }
        });
    }

    #[test]
    fn nobody_waits_for_the_dead() {
        let folder = tempfile::tempdir().unwrap();
        let one = meeting(folder.path(), 3, 0);
        // No process has this number, because it is more than Linux gives out.
        fs::write(folder.path().join("1"), u32::MAX.to_string()).unwrap();
        fs::write(folder.path().join("2"), u32::MAX.to_string()).unwrap();
        fs::write(folder.path().join("0.2"), b"last words").unwrap();
        assert_eq!(one.share(b"x"), [None, None, Some(b"last words".to_vec())]);
        assert_eq!(one.receive(1), None);
    }

    #[test]
    fn large_and_fractional_buffers_stay() {
        assert!(is_exchanged(1, 65536) && !is_exchanged(1, 65537));
        assert!(is_exchanged(7, 1024) && !is_exchanged(7, 1028));
    }
}

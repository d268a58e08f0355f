//! Recognises a program that waits: neither it nor anything it started computes, reads, receives, or waits for a processor that
//! others use. One that listens on a TCP port is a server that has started and waits for requests.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// How long a server has to be at rest. A model is loaded meanwhile, where one is, and that takes processor time or reads.
const AT_REST: Duration = Duration::from_secs(6);

/// How long any other program has to be at rest before it is said that it waits.
const SAID: Duration = Duration::from_secs(10);

/// How long before it is given up: who waits for a lock, a download or a timer of its own goes on before.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// What a second of rest may receive from other machines, in bytes.
const IDLE_RECEIVED: u64 = 2 << 10;

/// How often it is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The processor time of a second that polling threads may take, in ticks of a hundredth of a second.
const IDLE_TICKS: u64 = 10;

/// What a second of rest may read, in bytes.
const IDLE_BYTES: u64 = 1 << 20;

/// How long all threads together may queue for a processor in a second of rest, in nanoseconds. On a machine with
/// other work a program that computes gets as little of a processor as one that waits.
const IDLE_WAIT_NS: u64 = 200_000_000;

/// What the processes of a run did until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Work {
    ticks: u64,
    read_bytes: u64,
    /// How long their threads were ready to run and did not, in nanoseconds.
    waited_ns: u64,
    /// Whether one of them waits for a disk.
    on_disk: bool,
    /// What came from other machines, in bytes; 0 where no process has a connection to one.
    received: u64,
}

/// What is seen of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It works, or was not looked at again.
    Works,
    /// Nothing happens, for less long than says anything.
    Rests,
    /// It is a server that is ready.
    Serves,
    /// It waits for something, since so long.
    Waits(Duration),
    /// It has waited so long that it is given up.
    IsGivenUp(Duration),
}

/// The rest of one program.
pub(crate) struct Waiting {
    pid: i32,
    looked: Instant,
    work: Work,
    since: Option<Instant>,
}

impl Waiting {
    pub(crate) fn of(pid: i32) -> Self {
        Self { pid, looked: Instant::now(), work: Work::default(), since: None }
    }

    /// What the program does, if it is time to look. `living` lists its processes.
    pub(crate) fn look(&mut self, now: Instant, living: impl FnOnce() -> Vec<i32>) -> Seen {
        let passed = now.saturating_duration_since(self.looked);
        if passed < EVERY {
            return match self.since {
                Some(_) => Seen::Rests,
                None => Seen::Works,
            };
        }
        self.looked = now;
        let before = std::mem::replace(&mut self.work, work(&living()));
        if !rests(before, self.work, passed) {
            self.since = None;
            return Seen::Works;
        }
        let since = *self.since.get_or_insert(now);
        let rest = now.saturating_duration_since(since);
        match rest {
            _ if rest >= AT_REST && listens(self.pid) => Seen::Serves,
            _ if rest >= GIVEN_UP && !reads_a_terminal(self.pid) => Seen::IsGivenUp(rest),
            _ if rest >= SAID => Seen::Waits(rest),
            _ => Seen::Rests,
        }
    }
}

/// Whether hardly anything was done between two looks.
fn rests(before: Work, after: Work, passed: Duration) -> bool {
    let seconds = passed.as_secs_f64();
    let little = |more: u64, a_second: u64| more as f64 <= a_second as f64 * seconds;
    !after.on_disk
        && little(after.ticks.saturating_sub(before.ticks), IDLE_TICKS)
        && little(after.read_bytes.saturating_sub(before.read_bytes), IDLE_BYTES)
        && little(after.waited_ns.saturating_sub(before.waited_ns), IDLE_WAIT_NS)
        && little(after.received.saturating_sub(before.received), IDLE_RECEIVED)
}

/// What all processes of the run did.
fn work(living: &[i32]) -> Work {
    let mut sum = Work::default();
    for pid in living {
        let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some((ticks, on_disk)) = parse_stat(&stat) {
            sum.ticks = sum.ticks.saturating_add(ticks);
            sum.on_disk |= on_disk;
        }
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        sum.read_bytes = sum.read_bytes.saturating_add(read_bytes(&io));
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let waited = threads.filter_map(|thread| waited_ns(&fs::read_to_string(thread.path().join("schedstat")).ok()?));
        sum.waited_ns = waited.fold(sum.waited_ns, u64::saturating_add);
    }
    if let Some(pid) = living.iter().find(|pid| is_connected(**pid)) {
        sum.received = received(&fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default());
    }
    sum
}

/// What the devices of a network received, in bytes, but for the one that leads back to this machine: from `/proc/PID/net/dev`.
fn received(devices: &str) -> u64 {
    let of_device = |line: &str| {
        let (name, figures) = line.split_once(':')?;
        if name.trim() == "lo" { None } else { figures.split_ascii_whitespace().next()?.parse::<u64>().ok() }
    };
    devices.lines().filter_map(of_device).fold(0, u64::saturating_add)
}

/// Whether the call that a process waits in reads its terminal: somebody thinks about what to type.
fn reads_a_terminal(pid: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let mut words = call.split_ascii_whitespace();
    let reads = words.next() == Some(READ) && words.next() == Some("0x0");
    let input = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap_or_default();
    let input = input.to_string_lossy();
    reads && (input.starts_with("/dev/pts/") || input.starts_with("/dev/tty") || input == "/dev/console")
}

/// The number of the call `read`.
const READ: &str = if cfg!(target_arch = "x86_64") { "0" } else { "63" };

/// How long a thread queued for a processor, from `/proc/PID/task/TID/schedstat`: the time that it ran, the time that it
/// waited, and how often it ran. A kernel without the file says nothing.
fn waited_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The processor time of a process in ticks, and whether it waits for a disk, from `/proc/PID/stat`.
fn parse_stat(stat: &[u8]) -> Option<(u64, bool)> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace();
    let on_disk = fields.next()? == "D";
    // Ten fields are between the state and the times in the program and in the kernel.
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some((user.saturating_add(kernel), on_disk))
}

/// What a process read from files and from disks, in bytes, from `/proc/PID/io`.
fn read_bytes(io: &str) -> u64 {
    let values = io.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        matches!(name, "rchar" | "read_bytes").then(|| value.trim().parse::<u64>().ok()).flatten()
    });
    values.fold(0, u64::saturating_add)
}

/// Whether a process listens on a TCP port.
fn listens(pid: i32) -> bool {
    has_socket(pid, |state, _| state == "0A")
}

/// Whether a process is connected to another machine.
fn is_connected(pid: i32) -> bool {
    has_socket(pid, |state, peer| state == "01" && !is_here(peer))
}

/// Whether the address of a peer in `/proc/net/tcp`, four bytes or four times four in the machine's order, is this machine's.
fn is_here(peer: &str) -> bool {
    let address = peer.split(':').next().unwrap_or_default();
    match address.len() {
        8 => address.ends_with("7F"),
        _ => address == "00000000000000000000000001000000" || (address.contains("FFFF0000") && address.ends_with("7F")),
    }
}

/// Whether a process has a TCP socket of some state and peer.
fn has_socket(pid: i32, is_one: impl Fn(&str, &str) -> bool) -> bool {
    let mut wanted = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        wanted.extend(sockets(&text, &is_one));
    }
    if wanted.is_empty() {
        return false;
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| {
        let link = link.to_string_lossy();
        let inode = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.and_then(|inode| inode.parse::<u64>().ok()).is_some_and(|inode| wanted.contains(&inode))
    })
}

/// The inodes of the sockets in `/proc/net/tcp` of some state and peer.
fn sockets(table: &str, is_one: impl Fn(&str, &str) -> bool) -> impl Iterator<Item = u64> {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let peer = fields.nth(2)?;
        let state = fields.next()?;
        let inode = fields.nth(5)?.parse().ok()?;
        is_one(state, peer).then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_listen_are_distinguished_from_those_that_are_connected() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 41251 1\n   \
                     1: 0100007F:1F90 0100007F:C2F4 01 00000000:00000000 00:00000000 00000000  1000        0 41260 1\n";
        let listening = |state: &str, _: &str| state == "0A";
        assert_eq!(sockets(table, listening).collect::<Vec<_>>(), [41251]);
        assert_eq!(sockets("", listening).count(), 0);
        let connected = |state: &str, peer: &str| state == "01" && !is_here(peer);
        assert_eq!(sockets(table, connected).count(), 0, "its client is on this machine");
        assert_eq!(sockets(&table.replace("0100007F:C2F4", "08080808:01BB"), connected).collect::<Vec<_>>(), [41260]);
    }

    #[test]
    fn a_program_listens_from_its_bind_to_its_end() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(me));
        drop(socket);
    }

    #[test]
    fn work_of_the_processor_or_of_a_disk_is_no_rest() {
        let before = Work { ticks: 100, read_bytes: 5, waited_ns: 7, on_disk: false, received: 0 };
        let second = Duration::from_secs(1);
        assert!(rests(before, Work { ticks: 105, ..before }, second));
        assert!(!rests(before, Work { ticks: 150, ..before }, second));
        assert!(rests(before, Work { ticks: 150, ..before }, 10 * second));
        assert!(!rests(before, Work { read_bytes: 3 << 20, ..before }, second));
        assert!(!rests(before, Work { on_disk: true, ..before }, second));
        assert!(!rests(before, Work { received: 90_000, ..before }, second), "a download");
        assert!(!rests(before, Work { waited_ns: 900_000_000, ..before }, second), "others have the processor");
        assert_eq!((waited_ns("1061852 20170 3\n"), waited_ns("")), (Some(20170), None));
        assert_eq!(parse_stat(b"12 (a) b) D 1 1 1 0 -1 0 0 0 0 0 7 4 0 0"), Some((11, true)));
        let devices = "Inter-|   Receive\n face |bytes packets\n    lo: 999 1 0\n  eth0: 1200 8 0 0\n";
        assert_eq!((received(devices), received("")), (1200, 0));
        assert_eq!(read_bytes("rchar: 12\nwchar: 99\nread_bytes: 30\n"), 42);
    }
}

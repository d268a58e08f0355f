//! What is sent between host and card, what was sent before, and what lies on the card twice.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::site::Site;
use crate::space::{Place, Space};
use crate::work::Way;

/// Most ranges and contents that are followed at once.
const MOST: usize = 1 << 16;
/// Content is compared in samples of this size, in bytes.
const SAMPLE: usize = 4096;
/// How many samples of a large range are compared, spread evenly, its ends included.
const SAMPLES: usize = 16;
const PAGE: usize = 4096;
/// Ranges below this are not looked for twice on the card, in bytes.
const LEAST_DOUBLE: usize = 1 << 20;

/// Copies of one way, in all or from one place of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub calls: u64,
    pub bytes: u64,
    /// Of them, those whose host side is ordinary memory that the driver has to copy once more.
    pub pageable_calls: u64,
    pub pageable_bytes: u64,
    /// Of them, those that brought what had been sent before, to whatever place.
    pub resent_calls: u64,
    pub resent_bytes: u64,
    /// The largest of them whose bytes lay elsewhere on the card as well.
    pub doubled_bytes: u64,
}

impl Traffic {
    fn add(&mut self, size: usize, pageable: bool, resent: bool, doubled: bool) {
        self.calls += 1;
        self.bytes += size as u64;
        if pageable {
            self.pageable_calls += 1;
            self.pageable_bytes += size as u64;
        }
        if resent {
            self.resent_calls += 1;
            self.resent_bytes += size as u64;
        }
        if doubled {
            self.doubled_bytes = self.doubled_bytes.max(size as u64);
        }
    }
}

/// All copies of the process.
#[derive(Clone, Default)]
pub struct Transfers {
    pub total: BTreeMap<Way, Traffic>,
    pub by_site: HashMap<(Site, Way), Traffic>,
    /// The most bytes that lay on the card twice at once.
    pub most_doubled: u64,
    /// Everything that was sent: digests and sizes.
    seen: HashSet<(u64, usize)>,
    /// What was last sent to a place: a digest, by address and size.
    sent: BTreeMap<(usize, usize), u64>,
    /// How many places of the card hold the same bytes, by digest and size.
    copies: HashMap<(u64, usize), u64>,
    doubled: u64,
    /// Host ranges that were read back from the card, whose contents are therefore not the program's: end by start.
    meaningless: BTreeMap<usize, usize>,
    /// There were more such ranges than are followed, so contents say nothing any more.
    lost: bool,
}

/// Where one end of a copy lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Card,
    /// Host memory, and whether it is page-locked.
    Host {
        locked: bool,
    },
}

impl End {
    /// Where an address lies.
    pub fn of(space: &Space, address: usize) -> Self {
        match space.find(address).map(|block| block.place) {
            None => Self::Host { locked: false },
            Some(Place::Host | Place::Registered) => Self::Host { locked: true },
            Some(Place::Device(_) | Place::Pool(_) | Place::Shared | Place::Reserved) => Self::Card,
        }
    }
}

/// A copy that the program asked for.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    pub to: usize,
    pub from: usize,
    /// In bytes.
    pub size: usize,
    /// Whether the contents may be looked at.
    pub contents: bool,
}

/// Which way a copy goes, and whether its host side is ordinary memory; `None` for one between two places on the host.
pub fn way(from: End, to: End) -> Option<(Way, bool)> {
    match (from, to) {
        (End::Host { locked }, End::Card) => Some((Way::ToCard, !locked)),
        (End::Card, End::Host { locked }) => Some((Way::ToHost, !locked)),
        (End::Card, End::Card) => Some((Way::OnCard, false)),
        (End::Host { .. }, End::Host { .. }) => None,
    }
}

impl Transfers {
    /// Counts a copy that goes some way.
    ///
    /// # Safety
    /// With `contents`, `from` must be readable for `size` bytes.
    pub unsafe fn add(&mut self, copied: Copied, (way, pageable): (Way, bool), site: Site) {
        let Copied { to, from, size, contents } = copied;
        let (mut resent, mut doubled) = (false, false);
        match way {
            Way::ToCard => {
                // SAFETY: the caller's promise.
                let digest =
                    (contents && self.is_meaningful(from, size)).then(|| unsafe { digest(from, size) }).flatten();
                resent = digest.is_some_and(|digest| self.is_known(digest, size));
                doubled = self.arrived(to, size, digest);
            }
            Way::ToHost => self.read_back(to, size),
            Way::OnCard => {
                self.arrived(to, size, None);
            }
        }
        self.total.entry(way).or_default().add(size, pageable, resent, doubled);
        if self.by_site.len() < MOST || self.by_site.contains_key(&(site, way)) {
            self.by_site.entry((site, way)).or_default().add(size, pageable, resent, doubled);
        }
    }

    /// Forgets what lies in a block that is freed.
    pub fn forget(&mut self, start: usize, size: usize) {
        let within: Vec<_> =
            self.sent.range((start, 0)..(start.saturating_add(size), 0)).map(|(key, _)| *key).collect();
        for key in within {
            if let Some(digest) = self.sent.remove(&key) {
                self.gone(digest, key.1);
            }
        }
    }

    /// Whether these bytes were sent before; from now on they were.
    fn is_known(&mut self, digest: u64, size: usize) -> bool {
        let known = self.seen.contains(&(digest, size));
        if !known && self.seen.len() < MOST {
            self.seen.insert((digest, size));
        }
        known
    }

    /// Notes what now lies at a place of the card, and says whether the same now lies elsewhere too.
    fn arrived(&mut self, to: usize, size: usize, digest: Option<u64>) -> bool {
        if digest.is_some() && self.sent.get(&(to, size)).copied() == digest {
            return false;
        }
        self.forget(to, size);
        if let Some(digest) = digest.filter(|_| self.sent.len() < MOST) {
            self.sent.insert((to, size), digest);
            if size >= LEAST_DOUBLE {
                let copies = self.copies.entry((digest, size)).or_default();
                *copies += 1;
                if *copies > 1 {
                    self.doubled += size as u64;
                    self.most_doubled = self.most_doubled.max(self.doubled);
                    return true;
                }
            }
        }
        false
    }

    fn gone(&mut self, digest: u64, size: usize) {
        let Some(copies) = self.copies.get_mut(&(digest, size)) else { return };
        if *copies > 1 {
            self.doubled = self.doubled.saturating_sub(size as u64);
        }
        *copies -= 1;
        if *copies == 0 {
            self.copies.remove(&(digest, size));
        }
    }

    /// Kernels compute nothing, so what is read back is not what the program would see.
    fn read_back(&mut self, to: usize, size: usize) {
        let end = to.saturating_add(size);
        if self.meaningless.range(..=to).next_back().is_some_and(|(_, last)| *last >= end) {
            return;
        }
        if self.meaningless.len() < MOST {
            self.meaningless.insert(to, end);
        } else {
            self.lost = true;
        }
    }

    fn is_meaningful(&self, from: usize, size: usize) -> bool {
        let before = self.meaningless.range(..from.saturating_add(size)).next_back();
        !self.lost && before.is_none_or(|(_, last)| *last <= from)
    }
}

/// A digest of a range's samples; `None` for nothing but zeros, which many fresh buffers hold.
///
/// Pages that are not in memory count as zeros: nobody wrote to them, or they are parts of a mapped checkpoint that
/// would have to be read from disk, with much around them, for our sake alone.
///
/// # Safety
/// The range must be readable.
unsafe fn digest(from: usize, size: usize) -> Option<u64> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ size as u64;
    let mut any = 0;
    let mut sample = |start: usize, length: usize| {
        if !is_in_memory(from + start, length) {
            return;
        }
        // SAFETY: the sample lies inside the range, which the caller vouches for; bytes have no alignment to keep.
        let bytes = unsafe { std::slice::from_raw_parts((from + start) as *const u8, length) };
        for word in bytes.chunks(8) {
            let mut value = [0; 8];
            value[..word.len()].copy_from_slice(word);
            let value = u64::from_le_bytes(value);
            any |= value;
            // One round of multiplication and rotation a word: enough to tell contents apart that nobody forges.
            hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    };
    if size <= SAMPLE * SAMPLES {
        sample(0, size);
    } else {
        let stride = (size - SAMPLE) / (SAMPLES - 1);
        (0..SAMPLES).for_each(|index| sample(index * stride, SAMPLE));
    }
    (any != 0).then_some(hash)
}

/// Whether all pages of a range are in memory, as far as the kernel reports.
fn is_in_memory(start: usize, length: usize) -> bool {
    // A sample that begins within a page ends in the next one.
    const PAGES: usize = SAMPLE * SAMPLES / PAGE + 1;
    let first = start / PAGE * PAGE;
    let mut resident = [1_u8; PAGES];
    let covered = (start + length - first).min(PAGES * PAGE);
    // SAFETY: the kernel writes one byte for each page of the range, for which there is room; it reads nothing of it.
    unsafe { libc::mincore(first as *mut libc::c_void, covered, resident.as_mut_ptr()) };
    resident[..covered.div_ceil(PAGE)].iter().all(|page| page & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_of_a_file_is_not_read_for_a_digest() {
        use std::os::fd::AsRawFd;

        let file = tempfile::tempfile().expect("a file can be made");
        let size = 64 << 20;
        file.set_len(size as u64).expect("it can be long");
        let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: a new mapping of a file of that length, which nobody else knows.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, read, private, file.as_raw_fd(), 0) } as usize;
        assert_ne!(start as isize, -1);
        // SAFETY: the pages are mapped.
        assert_eq!(unsafe { digest(start, size) }, None);
        assert!(!is_in_memory(start + size / 2, SAMPLE), "it was read");
        // SAFETY: nothing of the mapping is used any more.
        unsafe { libc::munmap(start as *mut libc::c_void, size) };
    }

    #[test]
    fn a_digest_tells_contents_apart_and_nothing_from_zeros() {
        let mut bytes = vec![7_u8; 1 << 20];
        // SAFETY: the range is a slice's.
        let of = |bytes: &[u8]| unsafe { digest(bytes.as_ptr() as usize, bytes.len()) };
        let first = of(&bytes);
        assert!(first.is_some());
        let last = bytes.len() - 1;
        bytes[last] = 8;
        assert_ne!(of(&bytes), first, "the ends are always looked at");
        assert_eq!(of(&[0; 100]), None);
        assert_ne!(of(&[1; 9]), of(&[1; 10]));
    }

    #[test]
    fn what_is_sent_again_and_what_lies_twice() {
        let mut transfers = Transfers::default();
        let size = 2 << 20;
        assert!(!transfers.is_known(5, size));
        assert!(transfers.is_known(5, size));
        assert!(!transfers.is_known(5, size + 1));
        transfers.arrived(0, size, Some(5));
        transfers.arrived(0, size, Some(5));
        assert_eq!(transfers.most_doubled, 0, "the same at the same place");
        transfers.arrived(1 << 30, size, Some(5));
        assert_eq!(transfers.doubled, size as u64);
        transfers.forget(1 << 30, size);
        assert_eq!(transfers.doubled, 0);
        transfers.arrived(1 << 30, size, Some(5));
        transfers.arrived(0, size, None);
        assert_eq!((transfers.doubled, transfers.most_doubled), (0, size as u64), "other bytes took its place");
    }

    #[test]
    fn what_was_read_back_says_nothing() {
        let mut transfers = Transfers::default();
        transfers.read_back(1000, 100);
        assert!(!transfers.is_meaningful(1050, 10));
        assert!(!transfers.is_meaningful(900, 150));
        assert!(transfers.is_meaningful(1100, 10));
        assert!(transfers.is_meaningful(900, 100));
    }
}

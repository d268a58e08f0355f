//! Allocations by where they were made, and what a pool would have made of them.

use std::collections::{BTreeMap, HashMap};

use super::site::Site;

/// Most blocks, sites and sizes that are followed at once.
const MOST: usize = 1 << 17;
/// Most sizes that are distinguished at one site.
const SIZES: usize = 8;
/// A pool serves a request from a freed block of the same size, rounded up to this, in bytes.
const POOL_GRAIN: usize = 512;

/// What was allocated at one place of the program.
#[derive(Clone, Default)]
pub struct AtSite {
    /// How often.
    pub calls: u64,
    /// How often what it allocated was freed again.
    pub freed: u64,
    /// Bytes of all calls together.
    pub bytes: u64,
    /// Bytes that are still held.
    pub held: u64,
    /// The most bytes that were held at once.
    pub most_held: u64,
    /// Calls by size, for the first few sizes.
    pub sizes: BTreeMap<usize, u64>,
}

/// All allocations of the process.
#[derive(Clone, Default)]
pub struct Allocations {
    /// By call site.
    pub sites: HashMap<Site, AtSite>,
    /// What is held: size and site, by address.
    pub live: HashMap<usize, (usize, Site)>,
    /// Calls.
    pub calls: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes that are held.
    pub held: u64,
    /// The most that was held at once, in bytes.
    pub most_held: u64,
    /// What a pool that keeps what is freed would have had at its peak, in bytes.
    pub pool_peak: u64,
    /// Calls that such a pool would have answered from what it kept.
    pub pool_hits: u64,
    /// Freed blocks that the pool would keep, by rounded size.
    spare: HashMap<usize, u64>,
    /// Bytes that the pool would hold.
    pool_held: u64,
    /// What each site held, in blocks and bytes, when the card refused a request; emptied by what it grants afterwards.
    pub at_refusal: HashMap<Site, (u64, u64)>,
}

impl Allocations {
    pub fn add(&mut self, start: usize, size: usize, site: Site) {
        self.at_refusal.clear();
        self.calls += 1;
        self.held += size as u64;
        self.most_held = self.most_held.max(self.held);
        let rounded = size.next_multiple_of(POOL_GRAIN);
        match self.spare.get_mut(&rounded).filter(|spare| **spare > 0) {
            Some(spare) => {
                *spare -= 1;
                self.pool_hits += 1;
            }
            None => {
                self.pool_held += rounded as u64;
                self.pool_peak = self.pool_peak.max(self.pool_held);
            }
        }
        if self.sites.len() < MOST || self.sites.contains_key(&site) {
            let site = self.sites.entry(site).or_default();
            site.calls += 1;
            site.bytes += size as u64;
            site.held += size as u64;
            site.most_held = site.most_held.max(site.held);
            if site.sizes.len() < SIZES || site.sizes.contains_key(&size) {
                *site.sizes.entry(size).or_default() += 1;
            }
        }
        if self.live.len() < MOST {
            self.live.insert(start, (size, site));
        }
    }

    /// Notes what each site holds: the card has refused a request, and a program that dies of it may free all on its way.
    pub fn refused(&mut self) {
        let held = self.sites.iter().filter(|(_, at)| at.held > 0);
        self.at_refusal = held.map(|(site, at)| (*site, (at.calls.saturating_sub(at.freed), at.held))).collect();
    }

    /// Removes a block and returns its size, if it was followed.
    pub fn remove(&mut self, start: usize) -> Option<usize> {
        let (size, site) = self.live.remove(&start)?;
        self.frees += 1;
        self.held = self.held.saturating_sub(size as u64);
        if let Some(site) = self.sites.get_mut(&site) {
            site.freed += 1;
            site.held = site.held.saturating_sub(size as u64);
        }
        let rounded = size.next_multiple_of(POOL_GRAIN);
        if self.spare.len() < MOST || self.spare.contains_key(&rounded) {
            *self.spare.entry(rounded).or_default() += 1;
        }
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::site::Sites;
    use super::*;

    #[test]
    fn a_loop_that_allocates_is_churn_that_a_pool_would_end() {
        let mut allocations = Allocations::default();
        let (once, again) = (Site::UNKNOWN, Sites::default().of(Some([1; 24])));
        allocations.add(1 << 30, 7000, once);
        for step in 0..100 {
            let start = 4096 * (step + 1);
            allocations.add(start, 1000, again);
            assert_eq!(allocations.remove(start), Some(1000));
        }
        assert_eq!((allocations.calls, allocations.frees, allocations.most_held), (101, 100, 8000));
        assert_eq!((allocations.pool_hits, allocations.pool_peak), (99, 7168 + 1024));
        let site = &allocations.sites[&again];
        assert_eq!((site.calls, site.freed, site.held, site.most_held), (100, 100, 0, 1000));
        assert_eq!(allocations.live.len(), 1, "the first block was never freed");
        assert_eq!(allocations.remove(12), None);
    }

    #[test]
    fn what_was_held_at_a_refusal_is_known_when_all_of_it_is_freed() {
        let mut allocations = Allocations::default();
        let kept = Sites::default().of(Some([1; 24]));
        allocations.add(4096, 1000, kept);
        allocations.add(8192, 1000, kept);
        allocations.refused();
        allocations.remove(4096);
        allocations.remove(8192);
        assert_eq!(allocations.at_refusal[&kept], (2, 2000));
        // The program went on with less.
        allocations.add(4096, 10, kept);
        assert!(allocations.at_refusal.is_empty());
    }
}

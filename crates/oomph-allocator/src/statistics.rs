//! Counts allocated, reserved and other memory, as the allocators do.

/// A quantity and the most that it has been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The most so far.
    pub peak: u64,
}

impl Gauge {
    #[inline]
    pub(crate) fn add(&mut self, amount: u64) {
        self.current = self.current.saturating_add(amount);
        self.peak = self.peak.max(self.current);
    }

    #[inline]
    pub(crate) fn subtract(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
    }
}

/// Counters with the meaning that they have in `torch.cuda.memory_stats()`. All sizes are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// `allocated_bytes.all`: blocks that the program holds, rounding and slack included.
    pub allocated: Gauge,
    /// `active_bytes.all`: the same and the blocks that wait for another stream.
    pub active: Gauge,
    /// `requested_bytes.all`: what the program asked for in the active blocks.
    pub requested: Gauge,
    /// `reserved_bytes.all`: taken from the driver.
    pub reserved: Gauge,
    /// `segment.all`: native segments; expandable ones are not counted.
    pub segments: Gauge,
    /// `num_alloc_retries`: how often the whole cache was given back for lack of memory.
    pub retries: u64,
    /// `num_ooms`.
    pub ooms: u64,
    /// `num_device_alloc`: calls that took memory from the driver.
    pub driver_allocations: u64,
    /// `num_device_free`: calls that gave memory back.
    pub driver_frees: u64,
    /// The state at the moment of the highest reserved memory.
    pub at_peak: AtPeak,
}

/// The state when reserved memory was highest; of several such moments, the one with the most allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtPeak {
    /// Reserved bytes: the sum of the other three and of nothing else is `active + cached`.
    pub reserved: u64,
    /// Bytes in blocks that the program holds.
    pub allocated: u64,
    /// Bytes in blocks that the program holds or that wait for another stream.
    pub active: u64,
    /// Bytes that the program asked for in the active blocks. `active - requested` is rounding and slack, and
    /// `reserved - active` is cached.
    pub requested: u64,
}

impl Statistics {
    #[inline]
    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.reserved.add(bytes);
        self.driver_allocations += 1;
    }

    #[inline]
    pub(crate) fn release(&mut self, bytes: u64) {
        self.reserved.subtract(bytes);
        self.driver_frees += 1;
    }

    #[inline]
    pub(crate) fn allocate(&mut self, block: u64, requested: u64) {
        self.allocated.add(block);
        self.active.add(block);
        self.requested.add(requested);
        self.look_for_peak();
    }

    /// Keeps the present state if it is the peak.
    #[inline]
    pub(crate) fn look_for_peak(&mut self) {
        let (reserved, allocated) = (self.reserved.current, self.allocated.current);
        if reserved > self.at_peak.reserved || (reserved == self.at_peak.reserved && allocated > self.at_peak.allocated)
        {
            let (active, requested) = (self.active.current, self.requested.current);
            self.at_peak = AtPeak { reserved, allocated, active, requested };
        }
    }
}

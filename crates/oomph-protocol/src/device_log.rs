//! The lines of the virtual GPU's log, `device-log/PID.jsonl`. `oomph_trace::device_log` says what their fields mean.

words! {
    /// What happened on a card.
    Kind {
        /// The program got a block of its own, with the granules under it.
        Malloc = "malloc",
        /// It gave such a block back.
        Free = "free",
        /// The program got a block in memory that had been taken before.
        Place = "place",
        /// It gave such a block back.
        Unplace = "unplace",
        /// Granules were taken for blocks to come.
        Take = "take",
        /// They were given back.
        Give = "give",
        /// Physical memory was mapped.
        Map = "map",
        /// It was unmapped.
        Unmap = "unmap",
        /// A request that the card could not hold; the address is what it had free, in bytes.
        Refuse = "refuse",
        /// The driver took memory for itself.
        Context = "context",
        /// The log grew too long and ends here.
        Cut = "cut",
    }
}

//! The differences between versions of PyTorch.
//!
//! The rules of the allocator have hardly changed since 2.0. These three changes move a block or change a size, and each
//! was seen in PyTorch itself: the version before it and the one after it were driven with the same requests.

use std::fmt;
use std::str::FromStr;

/// A version of PyTorch, as far as the allocator cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// 2 of 2.15.
    pub major: u32,
    /// 15 of 2.15.
    pub minor: u32,
}

/// Which of several free blocks of the same size PyTorch takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockOrder {
    /// The one at the lowest address.
    Address,
    /// One of the segment that was taken first, and there the lowest.
    SegmentAge,
}

impl Version {
    /// The newest version that is known.
    pub const NEWEST: Version = Version { major: 2, minor: 15 };
    /// The last version that orders blocks by address alone.
    pub const LAST_BY_ADDRESS: Version = Version { major: 2, minor: 12 };

    /// Segments are numbered since pull request 183591, of May 2026: 2.11 orders by address, 2.13 by segment.
    pub fn block_order(self) -> BlockOrder {
        if self <= Self::LAST_BY_ADDRESS { BlockOrder::Address } else { BlockOrder::SegmentAge }
    }

    /// Whether private pools (CUDA graphs, `MemPool`) use expandable segments: 2.4 does not, 2.6 does.
    pub fn expands_private_pools(self) -> bool {
        self >= Version { major: 2, minor: 5 }
    }

    /// Whether the `>` of `roundup_power2_divisions` also replaces the interval named last: 2.9 does so, 2.11 does not.
    pub fn replaces_last_interval(self) -> bool {
        self < Version { major: 2, minor: 10 }
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::NEWEST
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is not a version such as `2.6.0+cu124`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of PyTorch: write it like 2.6 or 2.6.0+cu124")]
pub struct VersionError(String);

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let mut parts = text.trim().split(['.', '+']).map(|part| part.parse().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(major), Some(minor)) => Ok(Version { major, minor }),
            _ => Err(VersionError(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_pytorch_writes_them() {
        assert_eq!("2.15.0+cu132".parse(), Ok(Version::NEWEST));
        assert_eq!("2.6".parse(), Ok(Version { major: 2, minor: 6 }));
        assert!("nightly".parse::<Version>().is_err());
        assert!(Version { major: 2, minor: 9 } < Version { major: 2, minor: 11 });
    }
}

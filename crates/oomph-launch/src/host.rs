//! Reads the memory of the host that programs run on.

use std::fs;

/// How much memory the host has in all, in bytes; `None` where the system does not say.
pub fn host_memory_bytes() -> Option<u64> {
    total(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// How much memory programs can still take of the host without it swapping, in bytes; `None` where the system does not
/// tell.
pub fn available_host_memory_bytes() -> Option<u64> {
    figure(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// How many processes the kernel has killed to get memory since the system started; 0 where it does not say.
pub(crate) fn kills() -> u64 {
    fs::read_to_string("/proc/vmstat").ok().as_deref().and_then(killed).unwrap_or(0)
}

fn total(meminfo: &str) -> Option<u64> {
    figure(meminfo, "MemTotal:")
}

fn figure(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn killed(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_reports_is_read() {
        assert_eq!(total("MemTotal:       24607848 kB\nMemFree: 1 kB\n"), Some(24_607_848 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(killed("oom_kill_memcg 1\noom_kill 3\n"), Some(3));
        assert_eq!(killed("nr_free_pages 3\n"), None);
    }
}

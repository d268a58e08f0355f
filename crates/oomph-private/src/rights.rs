//! Drops the rights over the machine that root loses on the way into a view or behind a fence.
//!
//! Root can leave a view: by the root folder of another process (`/proc/1/root`), by that process's mounts, by a file's
//! handle, by a device node of the disk. Each takes a capability that no program needs for work on a GPU, and none that
//! root has in a container by default. Who is not root has no capability once the program is started.

use std::io;

use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

/// What root keeps: its rights over files, users, its own processes and their limits.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::IPC_OWNER)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::LEASE)
    .union(CapabilitySet::AUDIT_WRITE);

/// Takes from this process, and from what it starts, what it does not keep.
///
/// # Errors
/// When root may not give its rights up for good; starting a program would give them back.
pub(crate) fn limit() -> io::Result<()> {
    let kept = if geteuid().is_root() { KEPT } else { CapabilitySet::empty() };
    if !kept.is_empty() {
        let each = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
        for one in each.filter(|one| !kept.contains(*one)) {
            match remove_capability_from_bounding_set(one) {
                // The kernel knows no more of them.
                Err(Errno::INVAL) => break,
                other => other?,
            }
        }
    }
    let now = capabilities(None)?;
    let (effective, permitted, inheritable) = (now.effective & kept, now.permitted & kept, now.inheritable & kept);
    Ok(set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?)
}

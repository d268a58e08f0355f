//! Moves the calling process into a view of its own.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{getegid, geteuid, pivot_root};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::cover::Cover;
use crate::{Made, Plan, fence, network, rights};

/// Makes the view or the fence of a plan and moves this process into it; what it starts from now on sees the same. Root
/// gives up its rights over the machine, and others those over their namespaces, unless children of the process are to
/// make views. The record of the plan is written on the way. The process must have one thread.
///
/// # Errors
/// When the kernel does not allow it, or some part cannot be made. The process is then of no use for a program: it may be
/// in a user namespace that knows no user.
pub fn enter(plan: &Plan) -> io::Result<()> {
    if plan.fence {
        fence::raise(plan)?
    } else {
        enter_view(plan)?
    }
    if plan.keep_real { Ok(()) } else { rights::limit() }
}

fn enter_view(plan: &Plan) -> io::Result<()> {
    let made = leave_the_shared_mounts(plan.user)?;
    if plan.no_network {
        network::leave()?;
    }
    // Otherwise what is mounted here would be mounted for everybody, and the other way round.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let mut cover = Cover::new(plan, made)?;
    cover.all()?;
    let (root, old, record) = cover.finish()?;
    fs::write(plan.real(&plan.record), record.to_bytes())?;
    change_root(&root, old.as_deref())?;
    std::env::set_current_dir(&plan.directory)
}

fn leave_the_shared_mounts(user_only: bool) -> io::Result<Made> {
    // SAFETY: the flags do not include `FILES`, which is what makes the call unsafe.
    if !user_only && unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_ok() {
        return Ok(Made::Mounting);
    }
    let (user, group) = (geteuid(), getegid());
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    // Everybody, for who may do so; else nobody but the user, as the kernel asks of others.
    let everybody = "0 0 4294967295";
    if !user.is_root() || fs::write("/proc/self/uid_map", everybody).is_err() {
        fs::write("/proc/self/uid_map", format!("{user} {user} 1", user = user.as_raw()))?;
    }
    if !user.is_root() || fs::write("/proc/self/gid_map", everybody).is_err() {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1", group = group.as_raw()))?;
    }
    Ok(Made::UserNamespace)
}

/// Makes `root` the root. The old one is kept at `old`, or gone.
fn change_root(root: &Path, old: Option<&Path>) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    match old {
        Some(old) => pivot_root(".", old)?,
        None => {
            // The old root comes to lie over the new one, from where it can be taken away without a folder to put it in.
            pivot_root(".", ".")?;
            unmount(".", UnmountFlags::DETACH)?;
        }
    }
    std::env::set_current_dir("/")
}

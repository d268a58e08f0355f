//! Finds out whether the kernel allows this process to trace another, and if not, the exact reason.
//!
//! The kernel is asked by reading one byte of the target, which needs the same permission as tracing and disturbs
//! nothing. It answers with no more than a number, so the reason is worked out from the same facts, in its own order:
//! the users, the right to dump the process, the capabilities, and last Yama.

use std::fmt;
use std::fs;

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};

use crate::memory::nix_pid;
use crate::process::{self, Status};

/// The names of capabilities, by their bits (`linux/capability.h`).
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// The capability to trace any process.
const CAP_SYS_PTRACE: u32 = 19;

/// Why the kernel refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denied {
    /// The process belongs to another user.
    User {
        /// The users of the target: real, effective and saved.
        theirs: Vec<u32>,
        /// The user of this process.
        ours: u32,
    },
    /// It belongs to this user and to another group.
    Group,
    /// It may not be dumped: it was started with the rights of another user or is not readable, or it asked for that.
    NotDumpable,
    /// It has capabilities that this process lacks.
    Capabilities(u64),
    /// It is in a container with users of its own, where this process has no rights.
    Namespace,
    /// The kernel hides its namespaces, too, from a process that has the capability: another namespace, or a policy.
    Hidden,
    /// Yama's scope 1: only ancestors.
    Ancestors,
    /// Yama's scope 2: only with the capability.
    Administrators,
    /// Yama's scope 3: nobody.
    Nobody,
    /// It is traced already, by this process.
    Traced(u32, String),
    /// A filter of system calls or a security module; its name where it is known.
    Policy(Option<String>),
}

impl fmt::Display for Denied {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { theirs, ours } => {
                let (first, rest) = theirs.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
                match rest.iter().find(|user| **user != first) {
                    None => write!(formatter, "it belongs to user {first}, and this is user {ours}"),
                    Some(other) => write!(formatter, "it runs as users {first} and {other}, and this is user {ours}"),
                }
            }
            Self::Group => formatter.write_str("it runs as another group than this user's"),
            Self::NotDumpable => formatter.write_str("it is not dumpable: it has changed users or asked for privacy"),
            Self::Capabilities(mask) => {
                write!(formatter, "it has capabilities that this process lacks ({})", names(*mask))
            }
            Self::Namespace => formatter.write_str("it is in another user namespace, where this process has no rights"),
            Self::Hidden => formatter.write_str(
                "the kernel hides it from this process although it has CAP_SYS_PTRACE: it is in another user namespace, or \
                 a security module forbids it",
            ),
            Self::Ancestors => {
                formatter.write_str("Yama's ptrace_scope is 1, which allows only the processes that started it")
            }
            Self::Administrators => {
                formatter.write_str("Yama's ptrace_scope is 2, which allows only processes with CAP_SYS_PTRACE")
            }
            Self::Nobody => formatter.write_str("Yama's ptrace_scope is 3, which allows nobody until the next boot"),
            Self::Traced(tracer, name) => write!(formatter, "process {tracer} ({name}) traces it already"),
            Self::Policy(Some(name)) => write!(formatter, "{name} forbids it"),
            Self::Policy(None) => formatter.write_str("a security module or a filter of system calls forbids it"),
        }
    }
}

impl Denied {
    /// What to do about it, one line.
    pub fn hint(&self) -> String {
        let capable = "give this process CAP_SYS_PTRACE: sudo, docker --cap-add=SYS_PTRACE, or in Kubernetes \
                       securityContext.capabilities.add: [SYS_PTRACE]";
        let prepared = "start it under `oomph run`, which opens a door that needs no permission";
        match self {
            Self::User { theirs, .. } => {
                format!(
                    "run oomph attach as that user (sudo -u '#{}') or as root",
                    theirs.first().copied().unwrap_or(0)
                )
            }
            Self::Group => format!("run oomph attach with the same groups as the process, or {capable}"),
            Self::NotDumpable | Self::Capabilities(_) => capable.to_owned(),
            Self::Namespace | Self::Hidden => {
                "run oomph attach inside that container, or as root of the host".to_owned()
            }
            Self::Ancestors => format!(
                "as root: sudo oomph attach, or sysctl kernel.yama.ptrace_scope=0 until the next boot; in a container \
                 --cap-add=SYS_PTRACE; next time {prepared}"
            ),
            Self::Administrators => format!("{capable}; next time {prepared}"),
            Self::Nobody => prepared.to_owned(),
            Self::Traced(..) => "end the debugger or profiler that traces it (strace, gdb, py-spy)".to_owned(),
            Self::Policy(_) => format!("{capable}; next time {prepared}"),
        }
    }
}

/// What the kernel's decision depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Yama's scope; `None` without Yama.
    pub yama: Option<u8>,
    /// The real user of this process.
    pub our_user: u32,
    /// The real group of this process.
    pub our_group: u32,
    /// The effective capabilities of this process.
    pub our_capabilities: u64,
    /// Real, effective and saved user of the target.
    pub their_users: Vec<u32>,
    /// Real, effective and saved group of the target.
    pub their_groups: Vec<u32>,
    /// The capabilities that the target may use.
    pub their_capabilities: u64,
    /// Whether the target may be dumped, as the owner of its files shows it.
    pub is_dumpable: bool,
    /// Whether this process is an ancestor of the target.
    pub is_ancestor: bool,
    /// Whether both are in the same user namespace, where that can be seen.
    pub is_same_namespace: Option<bool>,
    /// Who traces the target.
    pub tracer: Option<(u32, String)>,
    /// Whether this process runs under a filter of system calls.
    pub is_filtered: bool,
    /// A security module that confines this process.
    pub module: Option<String>,
}

impl Facts {
    /// Collects them for a process.
    pub fn of(pid: u32) -> Self {
        use std::os::unix::fs::MetadataExt as _;

        let ours = Status::read(&process::folder(std::process::id())).unwrap_or_default();
        let theirs = Status::read(&process::folder(pid)).unwrap_or_default();
        let first = |status: &Status, name: &str| status.numbers(name).first().copied().unwrap_or(0);
        let three = |name: &str| theirs.numbers(name).into_iter().take(3).collect::<Vec<_>>();
        let tracer = theirs.number("TracerPid").and_then(|tracer| u32::try_from(tracer).ok()).filter(|pid| *pid > 0);
        let namespace = |pid: u32| fs::read_link(process::folder(pid).join("ns/user")).ok();
        let both = namespace(std::process::id()).zip(namespace(pid));
        let owner = fs::metadata(process::folder(pid).join("environ")).map(|found| found.uid());
        let effective = theirs.numbers("Uid").get(1).copied();
        let confined = fs::read_to_string("/proc/self/attr/current").unwrap_or_default();
        Self {
            yama: fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            our_user: first(&ours, "Uid"),
            our_group: first(&ours, "Gid"),
            our_capabilities: ours.mask("CapEff"),
            their_users: three("Uid"),
            their_groups: three("Gid"),
            their_capabilities: theirs.mask("CapPrm"),
            // The files of a process that may not be dumped belong to root.
            is_dumpable: owner.ok().is_none_or(|owner| Some(owner) == effective),
            is_ancestor: ancestors(pid).contains(&std::process::id()),
            is_same_namespace: both.map(|(ours, theirs)| ours == theirs),
            tracer: tracer.map(|tracer| (tracer, name_of(tracer))),
            is_filtered: ours.number("Seccomp").is_some_and(|mode| mode == 2),
            module: module(confined.trim_end_matches(['\0', '\n'])),
        }
    }

    /// The reason for which the kernel refuses, given that it does.
    pub fn reason(&self) -> Denied {
        let is_capable = self.our_capabilities >> CAP_SYS_PTRACE & 1 == 1;
        if let Some((tracer, name)) = &self.tracer {
            return Denied::Traced(*tracer, name.clone());
        }
        if !is_capable {
            if self.their_users.iter().any(|user| *user != self.our_user) {
                return Denied::User { theirs: self.their_users.clone(), ours: self.our_user };
            }
            if self.their_groups.iter().any(|group| *group != self.our_group) {
                return Denied::Group;
            }
            if !self.is_dumpable {
                return Denied::NotDumpable;
            }
        }
        if self.is_same_namespace == Some(false) {
            return Denied::Namespace;
        }
        if is_capable && self.is_same_namespace.is_none() {
            return Denied::Hidden;
        }
        let lacking = self.their_capabilities & !self.our_capabilities;
        if !is_capable && lacking != 0 {
            return Denied::Capabilities(lacking);
        }
        match self.yama {
            Some(1) if !is_capable && !self.is_ancestor => Denied::Ancestors,
            Some(2) if !is_capable => Denied::Administrators,
            Some(3..) => Denied::Nobody,
            _ if self.is_filtered => Denied::Policy(Some("a filter of system calls (seccomp)".to_owned())),
            _ => Denied::Policy(self.module.clone()),
        }
    }
}

/// The security module that confines a process, by what `/proc/self/attr/current` says.
fn module(confined: &str) -> Option<String> {
    match confined {
        "" | "unconfined" => None,
        // SELinux labels have four parts.
        label if label.matches(':').count() >= 3 && label.contains("unconfined_t") => None,
        label if label.matches(':').count() >= 3 => Some(format!("SELinux (as {label})")),
        profile => Some(format!("the AppArmor profile {profile}")),
    }
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(process::folder(pid).join("comm")).map_or_else(|_| "?".into(), |name| name.trim().to_owned())
}

fn ancestors(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut at = pid;
    while let Some(parent) = process::parent(at).filter(|parent| *parent > 0 && !found.contains(parent)) {
        found.push(parent);
        at = parent;
    }
    found
}

/// Asks the kernel, and if it refuses says why.
///
/// # Errors
/// The reason of the refusal.
pub fn check(pid: u32) -> Result<(), Denied> {
    let facts = Facts::of(pid);
    if facts.tracer.is_some() {
        return Err(facts.reason());
    }
    let address = process::mappings(pid)
        .ok()
        .and_then(|mappings| mappings.iter().find(|mapping| mapping.readable && mapping.inode > 0).map(|at| at.start));
    let mut byte = [0];
    // Without the list of its memory any address will do: permission is checked before the address.
    let remote = RemoteIoVec { base: usize::try_from(address.unwrap_or(0x1000)).unwrap_or(0x1000), len: 1 };
    match process_vm_readv(nix_pid(pid), &mut [std::io::IoSliceMut::new(&mut byte)], &[remote]) {
        Err(Errno::EPERM | Errno::EACCES) => Err(facts.reason()),
        Err(Errno::ENOSYS) => Err(Denied::Policy(Some("the kernel's configuration".to_owned()))),
        _ => Ok(()),
    }
}

/// The capabilities of a mask by name: the first two, and how many more there are.
fn names(mask: u64) -> String {
    let bits = (0..64).filter(|bit| mask >> bit & 1 == 1);
    let named: Vec<String> =
        bits.map(|bit| NAMES.get(bit).map_or_else(|| format!("bit {bit}"), |name| format!("CAP_{name}"))).collect();
    match &named[..] {
        [first, second, _, ..] => format!("{first}, {second} and {} more", named.len() - 2),
        few => few.join(" and "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes of the same ordinary user.
    fn ordinary() -> Facts {
        Facts {
            our_user: 1000,
            our_group: 1000,
            their_users: vec![1000; 3],
            their_groups: vec![1000; 3],
            is_dumpable: true,
            is_same_namespace: Some(true),
            ..Facts::default()
        }
    }

    #[test]
    fn yama_is_named_with_its_scope() {
        let of = |scope| Facts { yama: Some(scope), ..ordinary() }.reason();
        assert_eq!((of(1), of(2), of(3)), (Denied::Ancestors, Denied::Administrators, Denied::Nobody));
        assert!(of(1).to_string().contains("ptrace_scope is 1") && of(1).hint().contains("kernel.yama.ptrace_scope=0"));
        assert!(of(2).hint().contains("SYS_PTRACE"));
        assert!(!of(3).hint().contains("sudo"), "root cannot either");
        let ancestor = Facts { yama: Some(1), is_ancestor: true, ..ordinary() };
        assert_eq!(ancestor.reason(), Denied::Policy(None));
        let capable = Facts { yama: Some(2), our_capabilities: 1 << CAP_SYS_PTRACE, ..ordinary() };
        assert_eq!(capable.reason(), Denied::Policy(None));
    }

    #[test]
    fn the_kernels_own_order_is_kept() {
        let foreign = Facts { their_users: vec![7; 3], yama: Some(3), ..ordinary() };
        assert_eq!(foreign.reason(), Denied::User { theirs: vec![7; 3], ours: 1000 });
        assert!(foreign.reason().hint().contains("sudo -u '#7'"));
        let changed = Facts { their_users: vec![1000, 0, 0], ..ordinary() };
        assert_eq!(changed.reason().to_string(), "it runs as users 1000 and 0, and this is user 1000");
        assert_eq!(Facts { their_groups: vec![7; 3], ..ordinary() }.reason(), Denied::Group);
        assert_eq!(Facts { is_dumpable: false, ..ordinary() }.reason(), Denied::NotDumpable);
        assert_eq!(
            Facts { their_capabilities: 6, our_capabilities: 2, ..ordinary() }.reason(),
            Denied::Capabilities(4)
        );
        let lacking = |mask| Denied::Capabilities(mask).to_string();
        assert_eq!(lacking(1 << 19), "it has capabilities that this process lacks (CAP_SYS_PTRACE)");
        assert_eq!(lacking(7), "it has capabilities that this process lacks (CAP_CHOWN, CAP_DAC_OVERRIDE and 1 more)");
        assert_eq!(lacking(1 << 63), "it has capabilities that this process lacks (bit 63)");
        assert_eq!(Facts { is_same_namespace: Some(false), ..ordinary() }.reason(), Denied::Namespace);
        let contained = Facts { is_same_namespace: None, our_capabilities: 1 << CAP_SYS_PTRACE, ..ordinary() };
        assert_eq!(contained.reason(), Denied::Hidden);
        let traced = Facts { tracer: Some((5, "strace".into())), yama: Some(1), ..ordinary() };
        assert_eq!(traced.reason().to_string(), "process 5 (strace) traces it already");
        let filtered = Facts { is_filtered: true, ..ordinary() };
        assert!(filtered.reason().to_string().contains("seccomp"));
    }

    #[test]
    fn security_modules_are_named() {
        assert_eq!(module("unconfined"), None);
        assert_eq!(module("docker-default (enforce)"), Some("the AppArmor profile docker-default (enforce)".into()));
        assert_eq!(module("unconfined_u:unconfined_r:unconfined_t:s0"), None);
        assert!(module("system_u:system_r:container_t:s0").unwrap().contains("SELinux"));
    }

    /// A child of this process: allowed under Yama's scope 0 and 1, whoever runs the test.
    #[test]
    fn a_child_may_be_traced() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let allowed = check(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(allowed.is_ok() || matches!(allowed, Err(Denied::Administrators | Denied::Nobody | Denied::Policy(_))));
    }
}

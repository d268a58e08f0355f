//! Builds the new root: an overlay over everything that can be written, while what talks to the kernel stays unchanged.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, CWD, FileType, Mode, StatVfsMountFlags, access, mknodat, statfs, statvfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount};
use rustix::process::{getegid, geteuid};

use crate::mounts::{Mount, Mounts};
use crate::overlay::{self, Frame, UPPER, imitate};
use crate::{Made, Plan, Record, own};

/// Folders that are the kernel's even where nothing is mounted there.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Below `/proc`, what is of the whole machine and can be changed by root.
const SETTINGS: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// Where processes share memory by name.
const SHARED_MEMORY: &str = "/dev/shm";

/// A folder with more entries than this is not taken apart.
const MOST_ENTRIES: usize = 4096;

/// A file that cannot be covered with its folder is copied up to this size, so that it can be written.
const LARGEST_COPY: u64 = 1 << 20;

/// Folders in which sockets and pipes of others lie, searched one level deep.
const DOORS: [&str; 4] = ["/run", "/tmp", "/tmp/.X11-unix", "/var/run"];

/// No more entries than this are looked at in the search for sockets and pipes.
const MOST_DOORS: usize = 2048;

/// A view that is being built below a folder of its own.
pub(crate) struct Cover<'a> {
    plan: &'a Plan,
    mounts: Mounts,
    frame: Frame,
    root: PathBuf,
    record: Record,
    stores: usize,
    /// The overlays of the outer view.
    below: Vec<(PathBuf, PathBuf)>,
}

impl<'a> Cover<'a> {
    pub(crate) fn new(plan: &'a Plan, made: Made) -> io::Result<Self> {
        let mounts = Mounts::below(&plan.base)?;
        let below = match &plan.below {
            Some(path) => Record::from_bytes(&fs::read(plan.real(path))?)?.overlays,
            None => Vec::new(),
        };
        let place = plan.real(&plan.disk).join("frame");
        fs::create_dir_all(&place)?;
        mount("tmpfs", &place, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=16m")?;
        let frame = Frame::new(place)?;
        let root = frame.path.join("root");
        fs::create_dir(&root)?;
        Ok(Self { plan, mounts, frame, root, record: Record::new(made), stores: 0, below })
    }

    /// Covers everything.
    pub(crate) fn all(&mut self) -> io::Result<()> {
        self.place(Path::new("/"))?;
        if self.record.made == Made::UserNamespace {
            let own = if geteuid().is_root() { Vec::new() } else { own::folders(&self.plan.base) };
            let likely: Vec<&PathBuf> = self.plan.likely.iter().chain(&own).collect();
            likely.iter().for_each(|path| self.make_writable(path));
            let directory = fs::metadata(self.real(&self.plan.directory))?;
            let is_own = (directory.uid(), directory.gid()) == (geteuid().as_raw(), getegid().as_raw());
            self.record.whole = is_own && likely.iter().all(|path| own::is_own(&self.real(path)));
        }
        let directory = &self.plan.directory;
        if self.record.read_only.iter().any(|place| directory.starts_with(place)) {
            self.record.whole = false;
        }
        if !self.at(directory).is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        for path in &self.plan.open {
            self.bind_if_there(path, path);
        }
        for (ours, place) in &self.plan.instead {
            self.bind_if_there(ours, place);
        }
        self.open_doors();
        if let Some((ours, place)) = &self.plan.tool {
            self.show_tool(ours, place);
        }
        self.hide()?;
        // What is written is seen in its place, and nowhere else.
        let empty = self.frame.path.join("empty");
        for store in [&self.plan.disk, &self.plan.memory] {
            let at = self.at(store);
            if at.is_dir() {
                mount_bind_recursive(&empty, at)?;
            }
        }
        Ok(())
    }

    /// The new root, the folder for the old one, and what was made.
    pub(crate) fn finish(self) -> io::Result<(PathBuf, Option<PathBuf>, Record)> {
        let old = if self.plan.keep_real {
            fs::create_dir(self.frame.path.join("empty/real"))?;
            Some(self.at(&self.plan.disk).join("real"))
        } else {
            None
        };
        Ok((self.root, old, self.record))
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.plan.real(path)
    }

    /// Where a path lies in the new root.
    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Shows a place in the new root, with everything that is mounted below it.
    fn place(&mut self, path: &Path) -> io::Result<()> {
        let (real, at) = (self.real(path), self.at(path));
        let mount = self.mounts.at(path);
        if KERNEL.iter().any(|kernel| path == Path::new(kernel)) || mount.is_some_and(Mount::is_kernel) {
            mount_bind_recursive(&real, &at)?;
            if geteuid().is_root() {
                self.close_settings(path)?;
            }
            let shared = Path::new(SHARED_MEMORY);
            if shared.parent() == Some(path) && self.mounts.at(shared).is_none() && self.at(shared).is_dir() {
                self.fresh_memory(shared)?;
            }
            // Nothing below these is a file of a user.
            let none = path.starts_with("/proc") || path.starts_with("/sys");
            return if none { Ok(()) } else { self.inner(path, is_users) };
        }
        if mount.is_some_and(|mount| mount.read_only) {
            mount_bind_recursive(&real, &at)?;
            return self.inner(path, is_users);
        }
        if !real.is_dir() {
            return self.read_only(path);
        }
        match self.overlay(path) {
            Ok(()) => self.inner(path, |_| true),
            // The kernel shows nothing of a folder on which something is mounted to a user namespace, which could see
            // what is below the mount. Its entries are shown one by one then.
            // Shared memory belongs to running programs, of which this one has none yet: a fresh one is as good.
            Err(_) if path == Path::new(SHARED_MEMORY) => self.fresh_memory(path),
            Err(_) if path == Path::new("/") || !self.mounts.children(path).is_empty() => self.entries(path),
            Err(_) => self.read_only(path),
        }
    }

    fn fresh_memory(&self, path: &Path) -> io::Result<()> {
        Ok(mount("tmpfs", self.at(path), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=1777")?)
    }

    /// Makes what only root can change in an interface of the kernel read-only: devices stay usable, what a process says
    /// of itself stays writable, and settings of the machine and new names among devices are neither.
    fn close_settings(&self, path: &Path) -> io::Result<()> {
        if self.mounts.at(path).is_some_and(Mount::is_of_processes) {
            for name in SETTINGS {
                let at = self.at(&path.join(name));
                if at.exists() {
                    mount_bind_recursive(&at, &at)?;
                    remount_read_only(&at)?;
                }
            }
            return Ok(());
        }
        let inside = self.mounts.below_place(path).filter(|mount| mount.is_kernel() && !mount.is_talk());
        for mount in inside {
            remount_read_only(&self.at(&mount.place))?;
        }
        if self.mounts.at(path).is_some_and(Mount::is_talk) { Ok(()) } else { remount_read_only(&self.at(path)) }
    }

    /// Shows what is mounted below a place.
    fn inner(&mut self, path: &Path, wanted: fn(&Mount) -> bool) -> io::Result<()> {
        for child in self.mounts.children(path) {
            if self.mounts.at(&child).is_some_and(wanted) {
                // A mount point that was removed from the view is nothing that could be written to.
                if self.at(&child).exists() {
                    self.place(&child)?;
                }
            } else {
                self.inner(&child, is_users)?;
            }
        }
        Ok(())
    }

    fn overlay(&mut self, path: &Path) -> io::Result<()> {
        let (real, at) = (self.real(path), self.at(path));
        let below = self.below.iter().find(|(place, _)| place == path).map(|(_, store)| self.real(store).join(UPPER));
        let stores = [&self.plan.disk, &self.plan.memory];
        let first = usize::from(in_memory(&real));
        let mut failure = io::Error::from(io::ErrorKind::Unsupported);
        for index in [first, 1 - first] {
            let store = stores[index].join(self.stores.to_string());
            self.stores += 1;
            let ours = self.real(&store);
            match overlay::cover(&mut self.frame, self.record.made, &real, below.as_deref(), &ours, &at) {
                Ok(()) => {
                    self.record.overlays.push((path.to_owned(), store));
                    return Ok(());
                }
                Err(error) => {
                    let _ = fs::remove_dir_all(&ours);
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    /// Shows a place that can be read only.
    fn read_only(&mut self, path: &Path) -> io::Result<()> {
        let (real, at) = (self.real(path), self.at(path));
        mount_bind_recursive(&real, &at)?;
        if let Err(error) = remount_read_only(&at) {
            unmount(&at, UnmountFlags::DETACH)?;
            return Err(error);
        }
        self.record.read_only.push(path.to_owned());
        self.inner(path, is_users)
    }

    /// Shows a folder by its entries, in a folder of ours.
    fn entries(&mut self, path: &Path) -> io::Result<()> {
        let (real, at) = (self.real(path), self.at(path));
        mount("tmpfs", &at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0755,size=64m")?;
        for (index, entry) in fs::read_dir(&real)?.enumerate() {
            if index >= MOST_ENTRIES {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            let entry = entry?;
            let kind = entry.file_type()?;
            let (from, to) = (entry.path(), at.join(entry.file_name()));
            if kind.is_symlink() {
                symlink(fs::read_link(&from)?, &to)?;
            } else if kind.is_dir() {
                fs::create_dir(&to)?;
                // What cannot be shown is left empty.
                let _ = self.place(&path.join(entry.file_name()));
            } else {
                self.entry(&path.join(entry.file_name()), kind.is_file())?;
            }
        }
        imitate(&real, &at);
        if access(&real, Access::WRITE_OK).is_err() {
            let mode = fs::metadata(&at)?.permissions().mode();
            fs::set_permissions(&at, Permissions::from_mode(mode & 0o7555))?;
        }
        Ok(())
    }

    /// Shows a file, a socket or the like in a folder of ours.
    fn entry(&mut self, path: &Path, is_file: bool) -> io::Result<()> {
        let (from, to) = (self.real(path), self.at(path));
        let small = fs::symlink_metadata(&from).is_ok_and(|metadata| metadata.len() <= LARGEST_COPY);
        if is_file && small && self.mounts.at(path).is_none() && fs::copy(&from, &to).is_ok() {
            imitate(&from, &to);
            return Ok(());
        }
        File::create(&to)?;
        if is_file {
            let _ = self.read_only(path);
        } else {
            let _ = mount_bind_recursive(&from, &to);
        }
        Ok(())
    }

    /// Shows a program of ours, where there is one. A view without it is a view all the same.
    fn show_tool(&self, ours: &Path, place: &Path) {
        let (from, to) = (self.real(ours), self.at(place));
        if !from.is_file() {
            return;
        }
        if fs::symlink_metadata(&to).is_err() {
            let Some(folder) = place.parent().filter(|folder| self.at(folder).is_dir()) else { return };
            if self.record.made == Made::UserNamespace {
                self.make_writable(folder);
            }
            // Something has to be there for a mount.
            if File::create(&to).is_err() {
                return;
            }
        }
        let _ = mount_bind(&from, &to);
    }

    /// Puts a socket that nobody listens on in place of each hidden device: not even root can open one.
    fn hide(&self) -> io::Result<()> {
        if self.plan.hidden.is_empty() {
            return Ok(());
        }
        let socket = self.frame.path.join("hidden");
        mknodat(CWD, &socket, FileType::Socket, Mode::empty(), 0)?;
        let empty = self.frame.path.join("empty");
        for path in &self.plan.hidden {
            let at = self.at(path);
            if at.is_dir() {
                mount_bind(&empty, at)?;
            } else if at.exists() {
                mount_bind(&socket, at)?;
            }
        }
        Ok(())
    }

    fn bind_if_there(&self, ours: &Path, place: &Path) {
        let (from, to) = (self.real(ours), self.at(place));
        if from.is_dir() && fs::create_dir_all(&to).is_ok() {
            // Without what is mounted below, which is the view itself in the case of its own folder, where that is allowed.
            let _ = mount_bind(&from, &to).or_else(|_| mount_bind_recursive(&from, &to));
        }
    }

    /// Makes every folder on a path ours where it belongs to a user that this user namespace does not know: the kernel
    /// would have to give that user a copy of it when something is written below, and cannot.
    fn make_writable(&self, path: &Path) {
        let Some((place, store)) = self.record.overlays.iter().rfind(|(place, _)| path.starts_with(place)) else {
            return;
        };
        let Ok(inner) = path.strip_prefix(place) else { return };
        let (mut real, mut ours) = (self.real(place), self.real(store).join(UPPER));
        for part in inner.components() {
            let Component::Normal(name) = part else { return };
            real.push(name);
            ours.push(name);
            // A link, or a folder that the user cannot write to, is not one that would have to be copied.
            if !fs::symlink_metadata(&real).is_ok_and(|metadata| metadata.is_dir()) {
                return;
            }
            match fs::create_dir(&ours) {
                Ok(()) => imitate(&real, &ours),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(_) => return,
            }
        }
    }

    /// Shows sockets and pipes themselves, where programs look for them.
    fn open_doors(&self) {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let folders = DOORS.iter().map(PathBuf::from).chain(runtime).chain([self.plan.directory.clone()]);
        let mut looked = 0;
        for folder in folders {
            let Ok(entries) = fs::read_dir(self.real(&folder)) else { continue };
            for entry in entries.flatten() {
                looked += 1;
                if looked > MOST_DOORS {
                    return;
                }
                let Ok(kind) = entry.file_type() else { continue };
                if !kind.is_socket() && !kind.is_fifo() {
                    continue;
                }
                let at = self.at(&folder.join(entry.file_name()));
                if at.exists() {
                    let _ = mount_bind_recursive(entry.path(), at);
                }
            }
        }
    }
}

/// Takes the right to write from a mount.
fn remount_read_only(at: &Path) -> io::Result<()> {
    let kept = statvfs(at)?.f_flag;
    // The kernel refuses to take these off a mount that came from outside, and would where they are left out.
    let pairs = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (has, keep) in pairs {
        if kept.contains(has) {
            flags |= keep;
        }
    }
    Ok(mount_remount(at, flags, "")?)
}

/// Whether files of a user can lie and be changed there.
fn is_users(mount: &Mount) -> bool {
    !mount.is_kernel() && !mount.read_only
}

/// Whether a folder is in memory (`TMPFS_MAGIC` and `RAMFS_MAGIC` of the kernel's headers).
fn in_memory(path: &Path) -> bool {
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss, reason = "the type differs between architectures")]
    statfs(path).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

//! What is said of a file (mode, owner, times, attributes), where a fence keeps writes away.
//!
//! Landlock has no rule for it, so a child's `touch` or `chmod` would change a file of the user's that it cannot write to.
//! Behind a fence these functions of the C library leave such a file unchanged and report success, as the hook's overlay
//! does in Python: nothing that a program computes depends on them. Files of the run are changed as ever. Without a fence
//! each function is the C library's own. A program that makes the system calls itself is not reached.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};

use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, gid_t, mode_t, size_t, timespec, timeval, uid_t, utimbuf};
use oomph_private::{FENCE_FILE, PLAN_FILE, Plan};

use crate::books;

/// What a fence leaves open besides the places of its plan.
const OPEN: [&str; 2] = ["/dev", "/proc"];

/// The plan of the fence that this process is behind. It is read each time: a child of a fork server is behind another
/// than the server.
fn fence() -> Option<Plan> {
    let folder = PathBuf::from(books::trusted_folder()?);
    if !folder.join(FENCE_FILE).exists() {
        return None;
    }
    Plan::from_bytes(&fs::read(folder.join(PLAN_FILE)).ok()?).ok()
}

/// Whether a fence with this plan keeps a file unchanged. What has no absolute path is a pipe or the like.
fn keeps(plan: &Plan, place: &Path) -> bool {
    let open = plan.open.iter().chain([&plan.disk, &plan.memory]).map(PathBuf::as_path);
    place.is_absolute() && !open.chain(OPEN.map(Path::new)).any(|open| place.starts_with(open))
}

/// A file as a call names it.
enum Named {
    Open(c_int),
    /// A path, the folder that it starts from, and whether a link at its end stands for its target.
    Path(c_int, *const c_char, bool),
}

impl Named {
    /// Where the file lies, without links.
    fn place(&self) -> Option<PathBuf> {
        let of = |held: c_int| fs::read_link(format!("/proc/self/fd/{held}")).ok();
        match *self {
            Self::Open(held) => of(held),
            // `utimensat` without a path means the folder itself.
            Self::Path(held, path, _) if path.is_null() => of(held),
            Self::Path(folder, path, follow) => {
                let flags = libc::O_PATH | libc::O_CLOEXEC | if follow { 0 } else { libc::O_NOFOLLOW };
                // SAFETY: the path is the caller's, a text that ends with a zero byte.
                let held = unsafe { libc::openat(folder, path, flags) };
                let place = (held >= 0).then(|| of(held))?;
                // SAFETY: it was opened above.
                unsafe { libc::close(held) };
                place
            }
        }
    }

    /// Whether the call is to change nothing. `errno` is preserved.
    fn is_kept(&self) -> bool {
        // SAFETY: `errno` has a place in every thread.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        let before = unsafe { *errno };
        let kept = fence().is_some_and(|plan| self.place().is_some_and(|place| keeps(&plan, &place)));
        // SAFETY: as above.
        unsafe { *errno = before };
        kept
    }
}

/// The C library's own function of a name; null where there is none.
fn next(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// Defines functions of the C library that change nothing of a file that is kept.
macro_rules! keeping {
    ($($name:ident($($argument:ident: $type:ty),*) of $file:expr;)*) => {$(
        /// The C library's function of that name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            if $file.is_kept() {
                return 0;
            }
            let next = next(const {
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            });
            if next.is_null() {
                // SAFETY: `errno` has a place in every thread.
                unsafe { *libc::__errno_location() = libc::ENOSYS };
                return -1;
            }
            // SAFETY: a function of that name in the C library has these arguments, which are the caller's.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(next)($($argument),*) }
        }
    )*};
}

keeping! {
    chmod(path: *const c_char, mode: mode_t) of Named::Path(AT_FDCWD, path, true);
    fchmod(file: c_int, mode: mode_t) of Named::Open(file);
    fchmodat(folder: c_int, path: *const c_char, mode: mode_t, flags: c_int) of Named::Path(folder, path, follows(flags));
    chown(path: *const c_char, user: uid_t, group: gid_t) of Named::Path(AT_FDCWD, path, true);
    lchown(path: *const c_char, user: uid_t, group: gid_t) of Named::Path(AT_FDCWD, path, false);
    fchown(file: c_int, user: uid_t, group: gid_t) of Named::Open(file);
    fchownat(folder: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int)
        of Named::Path(folder, path, follows(flags));
    utime(path: *const c_char, times: *const utimbuf) of Named::Path(AT_FDCWD, path, true);
    utimes(path: *const c_char, times: *const timeval) of Named::Path(AT_FDCWD, path, true);
    lutimes(path: *const c_char, times: *const timeval) of Named::Path(AT_FDCWD, path, false);
    futimes(file: c_int, times: *const timeval) of Named::Open(file);
    futimesat(folder: c_int, path: *const c_char, times: *const timeval) of Named::Path(folder, path, true);
    futimens(file: c_int, times: *const timespec) of Named::Open(file);
    utimensat(folder: c_int, path: *const c_char, times: *const timespec, flags: c_int)
        of Named::Path(folder, path, follows(flags));
    setxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        of Named::Path(AT_FDCWD, path, true);
    lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int)
        of Named::Path(AT_FDCWD, path, false);
    fsetxattr(file: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) of Named::Open(file);
    removexattr(path: *const c_char, name: *const c_char) of Named::Path(AT_FDCWD, path, true);
    lremovexattr(path: *const c_char, name: *const c_char) of Named::Path(AT_FDCWD, path, false);
    fremovexattr(file: c_int, name: *const c_char) of Named::Open(file);
}

fn follows(flags: c_int) -> bool {
    flags & AT_SYMLINK_NOFOLLOW == 0
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_a_fence_leaves_open_is_changed() {
        let plan = Plan { open: vec!["/cache".into()], disk: "/run/store".into(), ..Plan::default() };
        for (place, kept) in [
            ("/home/me/file", true),
            ("/cached", true),
            ("/cache/file", false),
            ("/run/store/0", false),
            ("/dev/null", false),
            ("pipe:[12]", false),
        ] {
            assert_eq!(keeps(&Plan { memory: "/run/store".into(), ..plan.clone() }, Path::new(place)), kept, "{place}");
        }
    }

    #[test]
    fn files_are_found_as_calls_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(folder.path()).unwrap();
        let (file, link) = (real.join("file"), real.join("link"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let text = |path: &Path| std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let (by_link, held) = (text(&link), fs::File::open(&file).unwrap());
        let at = fs::File::open(&real).unwrap();
        assert_eq!(Named::Path(AT_FDCWD, by_link.as_ptr(), true).place(), Some(file.clone()));
        assert_eq!(Named::Path(AT_FDCWD, by_link.as_ptr(), false).place(), Some(link));
        assert_eq!(Named::Path(at.as_raw_fd(), c"file".as_ptr(), true).place(), Some(file.clone()));
        assert_eq!(Named::Open(held.as_raw_fd()).place(), Some(file.clone()));
        assert_eq!(Named::Path(AT_FDCWD, c"/nowhere/at all".as_ptr(), true).place(), None);
        // Without a fence the C library does it.
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { chmod(text(&file).as_ptr(), 0o640) }, 0);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        // SAFETY: as above.
        assert_eq!(unsafe { chmod(c"/nowhere/at all".as_ptr(), 0o640) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
    }
}

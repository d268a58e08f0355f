//! Changes files in the ways of Rust's standard library: `ways list` prints their names, `ways NAME FILE FOLDER` does one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

type Way = fn(&Path, &Path) -> io::Result<()>;

const WAYS: [(&str, Way); 20] = [
    ("write", |file, _| fs::write(file, "changed")),
    ("create", |file, _| File::create(file)?.write_all(b"changed")),
    ("append", |file, _| OpenOptions::new().append(true).open(file)?.write_all(b"changed")),
    ("seek_and_write", |file, _| {
        let mut held = OpenOptions::new().read(true).write(true).open(file)?;
        held.seek(SeekFrom::Start(2))?;
        held.write_all(b"XX")
    }),
    ("write_at", |file, _| OpenOptions::new().write(true).open(file)?.write_all_at(b"XX", 1)),
    ("set_len", |file, _| OpenOptions::new().write(true).open(file)?.set_len(1)),
    ("set_modified", |file, _| File::open(file)?.set_modified(SystemTime::UNIX_EPOCH)),
    ("set_permissions", |file, _| fs::set_permissions(file, Permissions::from_mode(0o700))),
    ("copy", |file, _| fs::copy("/bin/sh", file).map(drop)),
    ("copy_of_an_open_file", |file, _| io::copy(&mut File::open("/bin/sh")?, &mut File::create(file)?).map(drop)),
    ("rename", |file, folder| fs::rename(file, folder.join("renamed"))),
    ("rename_a_folder", |_, folder| fs::rename(folder, folder.with_extension("renamed"))),
    ("remove_file", |file, _| fs::remove_file(file)),
    ("remove_dir_all", |_, folder| fs::remove_dir_all(folder)),
    ("create_dir_all", |_, folder| fs::create_dir_all(folder.join("a/b/c"))),
    ("hard_link", |file, folder| fs::hard_link(file, folder.join("hard")).and_then(|()| fs::write(folder.join("hard"), "x"))),
    ("symlink", |file, folder| symlink(file, folder.join("soft")).and_then(|()| fs::write(folder.join("soft"), "x"))),
    ("listen", |_, folder| {
        std::env::set_current_dir(folder)?;
        UnixListener::bind("socket").map(drop)
    }),
    ("command", |file, _| {
        let done = Command::new("/bin/rm").arg(file).env_clear().status()?.success();
        if done { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
    }),
    ("thread", |file, _| {
        let file = file.to_owned();
        std::thread::spawn(move || fs::write(file, "changed")).join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }),
];

fn main() -> io::Result<()> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    match words.as_slice() {
        [name, file, folder] => match WAYS.iter().find(|(known, _)| name == known) {
            Some((_, does)) => does(Path::new(file), Path::new(folder)),
            None => Err(io::ErrorKind::NotFound.into()),
        },
        _ => {
            WAYS.iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
    }
}

//! Full disks: one line that says which and what to do, and nothing left behind. The disks are small ones in memory, in
//! a mount namespace of the fixture's own; where the system does not let us make one, the tests are passed over.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::{Place, text};

/// Mounts a disk of 8 MiB on each folder before `--`, or a full one where the folder's name says so, runs what follows,
/// and lists what is left on them.
const MOUNT: &str = r#"
while [ "$1" != -- ]; do
    mount -t tmpfs -o size=8m none "$1" || exit 77
    disks="$disks $1"
    case $1 in *-full) head -c 8m /dev/zero >"$1/fill" 2>/dev/null;; esac
    shift
done
shift
"$@"
status=$?
find $disks -mindepth 1 -maxdepth 2 ! -name fill ! -name CACHEDIR.TAG | sed 's/^/left: /' >&2
exit $status
"#;

/// The fixture's command with small disks in place of some folders.
fn on_small_disks(command: &Command, folders: &[PathBuf]) -> Option<Output> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh"]).args(folders).arg("--");
    unshare.arg(command.get_program()).args(command.get_args());
    unshare.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    unshare.current_dir(command.get_current_dir()?).stdin(std::process::Stdio::null());
    let output = unshare.output().ok().filter(|output| output.status.code() != Some(77));
    // `unshare` itself fails with 1, and says so, where user namespaces are forbidden.
    let output = output.filter(|output| !text(&output.stderr).starts_with("unshare:"));
    if output.is_none() {
        eprintln!("passed over: no disk can be mounted here");
    }
    output
}

fn folder(place: &Place, name: &str) -> PathBuf {
    let path = place.path(name);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_cache_without_room_for_the_runtime_is_named() {
    let place = Place::new();
    let cache = folder(&place, "cache-full");
    let mut command = place.fixture(&["--unpack", "--", "true"]);
    command.env("OOMPH_CACHE_DIR", &cache);
    let Some(output) = on_small_disks(&command, &[cache]) else { return };
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("no space is left") && message.contains("OOMPH_CACHE_DIR"), "{message}");
    assert_eq!(message.lines().filter(|line| !line.ends_with("/runtime")).count(), 1, "{message}");
    place.assert_no_run_folder();
}

#[test]
fn a_cache_that_fills_up_during_an_installation_is_named_and_emptied() {
    let place = Place::new();
    let cache = folder(&place, "cache");
    let mut command = place.fixture(&["--with=six", "--", "true"]);
    // An installer that stands for all: it makes a folder and writes until the disk is full.
    let uv = place.path("work").join("uv");
    let script = "#!/bin/sh\n[ $1 = --version ] && exit 0\nfor folder; do :; done\nmkdir -p \"$folder\"\n\
                  dd if=/dev/zero of=\"$folder/package\" bs=1M count=20\n";
    fs::write(&uv, script).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&uv).status().unwrap().success());
    command.env("UV", &uv);
    let Some(output) = on_small_disks(&command, &[cache]) else { return };
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("no space is left") && message.contains("OOMPH_CACHE_DIR"), "{message}");
    // The lock and the memory of the base are left, and no environment.
    assert!(
        message.lines().filter(|line| line.starts_with("left: ")).all(|line| !line.ends_with("/package")),
        "{message}"
    );
    place.assert_no_run_folder();
}

#[test]
fn a_run_folder_is_made_where_there_is_room() {
    let place = Place::new();
    let (runtime, shared_memory) = (folder(&place, "run-full"), PathBuf::from("/dev/shm"));
    let mut command = place.fixture(&["--", "sh", "-c", "echo $OOMPH_RUN"]);
    command.env("XDG_RUNTIME_DIR", &runtime);
    let Some(output) = on_small_disks(&command, &[runtime, shared_memory]) else { return };
    // The shared memory of a container is small and shared with DataLoader workers: it is passed over too.
    let expected = place.path("tmp");
    assert!(text(&output.stdout).starts_with(&*expected.to_string_lossy()), "{output:?}");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn no_room_for_a_run_folder_is_said() {
    let place = Place::new();
    let temporary = folder(&place, "tmp-full");
    let mut command = place.fixture(&["--", "true"]);
    command.env("XDG_RUNTIME_DIR", &temporary).env("TMPDIR", &temporary);
    let Some(output) = on_small_disks(&command, &[temporary, "/dev/shm".into()]) else { return };
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
    assert!(message.contains("no space is left") && message.contains("tmp-full"), "{message}");
    assert!(message.contains("point TMPDIR to a larger disk"), "{message}");
}

//! Environments made by `--with`, through the fixture. What needs a package index is passed over without one.

#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, signal, text, wait_for_end};

/// A package without dependencies, small enough to be written here as a wheel: a zip archive of stored files.
const MAKE_WHEEL: &str = r#"
import base64, hashlib, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1] + "/oomphtest-1.0-py3-none-any.whl", "w")
wheel.writestr("oomphtest.py", "def main():\n    print('hello from the package')\n")
for number in range(200):
    wheel.writestr(f"oomphmany/part{number}.py", f"number = {number}\n" * 50)
info = "oomphtest-1.0.dist-info/"
wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: oomphtest\nVersion: 1.0\n")
wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
wheel.writestr(info + "entry_points.txt", "[console_scripts]\noomphhello = oomphtest:main\n")
def row(name):
    digest = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(wheel.read(name))}\n"
wheel.writestr(info + "RECORD", "".join(map(row, wheel.namelist())) + info + "RECORD,,\n")
wheel.close()
"#;

const WHEEL: &str = "--with=./oomphtest-1.0-py3-none-any.whl";

fn place() -> Place {
    let place = Place::new();
    let done = Command::new("python3").args(["-c", MAKE_WHEEL]).arg(place.path("work")).status().unwrap();
    assert!(done.success());
    place
}

/// A folder for PATH with `python3` in it and nothing else: no uv.
fn only_python(place: &Place) -> PathBuf {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let folder = place.path("bin");
    fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(text(&found.stdout).trim(), folder.join("python3")).unwrap();
    folder
}

/// The places of environments: each holds a marker, and the environment that this names.
fn environments(place: &Place) -> Vec<PathBuf> {
    folders(&place.path("cache").join("environments"))
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

/// The only environment of the only place.
fn environment(place: &Place) -> PathBuf {
    let inner: Vec<PathBuf> = environments(place).iter().flat_map(|place| folders(place)).collect();
    assert_eq!(inner.len(), 1, "{inner:?}");
    inner.into_iter().next().unwrap()
}

#[test]
fn an_environment_is_made_once_and_reused() {
    let place = place();
    let show = "import os, sys, oomphtest; print(sys.prefix, os.environ['VIRTUAL_ENV'])";
    let first = place.run(&[WHEEL, "--", "python", "-c", show]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let made = text(&first.stderr);
    assert!(made.contains("making a Python 3") && made.contains("ready after"), "{made}");
    let environment = environment(&place);
    assert_eq!(text(&first.stdout), format!("{0} {0}\n", environment.display()));

    let second = place.run(&[WHEEL, "--", "python", "-c", show]);
    assert_eq!((&second.stdout, text(&second.stderr).as_str()), (&first.stdout, ""));
}

#[test]
fn programs_of_its_packages_are_found_first() {
    let place = place();
    let output = place.run(&[WHEEL, "--", "oomphhello"]);
    assert_eq!(text(&output.stdout), "hello from the package\n", "{}", text(&output.stderr));
    // Another program finds the environment's Python on PATH.
    let output = place.run(&[WHEEL, "--", "sh", "-c", "python3 -c 'import oomphtest; oomphtest.main()'"]);
    assert_eq!(text(&output.stdout), "hello from the package\n");
    // A Python that is named by its path stands for its version.
    let usual = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let output = place.run(&[WHEEL, "--", text(&usual.stdout).trim(), "-c", "import oomphtest; oomphtest.main()"]);
    assert_eq!(text(&output.stdout), "hello from the package\n", "{}", text(&output.stderr));
    let output = place.run(&[WHEEL, "--", "torchrum"]);
    assert!(text(&output.stderr).contains("add the package that brings it with --with"));
}

#[test]
fn two_runs_that_race_share_one_environment() {
    let place = place();
    let start =
        || place.fixture(&[WHEEL, "--", "oomphhello"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let runs: Vec<_> = [start(), start(), start()].into_iter().map(|run| run.wait_with_output().unwrap()).collect();
    let made = runs.iter().filter(|run| text(&run.stderr).contains("making a Python")).count();
    assert!(runs.iter().all(|run| text(&run.stdout) == "hello from the package\n"), "{runs:?}");
    assert_eq!((made, environments(&place).len()), (1, 1), "{runs:?}");
}

#[test]
fn a_half_made_environment_is_made_again() {
    let place = place();
    assert!(place.run(&[WHEEL, "--", "oomphhello"]).status.success());
    let first = environment(&place);
    fs::remove_file(environments(&place)[0].join("oomph-environment.json")).unwrap();
    fs::remove_file(first.join("bin/oomphhello")).unwrap();
    let again = place.run(&[WHEEL, "--", "oomphhello"]);
    assert_eq!(text(&again.stdout), "hello from the package\n", "{}", text(&again.stderr));
    assert!(!first.exists());
}

#[test]
fn a_damaged_environment_is_found_and_made_again() {
    let place = place();
    let run = || {
        let done = place.run(&[WHEEL, "--", "oomphhello"]);
        assert_eq!(text(&done.stdout), "hello from the package\n", "{}", text(&done.stderr));
        text(&done.stderr).contains("making a Python")
    };
    assert!(run() && !run());
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 5] = [
        // The interpreter that it was made with is gone.
        ("python", |path| {
            fs::remove_file(path.join("bin/python")).unwrap();
            std::os::unix::fs::symlink("/nowhere/python", path.join("bin/python")).unwrap();
        }),
        ("cut", |path| fs::write(site(path).join("oomphmany/part7.py"), "num").unwrap()),
        ("gone", |path| fs::remove_file(site(path).join("oomphtest.py")).unwrap()),
        ("script", |path| fs::remove_file(path.join("bin/oomphhello")).unwrap()),
        ("package", |path| fs::remove_dir_all(site(path).join("oomphtest-1.0.dist-info")).unwrap()),
    ];
    for (name, damage) in damages {
        damage(&environment(&place));
        assert!(run(), "{name} was not found");
        assert!(!run(), "{name} was found again");
    }
}

/// The packages of an environment.
fn site(environment: &Path) -> PathBuf {
    folders(&environment.join("lib")).pop().unwrap().join("site-packages")
}

/// However the making of an environment is broken off, the next run has a whole one, and nothing else is left.
/// `OOMPH_KILLS` asks for more than a few kills.
#[test]
fn kills_poison_nothing() {
    let asked = std::env::var("OOMPH_KILLS").ok().and_then(|text| text.parse().ok());
    let kills = asked.unwrap_or(if std::env::var_os("OOMPH_TESTS").is_some() { 6 } else { 2 });
    let place = place();
    let check = "import oomphtest, oomphmany.part0, oomphmany.part199; oomphtest.main()";
    let start = Instant::now();
    let ends_well = || {
        let done = place.run(&[WHEEL, "--", "python", "-c", check]);
        assert_eq!(text(&done.stdout), "hello from the package\n", "{}", text(&done.stderr));
    };
    ends_well();
    let usual = start.elapsed();
    let mut seed = u64::from(std::process::id()) | 1;
    for number in 0..kills {
        fs::remove_file(environments(&place)[0].join("oomph-environment.json")).unwrap();
        let mut run = place.fixture(&[WHEEL, "--", "python", "-c", check]);
        let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Xorshift: another moment each time, from the start to a little after the usual end.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        std::thread::sleep(usual.mul_f64((seed % 1100) as f64 / 1000.0));
        run.kill().unwrap();
        run.wait().unwrap();
        ends_well();
        let left: Vec<PathBuf> = folders(&environments(&place)[0]);
        assert_eq!(left.len(), 1, "after kill {number}: {left:?}");
    }
}

#[test]
fn a_new_environment_makes_room_but_not_at_the_cost_of_one_in_use() {
    let place = place();
    let script = "echo > ready; while ! [ -e go ]; do sleep 0.05; done";
    let mut user = place.fixture(&[WHEEL, "--", "sh", "-c", script]).stderr(Stdio::null()).spawn().unwrap();
    place.wait_for("ready");
    let first = environments(&place).pop().unwrap();
    let make_old = || {
        let lock = fs::File::open(first.with_extension("lock")).unwrap();
        lock.set_modified(std::time::SystemTime::now() - Duration::from_secs(31 * 24 * 60 * 60)).unwrap();
    };
    let copy = |name: &str| {
        let path = place.path("work").join(name);
        fs::create_dir(&path).unwrap();
        fs::copy(
            place.path("work").join("oomphtest-1.0-py3-none-any.whl"),
            path.join("oomphtest-1.0-py3-none-any.whl"),
        )
        .unwrap();
        format!("--with=./{name}/oomphtest-1.0-py3-none-any.whl")
    };
    make_old();
    assert!(place.run(&[&copy("second"), "--", "oomphhello"]).status.success());
    assert!(first.exists(), "it is in use");
    fs::write(place.path("work").join("go"), "").unwrap();
    assert!(wait_for_end(&mut user).success());
    make_old();
    let output = place.run(&[&copy("third"), "--", "oomphhello"]);
    assert!(text(&output.stderr).contains("removed 1 of the cache"), "{}", text(&output.stderr));
    assert!(!first.exists());
    assert_eq!(environments(&place).len(), 2);
}

#[test]
fn without_uv_pip_does_it() {
    let place = place();
    let path = only_python(&place);
    let output = place
        .fixture(&[WHEEL, "--", "python3", "-c", "import oomphtest; oomphtest.main()"])
        .env("PATH", &path)
        .env_remove("UV")
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "hello from the package\n", "{}", text(&output.stderr));
    assert!(environment(&place).join("bin/pip").exists());
    let compiled = folders(&environment(&place).join("lib"))[0].join("site-packages/__pycache__");
    assert!(fs::read_dir(&compiled).is_ok_and(|mut files| files.next().is_some()), "{} is empty", compiled.display());
}

#[test]
fn without_uv_and_venv_it_says_what_to_install() {
    let place = place();
    let path = only_python(&place);
    // A sitecustomize that hides the module is as good as a distribution that leaves it out.
    fs::write(
        place.path("work").join("sitecustomize.py"),
        "import sys\nclass Hide:\n    def find_spec(name, *rest):\n        if name == 'ensurepip': raise ImportError(name)\nsys.meta_path.insert(0, Hide)\n",
    )
    .unwrap();
    let output = place
        .fixture(&[WHEEL, "--", "python3", "-c", "1"])
        .env("PATH", &path)
        .env("PYTHONPATH", place.path("work"))
        .env_remove("UV")
        .output()
        .unwrap();
    let message = text(&output.stderr);
    assert!(message.contains("install uv") && message.contains("python3-venv"), "{message}");
    assert_eq!((message.lines().count(), output.status.code()), (1, Some(2)));
}

#[test]
fn failures_are_one_line_and_the_installers_last_words() {
    let place = place();
    fs::write(place.path("work").join("broken-1.0-py3-none-any.whl"), "no wheel").unwrap();
    let output = place.run(&["--with=./broken-1.0-py3-none-any.whl", "--", "python", "-c", "1"]);
    let message = text(&output.stderr);
    let line = message.lines().find(|line| line.contains("could not install")).unwrap_or_default();
    assert!(line.contains("broken-1.0"), "{message}");
    assert!(output.stdout.is_empty());
    assert!(environments(&place).is_empty(), "a failed environment is removed");
    for (with, expected) in [("-rreq.txt", "it is an option"), ("./missing", "there is no such file")] {
        let output = place.run(&[&format!("--with={with}"), "--", "python"]);
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn an_unusable_cache_is_named() {
    let place = place();
    let file = place.path("work").join("file");
    fs::write(&file, "").unwrap();
    let output = place.fixture(&[WHEEL, "--", "python"]).env("OOMPH_CACHE_DIR", file.join("cache")).output().unwrap();
    let message = text(&output.stderr);
    assert!(message.contains("cannot be used") && message.contains("OOMPH_CACHE_DIR"), "{message}");
    assert_eq!(message.lines().count(), 1);
}

/// An installer that never ends, and that ignores polite requests.
const SLOW_UV: &str = "#!/bin/sh\ncase $1 in --version) exit 0;; esac\ntrap '' INT TERM\necho $$ > uvpid\nsleep 600\n";

#[test]
fn an_interrupted_installation_leaves_no_process() {
    let place = place();
    let uv = place.path("slow-uv");
    fs::write(&uv, SLOW_UV).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&uv).status().unwrap().success());
    let mut fixture = place
        .fixture(&[WHEEL, "--", "oomphhello"])
        .env("UV", &uv)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let installer = place.wait_for_pid("uvpid");
    signal(i32::try_from(fixture.id()).unwrap(), "INT");
    let status = wait_for_end(&mut fixture);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(2));
    assert!(!Path::new(&format!("/proc/{installer}")).exists());
    place.assert_no_run_folder();
    assert!(place.run(&[WHEEL, "--", "oomphhello"]).status.success(), "the next run makes it again");
}

#[test]
fn a_package_of_the_index_is_installed() {
    let place = place();
    let output = place.run(&["--with=six", "--", "python", "-c", "import six; print(six.__name__)"]);
    if !output.status.success() {
        // Without a network there is nothing to test here; the message must still be a clear one.
        assert!(text(&output.stderr).contains("could not install six"), "{}", text(&output.stderr));
        return;
    }
    let again = place.run(&["--with= SIX", "--", "python", "-c", "import six; print(six.__name__)"]);
    assert_eq!(text(&again.stdout), "six\n");
    assert!(text(&again.stderr).is_empty(), "it was made twice: {}", text(&again.stderr));
}

//! Tests that a dry run changes nothing: `acceptance/programs/harm.py` changes files in every way that it knows, and
//! none of it is seen from outside, while the program itself sees all of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::again::tried;
use crate::binary;
use crate::run::{Run, TORCH_2_15, tree};

/// More files and folders than the program has ways.
const PLACES: usize = 260;

/// Fewer ways than this would show little. All but those that try to leave a view work, where their tools are there: a C++
/// compiler, Rust, Node and some commands.
const FEWEST_WAYS: usize = 140;

/// What the program tries to leave among devices.
const AMONG_DEVICES: &str = "/dev/harm-of-a-dry-run";

/// The program's last way takes effect this long after its end at the latest, if a process of it is still there.
const LAST_WAY: Duration = Duration::from_secs(3);

/// The ways of making a private view: as this user makes it, and as one does who may not mount. And the fence that takes
/// its place where the kernel gives none.
const FLOORS: [(&str, &str); 3] = [("as-this-user", ""), ("in-a-user-namespace", "user"), ("behind-a-fence", FENCE)];

const FENCE: &str = "fence";

/// One trial for each.
pub fn trials() -> Vec<Trial> {
    let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
    let changes = FLOORS.iter().map(|(name, floor)| {
        tried(format!("harm::nothing-is-changed-{name}"), move || nothing_is_changed(floor).map_err(failed))
    });
    let sent = tried("harm::nothing-is-sent", move || nothing_is_sent().map_err(failed));
    let forks = tried("harm::forked-children-have-no-card", move || forked_children_have_no_card().map_err(failed));
    let exports = FLOORS.iter().filter(|(_, floor)| *floor != FENCE).map(|(name, floor)| {
        tried(format!("harm::an-export-is-read-by-machine-code-{name}"), move || {
            an_export_is_read_by_machine_code(floor).map_err(failed)
        })
    });
    changes.chain(exports).chain([sent, forks]).collect()
}

/// A model that the program exports is there for a reader in C++, byte for byte, and is gone when the run has ended.
fn an_export_is_read_by_machine_code(floor: &str) -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.env("OOMPH_PRIVATE_VIEW", floor).args(["--no-probe", "--until-exit"]);
    let model = run.folder().join("model.pt");
    let path = model.to_str().context("the temporary folder has no plain name")?.to_owned();
    let mut run = run.program(&["exported.py", &path]);
    let finished = run.finish()?;
    let report = finished.report()?;
    if report["writes"]["kept_away_by"] == "hook" {
        eprintln!("harm: passed over, because the kernel gives no private view: {}", report["writes"]["reason"]);
        return Ok(());
    }
    finished.ensure(report["verdict"] == "fits", format!("the verdict is {}", report["verdict"]))?;
    let number = |name: &str| finished.printed_number(name);
    let (written, read) = (number("written_bytes")?, number("read_bytes")?);
    finished.ensure(written > 0 && read == written, format!("{written} bytes were written, {read} read"))?;
    finished.ensure(number("read_sum")? == number("written_sum")?, "the reader saw other bytes")?;
    ensure!(!model.exists(), "{} was left", model.display());
    Ok(())
}

/// As on a real driver: `CUDA_ERROR_NOT_INITIALIZED` (3) in children of a process that used CUDA. What needs none works.
fn forked_children_have_no_card() -> Result<()> {
    let mut run = Run::json("rtx-3060", TORCH_2_15)?.args(["--no-probe", "--until-exit"]).program(&["forks.py"]);
    let finished = run.finish()?;
    let answers: Value = serde_json::from_str(&finished.printed("forks")?)?;
    let refused = serde_json::json!({"cuInit": 3, "cuDeviceGetCount": 3, "cuMemAlloc": 3, "cuDriverGetVersion": 0});
    let by_torch = answers["torch"].as_str().unwrap_or_default();
    finished.ensure(answers["unused"] == 5, format!("before CUDA was used: {}", answers["unused"]))?;
    finished.ensure(answers["used"] == refused, format!("a child: {}", answers["used"]))?;
    finished.ensure(answers["child of a child"] == refused, format!("its child: {}", answers["child of a child"]))?;
    finished.ensure(by_torch.starts_with("Cannot re-initialize CUDA in forked subprocess"), by_torch)?;
    finished.ensure(answers["refused"] == 60, format!("{} of 60 children of a busy parent", answers["refused"]))?;
    finished.ensure(answers["pool"] == serde_json::json!([5, 6, 7]), format!("a pool: {}", answers["pool"]))?;
    finished.ensure(answers["loader"] == 64.0, format!("a loader: {}", answers["loader"]))?;
    finished.ensure(answers["parent"] == 5, format!("the parent: {}", answers["parent"]))
}

fn nothing_is_changed(floor: &str) -> Result<()> {
    let run = Run::json("rtx-3060", TORCH_2_15)?.env("OOMPH_PRIVATE_VIEW", floor).args(["--no-probe"]);
    let folder = run.folder().to_owned();
    for place in 0..PLACES {
        fs::write(folder.join(format!("f-{place}")), "as it was before\n")?;
        fs::create_dir(folder.join(format!("d-{place}")))?;
        fs::write(folder.join(format!("d-{place}/inner")), "inner\n")?;
    }
    let name = folder.file_name().context("the folder has a name")?.to_string_lossy().into_owned();
    let in_memory = PathBuf::from(format!("/dev/shm/{name}-of-harm"));
    let fenced = floor == FENCE;
    let before = checked(&folder, fenced)?;
    let path = folder.to_string_lossy().into_owned();
    let mut run = run.program(&["harm.py", &path]);
    let finished = run.finish()?;
    let report = finished.report()?;
    let by = report["writes"]["kept_away_by"].as_str().unwrap_or_default();
    if by == "hook" {
        eprintln!("harm: passed over, because the kernel gives no private view: {}", report["writes"]["reason"]);
        return Ok(());
    }
    finished.ensure(floor != "user" || by == "user-namespace", format!("kept away by {by}"))?;
    finished.ensure(!fenced || by == FENCE, format!("kept away by {by}"))?;

    let result: Value = serde_json::from_str(&finished.printed("harm")?)?;
    let ways = result["took_effect"].as_array().context("the ways are a list")?;
    // Behind a fence a change is an error, where it is not Python's.
    let few = !fenced && ways.len() < FEWEST_WAYS;
    finished.ensure(!few, format!("only {} ways took effect: {}", ways.len(), result["failed"]))?;
    let reached = &result["outside"];
    finished.ensure(reached == &serde_json::json!([]), format!("reached outside: {reached}"))?;
    eprintln!("harm: {} of {} ways took effect for the program ({by})", ways.len(), result["ways"]);
    std::thread::sleep(LAST_WAY);
    ensure!(!Path::new(AMONG_DEVICES).exists(), "{AMONG_DEVICES} was left");

    let after = checked(&folder, fenced)?;
    let different: Vec<_> = before.iter().filter(|entry| !after.contains(entry)).map(|entry| &entry.path).collect();
    let new: Vec<_> = after.iter().filter(|entry| !before.contains(entry)).map(|entry| &entry.path).collect();
    finished.ensure(before == after, format!("changed: {different:?}; new: {new:?}"))?;
    if fenced {
        // Processes share memory there, so it is open.
        let _ = fs::remove_file(&in_memory);
        return Ok(());
    }
    ensure!(!in_memory.exists(), "{} was left", in_memory.display());

    // What was written is said, each file once, and what was removed is said to be.
    let files = report["writes"]["files"].as_array().context("the files are a list")?;
    let of = |name: &str| {
        let path = folder.join(name).to_string_lossy().into_owned();
        files.iter().filter(|file| file["path"] == path.as_str()).collect::<Vec<_>>()
    };
    let (first, removed) = (of("f-0"), of("f-17"));
    finished.ensure(first.len() == 1 && first[0]["bytes"] == 8, format!("f-0 is reported as {first:?}"))?;
    finished.ensure(removed.len() == 1 && removed[0]["bytes"].is_null(), format!("f-17 is reported as {removed:?}"))
}

/// A local server that stands for a service: it gets what reads, and nothing that sends. With `--network none` it gets
/// nothing at all, and the program's own processes reach each other.
fn nothing_is_sent() -> Result<()> {
    for (network, expected) in [("read", "GET HEAD"), ("none", "")] {
        let server = Server::start()?;
        // The shell keeps oomph from asking this Python for a torch, which the program does not need.
        let line = format!("exec python3 '{}' {}", binary::programs().join("network.py").display(), server.address);
        let mut run = Run::dry_run()?.args(["--gpu", "rtx-3060", "--network", network, "--", "sh", "-c", &line]);
        let finished = run.finish()?;
        if String::from_utf8_lossy(&finished.stderr).contains("the network cannot be cut off") {
            eprintln!("harm: passed over --network none, because the kernel gives no private view");
            continue;
        }
        let results: Value = serde_json::from_str(&finished.printed("network")?)?;
        let seen = server.seen();
        let kinds: BTreeSet<&str> = seen.iter().map(String::as_str).filter(|method| *method != CURL).collect();
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(" ");
        finished.ensure(kinds == expected, format!("--network {network}: the server got {seen:?}"))?;
        finished.ensure(results["own"] == "served", format!("--network {network}: {results}"))?;
        // What is not Python is stopped by the kernel alone, and the README says so.
        let curl = seen.iter().any(|method| method == CURL);
        finished.ensure(network != "none" || !curl, "curl reached the server without a network")?;
    }
    Ok(())
}

/// The method that the program's curl uses.
const CURL: &str = "CURL";

/// A server that notes the method of each request.
struct Server {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("http://{}/", listener.local_addr()?);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        // It ends with the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                let mut reader = BufReader::new(&stream);
                while reader.read_line(&mut line).is_ok_and(|count| count > 2) && !line.ends_with("\r\n\r\n") {}
                let method = line.split(' ').next().unwrap_or_default().to_owned();
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(method);
                let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        Ok(Self { address, seen })
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What can be seen of a file or a folder from outside.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    path: PathBuf,
    content: Vec<u8>,
    mode: u32,
    modified: (i64, i64),
    /// When anything at all was changed last: attributes, flags and owners too.
    changed: (i64, i64),
    links: u64,
}

/// Behind a fence the C library keeps modes and times; what a program changes by calls of its own, such as a flag, is not
/// looked at there.
fn checked(folder: &Path, fenced: bool) -> Result<Vec<Entry>> {
    let entry = |(path, content): (PathBuf, Vec<u8>)| -> Result<Entry> {
        let info = path.symlink_metadata()?;
        let changed = if fenced { (0, 0) } else { (info.ctime(), info.ctime_nsec()) };
        let modified = (info.mtime(), info.mtime_nsec());
        Ok(Entry { content, mode: info.mode(), modified, changed, links: info.nlink(), path })
    };
    tree(folder)?.into_iter().map(entry).collect()
}

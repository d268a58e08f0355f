//! Pages in a real browser. It takes node and Chromium; without them the test says so and passes.

mod recorded;

use std::path::{Path, PathBuf};
use std::process::Command;

use oomph_explain::snapshot::{Options, explain, history};
use oomph_trace::Trace;
use oomph_view::{Page, Recording};

/// A page may be no larger than this, in bytes.
const LARGEST: usize = 25 << 20;

fn page(trace: &Trace, name: &str, private: bool, mebibytes: u64) -> String {
    let options = Options { what_if: false, capacity: Some(mebibytes << 20), ..Options::default() };
    let explanation = explain(trace, &options, None);
    let history = history(trace, &options, None);
    let recording = Recording { name: name.into(), trace, explanation: &explanation, history };
    let page = Page { title: name.into(), recordings: vec![recording], private, ..Page::default() };
    page.html().expect("a page is written")
}

fn program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_million_events_can_be_looked_at() {
    let started = std::time::Instant::now();
    let large = page(&recorded::training(1_000_000), "training.pickle", false, 35_100);
    eprintln!("{} events: {} bytes of page in {:.1} s", 1_000_000, large.len(), started.elapsed().as_secs_f64());
    assert!(large.len() < LARGEST, "the page has {} bytes", large.len());

    let browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let known = std::env::var_os("OOMPH_CHROMIUM").is_some() || browser.iter().any(|path| Path::new(path).exists());
    if !known || !program("node") {
        eprintln!("skipped: the pages were not tried in a browser, which takes node and chromium");
        return;
    }
    let small = page(&recorded::hostile(), "<img src=x onerror=stolen=1>.pickle", false, 24_576);
    let flat = page(&recorded::without_segments(20_000), "profile.json", false, 24_576);
    let folder = tempfile::tempdir().expect("a folder for the pages");
    let write = |name: &str, html: &str| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, html).expect("a page is kept");
        path
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/test/browser.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(write("large.html", &large)).arg(write("small.html", &small));
    command.arg(write("flat.html", &flat));
    if let Some(pictures) = std::env::var_os("OOMPH_PICTURES") {
        let pictured = page(&recorded::training(60_000), "training.pickle", false, 29_700);
        command.arg(write("pictured.html", &pictured)).arg(pictures);
    }
    let output = command.output().expect("node runs");
    eprintln!("{}", String::from_utf8_lossy(&output.stdout).trim());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn nothing_of_a_recording_is_markup_and_a_private_page_has_no_folders() {
    let trace = recorded::hostile();
    for private in [false, true] {
        let html = page(&trace, "/home/zoe/<script>stolen=1</script>.pickle", private, 24_576);
        assert!(!html.contains("<script>stolen") && !html.contains("<img"), "a name is in the page unescaped");
        assert_eq!(html.contains("/home/zoe"), !private, "the title of a private page has no folders");
    }
}

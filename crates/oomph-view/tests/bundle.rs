//! The committed files of the page are what its sources make. It takes node and the packages of `web/package-lock.json`;
//! without them the test says so and passes.

use std::path::Path;
use std::process::Command;

#[test]
fn a_rebuild_gives_the_same_bytes() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    if !web.join("node_modules/esbuild").is_dir() {
        eprintln!("skipped: the page was not built again; run `npm ci` in {} first", web.display());
        return;
    }
    match Command::new("node").arg("build.mjs").arg("--check").current_dir(&web).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => eprintln!("skipped: the page was not built again, which takes node"),
    }
}

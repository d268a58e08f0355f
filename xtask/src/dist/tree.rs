//! Lists the files of an installation below a prefix such as `/usr`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages::Package;
use super::{Platform, licences, root, sbom, target_folder};

/// The shells, with the place and the name under which each finds completions.
const COMPLETIONS: [(&str, &str); 4] = [
    ("bash", "share/bash-completion/completions/oomph"),
    ("fish", "share/fish/vendor_completions.d/oomph.fish"),
    ("powershell", "share/powershell/oomph.ps1"),
    ("zsh", "share/zsh/vendor-completions/_oomph"),
];

/// The texts of the repository that go along.
const TEXTS: [&str; 4] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Where the texts lie.
pub const DOC: &str = "share/doc/oomph";

/// Lays out the files in a fresh folder and says which.
///
/// # Errors
/// When a file cannot be written, or when the program cannot be asked.
pub fn stage(platform: Platform, program: &Path, packages: &[Package], version: &str) -> Result<PathBuf> {
    let tree = target_folder().join("stage").join(platform.name());
    let _ = fs::remove_dir_all(&tree);
    let made = |path: &Path| format!("cannot write {}", path.display());
    let write = |path: PathBuf, bytes: &[u8]| {
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, bytes))
            .with_context(|| made(&path))
    };

    let binary = tree.join("bin/oomph");
    fs::create_dir_all(tree.join("bin")).and_then(|()| fs::copy(program, &binary)).with_context(|| made(&binary))?;
    let asked = asked(platform, &binary)?;
    for (shell, place) in COMPLETIONS {
        write(tree.join(place), &ask(&asked, &["completions", shell])?)?;
    }
    let manual = tree.join("share/man/man1");
    ask(&asked, &["man", &manual.to_string_lossy()])?;

    let doc = tree.join(DOC);
    for text in TEXTS {
        let path = root().join(text);
        write(doc.join(text), &fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?)?;
    }
    write(doc.join("LICENSES-OF-PACKAGES.txt"), licences::text(packages).as_bytes())?;
    let sbom = serde_json::to_string_pretty(&sbom::document(packages, version))?;
    write(doc.join("oomph.cdx.json"), sbom.as_bytes())?;
    Ok(tree)
}

/// The program to ask for completions and the manual: the built one, or, where that is for another platform, this
/// machine's. The command line is the same.
fn asked(platform: Platform, binary: &Path) -> Result<PathBuf> {
    if platform.is_here() {
        return Ok(binary.to_owned());
    }
    let here = target_folder().join("release/oomph");
    if !here.is_file() {
        bail!("{} is needed to write the manual: run `cargo build --release`", here.display());
    }
    Ok(here)
}

fn ask(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{} cannot be started", program.display()))?;
    if !output.status.success() {
        bail!("oomph {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

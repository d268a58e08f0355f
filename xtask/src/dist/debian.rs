//! Makes the Debian package from the same files as the tarball.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{call, glibc, target_folder, tree};

/// Packs a tree as what lies below `/usr`.
///
/// # Errors
/// When a file cannot be written, or `dpkg-deb` is missing or fails.
pub fn package(staged: &Path, out: &Path, version: &str, architecture: &str) -> Result<PathBuf> {
    let folder = target_folder().join("stage").join(format!("deb-{architecture}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("DEBIAN")).with_context(|| format!("cannot make {}", folder.display()))?;
    call(Command::new("cp").arg("-a").arg(staged).arg(folder.join("usr")), "install coreutils")?;

    // Debian looks for the terms under this name.
    let doc = folder.join("usr").join(tree::DOC);
    let terms = format!(
        "oomph is licensed as MIT or Apache-2.0, as you prefer.\n\n{}\n\nThe Apache License 2.0 is in \
         /usr/share/common-licenses/Apache-2.0, and those of linked packages in LICENSES-OF-PACKAGES.txt.\n",
        fs::read_to_string(doc.join("LICENSE-MIT")).context("the tree has no LICENSE-MIT")?,
    );
    fs::write(doc.join("copyright"), terms).context("cannot write the copyright file")?;
    let manual = folder.join("usr/share/man/man1");
    let pages = fs::read_dir(&manual).with_context(|| format!("cannot read {}", manual.display()))?;
    call(Command::new("gzip").arg("-9n").args(pages.flatten().map(|page| page.path())), "install gzip")?;

    let kib = bytes(&folder.join("usr"))?.div_ceil(1024);
    let control = format!(
        "Package: oomph\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The oomph developers <>\n\
         Installed-Size: {kib}\nDepends: libc6 (>= {})\nRecommends: python3, python3-venv\nSection: science\n\
         Priority: optional\nDescription: predicts, explains and fixes CUDA out-of-memory errors\n \
         oomph runs a program, unmodified, on a virtual GPU and says whether it fits on a card,\n \
         what makes it fit, and why a program ran out of memory. The machine needs no GPU.\n",
        glibc::PROMISED,
    );
    fs::write(folder.join("DEBIAN/control"), control).context("cannot write the control file")?;
    let path = out.join(format!("oomph_{version}_{architecture}.deb"));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "--build"]).arg(&folder).arg(&path);
    // Files of the package have a fixed time, so that the same files give the same bytes.
    call(dpkg.env("SOURCE_DATE_EPOCH", "0"), "install dpkg")?;
    Ok(path)
}

/// The bytes of all files in a folder.
fn bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let found = entry.metadata()?;
        sum += if found.is_dir() { bytes(&entry.path())? } else { found.len() };
    }
    Ok(sum)
}

//! Runs the C compiler over headers: it expands the macros, and it knows the sizes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The headers of one coherent set of packages.
#[derive(Debug)]
pub struct HeaderSet {
    /// What to call it in remarks: the CUDA version.
    pub label: String,
    /// The CUDA version as its headers write it: 12040.
    pub version: u32,
    folders: Vec<PathBuf>,
    ours: PathBuf,
}

impl HeaderSet {
    /// Finds every folder named `include` under `root`.
    pub fn find(root: &Path) -> Result<HeaderSet> {
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("headers");
        let mut set = HeaderSet { label: String::new(), version: 0, folders: Vec::new(), ours };
        let mut pending = vec![root.to_owned()];
        while let Some(folder) = pending.pop() {
            if folder.file_name().is_some_and(|name| name == "include") {
                set.folders.push(folder);
                continue;
            }
            let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
            pending.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        set.folders.sort();
        if set.folders.is_empty() {
            bail!("there is no folder named include under {}", root.display());
        }
        let text = set.text("cuda.h").unwrap_or_default();
        let version = text.lines().find_map(|line| line.strip_prefix("#define CUDA_VERSION ")?.trim().parse().ok());
        let version: u32 = version.unwrap_or(0);
        set.version = version;
        set.label = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
        Ok(set)
    }

    /// Whether the set, or this program, has the header.
    pub fn has(&self, header: &str) -> bool {
        self.folders.iter().chain([&self.ours]).any(|folder| folder.join(header).is_file())
    }

    /// A header as it is written.
    pub fn text(&self, header: &str) -> Option<String> {
        self.folders.iter().find_map(|folder| fs::read_to_string(folder.join(header)).ok())
    }

    fn compiler(&self, flags: &[&str]) -> Command {
        let mut command = Command::new("gcc");
        command.args(["-w", "-x", "c", "-std=gnu17"]).args(flags);
        for folder in &self.folders {
            command.arg("-I").arg(folder);
        }
        command.arg("-idirafter").arg(&self.ours);
        command
    }

    /// The preprocessed text of a header.
    pub fn expand(&self, header: &str, flags: &[&str]) -> Result<String> {
        let text = format!("#include <stddef.h>\n#include <stdint.h>\n#include <{header}>\n");
        self.run(&text, flags, &["-E", "-P"]).with_context(|| format!("{}: {header}", self.label))
    }

    /// The sizes of the given types, as the header defines them.
    pub fn sizes<'a>(
        &self,
        header: &str,
        flags: &[&str],
        types: impl Iterator<Item = &'a String>,
    ) -> Result<BTreeMap<String, usize>> {
        let types: Vec<&String> = types.collect();
        let mut text = format!("#include <stddef.h>\n#include <stdint.h>\n#include <{header}>\n");
        for (index, name) in types.iter().enumerate() {
            let _ = writeln!(text, "unsigned long oomph_size_{index} = sizeof({name});");
        }
        let assembly =
            self.run(&text, flags, &["-S", "-O0", "-o", "-"]).with_context(|| format!("{}: {header}", self.label))?;
        let mut sizes = BTreeMap::new();
        let mut current = None;
        for line in assembly.lines().map(str::trim) {
            if let Some(label) = line.strip_suffix(':') {
                current = label.strip_prefix("oomph_size_").and_then(|index| index.parse::<usize>().ok());
            } else if let Some(index) = current
                && let Some(number) = line.strip_prefix(".quad").or_else(|| line.strip_prefix(".xword"))
                && let (Some(name), Ok(size)) = (types.get(index), number.trim().parse())
            {
                sizes.insert((*name).clone(), size);
                current = None;
            }
        }
        Ok(sizes)
    }

    fn run(&self, source: &str, flags: &[&str], how: &[&str]) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("in.c");
        fs::write(&path, source)?;
        let output = self.compiler(flags).args(how).arg(&path).output().context("cannot run gcc")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            bail!("gcc: {}", text.lines().find(|line| line.contains("error:")).unwrap_or("no message"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

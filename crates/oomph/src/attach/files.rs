//! Collects the Python files that are sent with an errand: a part of the hook, under a name of its own.
//!
//! A program under `oomph run` has the hook itself, of its own version, as the package `oomph`.

use crate::embedded;

/// The package inside the target.
const PACKAGE: &str = "_oomph_attached";
/// The files of the hook that the script needs.
const NEEDED: [&str; 8] = [
    "oomph/__init__.py",
    "oomph/_protocol.py",
    "oomph/attached.py",
    "oomph/documents.py",
    "oomph/forked.py",
    "oomph/history.py",
    "oomph/looking.py",
    "oomph/quiet.py",
];

/// The script and its files.
pub struct Files {
    /// The text that is executed.
    pub script: String,
    /// What it imports.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The files, renamed.
pub fn files() -> Files {
    let renamed = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .replace("from oomph", &format!("from {PACKAGE}"))
            .replace("== \"oomph\"", &format!("== {PACKAGE:?}"))
    };
    let (mut script, mut files) = (String::new(), Vec::new());
    for (name, bytes) in embedded::python() {
        if *name == "oomph/errand.py" {
            script = renamed(bytes);
        } else if NEEDED.contains(name) || name.starts_with("oomph/owners/") {
            files.push((name.replacen("oomph", PACKAGE, 1), renamed(bytes).into_bytes()));
        }
    }
    Files { script, files }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the files import of ours is among them.
    #[test]
    fn nothing_is_missing() {
        let Files { script, files } = files();
        assert!(script.contains("from _oomph_attached import attached") && script.ends_with("# noqa: F821\n"));
        let has = |module: &str| {
            let path = module.replace('.', "/");
            files.iter().any(|(name, _)| *name == format!("{path}.py") || *name == format!("{path}/__init__.py"))
        };
        for (name, bytes) in &files {
            let text = String::from_utf8(bytes.clone()).unwrap();
            // What only type checkers read is not imported.
            let mut typing = false;
            for line in text.lines() {
                typing = line == "if TYPE_CHECKING:" || typing && (line.is_empty() || line.starts_with(' '));
                if !typing && let Some(rest) = line.trim().strip_prefix("from _oomph_attached") {
                    let (package, names) = rest.split_once(" import ").unwrap();
                    let module = format!("_oomph_attached{package}");
                    assert!(has(&module), "{name}: {line}");
                    if line.starts_with(' ') {
                        // In a function that the hook alone calls.
                        continue;
                    }
                    // A name may be that of a module.
                    let ours = format!("{}/", module.replacen(PACKAGE, "oomph", 1).replace('.', "/"));
                    for one in names.split(',').map(|one| one.trim().trim_matches(['(', ')'])) {
                        let is_module = embedded::python().iter().any(|(path, _)| *path == format!("{ours}{one}.py"));
                        assert!(!is_module || has(&format!("{module}.{one}")), "{name}: {line}");
                    }
                }
            }
            assert!(!text.contains("from oomph") && !text.contains("import oomph"), "{name}");
        }
    }
}

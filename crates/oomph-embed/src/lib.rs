//! For build scripts: turns TOML files, which people edit, into JSON that a program reads.
//!
//! TOML is pleasant to write and slow to read: the catalogues took most of the time of a small plan. So each file is read
//! when oomph is built, and what is compiled into the program is the same data as JSON, which is read ten times as fast.
//! A file that is not TOML fails the build. Field names are checked by a test in the owning crate, which reads
//! the TOML itself.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Turns every `*.toml` of a folder of the crate that is built into a JSON file of the same name in `OUT_DIR`.
///
/// A file with a fault in it is named to cargo with line and column, and cargo ends the build.
pub fn toml(folder: &str) {
    println!("cargo::rerun-if-changed={folder}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    if let Err(fault) = convert(Path::new(folder), &out) {
        println!("cargo::error={fault}");
    }
}

fn convert(folder: &Path, out: &Path) -> Result<(), String> {
    let named = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    for entry in fs::read_dir(folder).map_err(named(folder))? {
        let path = entry.map_err(named(folder))?.path();
        let (Some("toml"), Some(name)) = (path.extension().and_then(|end| end.to_str()), path.file_stem()) else {
            continue;
        };
        let text = fs::read_to_string(&path).map_err(named(&path))?;
        let json = json(&text).map_err(|fault| format!("{}:{fault}", path.display()))?;
        let target = out.join(name).with_extension("json");
        fs::write(&target, json).map_err(named(&target))?;
    }
    Ok(())
}

/// The data of a TOML text as JSON without spaces, or `LINE:COLUMN: what is wrong`.
fn json(text: &str) -> Result<String, String> {
    let data: serde_json::Value = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{}:{column}: {}", before.matches('\n').count() + 1, error.message())
    })?;
    Ok(data.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_the_same() {
        let text = "# a comment\n[[card]]\nid = \"a\"\nbytes = 0x10\nshare = 0.5\nfrom = \"\"\"\nx \\\n  y\"\"\"\n";
        assert_eq!(json(text).unwrap(), r#"{"card":[{"bytes":16,"from":"x y","id":"a","share":0.5}]}"#);
    }

    #[test]
    fn a_fault_has_a_place() {
        let fault = json("a = 1\nb = \"x\" y\n").unwrap_err();
        assert!(fault.starts_with("2:9: "), "{fault}");
    }

    #[test]
    fn a_folder_is_converted_file_by_file() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("cards.toml"), "a = 1").unwrap();
        fs::write(from.path().join("note.md"), "= no TOML =").unwrap();
        convert(from.path(), to.path()).unwrap();
        assert_eq!(fs::read_to_string(to.path().join("cards.json")).unwrap(), r#"{"a":1}"#);
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1);
        fs::write(from.path().join("cards.toml"), "\na =").unwrap();
        let fault = convert(from.path(), to.path()).unwrap_err();
        assert!(fault.contains("cards.toml:2:"), "{fault}");
    }
}

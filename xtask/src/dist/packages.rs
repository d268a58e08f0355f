//! Lists the packages that are linked into oomph, as cargo reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::root;

/// The packages whose code is handed out: the program, and the library that it carries.
const ROOTS: [&str; 2] = ["oomph", "oomph-vgpu"];

/// One package of Rust.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its name in the registry.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence as an SPDX expression, if it names one.
    pub licence: Option<String>,
    /// Who wrote it, as far as it says.
    pub authors: Vec<String>,
    /// One sentence on it.
    pub description: Option<String>,
    /// Where it is developed.
    pub repository: Option<String>,
    /// The SHA-256 of its archive in the registry; none for oomph's own.
    pub checksum: Option<String>,
    /// The packages that it is linked with, by name and version.
    pub dependencies: BTreeSet<(String, String)>,
    /// Where its sources lie.
    pub folder: PathBuf,
}

impl Package {
    /// Whether it is oomph's own.
    pub fn is_own(&self) -> bool {
        self.checksum.is_none()
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Entry>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    #[serde(default)]
    authors: Vec<String>,
    description: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl Edge {
    /// Whether it is linked, and not only used to build or to test.
    fn is_linked(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The packages that are linked into oomph on a target, sorted by name and version.
///
/// # Errors
/// When cargo fails, or its lock file cannot be read.
pub fn linked_into_oomph(target: &str) -> Result<Vec<Package>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]).current_dir(root());
    let output = cargo.output().context("cargo cannot be started")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata has another format")?;
    let lock = root().join("Cargo.lock");
    let text = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let lock = toml::from_str(&text).with_context(|| format!("cannot read {}", lock.display()))?;
    Ok(select(metadata, lock))
}

fn select(metadata: Metadata, lock: Lock) -> Vec<Package> {
    let checksums: BTreeMap<_, _> =
        lock.package.into_iter().map(|locked| ((locked.name, locked.version), locked.checksum)).collect();
    let nodes: BTreeMap<_, _> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let named: BTreeMap<_, _> = metadata
        .packages
        .iter()
        .map(|entry| (entry.id.as_str(), (entry.name.clone(), entry.version.clone())))
        .collect();
    let linked = |id: &str| nodes.get(id).into_iter().flat_map(|node| &node.deps).filter(|edge| edge.is_linked());

    let mut found = BTreeSet::new();
    let is_root = |entry: &&Entry| ROOTS.contains(&entry.name.as_str());
    let mut open: Vec<_> = metadata.packages.iter().filter(is_root).map(|entry| entry.id.as_str()).collect();
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(linked(id).map(|edge| edge.pkg.as_str()));
        }
    }
    let mut packages: Vec<_> = metadata
        .packages
        .iter()
        .filter(|entry| found.contains(entry.id.as_str()))
        .map(|entry| Package {
            checksum: checksums.get(&(entry.name.clone(), entry.version.clone())).cloned().flatten(),
            dependencies: linked(&entry.id).filter_map(|edge| named.get(edge.pkg.as_str()).cloned()).collect(),
            name: entry.name.clone(),
            version: entry.version.clone(),
            licence: entry.license.clone(),
            authors: entry.authors.clone(),
            description: entry.description.clone(),
            repository: entry.repository.clone(),
            folder: entry.manifest_path.parent().unwrap_or(Path::new("/")).to_owned(),
        })
        .collect();
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_linked_is_listed() {
        let entry = |name: &str| {
            format!(r#"{{"id":"{name}","name":"{name}","version":"1.0.0","manifest_path":"/x/{name}/Cargo.toml"}}"#)
        };
        let edge = |name: &str, kind: &str| format!(r#"{{"pkg":"{name}","dep_kinds":[{{"kind":{kind}}}]}}"#);
        let text = format!(
            r#"{{"packages":[{},{},{},{}],"resolve":{{"nodes":[
                {{"id":"oomph","deps":[{},{}]}},{{"id":"linked","deps":[]}},{{"id":"builds","deps":[{}]}}]}}}}"#,
            entry("oomph"),
            entry("linked"),
            entry("builds"),
            entry("other"),
            edge("linked", "null"),
            edge("builds", "\"build\""),
            edge("other", "null"),
        );
        let lock = "[[package]]\nname = \"linked\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n";
        let packages = select(serde_json::from_str(&text).unwrap(), toml::from_str(lock).unwrap());
        let names: Vec<_> = packages.iter().map(|package| (package.name.as_str(), package.is_own())).collect();
        assert_eq!(names, [("linked", false), ("oomph", true)]);
        assert_eq!(packages[1].dependencies, BTreeSet::from([("linked".to_owned(), "1.0.0".to_owned())]));
    }
}

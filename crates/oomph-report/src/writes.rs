//! The result type for what a program wrote, and what kept it away from the user's files.

use serde::{Deserialize, Serialize};

/// What a program wrote, all of which is removed with the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Writes {
    /// What kept it away from the files of the user.
    pub kept_away_by: WriteFloor,
    /// Why it was not the kernel; `null` where it was.
    pub reason: Option<String>,
    /// How many files it wrote or removed.
    pub count: u64,
    /// Their sizes added up.
    pub bytes: u64,
    /// The files, by path. Of very many only some.
    pub files: Vec<WrittenFile>,
}

/// What keeps a program from changing the files of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WriteFloor {
    /// The kernel: every process of the program sees private mounts.
    Kernel,
    /// The kernel, by means of a user namespace.
    UserNamespace,
    /// The kernel, which refuses to write outside the run's folders, with the hook, which redirects what Python writes.
    Fence,
    /// The hook, which redirects what Python writes.
    Hook,
}

/// A file that a program wrote or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WrittenFile {
    /// Its path.
    pub path: String,
    /// Its size; `null` where it was removed.
    pub bytes: Option<u64>,
}

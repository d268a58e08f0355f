//! Opens a dataset in a folder or in an object store, behind one interface.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;

use crate::hint::hinted;

/// The file that a collect into a folder holds locked.
const LOCK: &str = "_lock";

/// Whether a source or a dataset is named by a URL of an object store.
#[must_use]
pub fn is_url(name: &str) -> bool {
    name.contains("://")
}

/// The object store of a URL, the bucket's own URL, and the path in it. Credentials, region and endpoint come from the
/// usual variables of the environment (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT_URL`, ...).
///
/// # Errors
/// When the URL is not one of S3, or the environment lacks what it needs.
pub fn store_of(url: &str) -> Result<(Arc<dyn ObjectStore>, String, Path)> {
    let rest = url.strip_prefix("s3://").ok_or_else(|| {
        hinted(format!("{url} is not a place that oomph-fleet knows"), "give a folder, or s3://BUCKET/PREFIX")
    })?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = Path::parse(prefix.trim_matches('/')).with_context(|| format!("{url} is not a URL of S3"))?;
    Ok((s3(bucket)?, format!("s3://{bucket}/"), prefix))
}

#[cfg(feature = "s3")]
fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    // A server on this machine, as one has for tests, seldom has a certificate.
    let plain = std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://"));
    let store = object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(plain).build();
    Ok(Arc::new(store.with_context(|| format!("cannot use the bucket {bucket}"))?))
}

#[cfg(not(feature = "s3"))]
fn s3(_: &str) -> Result<Arc<dyn ObjectStore>> {
    Err(hinted("this oomph-fleet was built without object stores", "install it with its default features"))
}

/// A dataset.
pub struct Dataset {
    name: String,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The folder, where it is one.
    folder: Option<PathBuf>,
    runtime: Arc<Runtime>,
}

/// A collect's right to a folder, while it is held.
pub struct Lock {
    _file: Option<File>,
}

impl Dataset {
    /// The dataset of a name: a folder, which is made where it is missing, or a URL.
    ///
    /// # Errors
    /// When the folder cannot be made, or the URL cannot be used.
    pub fn open(name: &str) -> Result<Self> {
        let runtime = Arc::new(
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .context("cannot start")?,
        );
        if is_url(name) {
            let (store, _, prefix) = store_of(name)?;
            return Ok(Self { name: name.to_owned(), store, prefix, folder: None, runtime });
        }
        let failed = || format!("cannot write to {name}");
        fs::create_dir_all(name).with_context(failed)?;
        let folder = fs::canonicalize(name).with_context(failed)?;
        let store = LocalFileSystem::new_with_prefix(&folder).with_context(failed)?;
        let folder = Some(folder);
        Ok(Self { name: name.to_owned(), store: Arc::new(store), prefix: Path::default(), folder, runtime })
    }

    /// The name that it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder, where it is one.
    #[must_use]
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.folder.as_deref()
    }

    /// The runtime that requests run on.
    #[must_use]
    pub fn runtime(&self) -> Arc<Runtime> {
        Arc::clone(&self.runtime)
    }

    /// Keeps other collects out of a folder until it is dropped; the system gives it back when the process is killed. An
    /// object store has no such lock: there, one collect at a time is the user's part.
    ///
    /// # Errors
    /// When another collect is at work.
    pub fn lock(&self) -> Result<Lock> {
        let Some(folder) = &self.folder else { return Ok(Lock { _file: None }) };
        let path = folder.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: Some(file) }),
            Err(TryLockError::WouldBlock) => Err(hinted(
                format!("another collect is writing to {}", self.name),
                "wait until it has ended; its files are then skipped",
            )),
            // A file system without locks: the user's part, as with an object store.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(Lock { _file: None }),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Whether [`Dataset::lock`] keeps others out.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.folder.is_some()
    }

    fn path(&self, path: &str) -> Path {
        self.prefix.parts().chain(Path::from(path).parts()).collect()
    }

    /// Writes a file in one step: readers see all of it or nothing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, path: &str, bytes: Vec<u8>) -> Result<()> {
        let target = self.path(path);
        self.runtime
            .block_on(self.store.put(&target, bytes.into()))
            .with_context(|| format!("cannot write {path} in {}", self.name))?;
        Ok(())
    }

    /// Reads a file; `None` where there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let get = async {
            match self.store.get(&self.path(path)).await {
                Ok(found) => Ok(Some(found.bytes().await?.to_vec())),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.runtime.block_on(get).with_context(|| format!("cannot read {path} in {}", self.name))
    }

    /// Moves a file. In an object store that is a copy, after which the source is deleted: done again it does no harm.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.path(from), self.path(to));
        let moved = self.runtime.block_on(self.store.rename(&source, &target));
        moved.with_context(|| format!("cannot move {from} to {to} in {}", self.name))
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub fn delete(&self, path: &str) -> Result<()> {
        let deleted = self.runtime.block_on(self.store.delete(&self.path(path)));
        deleted.with_context(|| format!("cannot delete {path} in {}", self.name))
    }

    /// Removes a folder with what a killed collect had half written in it; an object store has neither. A folder that
    /// stays does no harm.
    pub fn clear(&self, path: &str) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder.join(path));
        }
    }

    /// The files below a path, with the time when each was written.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn list(&self, path: &str) -> Result<Vec<(String, DateTime<Utc>)>> {
        let below = self.path(path);
        let listed = self.runtime.block_on(self.store.list(Some(&below)).try_collect::<Vec<_>>());
        let listed = listed.with_context(|| format!("cannot list {path} in {}", self.name))?;
        let own = self.prefix.parts().count();
        let relative = |meta: object_store::ObjectMeta| {
            let path: Path = meta.location.parts().skip(own).collect();
            (path.to_string(), meta.last_modified)
        };
        Ok(listed.into_iter().map(relative).collect())
    }
}

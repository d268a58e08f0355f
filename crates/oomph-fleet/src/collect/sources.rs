//! Finds files in folders, patterns, tar files and object stores.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectStoreExt;
use tokio::runtime::Runtime;

use super::{Dataset, is_url, store_of};
use crate::hint::hinted;
use crate::input::{Body, Item};

/// The largest file in a tar file or an object store, in bytes: it is copied to a temporary file.
const LARGEST: u64 = 4 << 30;
/// How names of tar files end.
const TARS: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.zstd"];

/// Is given each file; says whether to go on.
type Each<'a> = &'a mut dyn FnMut(Item) -> bool;
/// Is given what cannot be opened, and why.
type Unreadable<'a> = &'a mut dyn FnMut(&Item, String);

/// Finds the files of a source, in the order of their names.
///
/// # Errors
/// When the source itself does not exist or cannot be listed.
pub fn walk(source: &str, dataset: &Dataset, each: Each, unreadable: Unreadable) -> Result<()> {
    if is_url(source) {
        return objects(source, dataset, each, unreadable);
    }
    let path = Path::new(source);
    if path.symlink_metadata().is_ok() {
        files(path, dataset, each, unreadable);
        return Ok(());
    }
    let pattern = glob::glob(source).ok().filter(|_| source.contains(['*', '?', '[']));
    let Some(pattern) = pattern else {
        return Err(hinted(
            format!("{source} does not exist"),
            "give files, folders, patterns such as 'logs/*.txt', or s3://BUCKET/PREFIX",
        ));
    };
    for found in pattern {
        match found {
            Ok(path) => {
                if !files(&path, dataset, each, unreadable) {
                    break;
                }
            }
            Err(error) => {
                let item = item(error.path().to_owned(), 0, 0);
                unreadable(&item, error.error().to_string());
            }
        }
    }
    Ok(())
}

/// The files at and below a path. Links to folders are not followed: they may lead in a circle. False where `each` has
/// had enough.
fn files(path: &Path, dataset: &Dataset, each: Each, unreadable: Unreadable) -> bool {
    // Folders that wait, the next one last.
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let (metadata, is_link) = match (fs::metadata(&path), path.symlink_metadata()) {
            (Ok(metadata), Ok(link)) => (metadata, link.is_symlink()),
            (Err(error), _) | (_, Err(error)) => {
                unreadable(&item(path, 0, 0), format!("cannot read it: {error}"));
                continue;
            }
        };
        if metadata.is_dir() {
            if is_link || fs::canonicalize(&path).is_ok_and(|path| Some(path.as_path()) == dataset.folder()) {
                continue;
            }
            match fs::read_dir(&path).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()) {
                Ok(entries) => {
                    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
                    paths.sort_unstable_by(|a, b| b.cmp(a));
                    waiting.append(&mut paths);
                }
                Err(error) => unreadable(&item(path, 0, 0), format!("cannot list it: {error}")),
            }
            continue;
        }
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_us = modified.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(0));
        let found = item(path.clone(), metadata.len(), modified_us);
        let go_on = if is_tar(&found.path) && metadata.is_file() {
            match File::open(&path) {
                Ok(file) => tar(&found, file, each, unreadable),
                Err(error) => {
                    unreadable(&found, format!("cannot read it: {error}"));
                    true
                }
            }
        } else {
            each(found)
        };
        if !go_on {
            return false;
        }
    }
    true
}

fn item(path: PathBuf, size: u64, modified_us: i64) -> Item {
    let is_pickle = path.extension().is_some_and(|ending| ending == "pickle" || ending == "pkl");
    let names = is_pickle.then(|| path.with_extension("names.json")).filter(|names| names.is_file());
    Item { path: path.display().to_string(), modified_us, size, body: Body::File(path), names }
}

fn is_tar(name: &str) -> bool {
    TARS.iter().any(|ending| name.ends_with(ending))
}

/// The files in a tar file, one after the other. False where `each` has had enough.
fn tar(archive: &Item, reader: impl Read + Send + 'static, each: Each, unreadable: Unreadable) -> bool {
    let walked = (|| -> io::Result<bool> {
        let unpacked = oomph_trace::unpacked(BufReader::with_capacity(256 << 10, reader), false)?;
        let mut tar = tar::Archive::new(unpacked);
        for entry in tar.entries()? {
            let mut entry = entry?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let seconds = i64::try_from(entry.header().mtime().unwrap_or(0)).unwrap_or(0);
            let mut item = Item {
                path: format!("{}!{name}", archive.path),
                modified_us: seconds.saturating_mul(1_000_000),
                size: entry.size(),
                body: Body::Memory(Bytes::new()),
                names: None,
            };
            if item.modified_us <= 0 || item.modified_us > archive.modified_us {
                item.modified_us = archive.modified_us;
            }
            if item.size > LARGEST {
                unreadable(&item, format!("larger than {} GiB", LARGEST >> 30));
                continue;
            }
            let (body, size) = Body::keep(&mut entry)?;
            if size < item.size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            item.body = body;
            if !each(item) {
                return Ok(false);
            }
        }
        Ok(true)
    })();
    walked.unwrap_or_else(|error| {
        unreadable(archive, format!("the tar file cannot be read on: {error}"));
        true
    })
}

/// The files of an object store below a prefix.
fn objects(url: &str, dataset: &Dataset, each: Each, unreadable: Unreadable) -> Result<()> {
    let (store, bucket, prefix) = store_of(url)?;
    let runtime = dataset.runtime();
    let mut listing = store.list(Some(&prefix));
    // An object itself is not a prefix of one.
    let mut alone = runtime.block_on(store.head(&prefix)).ok().filter(|_| prefix.parts().next().is_some());
    loop {
        let listed = match alone.take() {
            Some(meta) => Some(Ok(meta)),
            None => runtime.block_on(listing.next()),
        };
        let Some(meta) = listed else { return Ok(()) };
        let meta = meta.with_context(|| format!("cannot list {url}"))?;
        let mut item = Item {
            path: format!("{bucket}{}", meta.location),
            modified_us: meta.last_modified.timestamp_micros(),
            size: meta.size,
            body: Body::Memory(Bytes::new()),
            names: None,
        };
        if meta.size > LARGEST {
            unreadable(&item, format!("larger than {} GiB", LARGEST >> 30));
            continue;
        }
        let stream = runtime.block_on(store.get(&meta.location)).map(object_store::GetResult::into_stream);
        let reader = match stream {
            Ok(stream) => Streamed { runtime: Arc::clone(&runtime), stream, rest: Bytes::new() },
            Err(error) => {
                unreadable(&item, format!("cannot read it: {error}"));
                continue;
            }
        };
        let go_on = if is_tar(&item.path) {
            tar(&item, reader, each, unreadable)
        } else {
            match Body::keep(reader) {
                Ok((body, _)) => {
                    item.body = body;
                    each(item)
                }
                Err(error) => {
                    unreadable(&item, format!("cannot read it: {error}"));
                    true
                }
            }
        };
        if !go_on {
            return Ok(());
        }
    }
}

/// An object while it comes in.
struct Streamed {
    runtime: Arc<Runtime>,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    rest: Bytes,
}

impl Read for Streamed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.runtime.block_on(self.stream.try_next())? {
                Some(bytes) => self.rest = bytes,
                None => return Ok(0),
            }
        }
        let length = self.rest.len().min(buffer.len());
        self.rest.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

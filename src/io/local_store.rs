//! A store in a local directory, synced.
//!
//! The root is made only by whoever opens the store with leave to, never afterwards: when it has been renamed away or
//! another directory stands in its place, every call is `Unavailable` until it is back. Folders below it are made one
//! by one, which fails when the root is gone. An object is written under a temporary name (`name#N`), synced, linked or
//! renamed to its own, and the folder synced before the call returns, so that what was acknowledged survives a crash
//! of the host. Symbolic links below the root are refused.

use std::collections::BTreeSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::local_paths;
use super::names;
use super::store::{ObjectEntry, PutMode, Store};
use crate::{Error, ErrorKind, Result};

/// See the module.
#[derive(Debug)]
pub struct LocalStore {
    root: PathBuf,
    url: String,
    /// Device and inode of the root when it was opened.
    identity: (u64, u64),
    next_temporary: AtomicU64,
    /// Folders whose own name this process has seen synced.
    synced_folders: Mutex<BTreeSet<PathBuf>>,
}

impl LocalStore {
    /// Opens the root at `path`, making it and its parents first when `create` is set.
    ///
    /// # Errors
    /// `NotFound` when it isn't there and may not be made; `InvalidArgument` when it isn't a directory.
    pub fn open(path: &Path, create: bool) -> Result<Self> {
        let failed = |e| Error::io(format!("store root `{}`", path.display()), e);
        let path = std::path::absolute(path).map_err(failed)?;
        if create {
            local_paths::create_directory_synced(&path)?;
        }
        let metadata = std::fs::metadata(&path).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(Error::invalid(format!("store root `{}` is not a directory", path.display())));
        }
        // The path's own links may change later without moving the root.
        let root = path.canonicalize().map_err(failed)?;
        let url = url::Url::from_file_path(&path).map_or_else(|()| path.display().to_string(), String::from);
        Ok(Self {
            root,
            url,
            identity: (metadata.dev(), metadata.ino()),
            next_temporary: AtomicU64::new(0),
            synced_folders: Mutex::default(),
        })
    }

    fn check_root(&self) -> Result<()> {
        match std::fs::metadata(&self.root) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => Ok(()),
            Ok(_) => Err(self.unavailable("another directory stands in its place", None)),
            Err(error) => Err(self.unavailable("it can't be reached", Some(error))),
        }
    }

    fn unavailable(&self, problem: &str, cause: Option<std::io::Error>) -> Error {
        let message = format!("store root `{}`: {problem}", self.root.display());
        match cause {
            Some(cause) => Error::with_source(ErrorKind::Unavailable, message, cause),
            None => Error::new(ErrorKind::Unavailable, message),
        }
    }

    /// An error about an object; a missing file means nothing when the root itself is gone.
    fn failed(&self, doing: &str, name: &str, error: std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::NotFound
            && let Err(gone) = self.check_root()
        {
            return gone;
        }
        Error::io(format!("{doing} `{name}` in `{}`", self.url), error)
    }

    /// Path of the object or leftover `name`, no part of which is a symbolic link.
    fn resolve(&self, name: &str) -> Result<PathBuf> {
        self.check_root()?;
        let mut path = self.root.clone();
        for part in name.split('/') {
            path.push(part);
            refuse_link(&path, std::fs::symlink_metadata(&path).ok().as_ref())?;
        }
        Ok(path)
    }

    fn open_object(&self, name: &str) -> Result<(File, Metadata)> {
        names::check_name(name)?;
        let path = self.resolve(name)?;
        let file = File::open(path).map_err(|e| self.failed("opening", name, e))?;
        let metadata = file.metadata().map_err(|e| self.failed("opening", name, e))?;
        if !metadata.is_file() {
            return Err(Error::new(ErrorKind::NotFound, format!("object `{name}` in `{}` is a folder", self.url)));
        }
        Ok((file, metadata))
    }

    /// Makes the folders above `name` that are missing, and syncs those that nobody here has synced yet.
    fn make_folders(&self, name: &str) -> Result<()> {
        let mut folder = self.root.clone();
        let Some((folders, _)) = name.rsplit_once('/') else { return Ok(()) };
        for part in folders.split('/') {
            let parent = folder.clone();
            folder.push(part);
            if self.synced_folders.lock().contains(&folder) && folder.is_dir() {
                continue;
            }
            match std::fs::create_dir(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(self.failed("creating the folder of", name, error));
                }
                _ => {}
            }
            self.sync(&parent)?;
            self.synced_folders.lock().insert(folder.clone());
        }
        Ok(())
    }

    fn sync(&self, folder: &Path) -> Result<()> {
        local_paths::sync_directory(folder).map_err(|error| self.check_root().err().unwrap_or(error))
    }

    fn new_temporary(&self, name: &str, path: &Path) -> Result<(File, PathBuf)> {
        loop {
            let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
            let mut temporary = path.as_os_str().to_owned();
            temporary.push(format!("#{}.{number}", std::process::id()));
            let temporary = PathBuf::from(temporary);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => return Ok((file, temporary)),
                // Left by an earlier process with our id.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(self.failed("writing", name, error)),
            }
        }
    }

    fn write(&self, name: &str, mode: PutMode, fill: &mut dyn FnMut(&mut File) -> Result<()>) -> Result<()> {
        names::check_name(name)?;
        let path = self.resolve(name)?;
        self.make_folders(name)?;
        let (mut file, temporary) = self.new_temporary(name, &path)?;
        let published = fill(&mut file)
            .and_then(|()| file.sync_all().map_err(|e| self.failed("syncing", name, e)))
            .and_then(|()| self.publish(name, &temporary, &path, mode));
        if mode == PutMode::Create || published.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        // Synced also when the name was taken: whoever reads that object now may build on it.
        let taken = published.as_ref().is_err_and(|e| e.kind() == ErrorKind::AlreadyExists);
        if let Some(folder) = path.parent().filter(|_| published.is_ok() || taken) {
            self.sync(folder)?;
        }
        published
    }

    fn publish(&self, name: &str, temporary: &Path, path: &Path, mode: PutMode) -> Result<()> {
        let published = match mode {
            PutMode::Overwrite => std::fs::rename(temporary, path),
            PutMode::Create => std::fs::hard_link(temporary, path),
        };
        match published {
            #[cfg(target_os = "linux")]
            Err(error) if mode == PutMode::Create && no_hard_links(&error) => {
                use rustix::fs::{CWD, RenameFlags, renameat_with};
                renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE)
                    .map_err(|e| self.failed("creating", name, e.into()))
            }
            other => other.map_err(|e| self.failed("creating", name, e)),
        }
    }

    fn walk(&self, folder: &Path, prefix: &str, found: &mut dyn FnMut(String, &Metadata)) -> Result<()> {
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return self.check_root(),
            other => other.map_err(|e| self.failed("listing", prefix, e))?,
        };
        for entry in entries {
            let entry = entry.map_err(|e| self.failed("listing", prefix, e))?;
            let Ok(part) = entry.file_name().into_string() else { continue };
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                other => other.map_err(|e| self.failed("listing", prefix, e))?,
            };
            let name = format!("{prefix}{part}");
            if metadata.is_dir() && names::check_name(&name).is_ok() {
                self.walk(&entry.path(), &format!("{name}/"), found)?;
            } else if metadata.is_file() {
                found(name, &metadata);
            }
        }
        Ok(())
    }

    fn list_if(&self, prefix: &str, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<ObjectEntry>> {
        let folder = if prefix.is_empty() {
            self.check_root()?;
            self.root.clone()
        } else {
            self.resolve(prefix.trim_end_matches('/'))?
        };
        let mut entries = Vec::new();
        self.walk(&folder, prefix, &mut |name, metadata| {
            if wanted(&name) {
                let modified_ms = modified_ms(metadata);
                entries.push(ObjectEntry { name, length_bytes: metadata.len(), modified_ms });
            }
        })?;
        self.check_root()?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.resolve(name)?;
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.check_root(),
            other => other.map_err(|e| self.failed("deleting", name, e)),
        }
    }
}

impl Store for LocalStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        self.write(name, mode, &mut |file| file.write_all(&bytes).map_err(|e| self.failed("writing", name, e)))
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        self.write(name, mode, &mut |file| {
            for chunk in &mut *chunks {
                file.write_all(&chunk?).map_err(|e| self.failed("writing", name, e))?;
            }
            Ok(())
        })
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        let (mut file, metadata) = self.open_object(name)?;
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        file.read_to_end(&mut bytes).map_err(|e| self.failed("reading", name, e))?;
        Ok(bytes.into())
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let (file, metadata) = self.open_object(name)?;
        let length = range.end.checked_sub(range.start).filter(|_| range.end <= metadata.len());
        let Some(length) = length.and_then(|l| usize::try_from(l).ok()) else {
            return Err(Error::corruption(format!(
                "object `{name}` in `{}`: bytes {}..{} expected, {} found",
                self.url,
                range.start,
                range.end,
                metadata.len()
            )));
        };
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, range.start).map_err(|e| self.failed("reading", name, e))?;
        Ok(bytes.into())
    }

    fn length(&self, name: &str) -> Result<u64> {
        Ok(self.open_object(name)?.1.len())
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        names::check_prefix(prefix)?;
        self.list_if(prefix, &|name| names::check_name(name).is_ok())
    }

    fn delete(&self, name: &str) -> Result<()> {
        names::check_name(name)?;
        self.remove(name)
    }

    fn leftovers(&self) -> Result<Vec<ObjectEntry>> {
        self.list_if("", &names::is_leftover)
    }

    fn delete_leftover(&self, name: &str) -> Result<()> {
        if !names::is_leftover(name) {
            return Err(Error::invalid(format!("`{}` is no leftover of an interrupted write", name.escape_debug())));
        }
        self.remove(name)
    }
}

fn refuse_link(path: &Path, metadata: Option<&Metadata>) -> Result<()> {
    if metadata.is_some_and(Metadata::is_symlink) {
        let message = format!("`{}` is a symbolic link, which a store doesn't follow", path.display());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn no_hard_links(error: &std::io::Error) -> bool {
    use std::io::ErrorKind as Io;
    matches!(error.kind(), Io::Unsupported | Io::PermissionDenied | Io::TooManyLinks)
}

fn modified_ms(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(entries: &[ObjectEntry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    fn put(store: &LocalStore, name: &str, bytes: &'static [u8]) -> Result<()> {
        store.put(name, Bytes::from_static(bytes), PutMode::Create)
    }

    #[test]
    fn what_is_put_is_listed_and_read_and_create_refuses_to_replace() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(&dir.path().join("root"), true).unwrap();
        put(&store, "a~20b/0/1-00.seg", b"0123").unwrap();
        put(&store, "log/1", b"x").unwrap();
        assert_eq!(put(&store, "log/1", b"y").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(store.get("log/1").unwrap(), b"x"[..]);
        store.put("log/1", Bytes::from_static(b"z"), PutMode::Overwrite).unwrap();
        assert_eq!(store.get("log/1").unwrap(), b"z"[..]);
        assert_eq!(names(&store.list("").unwrap()), ["a~20b/0/1-00.seg", "log/1"]);
        assert_eq!(names(&store.list("log/").unwrap()), ["log/1"]);
        assert!(store.list("none/").unwrap().is_empty() && store.leftovers().unwrap().is_empty());
        assert_eq!(store.get_range("a~20b/0/1-00.seg", 1..3).unwrap(), b"12"[..]);
        assert_eq!(store.get_range("a~20b/0/1-00.seg", 1..5).unwrap_err().kind(), ErrorKind::Corruption);
        assert_eq!(store.length("a~20b/0/1-00.seg").unwrap(), 4);
        store.delete("log/1").unwrap();
        store.delete("log/1").unwrap();
        assert_eq!(store.get("log/1").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(store.get("log").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_stream_that_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path(), false).unwrap();
        let mut chunks = [Ok(Bytes::from_static(b"1")), Err(Error::internal("no more"))].into_iter();
        let error = store.put_stream("a/b", &mut chunks, PutMode::Create).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(store.list("").unwrap().is_empty() && store.leftovers().unwrap().is_empty());
        let mut chunks = [Ok(Bytes::from_static(b"1")), Ok(Bytes::from_static(b"2"))].into_iter();
        store.put_stream("a/b", &mut chunks, PutMode::Create).unwrap();
        assert_eq!(store.get("a/b").unwrap(), b"12"[..]);
    }

    #[test]
    fn a_root_that_was_renamed_away_is_unavailable_never_recreated_and_works_when_back() {
        let dir = tempfile::tempdir().unwrap();
        let (root, away) = (dir.path().join("root"), dir.path().join("away"));
        let store = LocalStore::open(&root, true).unwrap();
        put(&store, "a/b", b"1").unwrap();
        std::fs::rename(&root, &away).unwrap();
        for stand_in in [false, true] {
            if stand_in {
                std::fs::create_dir(&root).unwrap();
            }
            let mut chunks = [Ok(Bytes::new())].into_iter();
            let results = [
                put(&store, "a/c", b"2"),
                put(&store, "d", b"2"),
                store.put_stream("a/e", &mut chunks, PutMode::Overwrite),
                store.get("a/b").map(drop),
                store.get_range("a/b", 0..1).map(drop),
                store.length("a/b").map(drop),
                store.list("").map(drop),
                store.leftovers().map(drop),
                store.delete("a/b"),
            ];
            for result in results {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Unavailable);
            }
            assert_eq!(root.exists(), stand_in);
        }
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
        std::fs::remove_dir(&root).unwrap();
        std::fs::rename(&away, &root).unwrap();
        put(&store, "a/c", b"2").unwrap();
        assert_eq!(names(&store.list("").unwrap()), ["a/b", "a/c"]);
    }

    #[test]
    fn bad_input_no_escape_by_name_or_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(&dir.path().join("root"), true).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        for name in ["../secret", "/etc/passwd", "a/../../secret", "", "a//b"] {
            assert_eq!(store.get(name).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
            assert_eq!(put(&store, name, b"").unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
            assert_eq!(store.delete(name).unwrap_err().kind(), ErrorKind::InvalidArgument, "{name}");
        }
        std::os::unix::fs::symlink(dir.path(), dir.path().join("root/up")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("root/file")).unwrap();
        for name in ["up/secret", "up/new", "file"] {
            assert!(store.get(name).is_err() && put(&store, name, b"").is_err(), "{name}");
            assert!(store.delete(name).is_err(), "{name}");
        }
        assert!(store.list("").unwrap().is_empty());
        assert_eq!(std::fs::read(dir.path().join("secret")).unwrap(), b"s");
        assert!(!dir.path().join("new").exists());
    }

    #[test]
    fn leftovers_are_no_objects_and_only_they_go_by_delete_leftover() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path(), false).unwrap();
        put(&store, "a/b", b"1").unwrap();
        for file in ["a/c#1", "a/b#123.7", "a/my notes.txt", "a/x#y", "#1"] {
            std::fs::write(dir.path().join(file), "half").unwrap();
        }
        assert_eq!(names(&store.list("").unwrap()), ["a/b"]);
        assert_eq!(names(&store.leftovers().unwrap()), ["a/b#123.7", "a/c#1"]);
        store.delete_leftover("a/c#1").unwrap();
        store.delete_leftover("a/c#1").unwrap();
        for other in ["a/b", "a/x#y", "../z#1"] {
            assert_eq!(store.delete_leftover(other).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        assert_eq!(names(&store.leftovers().unwrap()), ["a/b#123.7"]);
        assert_eq!(store.get("a/b").unwrap(), b"1"[..]);
    }
}

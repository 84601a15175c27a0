//! Carries RocksDB's checkpoints to the object store as Flink does: table files that it doesn't have yet, four at a time, then
//! the small files, then forgets what only the checkpoint before needed.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Result;
use crate::measure::checkpoints::CheckpointLog;
use crate::object_store::client::Client;

/// Files under way at one time (`state.backend.rocksdb.checkpoint.transfer.thread.num` of Flink).
const TRANSFERS: usize = 4;

/// Bytes sent at once.
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct Taken {
    directory: PathBuf,
    began: Instant,
    sync: Duration,
}

/// What the owner and the uploading thread share.
#[derive(Debug, Default)]
struct Progress {
    in_flight: AtomicUsize,
    referenced_bytes: AtomicU64,
    failed: Mutex<Option<String>>,
}

/// Uploads checkpoints on a thread of its own.
#[derive(Debug)]
pub struct Uploads {
    send: Sender<Taken>,
    progress: Arc<Progress>,
}

impl Uploads {
    /// To the object store at `address`.
    pub fn start(client: Arc<Client>, log: CheckpointLog) -> Self {
        let (send, receive) = channel::<Taken>();
        let progress = Arc::<Progress>::default();
        let theirs = progress.clone();
        std::thread::spawn(move || {
            let mut stored = HashMap::new();
            for (number, taken) in receive.iter().enumerate() {
                match upload(&client, &taken.directory, number, &mut stored) {
                    Ok((uploaded, referenced)) => {
                        theirs.referenced_bytes.store(referenced, Ordering::Relaxed);
                        log.complete(taken.began, taken.sync, uploaded, referenced);
                    }
                    Err(error) => {
                        *theirs.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                    }
                }
                // Its files are links; what RocksDB still has stays.
                let _ = std::fs::remove_dir_all(&taken.directory);
                theirs.in_flight.fetch_sub(1, Ordering::Release);
            }
        });
        Self { send, progress }
    }

    /// True while a checkpoint is under way.
    pub fn busy(&self) -> Result<bool> {
        if let Some(error) = &*self.progress.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(format!("uploading a checkpoint: {error}").into());
        }
        Ok(self.progress.in_flight.load(Ordering::Acquire) > 0)
    }

    /// Takes over a checkpoint that stands in `directory`.
    pub fn add(&self, directory: PathBuf, began: Instant, sync: Duration) -> Result<()> {
        self.progress.in_flight.fetch_add(1, Ordering::Release);
        Ok(self.send.send(Taken { directory, began, sync })?)
    }

    /// Bytes that the newest complete one refers to.
    pub fn referenced_bytes(&self) -> u64 {
        self.progress.referenced_bytes.load(Ordering::Relaxed)
    }
}

/// Returns the bytes uploaded and the bytes referred to.
fn upload(client: &Client, directory: &Path, number: usize, stored: &mut HashMap<String, u64>) -> Result<(u64, u64)> {
    let mut tables = HashMap::new();
    let mut small = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".sst") {
            tables.insert(name, entry.metadata()?.len());
        } else {
            small.push(name);
        }
    }
    let new: Vec<&String> = tables.keys().filter(|name| !stored.contains_key(*name)).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let transfer = || -> Result<()> {
            while let Some(name) = new.get(next.fetch_add(1, Ordering::Relaxed)) {
                put_file(client, &directory.join(name), &format!("shared/{name}"), true)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..TRANSFERS.min(new.len())).map(|_| scope.spawn(transfer)).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "an uploading thread panicked")?)
    })?;
    let uploaded = new.iter().map(|name| tables[*name]).sum();
    for name in &small {
        put_file(client, &directory.join(name), &format!("chk-{number}/{name}"), false)?;
    }
    let metadata = tables.keys().flat_map(|name| format!("{name}\n").into_bytes()).collect::<Vec<u8>>();
    client.put(&format!("chk-{number}/_metadata"), std::iter::once(Ok::<_, crate::Error>(metadata)), true, false)?;
    for name in stored.keys().filter(|name| !tables.contains_key(*name)) {
        client.delete(&format!("shared/{name}"))?;
    }
    let referenced = tables.values().sum();
    *stored = tables;
    Ok((uploaded, referenced))
}

fn put_file(client: &Client, path: &Path, name: &str, is_state: bool) -> Result<()> {
    let mut file = File::open(path)?;
    let chunks = std::iter::from_fn(|| {
        let mut chunk = vec![0; CHUNK_BYTES];
        match file.read(&mut chunk) {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                Some(Ok(chunk))
            }
            Err(error) => Some(Err(error)),
        }
    });
    client.put(name, chunks, false, is_state)?;
    Ok(())
}

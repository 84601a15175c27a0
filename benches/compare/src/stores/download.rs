//! Brings RocksDB's newest checkpoint back from the object store as Flink does: all of its files, four at a time.

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::Result;
use crate::object_store::Status;
use crate::object_store::client::Client;

/// Files under way at one time.
const TRANSFERS: usize = 4;

/// Fills `directory` with what the newest checkpoint of the store refers to.
pub fn newest(client: &Client, directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    let names = client.list("chk-")?;
    let number = |name: &str| name.strip_prefix("chk-")?.split('/').next()?.parse::<u64>().ok();
    let complete = names.iter().filter(|(name, ..)| name.ends_with("/_metadata"));
    let newest = complete.filter_map(|(name, ..)| number(name)).max().ok_or("no checkpoint to restore from")?;
    let folder = format!("chk-{newest}/");
    let metadata = fetch(client, &format!("{folder}_metadata"))?;
    let mut files: Vec<String> = String::from_utf8(metadata)?.lines().map(|name| format!("shared/{name}")).collect();
    files.extend(names.into_iter().map(|(name, ..)| name).filter(|name| name.starts_with(&folder)));
    let queue = Mutex::new(files.into_iter().filter(|name| !name.ends_with("/_metadata")).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let transfer = || -> Result<()> {
            loop {
                let Some(name) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop() else { return Ok(()) };
                let local = name.rsplit('/').next().unwrap_or_default();
                std::fs::write(directory.join(local), fetch(client, &name)?)?;
            }
        };
        let threads: Vec<_> = (0..TRANSFERS).map(|_| scope.spawn(transfer)).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a downloading thread panicked")?)
    })
}

fn fetch(client: &Client, name: &str) -> Result<Vec<u8>> {
    match client.get(name, None)? {
        (Status::Ok, bytes) => Ok(bytes),
        (status, _) => Err(format!("`{name}`: {status:?}").into()),
    }
}

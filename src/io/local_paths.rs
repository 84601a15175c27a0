//! Small steps on local paths that both local seams take.

use std::fs::File;
use std::path::Path;

use crate::{Error, Result};

/// Makes the names in `directory` survive a crash of the host.
pub(super) fn sync_directory(directory: &Path) -> Result<()> {
    let synced = File::open(directory).and_then(|folder| folder.sync_all());
    synced.map_err(|e| Error::io(format!("syncing directory `{}`", directory.display()), e))
}

/// Makes `path` and its missing parents, each synced into the one above.
pub(super) fn create_directory_synced(path: &Path) -> Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
    std::fs::create_dir_all(path).map_err(|e| Error::io(format!("creating directory `{}`", path.display()), e))?;
    for made in missing.into_iter().rev() {
        match made.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent)?,
            Some(_) => sync_directory(Path::new("."))?,
            None => {}
        }
    }
    Ok(())
}

/// True when an open failed because file descriptors ran out (`ENFILE`, `EMFILE`).
pub(super) fn out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

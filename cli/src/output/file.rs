//! The output file. What is in it beyond the synced length of the checkpoint that a job resumes from is cut off at start-up and
//! written again from the rows that the checkpoint holds; from then on bytes are only ever added at the end of what is committed.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::exit::{Failure, Outcome};
use crate::position::ContentHash;

/// How much of the file is known to be on disk, and what it held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// In bytes.
    pub length: u64,
    /// XXH3-64 of those bytes.
    pub hash: ContentHash,
}

impl Synced {
    /// An empty file.
    pub fn nothing() -> Self {
        Self { length: 0, hash: ContentHash::of_nothing() }
    }
}

/// An output that is written at its committed end.
pub struct OutputFile {
    path: PathBuf,
    file: File,
    length: u64,
    hasher: Xxh3,
}

/// An output that was found to hold what a checkpoint says, and hasn't been touched yet.
pub struct ResumableOutput(Resumable);

enum Resumable {
    /// Nothing had been written yet, and the file isn't there.
    Missing(PathBuf),
    Found(Box<OutputFile>),
}

impl OutputFile {
    /// Refuses a file that a new job would have to overwrite, without creating or changing anything. `advice` says what to do with one that isn't empty.
    ///
    /// # Errors
    ///
    /// The file exists and isn't empty, or is no file (exit code 2), or can't be looked at.
    pub fn check_new(path: &Path, advice: &str) -> Outcome<()> {
        check_regular(path)?;
        match std::fs::metadata(path) {
            Ok(meta) if meta.len() > 0 => {
                Err(Failure::usage(format!("the output {} exists and isn't empty: {advice}", path.display())))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => check_folder(path),
            Err(error) => Err(Failure::io("look at the output", path, &error)),
        }
    }

    /// Opens the output of a new job.
    ///
    /// # Errors
    ///
    /// As [`check_new`](Self::check_new); the file can't be created.
    pub fn create(path: &Path) -> Outcome<Self> {
        Self::check_new(path, "empty it or name another one")?;
        let file = open(path, true)?;
        sync_folder(path)?;
        Ok(Self::at(path, file))
    }

    /// Opens the output of a job that goes on, and compares what was synced; changes nothing yet, creates nothing.
    ///
    /// # Errors
    ///
    /// The file is shorter than what was synced, or differs before that (exit code 2, naming both lengths).
    pub fn check_resume(path: &Path, synced: Synced) -> Outcome<ResumableOutput> {
        check_regular(path)?;
        if synced.length == 0 && !path.exists() {
            check_folder(path)?;
            return Ok(ResumableOutput(Resumable::Missing(path.to_owned())));
        }
        let file = match open(path, false) {
            Err(_) if !path.exists() => {
                return Err(Failure::usage(format!(
                    "the output {} is missing: {} bytes were synced, it holds 0",
                    path.display(),
                    synced.length
                )));
            }
            opened => opened?,
        };
        let mut output = Self::at(path, file);
        let length = output.file.metadata().map_err(|error| Failure::io("look at the output", path, &error))?.len();
        if length < synced.length {
            return Err(Failure::usage(format!(
                "the output {} was changed: {} bytes were synced, it holds {length}",
                path.display(),
                synced.length
            )));
        }
        output.hash_up_to(synced.length)?;
        let hash = output.synced().hash;
        if hash != synced.hash {
            return Err(Failure::usage(format!(
                "the output {} was changed: it holds {length} bytes, of which the first {} were synced with the hash {}, now {hash}",
                path.display(),
                synced.length,
                synced.hash
            )));
        }
        Ok(ResumableOutput(Resumable::Found(Box::new(output))))
    }

    /// Writes `bytes` at `offset`, which must be the end of what is committed.
    ///
    /// # Errors
    ///
    /// The file can't be written (a full disk exits with 5); `offset` is elsewhere, which is a fault of the caller.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Outcome<()> {
        if offset != self.length {
            return Err(Failure::internal(format!(
                "rows for offset {offset} of the output, whose committed end is at {}",
                self.length
            )));
        }
        self.file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.file.write_all(bytes))
            .map_err(|error| Failure::io("write the output", &self.path, &error))?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Makes everything written durable, and says what that is.
    ///
    /// # Errors
    ///
    /// The file can't be synced.
    pub fn sync(&mut self) -> Outcome<Synced> {
        self.file.sync_data().map_err(|error| Failure::io("sync the output", &self.path, &error))?;
        Ok(self.synced())
    }

    fn synced(&self) -> Synced {
        Synced { length: self.length, hash: ContentHash(self.hasher.digest()) }
    }

    fn at(path: &Path, file: File) -> Self {
        Self { path: path.to_owned(), file, length: 0, hasher: Xxh3::new() }
    }

    fn hash_up_to(&mut self, length: u64) -> Outcome<()> {
        let mut buffer = vec![0; 64 << 10];
        while self.length < length {
            let wanted = usize::try_from(length - self.length).unwrap_or(usize::MAX).min(buffer.len());
            let read = self
                .file
                .read(&mut buffer[..wanted])
                .map_err(|error| Failure::io("read the output", &self.path, &error))?;
            if read == 0 {
                return Err(Failure::internal(format!("the output {} shrank while it was read", self.path.display())));
            }
            self.hasher.update(&buffer[..read]);
            self.length += read as u64;
        }
        Ok(())
    }
}

impl ResumableOutput {
    /// Cuts off whatever follows the synced part.
    ///
    /// # Errors
    ///
    /// The file can't be cut or synced.
    pub fn cut(self) -> Outcome<OutputFile> {
        let mut output = match self.0 {
            Resumable::Missing(path) => return OutputFile::create(&path),
            Resumable::Found(output) => *output,
        };
        output.file.set_len(output.length).map_err(|error| Failure::io("cut the output", &output.path, &error))?;
        output.sync()?;
        sync_folder(&output.path)?;
        Ok(output)
    }
}

fn open(path: &Path, create: bool) -> Outcome<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .open(path)
        .map_err(|error| Failure::io("open the output", path, &error))
}

/// Refuses what can't be synced, cut and read again, such as a folder, a pipe or `/dev/null`.
fn check_regular(path: &Path) -> Outcome<()> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(Failure::usage(format!("the output {} is a folder", path.display()))),
        Ok(meta) if !meta.is_file() => Err(Failure::usage(format!(
            "the output {} is not a regular file: rows that are written exactly once need one that can be synced, cut and read again",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Finds out while nothing has been touched that `path` couldn't be created.
fn check_folder(path: &Path) -> Outcome<()> {
    let folder = folder_of(path);
    match std::fs::metadata(folder) {
        Ok(meta) if meta.is_dir() && !meta.permissions().readonly() => Ok(()),
        Ok(_) => Err(Failure::usage(format!("the output {} can't be created in {}", path.display(), folder.display()))),
        Err(error) => Err(Failure::io("look at the folder of the output", folder, &error)),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A new file survives a crash of the host only when its folder is synced too.
fn sync_folder(path: &Path) -> Outcome<()> {
    let folder = folder_of(path);
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| Failure::io("sync the folder of the output", folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Code;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.csv");
        (dir, path)
    }

    fn written(path: &Path, bytes: &[u8]) -> Synced {
        let mut output = OutputFile::create(path).unwrap();
        output.write_at(0, bytes).unwrap();
        output.sync().unwrap()
    }

    #[test]
    fn a_file_with_content_is_left_alone_without_resume() {
        let (_dir, path) = folder();
        std::fs::write(&path, "precious").unwrap();
        let error = OutputFile::create(&path).err().unwrap();
        assert_eq!(error.code, Code::Usage);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::write(&path, "").unwrap();
        assert!(OutputFile::create(&path).is_ok());
        assert!(OutputFile::create(path.parent().unwrap()).is_err());
    }

    #[test]
    fn a_resume_cuts_off_junk_and_writes_on() {
        let (_dir, path) = folder();
        let synced = written(&path, b"one\n");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"junk").unwrap();
        let resumable = OutputFile::check_resume(&path, synced).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\njunk", "nothing is touched before it is cut");
        let mut output = resumable.cut().unwrap();
        output.write_at(4, b"two\n").unwrap();
        let end = output.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
        assert_eq!(end, Synced { length: 8, hash: ContentHash(xxhash_rust::xxh3::xxh3_64(b"one\ntwo\n")) });
    }

    #[test]
    fn a_shorter_or_changed_file_is_refused_naming_both_lengths() {
        let (_dir, path) = folder();
        let synced = written(&path, b"one\ntwo\n");
        for (content, part) in [
            (&b"one\n"[..], "8 bytes were synced, it holds 4"),
            (b"One\ntwo\nthree\n", "it holds 14 bytes, of which the first 8 were synced"),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = OutputFile::check_resume(&path, synced).err().unwrap();
            assert!(error.message.contains(part), "{error}");
            assert_eq!(error.code, Code::Usage);
            assert_eq!(std::fs::read(&path).unwrap(), content, "nothing is touched");
        }
        std::fs::remove_file(&path).unwrap();
        let error = OutputFile::check_resume(&path, synced).err().unwrap();
        assert!(error.message.contains("8 bytes were synced, it holds 0"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_regular_file_is_refused() {
        let null = Path::new("/dev/null");
        for refused in [OutputFile::check_new(null, ""), OutputFile::check_resume(null, Synced::nothing()).map(drop)] {
            let error = refused.unwrap_err();
            assert!(error.code == Code::Usage && error.message.contains("not a regular file"), "{error}");
        }
    }

    #[test]
    fn bytes_go_only_to_the_committed_end() {
        let (_dir, path) = folder();
        let mut output = OutputFile::create(&path).unwrap();
        output.write_at(0, b"abc").unwrap();
        assert_eq!(output.write_at(0, b"x").unwrap_err().code, Code::Internal);
        assert_eq!(output.write_at(4, b"x").unwrap_err().code, Code::Internal);
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
    }

    #[test]
    fn a_job_that_had_written_nothing_resumes_without_its_file() {
        let (_dir, path) = folder();
        let mut output = OutputFile::check_resume(&path, Synced::nothing()).unwrap().cut().unwrap();
        output.write_at(0, b"a").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a");
    }
}

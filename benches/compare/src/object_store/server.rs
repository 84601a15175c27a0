//! The process that plays the object store. Objects are files below a directory, not synced: what is simulated is the
//! network, not the disk.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::{Request, Status};
use crate::Result;

/// Time to the first byte.
const FIRST_BYTE: Duration = Duration::from_millis(30);

/// Bytes a second on one connection.
const BYTES_PER_SECOND: f64 = 90e6;

#[derive(Debug)]
struct Server {
    root: PathBuf,
    next_temporary: AtomicU64,
    hung_until: Mutex<Option<Instant>>,
    /// Held while an object gets its name.
    naming: Mutex<()>,
}

/// Serves `root` until standard input ends. Prints the port first.
pub fn serve(root: &Path) -> Result<()> {
    fs::create_dir_all(root)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?.port())?;
    out.flush()?;
    std::thread::spawn(|| {
        // The parent keeps our standard input open for as long as it lives.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let server = Arc::new(Server {
        root: root.to_path_buf(),
        next_temporary: AtomicU64::new(0),
        hung_until: Mutex::new(None),
        naming: Mutex::new(()),
    });
    for connection in listener.incoming() {
        let (connection, server) = (connection?, server.clone());
        std::thread::spawn(move || {
            // A client that went away is no error.
            let _ = server.talk(connection);
        });
    }
    Ok(())
}

impl Server {
    fn talk(&self, mut connection: TcpStream) -> Result<()> {
        connection.set_nodelay(true)?;
        loop {
            let mut head = [0; 20];
            if connection.read_exact(&mut head).is_err() {
                return Ok(());
            }
            let word = |at: usize| head[at..at + 8].iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
            let (a, b) = (word(4), word(12));
            let mut name = vec![0; usize::from(u16::from_le_bytes([head[2], head[3]]))];
            connection.read_exact(&mut name)?;
            let name = String::from_utf8(name)?;
            let request = Request::of(head[0]).ok_or("unknown request")?;
            let begun = Instant::now();
            let (status, bytes, moved) = match request {
                Request::Hang => {
                    *lock(&self.hung_until) = Some(begun + Duration::from_millis(a));
                    respond(&mut connection, Status::Ok, &[])?;
                    continue;
                }
                Request::Put => {
                    let (status, moved) = self.put(&mut connection, &name, head[1] == 1)?;
                    (status, Vec::new(), moved)
                }
                Request::Get => self.read(&name, 0, None),
                Request::GetRange => self.read(&name, a, Some(b)),
                Request::Length => match fs::metadata(self.root.join(&name)) {
                    Ok(metadata) => (Status::Ok, metadata.len().to_le_bytes().to_vec(), 0),
                    Err(error) => (status_of(&error), Vec::new(), 0),
                },
                Request::List => (Status::Ok, self.list(&name), 0),
                Request::Delete => match fs::remove_file(self.root.join(&name)) {
                    Ok(()) => (Status::Ok, Vec::new(), 0),
                    Err(error) => (status_of(&error), Vec::new(), 0),
                },
            };
            let cost = FIRST_BYTE + Duration::from_secs_f64(moved as f64 / BYTES_PER_SECOND);
            std::thread::sleep(cost.saturating_sub(begun.elapsed()));
            let hung = *lock(&self.hung_until);
            if let Some(until) = hung {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            respond(&mut connection, status, &bytes)?;
        }
    }

    fn put(&self, connection: &mut TcpStream, name: &str, create: bool) -> Result<(Status, u64)> {
        let temporary = self.root.join(format!("#{}", self.next_temporary.fetch_add(1, Ordering::Relaxed)));
        let mut file = BufWriter::with_capacity(256 << 10, File::create(&temporary)?);
        let mut buffer = Vec::new();
        let mut moved = 0;
        loop {
            let mut length = [0; 4];
            connection.read_exact(&mut length)?;
            match u32::from_le_bytes(length) {
                0 => break,
                u32::MAX => {
                    fs::remove_file(&temporary)?;
                    return Ok((Status::Ok, moved));
                }
                length => {
                    buffer.resize(length as usize, 0);
                    connection.read_exact(&mut buffer)?;
                    file.write_all(&buffer)?;
                    moved += u64::from(length);
                }
            }
        }
        file.flush()?;
        drop(file);
        let path = self.root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let _naming = lock(&self.naming);
        if create && path.exists() {
            fs::remove_file(&temporary)?;
            return Ok((Status::AlreadyExists, moved));
        }
        fs::rename(&temporary, &path)?;
        Ok((Status::Ok, moved))
    }

    fn read(&self, name: &str, from: u64, to: Option<u64>) -> (Status, Vec<u8>, u64) {
        let read = || {
            let file = File::open(self.root.join(name))?;
            let to = to.map_or_else(|| file.metadata().map(|m| m.len()), Ok)?;
            let mut bytes = vec![0; (to - from) as usize];
            file.read_exact_at(&mut bytes, from)?;
            Ok::<_, std::io::Error>(bytes)
        };
        match read() {
            Ok(bytes) => {
                let moved = bytes.len() as u64;
                (Status::Ok, bytes, moved)
            }
            Err(error) => (status_of(&error), Vec::new(), 0),
        }
    }

    /// Lines of name, length and milliseconds, sorted.
    fn list(&self, prefix: &str) -> Vec<u8> {
        let mut found = Vec::new();
        walk(&self.root, "", &mut found);
        found.retain(|(name, ..)| name.starts_with(prefix) && !name.contains('#'));
        found.sort();
        found.iter().flat_map(|(name, length, ms)| format!("{name}\t{length}\t{ms}\n").into_bytes()).collect()
    }
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, u64, u128)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => walk(&entry.path(), &format!("{name}/"), found),
            Ok(metadata) => {
                let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                found.push((name, metadata.len(), modified.unwrap_or_default().as_millis()));
            }
            // Deleted meanwhile.
            Err(_) => {}
        }
    }
}

fn respond(connection: &mut TcpStream, status: Status, bytes: &[u8]) -> Result<()> {
    let mut head = [status as u8; 9];
    head[1..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    connection.write_all(&head)?;
    Ok(connection.write_all(bytes)?)
}

fn status_of(error: &std::io::Error) -> Status {
    match error.kind() {
        std::io::ErrorKind::NotFound => Status::NotFound,
        std::io::ErrorKind::UnexpectedEof => Status::TooShort,
        _ => Status::Failed,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

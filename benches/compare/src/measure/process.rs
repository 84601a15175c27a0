//! What the operating system says a process uses.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Result;

/// How often memory is looked at.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

fn number_after(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Anonymous and shared memory of this process, in bytes.
pub fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    Ok((number_after(&status, "RssAnon:") + number_after(&status, "RssShmem:")) << 10)
}

/// Bytes that this process caused to be written to disk.
pub fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    number_after(&io, "write_bytes:")
}

/// Processor time of all threads of this process.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Processor time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of all files below `path`.
pub fn directory_bytes(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => directory_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Watches memory from a thread of its own.
#[derive(Debug)]
pub struct MemoryWatch {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Starts watching.
    pub fn start() -> Self {
        let (most, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (thread_most, thread_stop) = (most.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !thread_stop.load(Ordering::Relaxed) {
                thread_most.fetch_max(resident_bytes().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(SAMPLE_EVERY);
            }
        });
        Self { most, stop, thread: Some(thread) }
    }

    /// The most that was seen so far.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Puts this process into a memory cgroup of its own with `limit_bytes`, so that the page cache can't hold more.
///
/// # Errors
/// Why there is no such cgroup here: neither version 1 nor 2 is mounted, or it may not be written.
pub fn limit_memory(limit_bytes: u64) -> Result<()> {
    let name = format!("highwater-compare-{}", std::process::id());
    let v1 = Path::new("/sys/fs/cgroup/memory");
    let (folder, file) = if v1.join("memory.limit_in_bytes").exists() {
        (v1.join(name), "memory.limit_in_bytes")
    } else if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        (Path::new("/sys/fs/cgroup").join(name), "memory.max")
    } else {
        return Err("no memory cgroup is mounted".into());
    };
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join(file), limit_bytes.to_string())?;
    std::fs::write(folder.join("cgroup.procs"), std::process::id().to_string())?;
    Ok(())
}

/// Removes the cgroups of processes that are gone.
pub fn remove_cgroups() {
    for root in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        let Ok(entries) = std::fs::read_dir(root) else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with("highwater-compare-") {
                // Fails while a process is in it, which is right.
                let _ = std::fs::remove_dir(entry.path());
            }
        }
    }
}

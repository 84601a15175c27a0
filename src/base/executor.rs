//! The seam for background work: submit a job, somebody runs it.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam::channel::{Sender, unbounded};
use parking_lot::Mutex;

/// A piece of background work. It runs once, to its end.
pub type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs away from the owner thread.
pub trait Executor: Send + Sync + std::fmt::Debug {
    /// Hands over `job`. Never blocks. A job handed over after shutdown is dropped.
    fn spawn(&self, job: Job);
}

/// A fixed number of named threads. Dropping the pool lets running jobs end, drops waiting ones, and
/// doesn't wait: a job may itself hold the last handle to the pool.
#[derive(Debug)]
pub struct ThreadPool {
    sender: Sender<Job>,
    stopped: Arc<std::sync::atomic::AtomicBool>,
}

impl ThreadPool {
    /// `threads` threads called `name`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::ResourceExhausted`] when a thread can't be started.
    pub fn start(name: &str, threads: usize) -> crate::Result<Self> {
        let (sender, receiver) = unbounded::<Job>();
        let stopped = Arc::new(std::sync::atomic::AtomicBool::new(false));
        for index in 0..threads.max(1) {
            let receiver = receiver.clone();
            let stopped = stopped.clone();
            let run = move || {
                while let Ok(job) = receiver.recv() {
                    if stopped.load(std::sync::atomic::Ordering::Acquire) {
                        break;
                    }
                    // A panicking job has poisoned what it worked on; the thread serves the others.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                }
            };
            #[expect(clippy::disallowed_methods, reason = "the one door to threads")]
            std::thread::Builder::new().name(format!("{name}-{index}")).spawn(run).map_err(|e| {
                crate::Error::with_source(
                    crate::ErrorKind::ResourceExhausted,
                    format!("starting thread `{name}-{index}`"),
                    e,
                )
            })?;
        }
        Ok(Self { sender, stopped })
    }
}

impl Executor for ThreadPool {
    fn spawn(&self, job: Job) {
        let _ = self.sender.send(job);
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.stopped.store(true, std::sync::atomic::Ordering::Release);
    }
}

/// Keeps jobs until a test steps them, so that a test decides what runs when.
#[derive(Default)]
pub struct StepExecutor {
    jobs: Mutex<VecDeque<Job>>,
}

impl std::fmt::Debug for StepExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StepExecutor({} waiting)", self.waiting())
    }
}

impl StepExecutor {
    /// An executor with nothing to do.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.jobs.lock().len()
    }

    /// Runs the job at `index % waiting`, on the calling thread. False when none waits.
    pub fn step(&self, index: usize) -> bool {
        let job = {
            let mut jobs = self.jobs.lock();
            let len = jobs.len();
            if len == 0 { None } else { jobs.remove(index % len) }
        };
        job.is_some_and(|job| {
            job();
            true
        })
    }

    /// Runs jobs in order of arrival, those that they spawn included, until none waits.
    pub fn run_until_idle(&self) {
        while self.step(0) {}
    }

    /// Drops what waits, as a crash would.
    pub fn clear(&self) {
        let jobs = std::mem::take(&mut *self.jobs.lock());
        drop(jobs);
    }
}

impl Executor for StepExecutor {
    fn spawn(&self, job: Job) {
        self.jobs.lock().push_back(job);
    }
}

//! Threads on which asynchronous clients of stores run, so that whoever calls them just waits.
//!
//! The calling thread waits on a channel, so it doesn't matter whether it is inside some runtime itself, and dropping
//! the store leaves its threads to end on their own.

use std::future::Future;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::{Error, ErrorKind, Result};

/// Threads that drive requests; they hardly compute.
const RUNTIME_THREADS: usize = 2;

/// Longest wait for the answer to one request, whose thread then serves others: well beyond the time for which clients
/// themselves retry, and long enough to list a million objects.
const REQUEST_DEADLINE: Duration = Duration::from_secs(600);

/// See the module.
pub(super) struct Threads {
    url: String,
    pub(super) deadline: Duration,
    /// `None` only while being dropped.
    runtime: Option<tokio::runtime::Runtime>,
}

/// A request that our threads are at.
pub(super) struct UnderWay<T> {
    receiver: Receiver<T>,
    request: tokio::task::JoinHandle<()>,
}

impl Threads {
    /// Threads for the store that errors call `url`.
    ///
    /// # Errors
    /// `ResourceExhausted` when they can't be started.
    pub(super) fn start(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .thread_name("highwater-store")
            .enable_all()
            .build()
            .map_err(|e| Error::with_source(ErrorKind::ResourceExhausted, format!("threads for `{url}`"), e))?;
        Ok(Self { url: url.to_owned(), deadline: REQUEST_DEADLINE, runtime: Some(runtime) })
    }

    /// For clients that start work of their own.
    #[cfg(feature = "hdfs")]
    pub(super) fn handle(&self) -> Option<tokio::runtime::Handle> {
        self.runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Runs `future` on our threads.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<UnderWay<T>> {
        let Some(runtime) = &self.runtime else {
            return Err(Error::new(ErrorKind::Closed, format!("store `{}`", self.url)));
        };
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let request = runtime.spawn(async move {
            let _ = sender.send(future.await);
        });
        Ok(UnderWay { receiver, request })
    }

    /// Waits for what was begun, up to the deadline.
    pub(super) fn end<T>(&self, doing: &str, name: &str, begun: UnderWay<T>) -> Result<T> {
        let UnderWay { receiver, request } = begun;
        match receiver.recv_timeout(self.deadline) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                request.abort();
                let message = format!("{doing} `{name}` in `{}`: no answer in {:?}", self.url, self.deadline);
                Err(Error::new(ErrorKind::Timeout, message))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::internal(format!("{doing} `{name}` in `{}`: the request panicked", self.url)))
            }
        }
    }

    /// Runs `future` on our threads and waits for it here, up to the deadline.
    #[cfg(feature = "hdfs")]
    pub(super) fn wait<T: Send + 'static>(
        &self,
        doing: &str,
        name: &str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        self.end(doing, name, self.begin(future)?)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

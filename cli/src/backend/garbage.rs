//! A thread that deletes, every now and then, what no checkpoint reaches any more.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Sender, bounded};
use highwater::checkpoint::collector::Collector;
use highwater::io::retry::may_pass;
use highwater::{Environment, Error, ErrorKind};
use std::sync::OnceLock;

use crate::backend::failure;
use crate::console;
use crate::exit::{Code, Failure, Outcome};

/// Runs until it is dropped; a collection that is under way then ends by itself.
#[derive(Debug)]
pub struct GarbageThread {
    fenced: Arc<OnceLock<Error>>,
    _stop: Sender<()>,
}

impl GarbageThread {
    /// Collects soon, then every `pause`.
    ///
    /// # Errors
    ///
    /// The thread can't be started.
    pub fn start(env: Environment, collector: Collector, soon: Duration, pause: Duration) -> Outcome<Self> {
        let fenced: Arc<OnceLock<Error>> = Arc::default();
        let (stop, stopped) = bounded::<()>(0);
        let seen = fenced.clone();
        let body = move || {
            let mut wait = soon;
            while stopped.recv_timeout(wait).is_err_and(|error| error.is_timeout()) {
                wait = pause;
                match env.collect_garbage(&collector) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Fenced => {
                        let _ = seen.set(error);
                        return;
                    }
                    Err(error) if may_pass(&error) => tracing::info!(%error, "garbage isn't collected for now"),
                    Err(error) => console::warn(format_args!("garbage can't be collected: {error}")),
                }
            }
        };
        let started = std::thread::Builder::new().name("garbage".to_owned()).spawn(body);
        started.map_err(|error| Failure::new(Code::Resource, format!("cannot start a thread: {error}")))?;
        Ok(Self { fenced, _stop: stop })
    }

    /// Says so once a successor has been seen.
    ///
    /// # Errors
    ///
    /// This job has been fenced (4).
    pub fn check(&self) -> Outcome<()> {
        self.fenced.get().map_or(Ok(()), |error| Err(failure(error)))
    }
}

//! Several writes of which all are made or none.

use super::backend::Backend;
use super::pressure::Pressure;
use crate::Result;

/// Bytes that a record takes beside its key and value, at most.
const RECORD_BYTES: usize = 64;

/// Takes the promise back however the writes end.
struct Promise<'a>(&'a mut Backend);

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.0.promised = false;
        self.0.memtable.end_promise();
    }
}

impl Backend {
    /// Calls `call`, whose writes are then not refused for want of memory: `writes` of them at most, with keys and values
    /// of `bytes` together. The pressure there is has been borne before. So a call that writes several records leaves no
    /// half of them behind when storage can't keep up. A call within another is part of it.
    ///
    /// # Errors
    /// `Backpressure` when storage is too far behind, before `call` is called; what `call` returns; why the backend was
    /// stopped.
    ///
    /// # Panics
    /// Only as `call` does; the promise ends then too.
    pub fn admitted<T>(&mut self, writes: usize, bytes: usize, call: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.shared.check()?;
        if self.promised {
            return call(self);
        }
        if self.pressure != Pressure::None {
            self.bear_pressure()?;
        }
        let needed = bytes.saturating_add(writes.saturating_mul(RECORD_BYTES)) as u64;
        if let Err(full) = self.memtable.promise(needed) {
            self.make_room(&full)?;
            self.memtable.promise(needed).map_err(|full| full.context(format!("{:?}", self.shared)))?;
        }
        self.promised = true;
        let promise = Promise(self);
        call(&mut *promise.0)
    }
}

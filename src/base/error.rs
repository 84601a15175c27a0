//! The one error type of the crate.

use std::fmt;
use std::sync::Arc;

/// Result of a Highwater call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, by what the caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call can't be served as asked: change the argument. Nothing was written.
    InvalidArgument,
    /// The named object isn't there.
    NotFound,
    /// The id or name is in use or older than one that is.
    AlreadyExists,
    /// Bytes at rest don't check out: restore from another checkpoint, or replace the object.
    Corruption,
    /// Written by a newer version or with a feature this one doesn't have: upgrade.
    Unsupported,
    /// A local file operation failed.
    Io,
    /// The object store failed in a way that may pass: retry later.
    Unavailable,
    /// A deadline passed.
    Timeout,
    /// Storage is behind: nothing was applied, retry after a pause.
    Backpressure,
    /// Disk, memory or file descriptors ran out.
    ResourceExhausted,
    /// Another process holds the directory.
    Locked,
    /// A successor has taken over this job: stop.
    Fenced,
    /// The checkpoint or job was aborted.
    Aborted,
    /// A merge operator failed or is missing.
    Merge,
    /// A caller's codec couldn't decode what is stored.
    Codec,
    /// An earlier internal error stopped this backend: reopen from the last checkpoint.
    Poisoned,
    /// The handle was closed.
    Closed,
    /// A bug in Highwater: please report it.
    Internal,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::InvalidArgument => "invalid argument",
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::Corruption => "corruption",
            Self::Unsupported => "unsupported",
            Self::Io => "I/O error",
            Self::Unavailable => "store unavailable",
            Self::Timeout => "timed out",
            Self::Backpressure => "backpressure",
            Self::ResourceExhausted => "resource exhausted",
            Self::Locked => "locked",
            Self::Fenced => "fenced",
            Self::Aborted => "aborted",
            Self::Merge => "merge failed",
            Self::Codec => "codec failed",
            Self::Poisoned => "backend poisoned",
            Self::Closed => "closed",
            Self::Internal => "internal error",
        };
        f.write_str(text)
    }
}

/// An error: its kind, a message that names the object, and the cause if there was one.
///
/// Cheap to clone, since errors in iteration and poisoned backends repeat themselves.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` whose `message` names the object it is about.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { inner: Arc::new(Inner { kind, message: message.into(), source: None }) }
    }

    /// As [`Error::new`], with the error that caused it.
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { inner: Arc::new(Inner { kind, message: message.into(), source: Some(source.into()) }) }
    }

    /// Shorthand for [`ErrorKind::InvalidArgument`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// Shorthand for [`ErrorKind::Corruption`]: name the file, the offset, what was expected and found.
    pub fn corruption(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption, message)
    }

    /// Shorthand for [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// A failed file operation on `what`, its kind taken from `error`.
    pub fn io(what: impl Into<String>, error: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match error.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::AlreadyExists => ErrorKind::AlreadyExists,
            Io::StorageFull | Io::QuotaExceeded | Io::OutOfMemory => ErrorKind::ResourceExhausted,
            Io::UnexpectedEof => ErrorKind::Corruption,
            Io::TimedOut => ErrorKind::Timeout,
            _ if matches!(error.raw_os_error(), Some(23 | 24)) => ErrorKind::ResourceExhausted,
            _ => ErrorKind::Io,
        };
        Self::with_source(kind, what, error)
    }

    /// The same error, its message led by `context`.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        let kind = self.kind();
        let message = format!("{context}: {}", self.inner.message);
        Self { inner: Arc::new(Inner { kind, message, source: Some(Box::new(self)) }) }
    }

    /// The first cause that isn't one of these errors itself: what the system or a library said.
    fn foreign_cause(&self) -> Option<&(dyn std::error::Error + Send + Sync)> {
        let mut error = self;
        loop {
            let source = error.inner.source.as_deref()?;
            match source.downcast_ref::<Self>() {
                Some(inner) => error = inner,
                None => return Some(source),
            }
        }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The message without its kind.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.inner.kind, self.inner.message)?;
        // What led to it, once: a message may quote the error that it is about.
        match self.foreign_cause().map(|cause| cause.to_string()) {
            Some(cause) if !self.inner.message.contains(&cause) => write!(f, " ({cause})"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_deref().map(|s| s as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once_however_often_the_error_was_passed_on() {
        let full = Error::io("writing `a.seg`", std::io::Error::from_raw_os_error(28)).context("checkpoint 1/4");
        let quoted = Error::with_source(ErrorKind::Poisoned, format!("stopped after: {full}"), full.clone());
        for error in [full, quoted] {
            assert_eq!(error.to_string().matches("No space left on device").count(), 1, "{error}");
        }
    }

    #[test]
    fn message_names_kind_object_and_cause() {
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = Error::io("reading `a.seg`", cause).context("restoring checkpoint 3");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.to_string(), "not found: restoring checkpoint 3: reading `a.seg` (entity not found)");
    }
}

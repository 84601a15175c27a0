//! From the library's errors to exit codes.

use std::error::Error as _;

use highwater::{Error, ErrorKind};

use crate::exit::{Code, Failure, Outcome};

/// The failure that `error` is to this command.
pub fn failure(error: &Error) -> Failure {
    Failure::new(code(error), error.to_string())
}

/// The failure of a checkpoint. What the store or the local disk refuses for good, a full disk or a missing permission,
/// is a resource that is missing, and tells those apart that may pass.
pub fn checkpoint_failure(error: &Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::Io | ErrorKind::InvalidArgument => Code::Resource,
        _ => code(error),
    };
    Failure::new(code, error.to_string())
}

fn code(error: &Error) -> Code {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Corruption | ErrorKind::Unsupported => Code::Checkpoint,
        ErrorKind::Locked | ErrorKind::Fenced => Code::Locked,
        ErrorKind::ResourceExhausted | ErrorKind::Backpressure => Code::Resource,
        ErrorKind::InvalidArgument => Code::Usage,
        // By what stopped it.
        ErrorKind::Poisoned => error.source().and_then(|by| by.downcast_ref()).map_or(Code::Internal, code),
        _ => Code::Internal,
    }
}

/// Turns the library's results into the command's.
pub trait Context<T> {
    /// As [`failure`] has it.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn outcome(self) -> Outcome<T>;

    /// While opening what the user named: what is wrong with a path or URL is for the user to put right.
    ///
    /// # Errors
    ///
    /// Those of the library.
    fn opening(self) -> Outcome<T>;
}

impl<T> Context<T> for highwater::Result<T> {
    fn outcome(self) -> Outcome<T> {
        self.map_err(|error| failure(&error))
    }

    fn opening(self) -> Outcome<T> {
        self.map_err(|error| match error.kind() {
            ErrorKind::Io | ErrorKind::NotFound | ErrorKind::Unsupported | ErrorKind::AlreadyExists => {
                Failure::usage(error.to_string())
            }
            _ => failure(&error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_exits_by_what_its_caller_can_do() {
        for (kind, code) in [
            (ErrorKind::NotFound, Code::Checkpoint),
            (ErrorKind::Corruption, Code::Checkpoint),
            (ErrorKind::Unsupported, Code::Checkpoint),
            (ErrorKind::Locked, Code::Locked),
            (ErrorKind::Fenced, Code::Locked),
            (ErrorKind::ResourceExhausted, Code::Resource),
            (ErrorKind::Backpressure, Code::Resource),
            (ErrorKind::InvalidArgument, Code::Usage),
            (ErrorKind::Unavailable, Code::Internal),
            (ErrorKind::Poisoned, Code::Internal),
        ] {
            assert_eq!(failure(&Error::new(kind, "x")).code, code, "{kind:?}");
        }
        let bad = Error::corruption("`a.seg`");
        assert_eq!(failure(&Error::with_source(ErrorKind::Poisoned, "x", bad)).code, Code::Checkpoint, "its cause's");
        let refused = Error::new(ErrorKind::Io, "permission denied");
        assert_eq!((failure(&refused).code, checkpoint_failure(&refused).code), (Code::Internal, Code::Resource));
        assert_eq!(checkpoint_failure(&Error::new(ErrorKind::Unavailable, "away")).code, Code::Internal);
        let opened: highwater::Result<()> = Err(Error::new(ErrorKind::Unsupported, "no such store"));
        assert_eq!(opened.opening().unwrap_err().code, Code::Usage);
    }
}

//! How the process ends: the exit codes that scripts rely on, and the one error type of the command.

use std::fmt;
use std::io;
use std::path::Path;

/// What an exit code tells a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Everything went well.
    Good = 0,
    /// An internal error, or the demo found a difference.
    Internal = 1,
    /// Wrong usage, configuration or input.
    Usage = 2,
    /// A checkpoint is missing, corrupt or of an unsupported format.
    Checkpoint = 3,
    /// The directory is in use, or a successor has taken the job over.
    Locked = 4,
    /// Out of a resource: disk, memory budget, file descriptors.
    Resource = 5,
}

/// Why the command can't go on, and the code it exits with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What went wrong, naming the thing that has to change.
    pub message: String,
}

/// The result of anything in this command that can fail.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with any code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Wrong usage, configuration or input (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// A fault of the program itself (exit code 1).
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// The missing, corrupt or unsupported checkpoint (exit code 3).
    pub fn checkpoint(message: impl Into<String>) -> Self {
        Self::new(Code::Checkpoint, message)
    }

    /// An input or output operation on `path` failed while doing `what` to it.
    ///
    /// What a user can put right by naming another path exits with 2, a full disk and the like with 5, all else with 1.
    pub fn io(what: &str, path: &Path, error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        let code = match error.kind() {
            Kind::NotFound
            | Kind::PermissionDenied
            | Kind::IsADirectory
            | Kind::NotADirectory
            | Kind::ReadOnlyFilesystem
            | Kind::InvalidFilename => Code::Usage,
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge | Kind::OutOfMemory => Code::Resource,
            _ => Code::Internal,
        };
        Self::new(code, format!("cannot {what} {}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_exit_by_who_can_put_them_right() {
        let path = Path::new("/x");
        for (kind, code) in [
            (io::ErrorKind::NotFound, Code::Usage),
            (io::ErrorKind::StorageFull, Code::Resource),
            (io::ErrorKind::BrokenPipe, Code::Internal),
        ] {
            assert_eq!(Failure::io("open", path, &kind.into()).code, code, "{kind:?}");
        }
    }
}

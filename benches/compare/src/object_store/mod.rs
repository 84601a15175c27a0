//! A simulated object store in a process of its own: 30 ms to the first byte and 90 MB/s a connection, which is what S3
//! gives. All stores are measured against it through one client, which counts what they ask for.
//!
//! ```text
//! request    op u8 | mode u8 | name length u16 | a u64 | b u64 | name | for put: chunks (length u32, bytes) until a length
//!            of 0 (the end) or of u32::MAX (given up)
//! response   status u8 | length u64 | bytes        all little-endian
//! ```

pub mod as_highwater;
pub mod client;
pub mod server;

/// Operations of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    /// Store an object; mode 1: only if it isn't there.
    Put = 1,
    /// All of it.
    Get,
    /// Bytes `a..b`.
    GetRange,
    /// Its length.
    Length,
    /// Names that start so, each with length and time.
    List,
    /// Remove it.
    Delete,
    /// Answer nothing for `a` milliseconds. Free of the simulated latency.
    Hang,
}

/// Answers of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No object of that name.
    NotFound,
    /// There is one already.
    AlreadyExists,
    /// The object is shorter.
    TooShort,
    /// Something else.
    Failed,
}

impl Request {
    fn of(byte: u8) -> Option<Self> {
        [Self::Put, Self::Get, Self::GetRange, Self::Length, Self::List, Self::Delete, Self::Hang]
            .into_iter()
            .find(|request| *request as u8 == byte)
    }
}

impl Status {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Ok,
            1 => Self::NotFound,
            2 => Self::AlreadyExists,
            3 => Self::TooShort,
            _ => Self::Failed,
        }
    }
}

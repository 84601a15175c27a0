//! Writing the output: rows as bytes, and the file that holds exactly the committed ones.
//!
//! - Enters: windows that have fired; the offset at which bytes are committed.
//! - Leaves: RFC 4180 rows with LF; a file whose synced length and content hash go into the next checkpoint.
//! - Always holds: bytes go only to the end of what is committed; nothing is cut off after start-up.

mod file;
mod row;

pub use file::{OutputFile, ResumableOutput, Synced};
pub use row::{format_time, session_header, window_header, write_session, write_window};

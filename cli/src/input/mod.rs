//! Reading the input: a CSV file with a header row.
//!
//! - Enters: a path, the three columns to take, how to read times; to resume, a [`Position`](crate::position::Position).
//! - Leaves: well-formed [`Record`](crate::runtime::Record)s in input order, and at any record the position to go on from.
//! - Always holds: key bytes are those of the file (unquoted, nothing else); a malformed row is an error that names its line and column,
//!   or counted; a position's hash covers exactly the bytes before its offset.

mod rows;
mod source;
mod time;
mod value;

pub use rows::{RowRead, RowReader};
pub use source::{CsvOptions, CsvSource};
pub use time::parse_time;
pub use value::parse_value;

//! The demo's own parts: a generated workload, and a recomputation to compare every result with.
//!
//! - Enters: a seed and a number of events.
//! - Leaves: bids as records of two streams (tumbling windows by auction, sessions by bidder); the verdict on an output file.
//! - Always holds: event number n is the same whenever it is generated, so a source can go on at any; the recomputation shares no window code
//!   with the job.

mod check;
mod command;
mod generator;
mod run;
mod source;
mod summary;

pub use check::{Verdict, check};
pub use command::main;
pub use generator::{Bid, bid, event_time};
pub use run::run;
pub use source::{BidSource, Pace};
pub use summary::summary;

use crate::window::{StreamSpec, WindowKind};

/// Tumbling windows by auction.
pub const WINDOW_NANOS: i64 = 10_000_000_000;

/// Sessions by bidder.
pub const GAP_NANOS: i64 = 1_000_000_000;

/// No event is further behind than this.
pub const OUT_OF_ORDERNESS_NANOS: i64 = 1_000_000_000;

/// The demo's streams, by their id.
pub const STREAMS: [StreamSpec; 2] = [
    StreamSpec { kind: WindowKind::Tumbling { size: WINDOW_NANOS }, label: "window," },
    StreamSpec { kind: WindowKind::Session { gap: GAP_NANOS }, label: "session," },
];

#[cfg(test)]
mod tests;

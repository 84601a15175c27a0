//! For tests: kills this process, as `kill -9` would, at a chosen point of its work.
//!
//! `HIGHWATER_TEST_KILL=POINT:N` in the environment names a point and the how manyeth passing of it is the end; with `POINT:N:term` the process is sent
//! SIGTERM there, as a user would to have it stop; with `POINT:N:hang` every thread that passes from the Nth passing on stays there for ever, as in a call to
//! a file system that is away. Without the variable, which no user has a reason to set, passing a point costs one comparison.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The environment variable.
pub const VARIABLE: &str = "HIGHWATER_TEST_KILL";

/// Where the process can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// An event of the input has been read.
    Event,
    /// A segment is about to be uploaded: its epoch has been frozen and flushed.
    BeforeSegment,
    /// A piece of a segment is on its way.
    InSegment,
    /// All segments of a part are uploaded, its manifest isn't.
    BeforeManifest,
    /// A part is complete in the store.
    AfterManifest,
    /// An entry of the root log is about to be written: a claim, or what completes a checkpoint.
    BeforeLogEntry,
    /// The entry stands, and nobody has been told.
    AfterLogEntry,
    /// Rows of a completed checkpoint are about to be written to the output.
    BeforeAppend,
    /// Some of them have been written.
    InAppend,
    /// All of them have, and the file isn't synced.
    BeforeSync,
    /// A manifest is about to be read: a restore, or garbage collection.
    ReadManifest,
    /// Part of a segment is about to be read from the store.
    ReadSegment,
    /// Garbage collection has deleted an object.
    AfterDelete,
    /// A subtask has fired some of the windows that are due, and more are.
    Firing,
    /// A row that others may come before has been put into the sink's state.
    Holding,
    /// Rows that were held have been taken out of the sink's state, to be staged.
    Releasing,
}

/// All points, with their names in the variable.
pub const POINTS: [(&str, Point); 16] = [
    ("event", Point::Event),
    ("before-segment", Point::BeforeSegment),
    ("in-segment", Point::InSegment),
    ("before-manifest", Point::BeforeManifest),
    ("after-manifest", Point::AfterManifest),
    ("before-log-entry", Point::BeforeLogEntry),
    ("after-log-entry", Point::AfterLogEntry),
    ("before-append", Point::BeforeAppend),
    ("in-append", Point::InAppend),
    ("before-sync", Point::BeforeSync),
    ("read-manifest", Point::ReadManifest),
    ("read-segment", Point::ReadSegment),
    ("after-delete", Point::AfterDelete),
    ("firing", Point::Firing),
    ("holding", Point::Holding),
    ("releasing", Point::Releasing),
];

struct Plan {
    point: Point,
    /// The passing that is meant, from 1.
    at: u64,
    passed: AtomicU64,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Signal(i32),
    Hang,
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

fn parse(text: &str) -> Option<Plan> {
    let (name, rest) = text.split_once(':')?;
    let (at, what) = match rest.split_once(':') {
        None => (rest, What::Signal(signal_hook::consts::SIGKILL)),
        Some((at, "term")) => (at, What::Signal(signal_hook::consts::SIGTERM)),
        Some((at, "hang")) => (at, What::Hang),
        Some(_) => return None,
    };
    let (_, point) = POINTS.iter().find(|(known, _)| *known == name)?;
    Some(Plan { point: *point, at: at.parse().ok()?, passed: AtomicU64::new(0), what })
}

/// Passes `point`.
pub fn pass(point: Point) {
    let plan = PLAN.get_or_init(|| std::env::var(VARIABLE).ok().as_deref().and_then(parse));
    let Some(plan) = plan.as_ref().filter(|plan| plan.point == point) else { return };
    let passing = plan.passed.fetch_add(1, Ordering::Relaxed) + 1;
    match plan.what {
        // Doesn't return from SIGKILL, which can't be caught.
        What::Signal(signal) if passing == plan.at => drop(signal_hook::low_level::raise(signal)),
        What::Hang if passing >= plan.at => loop {
            std::thread::park();
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_a_point_and_a_passing() {
        let plan = parse("in-append:3").unwrap();
        assert_eq!((plan.point, plan.at), (Point::InAppend, 3));
        assert_eq!(parse("firing:1:term").unwrap().what, What::Signal(signal_hook::consts::SIGTERM));
        assert_eq!(parse("firing:1:hang").unwrap().what, What::Hang);
        for wrong in ["", "in-append", "in-append:x", "nowhere:1", "firing:1:hup"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }
}

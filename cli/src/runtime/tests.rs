//! Whole runs over state in memory: the output must not depend on parallelism, batches, or where a run was cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::aggregate::Number;
use crate::exit::{Code, Failure};
use crate::output::OutputFile;
use crate::testing::{MemoryCoordinator, MemoryRoot, MemoryState, PassingClock, naive};
use crate::window::{WindowKind, WindowOperator};
use highwater::base::clock::SystemClock;

/// At which event to stop, and how.
type Cut = (usize, fn(&Stop));

/// Events from a list; stops the run at one of them, so that cuts are where the test wants them.
struct Events {
    events: Arc<Vec<naive::Event>>,
    next: usize,
    cut: Option<(Cut, Stop)>,
}

impl Source for Events {
    fn next(&mut self, records: &mut Vec<Record>) -> Outcome<Option<i64>> {
        if let Some(((at, how), stop)) = &self.cut
            && *at == self.next
        {
            how(stop);
            // The coordinator looks every few milliseconds: hold the input until it has seen the wish.
            std::thread::sleep(Duration::from_millis(1));
            return self.wait_while_cut();
        }
        let Some(event) = self.events.get(self.next) else {
            return Ok(None);
        };
        self.next += 1;
        if self.next.is_multiple_of(500) {
            // Leaves time for checkpoints between the records.
            std::thread::sleep(Duration::from_millis(2));
        }
        records.push(Record {
            stream: 0,
            key: event.key.as_slice().into(),
            time: event.time,
            value: event.value.map(|value| Number::Integer(value.into())),
            watermark: i64::MIN,
        });
        Ok(Some(event.time))
    }

    fn position(&self) -> Position {
        Position { offset: self.next as u64, records: self.next as u64, ..Position::start() }
    }
}

impl Events {
    /// An event of no record and no time: the run goes on without the input moving.
    fn wait_while_cut(&mut self) -> Outcome<Option<i64>> {
        Ok(Some(i64::MIN))
    }
}

struct Case {
    dir: tempfile::TempDir,
    root: MemoryRoot,
    events: Arc<Vec<naive::Event>>,
    kind: WindowKind,
    bound: i64,
    fail: fn(u64) -> Option<Failure>,
    /// The store never answers.
    hangs: bool,
    /// Of tests that wait for a deadline it is one that passes quickly.
    clock: Arc<dyn Clock>,
}

impl Case {
    fn new(kind: WindowKind, bound: i64) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            root: MemoryRoot::default(),
            events: Arc::new(some_events(5000)),
            kind,
            bound,
            fail: |_| None,
            hangs: false,
            clock: Arc::new(SystemClock),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("out.csv")
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap_or_default()
    }

    fn want(&self) -> (String, u64) {
        let (rows, late) = match self.kind {
            WindowKind::Tumbling { size } => naive::windows(&self.events, size, self.bound),
            WindowKind::Session { gap } => naive::sessions(&self.events, gap, self.bound),
        };
        (format!("header\n{}", rows.concat()), late)
    }

    /// Goes on from the newest checkpoint, if there is one.
    fn run(&self, parallelism: u32, cut: Option<Cut>) -> Outcome<Ended> {
        let newest = self.root.0.lock().unwrap().last_key_value().map(|(id, parts)| (*id, parts.clone()));
        let stop = Stop::default();
        let (first, parts) = newest.clone().unwrap_or_default();
        let keyed = (0..parallelism).map(|index| {
            let state = MemoryState::share(&parts, index, parallelism, 128);
            WindowOperator::new(state, &[self.kind.alone()]).unwrap()
        });
        let part = parts.iter().find(|part| !part.metadata.is_empty());
        let (position, sink) = match part {
            None => {
                let _ = std::fs::remove_file(self.path());
                let file = OutputFile::create(&self.path())?;
                (
                    Position::start(),
                    StagedOutput::new(MemoryState::default(), file, BTreeMap::new(), b"header\n").unwrap(),
                )
            }
            Some(part) => {
                let metadata = JobMetadata::decode(&part.metadata)?;
                let file = OutputFile::check_resume(&self.path(), metadata.synced)?;
                let sink = StagedOutput::resume(part.state.clone(), file, &metadata)?;
                (metadata.position, sink)
            }
        };
        let source = Events {
            events: self.events.clone(),
            next: position.offset as usize,
            cut: cut.map(|cut| (cut, stop.clone())),
        };
        let job = Job {
            source,
            position,
            keyed: keyed.collect(),
            sink,
            coordinator: MemoryCoordinator {
                fail: self.fail,
                hangs: self.hangs,
                ..MemoryCoordinator::new(&self.root, parallelism as usize + 1)
            },
            settings: Settings {
                max_parallelism: 128,
                out_of_orderness: self.bound,
                rate: None,
                interval: Duration::from_millis(5),
                checkpoint_timeout: Duration::from_secs(60),
                first_checkpoint: first + 1,
            },
            clock: self.clock.clone(),
        };
        run(job, &stop, &Standing::default(), &mut |_| ())
    }
}

/// Keys of which few are hot, times that run backwards at times, values that are missing at times.
fn some_events(count: usize) -> Vec<naive::Event> {
    let mut state = 7u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let events = (0..count as i64).map(|index| naive::Event {
        key: format!("k{}", if random(2) == 0 { random(3) } else { random(60) }).into_bytes(),
        time: index * 3 - random(120) as i64,
        value: (random(5) > 0).then(|| random(1000) as i64 - 300),
    });
    events.collect()
}

const KINDS: [(WindowKind, i64); 4] = [
    (WindowKind::Tumbling { size: 50 }, 120),
    (WindowKind::Tumbling { size: 50 }, 20),
    (WindowKind::Session { gap: 40 }, 120),
    (WindowKind::Session { gap: 40 }, 20),
];

#[test]
fn the_output_and_the_late_count_are_the_same_at_every_parallelism() {
    for (kind, bound) in KINDS {
        for parallelism in 1..=5 {
            let case = Case::new(kind, bound);
            let ended = case.run(parallelism, None).unwrap();
            let (want, late) = case.want();
            assert_eq!(ended.ending, Ending::Finished);
            assert_eq!(case.output(), want, "{kind:?} at {parallelism}");
            assert_eq!((ended.totals.late, ended.position.records), (late, 5000));
            assert_eq!(ended.totals.output_rows as usize + 1, want.lines().count());
            assert!(ended.position.finished && ended.checkpoints.completed > 0 && ended.first_record.is_some());
        }
    }
}

#[test]
fn crashed_at_any_record_and_resumed_at_any_parallelism_the_output_is_the_same() {
    for (kind, bound) in KINDS {
        let case = Case::new(kind, bound);
        for (at, parallelism) in [(1, 2), (700, 3), (701, 1), (2500, 5), (4999, 2), (5000, 4)] {
            let ended = case.run(parallelism, Some((at, Stop::crash))).unwrap();
            assert_eq!(ended.ending, Ending::Crashed);
        }
        let ended = case.run(3, None).unwrap();
        let (want, late) = case.want();
        assert_eq!(case.output(), want, "{kind:?}");
        assert_eq!((ended.totals.late, ended.position.records), (late, 5000));
    }
}

#[test]
fn asked_to_stop_it_takes_a_last_checkpoint_and_goes_on_from_there() {
    for (kind, bound) in KINDS {
        let case = Case::new(kind, bound);
        for (at, parallelism) in [(0, 1), (3, 2), (1800, 4), (1800, 3), (5000, 1)] {
            let ended = case.run(parallelism, Some((at, Stop::gently))).unwrap();
            assert_eq!(ended.ending, Ending::Stopped(Stopped::Complete));
            assert_eq!(ended.position.records, at as u64, "nothing is repeated");
        }
        assert_eq!(case.run(2, None).unwrap().ending, Ending::Finished);
        assert_eq!(case.output(), case.want().0);
        // A finished job stays finished.
        assert_eq!(case.run(2, None).unwrap().ending, Ending::Finished);
        assert_eq!(case.output(), case.want().0);
    }
}

#[test]
fn failing_checkpoints_are_given_up_and_the_results_still_get_out() {
    let mut case = Case::new(WindowKind::Tumbling { size: 50 }, 20);
    case.fail = |id| (id % 3 != 0).then(|| Failure::internal("the store is away"));
    let ended = case.run(2, None).unwrap();
    assert_eq!(ended.ending, Ending::Finished);
    assert_eq!(case.output(), case.want().0);
    assert!(ended.checkpoints.aborted >= 2, "{:?}", ended.checkpoints);
}

#[test]
fn a_fenced_job_ends_at_once() {
    let mut case = Case::new(WindowKind::Tumbling { size: 50 }, 20);
    case.fail = |_| Some(Failure::new(Code::Locked, "fenced by epoch 2"));
    assert_eq!(case.run(2, None).unwrap_err().code, Code::Locked);
    assert_eq!(case.output(), "", "nothing was committed");
}

#[test]
fn asked_to_stop_with_a_store_that_fails_it_says_that_the_last_checkpoint_is_missing() {
    let mut case = Case::new(WindowKind::Tumbling { size: 50 }, 20);
    case.fail = |_| Some(Failure::internal("the store is away"));
    case.clock = Arc::new(PassingClock::default());
    let ended = case.run(2, Some((100, Stop::gently))).unwrap();
    assert_eq!(ended.ending, Ending::Stopped(Stopped::Incomplete { newest: None }));
    assert!(ended.checkpoints.aborted > 1, "there was time to try again");
    // What is refused for good isn't tried until the deadline.
    case.fail = |_| Some(Failure::new(Code::Resource, "no room"));
    case.clock = Arc::new(SystemClock);
    let ended = case.run(2, Some((100, Stop::gently))).unwrap();
    assert_eq!(ended.ending, Ending::Stopped(Stopped::Incomplete { newest: None }));
}

#[test]
fn asked_to_stop_with_a_store_that_hangs_for_ever_it_ends_when_the_time_of_a_last_checkpoint_is_over() {
    let mut case = Case::new(WindowKind::Tumbling { size: 50 }, 20);
    for (at, newest) in [(100, false), (2000, true)] {
        (case.hangs, case.clock) = (true, Arc::new(PassingClock::default()));
        let (before, positions) = (case.root.0.lock().unwrap().keys().last().copied(), case.output());
        let ended = case.run(2, Some((at + 50, Stop::gently))).unwrap();
        assert_eq!(ended.ending, Ending::Stopped(Stopped::Incomplete { newest: before }));
        assert_eq!(before.is_some(), newest);
        // What is told is what a resume goes on from, not how far this run had come.
        assert_eq!(ended.position.records, if newest { 100 } else { 0 });
        assert_eq!((case.output(), case.root.0.lock().unwrap().keys().last().copied()), (positions, before));
        assert!(time_of(&*case.clock) >= Duration::from_secs(60), "the time that there was has not been used");
        (case.hangs, case.clock) = (false, Arc::new(SystemClock));
        let ended = case.run(3, Some((at, Stop::gently))).unwrap();
        assert_eq!(ended.ending, Ending::Stopped(Stopped::Complete));
    }
    assert_eq!(case.run(2, None).unwrap().ending, Ending::Finished);
    assert_eq!(case.output(), case.want().0);
}

#[test]
fn a_malformed_input_ends_the_run_with_its_failure() {
    struct Malformed;
    impl Source for Malformed {
        fn next(&mut self, _: &mut Vec<Record>) -> Outcome<Option<i64>> {
            Err(Failure::usage("line 7"))
        }
        fn position(&self) -> Position {
            Position::start()
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = &dir.path().join("out.csv");
    let job = Job {
        source: Malformed,
        position: Position::start(),
        keyed: vec![WindowOperator::new(MemoryState::default(), &[WindowKind::Tumbling { size: 1 }.alone()]).unwrap()],
        sink: StagedOutput::new(
            MemoryState::default(),
            OutputFile::create(path).unwrap(),
            BTreeMap::new(),
            b"header\n",
        )
        .unwrap(),
        coordinator: MemoryCoordinator::new(&MemoryRoot::default(), 2),
        settings: Settings {
            max_parallelism: 128,
            out_of_orderness: 0,
            rate: None,
            interval: Duration::from_secs(1),
            checkpoint_timeout: Duration::from_secs(1),
            first_checkpoint: 1,
        },
        clock: Arc::new(SystemClock),
    };
    assert_eq!(run(job, &Stop::default(), &Standing::default(), &mut |_| ()).unwrap_err().message, "line 7");
}

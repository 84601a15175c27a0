//! Whole runs on the library, its background work never done: what is waited for never comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use highwater::base::executor::StepExecutor;
use highwater::{CheckpointPart, Environment, ErrorKind, KeyedState, Operator, Subtask, Tuning};

use crate::backend::{KEYED, KeyedWindows, SINK, SinkRows};
use crate::exit::Outcome;
use crate::output::OutputFile;
use crate::position::Position;
use crate::runtime::{
    Completed, Coordinator, Ending, Job, Record, Settings, Source, StagedOutput, Standing, Stop, Stopped, run,
};
use crate::testing::PassingClock;
use crate::window::{WindowKind, WindowOperator};

/// Records without end, of ever new keys; the first has the job asked to stop.
struct Endless(u64, Stop);

impl Source for Endless {
    fn next(&mut self, records: &mut Vec<Record>) -> Outcome<Option<i64>> {
        self.1.gently();
        self.0 += 1;
        let key = self.0.to_be_bytes()[..].into();
        records.push(Record { stream: 0, key, time: 0, value: None, watermark: i64::MIN });
        Ok(Some(0))
    }

    fn position(&self) -> Position {
        Position { records: self.0, ..Position::start() }
    }
}

/// Nothing ever completes.
struct Never;

impl Coordinator for Never {
    type Part = CheckpointPart;

    fn begin(&mut self, _id: u64) -> Outcome<()> {
        Ok(())
    }

    fn describe(&mut self, _id: u64, _metadata: Vec<u8>) -> Outcome<()> {
        Ok(())
    }

    fn add(&mut self, _id: u64, _part: CheckpointPart) -> Outcome<Option<Completed>> {
        Ok(None)
    }

    fn retry(&mut self) -> Outcome<Vec<(u64, Completed)>> {
        Ok(Vec::new())
    }

    fn abort(&mut self, _id: u64) {}

    fn uploaded_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn a_subtask_that_waits_for_memory_hears_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let idle = Arc::new(StepExecutor::new());
    let tuning =
        Tuning { page_bytes: 4096, memtable_bytes: 64 << 10, epoch_bytes: 16 << 10, ..Tuning::for_memory(16 << 20) };
    let env = Environment::builder(folder.path().join("dir"))
        .memory_bytes(16 << 20)
        .store("memory:///")
        .executors(idle.clone(), idle.clone())
        .tuning(tuning)
        .open()
        .unwrap();
    let only = Subtask { index: 0, parallelism: 1 };
    let mut backend = env.backend(&Operator::new(KEYED, 128), only, None).unwrap();
    // All of its memory waits for flushes: the first record finds no room, and none is ever made.
    let filler = backend.value_state::<u64, Vec<u8>>("filler").unwrap();
    let full = (0..10_000).find_map(|n| filler.put(&mut backend, &n, vec![7; 100]).err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::Backpressure);
    let keyed = KeyedWindows::new(backend, &["windows".to_owned()]).unwrap();
    let rows = SinkRows::new(env.backend(&Operator::new(SINK, 1), only, None).unwrap()).unwrap();
    let stop = Stop::default();
    let job = Job {
        source: Endless(0, stop.clone()),
        position: Position::start(),
        keyed: vec![WindowOperator::new(keyed, &[WindowKind::Tumbling { size: 10 }.alone()]).unwrap()],
        sink: StagedOutput::new(
            rows,
            OutputFile::create(&folder.path().join("out.csv")).unwrap(),
            BTreeMap::new(),
            b"header\n",
        )
        .unwrap(),
        coordinator: Never,
        settings: Settings {
            max_parallelism: 128,
            out_of_orderness: 0,
            rate: None,
            interval: Duration::from_secs(1),
            checkpoint_timeout: Duration::from_secs(60),
            first_checkpoint: 1,
        },
        clock: Arc::new(PassingClock::default()),
    };
    // The subtask waits in the middle of a record, the reader for room in its channel.
    let ended = run(job, &stop, &Standing::default(), &mut |_| ()).unwrap();
    assert_eq!(ended.ending, Ending::Stopped(Stopped::Incomplete { newest: None }));
    drop(env);
    idle.clear();
}

//! What a recorder sees of a job: every meter of the catalogue that the job has reason to move.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use highwater::base::clock::{Clock, SystemClock};
use highwater::base::meters::{self, Meter};
use highwater::*;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

const PATIENCE: Duration = Duration::from_secs(60);

/// Sums of all series of a name, over all labels; of histograms, the number of values.
fn seen(snapshotter: &Snapshotter, into: &mut BTreeMap<String, f64>) {
    for (key, unit, description, value) in snapshotter.snapshot().into_vec() {
        assert!(description.is_some() || unit.is_some(), "{key:?} is described");
        let amount = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        *into.entry(key.key().name().to_owned()).or_default() += amount;
    }
}

fn checkpoint(env: &Environment, backends: &mut [Backend], coordinator: &mut Coordinator, id: u64) {
    coordinator.begin(id).unwrap();
    let tickets: Vec<_> =
        backends.iter_mut().map(|b| b.checkpoint(id, CheckpointKind::Incremental, b"").unwrap()).collect();
    let mut done = None;
    for ticket in tickets {
        done = coordinator.add(ticket.wait(PATIENCE).unwrap()).unwrap();
    }
    assert_eq!(done.unwrap().id().id, id);
    backends.iter_mut().for_each(|b| b.confirm(id).unwrap());
    assert!(env.stats().store.puts > 0);
}

fn fill(backend: &mut Backend, round: u64) {
    let counts = backend.value_state::<u64, Vec<u8>>("counts").unwrap();
    let index = u64::from(backend.key_groups().first());
    let mut written = 0;
    for key in 0.. {
        let group = highwater::base::key_group::key_group_of(&key_bytes(key), 128);
        if backend.key_groups().contains(group) {
            counts.put(backend, &key, vec![(key + round + index) as u8; 100]).unwrap();
            written += 1;
        }
        if written == 500 {
            break;
        }
    }
}

fn key_bytes(key: u64) -> Vec<u8> {
    use highwater::Codec;
    let mut bytes = Vec::new();
    key.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_job_that_checkpoints_merges_aborts_and_restores_moves_its_meters() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").display().to_string();
    let op = Operator::new("op", 128);
    let mut figures = BTreeMap::new();
    {
        let env = Environment::builder(folder.path().join("one")).store(&store).open().unwrap();
        let mut coordinator = env.coordinator(&[(&op, 2)]).unwrap();
        let subtask = |index| Subtask { index, parallelism: 2 };
        let mut backends: Vec<_> = (0..2).map(|index| env.backend(&op, subtask(index), None).unwrap()).collect();
        for id in 1..=12 {
            backends.iter_mut().for_each(|backend| fill(backend, id));
            backends[0].report_alignment(Duration::from_millis(id));
            checkpoint(&env, &mut backends, &mut coordinator, id);
        }
        for id in 13..=17 {
            let begun = coordinator.begin(id).unwrap();
            assert_eq!(begun == Begin::Skipped, id == 17, "four are in flight");
        }
        drop(backends.remove(0).checkpoint(13, CheckpointKind::Incremental, b"").unwrap());
        coordinator.abort(13).unwrap();
        let (clock, mut waits) = (SystemClock, 0);
        while backends.iter().any(|backend| backend.stats().compaction_debt_bytes > 0) {
            waits += 1;
            assert!(waits < 30_000, "merging ends");
            clock.sleep(Duration::from_millis(2));
        }
        for backend in backends {
            backend.close(PATIENCE).unwrap();
        }
        seen(&snapshotter, &mut figures);
    }
    let env = Environment::builder(folder.path().join("two")).store(&store).eager_restore(true).open().unwrap();
    let last = env.latest_checkpoint().unwrap();
    let backend = env.backend(&op, Subtask { index: 0, parallelism: 1 }, last.as_ref()).unwrap();
    env.report_caught_up();
    seen(&snapshotter, &mut figures);

    let figure = |meter: &Meter| figures.get(meter.name).copied().unwrap_or(0.0);
    for (meter, times) in [
        (&meters::CHECKPOINTS_COMPLETED, 12.0),
        (&meters::CHECKPOINTS_ABORTED, 1.0),
        (&meters::CHECKPOINTS_SKIPPED, 1.0),
        (&meters::CHECKPOINT_DURATION, 12.0),
        (&meters::CHECKPOINT_REQUESTS, 12.0),
        (&meters::CHECKPOINT_COST, 12.0),
        (&meters::CHECKPOINT_SYNC, 25.0),
        (&meters::CHECKPOINT_ALIGNMENT, 12.0),
        (&meters::CHECKPOINT_DELTA_BYTES, 24.0),
        (&meters::RESTORE, 1.0),
    ] {
        assert_eq!(figure(meter), times, "{}", meter.name);
    }
    let quiet: Vec<&str> = meters::ALL
        .iter()
        .filter(|meter| figure(meter) == 0.0)
        .map(|meter| meter.name)
        .filter(|name| !name.contains("failures") && !name.contains("backpressure") && !name.contains("retries"))
        .collect();
    // Nothing waits, is left to be fetched or merged, or is held open at the end.
    let at_rest = ["highwater_waiting_epochs", "highwater_restore_left_bytes", "highwater_compaction_debt_bytes"];
    assert!(quiet.iter().all(|name| at_rest.contains(name)), "{quiet:?}");
    let known: Vec<_> = meters::ALL.iter().map(|meter| meter.name).collect();
    assert!(figures.keys().all(|name| known.contains(&name.as_str())), "{figures:?}");
    drop(backend);
}

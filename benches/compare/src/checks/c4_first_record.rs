//! C4: from a named checkpoint to the first correct read, and to full speed, lazily and eagerly, in requests each of which waits for
//! the one before, and in time. Those of the owner's thread wait for each other; where it waits for threads that share the work
//! (RocksDB's download), the most of one of them is added. What Highwater fetches in the background meanwhile isn't waited for.

use std::time::{Duration, Instant};

use highwater::Subtask;

use super::state::{STATES, check, keys};
use super::{Context, Job, Step};
use crate::Result;
use crate::child::Outcome;
use crate::measure::checkpoints::CheckpointLog;
use crate::measure::process::{MemoryWatch, resident_bytes};
use crate::object_store::client::Client;
use crate::parent::ObjectStore;
use crate::rows::{Metric, Place, rows};
use crate::store::Store;
use crate::stores::highwater::{Highwater, environment, operator};
use crate::stores::over_bytes::OverBytes;
use crate::stores::rocksdb::Rocks;
use crate::stores::{Setting, StoreKind, download};
use crate::values::{Rng, Values};

/// Reads in a look at the speed.
const READS: u64 = 2_000;

/// Looks at the speed are given up after this.
const AT_MOST: Duration = Duration::from_secs(300);

/// Restores on one subtask and reads.
pub fn restore(job: &Job, state_bytes: u64, eager: bool) -> Result<Outcome> {
    let (client, log) = (job.client(), CheckpointLog::new());
    // No checkpoints are made here, so nobody has to coordinate them before the first read.
    let setting = Setting { object_store: None, ..job.setting(STATES) };
    let idle = resident_bytes()?;
    let watch = MemoryWatch::start();
    let start = Instant::now();
    let mut outcome = match job.store {
        StoreKind::Highwater => {
            let env = environment(&setting, Some(client.clone()), eager)?;
            let newest = env.latest_checkpoint()?.ok_or("no checkpoint to restore from")?;
            let backend = env.backend(&operator(), Subtask { index: 0, parallelism: 1 }, Some(&newest))?;
            let store = Highwater::with(env, backend, &setting, &log)?;
            reads(store, start, &client, state_bytes, false)?
        }
        StoreKind::RocksdbFlink | StoreKind::RocksdbStrong => {
            download::newest(&client, &setting.directory.join("rocksdb"))?;
            let strong = job.store == StoreKind::RocksdbStrong;
            let store = OverBytes::new(Rocks::open(&setting, strong, None, &log)?, STATES);
            reads(store, start, &client, state_bytes, true)?
        }
        other => return Err(format!("{} has no checkpoints", other.name()).into()),
    };
    outcome.memory_bytes = watch.most().saturating_sub(idle);
    Ok(outcome)
}

/// Reads until reading is as fast as it gets.
fn reads<S: Store>(
    mut store: S,
    start: Instant,
    client: &Client,
    state_bytes: u64,
    waited_for_helpers: bool,
) -> Result<Outcome> {
    let (values, keys, mut rng) = (Values::new(), keys(state_bytes), Rng::new(4));
    check(&mut store, &values, keys / 2)?;
    let mut outcome = Outcome::default();
    outcome.figures.insert("first_record_ms".into(), start.elapsed().as_secs_f64() * 1e3);
    let (own, helpers) = client.chains();
    outcome.figures.insert("dependent_requests".into(), (own + if waited_for_helpers { helpers } else { 0 }) as f64);
    outcome.figures.insert("first_read_bytes".into(), client.counts().read_bytes as f64);
    let mut looks = Vec::new();
    // Full speed is there once nothing is fetched any more.
    loop {
        let (began, before) = (Instant::now(), client.counts().read_bytes);
        for _ in 0..READS {
            check(&mut store, &values, rng.below(keys))?;
            if began.elapsed() > Duration::from_secs(2) {
                break;
            }
        }
        store.poll().map(drop)?;
        let idle = client.counts().read_bytes == before;
        looks.push([start.elapsed().as_secs_f64(), began.elapsed().as_secs_f64(), 0.0]);
        if idle || start.elapsed() > AT_MOST {
            break;
        }
    }
    outcome.figures.insert("full_speed_ms".into(), start.elapsed().as_secs_f64() * 1e3);
    outcome.points = looks;
    outcome.described = format!("{:?}", outcome.figures);
    Ok(outcome)
}

fn figure(outcome: &Outcome, name: &str) -> Option<f64> {
    outcome.figures.get(name).copied()
}

const METRICS: &[Metric] = &[
    Metric { name: "first_record_ms", more_is_better: false, of: |o| figure(o, "first_record_ms") },
    Metric { name: "dependent_requests", more_is_better: false, of: |o| figure(o, "dependent_requests") },
    Metric { name: "first_read_bytes", more_is_better: false, of: |o| figure(o, "first_read_bytes") },
    Metric { name: "full_speed_ms", more_is_better: false, of: |o| figure(o, "full_speed_ms") },
    Metric { name: "memory_bytes", more_is_better: false, of: |o| Some(o.memory_bytes as f64) },
];

/// See the module.
pub fn compare(context: &mut Context<'_>) -> Result<()> {
    for (name, full) in [("1GB", 1e9), ("8GB", 8e9)] {
        let state_bytes = (full * context.args.scale()) as u64;
        let mut found = Vec::new();
        for store in context.stores() {
            let objects = tempfile::tempdir_in(context.scratch)?;
            let server = ObjectStore::start(objects.path())?;
            let fill = Step::Fill { state_bytes, parallelism: 1 };
            if context.step_on(store, fill, &server).is_none() {
                continue;
            }
            let ways: &[bool] = if store == StoreKind::Highwater { &[false, true] } else { &[true] };
            for eager in ways {
                let outcome = context.step_on(store, Step::Restore { state_bytes, eager: *eager }, &server);
                found.push((store, *eager, outcome));
            }
        }
        let of = |store, eager| {
            let found = found.iter().find(|(s, e, _)| *s == store && *e == eager);
            found.and_then(|(.., outcome)| outcome.clone())
        };
        for store in context.stores().into_iter().skip(1) {
            for (eager, way) in [(false, "lazy"), (true, "eager")] {
                let title = format!("C4/{name}-{way}");
                let place = Place { title: &title, interval_s: 0.0, opponent: store.name() };
                context.report.add(rows(place, METRICS, &[of(StoreKind::Highwater, eager)], &[of(store, true)]));
            }
        }
    }
    Ok(())
}

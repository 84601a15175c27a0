//! Every request of a short life fails once, before or after it took effect: the process dies of it and a successor goes on, or it goes on
//! itself.

use std::sync::atomic::{AtomicU64, Ordering};

use highwater::base::ids::CheckpointId;
use highwater::checkpoint::log::LogEntry;
use highwater::io::faulty::{Fault, Faults};
use highwater::{ErrorKind, Result};

use crate::Place;
use crate::common::rig::Rig;
use crate::jobs::rig;

/// Two checkpoints, a restore at another parallelism, one more, and the collector. `acknowledged` is the newest checkpoint that the job was
/// told is complete.
fn life(rig: &mut Rig, acknowledged: &mut Option<CheckpointId>) -> Result<()> {
    for (round, parallelism) in [1, 2].into_iter().enumerate() {
        rig.start(parallelism)?;
        for step in 0..2 - round as u64 {
            let from = round as u64 * 100 + step * 40;
            rig.write_all(from..from + 40)?;
            *acknowledged = Some(rig.incremental()?.id());
        }
        if round == 0 {
            rig.kill_and_lose_directory();
        }
    }
    rig.collect().map(drop)
}

fn calls_of_a_life(place: &Place) -> u64 {
    let mut calm = below(place, "-calm");
    life(&mut calm, &mut None).unwrap();
    calm.store_faults.calls()
}

/// A job in a root of its own.
fn below(place: &Place, name: &str) -> Rig {
    let mut rig = rig(place);
    rig.objects = place.other(name);
    rig
}

/// Lives at one time: over a wire they mostly wait.
const LIVES_TOGETHER: usize = 12;

pub fn killed_at_every_step_the_newest_acknowledged_checkpoint_stands(place: &Place) {
    let calls = calls_of_a_life(place);
    assert!(calls > 30, "{calls}");
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..if place.is_remote() { LIVES_TOGETHER } else { 1 } {
            scope.spawn(|| {
                while let Some(index) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < calls) {
                    killed_at(place, index);
                }
            });
        }
    });
}

fn killed_at(place: &Place, index: u64) {
    for (after, fault) in [Fault::ErrorBefore(ErrorKind::Io), Fault::ErrorAfter(ErrorKind::Io)].into_iter().enumerate()
    {
        // Over a wire the two kinds take turns.
        if place.is_remote() && index % 2 != after as u64 {
            continue;
        }
        let what = format!("{fault:?} at call {index}");
        let mut rig = below(place, &format!("-{index}-{after}"));
        rig.store_faults = Faults::nth(index, fault);
        let mut acknowledged = None;
        let _ = life(&mut rig, &mut acknowledged);
        rig.kill_and_lose_directory();
        rig.store_faults = Faults::none();
        rig.start(3).unwrap_or_else(|e| panic!("{what}: {e}"));
        let found = rig.env().latest_checkpoint().unwrap().map(|found| found.id());
        assert!(found >= acknowledged, "{what}: {acknowledged:?} acknowledged, {found:?} found");
        rig.check().unwrap_or_else(|e| panic!("{what}: {e}"));
        rig.write_all(200..220).unwrap();
        rig.incremental().unwrap_or_else(|e| panic!("{what}: {e}"));
        rig.incremental().unwrap();
        rig.collect().unwrap_or_else(|e| panic!("{what}: {e}"));
        rig.collect().unwrap();
        assert_eq!(rig.object_names(), rig.reachable(), "{what}");
        rig.check().unwrap();
    }
}

pub fn a_lost_answer_to_a_put_is_recognised_as_ones_own(place: &Place) {
    let mut calm = below(place, "-calm");
    life(&mut calm, &mut None).unwrap();
    let newest = |rig: &Rig| {
        let names = rig.objects.list("log/").unwrap();
        names.iter().filter_map(|object| LogEntry::number_of(&object.name)).max()
    };
    let entries = newest(&calm);
    for lost in 0..5 {
        let mut rig = below(place, &format!("-{lost}"));
        let mut seen = 0;
        rig.store_faults = Faults::when(move |call| {
            let log_put = call.operation == "put" && call.name.starts_with("log/");
            seen += u64::from(log_put);
            (log_put && seen == lost + 1).then_some(Fault::ErrorAfter(ErrorKind::Timeout))
        });
        let mut acknowledged = None;
        life(&mut rig, &mut acknowledged).unwrap_or_else(|e| panic!("put {lost} of the log: {e}"));
        assert_eq!(newest(&rig), entries, "one entry for one change, answer {lost} lost");
        rig.kill_and_lose_directory();
        rig.store_faults = Faults::none();
        rig.start(1).unwrap();
        assert_eq!(rig.env().latest_checkpoint().unwrap().map(|found| found.id()), acknowledged);
        rig.check().unwrap();
    }
}

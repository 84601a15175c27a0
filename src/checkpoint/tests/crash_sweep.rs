//! Every single request of a scripted life fails once, before and after it took effect; the process dies of it, and a
//! successor goes on.

use std::sync::Arc;

use super::world::{GRACE, World};
use crate::base::clock::ManualClock;
use crate::base::ids::CheckpointId;
use crate::io::faulty::Fault;
use crate::io::local_store::LocalStore;
use crate::{ErrorKind, Result};

/// Two attempts at a job: claims, five checkpoints each with shared and replaced segments, and garbage collection.
/// `acknowledged` is the newest checkpoint that the job was told is complete.
fn life(world: &World, acknowledged: &mut Option<CheckpointId>) -> Result<()> {
    for _ in 0..2 {
        let log = world.log();
        let claim = log.claim(&[])?;
        let mut subtask = world.subtask(claim);
        if let Some(latest) = log.newest()?.and_then(|entry| entry.state.latest().cloned()) {
            log.pin_for_restore(&claim, latest.id())?;
            for manifest in latest.manifests() {
                subtask.tree.extend(world.references()(manifest)?);
            }
        }
        let mut coordinator = world.coordinator(claim, 1)?;
        for id in 1..=5 {
            coordinator.begin(id)?;
            subtask.segment(&format!("{claim} {id}"))?;
            if subtask.tree.len() > 2 {
                subtask.tree.remove(0);
            }
            if let Some(done) = coordinator.add(subtask.part(id)?)? {
                *acknowledged = Some(done.id());
            }
            world.clock.advance(GRACE / 2);
            if id % 2 == 1 {
                coordinator.collector().run(&world.references())?;
            }
        }
    }
    Ok(())
}

fn check(world: &World, acknowledged: Option<CheckpointId>, what: &str) {
    let state = world.plain_log().newest().unwrap().map(|entry| entry.state).unwrap_or_default();
    let latest = state.latest().map(|c| c.id());
    assert!(latest >= acknowledged, "{what}: {acknowledged:?} acknowledged, {latest:?} found");
    for checkpoint in &state.checkpoints {
        world.assert_restorable(checkpoint);
    }
}

#[test]
fn whatever_request_fails_the_newest_acknowledged_checkpoint_stands() {
    let calm = World::new();
    life(&calm, &mut None).unwrap();
    let calls = calm.faults.calls();
    assert!(calls > 150, "{calls}");
    for index in 0..calls {
        for fault in [Fault::ErrorBefore(ErrorKind::Io), Fault::ErrorAfter(ErrorKind::Io)] {
            let what = format!("{fault:?} at call {index}");
            let world = World::new();
            world.faults.set(move |call| (call.index == index).then_some(fault));
            let mut acknowledged = None;
            let _ = life(&world, &mut acknowledged);
            check(&world, acknowledged, &what);
            life(&world, &mut acknowledged).unwrap_or_else(|e| panic!("{what}: {e}"));
            check(&world, acknowledged, &what);
            let state = world.plain_log().state().unwrap();
            assert_eq!(state.latest().map(|c| c.id()), acknowledged, "{what}");
            let reachable = state.condemned.len() + state.checkpoints.len();
            assert!(world.names().len() <= 4 * reachable + 4, "{what}: leaked {:?}", world.names());
        }
    }
}

#[test]
fn the_same_life_on_a_local_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(&dir.path().join("root"), true).unwrap();
    let world = World::over(Arc::new(store), Arc::new(ManualClock::at_ms(4_000_000_000_000)));
    let mut acknowledged = None;
    life(&world, &mut acknowledged).unwrap();
    check(&world, acknowledged, "local");
    assert_eq!(acknowledged, Some(CheckpointId { epoch: 2, id: 5 }));
    assert!(world.inner.leftovers().unwrap().is_empty());
}

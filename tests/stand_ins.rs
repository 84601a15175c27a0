//! Checkpoints that refer to a merge's inputs in place of its outputs: nothing that a retained one refers to goes missing,
//! whatever is collected, given up or lost meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::rig::{Rig, mix};
use common::tiny;
use highwater::base::executor::StepExecutor;
use highwater::io::faulty::Fault;
use highwater::*;

/// Its transfers wait for steps of their own.
fn rig() -> (Rig, Arc<StepExecutor>) {
    let mut rig = Rig::new(Tuning {
        block_bytes: 1024,
        segment_bytes: 8 << 10,
        level_base_bytes: 16 << 10,
        level_zero_runs: 3,
        ..tiny()
    });
    rig.settings.retain = 1;
    let remote = Arc::new(StepExecutor::new());
    rig.remote = Some(remote.clone());
    (rig, remote)
}

/// Flushes and merges, but nothing that talks to the store.
fn work_here(rig: &mut Rig) {
    rig.executor.run_until_idle();
    rig.tasks.iter_mut().for_each(|task| task.backend.poll().unwrap());
    rig.executor.run_until_idle();
}

fn work_everywhere(rig: &mut Rig, remote: &StepExecutor) {
    while rig.executor.waiting() + remote.waiting() > 0 {
        remote.run_until_idle();
        work_here(rig);
    }
}

/// Completes a checkpoint, unless a fault was injected into what it uploads; the collector runs between its last upload and
/// its commit.
fn finish(rig: &mut Rig, remote: &StepExecutor, (id, tickets): (u64, Vec<Ticket>)) -> Option<CompletedCheckpoint> {
    // A flush that failed is tried again when its owner looks.
    (0..2).for_each(|_| {
        work_here(rig);
        work_everywhere(rig, remote);
    });
    rig.collect().unwrap();
    let finished = rig.finish(id, &tickets);
    assert_whole(rig);
    finished.map_err(|error| assert!(error.to_string().contains("injected"), "{error}")).ok()
}

fn complete_one(rig: &mut Rig, remote: &StepExecutor) -> CompletedCheckpoint {
    let begun = rig.begin(CheckpointKind::Incremental).unwrap();
    finish(rig, remote, begun).unwrap()
}

/// All that the retained checkpoints refer to is there.
fn assert_whole(rig: &Rig) {
    let missing: Vec<_> = rig.reachable().difference(&rig.object_names()).cloned().collect();
    assert!(missing.is_empty(), "referred to and gone: {missing:?}");
}

fn put(rig: &mut Rig, keys: std::ops::Range<u32>, share: u64, salt: u64) {
    for key in keys.filter(|key| mix(u64::from(*key) + salt * 1_000_003) % 100 < share) {
        let value = (0..12).flat_map(|i| mix(salt * 7919 + u64::from(key) * 16 + i).to_le_bytes()).collect();
        rig.put(key, value).unwrap();
    }
}

/// True when the newest checkpoint isn't the trees that are here.
fn stand_ins_are_used(rig: &Rig, completed: &CompletedCheckpoint) -> bool {
    let stored = rig.reached_by(completed).into_iter().filter(|name| name.ends_with(".seg")).count();
    stored != rig.tasks.iter().map(|task| task.backend.stats().segments).sum::<usize>()
}

/// One step in which the store refuses an upload, seemingly or not, or the local disk is full once.
fn step_with_fault(rig: &mut Rig, remote: &StepExecutor, r: u64) {
    let mut calls = r % 4;
    let mut once = move |operation: &str, wanted: &[&str]| {
        let hit = wanted.contains(&operation) && calls == 0;
        calls = if wanted.contains(&operation) { calls.wrapping_sub(1) } else { calls };
        hit
    };
    match r >> 4 & 3 {
        0 => rig.file_faults.set(move |call| {
            once(call.operation, &["append"]).then_some(Fault::ErrorBefore(ErrorKind::ResourceExhausted))
        }),
        fault => rig.store_faults.set(move |call| {
            let fault = if fault == 1 { Fault::ErrorAfter(ErrorKind::Io) } else { Fault::ErrorBefore(ErrorKind::Io) };
            once(call.operation, &["put", "put_stream"]).then_some(fault)
        }),
    }
    (0..3).for_each(|_| {
        remote.step(r as usize >> 8);
        rig.executor.step(r as usize >> 12);
    });
    rig.file_faults.set(|_| None);
    rig.store_faults.set(|_| None);
}

/// A checkpoint that was late gave a segment of an earlier writer up, for the output of a merge that was made before it. A
/// later merge had been made meanwhile, and had that segment among its stand-ins.
#[test]
fn a_restored_segment_that_a_checkpoint_gave_up_is_never_referred_to_again() {
    for variant in 0..48_u64 {
        let (mut rig, remote) = rig();
        rig.start(1).unwrap();
        put(&mut rig, 0..400, 100, 1);
        complete_one(&mut rig, &remote);
        rig.kill();
        rig.start(1).unwrap();
        put(&mut rig, 0..400, 60 + variant % 4 * 10, 2);
        complete_one(&mut rig, &remote);
        put(&mut rig, 0..400, 20 + variant / 4 % 4 * 10, 3);
        let late = rig.begin(CheckpointKind::Incremental).unwrap();
        work_here(&mut rig);
        for round in 0..=variant as u32 / 16 {
            put(&mut rig, 400 + round * 200..600 + round * 200, 100, 4);
            work_here(&mut rig);
        }
        finish(&mut rig, &remote, late).unwrap();
        // What the one before it referred to is out of reach by now.
        rig.collect().unwrap();
        complete_one(&mut rig, &remote);
        rig.kill_and_lose_directory();
        rig.start(2).unwrap();
        rig.check().unwrap();
    }
}

#[test]
fn no_history_of_collected_aborted_and_late_checkpoints_loses_a_stand_in() {
    let (mut used, mut completed_ones) = (0, 0);
    for seed in 0..60_u64 {
        let (mut rig, remote) = rig();
        rig.settings.retain = 1 + seed as usize % 2;
        rig.start(1).unwrap();
        let mut begun: Vec<(u64, Vec<Ticket>)> = Vec::new();
        for step in 0..150 {
            let r = mix(seed << 32 | step);
            let at = (r >> 20) as usize;
            match r % 16 {
                0..=3 => put(&mut rig, 0..(r >> 8) as u32 % 200, 10 + (r >> 16) % 80, r >> 30),
                4 => rig.write_all(step * 40..step * 40 + 40).unwrap(),
                5..=7 => {
                    (0..r >> 8 & 3).for_each(|i| {
                        rig.executor.step(at + i as usize);
                    });
                }
                8 => work_here(&mut rig),
                9 => {
                    remote.step(at);
                }
                10 => step_with_fault(&mut rig, &remote, r >> 16),
                11 | 12 if begun.len() < 3 => begun.push(rig.begin(CheckpointKind::Incremental).unwrap()),
                13 if !begun.is_empty() => {
                    let one = begun.remove(at % begun.len());
                    // Of the newest: others differ from the trees that are here anyway.
                    if let Some(completed) = finish(&mut rig, &remote, one).filter(|_| begun.is_empty()) {
                        used += usize::from(stand_ins_are_used(&rig, &completed));
                        completed_ones += 1;
                    }
                }
                14 if !begun.is_empty() && r >> 60 < 4 => {
                    let one = begun.remove(at % begun.len());
                    rig.abort(one.0).unwrap();
                }
                15 if r >> 60 < 3 => {
                    begun.clear();
                    rig.kill();
                    rig.start(1 + at as u32 % 3).unwrap();
                    rig.check().unwrap();
                }
                _ => {
                    rig.collect().unwrap();
                    assert_whole(&rig);
                }
            }
        }
        work_everywhere(&mut rig, &remote);
        rig.check().unwrap();
        begun.into_iter().for_each(|(id, _)| rig.abort(id).unwrap());
        complete_one(&mut rig, &remote);
        rig.collect().unwrap();
        assert_whole(&rig);
        rig.kill_and_lose_directory();
        rig.start(1).unwrap();
        rig.check().unwrap();
    }
    assert!(used * 4 > completed_ones, "stand-ins in {used} of {completed_ones} checkpoints");
}

//! Checkpoints that refer to a merge's inputs in place of its outputs: nothing that a retained one refers to goes missing,
//! whatever is collected, given up or lost meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::rig::{Rig, mix};
use common::tiny;
use highwater::base::executor::StepExecutor;
use highwater::io::faulty::Fault;
use highwater::*;

/// A checkpoint that isn't finished.
type Begun = (u64, Vec<Ticket>);

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
fn finish(rig: &mut Rig, remote: &StepExecutor, (id, tickets): Begun) -> Option<CompletedCheckpoint> {
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
        let mut begun: Vec<Begun> = Vec::new();
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
                11 | 12 if begun.len() < 3 => {
                    let full = r >> 60 == 0;
                    let kind = if full { CheckpointKind::Full } else { CheckpointKind::Incremental };
                    begun.push(rig.begin(kind).unwrap());
                }
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

fn segment_files(rig: &Rig) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(rig.directory.path().join("job-0")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    files.sort();
    files
}

/// A first checkpoint, and two more begun of which nothing is uploaded yet, though all is merged here.
fn two_begun(share: u64) -> (Rig, Arc<StepExecutor>, [Begun; 2]) {
    let (mut rig, remote) = rig();
    rig.start(1).unwrap();
    put(&mut rig, 0..400, 100, 1);
    complete_one(&mut rig, &remote);
    let begun = [2, 3].map(|salt| {
        put(&mut rig, 0..400, share, salt);
        let begun = rig.begin(CheckpointKind::Incremental).unwrap();
        work_here(&mut rig);
        begun
    });
    (rig, remote, begun)
}

/// A first checkpoint, and another one begun. What was flushed in between was merged, and is kept to stand in for that: no
/// checkpoint has uploaded any of it.
fn begun_over_a_merge() -> (Rig, Arc<StepExecutor>, Begun) {
    let (mut rig, remote) = rig();
    rig.start(1).unwrap();
    put(&mut rig, 0..400, 100, 1);
    complete_one(&mut rig, &remote);
    // What that was merged into.
    complete_one(&mut rig, &remote);
    for salt in 2..6 {
        put(&mut rig, 0..400, 10, salt);
        let (id, _) = rig.begin(CheckpointKind::Incremental).unwrap();
        work_here(&mut rig);
        rig.abort(id).unwrap();
    }
    remote.run_until_idle();
    put(&mut rig, 0..400, 1, 6);
    let begun = rig.begin(CheckpointKind::Incremental).unwrap();
    work_here(&mut rig);
    (rig, remote, begun)
}

/// Bytes that its second checkpoint uploads when nothing goes wrong.
fn sent_over_a_merge() -> u64 {
    let (mut rig, remote, begun) = begun_over_a_merge();
    let here: u64 = rig.tasks.iter().map(|task| task.backend.stats().segment_bytes).sum();
    let sent = finish(&mut rig, &remote, begun).unwrap().parts()[0].delta_bytes;
    assert!(sent < here / 2, "{sent} of {here} bytes");
    sent
}

fn comes_back(mut rig: Rig) {
    assert_whole(&rig);
    rig.kill_and_lose_directory();
    rig.start(2).unwrap();
    rig.check().unwrap();
}

/// Local files in turn, whichever they are: their names are random, and so is their order.
#[test]
fn a_stand_in_whose_file_went_bad_costs_the_upload_of_what_it_stood_in_for() {
    let (mut replaced, whole) = (0, sent_over_a_merge());
    for at in 0..64 {
        let (mut rig, remote, (id, tickets)) = begun_over_a_merge();
        let files = segment_files(&rig);
        if at >= files.len() && replaced > 0 {
            break;
        }
        let path = &files[at % files.len()];
        // Through the inode that readers have open.
        let mut bytes = std::fs::read(path).unwrap();
        bytes.iter_mut().step_by(40).for_each(|byte| *byte ^= 1);
        std::fs::write(path, bytes).unwrap();
        remote.run_until_idle();
        let completed = match rig.finish(id, &tickets) {
            Ok(completed) => completed,
            // The only copy of a segment that the state reads from.
            Err(error) => {
                let name = path.file_name().unwrap().to_string_lossy();
                assert!(error.kind() == ErrorKind::Poisoned && error.to_string().contains(&*name), "{error}");
                continue;
            }
        };
        replaced += usize::from(completed.parts()[0].delta_bytes > whole);
        comes_back(rig);
    }
    assert!(replaced > 0, "none was a stand-in that the checkpoint wanted");
}

/// Files of stand-ins that the store doesn't have go when the disk is full, and a checkpoint that is already begun does
/// without.
#[test]
fn a_full_disk_gives_up_stand_ins_and_the_checkpoint_that_counted_on_them_completes() {
    let whole = sent_over_a_merge();
    let (mut rig, remote, begun) = begun_over_a_merge();
    let before = segment_files(&rig).len();
    put(&mut rig, 0..400, 1, 7);
    let mut full = true;
    rig.file_faults.set(move |call| {
        let hit = call.operation == "append" && std::mem::take(&mut full);
        hit.then_some(Fault::ErrorBefore(ErrorKind::ResourceExhausted))
    });
    let next = rig.begin(CheckpointKind::Incremental).unwrap();
    rig.executor.run_until_idle();
    assert_eq!(remote.waiting(), 2, "an upload, and making room");
    remote.step(1);
    rig.file_faults.set(|_| None);
    let after = segment_files(&rig).len();
    assert!(after < before, "{before} files, then {after}");
    let sent = finish(&mut rig, &remote, begun).unwrap().parts()[0].delta_bytes;
    assert!(sent != whole, "{sent} bytes: what was given up was uploaded all the same");
    finish(&mut rig, &remote, next).unwrap();
    comes_back(rig);
}

/// What two checkpoints want is uploaded by one of them; when that fails, the other one does it.
#[test]
fn an_output_whose_upload_failed_is_uploaded_by_the_checkpoint_that_counted_on_it() {
    let mut failed = 0;
    for fault in 0..64 {
        // All keys change: the outputs of the merge go themselves.
        let (mut rig, remote, [first, second]) = two_begun(100);
        let mut left = fault;
        let mut hit = move || {
            left -= 1;
            left == -1
        };
        rig.store_faults.set(move |call| {
            let upload = call.operation.starts_with("put") && call.name.ends_with(".seg");
            (upload && hit()).then_some(Fault::ErrorBefore(ErrorKind::Io))
        });
        remote.step(fault as usize);
        remote.step(0);
        rig.store_faults.set(|_| None);
        let finished = [finish(&mut rig, &remote, first), finish(&mut rig, &remote, second)];
        let completed = finished.iter().flatten().count();
        assert!(completed > 0, "both failed with one fault");
        failed += usize::from(completed == 1);
        comes_back(rig);
    }
    assert!(failed > 1, "{failed} failed");
}

/// A restored tree has as many runs as there were stand-ins, and merging them is due at once.
#[test]
fn the_first_checkpoint_after_a_rescale_uploads_only_what_changed() {
    let (mut rig, remote) = rig();
    rig.start(1).unwrap();
    put(&mut rig, 0..400, 100, 1);
    complete_one(&mut rig, &remote);
    let runs = |rig: &Rig, part: &CheckpointPart| {
        let manifest = highwater::checkpoint::manifests::read(&*rig.objects, &part.manifest).unwrap();
        manifest.version.runs().count()
    };
    let mut deepest = 0;
    for salt in 2..40 {
        put(&mut rig, 0..400, 3, salt);
        let completed = complete_one(&mut rig, &remote);
        deepest = runs(&rig, &completed.parts()[0]);
        if deepest > 16 {
            break;
        }
    }
    assert!(deepest > 16, "{deepest} runs");
    rig.kill_and_lose_directory();
    rig.start(2).unwrap();
    rig.write_all(0..40).unwrap();
    let completed = complete_one(&mut rig, &remote);
    for part in completed.parts() {
        assert!(part.delta_bytes < 4000, "{} bytes", part.delta_bytes);
    }
    comes_back(rig);
}

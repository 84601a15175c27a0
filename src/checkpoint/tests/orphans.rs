//! What the writers' own rules leave in the store, with the real uploader: nothing that is needed goes, all else does.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::world::{GRACE, World, references};
use crate::base::checksum::hash64;
use crate::base::ids::{CheckpointId, SegmentId};
use crate::base::key_group::KeyGroupRange;
use crate::checkpoint::claim::Claim;
use crate::checkpoint::coordinator::{Coordinator, CoordinatorSettings};
use crate::checkpoint::log::LogEntry;
use crate::checkpoint::part::CheckpointPart;
use crate::checkpoint::upload::{SegmentUpload, StoreUploader, Uploader, Uploads};
use crate::io::faulty::Fault;
use crate::io::retry::Cancel;
use crate::io::store::PutMode;
use crate::segment::testing::MemoryFile;
use crate::version::fixtures::meta;
use crate::{ErrorKind, Result};

fn segment(id: u64) -> SegmentUpload {
    let bytes = format!("segment {id}").into_bytes();
    let mut meta = meta(id, 0, 1, (1, 1), bytes.len() as u64);
    meta.hash = hash64(&bytes);
    SegmentUpload { meta: Arc::new(meta), source: MemoryFile::new(bytes) }
}

/// A checkpoint that is being made.
struct Making {
    id: u64,
    full: bool,
    tree: Vec<u64>,
    names: HashMap<SegmentId, String>,
    cancel: Cancel,
    part: Option<CheckpointPart>,
}

/// A subtask with the backend's own uploads.
struct Writer {
    claim: Claim,
    uploads: Uploads,
    uploader: StoreUploader,
    tree: Vec<u64>,
    segments: u64,
    making: Vec<Making>,
    ids: u64,
}

impl Writer {
    fn new(world: &World, claim: Claim) -> Self {
        let (store, clock, random) = (world.store.clone(), world.clock.clone(), world.random.clone());
        let uploader = StoreUploader::new(store, clock, random, "op", 0, claim.epoch);
        let (uploads, tree, making) = Default::default();
        Self { claim, uploads, uploader, tree, segments: 0, making, ids: 0 }
    }

    fn flush(&mut self) {
        self.segments += 1;
        self.tree.push(self.segments);
    }

    fn merge(&mut self) {
        self.tree.clear();
        self.flush();
    }

    fn begin(&mut self, full: bool) -> u64 {
        self.ids += 1;
        let (tree, names, cancel) = (self.tree.clone(), HashMap::new(), Cancel::new());
        self.making.push(Making { id: self.ids, full, tree, names, cancel, part: None });
        self.ids
    }

    /// Goes on with the checkpoint at `at` by one object.
    fn step(&mut self, at: usize) -> Result<()> {
        let Self { uploads, uploader, making, claim, tree, .. } = self;
        let (id, live) = (making[at].id, tree.iter().map(|id| SegmentId(*id)).collect());
        let is_oldest = making.iter().all(|one| one.id >= id || one.part.is_some());
        let one = &mut making[at];
        if one.part.is_some() {
            return Ok(());
        }
        if let Some(next) = one.tree.iter().find(|id| !one.names.contains_key(&SegmentId(**id))) {
            let name = match one.full {
                false => uploads.ensure(uploader, one.id, &segment(*next), &one.cancel)?.0,
                true => uploader.upload_segment(&segment(*next), Some(one.id), &one.cancel)?,
            };
            one.names.insert(SegmentId(*next), name.to_string());
            return Ok(());
        }
        let settled = match one.full {
            false => {
                let live = is_oldest.then_some(&live);
                uploads.settled(uploader, one.id, &one.names.keys().copied().collect(), live)
            }
            true => 0..0,
        };
        let checkpoint = CheckpointId { epoch: claim.epoch, id: one.id };
        let mut names: Vec<_> = one.names.values().cloned().collect();
        names.sort();
        let manifest = uploader.upload_manifest(checkpoint, names.join("\n").into_bytes().into(), &one.cancel)?;
        one.part = Some(CheckpointPart {
            checkpoint,
            operator: "op".to_owned(),
            subtask: 0,
            parallelism: 1,
            max_parallelism: 128,
            key_groups: KeyGroupRange::of_subtask(0, 1, 128).unwrap(),
            manifest,
            self_contained: one.full,
            settled,
            delta_bytes: 1,
            uploaded_bytes: 2,
            full_bytes: 3,
        });
        Ok(())
    }

    fn finish(&mut self, coordinator: &mut Coordinator, at: usize) {
        while self.making[at].part.is_none() {
            self.step(at).unwrap();
        }
        coordinator.add(self.making.remove(at).part.unwrap()).unwrap();
    }

    fn complete_one(&mut self, coordinator: &mut Coordinator) {
        let id = self.begin(false);
        coordinator.begin(id).unwrap();
        self.finish(coordinator, self.making.len() - 1);
    }
}

fn start(world: &World, retain: usize) -> (Writer, Coordinator) {
    let claim = world.log().claim(&[]).unwrap();
    let settings =
        CoordinatorSettings { retain, grace: GRACE, tolerated_failures: None, ..CoordinatorSettings::default() };
    let coordinator = Coordinator::new(world.log(), claim, &[("op".to_owned(), 1)], settings).unwrap();
    (Writer::new(world, claim), coordinator)
}

fn collect(world: &World, coordinator: &Coordinator) {
    coordinator.collector().run(&world.references()).unwrap();
}

fn assert_restorable(world: &World) {
    world.plain_log().state().unwrap().checkpoints.iter().for_each(|c| world.assert_restorable(c));
}

/// Exactly what the retained checkpoints reach is there.
fn assert_tidy(world: &World) {
    let state = world.plain_log().state().unwrap();
    let mut reached = BTreeSet::new();
    for manifest in state.checkpoints.iter().flat_map(|c| c.manifests()) {
        reached.insert(manifest.name.clone());
        reached.extend(references(world.inner.as_ref(), manifest).unwrap());
    }
    assert_eq!(world.names().into_iter().collect::<BTreeSet<_>>(), reached);
}

proptest! {
    #[test]
    fn no_history_loses_what_is_needed_or_keeps_what_isnt(
        ops in prop::collection::vec((0..12_u8, any::<prop::sample::Index>()), 0..120),
        retain in 1..3_usize,
    ) {
        let world = World::new();
        let (mut writer, mut coordinator) = start(&world, retain);
        writer.flush();
        for (op, index) in ops {
            let at = (!writer.making.is_empty()).then(|| index.index(writer.making.len()));
            match (op, at) {
                (0, _) => writer.flush(),
                (1, _) => writer.merge(),
                (2 | 3, _) if writer.making.len() < 4 => {
                    let id = writer.begin(index.index(3) == 0);
                    coordinator.begin(id).unwrap();
                }
                (4 | 5, Some(at)) => writer.step(at).unwrap(),
                // The store seems to fail, or does: the uploader tries again under another name.
                (6, Some(at)) => {
                    let mut faults = 1 + index.index(2);
                    let kind = ErrorKind::Unavailable;
                    let fault = if index.index(7) > 3 { Fault::ErrorAfter(kind) } else { Fault::ErrorBefore(kind) };
                    world.faults.set(move |call| {
                        let fails = call.operation.starts_with("put") && faults > 0;
                        faults -= usize::from(fails);
                        fails.then_some(fault)
                    });
                    writer.step(at).unwrap();
                    world.faults.set(|_| None);
                }
                (7, Some(at)) => {
                    let given_up = writer.making.remove(at);
                    given_up.cancel.cancel();
                    coordinator.abort(given_up.id).unwrap();
                }
                (8 | 9, Some(at)) => writer.finish(&mut coordinator, at),
                (10, _) => world.clock.advance(GRACE / 2),
                (11, _) => collect(&world, &coordinator),
                _ => {}
            }
            assert_restorable(&world);
        }
        for one in std::mem::take(&mut writer.making) {
            coordinator.abort(one.id).unwrap();
        }
        writer.complete_one(&mut coordinator);
        for _ in 0..2 {
            collect(&world, &coordinator);
            world.clock.advance(GRACE * 2);
        }
        collect(&world, &coordinator);
        assert_restorable(&world);
        assert_tidy(&world);
    }
}

#[test]
fn replay_16_flink_24611_an_upload_that_arrives_after_its_abort_goes_after_the_grace_period() {
    let world = World::new();
    let (mut writer, mut coordinator) = start(&world, 1);
    writer.flush();
    let id = writer.begin(false);
    coordinator.begin(id).unwrap();
    // Two attempts seem to fail; the bytes of the first arrive at once, those of the second later.
    let mut tries = 0;
    let (send, names) = std::sync::mpsc::channel();
    world.faults.set(move |call| {
        tries += 1;
        send.send(call.name.to_owned()).unwrap();
        match tries {
            1 => Some(Fault::ErrorAfter(ErrorKind::Timeout)),
            2 => Some(Fault::ErrorBefore(ErrorKind::Timeout)),
            _ => None,
        }
    });
    writer.step(0).unwrap();
    world.faults.set(|_| None);
    let given_up = writer.making.remove(0);
    given_up.cancel.cancel();
    coordinator.abort(id).unwrap();
    // The third attempt's name is known to be durable, and the next checkpoint refers to it.
    world.clock.advance(GRACE * 2);
    collect(&world, &coordinator);
    writer.complete_one(&mut coordinator);
    let names: Vec<String> = names.try_iter().collect();
    assert!(world.names().contains(&names[2]) && names.len() == 3, "{names:?}");
    world.inner.put(&names[1], "segment 1".into(), PutMode::Create).unwrap();
    collect(&world, &coordinator);
    assert!(world.names().contains(&names[1]), "it is younger than the grace period");
    world.clock.advance(GRACE);
    collect(&world, &coordinator);
    assert_tidy(&world);
    assert_restorable(&world);
}

#[test]
fn a_manifest_that_arrives_after_its_abort_goes_and_so_do_the_copies_of_an_aborted_full_checkpoint() {
    let world = World::new();
    let (mut writer, mut coordinator) = start(&world, 1);
    writer.flush();
    writer.complete_one(&mut coordinator);
    let id = writer.begin(true);
    coordinator.begin(id).unwrap();
    writer.step(0).unwrap();
    std::thread::scope(|scope| {
        world.faults.set(|call| call.name.ends_with(".man").then_some(Fault::Hang));
        let slow = scope.spawn(|| writer.step(0));
        while world.faults.hanging() == 0 {
            std::thread::yield_now();
        }
        coordinator.abort(id).unwrap();
        world.faults.set(|_| None);
        world.faults.release();
        slow.join().unwrap().unwrap();
    });
    writer.making.clear();
    assert_eq!(world.names().len(), 4, "segment, copy, two manifests");
    for _ in 0..2 {
        world.clock.advance(GRACE * 2);
        collect(&world, &coordinator);
    }
    assert_eq!(world.names().len(), 4, "it may yet be the newest, for all that the log says");
    writer.complete_one(&mut coordinator);
    for _ in 0..2 {
        collect(&world, &coordinator);
        world.clock.advance(GRACE * 2);
    }
    assert_tidy(&world);
}

#[test]
fn an_aborted_checkpoint_whose_entry_may_yet_arrive_keeps_its_objects() {
    let world = World::new();
    let (mut writer, mut coordinator) = start(&world, 3);
    writer.flush();
    let old = writer.begin(false);
    coordinator.begin(old).unwrap();
    while writer.making[0].part.is_none() {
        writer.step(0).unwrap();
    }
    writer.merge();
    writer.complete_one(&mut coordinator);
    // The entry of the older one is sent, and nobody knows whether it arrived.
    let part = writer.making.remove(0).part.unwrap();
    world.faults.set(|call| (call.operation == "put").then_some(Fault::ErrorAfter(ErrorKind::Unavailable)));
    assert!(coordinator.add(part).is_err());
    world.faults.set(|_| None);
    let sent = LogEntry::name_of(world.plain_log().newest().unwrap().unwrap().number);
    let entry = world.inner.get(&sent).unwrap();
    world.inner.delete(&sent).unwrap();
    coordinator.abort(old).unwrap();
    for _ in 0..2 {
        world.clock.advance(GRACE * 2);
        collect(&world, &coordinator);
    }
    world.inner.put(&sent, entry, PutMode::Create).unwrap();
    assert_eq!(world.plain_log().state().unwrap().checkpoints.len(), 2, "it has");
    assert_restorable(&world);
    // An entry behind it settles the question.
    writer.complete_one(&mut coordinator);
    collect(&world, &coordinator);
    assert_restorable(&world);
}

#[test]
fn five_thousand_checkpoints_in_an_hour_of_grace_leave_entries_of_a_few_kilobytes_and_the_right_objects() {
    const HOUR: u64 = 3600;
    let world = World::new();
    let claim = world.log().claim(&[]).unwrap();
    let settings = CoordinatorSettings { grace: Duration::from_secs(HOUR), ..CoordinatorSettings::default() };
    let mut coordinator = Coordinator::new(world.plain_log(), claim, &[("op".to_owned(), 1)], settings).unwrap();
    let mut subtask = world.subtask(claim);
    let mut done = Vec::new();
    let mut largest = 0;
    for second in 1..=5000_u64 {
        world.clock.advance(Duration::from_secs(1));
        subtask.segment(&format!("{second}")).unwrap();
        if subtask.tree.len() > 3 {
            subtask.tree.remove(0);
        }
        done.push((second, coordinator.add(subtask.part(second).unwrap()).unwrap().unwrap()));
        if second % 450 == 0 {
            collect(&world, &coordinator);
        }
        let number = world.plain_log().newest().unwrap().unwrap().number;
        largest = largest.max(world.inner.length(&LogEntry::name_of(number)).unwrap());
    }
    assert!(largest < 3 << 10, "an entry of {largest} bytes");
    collect(&world, &coordinator);
    let names = world.names();
    for (second, checkpoint) in &done {
        let manifest = &checkpoint.manifests().next().unwrap().name;
        // Three are retained, so each was condemned three seconds after it was completed.
        let age = 5000 - second - 3.min(5000 - second);
        if age < HOUR {
            world.assert_restorable(checkpoint);
        } else if age > HOUR + HOUR / 32 + 1 {
            assert!(!names.contains(manifest), "{manifest} is {age} s old");
        }
    }
    world.clock.advance(Duration::from_secs(2 * HOUR));
    collect(&world, &coordinator);
    assert_tidy(&world);
    assert!(world.plain_log().state().unwrap().condemned.is_empty());
}

use std::time::Duration;

use super::world::World;
use crate::ErrorKind;
use crate::base::ids::CheckpointId;
use crate::base::key_group::KeyGroupRange;
use crate::checkpoint::coordinator::{Begin, Coordinator, CoordinatorSettings};
use crate::checkpoint::object_name::{ObjectKind, ObjectName, operator_folder};
use crate::checkpoint::part::{CheckpointPart, ObjectRef};
use crate::io::faulty::Fault;

fn part(epoch: u64, id: u64, operator: &str, subtask: u32, parallelism: u32) -> CheckpointPart {
    let (folder, kind) = (operator_folder(operator), ObjectKind::Manifest);
    let name = ObjectName { folder, subtask, epoch, counter: id, hash: id, checkpoint: Some(id), kind }.to_string();
    CheckpointPart {
        checkpoint: CheckpointId { epoch, id },
        operator: operator.to_owned(),
        subtask,
        parallelism,
        max_parallelism: 128,
        key_groups: KeyGroupRange::of_subtask(subtask, parallelism, 128).unwrap(),
        manifest: ObjectRef { name, length_bytes: 5, hash: id },
        self_contained: false,
        settled: 3..300,
        delta_bytes: 10,
        uploaded_bytes: 20,
        full_bytes: 30,
    }
}

/// Operators `a` at 2 and `b` at 1.
fn coordinator(world: &World) -> Coordinator {
    let claim = world.log().claim(&[]).unwrap();
    let operators = [("a".to_owned(), 2), ("b".to_owned(), 1)];
    Coordinator::new(world.log(), claim, &operators, CoordinatorSettings::default()).unwrap()
}

/// All but the last part of checkpoint `id`; then the last one.
fn parts(id: u64) -> ([CheckpointPart; 2], CheckpointPart) {
    ([part(1, id, "a", 0, 2), part(1, id, "b", 0, 1)], part(1, id, "a", 1, 2))
}

#[test]
fn parts_cross_processes() {
    let one = part(3, 7, "ü b", 1, 2);
    let bytes = one.to_bytes();
    assert_eq!(CheckpointPart::from_bytes(&bytes).unwrap(), one);
    for end in 0..bytes.len() {
        assert_eq!(CheckpointPart::from_bytes(&bytes[..end]).unwrap_err().kind(), ErrorKind::Corruption);
    }
}

#[test]
fn complete_with_the_last_part_and_repeated_parts_change_nothing() {
    let world = World::new();
    let mut coordinator = coordinator(&world);
    assert_eq!(coordinator.begin(5).unwrap(), Begin::Started(CheckpointId { epoch: 1, id: 5 }));
    coordinator.set_metadata(5, b"offsets".to_vec()).unwrap();
    let (first, last) = parts(5);
    for part in first.iter().chain(&first) {
        assert_eq!(coordinator.add(part.clone()).unwrap(), None);
    }
    let mut other = first[0].clone();
    other.delta_bytes += 1;
    assert_eq!(coordinator.add(other).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let done = coordinator.add(last.clone()).unwrap().unwrap();
    assert_eq!(done.metadata(), b"offsets");
    assert_eq!(done.operators(), [("a", 2, 128), ("b", 1, 128)]);
    assert_eq!(coordinator.add(last).unwrap(), None);
    let state = world.plain_log().state().unwrap();
    assert_eq!(state.checkpoints, [done]);
    assert_eq!(coordinator.stats().completed, 1);
}

#[test]
fn bad_input_ids_that_dont_grow_already_exist_also_after_a_restart_of_the_coordinator() {
    let world = World::new();
    let mut first = coordinator(&world);
    first.begin(5).unwrap();
    for id in [5, 4] {
        assert_eq!(first.begin(id).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    let (parts, last) = parts(5);
    parts.into_iter().chain([last]).for_each(|part| drop(first.add(part).unwrap()));
    let claim = crate::checkpoint::claim::Claim::from_bytes(&first.claimed().to_bytes()).unwrap();
    let operators = [("a".to_owned(), 2), ("b".to_owned(), 1)];
    let mut again = Coordinator::new(world.log(), claim, &operators, CoordinatorSettings::default()).unwrap();
    assert_eq!(again.begin(5).unwrap_err().kind(), ErrorKind::AlreadyExists);
    again.begin(6).unwrap();
    let next = world.log().claim(&[]).unwrap();
    let mut successor = Coordinator::new(world.log(), next, &operators, CoordinatorSettings::default()).unwrap();
    assert_eq!(successor.begin(1).unwrap(), Begin::Started(CheckpointId { epoch: 2, id: 1 }));
}

#[test]
fn checkpoints_complete_out_of_order_and_the_newest_is_the_highest() {
    let world = World::new();
    let mut coordinator = coordinator(&world);
    for id in [2, 3] {
        coordinator.begin(id).unwrap();
    }
    for id in [3, 2] {
        let (first, last) = parts(id);
        first.into_iter().for_each(|part| assert_eq!(coordinator.add(part).unwrap(), None));
        assert_eq!(coordinator.add(last).unwrap().unwrap().id().id, id);
    }
    let state = world.plain_log().state().unwrap();
    assert_eq!(state.latest().unwrap().id().id, 3);
    assert_eq!(state.checkpoints.len(), 2);
}

#[test]
fn due_ones_are_skipped_while_too_many_are_in_flight_but_parts_are_always_admitted() {
    let world = World::new();
    let mut coordinator = coordinator(&world);
    for id in 1..=4 {
        assert!(matches!(coordinator.begin(id).unwrap(), Begin::Started(_)));
    }
    assert_eq!(coordinator.begin(5).unwrap(), Begin::Skipped);
    assert_eq!(coordinator.stats().skipped, 1);
    coordinator.add(part(1, 6, "b", 0, 1)).unwrap();
    assert_eq!(coordinator.in_flight(), [1, 2, 3, 4, 6]);
}

#[test]
fn one_that_takes_too_long_expires_and_its_late_parts_are_ignored() {
    let world = World::new();
    let mut coordinator = coordinator(&world);
    coordinator.begin(1).unwrap();
    world.clock.advance(Duration::from_secs(30));
    coordinator.begin(2).unwrap();
    world.clock.set_ms(0);
    assert!(coordinator.expired().is_empty(), "wall time plays no part");
    world.clock.advance(Duration::from_secs(30));
    assert_eq!(coordinator.expired(), [1]);
    assert!(coordinator.abort(1).unwrap());
    assert!(!coordinator.abort(1).unwrap());
    let (first, last) = parts(1);
    first.into_iter().chain([last]).for_each(|part| assert_eq!(coordinator.add(part).unwrap(), None));
    assert!(world.plain_log().state().unwrap().checkpoints.is_empty());
    assert_eq!(coordinator.in_flight(), [2]);
}

#[test]
fn more_failures_in_a_row_than_are_tolerated_are_an_error_until_one_completes() {
    let world = World::new();
    let mut coordinator = coordinator(&world);
    for id in 1..=4 {
        coordinator.begin(id).unwrap();
    }
    let (first, last) = parts(4);
    first.into_iter().for_each(|part| assert_eq!(coordinator.add(part).unwrap(), None));
    for id in 1..=3 {
        assert!(coordinator.abort(id).unwrap());
    }
    coordinator.begin(5).unwrap();
    assert_eq!(coordinator.abort(5).unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(coordinator.begin(6).unwrap_err().kind(), ErrorKind::Aborted);
    assert!(coordinator.add(last).unwrap().is_some());
    assert!(matches!(coordinator.begin(6).unwrap(), Begin::Started(_)));
    assert_eq!(coordinator.stats().aborted, 4);
}

#[test]
fn a_zombie_can_complete_nothing_and_knows_it_from_then_on() {
    let world = World::new();
    let mut zombie = coordinator(&world);
    let (first, last) = parts(1);
    first.into_iter().for_each(|part| assert_eq!(zombie.add(part).unwrap(), None));
    world.plain_log().claim(&[]).unwrap();
    assert_eq!(zombie.add(last).unwrap_err().kind(), ErrorKind::Fenced);
    assert!(zombie.fenced().is_some());
    assert_eq!(zombie.begin(2).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(zombie.retry_ready().unwrap_err().kind(), ErrorKind::Fenced);
    assert!(world.plain_log().state().unwrap().checkpoints.is_empty());
    let operators = [("a".to_owned(), 2)];
    let error = Coordinator::new(world.log(), zombie.claimed(), &operators, CoordinatorSettings::default());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Fenced);
}

#[test]
fn a_completion_that_failed_is_tried_again_with_one_entry_in_the_end() {
    for fault in [Fault::ErrorBefore(ErrorKind::Unavailable), Fault::ErrorAfter(ErrorKind::Unavailable)] {
        let world = World::new();
        let mut coordinator = coordinator(&world);
        let (first, last) = parts(1);
        first.into_iter().for_each(|part| assert_eq!(coordinator.add(part).unwrap(), None));
        world.faults.set(move |call| (call.operation == "put").then_some(fault));
        assert_eq!(coordinator.add(last).unwrap_err().kind(), ErrorKind::Unavailable);
        world.faults.set(|_| None);
        let done = coordinator.retry_ready().unwrap();
        assert_eq!(done.len(), 1, "{fault:?}");
        assert_eq!(world.plain_log().newest().unwrap().unwrap().number, 2);
        assert!(coordinator.in_flight().is_empty());
    }
}

#[test]
fn a_completion_whose_answer_was_lost_is_acknowledged_even_when_a_newer_one_has_condemned_it() {
    let world = World::new();
    let claim = world.log().claim(&[]).unwrap();
    let mut coordinator = world.coordinator(claim, 1).unwrap();
    let mut subtask = world.subtask(claim);
    let (second, third) = (subtask.part(2).unwrap(), subtask.part(3).unwrap());
    world.faults.set(|call| (call.operation == "put").then_some(Fault::ErrorAfter(ErrorKind::Unavailable)));
    assert!(coordinator.add(second.clone()).is_err());
    world.faults.set(|_| None);
    coordinator.add(third).unwrap().unwrap();
    assert_eq!(coordinator.add(second).unwrap().unwrap().id().id, 2);
    let state = world.plain_log().state().unwrap();
    assert_eq!((state.checkpoints.len(), state.condemned.len()), (1, 1));
}

#[test]
fn users_call_a_checkpoint_by_epoch_and_id_or_by_id() {
    let world = World::new();
    for _ in 0..2 {
        let claim = world.log().claim(&[]).unwrap();
        let part = world.subtask(claim).part(5).unwrap();
        world.coordinator(claim, 9).unwrap().add(part).unwrap().unwrap();
    }
    let state = world.plain_log().state().unwrap();
    assert_eq!(state.named("5").unwrap().id(), CheckpointId { epoch: 2, id: 5 });
    assert_eq!(state.named("1/5").unwrap().id(), CheckpointId { epoch: 1, id: 5 });
    for (text, kind) in [("6", ErrorKind::NotFound), ("3/5", ErrorKind::NotFound), ("x", ErrorKind::InvalidArgument)] {
        assert_eq!(state.named(text).unwrap_err().kind(), kind);
    }
}

#[test]
fn bad_input_parts_that_the_job_doesnt_expect() {
    let world = World::new();
    let mut coordinator = coordinator(&world);
    let refused = |coordinator: &mut Coordinator, part: CheckpointPart| coordinator.add(part).unwrap_err().kind();
    assert_eq!(refused(&mut coordinator, part(0, 1, "a", 0, 2)), ErrorKind::InvalidArgument);
    assert_eq!(refused(&mut coordinator, part(2, 1, "a", 0, 2)), ErrorKind::Fenced);
    let good = part(1, 1, "a", 0, 2);
    let range = KeyGroupRange::new(0, 1).unwrap();
    let manifest = |name: &str| ObjectRef { name: name.to_owned(), ..good.manifest.clone() };
    let bad = [
        part(1, 1, "c", 0, 1),
        part(1, 1, "a", 0, 1),
        CheckpointPart { subtask: 2, ..good.clone() },
        CheckpointPart { key_groups: range, ..good.clone() },
        CheckpointPart { max_parallelism: 40_000, ..good.clone() },
        CheckpointPart { manifest: manifest("../x"), ..good.clone() },
        CheckpointPart { manifest: manifest(&good.manifest.name.replace("man", "seg")), ..good.clone() },
        CheckpointPart { manifest: part(1, 1, "a", 1, 2).manifest, ..good.clone() },
    ];
    for part in bad {
        assert_eq!(refused(&mut coordinator, part), ErrorKind::InvalidArgument);
    }
    assert!(coordinator.in_flight().is_empty());
}

#[test]
fn bad_input_max_parallelism_never_changes_and_the_error_names_both() {
    let world = World::new();
    let mut first = coordinator(&world);
    let (parts, last) = parts(1);
    parts.into_iter().chain([last]).for_each(|part| drop(first.add(part).unwrap()));
    let claim = world.log().claim(&[]).unwrap();
    let mut second =
        Coordinator::new(world.log(), claim, &[("b".to_owned(), 1)], CoordinatorSettings::default()).unwrap();
    let changed = CheckpointPart {
        max_parallelism: 256,
        key_groups: KeyGroupRange::of_subtask(0, 1, 256).unwrap(),
        ..part(2, 1, "b", 0, 1)
    };
    let error = second.add(changed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("128") && error.to_string().contains("256"), "{error}");
}

#[test]
fn bad_input_retain_0_no_operators_or_one_twice_are_refused() {
    let world = World::new();
    let claim = world.log().claim(&[]).unwrap();
    let one = ("a".to_owned(), 1);
    let zero = CoordinatorSettings { retain: 0, ..CoordinatorSettings::default() };
    for (operators, settings) in [
        (vec![one.clone()], zero),
        (vec![], CoordinatorSettings::default()),
        (vec![one.clone(), one], CoordinatorSettings::default()),
        (vec![("a".to_owned(), 0)], CoordinatorSettings::default()),
    ] {
        let error = Coordinator::new(world.log(), claim, &operators, settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

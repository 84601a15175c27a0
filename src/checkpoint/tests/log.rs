use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::world::World;
use crate::base::ids::CheckpointId;
use crate::checkpoint::claim::Claim;
use crate::checkpoint::log::{Action, LogEntry, RootLog};
use crate::io::faulty::Fault;
use crate::io::store::{ObjectEntry, PutMode, Store};
use crate::{ErrorKind, Result};

/// Appends `rounds` pairs of entries that need no claim.
fn churn(log: &RootLog, id: CheckpointId, rounds: usize) {
    for _ in 0..rounds {
        log.pin("churn", id).unwrap();
        log.unpin("churn").unwrap();
    }
}

/// A root with one completed checkpoint.
fn with_checkpoint(world: &World) -> (Claim, CheckpointId) {
    let claim = world.plain_log().claim(&[]).unwrap();
    let part = world.subtask(claim).part(1).unwrap();
    let done = world.coordinator(claim, 1).unwrap().add(part).unwrap().unwrap();
    (claim, done.id())
}

fn numbers(world: &World) -> Vec<u64> {
    world.inner.list("log/").unwrap().iter().map(|o| LogEntry::number_of(&o.name).unwrap()).collect()
}

/// Runs `act` once, just before the first call of `operation`.
fn just_before(world: &World, operation: &'static str, act: impl FnOnce() + Send + 'static) {
    let mut act = Some(act);
    world.faults.set(move |call| {
        if call.operation == operation
            && let Some(act) = act.take()
        {
            act();
        }
        None
    });
}

#[test]
fn two_claimants_race_and_each_gets_an_epoch_of_its_own() {
    let world = World::new();
    let other = world.plain_log();
    let (send, winner) = std::sync::mpsc::channel();
    just_before(&world, "put", move || send.send(other.claim(&[]).unwrap()).unwrap());
    let loser = world.log().claim(&[]).unwrap();
    let winner = winner.recv().unwrap();
    assert_eq!((winner.epoch, loser.epoch), (1, 2));
    assert_eq!(world.log().check_claim(&winner).unwrap_err().kind(), ErrorKind::Fenced);
    world.log().check_claim(&loser).unwrap();
    assert_eq!(world.log().claim(&[41, 3]).unwrap().epoch, 42, "above its parents'");
}

#[test]
fn a_lost_answer_is_recognised_as_ones_own_however_many_entries_followed() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    for rounds in [0, 1, 25] {
        let other = world.plain_log();
        let mut puts = 0;
        world.faults.set(move |call| {
            puts += u32::from(call.operation == "put");
            match (call.operation, puts) {
                ("put", 1) => Some(Fault::ErrorAfter(ErrorKind::Timeout)),
                ("list", 1) => {
                    puts += 1;
                    churn(&other, id, rounds);
                    None
                }
                _ => None,
            }
        });
        let before = world.plain_log().newest().unwrap().unwrap().number;
        let log = RootLog::new(world.store.clone(), world.clock.clone(), world.random.clone());
        let claim = log.claim(&[]).unwrap();
        log.check_claim(&claim).unwrap();
        let after = world.plain_log().newest().unwrap().unwrap().number;
        assert_eq!(after - before, 1 + 2 * rounds as u64, "one entry for one claim");
    }
}

#[test]
fn an_entry_in_a_hole_behind_the_folded_log_counts_for_nothing() {
    let world = World::new();
    let (zombie, id) = with_checkpoint(&world);
    let mut coordinator = world.coordinator(zombie, 1).unwrap();
    let part = world.subtask(zombie).part(2).unwrap();
    let other = world.plain_log();
    just_before(&world, "put", move || {
        other.claim(&[]).unwrap();
        churn(&other, id, 40);
    });
    let error = coordinator.add(part).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    let state = world.plain_log().state().unwrap();
    assert_eq!(state.latest().unwrap().id(), id);
    assert!(numbers(&world)[0] > 10, "its entry in the hole is gone: {:?}", numbers(&world));
}

#[test]
fn an_append_that_fell_into_a_hole_is_made_again_on_top() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    let other = world.plain_log();
    just_before(&world, "put", move || churn(&other, id, 40));
    world.log().pin("mine", id).unwrap();
    let newest = world.plain_log().newest().unwrap().unwrap();
    assert_eq!(newest.number, 83);
    assert_eq!(newest.state.pins.len(), 1);
}

#[test]
fn folding_keeps_the_newest_entries_and_the_state() {
    let world = World::new();
    let (claim, id) = with_checkpoint(&world);
    let log = world.log();
    log.pin("user", id).unwrap();
    for _ in 0..200 {
        churn(&log, id, 1);
        let numbers = numbers(&world);
        assert!(numbers.len() <= 34, "{numbers:?}");
        let newest = *numbers.last().unwrap();
        let kept = (newest.saturating_sub(16).max(1))..=newest;
        assert!(kept.into_iter().all(|number| numbers.contains(&number)), "{numbers:?}");
    }
    let state = log.state().unwrap();
    assert_eq!((state.claim, state.pins.len(), state.latest().unwrap().id()), (Some(claim), 1, id));
}

#[test]
fn replay_18_flink_22502_an_unreadable_newest_entry_is_an_error_that_names_it() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    world.plain_log().pin("a", id).unwrap();
    let name = LogEntry::name_of(3);
    let good = world.inner.get(&name).unwrap();
    for (operation, kind) in [("get", ErrorKind::Unavailable), ("get", ErrorKind::NotFound)] {
        world.faults.set(move |call| (call.operation == operation).then_some(Fault::ErrorBefore(kind)));
        let error = world.log().state().unwrap_err();
        assert!(error.to_string().contains(&name), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    world.faults.set(|_| None);
    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    let older = world.inner.get(&LogEntry::name_of(2)).unwrap();
    for (bytes, kind) in [
        (flipped.into(), ErrorKind::Corruption),
        (good.slice(..good.len() - 1), ErrorKind::Corruption),
        (older, ErrorKind::Corruption),
        (crate::checkpoint::frame::seal(*b"HWLG", 2, b"?").into(), ErrorKind::Unsupported),
    ] {
        world.inner.put(&name, bytes, PutMode::Overwrite).unwrap();
        for error in [world.log().state().unwrap_err(), world.log().claim(&[]).unwrap_err()] {
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(&name), "{error}");
        }
    }
    world.inner.put(&name, good, PutMode::Overwrite).unwrap();
    assert_eq!(world.log().state().unwrap().latest().unwrap().id(), id);
}

#[test]
fn pins_hold_and_fail_on_what_is_gone() {
    let world = World::new();
    let (claim, id) = with_checkpoint(&world);
    let log = world.log();
    log.pin("a", id).unwrap();
    log.pin("a", id).unwrap();
    assert_eq!(log.pin(&"x".repeat(1025), id).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let missing = log.pin("b", CheckpointId { epoch: 1, id: 9 }).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let mut coordinator = world.coordinator(claim, 1).unwrap();
    let mut subtask = world.subtask(claim);
    coordinator.add(subtask.part(2).unwrap()).unwrap().unwrap();
    assert_eq!(log.state().unwrap().checkpoints.len(), 2, "pinned beside the newest");
    let other = log.pin("a", CheckpointId { epoch: 1, id: 2 }).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::AlreadyExists);
    log.unpin("a").unwrap();
    log.unpin("a").unwrap();
    coordinator.add(subtask.part(3).unwrap()).unwrap().unwrap();
    let condemned = log.pin("c", id).unwrap_err();
    assert!(condemned.to_string().contains("condemned"), "{condemned}");
}

#[test]
fn the_pin_of_a_restore_lasts_until_the_first_completed_checkpoint_or_the_next_claim() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    let log = world.log();
    let second = log.claim(&[]).unwrap();
    log.pin_for_restore(&second, id).unwrap();
    let third = log.claim(&[]).unwrap();
    assert!(log.state().unwrap().pins.is_empty());
    assert_eq!(log.pin_for_restore(&second, id).unwrap_err().kind(), ErrorKind::Fenced);
    log.pin_for_restore(&third, id).unwrap();
    let part = world.subtask(third).part(1).unwrap();
    world.coordinator(third, 1).unwrap().add(part).unwrap().unwrap();
    let state = log.state().unwrap();
    assert!(state.pins.is_empty());
    assert_eq!(state.condemned.len(), 1);
}

#[test]
fn bad_input_the_wrong_directory_holds_no_job() {
    let world = World::new();
    world.inner.put("somebody/elses", bytes::Bytes::new(), PutMode::Create).unwrap();
    let error = world.log().state().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("memory:///"), "{error}");
    let claim = Claim { epoch: 1, attempt: 1 };
    assert_eq!(world.log().check_claim(&claim).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.log().unpin("x").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn golden_bytes_of_an_entry() {
    let world = World::new();
    world.clock.set_ms(5);
    let claim = world.log().claim(&[]).unwrap();
    let bytes = world.inner.get("log/00000000000000000001").unwrap();
    let entry = LogEntry::from_bytes("log/00000000000000000001", &bytes).unwrap();
    assert_eq!(entry.action, Action::Claim { epoch: 1 });
    let attempt = claim.attempt.to_le_bytes();
    let mut expected = vec![1];
    expected.extend(attempt);
    expected.extend([5, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
    expected.extend(attempt);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 1]);
    expected.extend(attempt);
    expected.push(1);
    assert_eq!(bytes[16..], expected);
    assert_eq!(bytes[..8], *b"HWLG\x01\0\0\0");
}

#[test]
fn an_outage_shorter_than_the_deadline_goes_unnoticed() {
    let world = World::new();
    let mut left = 3;
    world.faults.set(move |_| {
        left -= 1;
        (left >= 0).then_some(Fault::ErrorBefore(ErrorKind::Unavailable))
    });
    let log = RootLog::new(world.store.clone(), world.clock.clone(), world.random.clone());
    assert_eq!(log.claim(&[]).unwrap().epoch, 1);
    world.faults.set(|_| Some(Fault::ErrorBefore(ErrorKind::Unavailable)));
    let before = world.clock.monotonic();
    assert_eq!(log.claim(&[]).unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(world.clock.monotonic() - before <= Duration::from_secs(2));
}

trait Monotonic {
    fn monotonic(&self) -> Duration;
}

impl Monotonic for crate::base::clock::ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(crate::base::clock::Clock::monotonic_ns(self))
    }
}

/// The operations of `act`, in order.
fn operations(world: &World, act: impl FnOnce()) -> Vec<&'static str> {
    let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let note = seen.clone();
    world.faults.set(move |call| {
        note.lock().push(call.operation);
        None
    });
    act();
    world.faults.set(|_| None);
    std::mem::take(&mut seen.lock())
}

#[test]
fn who_knows_the_newest_entry_appends_with_a_put_and_a_look_and_reads_with_two() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    let log = world.log();
    assert_eq!(operations(&world, || log.pin("a", id).unwrap()), ["list", "get", "put", "get_range"]);
    assert_eq!(operations(&world, || log.pin("b", id).unwrap()), ["put", "get_range"]);
    assert_eq!(operations(&world, || drop(log.newest().unwrap())), ["length", "get_range"]);
    let other = world.plain_log();
    for rounds in [1, 40] {
        churn(&other, id, rounds);
        assert_eq!(log.newest().unwrap(), other.newest().unwrap());
        churn(&other, id, rounds);
        log.pin("c", id).unwrap();
        log.unpin("c").unwrap();
        assert_eq!(other.newest().unwrap(), log.newest().unwrap());
    }
}

/// Two zombies that know the entries 9 and 10 wake up together: the one creates its entry 10 in the hole, and before it has
/// seen that, the other its 11 right behind.
#[test]
fn an_entry_behind_another_zombies_in_the_same_hole_counts_for_nothing() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    let sleeper = world.log();
    sleeper.pin("early", id).unwrap();
    let known = world.plain_log().newest().unwrap().unwrap();
    churn(&world.plain_log(), id, 40);
    let name = LogEntry::name_of(known.number);
    assert!(world.inner.get(&name).is_err(), "folded away");
    let mut fake = known.clone();
    fake.attempt ^= 1;
    let (inner, bytes) = (world.inner.clone(), fake.to_bytes());
    just_before(&world, "put", move || inner.put(&name, bytes.into(), PutMode::Create).unwrap());
    sleeper.pin("late", id).unwrap();
    let newest = world.plain_log().newest().unwrap().unwrap();
    let names: Vec<_> = newest.state.pins.iter().map(|pin| pin.name.as_str()).collect();
    assert_eq!(names, ["early", "late"]);
    assert_eq!(newest.number, known.number + 81);
}

/// Or the look at the entry before would say nothing of those after it.
#[test]
fn no_entry_goes_before_an_older_one_that_could_not_be_deleted() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    let stuck = LogEntry::name_of(5);
    world.faults.set(move |call| {
        (call.operation == "delete" && call.name == stuck).then_some(Fault::ErrorBefore(ErrorKind::Unavailable))
    });
    let log = world.log();
    churn(&log, id, 60);
    let newest = log.newest().unwrap().unwrap().number;
    assert_eq!(numbers(&world), (5..=newest).collect::<Vec<_>>());
    world.faults.set(|_| None);
    churn(&log, id, 30);
    let left = numbers(&world);
    assert!(
        left.len() <= 41 && left.is_sorted() && left[left.len() - 1] - left[0] == left.len() as u64 - 1,
        "{left:?}"
    );
}

#[test]
fn a_claim_for_a_restore_pins_the_newest_checkpoint_in_its_own_entry() {
    let world = World::new();
    let empty = World::new().plain_log();
    assert!(empty.claim_and_pin(&mut ()).unwrap().1.pins.is_empty(), "nothing to pin");
    let (_, id) = with_checkpoint(&world);
    let log = world.log();
    let before = world.plain_log().newest().unwrap().unwrap().number;
    let (claim, state) = log.claim_and_pin(&mut ()).unwrap();
    assert_eq!(world.plain_log().newest().unwrap().unwrap().number, before + 1);
    assert_eq!((state.claim, state.latest().unwrap().id()), (Some(claim), id));
    assert_eq!(state.pins.iter().map(|pin| (pin.id, pin.restored_by)).collect::<Vec<_>>(), [(id, Some(claim.epoch))]);
    assert!(operations(&world, || log.pin_for_restore(&claim, id).unwrap()).is_empty());
    let part = world.subtask(claim).part(1).unwrap();
    world.coordinator(claim, 1).unwrap().add(part).unwrap().unwrap();
    assert!(log.newest().unwrap().unwrap().state.pins.is_empty(), "gone with the first checkpoint");
    assert_eq!(log.pin_for_restore(&claim, id).unwrap_err().kind(), ErrorKind::NotFound);
}

/// A store that ignores what a create-only put asks for, as some servers ignore `If-None-Match`.
#[derive(Debug)]
struct Careless(Arc<dyn Store>);

impl Store for Careless {
    fn url(&self) -> &str {
        "careless://bucket/job"
    }

    fn put(&self, name: &str, bytes: Bytes, _: PutMode) -> Result<()> {
        self.0.put(name, bytes, PutMode::Overwrite)
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, _: PutMode) -> Result<()> {
        self.0.put_stream(name, chunks, PutMode::Overwrite)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        self.0.get(name)
    }

    fn get_range(&self, name: &str, range: std::ops::Range<u64>) -> Result<Bytes> {
        self.0.get_range(name, range)
    }

    fn length(&self, name: &str) -> Result<u64> {
        self.0.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        self.0.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name)
    }
}

#[test]
fn a_store_that_replaces_what_must_not_be_replaced_is_refused_at_the_first_claim() {
    let inner = World::new().inner;
    for round in 0..2 {
        let clock = Arc::new(crate::base::clock::ManualClock::at_ms(1));
        let world = World::over(Arc::new(Careless(inner.clone())), clock);
        let error = world.log().claim(&[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "round {round}");
        assert!(
            error.to_string().contains("careless://bucket/job") && error.to_string().contains("create-only"),
            "{error}"
        );
    }
}

#[test]
fn a_store_whose_check_failed_is_checked_again_before_the_claim_counts() {
    for careless in [false, true] {
        let clock = Arc::new(crate::base::clock::ManualClock::at_ms(1));
        let inner = World::new().inner;
        let inner = if careless { Arc::new(Careless(inner)) } else { inner };
        let world = World::over(inner, clock);
        let mut puts = 0;
        world.faults.set(move |call| {
            puts += u32::from(call.operation == "put");
            (call.operation == "put" && puts == 2).then_some(Fault::ErrorBefore(ErrorKind::Unavailable))
        });
        let claimed = world.log().claim(&[]).map_err(|error| error.kind());
        assert_eq!(claimed.err(), careless.then_some(ErrorKind::Unsupported));
    }
}

#[test]
fn a_claim_that_was_folded_away_before_its_check_is_no_reason_to_refuse_the_store() {
    let world = World::new();
    let (_, id) = with_checkpoint(&world);
    let other = world.plain_log();
    let mut puts = 0;
    world.faults.set(move |call| {
        puts += u32::from(call.operation == "put");
        if call.operation == "put" && puts == 2 {
            churn(&other, id, 40);
        }
        None
    });
    let log = world.log();
    let claim = log.claim(&[]).unwrap();
    log.check_claim(&claim).unwrap();
}

#[test]
fn a_process_checks_its_store_once() {
    let world = World::new();
    let log = world.log();
    log.claim(&[]).unwrap();
    let first = world.faults.calls();
    log.claim(&[]).unwrap();
    assert!(world.faults.calls() - first < first, "the second claim asks for less: {first}");
}

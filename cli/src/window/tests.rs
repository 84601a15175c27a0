//! The window logic against a recount that keeps every record in a list.

use proptest::prelude::*;

use crate::aggregate::Number;
use crate::runtime::{Fired, KeyedOperator, Record};
use crate::testing::{MemoryState, naive};
use crate::window::{WindowKind, WindowOperator};

/// What comes out, in order of end and key, and how many records were late.
fn run(kind: WindowKind, bound: i64, events: &[naive::Event]) -> (Vec<String>, u64) {
    run_with_room(kind, bound, events, |_| usize::MAX)
}

/// As [`run`], where the step of the nth record has `room` for so many timers.
fn run_with_room(
    kind: WindowKind,
    bound: i64,
    events: &[naive::Event],
    room: impl Fn(usize) -> usize,
) -> (Vec<String>, u64) {
    let mut operator = WindowOperator::new(MemoryState::default(), &[kind.alone()]).unwrap();
    let (mut rows, mut late, mut watermark) = (Vec::new(), 0, i64::MIN);
    let mut take = |fired: Fired, before: i64, upto: i64| {
        let ends = || fired.rows.iter().map(|row| row.end);
        assert!(ends().all(|end| end > before), "a window fired that had been said to have: {before}");
        assert!(upto >= before);
        rows.extend(fired.rows);
        late += fired.late;
    };
    for (index, event) in events.iter().enumerate() {
        let record = Record {
            stream: 0,
            key: event.key.as_slice().into(),
            time: event.time,
            value: event.value.map(|value| Number::Integer(value.into())),
            watermark,
        };
        let mut fired = Fired::default();
        fired.leave_room_for(room(index));
        let before = operator.fired_upto();
        operator.on_record(&record, &mut fired).unwrap();
        take(fired, before, operator.fired_upto());
        watermark = watermark.max(event.time.saturating_sub(bound));
    }
    let mut all = false;
    while !all {
        let (mut fired, before) = (Fired::default(), operator.fired_upto());
        all = operator.on_watermark(i64::MAX, &mut fired).unwrap();
        take(fired, before, operator.fired_upto());
    }
    assert_eq!(operator.fired_upto(), i64::MAX);
    assert!(operator.snapshots().is_empty(), "fired windows leave nothing behind");
    rows.sort_by(|a, b| (a.end, &a.key).cmp(&(b.end, &b.key)));
    (rows.into_iter().map(|row| String::from_utf8(row.line).unwrap()).collect(), late)
}

fn events(times: std::ops::Range<i64>) -> impl Strategy<Value = Vec<naive::Event>> {
    let event = (0u8..4, times, prop::option::of(-5i64..100)).prop_map(|(key, time, value)| naive::Event {
        key: vec![b'a' + key],
        time,
        value,
    });
    prop::collection::vec(event, 0..60)
}

fn event(time: i64) -> naive::Event {
    naive::Event { key: b"k".to_vec(), time, value: Some(1) }
}

const S: i64 = 1_000_000_000;

#[test]
fn a_session_that_has_not_fired_yet_is_not_taken_for_one_that_begins_where_it_does() {
    let kind = WindowKind::Session { gap: 10 };
    // 0..10 is due when 12 has been seen. 8 begins a session of its own, which 0 then joins: 0..18.
    let other = naive::Event { key: b"z".to_vec(), ..event(12) };
    let events = [event(0), other, event(8), event(0)];
    let (rows, late) = run_with_room(kind, 0, &events, |_| 0);
    assert_eq!((rows.len(), late), (3, 0));
    assert_eq!((rows, late), run(kind, 0, &events));
}

#[test]
fn records_exactly_one_gap_apart_share_a_session() {
    let kind = WindowKind::Session { gap: 10 * S };
    let (rows, late) = run(kind, 100 * S, &[event(0), event(10 * S), event(20 * S + 1)]);
    assert_eq!(late, 0);
    assert_eq!(
        rows,
        [
            "1970-01-01T00:00:00Z,1970-01-01T00:00:20Z,k,2,2,2,1,1\n",
            "1970-01-01T00:00:20.000000001Z,1970-01-01T00:00:30.000000001Z,k,1,1,1,1,1\n",
        ]
    );
}

#[test]
fn a_record_that_touches_only_a_fired_session_begins_its_own_if_its_end_lies_ahead() {
    let kind = WindowKind::Session { gap: 10 };
    // 0..10 fires when 15 is seen; 8 touches it only, and would end at 18.
    let (rows, late) = run(kind, 0, &[event(0), naive::Event { key: b"z".to_vec(), ..event(15) }, event(8)]);
    assert_eq!(late, 0);
    assert_eq!(rows.len(), 3);
    // 4 would end at 14, which the watermark has passed.
    let (rows, late) = run(kind, 0, &[event(0), naive::Event { key: b"z".to_vec(), ..event(15) }, event(4)]);
    assert_eq!((rows.len(), late), (2, 1));
}

#[test]
fn a_record_between_two_sessions_joins_them() {
    let (rows, _) = run(WindowKind::Session { gap: 10 * S }, 100 * S, &[event(0), event(15 * S), event(8 * S)]);
    assert_eq!(rows, ["1970-01-01T00:00:00Z,1970-01-01T00:00:25Z,k,3,3,3,1,1\n"]);
}

#[test]
fn a_tumbling_window_fires_when_the_watermark_reaches_its_end() {
    let kind = WindowKind::Tumbling { size: 10 };
    // At 10 the watermark is 10: the first window has ended, 9 is late; so is one in a window that never held a record.
    let (rows, late) = run(kind, 0, &[event(0), event(10), event(9), event(-25)]);
    assert_eq!((rows.len(), late), (2, 2));
    let (rows, late) = run(kind, 1, &[event(0), event(10), event(9)]);
    assert_eq!((rows.len(), late), (2, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn tumbling_windows_are_those_of_the_naive_recount(events in events(-60..60), size in 1i64..20, bound in 0i64..40) {
        let got = run(WindowKind::Tumbling { size }, bound, &events);
        prop_assert_eq!(got, naive::windows(&events, size, bound));
    }

    #[test]
    fn sessions_are_those_of_the_naive_recount(events in events(-60..60), gap in 1i64..12, bound in 0i64..40) {
        let got = run(WindowKind::Session { gap }, bound, &events);
        prop_assert_eq!(got, naive::sessions(&events, gap, bound));
    }

    #[test]
    fn what_is_due_and_has_not_fired_yet_makes_no_difference_to_later_records(
        events in events(-60..60), reach in 1i64..16, bound in 0i64..20, rooms in prop::collection::vec(0usize..3, 1..6),
    ) {
        for kind in [WindowKind::Tumbling { size: reach }, WindowKind::Session { gap: reach }] {
            let got = run_with_room(kind, bound, &events, |index| rooms[index % rooms.len()]);
            prop_assert_eq!(got, run(kind, bound, &events));
        }
    }

    #[test]
    fn with_nothing_late_the_order_of_arrival_makes_no_difference(
        events in events(-60..60).prop_shuffle(), gap in 1i64..12, seed in any::<u64>(),
    ) {
        let mut shuffled = events.clone();
        let mut state = seed | 1;
        for i in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(i, (state >> 33) as usize % (i + 1));
        }
        let kind = WindowKind::Session { gap };
        let (got, late) = run(kind, 1000, &shuffled);
        prop_assert_eq!(late, 0);
        prop_assert_eq!(got, run(kind, 1000, &events).0);
    }
}

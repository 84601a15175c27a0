//! The promises that the root log, uploads and restores rest on, asked of the store alone.

use std::sync::{Arc, Barrier};

use bytes::Bytes;
use highwater::io::store::{PutMode, Request, Store};
use highwater::{Error, ErrorKind, Result};

use crate::Place;

fn names(store: &dyn Store, prefix: &str) -> Vec<String> {
    store.list(prefix).unwrap().into_iter().map(|object| object.name).collect()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

pub fn puts_gets_and_deletes_do_what_they_say(place: &Place) {
    let store = place.open();
    assert!(names(&*store, "").is_empty() && names(&*store, "none/").is_empty());
    let name = "operator~20a/0/1/a=b-c_d.e~20";
    store.put(name, Bytes::from_static(b"0123456789"), PutMode::Create).unwrap();
    assert_eq!(kind(store.put(name, Bytes::from_static(b"other"), PutMode::Create)), ErrorKind::AlreadyExists);
    assert_eq!(store.get(name).unwrap(), "0123456789");
    assert_eq!(store.length(name).unwrap(), 10);
    for (range, bytes) in [(0..10, "0123456789"), (0..1, "0"), (9..10, "9"), (3..7, "3456"), (5..5, "")] {
        assert_eq!(store.get_range(name, range).unwrap(), bytes);
    }
    for beyond in [0..11, 9..12, 10..11, 20..30] {
        assert_eq!(kind(store.get_range(name, beyond.clone())), ErrorKind::Corruption, "{beyond:?}");
    }
    for (length, reading) in [(0, "empty"), (1, "one")] {
        store.put(reading, Bytes::from(vec![7; length]), PutMode::Create).unwrap();
        assert_eq!((store.get(reading).unwrap().len(), store.length(reading).unwrap()), (length, length as u64));
    }
    store.put(name, Bytes::from_static(b"shorter"), PutMode::Overwrite).unwrap();
    assert_eq!(store.get(name).unwrap(), "shorter");
    let missing = "operator~20a/0/1/missing";
    assert_eq!(kind(store.get(missing)), ErrorKind::NotFound);
    assert_eq!(kind(store.get_range(missing, 0..1)), ErrorKind::NotFound);
    assert_eq!(kind(store.length(missing)), ErrorKind::NotFound);
    store.delete(missing).unwrap();

    let answers = store.together(vec![
        Request::Get(name.into()),
        Request::GetRange(name.into(), 0..5),
        Request::Get(missing.into()),
        Request::Put(name.into(), Bytes::new(), PutMode::Create),
        Request::Put("beside".into(), Bytes::from_static(b"b"), PutMode::Create),
        Request::GetRange(name.into(), 0..8),
        Request::Delete(missing.into()),
    ]);
    let found: Vec<_> = answers.into_iter().map(|answer| answer.map_err(|error| error.kind())).collect();
    let bytes = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
    let (absent, taken, short) = (ErrorKind::NotFound, ErrorKind::AlreadyExists, ErrorKind::Corruption);
    assert_eq!(found, [bytes("shorter"), bytes("short"), Err(absent), Err(taken), bytes(""), Err(short), bytes("")]);
    assert_eq!(names(&*store, ""), ["beside", "empty", "one", name]);

    store.delete(name).unwrap();
    store.delete(name).unwrap();
    assert_eq!(kind(store.get(name)), ErrorKind::NotFound);
    store.put(name, Bytes::from_static(b"again"), PutMode::Create).unwrap();
    assert_eq!(store.get(name).unwrap(), "again");
    assert_eq!(kind(store.put("../escape", Bytes::new(), PutMode::Create)), ErrorKind::InvalidArgument);
}

pub fn of_many_that_create_one_name_one_succeeds(place: &Place) {
    const WRITERS: usize = 6;
    for round in 0..10 {
        let (name, start) = (format!("log/{round:020}"), Arc::new(Barrier::new(WRITERS)));
        let store = place.open();
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let write = |writer: usize| {
                let (store, name, start) = (store.clone(), name.clone(), start.clone());
                move || {
                    start.wait();
                    store.put(&name, Bytes::from(vec![writer as u8; 100 + writer]), PutMode::Create)
                }
            };
            let running: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(write(writer))).collect();
            running.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let winners: Vec<_> = (0..WRITERS).filter(|writer| outcomes[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}: {outcomes:?}");
        for (writer, outcome) in outcomes.into_iter().enumerate().filter(|(writer, _)| *writer != winners[0]) {
            assert_eq!(kind(outcome), ErrorKind::AlreadyExists, "writer {writer}");
        }
        assert_eq!(store.get(&name).unwrap(), vec![winners[0] as u8; 100 + winners[0]]);
    }
}

pub fn a_listing_sees_every_put_and_delete_before_it(place: &Place) {
    // Two that don't share what a client may remember.
    let (writer, reader) = (place.open(), place.open());
    let mut expected = Vec::new();
    for number in 0..30 {
        let name = format!("log/{number:020}");
        writer.put(&name, Bytes::from(vec![1; number]), PutMode::Create).unwrap();
        expected.push(name);
        if number % 3 == 2 {
            writer.delete(&expected.remove(0)).unwrap();
        }
        assert_eq!(names(&*reader, "log/"), expected);
        assert_eq!(reader.list("log/").unwrap().last().unwrap().length_bytes, number as u64);
    }
}

pub fn a_listing_of_more_than_a_thousand_objects_is_whole(place: &Place) {
    let store = place.open();
    let mut expected: Vec<_> = (0..1100).map(|number| format!("a/{}/{number}", number % 7)).collect();
    let put = |name: &String| Request::Put(name.clone(), Bytes::from_static(b"x"), PutMode::Create);
    for answer in store.together(expected.iter().map(put).collect()) {
        answer.unwrap();
    }
    store.put("ab", Bytes::new(), PutMode::Create).unwrap();
    expected.sort();
    assert_eq!(names(&*store, "a/"), expected);
    assert_eq!(names(&*store, "").len(), 1101);
}

pub fn a_long_stream_arrives_whole_or_not_at_all(place: &Place) {
    let store = place.open();
    // Behind the length from which on objects go up in parts, whose last one is short.
    let piece = |number: u64| {
        let mut bytes = vec![number as u8; 1 << 20];
        bytes[0] = !(number as u8);
        Bytes::from(bytes)
    };
    let pieces = |count: u64| (0..count).map(move |number| Ok(piece(number)));
    let mut chunks = pieces(25).chain([Ok(Bytes::from_static(b"the end"))]);
    store.put_stream("long", &mut chunks, PutMode::Create).unwrap();
    let length = (25 << 20) + 7;
    assert_eq!(store.length("long").unwrap(), length);
    for number in [0, 7, 8, 15, 16, 24] {
        let start = number << 20;
        assert_eq!(store.get_range("long", start..start + (1 << 20)).unwrap(), piece(number), "piece {number}");
    }
    assert_eq!(store.get_range("long", length - 7..length).unwrap(), "the end");
    assert_eq!(kind(store.put_stream("long", &mut pieces(20), PutMode::Create)), ErrorKind::AlreadyExists);
    for count in [1, 18] {
        let mut failing = pieces(count).chain([Err(Error::new(ErrorKind::Corruption, "bad on disk"))]);
        assert_eq!(kind(store.put_stream("failed", &mut failing, PutMode::Create)), ErrorKind::Corruption);
    }
    let mut none = std::iter::empty();
    store.put_stream("empty", &mut none, PutMode::Create).unwrap();
    assert_eq!(names(&*store, ""), ["empty", "long"]);
    assert!(store.leftovers().unwrap().is_empty());
}

pub fn roots_side_by_side_do_not_see_each_other(place: &Place) {
    let (store, beside) = (place.open(), place.other("-beside"));
    store.put("a", Bytes::from_static(b"1"), PutMode::Create).unwrap();
    beside.put("a", Bytes::from_static(b"2"), PutMode::Create).unwrap();
    beside.put("b", Bytes::new(), PutMode::Create).unwrap();
    assert_eq!(names(&*store, ""), ["a"]);
    store.delete("a").unwrap();
    assert_eq!(beside.get("a").unwrap(), "2");
}

//! The demo's workload through the job's window logic, compared by the demo's own check.

use std::path::PathBuf;

use crate::args::DemoArgs;
use crate::demo::run;
use crate::demo::{BidSource, OUT_OF_ORDERNESS_NANOS, Pace, STREAMS, Verdict, check};
use crate::position::Position;
use crate::runtime::Stop;
use crate::runtime::{Fired, KeyedOperator, Source};
use crate::testing::{MemoryEngine, MemoryState};
use crate::window::WindowOperator;

const EVENTS: u64 = 150_000;
const SEED: u64 = 42;

/// The output of a job that is fed the generated bids.
fn output() -> Vec<String> {
    let mut source = BidSource::new(SEED, Pace::Events(EVENTS), &Position::start());
    let mut operator = WindowOperator::new(MemoryState::default(), &STREAMS).unwrap();
    let (mut records, mut fired, mut watermark) = (Vec::new(), Fired::default(), i64::MIN);
    while let Some(time) = source.next(&mut records).unwrap() {
        for mut record in records.drain(..) {
            record.watermark = watermark;
            operator.on_record(&record, &mut fired).unwrap();
        }
        watermark = watermark.max(time - OUT_OF_ORDERNESS_NANOS);
    }
    let (late, mut rows) = (fired.late, fired.rows);
    let mut all = false;
    while !all {
        let mut step = Fired::default();
        all = operator.on_watermark(i64::MAX, &mut step).unwrap();
        rows.extend(step.rows);
    }
    assert_eq!(late, 0);
    assert_eq!((source.position().offset, source.position().records), (EVENTS, EVENTS / 50 * 46));
    rows.sort_by(|a, b| (a.end, a.stream, &a.key).cmp(&(b.end, b.stream, &b.key)));
    rows.into_iter().map(|row| String::from_utf8(row.line).unwrap()).collect()
}

fn verdict(rows: &[String]) -> Verdict {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join("out.csv");
    std::fs::write(&path, rows.concat()).unwrap();
    check(&path, SEED, EVENTS).unwrap()
}

#[test]
fn the_check_accepts_the_right_output_and_finds_every_kind_of_difference() {
    let rows = output();
    assert!(rows.iter().any(|row| row.starts_with("window,")) && rows.iter().any(|row| row.starts_with("session,")));
    let right = verdict(&rows);
    assert_eq!((right.compared, right.differences), (rows.len() as u64, 0), "{:?}", right.shown);

    let mut missing = rows.clone();
    missing.remove(17);
    assert_eq!(verdict(&missing).differences, 1);

    let mut twice = rows.clone();
    twice.insert(17, rows[17].clone());
    assert_eq!(verdict(&twice).differences, 1);

    let mut swapped = rows.clone();
    swapped.swap(17, 18);
    assert_eq!(verdict(&swapped).differences, 1);

    let mut wrong = rows.clone();
    wrong[17] = wrong[17].replace('\n', "0\n");
    assert_eq!(verdict(&wrong).differences, 1);

    let mut foreign = rows;
    foreign[17] = "something else\n".into();
    assert_eq!(verdict(&foreign).differences, 2);
}

#[test]
fn two_crashes_and_a_rescale_leave_every_result_right_and_a_corrupt_row_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut args = DemoArgs { seconds: 3, parallelism: 2, store: None, json: true, metrics: None, corrupt_row: None };
    for corrupt_row in [None, Some(3)] {
        args.corrupt_row = corrupt_row;
        let engine = MemoryEngine::default();
        let output = dir.path().join(format!("{corrupt_row:?}.csv"));
        let report = run(&args, &output, 200_000, &Stop::default(), &mut || Ok(engine.clone())).unwrap();
        assert_eq!((report.crashes, report.run.restores.len()), (2, 2));
        assert!(report.run.restores.iter().all(|restore| restore.parallelism_from == 2));
        assert_eq!(report.run.restore.as_ref().unwrap().parallelism_to, 3);
        assert!(report.compared > 1000 && report.compared == report.run.output_rows);
        assert_eq!(report.differences, u64::from(corrupt_row.is_some()));
        assert!(crate::demo::summary(&report).contains("from checkpoint"));
    }
}

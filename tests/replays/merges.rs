//! Merge operands that count twice or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use highwater::io::faulty::Fault;
use highwater::*;

use crate::common::rig::Rig;
use crate::common::tiny;

/// Ten thousand increments with a flush, a merge or a view in between: the sum only grows, and ends exact.
#[test]
fn rocksdb_6064_an_operand_counted_twice_because_a_view_held_a_memtable_and_its_file() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    let mut views = Vec::new();
    let mut last = 0;
    for n in 1..=10_000_i64 {
        rig.add(1, 1).unwrap();
        if n % 97 == 0 {
            views.push((rig.tasks[0].backend.read_view().unwrap(), n));
        }
        if n % 31 == 0 {
            rig.executor.step(n as usize);
        }
        if n % 53 == 0 {
            rig.tasks[0].backend.poll().unwrap();
        }
        if n % 7 == 0 {
            let sum = rig.task_of(1).sum(1).unwrap().unwrap();
            assert!(sum >= last && sum == n, "{sum} after {n} increments, {last} before");
            last = sum;
        }
        if n % 1000 == 0 {
            for (view, expected) in views.drain(..) {
                assert_eq!(rig.tasks[0].read(&view).unwrap().sums[&1], expected);
            }
        }
    }
    rig.work();
    rig.check().unwrap();
    assert_eq!(rig.task_of(1).sum(1).unwrap(), Some(10_000));
    rig.incremental().unwrap();
    rig.kill();
    rig.start(1).unwrap();
    assert_eq!(rig.task_of(1).sum(1).unwrap(), Some(10_000));
}

/// Operands in three epochs, a view after the second; the merge dies after its first output, the view goes, the
/// merge runs again.
#[test]
fn slatedb_1769_operands_were_lost_when_a_merge_resumed_at_a_file_boundary() {
    for fail_at in 1..4 {
        for killed in [false, true] {
            let mut rig = Rig::new(Tuning { level_zero_runs: 4, ..tiny() });
            rig.start(1).unwrap();
            let mut view = None;
            for (round, operand) in [100, 200, 300].into_iter().enumerate() {
                for key in 0..30 {
                    rig.add(key, operand).unwrap();
                }
                for key in 0..60 {
                    rig.put(key, vec![round as u8; 40]).unwrap();
                }
                let opened = rig.tasks[0].backend.read_view().unwrap();
                rig.executor.step(0);
                if round == 1 {
                    view = Some((opened, rig.model.clone()));
                }
            }
            rig.incremental().unwrap();
            // From here on files are created by merges alone, until the next write.
            let created = Arc::new(AtomicU64::new(0));
            rig.file_faults.set(move |call| {
                let nth = if call.operation == "create" { created.fetch_add(1, SeqCst) } else { 0 };
                (nth >= fail_at).then_some(Fault::ErrorBefore(ErrorKind::Io))
            });
            rig.tasks[0].backend.poll().unwrap();
            rig.add(1, 1).unwrap();
            drop(rig.tasks[0].backend.read_view().unwrap());
            rig.executor.run_until_idle();
            let (opened, then) = view.take().unwrap();
            assert_eq!(rig.tasks[0].read(&opened).unwrap(), then);
            drop(opened);
            rig.file_faults.set(|_| None);
            if killed {
                rig.kill();
                rig.start(1).unwrap();
            }
            rig.check().unwrap();
            for n in 0..6 {
                rig.put(n, vec![9; 40]).unwrap();
                drop(rig.tasks[0].backend.read_view().unwrap());
                rig.work();
            }
            rig.check().unwrap();
            assert!((2..30).all(|key| rig.model.sums[&key] == 600));
            rig.incremental().unwrap();
            rig.kill_and_lose_directory();
            rig.start(2).unwrap();
            rig.check().unwrap();
        }
    }
}

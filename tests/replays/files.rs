//! Files that shrink, values that are long, disks that fill.

use std::time::Duration;

use highwater::base::cursor::Direction;
use highwater::io::faulty::Fault;
use highwater::*;

use crate::common::rig::Rig;
use crate::common::tiny;

/// Lengths around 16 bits and 16 MiB, killed and reopened, as values, map entries and list elements.
#[test]
fn fjall_68_a_16_bit_value_length() {
    let mut rig = Rig::new(Tuning { segment_bytes: 1 << 20, ..Tuning::for_memory(160 << 20) });
    rig.memory_bytes = 160 << 20;
    rig.start(1).unwrap();
    let sizes = [65_534, 65_535, 65_536, 65_537, 16 << 20];
    let value = |size: u32, salt: u32| -> Vec<u8> { (0..size).map(|i| ((i + salt) % 251) as u8).collect() };
    let register = |rig: &mut Rig| {
        let b = &mut rig.tasks[0].backend;
        let map = b.map_state::<u32, u32, Vec<u8>>("long map").unwrap();
        (map, b.list_state::<u32, Vec<u8>>("long list").unwrap())
    };
    let (map, list) = register(&mut rig);
    for size in sizes {
        rig.put(size, value(size, 0)).unwrap();
        let b = &mut rig.tasks[0].backend;
        map.put(b, &1, &size, value(size, 1)).unwrap();
        list.add(b, &1, value(size, 2)).unwrap();
        rig.work();
    }
    rig.incremental().unwrap();
    rig.kill();
    rig.start(1).unwrap();
    let (map, list) = register(&mut rig);
    let task = &mut rig.tasks[0];
    let b = &mut task.backend;
    let elements = list.get(b, &1).unwrap();
    for (i, size) in sizes.into_iter().enumerate() {
        assert!(task.values.get(b, &size).unwrap() == Some(value(size, 0)), "value of {size}");
        assert!(map.get(b, &1, &size).unwrap() == Some(value(size, 1)), "entry of {size}");
        assert!(elements[i] == value(size, 2), "element of {size}");
    }
    let too_long = b.max_value_bytes() + 1;
    let error = task.values.put(b, &1, vec![0; too_long]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(task.values.get(b, &1).unwrap(), None);
}

/// Segments are cut short under an open scan: no signal. What the store has is read from there; where it has gone too, the
/// error names what is bad, sticks, and other reads go on.
#[test]
fn leveldb_150_rocksdb_15011_sigbus_on_a_truncated_map() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    for n in 0..600 {
        rig.put_entry(1, n, u64::from(n)).unwrap();
    }
    rig.put_entry(2, 0, 7).unwrap();
    rig.incremental().unwrap();
    rig.kill();
    rig.eager = true;
    rig.start(1).unwrap();
    let task = &mut rig.tasks[0];
    let mut cursor = task.entries.cursor(&mut task.backend, &1, Direction::Forward).unwrap();
    for n in 0..10 {
        assert_eq!(cursor.next(&mut task.backend).unwrap(), Some((n, u64::from(n))));
    }
    for entry in std::fs::read_dir(rig.directory.path().join("job-0")).unwrap() {
        let path = entry.unwrap().path();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 4).unwrap();
    }
    let whole = rig.store_faults.clone();
    whole.set(|call| (call.operation == "get_range").then_some(Fault::ErrorBefore(ErrorKind::NotFound)));
    let mut scan = task.entries.iter(&mut task.backend, &1, Direction::Backward).unwrap();
    let error = scan.find_map(Result::err).expect("the end of every file is gone");
    assert!(error.to_string().contains(".seg"), "{error}");
    assert!(scan.next().is_none());
    drop(scan);
    whole.set(|_| None);
    let entries: Result<Vec<_>> = task.entries.iter(&mut task.backend, &1, Direction::Forward).unwrap().collect();
    assert_eq!(entries.unwrap(), (0..600).map(|n| (n, u64::from(n))).collect::<Vec<_>>());
    for n in 10..600 {
        assert_eq!(cursor.next(&mut task.backend).unwrap(), Some((n, u64::from(n))));
    }
    cursor.close(&mut task.backend);
    // What is written now is not touched by it, and what the store holds is whole.
    let task = &mut rig.tasks[0];
    task.entries.put(&mut task.backend, &2, &0, 8).unwrap();
    assert_eq!(task.entries.get(&mut task.backend, &2, &0).unwrap(), Some(8));
    rig.kill();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// The disk fills until writes are refused; then it is freed, and nothing but time passes: writes resume.
#[test]
fn rocksdb_10257_rocksdb_11643_writes_stopped_with_no_compaction_scheduled_and_no_resume() {
    let mut rig = Rig::new(Tuning { page_bytes: 16 << 10, epoch_bytes: 256 << 10, ..Tuning::for_memory(16 << 20) });
    rig.start(1).unwrap();
    rig.write_all(0..500).unwrap();
    rig.work();
    rig.file_faults.set(|call| {
        matches!(call.operation, "create" | "append" | "finish")
            .then_some(Fault::ErrorBefore(ErrorKind::ResourceExhausted))
    });
    let mut refused = None;
    for n in 0..200_000 {
        let key = 1_000_000 + n;
        let task = rig.task_of(key);
        let written = task.values.put(&mut task.backend, &key, vec![n as u8; 400]);
        rig.executor.run_until_idle();
        match written {
            Ok(()) => {
                rig.model.values.insert(key, vec![n as u8; 400]);
            }
            Err(error) => {
                refused = Some((key, error));
                break;
            }
        }
    }
    let (key, error) = refused.expect("memory is full at some time");
    assert_eq!(error.kind(), ErrorKind::Backpressure);
    assert!(error.to_string().contains("injected"), "{error} says why");
    rig.check().unwrap();
    // Still refused, still answering, and a checkpoint is admitted.
    let (id, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    rig.executor.run_until_idle();
    let task = rig.task_of(key);
    assert_eq!(task.values.put(&mut task.backend, &key, vec![]).unwrap_err().kind(), ErrorKind::Backpressure);
    assert_eq!(task.values.get(&mut task.backend, &key).unwrap(), None, "a refused write left something");
    rig.executor.run_until_idle();
    // Freed. The owner has nothing to write; it looks in now and then.
    rig.file_faults.set(|_| None);
    for _ in 0..3 {
        rig.work();
    }
    assert_eq!(rig.tasks[0].backend.stats().waiting_epochs, 0);
    rig.finish(id, &tickets).unwrap();
    let task = rig.task_of(key);
    task.values.put(&mut task.backend, &key, vec![1]).unwrap();
    rig.model.values.insert(key, vec![1]);
    rig.check().unwrap();
    rig.incremental().unwrap();
    assert_eq!(tickets[0].wait(Duration::ZERO).unwrap().checkpoint.id, id);
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

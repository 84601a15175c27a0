//! Checkpoints that lost, leaked, mixed up or passed over what they referred to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use highwater::checkpoint::object_name::{ObjectKind, ObjectName};
use highwater::io::faulty::Fault;
use highwater::io::store::PutMode;
use highwater::*;

use crate::common::rig::Rig;
use crate::common::tiny;

/// Retain one: an incremental checkpoint, a full one, an incremental one that builds on the first; then the collector.
#[test]
fn flink_21351_a_full_checkpoint_subsumed_the_last_incremental_one() {
    let mut rig = Rig::new(tiny());
    rig.settings.retain = 1;
    rig.start(2).unwrap();
    rig.write_all(0..300).unwrap();
    rig.incremental().unwrap();
    rig.work();
    rig.checkpoint(CheckpointKind::Full).unwrap();
    rig.collect().unwrap();
    rig.write_all(300..310).unwrap();
    let third = rig.incremental().unwrap();
    assert!(third.parts().iter().all(|part| part.delta_bytes < part.full_bytes), "nothing was built on");
    rig.collect().unwrap();
    assert_eq!(rig.env().completed_checkpoints().unwrap().len(), 1);
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// Aborted after k of its uploads: the next one restores, and the collector leaves exactly what is reachable.
#[test]
fn flink_30461_flink_24611_an_abort_leaked_uploads_or_deleted_reused_state() {
    for fail_at in 0..12 {
        let mut rig = Rig::new(tiny());
        rig.start(2).unwrap();
        rig.write_all(0..300).unwrap();
        rig.incremental().unwrap();
        rig.write_all(300..500).unwrap();
        let puts = Arc::new(AtomicU64::new(0));
        rig.store_faults.set(move |call| {
            let is_put = matches!(call.operation, "put" | "put_stream");
            let nth = if is_put { puts.fetch_add(1, SeqCst) } else { 0 };
            (is_put && nth >= fail_at).then_some(Fault::ErrorAfter(ErrorKind::Io))
        });
        let aborted = rig.incremental().is_err();
        rig.store_faults.set(|_| None);
        rig.collect().unwrap();
        rig.write_all(500..520).unwrap();
        rig.incremental().unwrap();
        rig.incremental().unwrap();
        rig.collect().unwrap();
        rig.collect().unwrap();
        assert_eq!(rig.object_names(), rig.reachable(), "in its epoch, failing from upload {fail_at} on ({aborted})");
        rig.kill_and_lose_directory();
        rig.start(3).unwrap();
        rig.check().unwrap();
        rig.write_all(520..540).unwrap();
        rig.incremental().unwrap();
        rig.incremental().unwrap();
        rig.collect().unwrap();
        rig.collect().unwrap();
        assert_eq!(rig.object_names(), rig.reachable(), "after failing from upload {fail_at} on ({aborted})");
        rig.check().unwrap();
        rig.kill_and_lose_directory();
        rig.start(1).unwrap();
        rig.check().unwrap();
    }
}

/// Checkpoint 2 uploads A and dies before it is committed; after a restore of 1, B of the same size is written and
/// checkpoint 2 made again: a restore gives B.
#[test]
fn spark_43404_flink_29095_same_name_and_size_but_other_bytes_after_a_retry() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.put(1, b"base".to_vec()).unwrap();
    rig.incremental().unwrap();
    let attempt = |rig: &mut Rig, byte| {
        for key in 0..50 {
            rig.put(key, vec![byte; 30]).unwrap();
        }
    };
    // On the same footing as the attempts after it: what is restored isn't merged with what is new before an upload.
    rig.kill();
    rig.start(1).unwrap();
    attempt(&mut rig, b'A');
    let (_, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    rig.executor.run_until_idle();
    let lost = tickets[0].wait(Duration::ZERO).unwrap();
    for keep_directory in [true, false] {
        let before = rig.object_names();
        if keep_directory {
            rig.kill()
        } else {
            rig.kill_and_lose_directory()
        }
        rig.start(1).unwrap();
        rig.check().unwrap();
        rig.next_id = 2;
        attempt(&mut rig, b'B');
        let again = rig.incremental().unwrap();
        let part = &again.parts()[0];
        assert_eq!((part.checkpoint.id, part.delta_bytes), (2, lost.delta_bytes));
        assert!(!before.contains(&part.manifest.name), "a name was used again");
        rig.kill_and_lose_directory();
        rig.start(1).unwrap();
        rig.check().unwrap();
        assert_eq!(rig.model.values[&7], vec![b'B'; 30]);
    }
}

/// 503, then 404, on the newest checkpoint's log entry and manifest: an error that names it; an older one only when
/// it is asked for.
#[test]
fn flink_22502_an_unreadable_newest_checkpoint_was_passed_over_silently() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..100).unwrap();
    rig.incremental().unwrap();
    rig.write_all(100..200).unwrap();
    let newest = rig.incremental().unwrap();
    let manifest = newest.parts()[0].manifest.name.clone();
    rig.kill_and_lose_directory();
    for kind in [ErrorKind::Unavailable, ErrorKind::NotFound] {
        let name = manifest.clone();
        rig.store_faults.set(move |call| (call.name == name).then_some(Fault::ErrorBefore(kind)));
        let error = rig.start(1).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(&manifest), "{error}");
        assert!(error.to_string().contains(&newest.id().to_string()), "{error}");
        // Deliberately the one before.
        let older = rig.env().completed_checkpoints().unwrap().swap_remove(0);
        assert_ne!(older.id(), newest.id());
        rig.start_from(1, Some(&older)).unwrap();
        rig.check().unwrap();
        rig.kill();
    }
    let entry = rig.objects.list("log/").unwrap().pop().unwrap().name;
    for kind in [ErrorKind::Unavailable, ErrorKind::NotFound] {
        let name = entry.clone();
        rig.store_faults
            .set(move |call| (call.operation == "get" && call.name == name).then_some(Fault::ErrorBefore(kind)));
        let error = rig.start(1).unwrap_err();
        assert!(error.to_string().contains(&entry), "{error} names {entry}");
        rig.kill();
    }
    rig.store_faults.set(|_| None);
    rig.start(1).unwrap();
    assert_eq!(rig.env().latest_checkpoint().unwrap().unwrap().id(), newest.id());
    rig.check().unwrap();
}

/// A gateway's error page in place of an object, and a range that isn't the one asked for: an error that names the
/// object, never wrong bytes, and all is well once the store answers properly.
#[test]
fn arrow_rs_object_store_122_690_a_200_with_an_error_body_and_an_unvalidated_range() {
    let mut rig = Rig::new(tiny());
    rig.start(1).unwrap();
    rig.write_all(0..400).unwrap();
    rig.incremental().unwrap();
    rig.kill_and_lose_directory();
    let page = b"<Error><Code>InternalError</Code></Error>".repeat(40);
    let good: Vec<_> = rig.objects.list("").unwrap().into_iter().map(|object| object.name).collect();
    let good: Vec<_> = good.into_iter().map(|name| (name.clone(), rig.objects.get(&name).unwrap())).collect();
    let newest_entry = good.iter().filter(|(name, _)| name.starts_with("log/")).map(|(name, _)| name).max().unwrap();
    for (at, (name, bytes)) in good.iter().enumerate() {
        let same_length: Vec<u8> = page.iter().copied().cycle().take(bytes.len()).collect();
        let shifted = [&bytes[1..], &[0]].concat();
        let another = good[(at + 1) % good.len()].1.clone();
        for bad in [Bytes::from(page.clone()), same_length.into(), shifted.into(), another] {
            rig.objects.put(name, bad, PutMode::Overwrite).unwrap();
            match rig.start(1).and_then(|()| rig.check()) {
                Ok(()) => assert!(name.starts_with("log/") && name != newest_entry, "{name} was not looked at"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{name}: {error}");
                    assert!(error.to_string().contains(name), "{error} names {name}");
                }
            }
            rig.kill_and_lose_directory();
            // As it was, without what the start appended to the log.
            rig.objects.list("").unwrap().iter().for_each(|object| rig.objects.delete(&object.name).unwrap());
            good.iter().for_each(|(name, b)| rig.objects.put(name, b.clone(), PutMode::Create).unwrap());
        }
    }
    rig.start(1).unwrap();
    rig.check().unwrap();
}

/// Writes go on, in place and in the same pages, while the store takes its time with a large segment.
#[test]
fn bookkeeper_2563_a_buffer_was_reused_while_its_upload_was_running() {
    let mut rig = Rig::new(Tuning { segment_bytes: 1 << 20, epoch_bytes: 1 << 20, ..tiny() });
    rig.start(1).unwrap();
    for key in 0..3000 {
        rig.put(key, vec![key as u8; 400]).unwrap();
    }
    let (id, tickets) = rig.begin(CheckpointKind::Incremental).unwrap();
    rig.store_faults.set(|call| (call.operation == "put_stream").then_some(Fault::Hang));
    let (executor, faults) = (rig.executor.clone(), rig.store_faults.clone());
    let frozen = rig.model.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || executor.run_until_idle());
        while faults.hanging() == 0 {
            std::thread::yield_now();
        }
        for key in 0..3000 {
            let task = &mut rig.tasks[0];
            task.values.put(&mut task.backend, &key, vec![!(key as u8); 400]).unwrap();
            rig.model.values.insert(key, vec![!(key as u8); 400]);
        }
        faults.set(|_| None);
        faults.release();
    });
    rig.finish(id, &tickets).unwrap();
    let mut segments = 0;
    for name in rig.object_names() {
        let parsed = ObjectName::parse(&name).unwrap();
        let hash = highwater::base::checksum::hash64(&rig.objects.get(&name).unwrap());
        assert_eq!(hash, parsed.hash, "{name} holds other bytes than its name says");
        segments += usize::from(parsed.kind == ObjectKind::Segment);
    }
    assert!(segments > 0);
    rig.kill_and_lose_directory();
    rig.start(1).unwrap();
    assert_eq!(rig.model, frozen);
    assert_eq!(rig.read_all().unwrap(), frozen);
}

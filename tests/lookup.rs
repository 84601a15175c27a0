//! Reading single keys out of checkpoints, against what the backend itself answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{World, complete, operator, single, tiny};
use highwater::inspect::{self, KeyEntries};
use highwater::io::other_roots::OtherRoots;
use highwater::io::store::Store;
use highwater::{Codec, CompletedCheckpoint, ErrorKind, KeyedState};

fn get(
    world: &World,
    checkpoint: &CompletedCheckpoint,
    state: &str,
    key: &[u8],
    now_ms: i64,
) -> highwater::Result<KeyEntries> {
    let store: Arc<dyn Store> = world.store.clone();
    let found = inspect::get(&store, &OtherRoots::new(world.clock.clone()), checkpoint, state, key, now_ms)?;
    assert_eq!(found.len(), 1);
    Ok(found.into_iter().next().unwrap())
}

#[test]
fn a_key_reads_as_the_backend_had_it_at_each_checkpoint() {
    let world = World::new(tiny());
    let mut coordinator = world.env().coordinator(&[(&operator(), 1)]).unwrap();
    let mut backends = [single(&world)];
    let b = &mut backends[0];
    let values = b.value_state::<String, u64>("values").unwrap();
    let maps = b.map_state::<String, u32, String>("maps").unwrap();
    let brief = b.state("brief").ttl(Duration::from_millis(10)).value::<String, u64>().unwrap();
    brief.put(b, &"1".to_owned(), 1).unwrap();
    for id in 1..=2_u64 {
        let b = &mut backends[0];
        for key in 0..300_u64 {
            values.put(b, &key.to_string(), key * id).unwrap();
            maps.put(b, &key.to_string(), &(key as u32 % 7), format!("{key}/{id}")).unwrap();
            maps.put(b, &key.to_string(), &(id as u32 * 100), String::new()).unwrap();
        }
        if id == 2 {
            values.clear(b, &"7".to_owned()).unwrap();
            maps.clear(b, &"8".to_owned()).unwrap();
            maps.put(b, &"8".to_owned(), &5, "after".to_owned()).unwrap();
        }
        complete(&world, &mut coordinator, &mut backends, id);
    }
    let checkpoints = world.env().completed_checkpoints().unwrap();
    for (checkpoint, id) in checkpoints.iter().zip(1..=2_u64) {
        for key in 0..300_u64 {
            let found = get(&world, checkpoint, "values", key.to_string().as_bytes(), 0).unwrap();
            let value = found.entries.first().map(|entry| u64::decode(&entry.value).unwrap());
            assert_eq!(value, (id == 1 || key != 7).then_some(key * id), "{key} at {id}");
            let entries = get(&world, checkpoint, "maps", key.to_string().as_bytes(), 0).unwrap().entries;
            let want = match (id, key) {
                (2, 8) => 1,
                (1, _) => 2,
                _ => 3,
            };
            assert_eq!(entries.len(), want, "{key} at {id}: {entries:?}");
            assert!(entries.is_sorted_by_key(|entry| entry.user_key.clone()));
        }
    }
    let newest = checkpoints.last().unwrap();
    assert_eq!(get(&world, newest, "brief", b"1", 9).unwrap().entries[0].expires_ms, Some(10));
    assert!(get(&world, newest, "brief", b"1", 10).unwrap().entries.is_empty(), "expired");
    assert!(get(&world, newest, "values", b"no such key", 0).unwrap().entries.is_empty());
    let error = get(&world, newest, "vlaues", b"1", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("`values`") && error.to_string().contains("`maps`"), "{error}");
}

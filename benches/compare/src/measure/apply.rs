//! Does what the operations of a stream say to a store.

use super::answers::Counter;
use crate::Result;
use crate::ops::{Kind, Op};
use crate::store::{See, Store};
use crate::values::{Key, Values, key_of};

/// Keys that one batched read asks for.
pub const BATCH: usize = 64;

/// What applying needs beside the store.
#[derive(Debug)]
pub struct Applier {
    values: Values,
    batch: Vec<Op>,
    keys: Vec<Key>,
    counts: Vec<u64>,
}

impl Applier {
    /// One for a run.
    pub fn new() -> Self {
        Self { values: Values::new(), batch: Vec::with_capacity(BATCH), keys: Vec::new(), counts: Vec::new() }
    }

    /// Does `op`. Batched ones wait until there are enough, or for [`Applier::flush`].
    #[inline]
    pub fn apply<S: Store, A: See>(&mut self, store: &mut S, op: &Op, see: &mut A) -> Result<()> {
        let key = key_of(op.id);
        match op.kind {
            Kind::Add => {
                let mut counter = Counter { count: 0, to: see };
                store.get(op.state, &key, op.arg, &mut counter)?;
                let value = self.values.counter(counter.count.wrapping_add(1), op.len, op.extra);
                store.put(op.state, &key, op.arg, value)
            }
            Kind::AddBatched => {
                self.batch.push(*op);
                if self.batch.len() == BATCH { self.flush(store, see) } else { Ok(()) }
            }
            Kind::Get => store.get(op.state, &key, op.arg, see),
            Kind::Put => store.put(op.state, &key, op.arg, self.values.of(op.len, op.extra)),
            Kind::Delete => store.delete(op.state, &key, op.arg),
            Kind::Append => store.append(op.state, &key, op.arg, self.values.of(op.len, op.extra)),
            Kind::ReadList => store.read_list(op.state, &key, op.arg, usize::from(op.len), see),
            Kind::TakeList => {
                store.read_list(op.state, &key, op.arg, usize::from(op.len), see)?;
                store.clear_list(op.state, &key, op.arg)
            }
            Kind::MapPut => store.map_put(op.state, &key, op.arg, self.values.of(op.len, op.extra)),
            Kind::MapGet => store.map_get(op.state, &key, op.arg, see),
            Kind::MapContains => {
                let there = store.map_contains(op.state, &key, op.arg)?;
                see.number(u64::from(there));
                Ok(())
            }
            Kind::MapRemove => store.map_remove(op.state, &key, op.arg),
            Kind::MapScan => store.map_range(op.state, &key, 0, u64::MAX, see),
            Kind::MapRange => store.map_range(op.state, &key, op.arg, op.arg.saturating_add(u64::from(op.extra)), see),
            Kind::TimerAdd => store.timer_add(op.state, &key, op.arg),
            Kind::TimerDelete => store.timer_delete(op.state, &key, op.arg),
            Kind::TimerPop => store.timer_pop(op.state, op.arg, see),
        }
    }

    /// Does the batched operations that wait.
    pub fn flush<S: Store, A: See>(&mut self, store: &mut S, see: &mut A) -> Result<()> {
        let Some(first) = self.batch.first() else { return Ok(()) };
        let state = first.state;
        self.keys.clear();
        self.keys.extend(self.batch.iter().map(|op| key_of(op.id)));
        self.counts.clear();
        self.counts.resize(self.keys.len(), 0);
        let counts = &mut self.counts;
        store.get_many(state, &self.keys, &mut |index, value| {
            counts[index] = value.and_then(<[u8]>::first_chunk::<8>).map_or(0, |word| u64::from_le_bytes(*word));
        })?;
        for (index, op) in self.batch.iter().enumerate() {
            see.number(self.counts[index]);
            let value = self.values.counter(self.counts[index].wrapping_add(1), op.len, op.extra);
            store.put(state, &self.keys[index], op.arg, value)?;
        }
        self.batch.clear();
        Ok(())
    }
}

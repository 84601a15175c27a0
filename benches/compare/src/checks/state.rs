//! State of a given size for the checks: values of 100 bytes, as in W8.

use crate::Result;
use crate::store::{See, StateKind, StateSpec, Store};
use crate::values::{Values, key_of};

/// Bytes of a value.
pub const VALUE_BYTES: u16 = 100;

/// Bytes of a key and its value.
pub const ENTRY_BYTES: u64 = 116;

/// Its one state.
pub const STATES: &[StateSpec] =
    &[StateSpec { name: "rows", kind: StateKind::Value, counters: false, keys_exist: true }];

/// Keys of a state of so many bytes.
pub fn keys(state_bytes: u64) -> u64 {
    (state_bytes / ENTRY_BYTES).max(1)
}

/// Seed of a key's value as loaded.
pub fn seed(id: u64) -> u32 {
    id as u32
}

/// Puts all keys of it that `wanted` wants.
pub fn load(store: &mut impl Store, state_bytes: u64, wanted: impl Fn(u64) -> bool) -> Result<()> {
    let values = Values::new();
    for id in (0..keys(state_bytes)).filter(|id| wanted(*id)) {
        store.put(0, &key_of(id), 0, values.of(VALUE_BYTES, seed(id)))?;
    }
    Ok(())
}

/// Whether a value that was seen is that of its key.
#[derive(Debug)]
pub struct Expect<'a> {
    /// The value that has to come.
    pub value: &'a [u8],
    /// True once it came.
    pub came: bool,
}

impl See for Expect<'_> {
    fn value(&mut self, bytes: &[u8]) {
        self.came = bytes == self.value;
    }

    fn number(&mut self, _: u64) {}
}

/// Reads a key as it was loaded.
///
/// # Errors
/// It has another value, or none.
pub fn check(store: &mut impl Store, values: &Values, id: u64) -> Result<()> {
    let mut expect = Expect { value: values.of(VALUE_BYTES, seed(id)), came: false };
    store.get(0, &key_of(id), 0, &mut expect)?;
    if expect.came { Ok(()) } else { Err(format!("key {id} has another value than was written").into()) }
}

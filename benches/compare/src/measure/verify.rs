//! A store beside the model: every answer to every operation, hashed and compared.

use super::answers::Digest;
use super::apply::Applier;
use crate::Result;
use crate::ops::StreamReader;
use crate::store::Store;

/// Operations between checkpoints.
const CHECKPOINT_EVERY: u64 = 40_000;

/// Goes through the streams with both, with checkpoints in between.
///
/// # Errors
/// The first operation that both answer differently.
pub fn run<S: Store, M: Store>(store: &mut S, model: &mut M, streams: &mut [StreamReader]) -> Result<u64> {
    let (mut ours, mut theirs) = (Applier::new(), Applier::new());
    let (mut digest, mut expected) = (Digest::default(), Digest::default());
    let mut chunk = Vec::new();
    let mut count = 0;
    for stream in streams {
        loop {
            stream.fill(&mut chunk, 1 << 10)?;
            if chunk.is_empty() {
                break;
            }
            for op in &chunk {
                ours.apply(store, op, &mut digest)?;
                theirs.apply(model, op, &mut expected)?;
                if digest.take() != expected.take() {
                    return Err(format!("operation {count}, {op:?}: another answer than the model's").into());
                }
                count += 1;
                if count % CHECKPOINT_EVERY == 0 {
                    store.checkpoint()?;
                }
            }
        }
    }
    store.wait_for_checkpoints()?;
    Ok(count)
}

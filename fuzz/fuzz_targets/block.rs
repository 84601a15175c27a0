//! Bytes that nobody vouched for, read as a block in every way: errors are fine, panics and endless walks are not.
#![no_main]

use bytes::Bytes;
use highwater::block::backward::Backward;
use highwater::block::forward::Forward;
use highwater::block::reader::Block;
use highwater::block::seal;
use libfuzzer_sys::fuzz_target;

/// Walks forward and checks that a sorted block finds every key it holds.
fn forward(cursor: highwater::Result<Forward>, block: &Block) {
    let Ok(mut cursor) = cursor else { return };
    while let Some(record) = cursor.record() {
        let _ = block.find(record.key);
        if cursor.advance().is_err() {
            assert!(cursor.record().is_none());
            return;
        }
    }
}

fn backward(cursor: highwater::Result<Backward>) {
    let Ok(mut cursor) = cursor else { return };
    while cursor.record().is_some() {
        if cursor.advance().is_err() {
            assert!(cursor.record().is_none());
            return;
        }
    }
}

fuzz_target!(|input: (Vec<u8>, Vec<u8>)| {
    let (target, bytes) = input;
    let _ = seal::unseal(bytes.clone(), 0);
    let Ok(block) = Block::parse(Bytes::from(bytes)) else { return };
    if let Ok(Some(entry)) = block.find(&target) {
        assert_eq!(entry.key_len(), target.len());
        let _ = block.value(&entry);
        let _ = block.next_of_same_key(&entry, &target);
    }
    let _ = block.floor(&target);
    forward(Forward::first(block.clone()), &block);
    forward(Forward::seek(block.clone(), &target), &block);
    forward(Forward::floor(block.clone(), &target), &block);
    backward(Backward::last(block.clone()));
    backward(Backward::before(block, &target));
});

//! Segment files of arbitrary blocks under right seals and footers, so that what lies behind the checksums is reached.
//!
//! An input is a list of blocks; the last is the top-level index, the one before it the statistics. Without blocks the
//! raw bytes are the file.
#![no_main]

use std::sync::Arc;

use highwater::base::compression::Compression;
use highwater::base::cursor::{Direction, RecordCursor};
use highwater::base::ids::SegmentId;
use highwater::base::key::KeyRange;
use highwater::block::seal;
use highwater::cache::block_cache::BlockCache;
use highwater::io::files::ReadAt;
use highwater::segment::footer::{FOOTER_BYTES, Footer};
use highwater::segment::reader::{Segment, read_footer};
use highwater::segment::verify::recover_meta;
use highwater::version::segment_meta::BlockHandle;
use highwater::{Error, Result};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct File(Vec<u8>);

impl ReadAt for File {
    fn name(&self) -> &str {
        "fuzz.seg"
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).map_err(|_| Error::corruption("offset"))?;
        let end = start.checked_add(buffer.len()).ok_or_else(|| Error::corruption("offset"))?;
        let found = self.0.get(start..end).ok_or_else(|| Error::corruption("file ends"))?;
        buffer.copy_from_slice(found);
        Ok(())
    }
}

fn file_of(blocks: &[Vec<u8>], raw: Vec<u8>) -> Vec<u8> {
    let id = SegmentId(1);
    let (mut file, mut handles) = (Vec::new(), vec![BlockHandle::default(); 2]);
    for block in blocks {
        let offset = file.len() as u64;
        let compression = if block.len() % 7 == 0 { Compression::Zstd } else { Compression::None };
        if seal::seal(block, compression, seal::seed(id, offset), &mut file).is_err() {
            return raw;
        }
        let length_bytes = u32::try_from(file.len() as u64 - offset).unwrap_or(u32::MAX);
        handles.push(BlockHandle { offset, length_bytes });
    }
    let (Some(top_index), Some(stats)) = (handles.pop(), handles.pop()) else { return raw };
    if blocks.is_empty() {
        return raw;
    }
    let length_bytes = (file.len() + FOOTER_BYTES) as u64;
    file.extend_from_slice(&Footer { top_index, stats, id, length_bytes }.encode());
    file
}

fn walk(segment: &Arc<Segment>, range: &KeyRange, direction: Direction) {
    let Ok(mut cursor) = segment.cursor(range, direction, true) else { return };
    // An index may name one block many times; a walk is as long as the index says, which is enough here.
    for _ in 0..10_000 {
        let Some(record) = cursor.record() else { break };
        let key = record.key.to_vec();
        let _ = segment.get(&key, Some(key.len() / 2));
        if let Err(error) = cursor.advance() {
            assert!(cursor.record().is_none());
            assert_eq!(cursor.advance().err().map(|e| e.kind()), Some(error.kind()));
            return;
        }
    }
}

fuzz_target!(|input: (Vec<Vec<u8>>, Vec<u8>, Vec<u8>)| {
    let (blocks, key, raw) = input;
    let file = Arc::new(File(file_of(&blocks, raw)));
    let footer = read_footer(file.as_ref());
    let Ok(mut meta) = recover_meta(file.as_ref()) else {
        assert!(blocks.len() != 1 || footer.is_ok());
        return;
    };
    if key.first().is_some_and(|byte| byte % 2 == 0) {
        meta.range = KeyRange::all();
    }
    let Ok(cache) = BlockCache::new(1 << 20) else { return };
    let segment = Segment::open(meta, file, Arc::new(cache));
    let _ = segment.get(&key, Some(key.len() / 2));
    let _ = segment.prefix_delete(&key);
    let _ = segment.may_contain(&key);
    let _ = segment.may_contain_prefix(&key);
    let range = KeyRange { start: key, end: None };
    walk(&segment, &range, Direction::Forward);
    walk(&segment, &range, Direction::Backward);
    let _ = segment.verify();
});

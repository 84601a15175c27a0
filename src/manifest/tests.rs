use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::ErrorKind;
use crate::base::checksum::{hash64, hash64_seeded};
use crate::base::descriptor::Layout;
use crate::base::key::KeyShape;
use crate::version::fixtures::{groups, local};
use crate::version::{Addition, Edit, Place, SegmentRef};

fn named(r: &SegmentRef, root: u16) -> Arc<SegmentRef> {
    Arc::new(r.named(root, format!("{}/{}-0011", root + 1, r.meta().id.0).into()))
}

fn sample() -> Manifest {
    let low = named(&local(1, 0, 40, (1, 5), 4000), 1);
    let (left, right) = (low.clipped(&groups(0, 9)).unwrap(), low.clipped(&groups(20, 40)).unwrap());
    let version = Version::default()
        .apply(&Edit {
            added: vec![Addition { place: Place::Level(1), refs: vec![Arc::new(left), Arc::new(right)] }],
            removed: Vec::new(),
        })
        .unwrap()
        .apply(&Edit::flush(vec![named(&local(2, 3, 12, (6, 6), 700), 0)]))
        .unwrap();
    Manifest {
        operator: "sessions".into(),
        subtask: 0,
        parallelism: 3,
        max_parallelism: 128,
        groups: KeyGroupRange::new(0, 42).unwrap(),
        writer_epoch: 4,
        checkpoint: CheckpointId { epoch: 4, id: 17 },
        kind: CheckpointKind::Incremental,
        created_ms: 1_700_000_000_000,
        next_sequence: 7,
        time_high_water_ms: 1_699_999_999_000,
        roots: vec![String::new(), "s3://bucket/job41".into()],
        states: vec![
            StateDescriptor {
                name: "hits".into(),
                kind: "value".into(),
                layout: Layout::Single,
                shape: KeyShape { key_width: None, namespace_width: Some(0) },
                codecs: ["string@1".into(), String::new(), String::new(), "u64@1".into()],
                ttl_ms: Some(60_000),
                merge_operator: None,
            },
            StateDescriptor {
                name: "sums".into(),
                kind: "reducing".into(),
                layout: Layout::Grouped,
                shape: KeyShape { key_width: Some(8), namespace_width: Some(16) },
                codecs: Default::default(),
                ttl_ms: None,
                merge_operator: Some("add".into()),
            },
        ],
        dropped: vec![StateId(0xDEAD_BEEF)],
        metadata: Bytes::from_static(b"offset=12345"),
        version,
        parents: vec![CheckpointId { epoch: 3, id: 258 }],
    }
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| line.iter().map(|b| format!("{b:02x}")).collect::<String>());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn golden_bytes_and_round_trip() {
    let manifest = sample();
    let bytes = encode(&manifest).unwrap();
    assert_eq!(decode(&bytes, "m").unwrap(), manifest);
    let golden = include_str!("../../tests/golden/manifest.hex");
    assert_eq!(hex(&bytes), golden, "the format changed: released formats stay readable, so bump it instead");
}

#[test]
fn every_flipped_bit_and_every_truncation_is_an_error_that_names_the_file() {
    let bytes = encode(&sample()).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            let error = decode(&bad, "op/3.manifest").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at} bit {bit}");
            assert!(error.to_string().contains("op/3.manifest"), "{error}");
        }
        assert_eq!(decode(&bytes[..at], "m").unwrap_err().kind(), ErrorKind::Corruption);
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(decode(&longer, "m").unwrap_err().kind(), ErrorKind::Corruption);
}

fn reseal(bytes: &mut Vec<u8>) {
    let check = (hash64(&bytes[..12]) as u32).to_le_bytes();
    bytes[12..16].copy_from_slice(&check);
    let body = bytes.len() - 8;
    let checksum = hash64_seeded(&bytes[..body], u64::from_le_bytes(*b"HWMANIF\n"));
    bytes.truncate(body);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_newer_major_or_an_unknown_section_is_unsupported_and_named() {
    let good = encode(&sample()).unwrap();
    let mut newer = good.clone();
    newer[8] = 2;
    reseal(&mut newer);
    let error = decode(&newer, "op/3.manifest").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("op/3.manifest") && error.to_string().contains("2.0"), "{error}");
    // A newer minor version without anything new in it is read.
    let mut minor = good.clone();
    minor[10] = 9;
    reseal(&mut minor);
    assert_eq!(decode(&minor, "m").unwrap(), sample());
    for tag in [8_u16, 9, 10, 11, 4000] {
        let mut more = good.clone();
        let at = more.len() - 8;
        more.splice(at..at, tag.to_le_bytes().into_iter().chain([0; 4]));
        reseal(&mut more);
        let error = decode(&more, "op/3.manifest").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "tag {tag}");
        assert!(error.to_string().contains(&tag.to_string()), "{error}");
    }
}

#[test]
fn what_cannot_be_restored_is_not_written() {
    let mut manifest = sample();
    manifest.version = manifest.version.apply(&Edit::flush(vec![local(9, 0, 1, (6, 6), 10)])).unwrap();
    assert!(encode(&manifest).unwrap_err().to_string().contains("durable"));
    let mut manifest = sample();
    manifest.next_sequence = 6;
    assert!(encode(&manifest).is_err());
    let mut manifest = sample();
    manifest.roots.pop();
    assert!(encode(&manifest).is_err());
    let mut manifest = sample();
    manifest.metadata = vec![0; crate::base::limits::MAX_METADATA_BYTES + 1].into();
    assert_eq!(encode(&manifest).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn counts_that_the_bytes_cannot_hold_are_refused_before_anything_is_allocated() {
    let mut out = super::frame::start();
    let huge = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
    let good = encode(&sample()).unwrap();
    let sections = super::frame::open(&good, "m").unwrap();
    use super::frame::Tag;
    for (tag, bytes) in [Tag::Identity, Tag::Roots, Tag::States, Tag::Dropped, Tag::Metadata].into_iter().zip(sections)
    {
        super::frame::put_section(&mut out, tag, bytes).unwrap();
    }
    super::frame::put_section(&mut out, Tag::Tree, &huge).unwrap();
    super::frame::put_section(&mut out, Tag::Lineage, &huge).unwrap();
    assert_eq!(decode(&super::frame::finish(out), "m").unwrap_err().kind(), ErrorKind::Corruption);
}

proptest! {
    #[test]
    fn resealed_garbage_never_panics(edits in proptest::collection::vec((16_usize..400, any::<u8>()), 1..6)) {
        let mut bytes = encode(&sample()).unwrap();
        for (at, value) in edits {
            if at + 8 < bytes.len() {
                bytes[at] = value;
            }
        }
        reseal(&mut bytes);
        if let Ok(manifest) = decode(&bytes, "m") {
            let again = encode(&manifest).unwrap();
            prop_assert_eq!(decode(&again, "m").unwrap(), manifest);
        }
    }
}

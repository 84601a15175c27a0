//! Decoding of manifests that nobody vouched for: an error or a manifest that survives a round trip.
#![no_main]

use highwater::manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As they are, and again with valid checks so that the fuzzer reaches what lies behind them.
    let mut sealed = b"HWMANIF\n\x01\x00\x00\x00".to_vec();
    let check = highwater::base::checksum::hash64(&sealed) as u32;
    sealed.extend_from_slice(&check.to_le_bytes());
    sealed.extend_from_slice(bytes);
    let seed = u64::from_le_bytes(*b"HWMANIF\n");
    let checksum = highwater::base::checksum::hash64_seeded(&sealed, seed);
    sealed.extend_from_slice(&checksum.to_le_bytes());
    for bytes in [bytes, &sealed] {
        if let Ok(decoded) = manifest::decode(bytes, "fuzz") {
            if let Ok(again) = manifest::encode(&decoded) {
                assert_eq!(manifest::decode(&again, "fuzz").expect("own bytes"), decoded);
            }
        }
    }
});

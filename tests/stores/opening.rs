//! How stores are opened, and what is never shown.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use highwater::base::clock::SystemClock;
use highwater::io::open_store::open_store_with;
use highwater::io::store::PutMode;
use highwater::{Environment, ErrorKind};

use crate::Place;

const MARKED: &str = "marked-and-never-to-be-shown";

/// Settings that hold a secret, with one that is marked in its place. (Azure's key must be base64.)
fn secrets(place: &Place) -> Option<(&'static str, &'static str)> {
    match place.kind {
        "s3" => Some(("AWS_SECRET_ACCESS_KEY", MARKED)),
        "azure" => Some(("AZURE_STORAGE_ACCOUNT_KEY", "bWFya2VkLWFuZC1uZXZlci10by1iZS1zaG93bg==")),
        _ => None,
    }
}

pub fn no_error_and_nothing_printed_shows_a_secret(place: &Place) {
    let Some((setting, secret)) = secrets(place) else { return };
    let options = place.options.clone().set(setting, secret).retry_for(Duration::ZERO);
    let store = open_store_with(&place.url, true, Arc::new(SystemClock), &options).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let env = Environment::builder(directory.path()).store(&place.url).store_options(options.clone()).open().unwrap();
    let mut shown = vec![format!("{options:?} {store:?} {}", store.url()), format!("{env:?}")];
    let refused = |shown: &mut Vec<String>, outcome: highwater::Result<()>| {
        let error = outcome.unwrap_err();
        shown.push(format!("{error} {error:?}"));
        error.kind()
    };
    assert_eq!(refused(&mut shown, store.put("a", Bytes::new(), PutMode::Create)), ErrorKind::InvalidArgument);
    refused(&mut shown, store.get("a").map(drop));
    refused(&mut shown, store.list("").map(drop));
    refused(&mut shown, store.delete("a"));
    refused(&mut shown, env.latest_checkpoint().map(drop));
    let pieces = &mut (0..20).map(|_| Ok(Bytes::from(vec![1; 1 << 20])));
    refused(&mut shown, store.put_stream("b", pieces, PutMode::Create));
    let with_secret = format!("s3://me:{MARKED}@bucket/job?token={MARKED}");
    shown.push(format!("{:?}", Environment::builder(directory.path()).store(with_secret)));
    // In a URL, where it doesn't belong.
    let (scheme, rest) = place.url.split_once("://").unwrap();
    for url in [format!("{scheme}://me:{MARKED}@{rest}"), format!("{}?token={MARKED}", place.url)] {
        let opened = open_store_with(&url, true, Arc::new(SystemClock), &options);
        assert_eq!(refused(&mut shown, opened.map(drop)), ErrorKind::InvalidArgument, "{url}");
    }
    // A setting that nobody knows is named, not shown.
    let prefix = setting.split('_').next().unwrap();
    let typo = options.clone().set(&format!("{prefix}_SECERT"), MARKED);
    let opened = open_store_with(&place.url, true, Arc::new(SystemClock), &typo);
    assert_eq!(refused(&mut shown, opened.map(drop)), ErrorKind::InvalidArgument);
    assert!(shown.last().unwrap().contains("_secert"), "{shown:?}");
    for text in shown {
        assert!(!text.contains(secret) && !text.contains(MARKED), "{text}");
    }
}

pub fn plain_http_is_refused_unless_asked_for(place: &Place) {
    let allow = match place.kind {
        "s3" => "AWS_ALLOW_HTTP",
        "azure" => "AZURE_ALLOW_HTTP",
        "gcs" => "GOOGLE_ALLOW_HTTP",
        _ => return,
    };
    let options = place.options.clone().set(allow, "false");
    let error = open_store_with(&place.url, true, Arc::new(SystemClock), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains(&format!("{allow}=true")) && error.to_string().contains("TLS"), "{error}");
}

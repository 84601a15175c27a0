//! From a URL, as a user writes it, to a store.
//!
//! | URL | Store |
//! |---|---|
//! | `file:///abs/path`, a plain path | a local directory, synced |
//! | `memory:///` | in memory, private to whoever opened it |
//! | `s3://`, `gs://`, `az://` and `abfss://`, `hdfs://`, `http://` and `https://` | by cargo feature, reached as [`StoreOptions`] says |

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use super::local_store::LocalStore;
use super::memory_store::MemoryStore;
use super::paced_store::PacedStore;
use super::store::Store;
use super::store_options::StoreOptions;
use crate::base::clock::Clock;
use crate::{Error, ErrorKind, Result};

/// A URL as a user wrote it, which may hold what must not be printed.
#[derive(Clone)]
pub struct StoreUrl(pub String);

impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

/// Opens the root that `url` names. With `create`, a local root that isn't there is made.
///
/// # Errors
/// `InvalidArgument` for what is no URL of a store, for settings or credentials that make no sense, and for plain HTTP that wasn't
/// asked for; `Unsupported` for a store that this build lacks; `NotFound` when a local root isn't there.
pub fn open_store(url: &str, create: bool, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>> {
    open_store_with(url, create, clock, &StoreOptions::default())
}

/// As [`open_store`], with options.
///
/// # Errors
/// As [`open_store`].
pub fn open_store_with(
    url: &str,
    create: bool,
    clock: Arc<dyn Clock>,
    options: &StoreOptions,
) -> Result<Arc<dyn Store>> {
    let store = open_unpaced(url, create, clock.clone(), options)?;
    Ok(match options.upload_bytes_per_second {
        Some(bytes) => Arc::new(PacedStore::new(store, clock, bytes)),
        None => store,
    })
}

fn open_unpaced(url: &str, create: bool, clock: Arc<dyn Clock>, options: &StoreOptions) -> Result<Arc<dyn Store>> {
    match scheme_of(url) {
        None if url.is_empty() => Err(Error::invalid("an empty store URL")),
        None => Ok(Arc::new(LocalStore::open(&PathBuf::from(url), create)?)),
        Some("file") => Ok(Arc::new(LocalStore::open(&file_path(url)?, create)?)),
        Some("memory") => match url.trim_end_matches('/') {
            "memory:" => Ok(Arc::new(MemoryStore::new(clock))),
            _ => Err(Error::invalid(format!("store `{}`: write `memory:///`, it takes no path", shown(url)))),
        },
        Some("s3" | "s3a") => by_feature(url, create, options, cfg!(feature = "aws"), "aws"),
        Some("gs") => by_feature(url, create, options, cfg!(feature = "gcp"), "gcp"),
        Some("az" | "abfs" | "abfss" | "azure" | "adl") => {
            by_feature(url, create, options, cfg!(feature = "azure"), "azure")
        }
        Some("http" | "https") => by_feature(url, create, options, cfg!(feature = "http"), "http"),
        Some("hdfs") => by_feature(url, create, options, cfg!(feature = "hdfs"), "hdfs"),
        Some(scheme) => Err(Error::invalid(format!(
            "store `{}`: unknown scheme `{scheme}`; known are file, memory, s3, gs, az, abfss, hdfs, http and https",
            shown(url)
        ))),
    }
}

fn by_feature(url: &str, create: bool, options: &StoreOptions, built: bool, feature: &str) -> Result<Arc<dyn Store>> {
    // Each is used by some builds.
    let _ = (create, options);
    match feature {
        _ if !built => {
            let message = format!("store `{}`: this build lacks the cargo feature `{feature}`", shown(url));
            Err(Error::new(ErrorKind::Unsupported, message))
        }
        #[cfg(feature = "hdfs")]
        "hdfs" => Ok(Arc::new(super::hdfs_store::HdfsStore::open(url, create, options)?)),
        #[cfg(any(feature = "aws", feature = "gcp", feature = "azure", feature = "http"))]
        _ => super::clouds::open(url, options),
        #[cfg(not(any(feature = "aws", feature = "gcp", feature = "azure", feature = "http")))]
        _ => Err(Error::internal(format!("no store behind the cargo feature `{feature}`"))),
    }
}

/// The scheme, lower-case as URLs have it; `None` for a plain path.
fn scheme_of(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once(':')?;
    let first = scheme.chars().next()?;
    let valid = first.is_ascii_lowercase() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    (valid && (rest.starts_with("//") || matches!(scheme, "file" | "memory"))).then_some(scheme)
}

fn file_path(url: &str) -> Result<PathBuf> {
    let bad =
        |why: &str| Error::invalid(format!("store `{url}`: {why}; write `file:///absolute/path` or a plain path"));
    let parsed = Url::parse(url).map_err(|e| bad(&e.to_string()))?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(bad("a `?` or `#` in a path is written `%3F` or `%23`"));
    }
    parsed.to_file_path().map_err(|()| bad("not a path on this machine"))
}

/// `url` without user, password and query.
pub(super) fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            // In `abfss://container@account/` the part before the `@` is no secret.
            let kept = match authority.rsplit_once('@') {
                Some((user, _)) if scheme.starts_with("abfs") && !user.contains(':') => authority,
                Some((_, host)) => host,
                None => authority,
            };
            format!("{scheme}://{kept}{path}")
        }
        None => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::io::store::PutMode;

    fn open(url: &str, create: bool) -> Result<Arc<dyn Store>> {
        open_store(url, create, Arc::new(ManualClock::at_ms(0)))
    }

    #[test]
    fn bad_input_paths_with_spaces_percents_umlauts_and_dots_name_one_directory() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a b%20c ü..d");
        let plain = open(odd.to_str().unwrap(), true).unwrap();
        plain.put("x/y", bytes::Bytes::from_static(b"1"), PutMode::Create).unwrap();
        assert!(plain.url().ends_with("/a%20b%2520c%20%C3%BC..d"), "{}", plain.url());
        let with_slash = format!("{}/", plain.url());
        for url in [plain.url(), with_slash.as_str(), &format!("{}//", odd.display())] {
            let store = open(url, false).unwrap();
            assert_eq!(store.get("x/y").unwrap(), b"1"[..], "{url}");
            assert_eq!(store.url(), plain.url());
        }
        assert!(!dir.path().join("a b c ü..d").exists());
    }

    #[test]
    fn urls_that_no_store_is_for_say_why_and_show_no_secrets() {
        for (url, kind, part) in [
            ("", ErrorKind::InvalidArgument, "empty"),
            ("ftp://me:secret@host/x?token=secret", ErrorKind::InvalidArgument, "unknown scheme `ftp`"),
            ("memory:///x", ErrorKind::InvalidArgument, "memory:///"),
            ("file://host/x", ErrorKind::InvalidArgument, "file:///absolute"),
            ("file:///x?y", ErrorKind::InvalidArgument, "%3F"),
        ] {
            let error = open(url, true).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(part) && !error.to_string().contains("secret"), "{error}");
        }
        #[cfg(not(feature = "aws"))]
        assert!(open("s3://bucket/x", true).unwrap_err().to_string().contains("feature `aws`"));
        #[cfg(not(feature = "hdfs"))]
        assert_eq!(open("hdfs://host/x", true).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_memory_store_is_private_and_a_missing_root_isnt_made_unasked() {
        let (a, b) = (open("memory:///", true).unwrap(), open("memory:///", true).unwrap());
        a.put("x", bytes::Bytes::new(), PutMode::Create).unwrap();
        assert!(b.list("").unwrap().is_empty());
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("not/there");
        assert_eq!(open(missing.to_str().unwrap(), false).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!missing.exists());
    }
}

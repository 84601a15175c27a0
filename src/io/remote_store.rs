//! Stores behind the `object_store` crate: clouds, by cargo feature.
//!
//! That crate is asynchronous: [`Threads`] run it, the caller waits. No error, and nothing that is printed of a store, holds a
//! secret: URLs lose their queries, and the values that are told to be secret are masked wherever they turn up.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt, PutOptions, PutPayload};

use super::names;
use super::store::{ObjectEntry, PutMode, Request, Store, answer};
use super::threads::{Threads, UnderWay};
use crate::{Error, ErrorKind, Result};

/// Objects from this length on go up in parts: below, the two or three further requests cost more than they save.
const IN_PARTS_FROM_BYTES: usize = 16 << 20;

/// Length of a part (S3: at least 5 MiB, at most 10,000 parts).
const PART_BYTES: usize = 8 << 20;

/// Parts of one object that are on their way at one time.
const PARTS_AT_A_TIME: usize = 2;

/// Characters of a client's error that ours quotes.
const MOST_SAID_CHARS: usize = 400;

/// Requests of one call that are under way at one time.
const MOST_TOGETHER: usize = 64;

/// See the module.
pub struct RemoteStore {
    inner: Arc<dyn ObjectStore>,
    url: String,
    in_parts_from_bytes: usize,
    part_bytes: usize,
    threads: Threads,
    /// What no error may show.
    secrets: Vec<String>,
}

impl std::fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteStore({})", self.url)
    }
}

impl RemoteStore {
    /// `inner` as a store; `url` names it in errors and must hold no credentials.
    ///
    /// # Errors
    /// `ResourceExhausted` when threads can't be started.
    pub fn new(inner: Arc<dyn ObjectStore>, url: impl Into<String>) -> Result<Self> {
        let url = url.into();
        let threads = Threads::start(&url)?;
        let (in_parts_from_bytes, part_bytes) = (IN_PARTS_FROM_BYTES, PART_BYTES);
        Ok(Self { inner, url, in_parts_from_bytes, part_bytes, threads, secrets: Vec::new() })
    }

    /// The same, whose errors show none of `secrets`, whatever the server quotes.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Vec<String>) -> Self {
        self.secrets = secrets;
        self
    }

    /// Runs `future` on our threads and waits for it here, up to the deadline.
    fn wait<T: Send + 'static>(
        &self,
        doing: &str,
        name: &str,
        future: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.answer(doing, name, self.threads.begin(future)?)
    }

    /// Waits for what was begun, up to the deadline.
    fn answer<T>(&self, doing: &str, name: &str, begun: UnderWay<object_store::Result<T>>) -> Result<T> {
        self.threads.end(doing, name, begun)?.map_err(|e| self.failed(doing, name, &e))
    }

    fn failed(&self, doing: &str, name: &str, error: &object_store::Error) -> Error {
        use object_store::Error as E;
        let kind = match error {
            E::NotFound { .. } => ErrorKind::NotFound,
            E::AlreadyExists { .. } | E::Precondition { .. } => ErrorKind::AlreadyExists,
            E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Unsupported,
            E::InvalidPath { .. }
            | E::UnknownConfigurationKey { .. }
            | E::PermissionDenied { .. }
            | E::Unauthenticated { .. } => ErrorKind::InvalidArgument,
            _ => ErrorKind::Unavailable,
        };
        // The error itself may quote signed URLs, so it doesn't become the source.
        let mut said = masked(redact(&error.to_string()), &self.secrets);
        // Servers explain a refusal with pages of what they reckoned.
        if let Some((end, _)) = said.char_indices().nth(MOST_SAID_CHARS) {
            said.truncate(end);
            said.push_str(" ...");
        }
        Error::new(kind, format!("{doing} `{name}` in `{}`: {said}", self.url))
    }

    fn short(&self, name: &str, range: &Range<u64>, found: usize) -> Error {
        let (start, end) = (range.start, range.end);
        Error::corruption(format!("object `{name}` in `{}`: bytes {start}..{end} expected, {found} found", self.url))
    }

    fn ranged(&self, name: &str, range: &Range<u64>, read: Result<Ranged>) -> Result<Bytes> {
        match read {
            Ok((bytes, given)) if given == *range && bytes.len() as u64 == range.end - range.start => Ok(bytes),
            Ok((bytes, _)) => Err(self.short(name, range, bytes.len())),
            // A range behind the end fails in as many ways as there are stores.
            Err(error) if error.kind() == ErrorKind::Unavailable => match self.length(name) {
                Ok(length) if length < range.end => {
                    Err(self.short(name, range, usize::try_from(length).unwrap_or(usize::MAX)))
                }
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// The future of one of several requests.
    fn begin(&self, request: &Request) -> Result<BoxFuture<'static, object_store::Result<Ranged>>> {
        let inner = self.inner.clone();
        Ok(match request.clone() {
            Request::Put(name, bytes, mode) => {
                let path = parse(&name)?;
                async move { inner.put_opts(&path, bytes.into(), options(mode)).await.map(|_| Ranged::default()) }
                    .boxed()
            }
            Request::Get(name) => {
                let path = parse(&name)?;
                async move { get_whole(&*inner, &path).await }.boxed()
            }
            Request::GetRange(_, range) if range.is_empty() => async { Ok(Ranged::default()) }.boxed(),
            Request::GetRange(name, range) => {
                let path = parse(&name)?;
                async move { get_range(&*inner, &path, range).await }.boxed()
            }
            Request::Delete(name) => {
                let path = parse(&name)?;
                async move { inner.delete(&path).await.map(|()| Ranged::default()) }.boxed()
            }
        })
    }

    fn end(&self, request: &Request, found: object_store::Result<Ranged>) -> Result<Bytes> {
        match request {
            Request::Put(name, ..) => found.map(|_| Bytes::new()).map_err(|e| self.failed("writing", name, &e)),
            Request::Get(name) => self.whole(name, found.map_err(|e| self.failed("reading", name, &e))?),
            Request::GetRange(_, range) if range.is_empty() => Ok(Bytes::new()),
            Request::GetRange(name, range) => {
                self.ranged(name, range, found.map_err(|e| self.failed("reading", name, &e)))
            }
            Request::Delete(name) => match found.map_err(|e| self.failed("deleting", name, &e)) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(Bytes::new()),
            },
        }
    }

    fn whole(&self, name: &str, (bytes, range): Ranged) -> Result<Bytes> {
        if bytes.len() as u64 == range.end { Ok(bytes) } else { Err(self.short(name, &range, bytes.len())) }
    }

    /// Sends `first` and all of `chunks` in parts, a few at a time, and counts their bytes in `sent`.
    fn send_parts(
        &self,
        name: &str,
        upload: &mut dyn MultipartUpload,
        mut first: Bytes,
        chunks: &mut dyn Iterator<Item = Result<Bytes>>,
        sent: &mut u64,
    ) -> Result<()> {
        let mut under_way = VecDeque::new();
        loop {
            let part = match first.is_empty() {
                true => fill(chunks, self.part_bytes)?,
                false => first.split_to(self.part_bytes.min(first.len())),
            };
            let ended = part.is_empty();
            if !ended {
                *sent += part.len() as u64;
                under_way.push_back(self.threads.begin(upload.put_part(PutPayload::from(part)))?);
            }
            while under_way.len() >= if ended { 1 } else { PARTS_AT_A_TIME } {
                if let Some(part) = under_way.pop_front() {
                    self.answer("uploading a part of", name, part)?;
                }
            }
            if ended {
                return Ok(());
            }
        }
    }

    fn put_parts(&self, name: &str, first: Bytes, chunks: &mut dyn Iterator<Item = Result<Bytes>>) -> Result<()> {
        let (inner, path) = (self.inner.clone(), parse(name)?);
        let mut upload = self.wait("starting upload of", name, async move { inner.put_multipart(&path).await })?;
        let mut sent = 0;
        let uploaded = self.send_parts(name, upload.as_mut(), first, chunks, &mut sent);
        let finished = self.wait("completing", name, async move {
            match uploaded {
                Ok(()) => upload.complete().await.map(|_| Ok(())),
                Err(error) => {
                    let _ = upload.abort().await;
                    Ok(Err(error))
                }
            }
        });
        finished??;
        // A store may answer "200" to a completion that failed (arrow-rs-object-store 122).
        let found = self.length(name)?;
        if found != sent {
            let message = format!("object `{name}` in `{}`: {sent} bytes sent, {found} stored", self.url);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Ok(())
    }
}

impl Store for RemoteStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        let (inner, path) = (self.inner.clone(), parse(name)?);
        self.wait("writing", name, async move { inner.put_opts(&path, bytes.into(), options(mode)).await.map(drop) })
    }

    /// Large objects go up in parts, for which there is no create-only put: there the name is looked up first, which
    /// suffices for names that only one writer can choose.
    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        names::check_name(name)?;
        let first = fill(chunks, self.in_parts_from_bytes)?;
        if first.len() < self.in_parts_from_bytes {
            return self.put(name, first, mode);
        }
        if mode == PutMode::Create {
            match self.length(name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    return Err(Error::new(ErrorKind::AlreadyExists, format!("object `{name}` in `{}`", self.url)));
                }
            }
        }
        self.put_parts(name, first, chunks)
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        let (inner, path) = (self.inner.clone(), parse(name)?);
        let found = self.wait("reading", name, async move { get_whole(&*inner, &path).await })?;
        self.whole(name, found)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let (inner, path) = (self.inner.clone(), parse(name)?);
        if range.is_empty() {
            let length = self.length(name)?;
            return if range.end <= length { Ok(Bytes::new()) } else { Err(self.short(name, &range, 0)) };
        }
        let asked = range.clone();
        let read = self.wait("reading", name, async move { get_range(&*inner, &path, asked).await });
        self.ranged(name, &range, read)
    }

    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        let asked: Result<Vec<_>> = requests.iter().map(|request| self.begin(request)).collect();
        let begun = match asked {
            Ok(begun) if requests.len() > 1 => begun,
            // One that can't be made must not keep the others from being made.
            _ => return requests.into_iter().map(|request| answer(self, request)).collect(),
        };
        let all =
            async move { Ok(futures_util::stream::iter(begun).buffered(MOST_TOGETHER).collect::<Vec<_>>().await) };
        match self.wait("making", "several requests", all) {
            Ok(answers) => requests.iter().zip(answers).map(|(request, found)| self.end(request, found)).collect(),
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn length(&self, name: &str) -> Result<u64> {
        let (inner, path) = (self.inner.clone(), parse(name)?);
        self.wait("looking up", name, async move { inner.head(&path).await.map(|meta| meta.size) })
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        names::check_prefix(prefix)?;
        let folder = match prefix.strip_suffix('/') {
            Some(folder) => Some(parse(folder)?),
            None => None,
        };
        let inner = self.inner.clone();
        let listed = async move { inner.list(folder.as_ref()).try_collect::<Vec<_>>().await };
        let mut entries: Vec<_> = self
            .wait("listing", prefix, listed)?
            .into_iter()
            .map(|meta| ObjectEntry {
                name: meta.location.to_string(),
                length_bytes: meta.size,
                modified_ms: meta.last_modified.timestamp_millis(),
            })
            .filter(|entry| names::check_name(&entry.name).is_ok())
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let (inner, path) = (self.inner.clone(), parse(name)?);
        match self.wait("deleting", name, async move { inner.delete(&path).await }) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Bytes, and where in their object they stand.
type Ranged = (Bytes, Range<u64>);

async fn get_whole(store: &dyn ObjectStore, path: &Path) -> object_store::Result<Ranged> {
    let found = store.get(path).await?;
    let length = found.meta.size;
    Ok((found.bytes().await?, 0..length))
}

async fn get_range(store: &dyn ObjectStore, path: &Path, range: Range<u64>) -> object_store::Result<Ranged> {
    let found = store.get_opts(path, GetOptions::new().with_range(Some(range))).await?;
    let given = found.range.clone();
    Ok((found.bytes().await?, given))
}

fn options(mode: PutMode) -> PutOptions {
    PutOptions::from(match mode {
        PutMode::Create => object_store::PutMode::Create,
        PutMode::Overwrite => object_store::PutMode::Overwrite,
    })
}

fn parse(name: &str) -> Result<Path> {
    names::check_name(name)?;
    Path::parse(name).map_err(|e| Error::invalid(format!("`{name}` can't name an object: {e}")))
}

/// At least `wanted` bytes of `chunks`, less only at their end.
fn fill(chunks: &mut dyn Iterator<Item = Result<Bytes>>, wanted: usize) -> Result<Bytes> {
    let mut filled = BytesMut::new();
    while filled.len() < wanted {
        match chunks.next() {
            Some(chunk) => filled.extend_from_slice(&chunk?),
            None => break,
        }
    }
    Ok(filled.freeze())
}

/// `text` with stars in place of each of `secrets`.
pub(super) fn masked(text: String, secrets: &[String]) -> String {
    secrets.iter().filter(|secret| !secret.is_empty()).fold(text, |text, secret| text.replace(secret.as_str(), "***"))
}

/// `text` without the query of any URL in it (signatures, tokens), nor its user and password.
pub(super) fn redact(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '(' | ')' | '<' | '>')) {
        let Some((scheme, rest)) = word.split_once("://") else {
            kept.push_str(word);
            continue;
        };
        let end = word.chars().last().filter(|c| !c.is_alphanumeric() && !matches!(c, '/' | '=' | '_' | '-'));
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        let host = authority.rsplit('@').next().unwrap_or_default();
        kept.push_str(&format!("{scheme}://{host}/{}", path.trim_end_matches(|c| Some(c) == end)));
        kept.extend(end);
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::memory::InMemory;

    use super::*;

    fn store() -> RemoteStore {
        let mut store = RemoteStore::new(Arc::new(InMemory::new()), "memory:///").unwrap();
        (store.in_parts_from_bytes, store.part_bytes) = (8, 8);
        store
    }

    #[test]
    fn puts_gets_lists_and_deletes() {
        let store = store();
        store.put("a/b~20", Bytes::from_static(b"0123"), PutMode::Create).unwrap();
        let again = store.put("a/b~20", Bytes::new(), PutMode::Create).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        assert_eq!(store.get("a/b~20").unwrap(), b"0123"[..]);
        assert_eq!(store.get_range("a/b~20", 1..3).unwrap(), b"12"[..]);
        assert_eq!(store.get_range("a/b~20", 4..4).unwrap(), b""[..]);
        for beyond in [2..5, 5..6, 4..5] {
            assert_eq!(store.get_range("a/b~20", beyond).unwrap_err().kind(), ErrorKind::Corruption);
        }
        assert_eq!(store.list("a/").unwrap()[0].name, "a/b~20");
        assert_eq!(store.list("").unwrap().len(), 1);
        assert!(store.list("b/").unwrap().is_empty());
        store.delete("a/b~20").unwrap();
        store.delete("a/b~20").unwrap();
        assert_eq!(store.get("a/b~20").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn requests_made_together_are_answered_in_their_order_each_with_its_own_error() {
        let store = store();
        store.put("a", Bytes::from_static(b"0123"), PutMode::Create).unwrap();
        let ranged = |range| Request::GetRange("a".into(), range);
        let answers = store.together(vec![
            Request::Get("a".into()),
            Request::Get("missing".into()),
            ranged(1..3),
            ranged(2..5),
            ranged(4..4),
            Request::Put("a".into(), Bytes::new(), PutMode::Create),
            Request::Put("b".into(), Bytes::from_static(b"b"), PutMode::Create),
        ]);
        let found: Vec<_> = answers.into_iter().map(|answer| answer.map_err(|error| error.kind())).collect();
        let bytes = |text: &'static str| Ok(Bytes::from_static(text.as_bytes()));
        let (missing, short) = (Err(ErrorKind::NotFound), Err(ErrorKind::Corruption));
        let taken = Err(ErrorKind::AlreadyExists);
        assert_eq!(found, [bytes("0123"), missing, bytes("12"), short, bytes(""), taken, bytes("")]);
        assert_eq!(store.get("b").unwrap(), "b");
        let bad = store.together(vec![Request::Get("../x".into()), Request::Get("b".into())]);
        assert_eq!(bad[0].as_ref().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(bad[1].as_ref().unwrap(), "b");
    }

    #[test]
    fn a_long_stream_goes_up_in_parts_and_a_failing_one_leaves_nothing() {
        let store = store();
        let chunks = || (0..10_u8).map(|i| Ok(Bytes::from(vec![i; 3])));
        store.put_stream("x", &mut chunks(), PutMode::Create).unwrap();
        assert_eq!(store.get("x").unwrap().len(), 30);
        assert_eq!(store.put_stream("x", &mut chunks(), PutMode::Create).unwrap_err().kind(), ErrorKind::AlreadyExists);
        let mut failing = chunks().chain([Err(Error::internal("no more"))]);
        assert_eq!(store.put_stream("y", &mut failing, PutMode::Overwrite).unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(store.list("").unwrap().len(), 1);
    }

    /// Answers "200" to uploads in parts that it throws away, those of `in-pairs` only when two are under way; ignores ranges, and
    /// never answers who asks for `hangs`.
    #[derive(Debug)]
    struct Liar(InMemory);

    impl std::fmt::Display for Liar {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Liar")
        }
    }

    #[derive(Debug)]
    struct Discarded {
        in_pairs: Option<Arc<std::sync::Barrier>>,
    }

    #[async_trait::async_trait]
    impl object_store::MultipartUpload for Discarded {
        fn put_part(&mut self, _: PutPayload) -> object_store::UploadPart {
            let pair = self.in_pairs.clone();
            Box::pin(async move {
                if let Some(pair) = pair {
                    pair.wait();
                }
                Ok(())
            })
        }

        async fn complete(&mut self) -> object_store::Result<object_store::PutResult> {
            InMemory::new().put(&Path::from("elsewhere"), PutPayload::new()).await
        }

        async fn abort(&mut self) -> object_store::Result<()> {
            Ok(())
        }
    }

    #[async_trait::async_trait]
    impl ObjectStore for Liar {
        async fn put_opts(
            &self,
            path: &Path,
            payload: PutPayload,
            options: PutOptions,
        ) -> object_store::Result<object_store::PutResult> {
            self.0.put_opts(path, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            path: &Path,
            _: object_store::PutMultipartOptions,
        ) -> object_store::Result<Box<dyn object_store::MultipartUpload>> {
            let in_pairs = (path.as_ref() == "in-pairs").then(|| Arc::new(std::sync::Barrier::new(2)));
            Ok(Box::new(Discarded { in_pairs }))
        }

        async fn get_opts(
            &self,
            path: &Path,
            mut options: GetOptions,
        ) -> object_store::Result<object_store::GetResult> {
            if path.as_ref() == "hangs" {
                std::future::pending::<()>().await;
            }
            options.range = None;
            self.0.get_opts(path, options).await
        }

        fn delete_stream(
            &self,
            paths: futures_util::stream::BoxStream<'static, object_store::Result<Path>>,
        ) -> futures_util::stream::BoxStream<'static, object_store::Result<Path>> {
            self.0.delete_stream(paths)
        }

        fn list(
            &self,
            prefix: Option<&Path>,
        ) -> futures_util::stream::BoxStream<'static, object_store::Result<object_store::ObjectMeta>> {
            self.0.list(prefix)
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<object_store::ListResult> {
            self.0.list_with_delimiter(prefix).await
        }

        async fn copy_opts(
            &self,
            from: &Path,
            to: &Path,
            options: object_store::CopyOptions,
        ) -> object_store::Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }

    #[test]
    fn replay_19_arrow_rs_object_store_122_690_a_200_that_isnt_and_a_range_that_isnt() {
        let mut store = RemoteStore::new(Arc::new(Liar(InMemory::new())), "liar://").unwrap();
        (store.in_parts_from_bytes, store.part_bytes) = (8, 8);
        let mut chunks = (0..10_u8).map(|i| Ok(Bytes::from(vec![i; 3])));
        let error = store.put_stream("x", &mut chunks, PutMode::Overwrite).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "no commit: {error}");
        store.put("y", Bytes::from_static(b"0123"), PutMode::Create).unwrap();
        for range in [0..2, 1..3] {
            assert_eq!(store.get_range("y", range).unwrap_err().kind(), ErrorKind::Corruption, "no wrong bytes");
        }
    }

    #[test]
    fn two_parts_of_an_upload_are_on_their_way_at_one_time() {
        let mut store = RemoteStore::new(Arc::new(Liar(InMemory::new())), "liar://").unwrap();
        (store.in_parts_from_bytes, store.part_bytes) = (16, 8);
        store.threads.deadline = Duration::from_secs(30);
        let mut chunks = (0..8_u8).map(|i| Ok(Bytes::from(vec![i; 8])));
        let error = store.put_stream("in-pairs", &mut chunks, PutMode::Overwrite).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "thrown away, but sent: {error}");
    }

    #[test]
    fn a_request_that_is_never_answered_lets_go_of_its_thread() {
        let mut store = RemoteStore::new(Arc::new(Liar(InMemory::new())), "liar://").unwrap();
        store.threads.deadline = Duration::from_millis(20);
        for _ in 0..3 {
            let error = store.get("hangs").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            assert!(error.to_string().contains("`hangs` in `liar://`: no answer in 20ms"), "{error}");
        }
    }

    #[test]
    fn used_and_dropped_inside_somebody_elses_runtime() {
        let outer = tokio::runtime::Builder::new_current_thread().build().unwrap();
        outer.block_on(async {
            let store = store();
            store.put("a", Bytes::new(), PutMode::Create).unwrap();
            drop(store);
        });
    }

    #[test]
    fn no_credentials_in_errors() {
        let text =
            "error sending request for url (https://me:secret@h.example/b/k?X-Amz-Signature=abc&sig=d): timed out";
        let redacted = redact(text);
        assert_eq!(redacted, "error sending request for url (https://h.example/b/k): timed out");
        assert_eq!(redact("no url here: 404"), "no url here: 404");
    }
}

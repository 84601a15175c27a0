//! Roots in HDFS, by the `hdfs-native` crate.
//!
//! An object is written as `name#N` and renamed: HDFS renames atomically, and refuses to when the name exists unless told
//! otherwise, so a create-only put is one. Folders are made one at a time below the root, and the root itself only when the store is
//! opened: a job whose root was renamed away must not found a second one in its place.
//!
//! Reads, listings and deletes that failed in a way that may pass are repeated here; puts by who makes them, under another name or after a look
//! at the log.
//!
//! The cluster and the user are those of Hadoop's own configuration: `HADOOP_CONF_DIR`, `HADOOP_USER_NAME`, Kerberos
//! tickets. Whether the wire is encrypted is the cluster's setting (`dfs.encrypt.data.transfer`, `hadoop.rpc.protection`).

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use hdfs_native::client::FileStatus;
use hdfs_native::file::FileWriter;
use hdfs_native::{Client, ClientBuilder, HdfsError, WriteOptions};
use url::Url;

use super::names;
use super::open_store::shown;
use super::store::{ObjectEntry, PutMode, Request, Store, answer};
use super::store_options::StoreOptions;
use super::threads::Threads;
use crate::base::random::{Random, SeededRandom};
use crate::{Error, ErrorKind, Result};

/// Requests of one call that are under way at one time.
const MOST_TOGETHER: usize = 16;

/// Permission of folders.
const FOLDER_MODE: u32 = 0o755;

type Answer<T> = std::result::Result<T, HdfsError>;

/// See the module.
pub struct HdfsStore {
    root: Arc<Root>,
    url: String,
    threads: Threads,
}

/// A root and the client that reaches it.
#[derive(Debug)]
struct Root {
    client: Client,
    /// Path of the root, without a `/` at its end.
    path: String,
    /// For numbers of interrupted writes, and pauses.
    random: SeededRandom,
    retry_for: Duration,
}

impl std::fmt::Debug for HdfsStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HdfsStore({})", self.url)
    }
}

impl HdfsStore {
    /// Opens the root at `url`: `hdfs://namenode:port/path`, or `hdfs://nameservice/path` as the configuration has it. With `create` it
    /// is made if it isn't there.
    ///
    /// # Errors
    /// `InvalidArgument` for a bad URL or configuration; `NotFound` when it isn't there; `Unavailable`.
    pub fn open(url: &str, create: bool, options: &StoreOptions) -> Result<Self> {
        let url_shown = shown(url).trim_end_matches('/').to_owned();
        let bad = |why: String| Error::invalid(format!("store `{url_shown}`: {why}"));
        let parsed = Url::parse(url).map_err(|e| bad(e.to_string()))?;
        let path = parsed.path().trim_end_matches('/').to_owned();
        if path.is_empty() || parsed.host_str().is_none() || path.contains('%') {
            return Err(bad("write `hdfs://namenode:port/path`, the path of plain letters and digits".to_owned()));
        }
        if parsed.query().is_some() || !parsed.username().is_empty() {
            return Err(bad("settings belong in Hadoop's configuration, not in the URL".to_owned()));
        }
        let threads = Threads::start(&url_shown)?;
        let mut builder = ClientBuilder::new().with_url(&parsed[..url::Position::BeforePath]);
        if let Some(runtime) = threads.handle() {
            builder = builder.with_io_runtime(runtime);
        }
        if let Some(directory) = options.get("hadoop_conf_dir") {
            builder = builder.with_config_dir(directory);
        }
        if let Some(user) = options.get("hadoop_user_name") {
            builder = builder.with_user(user);
        }
        let client = builder.build().map_err(|e| bad(e.to_string()))?;
        let (random, retry_for) = (SeededRandom::from_system(), options.retry_for);
        let root = Arc::new(Root { client, path, random, retry_for });
        let store = Self { root, url: url_shown, threads };
        let root = store.root.clone();
        store.wait("opening", "", async move { root.enter(create).await })?;
        Ok(store)
    }

    fn wait<T: Send + 'static>(
        &self,
        doing: &str,
        name: &str,
        future: impl Future<Output = Answer<T>> + Send + 'static,
    ) -> Result<T> {
        self.threads.wait(doing, name, future)?.map_err(|e| self.failed(doing, name, &e))
    }

    fn failed(&self, doing: &str, name: &str, error: &HdfsError) -> Error {
        Error::new(kind_of(error), format!("{doing} `{name}` in `{}`: {error}", self.url))
    }

    fn exactly(&self, name: &str, range: &Range<u64>, read: Answer<(Bytes, u64)>) -> Result<Bytes> {
        let (bytes, length) = read.map_err(|e| self.failed("reading", name, &e))?;
        if range.start <= range.end && range.end <= length && bytes.len() as u64 == range.end - range.start {
            return Ok(bytes);
        }
        let (start, end) = (range.start, range.end);
        let url = &self.url;
        Err(Error::corruption(format!("object `{name}` in `{url}`: bytes {start}..{end} expected, it has {length}")))
    }

    /// The future of one of several requests: bytes, and the object's length.
    fn begin(&self, request: &Request) -> Result<BoxFuture<'static, Answer<(Bytes, u64)>>> {
        let root = self.root.clone();
        Ok(match request.clone() {
            Request::Put(name, bytes, mode) => {
                names::check_name(&name)?;
                async move { root.put(&name, bytes, mode).await.map(|()| Default::default()) }.boxed()
            }
            Request::Get(name) => {
                names::check_name(&name)?;
                async move { root.read(&name, None).await }.boxed()
            }
            Request::GetRange(name, range) => {
                names::check_name(&name)?;
                async move { root.read(&name, Some(range)).await }.boxed()
            }
            Request::Delete(name) => {
                names::check_name(&name)?;
                async move { root.delete(&name).await.map(|()| Default::default()) }.boxed()
            }
        })
    }

    fn end(&self, request: &Request, found: Answer<(Bytes, u64)>) -> Result<Bytes> {
        match request {
            Request::Put(name, ..) => found.map(|_| Bytes::new()).map_err(|e| self.failed("writing", name, &e)),
            Request::Get(name) => {
                let whole = 0..found.as_ref().map_or(0, |(_, length)| *length);
                self.exactly(name, &whole, found)
            }
            Request::GetRange(name, range) => self.exactly(name, range, found),
            Request::Delete(name) => found.map(|_| Bytes::new()).map_err(|e| self.failed("deleting", name, &e)),
        }
    }

    fn entries(&self, prefix: &str, wanted: fn(&str) -> bool) -> Result<Vec<ObjectEntry>> {
        let (root, folder) = (self.root.clone(), prefix.to_owned());
        let listed = self.wait("listing", prefix, async move { root.list(&folder).await })?;
        let mut entries: Vec<_> = listed
            .into_iter()
            .filter_map(|file| {
                let name = file.path.strip_prefix(&self.root.path)?.trim_start_matches('/').to_owned();
                let modified_ms = i64::try_from(file.modification_time).unwrap_or(i64::MAX);
                wanted(&name).then_some(ObjectEntry { name, length_bytes: file.length as u64, modified_ms })
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Writes the chunks; an error of theirs ends it.
    fn write_chunks(
        &self,
        name: &str,
        mut writer: FileWriter,
        chunks: &mut dyn Iterator<Item = Result<Bytes>>,
    ) -> Result<()> {
        for chunk in chunks {
            let chunk = chunk?;
            writer = self.wait("writing", name, async move {
                writer.write_bytes(chunk).await?;
                Ok(writer)
            })?;
        }
        self.wait("writing", name, async move { writer.close().await })
    }
}

impl Root {
    fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// Repeats what failed in a way that may pass, with pauses that grow from 0.1 to 5 seconds, each drawn at random.
    async fn persist<T, F: Future<Output = Answer<T>>>(&self, mut attempt: impl FnMut() -> F) -> Answer<T> {
        let started = tokio::time::Instant::now();
        let mut pause = Duration::from_millis(100);
        loop {
            let answer = attempt().await;
            let may_pass = answer.as_ref().is_err_and(|error| kind_of(error) == ErrorKind::Unavailable);
            if !may_pass || started.elapsed() + pause > self.retry_for {
                return answer;
            }
            tokio::time::sleep(pause / 2 + pause.mul_f64((self.random.next_u64() % 512) as f64 / 1024.0)).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    async fn enter(&self, create: bool) -> Answer<()> {
        match self.persist(|| self.client.get_file_info(&self.path)).await {
            Err(HdfsError::FileNotFound(_)) if create => self.client.mkdirs(&self.path, FOLDER_MODE, true).await,
            other => other.map(drop),
        }
    }

    /// A writer at `name#N` and that name; folders below the root are made.
    async fn start(&self, name: &str) -> Answer<(FileWriter, String)> {
        let part = format!("{name}#{}", self.random.next_u64());
        let options = WriteOptions::default().create_parent(false);
        match self.client.create(&self.path_of(&part), &options).await {
            Err(error) if is_missing(&error) => {}
            other => return Ok((other?, part)),
        }
        for (at, _) in name.match_indices('/') {
            let folder = self.path_of(name.get(..at).unwrap_or_default());
            match self.client.mkdirs(&folder, FOLDER_MODE, false).await {
                Err(HdfsError::AlreadyExists(_)) => {}
                // The root itself is gone.
                other => other?,
            }
        }
        Ok((self.client.create(&self.path_of(&part), &options).await?, part))
    }

    /// Gives what was written at `part` its name, or removes it.
    async fn name(&self, part: &str, name: &str, mode: PutMode) -> Answer<()> {
        let renamed = self.client.rename(&self.path_of(part), &self.path_of(name), mode == PutMode::Overwrite).await;
        match renamed {
            Ok(()) => Ok(()),
            Err(error) => {
                let _ = self.client.delete(&self.path_of(part), false).await;
                // Its source is gone when an earlier try succeeded whose answer was lost: nothing is known then.
                Err(if is_missing(&error) { HdfsError::OperationFailed(error.to_string()) } else { error })
            }
        }
    }

    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Answer<()> {
        // Spares writing what would be thrown away; the rename decides.
        if mode == PutMode::Create && self.client.get_file_info(&self.path_of(name)).await.is_ok() {
            return Err(HdfsError::AlreadyExists(name.to_owned()));
        }
        let (mut writer, part) = self.start(name).await?;
        let written = async {
            writer.write_bytes(bytes).await?;
            writer.close().await
        };
        if let Err(error) = written.await {
            let _ = self.client.delete(&self.path_of(&part), false).await;
            return Err(error);
        }
        self.name(&part, name, mode).await
    }

    /// The bytes of `range`, or all, and the length; no bytes when the range isn't inside.
    async fn read(&self, name: &str, range: Option<Range<u64>>) -> Answer<(Bytes, u64)> {
        self.persist(|| self.read_once(name, range.clone())).await
    }

    async fn read_once(&self, name: &str, range: Option<Range<u64>>) -> Answer<(Bytes, u64)> {
        let reader = self.client.read(&self.path_of(name)).await?;
        let length = reader.file_length() as u64;
        let range = range.unwrap_or(0..length);
        if range.end > length || range.is_empty() {
            return Ok((Bytes::new(), length));
        }
        let size = |bytes: u64| usize::try_from(bytes).map_err(|e| HdfsError::InvalidArgument(e.to_string()));
        let bytes = reader.read_range(size(range.start)?, size(range.end - range.start)?).await?;
        Ok((bytes, length))
    }

    async fn delete(&self, name: &str) -> Answer<()> {
        let path = self.path_of(name);
        match self.persist(|| self.client.delete(&path, false)).await {
            Err(error) if !is_missing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Files below `folder` (empty, or ending in `/`).
    async fn list(&self, folder: &str) -> Answer<Vec<FileStatus>> {
        let mut found = Vec::new();
        let mut folders = VecDeque::from([self.path_of(folder).trim_end_matches('/').to_owned()]);
        while let Some(folder) = folders.pop_front() {
            match self.persist(|| self.client.list_status(&folder, false)).await {
                Ok(entries) => {
                    for entry in entries {
                        if entry.isdir { folders.push_back(entry.path) } else { found.push(entry) }
                    }
                }
                // Never there, or gone since; but a root that is gone isn't empty.
                Err(error) if is_missing(&error) => drop(self.client.get_file_info(&self.path).await?),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

fn kind_of(error: &HdfsError) -> ErrorKind {
    match error {
        HdfsError::AlreadyExists(_) => ErrorKind::AlreadyExists,
        HdfsError::FileNotFound(_) | HdfsError::IsADirectoryError(_) => ErrorKind::NotFound,
        HdfsError::InvalidPath(_) | HdfsError::InvalidArgument(_) => ErrorKind::InvalidArgument,
        HdfsError::UnsupportedFeature(_) | HdfsError::UnsupportedErasureCodingPolicy(_) => ErrorKind::Unsupported,
        HdfsError::RPCError(class, _) if class.ends_with("FileNotFoundException") => ErrorKind::NotFound,
        HdfsError::RPCError(class, _) if class.ends_with("AccessControlException") => ErrorKind::InvalidArgument,
        _ => ErrorKind::Unavailable,
    }
}

fn is_missing(error: &HdfsError) -> bool {
    match error {
        HdfsError::FileNotFound(_) => true,
        HdfsError::RPCError(class, _) => class.ends_with("FileNotFoundException"),
        _ => false,
    }
}

impl Store for HdfsStore {
    fn url(&self) -> &str {
        &self.url
    }

    fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> Result<()> {
        answer_one(self, Request::Put(name.to_owned(), bytes, mode)).map(drop)
    }

    fn put_stream(&self, name: &str, chunks: &mut dyn Iterator<Item = Result<Bytes>>, mode: PutMode) -> Result<()> {
        names::check_name(name)?;
        let (root, owned) = (self.root.clone(), name.to_owned());
        let (writer, part) = self.wait("writing", name, async move { root.start(&owned).await })?;
        let written = self.write_chunks(name, writer, chunks);
        let (root, owned) = (self.root.clone(), name.to_owned());
        match written {
            Ok(()) => self.wait("writing", name, async move { root.name(&part, &owned, mode).await }),
            Err(error) => {
                let _ = self.wait("writing", name, async move { root.delete(&part).await });
                Err(error)
            }
        }
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        answer_one(self, Request::Get(name.to_owned()))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        answer_one(self, Request::GetRange(name.to_owned(), range))
    }

    fn together(&self, requests: Vec<Request>) -> Vec<Result<Bytes>> {
        let asked: Result<Vec<_>> = requests.iter().map(|request| self.begin(request)).collect();
        // One that can't be made must not keep the others from being made.
        let Ok(begun) = asked else { return requests.into_iter().map(|request| answer(self, request)).collect() };
        let all = async move { futures_util::stream::iter(begun).buffered(MOST_TOGETHER).collect::<Vec<_>>().await };
        match self.threads.wait("making", "several requests", all) {
            Ok(answers) => requests.iter().zip(answers).map(|(request, found)| self.end(request, found)).collect(),
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn length(&self, name: &str) -> Result<u64> {
        names::check_name(name)?;
        let (root, owned) = (self.root.clone(), name.to_owned());
        let found = self.wait("looking up", name, async move {
            let path = root.path_of(&owned);
            root.persist(|| root.client.get_file_info(&path)).await
        })?;
        if found.isdir {
            return Err(Error::new(ErrorKind::NotFound, format!("object `{name}` in `{}`", self.url)));
        }
        Ok(found.length as u64)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        names::check_prefix(prefix)?;
        self.entries(prefix, |name| names::check_name(name).is_ok())
    }

    fn delete(&self, name: &str) -> Result<()> {
        answer_one(self, Request::Delete(name.to_owned())).map(drop)
    }

    fn leftovers(&self) -> Result<Vec<ObjectEntry>> {
        self.entries("", names::is_leftover)
    }

    fn delete_leftover(&self, name: &str) -> Result<()> {
        if !names::is_leftover(name) {
            return Err(Error::invalid(format!("`{}` is no leftover of an interrupted write", name.escape_debug())));
        }
        let (root, owned) = (self.root.clone(), name.to_owned());
        self.wait("deleting", name, async move { root.delete(&owned).await })
    }
}

fn answer_one(store: &HdfsStore, request: Request) -> Result<Bytes> {
    let begun = store.begin(&request)?;
    let (Request::Put(name, ..) | Request::Get(name) | Request::GetRange(name, _) | Request::Delete(name)) = &request;
    let found = store.threads.wait("asking for", name, begun)?;
    store.end(&request, found)
}

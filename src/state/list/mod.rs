//! One list a key.
//!
//! A list is a group of chunks ([`chunk`]), oldest first. Appending extends the newest chunk when it was
//! begun in the current sequence and has room, and begins a new one otherwise: it never reads what an
//! earlier epoch wrote. Reading streams chunk by chunk. In a state with a time to live a chunk holds the
//! elements of one millisecond, so that elements expire one by one.

mod append;
pub mod chunk;
pub mod read;

use std::borrow::Borrow;
use std::marker::PhantomData;

use self::append::Appender;
use self::read::{ChunkExpiry, ElementCursor, Elements};
use super::access::{Handle, Located, UNBOUNDED};
use super::address::Address;
use super::codec::Codec;
use super::scratch::Scratch;
use super::{Types, token};
use crate::base::cursor::Direction;
use crate::base::key_group::KeyGroupRange;
use crate::engine::{Backend, ReadView};
use crate::{Error, Result};

pub(super) use self::chunk::CHUNK_CODEC;
use self::chunk::{CHUNK_BYTES, TIME_BYTES, chunk_key, put_element, put_short_length};

/// Token of a state that holds a list of `T` for each key (and namespace).
///
/// A list may be larger than memory: [`ListState::iter`] and [`ListState::cursor`] stream it. An empty
/// list and no list are the same.
///
/// # Examples
/// ```
/// # use highwater::*;
/// # let dir = tempfile::tempdir()?;
/// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
/// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
/// let pages = b.list_state::<String, String>("pages")?;
/// pages.add(&mut b, "visitor", "/".to_string())?;
/// pages.add_all(&mut b, "visitor", ["/about".to_string(), "/jobs".to_string()])?;
/// assert_eq!(pages.get(&mut b, "visitor")?, ["/", "/about", "/jobs"]);
/// assert_eq!(pages.iter(&mut b, "visitor")?.count(), 3);
/// pages.clear(&mut b, "visitor")?;
/// assert!(pages.is_empty(&mut b, "visitor")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListState<K, T, N = ()> {
    handle: Handle,
    types: Types<(K, T, N)>,
}

token!(ListState < K, T, N > { handle });

impl<K: Codec, T: Codec, N: Codec> ListState<K, T, N> {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, types: PhantomData }
    }

    /// Appends an element.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another subtask, or a key or element over the limits;
    /// `Backpressure` when storage is behind. Nothing was written then.
    pub fn add(self, backend: &mut Backend, at: impl Address<K, N>, element: impl Borrow<T>) -> Result<()> {
        let at = Located::of(backend, &at)?;
        let mut bytes = Scratch::take();
        // With room for the length of a short element before it: what is to be appended to a chunk.
        bytes.push(0);
        element.borrow().encode(&mut bytes)?;
        if self.handle.ttl_ms.is_none() && put_short_length(&mut bytes) {
            let from = chunk_key(backend.current_sequence(), 0);
            if self.handle.append_newest(backend, &at, &from, &bytes, CHUNK_BYTES)? {
                return Ok(());
            }
        }
        let written_ms = self.handle.ttl_ms.map(|_| backend.now_ms());
        let mut appender = Appender::open(self.handle, backend, at)?;
        appender.push(backend, &bytes[1..], written_ms)?;
        appender.finish(backend)
    }

    /// Appends elements in their order: all of them, or none.
    ///
    /// # Errors
    /// As [`ListState::add`]; `InvalidArgument` too when all elements together are over the limit of a value.
    pub fn add_all<E: Borrow<T>>(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        elements: impl IntoIterator<Item = E>,
    ) -> Result<()> {
        let at = Located::of(backend, &at)?;
        let elements = encode_all::<T, E>(backend, elements)?;
        if elements.is_empty() { Ok(()) } else { self.write_all(backend, at, &elements, false) }
    }

    /// Replaces the list by `elements`: all of it, or nothing.
    ///
    /// # Errors
    /// As [`ListState::add_all`].
    pub fn update<E: Borrow<T>>(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        elements: impl IntoIterator<Item = E>,
    ) -> Result<()> {
        let at = Located::of(backend, &at)?;
        let elements = encode_all::<T, E>(backend, elements)?;
        self.write_all(backend, at, &elements, true)
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// As [`ListState::add`].
    pub fn clear(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<()> {
        let at = Located::of(backend, &at)?;
        self.handle.delete_all(backend, &at)
    }

    /// The whole list, empty when there is none.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another subtask; `Codec` when stored bytes are no `T`; those of
    /// reading.
    pub fn get(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Vec<T>> {
        let mut elements = Vec::new();
        self.visit(backend, at, |element| {
            elements.push(element);
            Ok(())
        })?;
        Ok(elements)
    }

    /// Reads the whole list and removes it, in one call: what a window does when it fires.
    ///
    /// # Errors
    /// As [`ListState::get`] and [`ListState::clear`]. Nothing was removed then.
    pub fn take(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Vec<T>> {
        let at = Located::of(backend, &at)?;
        let mut elements = Vec::new();
        self.visit_at(backend, &at, |element| {
            elements.push(T::decode(element)?);
            Ok(())
        })?;
        self.handle.delete_all(backend, &at)?;
        Ok(elements)
    }

    /// Calls `visit` with each element, oldest first, and ends at the first error.
    ///
    /// # Errors
    /// As [`ListState::get`], and what `visit` returns.
    pub fn visit(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        mut visit: impl FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let at = Located::of(backend, &at)?;
        self.visit_at(backend, &at, |element| visit(T::decode(element)?))
    }

    /// As [`ListState::visit`], but shows each element's bytes where they lie, as the codec of `T` wrote them: for those who
    /// needn't have a `T` of each, because they look at a field, compare, or copy the bytes elsewhere.
    ///
    /// # Errors
    /// Those of reading, and what `visit` returns.
    ///
    /// # Examples
    /// ```
    /// # use highwater::*;
    /// # let dir = tempfile::tempdir()?;
    /// # let env = Environment::builder(dir.path()).store("memory:///").open()?;
    /// # let mut b = env.backend(&Operator::new("op", 128), Subtask { index: 0, parallelism: 1 }, None)?;
    /// let pages = b.list_state::<String, String>("pages")?;
    /// pages.add_all(&mut b, "visitor", ["/".to_string(), "/about".to_string()])?;
    /// let mut bytes = 0;
    /// pages.visit_encoded(&mut b, "visitor", |page| {
    ///     bytes += page.len();
    ///     Ok(())
    /// })?;
    /// assert_eq!(bytes, 7);
    /// assert_eq!(pages.take(&mut b, "visitor")?, ["/", "/about"]);
    /// assert!(pages.is_empty(&mut b, "visitor")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn visit_encoded(
        self,
        backend: &mut Backend,
        at: impl Address<K, N>,
        visit: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let at = Located::of(backend, &at)?;
        self.visit_at(backend, &at, visit)
    }

    #[inline]
    fn visit_at(self, backend: &mut Backend, at: &Located, mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let expiry = ChunkExpiry::now(self.handle, backend);
        let mut scan = self.handle.scan(backend, at, UNBOUNDED, Direction::Forward)?;
        while let Some((_, chunk)) = scan.next()? {
            let mut elements = expiry.open(chunk)?;
            while let Some(element) = elements.next()? {
                visit(element)?;
            }
        }
        Ok(())
    }

    /// True when there is no element.
    ///
    /// # Errors
    /// As [`ListState::get`].
    pub fn is_empty(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<bool> {
        Ok(self.iter(backend, at)?.next().transpose()?.is_none())
    }

    /// Walks over the elements, oldest first. The backend is borrowed meanwhile; to write while
    /// walking, see [`ListState::cursor`].
    ///
    /// # Errors
    /// As [`ListState::get`], here and from the iterator.
    pub fn iter(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<Elements<'_, T>> {
        let at = Located::of(backend, &at)?;
        let expiry = ChunkExpiry::now(self.handle, backend);
        let scan = self.handle.scan(backend, &at, UNBOUNDED, Direction::Forward)?;
        Ok(Elements::new(scan, expiry))
    }

    /// Opens a cursor on the elements as they are now, oldest first; the backend may be written while it
    /// walks.
    ///
    /// # Errors
    /// As [`ListState::get`].
    pub fn cursor(self, backend: &mut Backend, at: impl Address<K, N>) -> Result<ElementCursor<T>> {
        let at = Located::of(backend, &at)?;
        let expiry = ChunkExpiry::now(self.handle, backend);
        Ok(ElementCursor::new(self.handle.cursor(backend, &at, UNBOUNDED, Direction::Forward)?, expiry))
    }

    /// Moves the elements of the namespaces `sources`, in their order, to the end of `target`'s list.
    /// They keep their time to live. `target` among the sources counts for nothing.
    ///
    /// # Errors
    /// As [`ListState::get`] and [`ListState::add_all`]. Up to the limit of a value all elements are moved or, when it is
    /// `Backpressure`, none. More are moved piece by piece, and reading may fail in the middle: after such an error go on
    /// from the last checkpoint.
    pub fn merge_namespaces<Q: Codec + ?Sized>(
        self,
        backend: &mut Backend,
        key: &Q,
        target: &N,
        sources: &[N],
    ) -> Result<()>
    where
        K: Borrow<Q>,
    {
        let at = Located::of::<K, N>(backend, &(key, target))?;
        let mut from: Vec<Located> = Vec::with_capacity(sources.len());
        let mut bytes = 0;
        for source in sources {
            let source = Located::of::<K, N>(backend, &(key, source))?;
            if source.same_prefix(&at) || from.iter().any(|other| source.same_prefix(other)) {
                continue;
            }
            let mut scan = self.handle.scan(backend, &source, UNBOUNDED, Direction::Forward)?;
            while let Some((_, chunk)) = scan.next()? {
                bytes += chunk.len();
            }
            drop(scan);
            from.push(source);
        }
        let expiry = ChunkExpiry::now(self.handle, backend);
        let move_all = |backend: &mut Backend| {
            for source in &from {
                let to = Located::of::<K, N>(backend, &(key, target))?;
                let cursor = self.handle.cursor(backend, source, UNBOUNDED, Direction::Forward)?;
                append::move_elements(self.handle, backend, cursor, expiry, to)?;
                self.handle.delete_all(backend, source)?;
            }
            Ok(())
        };
        if bytes > backend.max_value_bytes() {
            return move_all(backend);
        }
        let (writes, bytes) = append::most_written(&at, bytes);
        let keys: usize = from.iter().map(Located::most_bytes).sum();
        backend.admitted(writes + from.len(), bytes + keys, move_all)
    }

    /// Calls `visit` with every (key, namespace, element) of a view in `groups`, lists by key group, then
    /// by bytes, elements oldest first. `now_ms` decides what has expired.
    ///
    /// # Errors
    /// Those of reading and decoding, and what `visit` returns.
    pub fn for_each(
        self,
        view: &ReadView,
        groups: KeyGroupRange,
        now_ms: i64,
        mut visit: impl FnMut(&K, &N, T) -> Result<()>,
    ) -> Result<()> {
        let expiry = ChunkExpiry::at(self.handle, now_ms);
        self.handle.visit(view, groups, &mut |key, namespace, _, value| {
            let mut elements = expiry.open(value)?;
            let (key, namespace) = (K::decode(key)?, N::decode(namespace)?);
            while let Some(element) = elements.next()? {
                visit(&key, &namespace, T::decode(element)?)?;
            }
            Ok(())
        })
    }

    fn write_all(self, backend: &mut Backend, at: Located, elements: &[u8], replace: bool) -> Result<()> {
        let (writes, bytes) = append::most_written(&at, elements.len());
        backend.admitted(usize::from(replace) + writes, bytes, |backend| {
            if replace {
                self.handle.delete_all(backend, &at)?;
            }
            append::append_all(self.handle, backend, at, elements)
        })
    }
}

/// The elements one behind the other, as in a chunk.
fn encode_all<T: Codec, E: Borrow<T>>(backend: &Backend, elements: impl IntoIterator<Item = E>) -> Result<Scratch> {
    let (mut all, mut one) = (Scratch::take(), Scratch::take());
    for element in elements {
        one.clear();
        element.borrow().encode(&mut one)?;
        put_element(&mut all, &one);
        if all.len() + TIME_BYTES > backend.max_value_bytes() {
            return Err(Error::invalid(format!(
                "elements of one call are over the limit of a value, {} bytes: append them in several",
                backend.max_value_bytes()
            )));
        }
    }
    Ok(all)
}

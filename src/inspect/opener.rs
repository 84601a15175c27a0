//! Opening the segments that a manifest refers to, in its own root or in another.

use std::sync::Arc;

use crate::cache::block_cache::BlockCache;
use crate::io::other_roots::OtherRoots;
use crate::io::store::Store;
use crate::io::stored_object::StoredObject;
use crate::manifest::Manifest;
use crate::read::Tree;
use crate::segment::reader::Segment;
use crate::version::SegmentRef;
use crate::{Error, Result};

/// Opens them, with one cache for all.
pub(super) struct Opener {
    store: Arc<dyn Store>,
    others: OtherRoots,
    cache: Arc<BlockCache>,
}

impl Opener {
    pub fn new(store: Arc<dyn Store>, others: OtherRoots, cache_bytes: u64) -> Result<Self> {
        Ok(Self { store, others, cache: Arc::new(BlockCache::new(cache_bytes)?) })
    }

    /// The segment of a reference of `manifest`.
    pub fn segment(&self, manifest: &Manifest, r: &SegmentRef) -> Result<Arc<Segment>> {
        let meta = r.meta();
        let name = r.name().ok_or_else(|| Error::corruption(format!("segment {} has no object", meta.id)))?;
        let store = match manifest.root_of(r)? {
            None => self.store.clone(),
            Some(url) => self.others.get(url)?,
        };
        let source = StoredObject::new(store, name.to_string(), meta.length_bytes);
        Ok(Segment::open((**meta).clone(), Arc::new(source), self.cache.clone()))
    }

    /// The tree of `manifest`. Nothing is read yet.
    pub fn tree(&self, manifest: &Manifest) -> Result<Tree> {
        Tree::new(manifest.version.clone(), &Tree::default(), |r| self.segment(manifest, r))
    }
}

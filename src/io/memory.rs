//! Memory for pages and tables: pieces that come from the operating system and go back to it.
//!
//! What the allocator is given back it may keep: glibc's raises the size from which it maps memory with each large
//! piece that is freed, up to 32 MiB, and serves what is smaller from heaps that only shrink at their end. Pages are
//! made by owners and freed by workers all the time, and the process has to stay within its budget, so their memory is
//! mapped (measured with values of up to 6 MiB under a budget of 64 MiB: `tests/resident_memory.rs`).
//!
//! Pieces of the usual size are cut from slabs as large as a huge page, and the system is asked to back them with one:
//! a random read of a state much larger than the processor's caches then costs one miss, not that and a walk through
//! page tables (`benches/RESULTS.md`, under Losses, has what it brought). The bytes of a piece that goes back to its slab go back to
//! the system at once.

#![expect(
    unsafe_code,
    reason = "owners of one mapping hold disjoint parts of it; `cargo bench --bench w1` shows what for"
)]

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::{Advice, MmapMut, UncheckedAdvice};
use parking_lot::Mutex;

/// Size of a piece of a slab.
pub const PIECE_BYTES: usize = 256 << 10;
/// Size and alignment of a slab: that of a huge page.
const SLAB_BYTES: usize = 2 << 20;
const PIECES: u32 = (SLAB_BYTES / PIECE_BYTES) as u32;
/// Below this the allocator does better.
const MAP_FROM_BYTES: usize = 16 << 10;

/// Zeroed bytes of a fixed length, which never move.
pub struct Memory {
    start: NonNull<u8>,
    length: usize,
    owner: Owner,
}

/// What is to be done with the bytes in the end.
enum Owner {
    Heap,
    Map { _map: MmapMut },
    Slab { slabs: Slabs, base: usize },
}

// SAFETY: a `Memory` is the only owner of its bytes, as a `Box<[u8]>` is; the pointer isn't shared.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for Memory {}

impl Memory {
    /// `length` zeroed bytes. Where a process may have no more maps, they come from the allocator.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        if length >= MAP_FROM_BYTES
            && let Ok(mut map) = MmapMut::map_anon(length)
            && let Some(start) = NonNull::new(map.as_mut_ptr())
        {
            return Self { start, length, owner: Owner::Map { _map: map } };
        }
        let bytes = NonNull::from(Box::leak(vec![0_u8; length].into_boxed_slice()));
        Self { start: bytes.cast(), length, owner: Owner::Heap }
    }

    /// A look at the bytes that doesn't borrow: they never move.
    #[must_use]
    pub fn view(&self) -> View {
        View { start: self.start, length: self.length }
    }
}

/// Where the bytes of a [`Memory`] are. Whoever looks at them vouches for the `Memory`.
#[derive(Debug, Clone, Copy)]
pub struct View {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is an address; what is done with it is up to those who use it, by its contract.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// Address of the first byte.
    #[must_use]
    pub fn start(self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are.
    #[must_use]
    pub fn length(self) -> usize {
        self.length
    }

    /// No bytes.
    pub const EMPTY: Self = Self { start: NonNull::dangling(), length: 0 };

    /// The bytes.
    ///
    /// # Safety
    /// For the whole of `'a` the `Memory` must exist, wherever it has been moved, and nobody may write to it.
    #[inline]
    #[must_use]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: start and length are those of the memory, which the caller vouches for.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// The bytes, to be written.
    ///
    /// # Safety
    /// For the whole of `'a` the `Memory` must exist, wherever it has been moved, and nobody else may read or write
    /// it.
    #[inline]
    #[must_use]
    pub unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: as for `bytes`; that nobody else uses it is what the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.length)
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are ours and initialized (zeroed by the system or by us), and live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &self.owner {
            Owner::Heap => {
                let bytes = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.length);
                // SAFETY: start and length are those of the box that was leaked, and nobody uses them after this.
                drop(unsafe { Box::from_raw(bytes) });
            }
            Owner::Map { .. } => {}
            Owner::Slab { slabs, base } => slabs.give_back(*base, self.start.as_ptr() as usize - base),
        }
    }
}

/// Where pieces come from. Clones share their slabs.
#[derive(Clone, Default)]
pub struct Slabs(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Slabs with pieces that are in use, by address.
    slabs: HashMap<usize, Slab>,
    /// Addresses of those that have free pieces too.
    with_free: Vec<usize>,
    /// One that is backed by memory already and waits to be used.
    ready: Option<Slab>,
    /// Somebody is about to make one ready.
    making: bool,
}

struct Slab {
    map: MmapMut,
    /// From the start of the map to the slab.
    offset: usize,
    /// A bit for each free piece.
    free: u32,
}

impl Slab {
    /// A new one; `None` where the system has no more memory or maps.
    fn new() -> Option<Self> {
        // Twice the size has an aligned half in it. What is never touched takes no memory.
        let mut map = MmapMut::map_anon(2 * SLAB_BYTES).ok()?;
        let offset = map.as_mut_ptr().align_offset(SLAB_BYTES);
        // Without huge pages everything works as well, only slower.
        let _ = map.advise_range(Advice::HugePage, offset, SLAB_BYTES);
        Some(Self { map, offset, free: (1 << PIECES) - 1 })
    }

    fn base(&self) -> usize {
        self.map.as_ptr() as usize + self.offset
    }

    fn take(&mut self) -> Option<NonNull<u8>> {
        let index = self.free.trailing_zeros();
        if index >= PIECES {
            return None;
        }
        self.free &= !(1 << index);
        // SAFETY: the offset is within the map, which is twice as long as a slab.
        NonNull::new(unsafe { self.map.as_mut_ptr().add(self.offset + index as usize * PIECE_BYTES) })
    }

    /// Takes a piece back and gives its memory to the system, so that it reads as zeros when it is used again.
    fn put(&mut self, offset: usize) {
        // SAFETY: the range is in the map, and the piece's only owner has just given it up.
        let dropped =
            unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, self.offset + offset, PIECE_BYTES) };
        // A piece that isn't zeroed must not be used again; its slab goes in the end.
        if dropped.is_ok() {
            self.free |= 1 << (offset / PIECE_BYTES);
        }
    }

    fn is_unused(&self) -> bool {
        self.free == (1 << PIECES) - 1
    }
}

impl Slabs {
    /// A zeroed piece of [`PIECE_BYTES`], at an address that is a multiple of it.
    #[must_use]
    pub fn piece(&self) -> Memory {
        let mut state = self.0.lock();
        if state.with_free.is_empty()
            && let Some(slab) = state.ready.take().or_else(Slab::new)
        {
            state.with_free.push(slab.base());
            state.slabs.insert(slab.base(), slab);
        }
        let State { slabs, with_free, .. } = &mut *state;
        if let Some(base) = with_free.last().copied()
            && let Some(slab) = slabs.get_mut(&base)
            && let Some(start) = slab.take()
        {
            if slab.free == 0 {
                with_free.pop();
            }
            return Memory { start, length: PIECE_BYTES, owner: Owner::Slab { slabs: self.clone(), base } };
        }
        drop(state);
        Memory::zeroed(PIECE_BYTES)
    }

    fn give_back(&self, base: usize, offset: usize) {
        let mut state = self.0.lock();
        let State { slabs, with_free, .. } = &mut *state;
        let Some(slab) = slabs.get_mut(&base) else { return };
        let was_full = slab.free == 0;
        slab.put(offset);
        if slab.is_unused() {
            let unused = slabs.remove(&base);
            with_free.retain(|other| *other != base);
            drop(state);
            drop(unused);
        } else if was_full && slab.free != 0 {
            with_free.push(base);
        }
    }

    /// True when a new slab will be needed soon and none is ready: who is told so calls [`Slabs::make_ready`].
    #[must_use]
    pub fn wants_slab(&self) -> bool {
        let mut state = self.0.lock();
        let wants = !state.making && state.ready.is_none() && state.with_free.len() <= 1 && !state.slabs.is_empty();
        state.making |= wants;
        wants
    }

    /// Makes a slab ready, its memory there already: what would take a tenth of a millisecond when its first byte is
    /// written is done here, on a thread that nobody waits for.
    pub fn make_ready(&self) {
        let slab = Slab::new();
        if let Some(slab) = &slab {
            let _ = slab.map.advise_range(Advice::PopulateWrite, slab.offset, SLAB_BYTES);
        }
        let mut state = self.0.lock();
        state.making = false;
        if state.ready.is_none() {
            state.ready = slab;
        }
    }
}

impl std::fmt::Debug for Slabs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slabs({})", self.0.lock().slabs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_and_large_pieces_are_zeroed_and_writable() {
        for length in [0, 1, MAP_FROM_BYTES - 1, MAP_FROM_BYTES, MAP_FROM_BYTES + 1, 1 << 20] {
            let mut memory = Memory::zeroed(length);
            assert_eq!(memory.len(), length);
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert_eq!(memory.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 7 * length);
        }
        assert!(Memory::default().is_empty());
    }

    #[test]
    fn pieces_never_overlap_and_are_zeroed_each_time_whatever_the_order_of_taking_and_giving_back() {
        let slabs = Slabs::default();
        let mut held: Vec<(Memory, u8)> = Vec::new();
        let mut random = 1_u64;
        for step in 0..600_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if !held.is_empty() && (random >> 62 == 0 || held.len() > 40) {
                let (gone, mark) = held.swap_remove((random >> 33) as usize % held.len());
                assert!(gone.iter().step_by(1021).all(|byte| *byte == mark), "somebody else wrote to it");
            } else {
                let mut piece = slabs.piece();
                assert_eq!((piece.len(), piece.as_ptr() as usize % PIECE_BYTES), (PIECE_BYTES, 0));
                assert!(piece.iter().step_by(509).all(|byte| *byte == 0));
                let mark = (step % 255) as u8 + 1;
                piece.fill(mark);
                held.push((piece, mark));
            }
            if slabs.wants_slab() {
                slabs.make_ready();
            }
        }
        drop(held);
        let state = slabs.0.lock();
        assert!(state.slabs.is_empty() && state.with_free.is_empty());
    }

    #[test]
    fn pieces_given_back_by_other_threads_outlive_the_handle_they_came_from() {
        let slabs = Slabs::default();
        let pieces: Vec<Memory> = (0..20).map(|_| slabs.piece()).collect();
        let shared = slabs.0.clone();
        drop(slabs);
        std::thread::scope(|scope| {
            for mut piece in pieces {
                scope.spawn(move || piece.fill(9));
            }
        });
        assert!(shared.lock().slabs.is_empty());
    }
}

//! Buffers that are used again, so that a call on a state allocates nothing.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// Most buffers a thread keeps; a call uses two or three.
const KEPT: usize = 4;

/// Largest buffer that is kept.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// Places for buffers, those without capacity empty.
    static KEPT_BUFFERS: [Cell<Vec<u8>>; KEPT] = const { [const { Cell::new(Vec::new()) }; KEPT] };
}

/// An empty buffer of those that the thread keeps, which it is again when dropped.
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    /// Takes one.
    #[inline]
    pub(super) fn take() -> Self {
        let kept = KEPT_BUFFERS.try_with(|places| places.iter().map(Cell::take).find(|buffer| buffer.capacity() > 0));
        Self(kept.ok().flatten().unwrap_or_default())
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        if buffer.capacity() > KEPT_BYTES {
            return;
        }
        buffer.clear();
        // The thread may be ending, its buffers gone: then this one goes too.
        let _ = KEPT_BUFFERS.try_with(|places| {
            for place in places {
                buffer = place.replace(std::mem::take(&mut buffer));
                if buffer.capacity() == 0 {
                    break;
                }
            }
        });
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    #[inline]
    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    #[inline]
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

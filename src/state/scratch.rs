//! Buffers that are used again, so that a call on a state allocates nothing.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Most buffers a thread keeps; a call uses two or three.
const KEPT: usize = 8;

/// Largest buffer that is kept.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer from the thread's free list, to which it goes back when dropped.
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    /// Takes one.
    #[inline]
    pub(super) fn take() -> Self {
        Self(FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten().unwrap_or_default())
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
        // The thread may be ending, its free list gone: then the buffer just goes.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(buffer);
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

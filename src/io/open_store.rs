//! From a URL, as a user writes it, to a store.

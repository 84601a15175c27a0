//! Stores behind the `object_store` crate.

//! Highwater: a state backend for stream processors.

//! Memory that may be given back: blocks read from segments.
//!
//! Enters: decoded blocks with the segment and offset they came from. Leaves: the same blocks, shared. Always
//! holds: the weight kept is within the capacity given; a block in use outlives its eviction.

pub mod block_cache;

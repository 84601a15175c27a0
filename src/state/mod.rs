//! Floor 6: typed keyed state over the engine's raw layer.
//!
//! Enters: names, keys, namespaces and values of Rust types, and the backend that holds them. Leaves:
//! small `Copy` tokens ([`ValueState`], [`ListState`], [`MapState`], [`ReducingState`],
//! [`AggregatingState`]) that borrow nothing, so that many may be used with one backend, and a
//! [`TimerService`] a timer name. Always holds: a key goes to the key group that follows from its bytes;
//! a key of another subtask is refused; what a token wrote, the same token after a restore reads.
//!
//! | Kind | Layout | User key | Value |
//! |---|---|---|---|
//! | value, reducing, aggregating | single | none | the value, or the accumulator |
//! | map | grouped | map key | map value |
//! | list | grouped | chunk ([`list`]) | elements |
//! | timers | grouped, under the empty key of each group | timer ([`timers`]) | none |

mod access;
mod address;
pub mod aggregating;
pub mod codec;
pub mod entries;
pub mod keyed;
pub mod list;
pub mod map;
pub mod reducing;
mod scratch;
pub mod timers;
mod upcoming;
pub mod value;
mod winners;

pub use address::Address;
pub use aggregating::{AggregatingState, Aggregator};
pub use codec::{Codec, OrderedCodec, Serde};
pub use entries::{Entries, EntryCursor};
pub use keyed::{KeyedState, StateBuilder};
pub use list::ListState;
pub use map::MapState;
pub use reducing::ReducingState;
pub use timers::{TimeDomain, Timer, TimerService};
pub use value::ValueState;

/// Types that a token speaks of but holds nothing of.
type Types<T> = std::marker::PhantomData<fn() -> T>;

/// Implements what all tokens share: `Copy`, and `Debug` by name, whatever their type parameters are.
macro_rules! token {
    ($name:ident<$($param:ident),*> { $($field:ident),* }) => {
        impl<$($param),*> Clone for $name<$($param),*> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($param),*> Copy for $name<$($param),*> {}

        impl<$($param),*> std::fmt::Debug for $name<$($param),*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &self.$field))*.finish()
            }
        }
    };
}
use token;

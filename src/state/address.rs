//! Where in a state an entry lies.

use std::borrow::Borrow;

use super::codec::Codec;
use crate::Result;

/// Names a key, and a namespace where the state has them: `&key`, or `(&key, &namespace)`.
///
/// The borrowed form of a key will do: `&str` where keys are `String`s.
///
/// # Examples
/// ```no_run
/// # use highwater::*;
/// # fn example(b: &mut Backend) -> Result<()> {
/// let hits = b.value_state::<String, u64>("hits")?;
/// hits.put(b, "carrier", 1)?;
/// let sums = b.state("sums").namespace::<i64>().value::<String, u64>()?;
/// sums.put(b, ("carrier", &3_600_000), 1)?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't say where in the state the entry lies",
    note = "pass `&key`, or `(&key, &namespace)` where the state has namespaces"
)]
pub trait Address<K, N> {
    /// Appends the key's bytes.
    ///
    /// # Errors
    /// Those of the key's codec.
    fn encode_key(&self, out: &mut Vec<u8>) -> Result<()>;

    /// Appends the namespace's bytes.
    ///
    /// # Errors
    /// Those of the namespace's codec.
    fn encode_namespace(&self, out: &mut Vec<u8>) -> Result<()>;
}

impl<K: Borrow<Q>, Q: Codec + ?Sized> Address<K, ()> for &Q {
    #[inline]
    fn encode_key(&self, out: &mut Vec<u8>) -> Result<()> {
        (**self).encode(out)
    }

    #[inline]
    fn encode_namespace(&self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

impl<K, N, Q, M> Address<K, N> for (&Q, &M)
where
    K: Borrow<Q>,
    N: Borrow<M>,
    Q: Codec + ?Sized,
    M: Codec + ?Sized,
{
    #[inline]
    fn encode_key(&self, out: &mut Vec<u8>) -> Result<()> {
        self.0.encode(out)
    }

    #[inline]
    fn encode_namespace(&self, out: &mut Vec<u8>) -> Result<()> {
        self.1.encode(out)
    }
}

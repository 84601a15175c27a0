//! A tournament: which of a fixed number of places has the least time.
//!
//! The places are the leaves of a binary tree, and each inner node knows the winner below it; a change of one place is
//! played again on the way to the root.

/// See the module.
#[derive(Debug)]
pub(super) struct Winners {
    /// Time of each place; `None` for one that has none.
    times: Vec<Option<i64>>,
    /// The winner below each inner node, the root at 1; children of `n` are `2n` and `2n + 1`, the leaves follow.
    nodes: Vec<u32>,
}

impl Winners {
    /// So many places, all without a time.
    pub(super) fn new(count: usize) -> Self {
        let leaves = count.next_power_of_two();
        let mut winners = Self { times: vec![None; leaves], nodes: vec![0; leaves] };
        (1..leaves).rev().for_each(|node| winners.play(node));
        winners
    }

    /// Gives a place a time or takes it.
    pub(super) fn set(&mut self, place: usize, time: Option<i64>) {
        if std::mem::replace(&mut self.times[place], time) == time {
            return;
        }
        let mut node = (self.times.len() + place) / 2;
        while node > 0 {
            self.play(node);
            node /= 2;
        }
    }

    /// The least time and its place, the first of those that share it.
    pub(super) fn first(&self) -> Option<(i64, usize)> {
        let place = self.winner(1);
        self.times[place].map(|time| (time, place))
    }

    /// The winner at a node or leaf.
    fn winner(&self, node: usize) -> usize {
        self.nodes.get(node).map_or_else(|| node - self.times.len(), |place| *place as usize)
    }

    #[expect(clippy::cast_possible_truncation, reason = "key groups are at most 32,768")]
    fn play(&mut self, node: usize) {
        let (a, b) = (self.winner(2 * node), self.winner(2 * node + 1));
        let b_wins = match (self.times[a], self.times[b]) {
            (Some(a), Some(b)) => b < a,
            (a, b) => a.is_none() && b.is_some(),
        };
        self.nodes[node] = if b_wins { b } else { a } as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checksum;

    #[test]
    fn the_first_is_the_least_whatever_changes() {
        for count in [1, 2, 3, 7, 128] {
            let (mut winners, mut times) = (Winners::new(count), vec![None; count]);
            assert_eq!(winners.first(), None);
            for step in 0..2000_u64 {
                let random = checksum::hash64(&step.to_le_bytes());
                let place = (random >> 8) as usize % count;
                let time = (!random.is_multiple_of(3)).then_some((random >> 40) as i64 % 50 - 25);
                winners.set(place, time);
                times[place] = time;
                let least = times.iter().enumerate().filter_map(|(at, time)| time.map(|time| (time, at))).min();
                assert_eq!(winners.first(), least);
            }
        }
    }
}

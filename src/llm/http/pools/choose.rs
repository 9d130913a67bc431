//! Which of several servers, or keys, a call gets (pure).
//!
//! A call has a number, its affinity, which it shares with calls that begin alike. From it and a number of each server
//! every server gets a score, and the highest score wins: rendezvous hashing, by which a server that comes or goes moves
//! only its own calls. A server with twice the weight wins twice as many calls. Bounded by load, calls go to the
//! next best server while the best one has more to do than its part.

use crate::config::Balance;

/// A server that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// A number of its own, the same in all replicas.
    pub seed: u64,
    /// How much of the calls it gets, beside others.
    pub weight: u32,
    /// How many calls are under way.
    pub active: u32,
}

/// The place of the candidate that a call of this affinity goes to; `None` if there are none.
pub fn choose(balance: Balance, affinity: u64, candidates: &[Candidate]) -> Option<usize> {
    let total = Load {
        active: candidates.iter().map(|candidate| u64::from(candidate.active)).sum(),
        weight: candidates.iter().map(|candidate| u64::from(candidate.weight)).sum(),
    };
    let mut best: Option<(usize, &Candidate, f64)> = None;
    for (place, candidate) in candidates.iter().enumerate() {
        if balance == Balance::Session && !total.leaves_room_at(candidate) {
            continue;
        }
        let score = score(affinity, candidate);
        let is_better = best.is_none_or(|(_, other, highest)| match balance {
            Balance::Session => score > highest,
            Balance::LeastBusy => {
                let (own, its) = (load_beside(candidate, other), load_beside(other, candidate));
                own < its || (own == its && score > highest)
            }
        });
        if is_better {
            best = Some((place, candidate, score));
        }
    }
    best.map(|(place, ..)| place)
}

/// What all candidates have to do together.
struct Load {
    active: u64,
    weight: u64,
}

impl Load {
    /// Whether a candidate has less to do than 1.25 times its part of all calls, this one included. At least one
    /// candidate has.
    fn leaves_room_at(&self, candidate: &Candidate) -> bool {
        let part = 5 * (self.active + 1) * u64::from(candidate.weight);
        u64::from(candidate.active) < part.div_ceil(4 * self.weight.max(1))
    }
}

/// What a candidate has to do with one call more, multiplied so that it compares with that of the other.
fn load_beside(candidate: &Candidate, other: &Candidate) -> u64 {
    (u64::from(candidate.active) + 1) * u64::from(other.weight)
}

/// The score of a candidate: of calls with all affinities, it is the highest for its part of the weights.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn score(affinity: u64, candidate: &Candidate) -> f64 {
    let bits = mix(affinity ^ mix(candidate.seed)) >> 11;
    let even = (bits as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(candidate.weight) / even.ln()
}

/// A number in which every bit depends on every bit of the given one: the last step of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn idle(weights: &[u32]) -> Vec<Candidate> {
        let candidate = |(seed, weight): (usize, &u32)| Candidate { seed: seed as u64 + 7, weight: *weight, active: 0 };
        weights.iter().enumerate().map(candidate).collect()
    }

    /// How many of 10,000 sessions each of these candidates gets.
    fn sessions(candidates: &[Candidate]) -> Vec<u32> {
        let mut counts = vec![0; candidates.len()];
        for session in 0..10_000 {
            counts[choose(Balance::Session, mix(session), candidates).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn sessions_are_spread_by_weight() {
        for (weights, expected) in [(&[1, 1, 1][..], [3_333, 3_333, 3_333]), (&[3, 1, 1], [6_000, 2_000, 2_000])] {
            for (count, expected) in sessions(&idle(weights)).into_iter().zip(expected) {
                assert!(count.abs_diff(expected) < 250, "{count} instead of {expected}");
            }
        }
    }

    #[test]
    fn only_the_sessions_of_a_server_that_left_go_elsewhere() {
        let (all, left) = (idle(&[1, 1, 1, 1]), idle(&[1, 1, 1]));
        for session in (0..1_000).map(mix) {
            let before = choose(Balance::Session, session, &all).unwrap();
            if before != 3 {
                assert_eq!(choose(Balance::Session, session, &left), Some(before));
            }
        }
    }

    #[test]
    fn the_least_busy_is_that_for_its_weight() {
        let mut candidates = idle(&[1, 3]);
        let mut next = |affinity| {
            let chosen = choose(Balance::LeastBusy, affinity, &candidates).unwrap();
            candidates[chosen].active += 1;
            chosen
        };
        let chosen: Vec<_> = (0..8).map(|call| next(mix(call))).collect();
        assert_eq!(chosen[..2], [1, 1], "the first two of four calls are the heavier one's");
        assert_eq!(chosen.iter().filter(|chosen| **chosen == 0).count(), 2);
        let idle = idle(&[1, 1, 1]);
        let chosen = |affinity| choose(Balance::LeastBusy, affinity, &idle).unwrap();
        assert!((0..50).any(|call| chosen(mix(call)) != chosen(0)), "which of equals it is, the session says");
        assert_eq!(chosen(9), chosen(9));
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let candidate = (any::<u64>(), 1..=1_000_u32, 0..=5_000_u32);
        let candidate = candidate.prop_map(|(seed, weight, active)| Candidate { seed, weight, active });
        proptest::collection::vec(candidate, 0..10)
    }

    proptest! {
        #[test]
        fn some_candidate_is_always_chosen_and_none_that_is_overloaded(affinity: u64, candidates in candidates()) {
            for balance in [Balance::Session, Balance::LeastBusy] {
                let chosen = choose(balance, affinity, &candidates);
                prop_assert_eq!(chosen.is_none(), candidates.is_empty());
                let Some(chosen) = chosen.map(|place| candidates[place]) else { continue };
                let ratio = |candidate: &Candidate| f64::from(candidate.active + 1) / f64::from(candidate.weight);
                if balance == Balance::LeastBusy {
                    prop_assert!(candidates.iter().all(|other| ratio(&chosen) <= ratio(other) * 1.000_001));
                }
                let active: u32 = candidates.iter().map(|candidate| candidate.active).sum();
                let weight: u32 = candidates.iter().map(|candidate| candidate.weight).sum();
                let part = f64::from(active + 1) * f64::from(chosen.weight) / f64::from(weight);
                prop_assert!(f64::from(chosen.active) < 1.25 * part + 1.0);
            }
        }
    }
}

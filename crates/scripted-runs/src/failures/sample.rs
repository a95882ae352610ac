//! The choice of the cases that are run, if there are too many.

use std::collections::{BTreeMap, BTreeSet};

/// Which of `cases` are run, and which are left out, both in their order. At most `most` are run. Every group, such as the failures
/// of one step, gets a case before one of them gets a second; within a group the seed decides.
pub(super) fn sample<T, G: Ord>(
    cases: Vec<T>,
    most: usize,
    seed: u64,
    group: impl Fn(&T) -> G,
) -> (Vec<T>, Vec<T>) {
    if cases.len() <= most {
        return (cases, Vec::new());
    }
    let mut shuffled: Vec<_> = cases.iter().enumerate().collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
    let mut sizes: BTreeMap<G, usize> = BTreeMap::new();
    let ranked = shuffled.into_iter().map(|(number, case)| {
        let before = sizes.entry(group(case)).or_default();
        *before += 1;
        (*before, number)
    });
    let mut ranked: Vec<_> = ranked.collect();
    // A stable sort: the order within a rank is that of the shuffle.
    ranked.sort_by_key(|(rank, _)| *rank);
    let chosen: BTreeSet<_> = ranked.into_iter().take(most).map(|(_, number)| number).collect();
    let (run, left_out): (Vec<_>, Vec<_>) =
        cases.into_iter().enumerate().partition(|(number, _)| chosen.contains(number));
    let without_number = |cases: Vec<(usize, T)>| cases.into_iter().map(|(_, case)| case).collect();
    (without_number(run), without_number(left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_deterministic_and_has_a_case_of_each_group_before_a_second_one() {
        let cases: Vec<u32> = (0..100).collect();
        let sampled = |most, seed| sample(cases.clone(), most, seed, |case| case / 10);
        let (run, left_out) = sampled(25, 7);
        assert_eq!(sampled(25, 7), (run.clone(), left_out.clone()));
        assert_ne!(sampled(25, 8).0, run);
        let mut all: Vec<_> = run.iter().chain(&left_out).copied().collect();
        assert!(run.is_sorted() && left_out.is_sorted() && run.len() == 25);
        all.sort_unstable();
        assert_eq!(all, cases);
        for group in 0..10 {
            let of_group = run.iter().filter(|case| **case / 10 == group).count();
            assert!((2..=3).contains(&of_group), "{of_group} of group {group}");
        }
        assert_eq!(sampled(100, 7), (cases.clone(), Vec::new()));
        assert_eq!(sampled(0, 7).0, Vec::<u32>::new());
    }
}

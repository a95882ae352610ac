use super::{Totals, simulate};

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 42] {
        let (one, other) = (simulate(seed, true).unwrap(), simulate(seed, true).unwrap());
        assert!(one.trace.len() > 50, "{:?}", one.trace);
        assert_eq!(one, other);
    }
}

#[test]
fn a_number_of_seeds_come_to_rest() {
    let mut totals = Totals::default();
    for seed in 0..150 {
        let report = simulate(seed, false).unwrap();
        assert_eq!(report.findings, Vec::<String>::new(), "steward simulate --seed {seed}");
        totals.add(&report.totals);
    }
    // Every ending is reached, and the storm is one.
    for state in ["Processed", "Undone", "Error"] {
        assert!(totals.tasks.get(state).is_some_and(|count| *count > 20), "{totals:?}");
    }
    assert!(totals.faults > 1_000, "{totals:?}");
}

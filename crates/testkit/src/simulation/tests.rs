use super::{
    SimulationTotals,
    bend::{bend, is_sound},
    dice::Dice,
    plan::blueprints,
    simulate,
};

#[test]
fn the_checker_accepts_what_makes_sense_and_nothing_else() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..500 {
        let dice = &mut Dice::new(seed);
        for mut blueprint in blueprints(dice).unwrap() {
            let problems = blueprint.workflow().unwrap().problems();
            assert_eq!(problems, [], "seed {seed}: {:#}", blueprint.definition());
            bend(&mut blueprint, dice);
            let problems = blueprint.workflow().unwrap().problems();
            let sound = is_sound(&blueprint);
            let definition = blueprint.definition();
            assert_eq!(problems.is_empty(), sound, "seed {seed}: {definition:#} {problems:#?}");
            *(if sound { &mut accepted } else { &mut refused }) += 1;
        }
    }
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}

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
    let mut totals = SimulationTotals::default();
    for seed in 0..150 {
        let report = simulate(seed, false).unwrap();
        assert_eq!(report.findings, Vec::<String>::new(), "replay with: simulate --seed {seed}");
        totals.add(&report.totals);
    }
    // Every ending is reached, and the storm is one.
    for state in ["Processed", "Undone", "Error"] {
        assert!(totals.tasks.get(state).is_some_and(|count| *count > 20), "{totals:?}");
    }
    assert!(totals.faults > 1_000, "{totals:?}");
    for steps in [
        "call completed",
        "call failed",
        "call skipped",
        "call item completed",
        "call item undo completed",
        "callback completed",
        "callback failed",
        "callback item completed",
        "wait completed",
        "workflow completed",
        "workflow failed",
        "workflow undo completed",
        "workflow item completed",
        "workflow item undo completed",
    ] {
        assert!(totals.steps.get(steps).is_some_and(|count| *count > 3), "{steps}: {totals:?}");
    }
}

use steward_core::definition::workflow::Workflow;

use super::{
    SimulationTotals,
    blueprint::Blueprint,
    mutation::{is_valid, mutate},
    random::SeededRandom,
    random_plan::blueprints,
    simulate,
};

#[test]
fn validation_accepts_exactly_the_valid_mutations() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..500 {
        let random = &mut SeededRandom::new(seed);
        for mut blueprint in blueprints(random).unwrap() {
            let problems = parsed(&blueprint).problems();
            assert_eq!(problems, [], "seed {seed}: {:#}", blueprint.definition());
            mutate(&mut blueprint, random);
            let problems = parsed(&blueprint).problems();
            let valid = is_valid(&blueprint);
            let definition = blueprint.definition();
            assert_eq!(problems.is_empty(), valid, "seed {seed}: {definition:#} {problems:#?}");
            *(if valid { &mut accepted } else { &mut refused }) += 1;
        }
    }
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}

/// The definition, which need not be valid.
fn parsed(blueprint: &Blueprint) -> Workflow {
    serde_json::from_value(blueprint.definition()).unwrap()
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
fn some_services_answer_errors_with_200() {
    let has_error = |seed| {
        let trace = simulate(seed, true).unwrap().trace;
        trace.iter().any(|line| line.contains("has no effect; response: 200"))
    };
    assert!((0..40).any(has_error));
}

#[test]
fn the_first_150_seeds_have_no_findings() {
    let mut totals = SimulationTotals::default();
    for seed in 0..150 {
        let report = simulate(seed, false).unwrap();
        assert_eq!(report.findings, Vec::<String>::new(), "replay with: simulate --seed {seed}");
        totals.add(&report.totals);
    }
    // Every final state is reached, and enough faults are injected.
    for state in ["Processed", "Undone", "Error"] {
        assert!(totals.tasks.get(state).is_some_and(|count| *count > 20), "{totals:?}");
    }
    assert!(totals.faults > 1_000, "{totals:?}");
    assert!(totals.rate_deferrals > 100, "{totals:?}");
    assert!(totals.agent_moves > 20, "{totals:?}");
    assert!(totals.payload_tasks > 100 && totals.payloads_stored > 60, "{totals:?}");
    assert!(totals.payloads_sent > 30 && totals.forgeries_refused > 10, "{totals:?}");
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
        "event completed",
        "event failed",
        "event item completed",
        "workflow completed",
        "workflow failed",
        "workflow undo completed",
        "workflow item completed",
        "workflow item undo completed",
    ] {
        assert!(totals.steps.get(steps).is_some_and(|count| *count > 3), "{steps}: {totals:?}");
    }
}

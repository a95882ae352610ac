//! Fail-over drill: a Region fails, and the deployment continues in another Region with replicas of its tables. Global tables
//! with eventual consistency replicate each item by itself and in no order, so each replica is missing some of the newest
//! writes: a task may be newer than its documents, its child task or the records that instances share, or older. All
//! messages are lost. The oracle is that of the restore drill.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::Value;

use super::{
    restore::{COPY_EVERY, Loss, course, problems, undisturbed},
    scenario::TASKS,
    tables,
    world::{Moment, World},
};

/// How long a drill may take by its own clock.
const HOURS_MAX: i64 = 30;

/// Steps whose writes a replica with a short lag may lack.
const FEW_STEPS: usize = 8;

/// Different losses for each pair of moments.
const SEEDS: u64 = 2;

/// The items of a replica: each has, by chance, the version of the older or of the newer moment.
fn replica(older: &[Value], newer: &[Value], random: &mut Rng) -> Vec<Value> {
    let by_key = |items: &[Value]| -> BTreeMap<String, Value> {
        let key = |item: &Value| format!("{} {}", item["task_id"], item["document"]);
        items.iter().map(|item| (key(item), item.clone())).collect()
    };
    let (older, mut newer) = (by_key(older), by_key(newer));
    newer.retain(|key, _| older.contains_key(key) || random.bool());
    for (key, item) in older {
        if random.bool() {
            newer.insert(key, item);
        }
    }
    newer.into_values().collect()
}

/// The deployment continues in another Region. The service knows all that happened until `newer`.
async fn fail_over(older: &Moment, newer: &Moment, random: &mut Rng) -> World {
    // The definitions are not replicated: the same versions are published in the second stack.
    let mut second = newer.clone();
    second.tables.remove("steward-workflows");
    let mut world = World::at(&second).await;
    for table in ["steward-tasks", "steward-documents"] {
        let items = replica(&older.tables[table], &newer.tables[table], random);
        tables::restore_table(&world.dynamodb, table, &items).await;
    }
    world.network.set_pending(Vec::new());
    // The time in which people decide.
    world.deployment.clock.advance_seconds(900);
    world.submit_missing().await;
    world.run_to_end(HOURS_MAX).await;
    world
}

/// Fails over from each copy to the next one, with different losses. Returns what the oracle finds.
async fn problems_of(copy_every: usize) -> Vec<String> {
    let course = course(copy_every).await;
    let (mut found, mut runs, mut ends) = (Vec::new(), 0, 0);
    for (n, pair) in course.copies.windows(2).enumerate() {
        let [older, newer] = pair else { continue };
        for seed in 0..SEEDS {
            let mut random = Rng::with_seed(seed);
            let world = fail_over(older, newer, &mut random).await;
            let problems = problems(&world, Loss::Documents, &[]).await;
            runs += 1;
            ends += undisturbed(&world).await;
            found
                .extend(problems.iter().map(|problem| format!("copy {n}, seed {seed}: {problem}")));
        }
    }
    let tasks = runs * TASKS.len();
    assert!(runs > 0 && ends > tasks / 2, "{ends} of {tasks} end as in an undisturbed run");
    found
}

#[tokio::test(start_paused = true)]
async fn a_fail_over_with_a_lost_tail_of_writes_repeats_no_effect_and_strands_no_task() {
    let found = problems_of(COPY_EVERY).await;
    assert!(found.is_empty(), "{found:#?}");
}

/// As a replica with a lag of a second or less: a few writes are missing, at any moment of the run.
#[tokio::test(start_paused = true)]
#[ignore = "long"]
async fn a_fail_over_that_loses_the_last_few_writes_repeats_no_effect_and_strands_no_task() {
    let found = problems_of(FEW_STEPS).await;
    assert!(found.is_empty(), "{found:#?}");
}

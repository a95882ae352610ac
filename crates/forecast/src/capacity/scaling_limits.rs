//! Limits that depend on settings: the throughput of a table, of an index whose keys are spread over partitions, and
//! pollers that are added gradually.

use super::settings::ScaleSettings;
use crate::cost::Resource;

/// The resources of the tables and the due index.
pub(super) const TABLES: [Resource; 5] = [
    Resource::TasksWrites,
    Resource::TasksReads,
    Resource::IndexWrites,
    Resource::DocumentsWrites,
    Resource::DocumentsReads,
];

/// How often the assignment of shards to partitions is drawn. The median is used.
const DRAWS: usize = 101;

/// The units per second that a table or the index has.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableThroughput {
    pub(super) quota: f64,
    pub(super) warm: f64,
}

impl TableThroughput {
    pub(super) fn of(settings: &ScaleSettings, resource: Resource) -> Self {
        let (limits, deployment) = (&settings.limits, &settings.deployment);
        let (quota, at_start, warm) = match resource.is_read() {
            true => {
                (&limits.table_reads_quota, &limits.table_reads_at_start, deployment.warm_reads)
            }
            false => {
                (&limits.table_writes_quota, &limits.table_writes_at_start, deployment.warm_writes)
            }
        };
        Self { quota: quota.value, warm: at_start.value.max(warm) }
    }
}

/// The write units per second of the whole due index at which its busiest partition is full. The keys of the tables are
/// spread evenly.
pub(super) fn index_writes_max(settings: &ScaleSettings) -> f64 {
    let (limits, deployment) = (&settings.limits, &settings.deployment);
    let warm = |resource| TableThroughput::of(settings, resource).warm;
    let partitions = (warm(Resource::IndexWrites) / limits.partition_writes.value)
        .max(warm(Resource::TasksReads) / limits.partition_reads.value);
    let busiest = match deployment.rehearsed {
        true => 1,
        false => busiest(deployment.shards, partitions.ceil() as u32),
    };
    limits.partition_writes.value * f64::from(deployment.shards) / f64::from(busiest)
}

/// The number of keys on the busiest partition: the median of random assignments. AWS hashes keys, so the assignment
/// cannot be known.
fn busiest(keys: u32, partitions: u32) -> u32 {
    let partitions = partitions.max(1) as usize;
    let mut draw = fastrand::Rng::with_seed(u64::from(keys));
    let mut most: Vec<_> = (0..DRAWS)
        .map(|_| {
            let mut loads = vec![0_u32; partitions];
            for _ in 0..keys {
                if let Some(load) = loads.get_mut(draw.usize(..partitions)) {
                    *load += 1;
                }
            }
            loads.into_iter().max().unwrap_or(0)
        })
        .collect();
    most.sort_unstable();
    most.get(DRAWS / 2).copied().unwrap_or(1).max(1)
}

/// How many concurrent invocations the pollers of a queue support over time.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollerScaling {
    start: f64,
    more_per_s: f64,
    pub(super) max: f64,
}

impl PollerScaling {
    pub(super) fn of(settings: &ScaleSettings) -> Self {
        let (limits, pollers) = (&settings.limits, settings.deployment.pollers);
        let (start, more, max) = match pollers > 0.0 {
            true => (
                pollers * limits.provisioned_invocations_per_poller.value,
                &limits.provisioned_invocations_added_per_minute,
                &limits.provisioned_invocations_max,
            ),
            false => (
                limits.invocations_at_start.value,
                &limits.invocations_added_per_minute,
                &limits.invocations_max,
            ),
        };
        Self { start, more_per_s: more.value / 60.0, max: max.value }
    }

    /// The seconds until there are pollers for this many concurrent invocations; `None` if there never are.
    pub(super) fn reach(&self, at_once: f64) -> Option<f64> {
        (at_once <= self.max).then(|| (at_once - self.start).max(0.0) / self.more_per_s)
    }

    /// The seconds until `work_s` seconds of invocations are done, with at most `at_once` concurrent invocations.
    pub(super) fn time_for(&self, work_s: f64, at_once: f64) -> f64 {
        let most = at_once.min(self.max);
        let start = self.start.min(most);
        let growing_s = (most - start) / self.more_per_s;
        let grown = (start + most) / 2.0 * growing_s;
        if work_s >= grown {
            return growing_s + (work_s - grown) / most;
        }
        // start·t + more·t²/2 = work
        let root = (start * start + 2.0 * self.more_per_s * work_s).sqrt();
        (root - start) / self.more_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pollers_are_added_until_there_are_enough() {
        let pollers = PollerScaling { start: 5.0, more_per_s: 5.0, max: 1_250.0 };
        assert_eq!(pollers.reach(400.0), Some(79.0));
        assert_eq!(pollers.reach(2.0), Some(0.0));
        assert_eq!(pollers.reach(1_251.0), None);
        // 5 + 5t over 10 s is 300; with 20 at most, 3 s bring 37.5, and the rest takes its time.
        assert!((pollers.time_for(300.0, 1_000.0) - 10.0).abs() < 1e-9);
        assert!((pollers.time_for(300.0, 20.0) - (3.0 + 262.5 / 20.0)).abs() < 1e-9);
        assert!((pollers.time_for(300.0, 2.0) - 150.0).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_partition_has_several_keys() {
        assert_eq!(busiest(8, 1), 8);
        assert_eq!(busiest(1, 40), 1);
        // As many keys as partitions: about three are on the busiest.
        assert!((3..=5).contains(&busiest(40, 40)));
        // Many keys even out.
        assert!(busiest(6_400, 64) < 150);
    }
}

//! What there is of a limit that changes: tables that grow with their load, an index whose keys fall on
//! partitions, pollers that come by and by.

use super::{bounds::Bound, settings::Settings};
use crate::cost::Asked;

/// What the tables and the index are asked for.
pub(super) const TABLES: [Asked; 5] = [
    Asked::TasksWrites,
    Asked::TasksReads,
    Asked::IndexWrites,
    Asked::DocumentsWrites,
    Asked::DocumentsReads,
];

/// How often the placing of shards on partitions is drawn; the median counts.
const DRAWS: usize = 101;

/// How many write or read units a table, or an index, takes a second.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) quota: f64,
    pub(super) warm: f64,
    shards: Option<Shards>,
    grows_to: f64,
    grows_every_s: f64,
    grown_at_s: f64,
    /// What may be asked at this moment, at most what a second has.
    left: f64,
    peak: f64,
    second: f64,
    used: f64,
}

/// The index's partition keys.
#[derive(Debug, Clone, Copy)]
struct Shards {
    count: u32,
    rehearsed: bool,
    partition: f64,
    partition_reads: f64,
    warm_reads: f64,
}

impl Table {
    pub(super) fn of(settings: &Settings, asked: Asked) -> Self {
        let (limits, deployment) = (&settings.limits, &settings.deployment);
        let writes = (
            limits.table_writes_quota.value,
            limits.table_writes_at_start.value.max(deployment.warm_writes),
        );
        let reads = (
            limits.table_reads_quota.value,
            limits.table_reads_at_start.value.max(deployment.warm_reads),
        );
        let (quota, warm) = match asked {
            Asked::TasksReads | Asked::DocumentsReads => reads,
            Asked::TasksWrites | Asked::IndexWrites | Asked::DocumentsWrites | Asked::Events => {
                writes
            }
        };
        let shards = (asked == Asked::IndexWrites).then_some(Shards {
            count: deployment.shards,
            rehearsed: deployment.rehearsed,
            partition: limits.partition_writes.value,
            partition_reads: limits.partition_reads.value,
            warm_reads: reads.1,
        });
        Self {
            quota,
            warm,
            shards,
            grows_to: limits.table_grows_to.value,
            grows_every_s: limits.table_grows_every.value,
            grown_at_s: 0.0,
            left: 0.0,
            peak: 0.0,
            second: 0.0,
            used: 0.0,
        }
    }

    /// What it takes in all when the busiest of its partitions takes no more. Absent if its keys are as
    /// many as there are tasks, and so spread evenly.
    pub(super) fn hot(&self) -> Option<f64> {
        let shards = self.shards?;
        let partitions =
            (self.warm / shards.partition).max(shards.warm_reads / shards.partition_reads);
        let busiest = match shards.rehearsed {
            true => 1,
            false => busiest(shards.count, partitions.ceil() as u32),
        };
        Some(shards.partition * f64::from(shards.count) / f64::from(busiest))
    }

    /// What it takes a second, and which limit that is.
    pub(super) fn rate(&self, asked: Asked) -> (f64, Bound) {
        let quota = (self.quota, Bound::Quota(asked));
        let warm = (self.warm, Bound::Warm(asked));
        let hot = self.hot().map(|hot| (hot, Bound::Shards));
        let tighter = if warm.0 < quota.0 { warm } else { quota };
        hot.filter(|hot| hot.0 < tighter.0).unwrap_or(tighter)
    }

    /// Time passes. `rate` is what it takes a second.
    pub(super) fn pass(&mut self, now_s: f64, tick_s: f64, rate: f64) {
        self.left = (self.left + rate * tick_s).min(rate);
        if now_s >= self.second + 1.0 {
            self.peak = self.peak.max(self.used / (now_s - self.second));
            (self.second, self.used) = (now_s, 0.0);
        }
    }

    /// Whether it has grown: as far as its load allows, each half hour.
    pub(super) fn grow(&mut self, now_s: f64) -> bool {
        if now_s < self.grown_at_s + self.grows_every_s {
            return false;
        }
        self.grown_at_s = now_s;
        let before = self.warm;
        self.warm = self.warm.max(self.peak * self.grows_to);
        self.warm > before
    }

    /// What may be asked at this moment.
    pub(super) fn left(&self) -> f64 {
        self.left
    }

    pub(super) fn take(&mut self, units: f64) {
        self.left -= units;
        self.used += units;
    }
}

/// How many of so many keys lie on the partition that has most of them, if each may lie on any: the
/// median of some draws. AWS hashes keys; which lie together is not known before.
pub(super) fn busiest(keys: u32, partitions: u32) -> u32 {
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

/// How many batches of a queue are in hand at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pollers {
    pub(super) start: f64,
    pub(super) more_per_s: f64,
    pub(super) max: f64,
}

impl Pollers {
    pub(super) fn of(settings: &Settings) -> Self {
        let (limits, pollers) = (&settings.limits, settings.deployment.pollers);
        let (start, more, max) = if pollers > 0.0 {
            let start = pollers * limits.provisioned_poller_holds.value;
            (start, &limits.provisioned_more_per_minute, &limits.provisioned_max)
        } else {
            let start = limits.pollers_at_start.value;
            (start, &limits.pollers_more_per_minute, &limits.pollers_max)
        };
        Self { start, more_per_s: more.value / 60.0, max: max.value }
    }

    /// When there are so many, in seconds from when messages wait; absent if there never are.
    pub(super) fn reach(&self, at_once: f64) -> Option<f64> {
        (at_once <= self.max).then(|| (at_once - self.start).max(0.0) / self.more_per_s)
    }

    /// How long it takes until so many seconds of invocations have been had, `at_once` at most at a time.
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
    fn pollers_grow_until_there_are_enough() {
        let pollers = Pollers { start: 5.0, more_per_s: 5.0, max: 1_250.0 };
        assert_eq!(pollers.reach(400.0), Some(79.0));
        assert_eq!(pollers.reach(2.0), Some(0.0));
        assert_eq!(pollers.reach(1_251.0), None);
        // 5 + 5t over 10 s is 300; with 20 at most, 3 s bring 37.5, and the rest takes its time.
        assert!((pollers.time_for(300.0, 1_000.0) - 10.0).abs() < 1e-9);
        assert!((pollers.time_for(300.0, 20.0) - (3.0 + 262.5 / 20.0)).abs() < 1e-9);
        assert!((pollers.time_for(300.0, 2.0) - 150.0).abs() < 1e-9);
    }

    #[test]
    fn keys_that_lie_together_make_a_partition_busy() {
        assert_eq!(busiest(8, 1), 8);
        assert_eq!(busiest(1, 40), 1);
        // As many keys as partitions: some three lie on the busiest.
        assert!((3..=5).contains(&busiest(40, 40)));
        // Many keys even out.
        assert!(busiest(6_400, 64) < 150);
    }

    #[test]
    fn a_table_grows_to_twice_its_load_every_half_hour() {
        let mut settings = super::super::tests::settings_of_nothing();
        settings.limits.table_grows_every.value = 30.0;
        let mut table = Table::of(&settings, Asked::TasksWrites);
        assert_eq!(table.rate(Asked::TasksWrites), (4_000.0, Bound::Warm(Asked::TasksWrites)));
        for second in 1..=60 {
            let now_s = f64::from(second);
            table.pass(now_s, 1.0, 4_000.0);
            let left = table.left();
            table.take(left.min(3_000.0));
            let grown = table.grow(now_s);
            assert_eq!(grown, second == 30, "{second}");
        }
        assert!((table.warm - 6_000.0).abs() < 1.0, "{}", table.warm);
    }
}

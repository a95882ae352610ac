//! Measures the time of the codec: `cargo bench --workspace --bench codec`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "as in a test")]

use std::time::Duration;

use criterion::{BatchSize, Criterion};

#[path = "../../../core/benches/core/case.rs"]
mod case;
mod cases;
#[path = "../../../core/benches/core/fixtures.rs"]
mod fixtures;

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for case in cases::cases() {
        criterion.bench_function(&case.name, |bencher| {
            bencher.iter_batched(|| case.prepare(), |work| work(), BatchSize::SmallInput);
        });
    }
    criterion.final_summary();
}

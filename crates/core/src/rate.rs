//! Rate limits of agents: how many calls all instances of an agent may make together, and what happens to the others.
//!
//! A limit is a rate `R` (calls per second) and a burst `B`. Each call takes a *token*. The tokens have *slots*, times
//! that are at least `1/R` apart, and a call begins at its slot or later. The agent's instances share one record: the
//! first slot that no instance has leased. An instance leases tokens in blocks, so the number of writes does not depend on the
//! rate.
//!
//! ```text
//!                 leased by another instance      leased now: k tokens                   not leased
//!             ───────────────────────────────┬──────────────────────────────────┬─────────────────────► time
//!                                  first slot = max(next, now - (B-1)/R)    next' = first + k/R
//!             slots of the past: unused rate, at most B-1       slots of the future: calls wait, at most 1 s
//!
//! call ──► token in the lease ──► slot has passed: call
//!            │                └─► slot within a second: wait for it, then call
//!            └─ none ──► lease tokens from the record ──► none left: the step is deferred to its place in the line
//! ```
//!
//! This is the virtual scheduling algorithm of the generic cell rate algorithm, ITU-T I.371 (a token bucket): `next` is
//! its theoretical arrival time, `(B-1)/R` its tolerance.
//!
//! **How many tokens** an instance leases: one for each call that waits now, and as many as it used recently in the
//! [`LEASE_PERIOD`], at most those with slots up to [`WAIT_MAX`] ahead. They expire [`LEASE_LIFETIME`] after the lease. If
//! it gets fewer than it asked for, it pauses before it asks again. The pause grows with the number of instances that ask, so
//! that all of them together make about [`LEASES_PER_SECOND`].
//!
//! **The bound.** A token is used between its slot and the end of its lease, so its slot is at most
//! `LEASE_LIFETIME + (B-1)/R` older than its call. Slots are `1/R` apart. In every window of length `T` there are therefore
//! at most `R·(T + LEASE_LIFETIME + skew) + B` calls, if clocks differ by at most `skew` ([`RateLimit::calls_max`]). Crashes
//! and lost responses only lose tokens. A single instance that is busy stays at `R·T + B`.
//!
//! **The line.** A call without a token is deferred. The record keeps the end of a virtual line, whose places are `1/R`
//! apart: deferred calls return at the rate, not all at once. A place is a time to return, not a token. A call that
//! returns competes with the new ones of the same second. If these arrive at rate `D`, it gets a token with probability
//! `R/(R+D)`, and after `n` returns it still waits with probability `(D/(R+D))^n`. No call is postponed for ever by
//! design, and none is guaranteed a time.
//!
//! The functions here are pure: times are arguments. An instance saves a changed record on the condition that the stored
//! record has not changed.

mod record;
mod tokens;

pub use record::{
    LEASE_LIFETIME, LEASE_PERIOD, LEASES_PER_SECOND, LINE_MAX, Lease, LeaseRequest, RateLimit,
    RateRecord, WAIT_MAX,
};
pub use tokens::{InstanceTokens, TokenDecision};

#[cfg(test)]
mod tests;

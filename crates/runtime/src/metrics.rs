//! Every metric of Steward, declared in one place. They are counters, through the `metrics` facade:
//! whoever runs the process decides where they go, and without a recorder they cost nothing.

use metrics::counter;

use steward_core::{
    breaker::Turned,
    engine::decision::Ignored,
    model::{
        attempt::Action,
        task::{ProcessState, Task},
    },
};

/// Tasks that ended, by `state`: `Processed`, `Undone` or `Error`.
pub const TASKS_ENDED: &str = "steward_tasks_ended_total";

/// Attempts that were started, the first at each step included.
pub const ATTEMPTS_STARTED: &str = "steward_attempts_started_total";

/// Attempts that failed, whether an agent said so or the supervisor found it.
pub const ATTEMPTS_FAILED: &str = "steward_attempts_failed_total";

/// Events that changed nothing, by `reason`: duplicates, stale and late replies, early wakes.
pub const EVENTS_IGNORED: &str = "steward_events_ignored_total";

/// Races for a task that were lost and decided again.
pub const SAVES_CONFLICTED: &str = "steward_saves_conflicted_total";

/// Calls that agents repeated within one attempt.
pub const CALLS_RETRIED: &str = "steward_calls_retried_total";

/// Attempts at whose end the agent said nothing.
pub const AGENTS_SILENT: &str = "steward_agents_silent_total";

/// Attempts that were deferred because the agent's circuit breaker is open, or because the service
/// asked for more time than the attempt has.
pub const ATTEMPTS_DEFERRED: &str = "steward_attempts_deferred_total";

/// Circuit breakers that turned, by `to`: `Opened` or `Closed`.
pub const BREAKERS_TURNED: &str = "steward_breakers_turned_total";

/// Tasks that stopped in Error with something left to undo; these also count as ended in `Error`.
pub const UNDOS_FAILED: &str = "steward_undos_failed_total";

/// A supervisor's runs that read all their shards, or ran out of time: while none are counted, nothing
/// that is lost is made good.
pub const SWEEPS: &str = "steward_sweeps_total";

/// Submissions that can never succeed and were refused.
pub const SUBMISSIONS_REFUSED: &str = "steward_submissions_refused_total";

/// Messages that a function reported as failed, counted at each delivery. SQS redelivers them.
pub const MESSAGES_FAILED: &str = "steward_messages_failed_total";

/// Statements of a batch that the engine refused for another reason than their condition, by `code`. Each was then
/// written alone.
pub const STATEMENTS_REFUSED: &str = "steward_statements_refused_total";

/// Counts a save: what ended, started and failed with it.
pub fn saved(before: &Task, after: &Task) {
    if after.process_state.is_final() && !before.process_state.is_final() {
        counter!(TASKS_ENDED, "state" => after.process_state.to_string()).increment(1);
        if after.process_state == ProcessState::Error && after.direction() == Action::Undo {
            counter!(UNDOS_FAILED).increment(1);
        }
    }
    let failed = after.failure_count.saturating_sub(before.failure_count);
    counter!(ATTEMPTS_FAILED).increment(u64::from(failed));
    let attempts = |task: &Task| {
        task.actions().map(|(.., progress)| u64::from(progress.state.attempt())).sum::<u64>()
    };
    counter!(ATTEMPTS_STARTED).increment(attempts(after).saturating_sub(attempts(before)));
}

/// Counts an event that changed nothing.
pub fn ignored(reason: Ignored) {
    counter!(EVENTS_IGNORED, "reason" => format!("{reason:?}")).increment(1);
}

/// Counts a race that was lost.
pub fn conflict() {
    counter!(SAVES_CONFLICTED).increment(1);
}

/// Counts a repeated call to a remote service.
pub fn call_retried() {
    counter!(CALLS_RETRIED).increment(1);
}

/// Counts an attempt at whose end the agent said nothing.
pub fn agent_silent() {
    counter!(AGENTS_SILENT).increment(1);
}

/// Counts an attempt that was deferred.
pub fn deferred() {
    counter!(ATTEMPTS_DEFERRED).increment(1);
}

/// Counts a circuit breaker that opened or closed.
pub fn breaker_turned(to: Turned) {
    counter!(BREAKERS_TURNED, "to" => format!("{to:?}")).increment(1);
}

/// Counts a supervisor's run.
pub fn swept() {
    counter!(SWEEPS).increment(1);
}

/// Counts a submission that was refused.
pub fn submission_refused() {
    counter!(SUBMISSIONS_REFUSED).increment(1);
}

/// Counts messages that could not be handled.
pub fn messages_failed(messages: usize) {
    counter!(MESSAGES_FAILED).increment(u64::try_from(messages).unwrap_or(u64::MAX));
}

/// Counts statements that were refused with a code.
pub fn statements_refused(code: &str, statements: usize) {
    let statements = u64::try_from(statements).unwrap_or(u64::MAX);
    counter!(STATEMENTS_REFUSED, "code" => code.to_owned()).increment(statements);
}

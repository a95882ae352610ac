//! All metrics of Steward. They are counters of the `metrics` facade: the process installs a recorder that decides where
//! they go. Without a recorder, they cost nothing.

use std::{collections::BTreeSet, sync::OnceLock};

use metrics::counter;

use steward_core::{
    breaker::BreakerTransition,
    engine::decision::IgnoreReason,
    model::{
        attempt::Action,
        names::{InvalidName, Tenant},
        task::{ProcessState, Task},
    },
};

/// Tasks that ended, by `state`: `Processed`, `Undone` or `Error`.
pub const TASKS_ENDED: &str = "steward_tasks_ended_total";

/// Attempts that started, including the first attempt at each step.
pub const ATTEMPTS_STARTED: &str = "steward_attempts_started_total";

/// Attempts that failed, either by an agent's reply or because the supervisor found their deadline passed.
pub const ATTEMPTS_FAILED: &str = "steward_attempts_failed_total";

/// Events that changed nothing, by `reason`: for example duplicates, replies of superseded attempts, early wakes.
pub const EVENTS_IGNORED: &str = "steward_events_ignored_total";

/// Saves of a task that lost the race against another writer. The scheduler decides again after each.
pub const SAVES_CONFLICTED: &str = "steward_saves_conflicted_total";

/// Calls to remote services that agents retried within one attempt.
pub const CALLS_RETRIED: &str = "steward_calls_retried_total";

/// Attempts whose deadline passed without a reply from the agent.
pub const AGENTS_SILENT: &str = "steward_agents_silent_total";

/// Attempts that were deferred because the agent's circuit breaker is open, because its rate limit allows no call, because
/// the service requested a longer pause than the attempt has time for, or because their request waited in the queue until
/// complete-by.
pub const ATTEMPTS_DEFERRED: &str = "steward_attempts_deferred_total";

/// Calls that the agent's rate limit delayed, by `by`: `waited` in the agent for up to a second, or `deferred`. A deferral
/// also counts in `steward_attempts_deferred_total`.
pub const CALLS_RATE_LIMITED: &str = "steward_calls_rate_limited_total";

/// Changes of circuit breakers, by `to`: `Opened` or `Closed`.
pub const BREAKERS_TURNED: &str = "steward_breakers_turned_total";

/// Tasks that stopped in Error while they were being undone. They also count as ended in `Error`.
pub const UNDOS_FAILED: &str = "steward_undos_failed_total";

/// Runs of the supervisor that read all their shards, or ran out of time, and checked all queues. While none are counted, lost
/// messages may not be replaced, passed deadlines may not be handled, and dead letters may not be detected.
pub const SWEEPS: &str = "steward_sweeps_total";

/// Submissions that were rejected because they can never succeed.
pub const SUBMISSIONS_REFUSED: &str = "steward_submissions_refused_total";

/// Submissions that were put back into their queue because a queue of their tasks is too long. A submission may be put
/// back several times.
pub const SUBMISSIONS_HELD_BACK: &str = "steward_submissions_held_back_total";

/// Callbacks over HTTP that were refused, by `reason`: `forged` (the URL is not from this deployment), `expired`, or
/// `not_awaited_or_invalid`.
pub const CALLBACKS_REFUSED: &str = "steward_callbacks_refused_total";

/// Messages that a function reported as failed, counted for each delivery, and HTTP requests that it answered with 503 because AWS
/// did. SQS redelivers the messages; callers repeat the requests.
pub const MESSAGES_FAILED: &str = "steward_messages_failed_total";

/// Messages that had waited in their queue for longer than any queue should take, counted when a function receives them.
pub const MESSAGES_LATE: &str = "steward_messages_late_total";

/// Queues with messages that no function receives, counted by each run of the supervisor.
pub const QUEUES_UNREAD: &str = "steward_queues_unread_total";

/// Tasks that stopped in Error, also again, and once a day those that have been in Error for more than a day and that no operator
/// has settled.
pub const ERRORS_UNRESOLVED: &str = "steward_errors_unresolved_total";

/// Messages that arrived in dead-letter queues, as far as the supervisor has published an alert about them.
pub const DEAD_LETTERS: &str = "steward_dead_letters_total";

/// Requests that DynamoDB throttled, as a whole or in part. The functions repeat them.
pub const REQUESTS_THROTTLED: &str = "steward_requests_throttled_total";

/// Statements of a batch that DynamoDB refused for a reason other than their condition, by `code`. Their items are then
/// written one by one.
pub const STATEMENTS_REFUSED: &str = "steward_statements_refused_total";

/// Tasks that ended, by `tenant`. Only for the tenants of [`count_tenants`].
pub const TENANT_TASKS_ENDED: &str = "steward_tenant_tasks_ended_total";

/// Tasks that ended in Error, by `tenant`. Only for the tenants of [`count_tenants`].
pub const TENANT_TASKS_IN_ERROR: &str = "steward_tenant_tasks_in_error_total";

/// Tenants that may have metrics of their own. CloudWatch charges for each metric of each of them.
pub const COUNTED_TENANTS_MAX: usize = 50;

static COUNTED_TENANTS: OnceLock<BTreeSet<Tenant>> = OnceLock::new();

/// A list of tenants is not valid.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTenantList {
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The list is too long.
    #[error("{0} tenants; at most {COUNTED_TENANTS_MAX} may have metrics of their own")]
    TooMany(usize),
}

/// Lets the tenants of a comma-separated list have metrics of their own, from now on. Without this call, no metric has a
/// tenant.
///
/// # Errors
/// The list is not valid.
pub fn count_tenants(list: &str) -> Result<(), InvalidTenantList> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let tenants: BTreeSet<Tenant> = names.map(str::parse).collect::<Result<_, _>>()?;
    if tenants.len() > COUNTED_TENANTS_MAX {
        return Err(InvalidTenantList::TooMany(tenants.len()));
    }
    // A later list is ignored: a process has one configuration.
    let _ = COUNTED_TENANTS.set(tenants);
    Ok(())
}

/// Counts the end of a task for its tenant, if the tenant has metrics of its own.
fn count_end_of_tenant(task: &Task) {
    let counted = |tenant: &&Tenant| COUNTED_TENANTS.get().is_some_and(|all| all.contains(*tenant));
    let Some(tenant) = task.tenant.as_ref().filter(counted) else { return };
    counter!(TENANT_TASKS_ENDED, "tenant" => tenant.to_string()).increment(1);
    if task.process_state == ProcessState::Error {
        counter!(TENANT_TASKS_IN_ERROR, "tenant" => tenant.to_string()).increment(1);
    }
}

/// Counts a callback that was refused.
pub fn callback_refused(reason: &'static str) {
    counter!(CALLBACKS_REFUSED, "reason" => reason).increment(1);
}

/// Counts what one save changed: the end of the task, attempts that started, attempts that failed.
pub fn saved(before: &Task, after: &Task) {
    if after.process_state.has_stopped() && !before.process_state.has_stopped() {
        counter!(TASKS_ENDED, "state" => after.process_state.to_string()).increment(1);
        count_end_of_tenant(after);
        if after.process_state == ProcessState::Error && after.direction() == Action::Undo {
            counter!(UNDOS_FAILED).increment(1);
        }
    }
    if after.process_state == ProcessState::Error && after.ended_at != before.ended_at {
        errors_unresolved(1);
    }
    let failed = after.failure_count.saturating_sub(before.failure_count);
    counter!(ATTEMPTS_FAILED).increment(u64::from(failed));
    let attempts = |task: &Task| {
        task.action_spans()
            .map(|(run, _, progress)| {
                run.count() as u64 * u64::from(progress.state.attempt_count())
            })
            .sum::<u64>()
    };
    counter!(ATTEMPTS_STARTED).increment(attempts(after).saturating_sub(attempts(before)));
}

/// Counts an event that changed nothing.
pub fn ignored(reason: IgnoreReason) {
    counter!(EVENTS_IGNORED, "reason" => format!("{reason:?}")).increment(1);
}

/// Counts a save that lost a race.
pub fn conflict() {
    counter!(SAVES_CONFLICTED).increment(1);
}

/// Counts a retried call to a remote service.
pub fn call_retried() {
    counter!(CALLS_RETRIED).increment(1);
}

/// Counts an attempt whose deadline passed without a reply from the agent.
pub fn agent_silent() {
    counter!(AGENTS_SILENT).increment(1);
}

/// Counts an attempt that was deferred.
pub fn deferred() {
    counter!(ATTEMPTS_DEFERRED).increment(1);
}

/// Counts a call that the rate limit delayed: it `waited` or was `deferred`.
pub fn call_rate_limited(by: &'static str) {
    counter!(CALLS_RATE_LIMITED, "by" => by).increment(1);
}

/// Counts a circuit breaker that opened or closed.
pub fn breaker_turned(to: BreakerTransition) {
    counter!(BREAKERS_TURNED, "to" => format!("{to:?}")).increment(1);
}

/// Counts a run of the supervisor.
pub fn swept() {
    counter!(SWEEPS).increment(1);
}

/// Counts a rejected submission.
pub fn submission_refused() {
    counter!(SUBMISSIONS_REFUSED).increment(1);
}

/// Counts a submission that was put back into its queue.
pub fn submission_held_back() {
    counter!(SUBMISSIONS_HELD_BACK).increment(1);
}

/// Counts messages that a function reported as failed, or HTTP requests that it could not handle.
pub fn messages_failed(messages: usize) {
    counter!(MESSAGES_FAILED).increment(u64::try_from(messages).unwrap_or(u64::MAX));
}

/// Counts messages that waited for too long.
pub fn messages_late(messages: usize) {
    counter!(MESSAGES_LATE).increment(u64::try_from(messages).unwrap_or(u64::MAX));
}

/// Counts a queue whose messages no function receives.
pub fn queue_unread() {
    counter!(QUEUES_UNREAD).increment(1);
}

/// Counts tasks in Error that no operator has settled.
pub fn errors_unresolved(tasks: u64) {
    counter!(ERRORS_UNRESOLVED).increment(tasks);
}

/// Counts messages that arrived in a dead-letter queue.
pub fn dead_letters(messages: u64) {
    counter!(DEAD_LETTERS).increment(messages);
}

/// Counts a request that DynamoDB throttled.
pub fn request_throttled() {
    counter!(REQUESTS_THROTTLED).increment(1);
}

/// Counts statements that were refused with this code.
pub fn statements_refused(code: &str, statements: usize) {
    let statements = u64::try_from(statements).unwrap_or(u64::MAX);
    counter!(STATEMENTS_REFUSED, "code" => code.to_owned()).increment(statements);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_list_of_tenants_is_refused() {
        assert_eq!(
            count_tenants("acme, b c").unwrap_err().to_string(),
            "tenant `b c` is not valid: letters, digits, `.`, `_` and `-`, at most 64 characters"
        );
        let many: Vec<_> = (0..=COUNTED_TENANTS_MAX).map(|n| format!("t-{n}")).collect();
        assert_eq!(
            count_tenants(&many.join(",")).unwrap_err().to_string(),
            "51 tenants; at most 50 may have metrics of their own"
        );
    }
}

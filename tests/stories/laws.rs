//! The laws that hold in every story, after every line. They use no code of the core's own: its
//! graph, its due times and its endings are worked out here once more.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use steward_core::{
    definition::workflow::Workflow,
    engine::{decision::Context, effect::Effect, event::Event},
    limits,
    model::{
        attempt::Action,
        events::{BusEvent, Happened},
        messages::{ChildOutcome, StepReply, StepRequest, Submission},
        names::{Part, StepName},
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

/// A decision, before and after.
pub(super) struct Decided<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) before: &'a Task,
    pub(super) after: &'a Task,
    pub(super) event: &'a Event,
    pub(super) effects: &'a [Effect],
    pub(super) context: Context<'a>,
}

/// Whether each law holds, by its words.
type Laws = Vec<(&'static str, bool)>;

pub(super) fn of_a_decision(decided: &Decided<'_>) -> Vec<String> {
    let laws = [
        of_the_task(decided),
        of_due(decided),
        of_the_end(decided),
        of_the_alert(decided),
        of_undo(decided),
        of_requests(decided),
        of_commands(decided),
    ];
    let broken = laws.concat().into_iter().filter(|(_, holds)| !holds);
    let mut broken: Vec<_> = broken.map(|(law, _)| law.to_owned()).collect();
    broken.extend(of_what_is_told(decided.workflow, decided.after, decided.effects));
    broken
}

/// What every saved task keeps to.
fn of_the_task(Decided { before, after, effects, .. }: &Decided<'_>) -> Laws {
    let goes_on = !is_final(after);
    let failures: u32 = after.actions().map(|(_, _, progress)| progress.failure_count).sum();
    let stored = serde_json::to_value(after).ok();
    let again: Option<Task> = stored.and_then(|stored| serde_json::from_value(stored).ok());
    vec![
        ("what has ended is not locked", goes_on || after.locked_by.is_none()),
        ("what has ended is not paused", goes_on || after.paused_at.is_none()),
        (
            "who sends a request holds the lock",
            requests(effects).next().is_none() || after.locked_by.as_deref() == Some("scheduler"),
        ),
        ("every failure of a step is one of the task", after.failure_count >= failures),
        ("failures of the task are never forgotten", after.failure_count >= before.failure_count),
        ("a task reads back as it was saved", again.as_ref() == Some(after)),
        ("what was submitted stays", submitted(before) == submitted(after)),
        ("an attempt follows the one before it", attempts_grow(before, after)),
        ("what has begun stays on record", keeps_steps(before, after)),
        ("what runs was sent", all_sent(before, after, effects)),
    ]
}

/// Every task that is not in a final state has a due time, no later than anything needs it.
fn of_due(Decided { after, effects, context, .. }: &Decided<'_>) -> Laws {
    let in_time = |time: Timestamp| is_final(after) || after.due.is_some_and(|due| due <= time);
    let pickup = context.timing.pickup_within;
    let paused = after.paused_at.is_some();
    let wakes = effects.iter().filter_map(|effect| {
        let Effect::Wake { after, .. } = effect else { return None };
        Some(context.now + *after)
    });
    let pending = after.process_state == ProcessState::Pending && !paused;
    vec![
        ("a task that goes on has a due time", is_final(after) || after.due.is_some()),
        ("what ended well is not due", !ended_well(after) || after.due.is_none()),
        ("due by its own complete-by", paused || in_time(after.complete_by)),
        ("due by the complete-by of all that runs", after.awaited().all(|run| in_time(run.3))),
        ("due when a wait should be over", paused || waits(after).all(|until| {
            in_time(until.max(context.now) + pickup)
        })),
        ("due when the undo need not wait for a call any more", paused || !is_undoing(after) || {
            let mut calls = after.parts().filter_map(|(_, record)| in_progress_until(record));
            calls.all(|until| until <= context.now || in_time(until + pickup))
        }),
        ("due when a wake is lost", { wakes }.all(|at| in_time(at + pickup))),
        ("due while nobody took it in hand", !pending || in_time(context.now + pickup)),
        ("a paused task is looked at", in_time(context.now + limits::PAUSED_LOOK_WITHIN) || !paused),
        (
            "no queue holds a wake back for longer than it can",
            effects.iter().all(|effect| {
                !matches!(effect, Effect::Wake { after, .. } if *after > limits::QUEUE_DELAY_MAX)
            }),
        ),
    ]
}

/// How a task ends, and that it stays so unless an operator wants it otherwise.
fn of_the_end(decided: &Decided<'_>) -> Laws {
    let Decided { workflow, before, after, event, effects, context } = decided;
    let ends = decided.ends();
    let stays = before.process_state == after.process_state && before.ended_at == after.ended_at;
    let commanded = matches!(event, Event::Commanded(_) | Event::Asked(Action::Undo));
    let passed =
        |name| after.steps.get(name).is_some_and(|r: &StepRecord| has_passed(&r.run.state));
    let notices = effects.iter().filter(|effect| matches!(effect, Effect::Notice { .. })).count();
    let processed = after.process_state == ProcessState::Processed;
    let undone = after.process_state == ProcessState::Undone;
    let running = after.awaited().next().is_some();
    let error = |task: &Task| task.process_state == ProcessState::Error;
    vec![
        (
            "a final state changes only by a command, or if it turns out to be wrong",
            !is_final(before) || stays || commanded || has_run_after_all(before, after, event),
        ),
        ("the end has a time", after.ended_at.is_some() == is_final(after)),
        ("it is the time of the decision", !ends || after.ended_at == Some(context.now)),
        ("Error has a reason", after.error.is_some() == error(after)),
        (
            "Processed: every step completed or was skipped",
            !processed || workflow.steps.keys().all(passed),
        ),
        ("Processed goes forward", !processed || after.undo_reason.is_none()),
        ("Undone: nothing is left to undo", !undone || left_to_undo(workflow, after).is_empty()),
        ("Processed and Undone: nothing runs", !(processed || undone) || !running),
        (
            "Undone: no call of unknown outcome may still be in progress",
            !undone
                || !ends
                || after.parts().all(|(_, r)| in_progress_until(r) <= Some(context.now)),
        ),
        ("undoing has a reason", !(undone || is_undoing(after)) || after.undo_reason.is_some()),
        ("the client hears the end", !ends || notices == usize::from(after.reply_to.is_some())),
    ]
}

/// Error is alerted, and says what is left.
fn of_the_alert(decided: &Decided<'_>) -> Laws {
    let Decided { workflow, before, after, event, effects, .. } = decided;
    let (ends, in_error) = (decided.ends(), after.process_state == ProcessState::Error);
    let events: Vec<_> = events(effects).filter(|event| event.is_task_alert()).collect();
    let failed = after.parts().filter(|(_, record)| record.run.state.is_failed());
    let failed: Vec<_> = failed.map(|(part, _)| part).collect();
    let left = left_to_undo(workflow, after);
    let names = |steps: &[Part], wanted: &[Part]| steps == wanted;
    let backward = after.undo_reason.is_some();
    let names_it = |event: &&BusEvent| {
        if let Happened::UndoFailed(trouble) = &event.data {
            return backward && names(&trouble.steps, &left);
        }
        matches!(&event.data, Happened::TaskInError(trouble)
            if !backward && names(&trouble.steps, &failed))
    };
    let was_due = ends || before.due.is_some();
    vec![
        ("Error is alerted, and nothing else is", !ends || events.len() == usize::from(in_error)),
        ("an alert names what failed, or what is left to undo", events.iter().all(names_it)),
        (
            "a task in Error is due until its alert is sent",
            !in_error
                || !was_due
                || after.due.is_some()
                || matches!(event, Event::AlertSent { .. }),
        ),
    ]
}

/// Which steps are undone, and in what order.
fn of_undo(Decided { workflow, after, effects, context, .. }: &Decided<'_>) -> Laws {
    let undos = || requests(effects).filter(|request| request.action == Action::Undo);
    let dos = || requests(effects).filter(|request| request.action == Action::Do);
    let may_last = |record: &StepRecord| in_progress_until(record) > Some(context.now);
    let settled = |request: &StepRequest| {
        descendants(workflow, &request.step.step).into_iter().all(|later| {
            let parts = after.parts().filter(|(part, _)| part.step == *later);
            parts
                .into_iter()
                .all(|(_, r)| !is_awaited(r) && !may_last(r) && !is_left(workflow, later, r))
        })
    };
    let had_effect = |request: &StepRequest| {
        after.record(&request.step).is_some_and(|r| has_effect(r) && !is_awaited(r) && !may_last(r))
    };
    let returns =
        workflow.steps.iter().filter(|(_, step)| step.point_of_no_return).all(|(name, _)| {
            let mut parts = after.parts().filter(|(part, _)| part.step == *name);
            parts.all(|(_, r)| !has_effect(r) && !is_awaited(r))
        });
    vec![
        ("nothing is done while it is undone", !is_undoing(after) || dos().next().is_none()),
        ("nothing is undone otherwise", is_undoing(after) || undos().next().is_none()),
        ("an undo starts when all that came after is undone", undos().all(settled)),
        ("only what may have run is undone", undos().all(had_effect)),
        ("past its point of no return nothing is undone", returns || undos().next().is_none()),
    ]
}

/// What is sent to agents.
fn of_requests(decided: &Decided<'_>) -> Laws {
    let Decided { before, after, effects, context, .. } = decided;
    let may_run = |request: &StepRequest| {
        let progress = after.progress(&request.step, request.action);
        request.idempotent || progress.is_some_and(|progress| !progress.may_have_run)
    };
    let waited = |request: &StepRequest| {
        let old = before.progress(&request.step, request.action);
        old.is_none_or(|old| match old.state {
            StepState::Waiting { until, .. } => {
                until <= context.now + context.timing.clock_skew
                    || matches!(decided.event, Event::Commanded(_))
            }
            StepState::Running { .. } => true,
            StepState::Failed { .. } => matches!(decided.event, Event::Commanded(_)),
            StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Skipped { .. } => false,
        })
    };
    let no_request = requests(effects).next().is_none();
    vec![
        ("nothing starts in a paused task", after.paused_at.is_none() || no_request),
        ("nothing starts in a task that has ended", !is_final(after) || no_request),
        (
            "nothing starts past the task's complete-by",
            no_request || context.now < after.complete_by,
        ),
        (
            "no attempt reaches beyond it",
            requests(effects).all(|r| r.complete_by <= after.complete_by),
        ),
        ("a supervisor sends no requests", *decided.event != Event::Swept || no_request),
        (
            "what may have run is repeated only where that is harmless",
            requests(effects).all(may_run),
        ),
        ("a wait is waited for, and what is settled stays so", requests(effects).all(waited)),
    ]
}

/// Each command is on record and told; a refused one changes nothing else.
fn of_commands(Decided { before, after, event, effects, context, .. }: &Decided<'_>) -> Laws {
    let told: Vec<_> = events(effects)
        .filter_map(|event| {
            let told = &event.data;
            let Happened::OperatorCommand { command_id, by, why, refused, .. } = told else {
                return None;
            };
            Some((command_id, by, why, refused))
        })
        .collect();
    let Event::Commanded(command) = event else {
        return vec![
            ("only commands are on record", before.commands == after.commands),
            ("only commands are told", told.is_empty()),
        ];
    };
    let record = after.commands.last();
    let refused = record.and_then(|record| record.refused.as_ref());
    let unchanged = Task { commands: before.commands.clone(), due: before.due, ..(*after).clone() };
    vec![
        (
            "a command is on record, with who and why",
            record.is_some_and(|record| {
                record.id == command.command_id
                    && (&record.by, &record.why) == (&command.by, &command.why)
                    && record.at == context.now
            }),
        ),
        (
            "a command is told as it is on record",
            told == record
                .map(|r| (&r.id, &r.by, &r.why, &r.refused))
                .into_iter()
                .collect::<Vec<_>>(),
        ),
        ("a refused command changes nothing", refused.is_none() || unchanged == **before),
        ("the newest commands are kept", after.commands.len() <= limits::COMMANDS_KEPT_MAX),
    ]
}

/// What is sent says what is saved.
pub(super) fn of_what_is_told(workflow: &Workflow, task: &Task, effects: &[Effect]) -> Vec<String> {
    let is_right = |effect: &Effect| match effect {
        Effect::Request(request) => is_saved(workflow, task, request),
        Effect::Notice { notice, .. } => {
            Some(notice.at) == task.ended_at
                && notice.task_id.as_deref() == Some(task.task_id.as_str())
        }
        Effect::Publish(BusEvent { metadata, data }) => {
            let ended = Some(metadata.at) == task.ended_at;
            match data {
                Happened::TaskInError(trouble) | Happened::UndoFailed(trouble) => {
                    ended && trouble.task_id == task.task_id
                }
                Happened::TaskEnded { task_id, process_state, .. } => {
                    ended && *task_id == task.task_id && *process_state == task.process_state
                }
                Happened::OperatorCommand { task_id, .. } => *task_id == task.task_id,
                Happened::BreakerOpened(_)
                | Happened::SubmissionRefused { .. }
                | Happened::MessageCorrupt { .. }
                | Happened::DeadLetterSeen { .. }
                | Happened::AgentMissing { .. }
                | Happened::OperatorRedrive { .. }
                | Happened::BreakerClosed(_) => false,
            }
        }
        Effect::Wake { wake, .. } => wake.task_id == task.task_id,
        Effect::Submit(submission) => is_asked(workflow, task, submission),
        Effect::ChildEnded(ended) => task.parent.as_ref().is_some_and(|parent| {
            is_final(task) && (&parent.task_id, &parent.step) == (&ended.task_id, &ended.step)
        }),
        Effect::Ask(_) | Effect::Reply(_) | Effect::Reject { .. } => false,
    };
    let wrong = effects.iter().filter(|effect| !is_right(effect));
    wrong
        .map(|effect| format!("what is sent says what is saved; this does not: {effect:?}"))
        .collect()
}

impl Decided<'_> {
    /// Whether the task ends now, for the first time or again.
    fn ends(&self) -> bool {
        let Self { before, after, .. } = self;
        let changed = before.process_state != after.process_state;
        is_final(after) && (changed || before.ended_at != after.ended_at)
    }
}

fn requests(effects: &[Effect]) -> impl Iterator<Item = &StepRequest> {
    effects.iter().filter_map(|effect| {
        let Effect::Request(request) = effect else { return None };
        Some(request)
    })
}

fn events(effects: &[Effect]) -> impl Iterator<Item = &BusEvent> {
    effects.iter().filter_map(|effect| {
        let Effect::Publish(event) = effect else { return None };
        Some(event)
    })
}

fn is_final(task: &Task) -> bool {
    match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => false,
        ProcessState::Processed | ProcessState::Undone | ProcessState::Error => true,
    }
}

fn ended_well(task: &Task) -> bool {
    is_final(task) && task.process_state != ProcessState::Error
}

fn is_undoing(task: &Task) -> bool {
    task.process_state == ProcessState::Undoing
}

fn has_passed(state: &StepState) -> bool {
    matches!(state, StepState::Completed { .. } | StepState::Skipped { .. })
}

/// Until when a call that does a part, or that undid it, may be in progress. An undo that has not passed
/// is waited for anyway.
fn in_progress_until(record: &StepRecord) -> Option<Timestamp> {
    let undo = record.undo.as_ref().filter(|undo| has_passed(&undo.state));
    record.run.in_progress_until.max(undo.and_then(|undo| undo.in_progress_until))
}

/// Whether a report says that a step of an Undone task took effect, or may have: the task is in Error then.
fn has_run_after_all(before: &Task, after: &Task, event: &Event) -> bool {
    let step = match event {
        Event::Replied(StepReply { step, action: Action::Do, outcome, .. })
            if outcome.may_have_run() =>
        {
            step
        }
        Event::ChildEnded {
            step,
            outcome: ChildOutcome::Processed { .. } | ChildOutcome::Error { .. },
            ..
        } => step,
        Event::Wake
        | Event::Swept
        | Event::Replied(_)
        | Event::Answered { .. }
        | Event::Commanded(_)
        | Event::Asked(_)
        | Event::ChildEnded { .. }
        | Event::AlertSent { .. } => return false,
    };
    let may_have_run = |task: &Task| task.record(step).is_some_and(|r| r.run.may_have_run);
    (before.process_state, after.process_state) == (ProcessState::Undone, ProcessState::Error)
        && !may_have_run(before)
        && may_have_run(after)
}

fn has_effect(record: &StepRecord) -> bool {
    matches!(record.run.state, StepState::Completed { .. }) || record.run.may_have_run
}

/// What has an undo, completed or may have run, and is neither undone nor was its undo skipped.
fn is_left(workflow: &Workflow, name: &StepName, record: &StepRecord) -> bool {
    workflow.steps.get(name).is_some_and(|step| step.undo.is_some() || step.workflow.is_some())
        && has_effect(record)
        && !record.undo.as_ref().is_some_and(|undo| has_passed(&undo.state))
}

fn left_to_undo(workflow: &Workflow, task: &Task) -> Vec<Part> {
    let records = workflow.steps.keys().filter_map(|name| Some((name, task.steps.get(name)?)));
    let parts = records.flat_map(|(name, record)| record.parts(name));
    parts.filter(|(part, r)| is_left(workflow, &part.step, r)).map(|(part, _)| part).collect()
}

/// Whether someone is at work on it.
fn is_awaited(record: &StepRecord) -> bool {
    matches!(record.run.state, StepState::Running { .. } | StepState::HandedOut { .. })
}

/// The task of a step is submitted for the step that runs, with an id of its own.
fn is_asked(workflow: &Workflow, task: &Task, submission: &Submission) -> bool {
    let Some(parent) = &submission.parent else { return false };
    let action = if submission.undo { Action::Undo } else { Action::Do };
    let item = parent.step.item.map(|item| format!(":{item}")).unwrap_or_default();
    let definition = workflow.steps.get(&parent.step.step).and_then(|step| step.workflow.as_ref());
    parent.task_id == task.task_id
        && definition.is_some_and(|child| child.name == submission.workflow)
        && submission
            .task_id
            .as_str()
            .starts_with(&format!("{}:{}{item}", task.task_id, parent.step.step))
        && task.running().any(|(step, of, ..)| (step, of) == (parent.step.clone(), action))
}

/// Everything that comes after `step`, at any distance.
fn descendants<'a>(workflow: &'a Workflow, step: &StepName) -> Vec<&'a StepName> {
    let mut found: Vec<&StepName> = Vec::new();
    let mut open = vec![step];
    while let Some(before) = open.pop() {
        for (name, definition) in &workflow.steps {
            if definition.after.contains(before) && !found.contains(&name) {
                found.push(name);
                open.push(name);
            }
        }
    }
    found
}

/// Until when each step, or each undo if the task is being undone, waits.
fn waits(task: &Task) -> impl Iterator<Item = Timestamp> {
    let backward = is_undoing(task);
    task.actions().filter_map(move |(_, action, progress)| match progress.state {
        StepState::Waiting { until, .. } if (action == Action::Undo) == backward => Some(until),
        StepState::Waiting { .. }
        | StepState::Running { .. }
        | StepState::HandedOut { .. }
        | StepState::Each
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    })
}

/// What no decision may change.
fn submitted(task: &Task) -> Task {
    Task {
        process_state: ProcessState::Pending,
        revision: 0,
        locked_by: None,
        complete_by: task.submitted_at + Duration::from_secs(1),
        failure_count: 0,
        ended_at: None,
        due: None,
        kept_from: None,
        error: None,
        undo_reason: None,
        paused_at: None,
        input: None,
        commands: Vec::new(),
        steps: BTreeMap::new(),
        ..task.clone()
    }
}

fn attempts_grow(before: &Task, after: &Task) -> bool {
    after.actions().all(|(step, action, new)| {
        let old = before.progress(&step, action).map_or(0, |old| old.state.attempt());
        new.state.attempt() == old || new.state.attempt() == old + 1
    })
}

/// Whether every attempt that begins is one that an agent hears of.
fn all_sent(before: &Task, after: &Task, effects: &[Effect]) -> bool {
    after.running().all(|(step, action, attempt, _)| {
        // One that was deferred may be with another agent still: it is waited for again.
        let was = before.progress(&step, action).map(|progress| &progress.state);
        let ran = was.is_some_and(|was| {
            matches!(
                was,
                StepState::Running { .. } | StepState::Waiting { complete_by: Some(_), .. }
            ) && was.attempt() == attempt
        });
        let sent = |r: &StepRequest| (&r.step, r.action, r.attempt) == (&step, action, attempt);
        let submitted = |effect: &Effect| {
            matches!(effect, Effect::Submit(submission)
            if submission.parent.as_ref().is_some_and(|parent| parent.step == step)
                && submission.undo == (action == Action::Undo))
        };
        ran || requests(effects).any(sent) || effects.iter().any(submitted)
    })
}

fn keeps_steps(before: &Task, after: &Task) -> bool {
    let never_began =
        |progress: &Progress| progress.state.is_failed() && progress.state.attempt() == 0;
    before.actions().all(|(step, action, progress)| {
        after.progress(&step, action).is_some()
            || after.steps.get(&step.step).is_some_and(|record| record.items.is_some())
            || never_began(progress)
    })
}

/// A request is that of the attempt that runs, for the step's own agent, and repeatable.
fn is_saved(workflow: &Workflow, task: &Task, request: &StepRequest) -> bool {
    let StepRequest { task_id, step, action, attempt, complete_by, .. } = request;
    let Some(definition) = workflow.steps.get(&step.step) else { return false };
    let method = match action {
        Action::Do => definition.request.as_ref().map(|request| request.method),
        Action::Undo => {
            definition.undo.as_ref().and_then(|undo| Some(undo.request.as_ref()?.method))
        }
    };
    let edit = task.progress(step, *action).and_then(|progress| progress.input.as_ref());
    let edit = edit.map(|edit| format!("/{edit}")).unwrap_or_default();
    let way = match action {
        Action::Do => "do",
        Action::Undo => "undo",
    };
    *task_id == task.task_id
        && request.idempotency_key == format!("{task_id}/{step}/{way}{edit}")
        && definition.agent.as_ref() == Some(&request.agent)
        && method == Some(request.method)
        && task.running().any(|running| running == (step.clone(), *action, *attempt, *complete_by))
}

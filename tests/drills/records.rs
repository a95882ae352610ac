//! A task with a value in every field, because the scenario does not reach those of steps with several agents. A new field
//! does not compile until the literals below have it.

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::model::{
    earlier_key::{Denial, EarlierKey, Ran},
    inline_documents::InlineDocuments,
    messages::ParentStep,
    names::Incarnation,
    rerun::Rerun,
    retention::DocumentRetention,
    step::{AgentPause, Extras, Progress, StepRecord, StepState},
    task::{ProcessState, StopCause, Task},
};

/// The item of a task, without the attributes that only the table has.
pub(super) fn item() -> Value {
    serde_json::to_value(task()).unwrap()
}

fn task() -> Task {
    let at = Timestamp::UNIX_EPOCH;
    let incarnation = Incarnation::recorded_at(at);
    let caller = json!({ "sender": "AIDAANN", "via": "direct" });
    let command = json!({ "id": "c-1", "command": "resubmit charge", "by": "ann", "caller": caller, "why": "x", "at": 0, "submitted": "t-2" });
    let run = progress();
    Task {
        task_id: "t-1".parse().unwrap(),
        workflow: "order".parse().unwrap(),
        version: 1,
        process_state: ProcessState::Error,
        revision: 1,
        locked_by: Some("scheduler-1".to_owned()),
        saved_by: Some("scheduler-1".to_owned()),
        complete_by: at,
        failure_count: 1,
        submitted_at: at,
        incarnation,
        ended_at: Some(at),
        due: Some(at),
        reply_to: Some("https://example.com/1".to_owned()),
        tenant: Some("acme".parse().unwrap()),
        labels: [("customer".parse().unwrap(), "42".parse().unwrap())].into(),
        parent: Some(ParentStep {
            task_id: "p-1".parse().unwrap(),
            step: "pack[3]".parse().unwrap(),
            depth: 1,
            incarnation,
            payload_place: Some("tasks/p-1@000000001/".to_owned().try_into().unwrap()),
        }),
        rerun: Some(Rerun { of: "o-0".parse().unwrap(), kept: ["pay".parse().unwrap()].into() }),
        retention_for_parent: Some(DocumentRetention { from: at, retention_s: Some(1) }),
        retention_start: at,
        retention_s: Some(1),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        error: Some("step a: no".to_owned()),
        resolved_at: Some(at),
        undo_reason: Some("step a: no".to_owned()),
        undo_is_final: true,
        late_at: Some(at),
        is_alert_due: true,
        stop_cause: StopCause::default(),
        paused_at: Some(at),
        input_edit_id: Some("c-1".parse().unwrap()),
        commands: vec![serde_json::from_value(command).unwrap()],
        steps: [(
            "a".parse().unwrap(),
            StepRecord {
                undo: Some(run.clone()),
                forward: run,
                earlier: vec![earlier_key()],
                items: None,
            },
        )]
        .into(),
        documents: InlineDocuments::default(),
    }
}

fn progress() -> Progress {
    let at = Timestamp::UNIX_EPOCH;
    Progress {
        state: StepState::Waiting { attempt: Some(1), until: at, complete_by: Some(at) },
        failure_count: 1,
        may_have_run: true,
        call_may_run_until: Some(at),
        input_edit_id: Some("c-1".parse().unwrap()),
        completed_by_hand: Some("c-1".parse().unwrap()),
        child_revision: Some(1),
        agent: Some(1),
        key_since: Some(1),
        second_delivery_may_act: true,
        give_up_at: Some(at),
        key_valid_until: Some(at),
        extras: Some(Box::new(Extras {
            agent_pauses: vec![AgentPause { agent: 1, until: at }],
            started_at: Some(at),
        })),
    }
}

fn earlier_key() -> EarlierKey {
    EarlierKey {
        since: 1,
        agent: Some(1),
        input_edit_id: Some("c-1".parse().unwrap()),
        ran: Ran::Yes,
        output_of: Some(1),
        denied: Some(Denial { through: 1, known: Ran::Maybe }),
        undone: true,
        child_revision: Some(1),
    }
}

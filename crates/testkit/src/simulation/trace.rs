//! The traces of tasks. Some clients send a `traceparent` with a submission. Every call that a service
//! gets has a `traceparent`, and all calls of a task belong to one trace: the client's, if it sent one.

use steward_core::model::{
    messages::StepRequest,
    names::{Incarnation, TaskId},
};

use super::oracle::{Oracle, describe};

/// A task in one of its lives.
pub(super) type Life = (TaskId, Option<Incarnation>);

/// What a client sends with the submission of a task: every second client has a trace.
pub(super) fn of_client(id: &TaskId) -> Option<String> {
    let sum = id.as_str().bytes().fold(1_u64, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte));
    sum.is_multiple_of(2).then(|| format!("00-{sum:032x}-{sum:016x}-01"))
}

impl Oracle {
    /// What is wrong with the `traceparent` of a call, if anything is.
    pub(super) fn traced(&mut self, request: &StepRequest, traceparent: &str) {
        let of = describe(&request.task_id, &request.step, request.action);
        let Some(trace) = trace_id(traceparent) else {
            return self.find(format!("{of}: was called with traceparent `{traceparent}`"));
        };
        let of_client = self.client(&request.task_id).and_then(of_client);
        let sent = of_client.as_deref().and_then(trace_id);
        let life = (request.task_id.clone(), request.incarnation);
        let known = self.traces.entry(life).or_insert_with(|| sent.unwrap_or(trace).to_owned());
        if known != trace {
            let finding = format!("{of}: was called in trace {trace}; the task's is {known}");
            self.find(finding);
        }
    }

    /// The task of a client that a task runs for, or is.
    fn client<'a>(&'a self, id: &'a TaskId) -> Option<&'a TaskId> {
        match &self.tasks.get(id)?.parent {
            Some(parent) => self.client(&parent.task_id),
            None => Some(id),
        }
    }
}

/// The trace that a valid `traceparent` names.
fn trace_id(traceparent: &str) -> Option<&str> {
    let is_id = |text: &str, length: usize| {
        text.len() == length
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|byte| byte != b'0')
    };
    let mut fields = traceparent.split('-');
    let (version, trace, span) = (fields.next()?, fields.next()?, fields.next()?);
    let is_valid = version == "00" && is_id(trace, 32) && is_id(span, 16);
    let has_flags = fields.next().is_some_and(|flags| flags.len() == 2) && fields.next().is_none();
    (is_valid && has_flags).then_some(trace)
}

//! Checks of the W3C trace context. Some clients send a `traceparent` with a submission. Every call that a service
//! receives must have a `traceparent`, and all calls of a task must belong to one trace: the client's, if it sent one.

use steward_core::model::{messages::StepRequest, names::TaskId};

use super::{oracle::Oracle, task_record::describe};

/// The `traceparent` that a client sends with a submission: about every second client sends one.
pub(super) fn client_traceparent(id: &TaskId) -> Option<String> {
    let sum = id.as_str().bytes().fold(1_u64, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte));
    sum.is_multiple_of(2).then(|| format!("00-{sum:032x}-{sum:016x}-01"))
}

impl Oracle {
    /// Checks the `traceparent` of a call.
    pub(super) fn check_traceparent(&mut self, request: &StepRequest, traceparent: &str) {
        let of = describe(&request.task_id, &request.step, request.action);
        let Some(trace) = trace_id(traceparent) else {
            return self.add_finding(format!(
                "{of}: was called with the invalid traceparent `{traceparent}`"
            ));
        };
        let sent = self.root_task(&request.task_id).and_then(client_traceparent);
        let sent = sent.as_deref().and_then(trace_id);
        let life = (request.task_id.clone(), request.incarnation);
        let known = self.traces.entry(life).or_insert_with(|| sent.unwrap_or(trace).to_owned());
        if known != trace {
            let finding =
                format!("{of}: was called in trace {trace}, but the task belongs to trace {known}");
            self.add_finding(finding);
        }
    }

    /// The client's task at the root of a task's chain of parents.
    fn root_task<'a>(&'a self, id: &'a TaskId) -> Option<&'a TaskId> {
        match &self.tasks.get(id)?.parent {
            Some(parent) => self.root_task(&parent.task_id),
            None => Some(id),
        }
    }
}

/// The trace id of a `traceparent`; `None` if it is invalid.
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

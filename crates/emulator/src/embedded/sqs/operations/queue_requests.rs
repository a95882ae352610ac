//! Operations on queues.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        attributes::{QueueAttributes, arn},
        error::SqsError,
        service::{SqsQueues, name_of},
        state::{JournalRecord, QueuesState},
        time::SECOND,
    },
    parsing::{SqsResult, parse, queue_name},
};

/// The most queues in one response, unless the request asks for fewer.
const PAGE_MAX: usize = 1_000;

/// The longest name of a queue, in bytes.
const NAME_BYTES_MAX: usize = 80;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CreateQueueRequest {
    queue_name: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueUrlRequest {
    queue_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetQueueAttributesRequest {
    queue_url: String,
    #[serde(default)]
    attribute_names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SetQueueAttributesRequest {
    queue_url: String,
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListQueuesRequest {
    #[serde(default)]
    queue_name_prefix: String,
    max_results: Option<usize>,
    /// The name of the last queue of the previous page.
    next_token: Option<String>,
}

impl SqsQueues {
    pub(super) fn create_queue(&self, body: &[u8]) -> SqsResult {
        let CreateQueueRequest { queue_name: name, attributes } = parse(body)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
            let reason = "Can only include alphanumeric characters, hyphens, or underscores. \
                          1 to 80 in length; there are no FIFO queues here";
            return Err(SqsError::parameter("QueueName", name, reason));
        }
        let mut store = self.store();
        match store.state.queue(&name) {
            Ok(queue) => {
                if let Some(attribute) = queue.attributes.differs(&attributes) {
                    return Err(SqsError::queue_exists(attribute));
                }
            }
            Err(_) => {
                check_redrive(&name, &QueueAttributes::parse(attributes.clone())?, &store.state)?;
                let (name, at) = (name.clone(), self.clock.now());
                store.commit(vec![JournalRecord::Queue { name, attributes, at }])?;
            }
        }
        Ok(json!({ "QueueUrl": self.url(&name) }))
    }

    pub(super) fn delete_queue(&self, body: &[u8]) -> SqsResult {
        let name = queue_name(body)?;
        let mut store = self.store();
        store.state.queue(&name)?;
        store.commit(vec![JournalRecord::QueueDeleted { name }]).map(|()| json!({}))
    }

    pub(super) fn purge_queue(&self, body: &[u8]) -> SqsResult {
        let name = queue_name(body)?;
        let mut store = self.store();
        store.state.queue(&name)?;
        store.commit(vec![JournalRecord::QueuePurged { name }]).map(|()| json!({}))
    }

    pub(super) fn get_queue_url(&self, body: &[u8]) -> SqsResult {
        let GetQueueUrlRequest { queue_name } = parse(body)?;
        self.store().state.queue(&queue_name)?;
        Ok(json!({ "QueueUrl": self.url(&queue_name) }))
    }

    pub(super) fn get_queue_attributes(&self, body: &[u8]) -> SqsResult {
        let GetQueueAttributesRequest { queue_url, attribute_names } = parse(body)?;
        let name = name_of(&queue_url);
        let store = self.store();
        let queue = store.state.queue(name)?;
        let counts = queue.counts(self.clock.now());
        let mut values = queue.attributes.values();
        let computed = [
            ("QueueArn", arn(name)),
            ("CreatedTimestamp", (queue.created_at / SECOND).to_string()),
            ("LastModifiedTimestamp", (queue.modified_at / SECOND).to_string()),
            ("ApproximateNumberOfMessages", counts.visible.to_string()),
            ("ApproximateNumberOfMessagesNotVisible", counts.in_flight.to_string()),
            ("ApproximateNumberOfMessagesDelayed", counts.delayed.to_string()),
        ];
        values.extend(computed.map(|(name, value)| (name.to_owned(), value)));
        let is_all = attribute_names.iter().any(|name| name == "All");
        let known = |name: &&String| values.contains_key(*name) || QueueAttributes::is_known(name);
        if let Some(name) = attribute_names.iter().find(|name| *name != "All" && !known(name)) {
            return Err(SqsError::attribute_name(name));
        }
        values.retain(|name, _| is_all || attribute_names.contains(name));
        Ok(if values.is_empty() { json!({}) } else { json!({ "Attributes": values }) })
    }

    pub(super) fn set_queue_attributes(&self, body: &[u8]) -> SqsResult {
        let SetQueueAttributesRequest { queue_url, attributes } = parse(body)?;
        let name = name_of(&queue_url).to_owned();
        let mut store = self.store();
        let attributes = store.state.queue(&name)?.attributes.with(attributes)?;
        check_redrive(&name, &attributes, &store.state)?;
        let (attributes, at) = (attributes.set().clone(), self.clock.now());
        store.commit(vec![JournalRecord::Queue { name, attributes, at }]).map(|()| json!({}))
    }

    pub(super) fn list_queues(&self, body: &[u8]) -> SqsResult {
        let list: ListQueuesRequest = parse(body)?;
        let store = self.store();
        let names = store.state.queues().map(|(name, _)| name);
        let names = names.filter(|name| name.starts_with(&list.queue_name_prefix));
        Ok(self.page("QueueUrls", &list, names))
    }

    pub(super) fn list_dead_letter_source_queues(&self, body: &[u8]) -> SqsResult {
        let (target, list): (_, ListQueuesRequest) = (queue_name(body)?, parse(body)?);
        let store = self.store();
        store.state.queue(&target)?;
        let sources = store.state.queues().filter(|(_, queue)| {
            queue.attributes.redrive.as_ref().is_some_and(|redrive| redrive.to == target)
        });
        // This is SQS's only response whose list has a name in lower case.
        Ok(self.page("queueUrls", &list, sources.map(|(name, _)| name)))
    }

    /// A page of queues. `names` are sorted.
    fn page<'a>(
        &self,
        field: &str,
        list: &ListQueuesRequest,
        names: impl Iterator<Item = &'a String>,
    ) -> Value {
        let mut names = names
            .skip_while(|name| list.next_token.as_ref().is_some_and(|last| *name <= last))
            .peekable();
        let max = list.max_results.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
        let page: Vec<_> = names.by_ref().take(max).collect();
        let urls: Vec<_> = page.iter().map(|name| self.url(name)).collect();
        let mut response = json!({ field: urls });
        if names.peek().is_some()
            && let (Some(fields), Some(last)) = (response.as_object_mut(), page.last())
        {
            fields.insert("NextToken".to_owned(), Value::String((*last).clone()));
        }
        response
    }

    fn url(&self, name: &str) -> String {
        format!("{}{name}", self.base_url)
    }
}

/// Checks that the dead-letter queue exists and is another queue.
fn check_redrive(
    name: &str,
    attributes: &QueueAttributes,
    state: &QueuesState,
) -> Result<(), SqsError> {
    let Some(redrive) = &attributes.redrive else { return Ok(()) };
    if redrive.to == name || state.queue(&redrive.to).is_err() {
        let reason = "Dead letter target does not exist, or is the queue itself";
        return Err(SqsError::parameter("RedrivePolicy", &redrive.to, reason));
    }
    Ok(())
}

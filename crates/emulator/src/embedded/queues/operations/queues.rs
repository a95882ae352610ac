//! Operations on queues.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::super::attributes::{Attributes, arn};
use super::super::refusal::Refusal;
use super::super::state::{Record, State};
use super::super::time::SECOND;
use super::super::{Queues, name_of};
use super::{Answered, parse, queue_name};

/// Queues in one answer, if the request does not say less.
const PAGE: usize = 1_000;

/// Bytes of a queue's name.
const NAME_BYTES_MAX: usize = 80;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Create {
    queue_name: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetUrl {
    queue_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetAttributes {
    queue_url: String,
    #[serde(default)]
    attribute_names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SetAttributes {
    queue_url: String,
    attributes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct List {
    #[serde(default)]
    queue_name_prefix: String,
    #[serde(default)]
    max_results: Option<usize>,
    /// The name of the last queue of the page before.
    #[serde(default)]
    next_token: Option<String>,
}

impl Queues {
    pub(super) fn create_queue(&self, body: &[u8]) -> Answered {
        let Create { queue_name: name, attributes } = parse(body)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
            let reason = "Can only include alphanumeric characters, hyphens, or underscores. \
                          1 to 80 in length; there are no FIFO queues here";
            return Err(Refusal::parameter("QueueName", name, reason));
        }
        let mut store = self.store();
        match store.state.queue(&name) {
            Ok(queue) => {
                if let Some(attribute) = queue.attributes.differs(&attributes) {
                    return Err(Refusal::queue_exists(attribute));
                }
            }
            Err(_) => {
                check_redrive(&name, &Attributes::parse(attributes.clone())?, &store.state)?;
                let (name, at) = (name.clone(), self.clock.now());
                store.commit(vec![Record::Queue { name, attributes, at }])?;
            }
        }
        Ok(json!({ "QueueUrl": self.url(&name) }))
    }

    pub(super) fn delete_queue(&self, body: &[u8]) -> Answered {
        let name = queue_name(body)?;
        let mut store = self.store();
        store.state.queue(&name)?;
        store.commit(vec![Record::QueueDeleted { name }]).map(|()| json!({}))
    }

    pub(super) fn purge_queue(&self, body: &[u8]) -> Answered {
        let name = queue_name(body)?;
        let mut store = self.store();
        store.state.queue(&name)?;
        store.commit(vec![Record::QueuePurged { name }]).map(|()| json!({}))
    }

    pub(super) fn get_queue_url(&self, body: &[u8]) -> Answered {
        let GetUrl { queue_name } = parse(body)?;
        self.store().state.queue(&queue_name)?;
        Ok(json!({ "QueueUrl": self.url(&queue_name) }))
    }

    pub(super) fn get_queue_attributes(&self, body: &[u8]) -> Answered {
        let GetAttributes { queue_url, attribute_names } = parse(body)?;
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
        let known = |name: &&String| values.contains_key(*name) || Attributes::is_known(name);
        if let Some(name) = attribute_names.iter().find(|name| *name != "All" && !known(name)) {
            return Err(Refusal::attribute_name(name));
        }
        values.retain(|name, _| is_all || attribute_names.contains(name));
        Ok(if values.is_empty() { json!({}) } else { json!({ "Attributes": values }) })
    }

    pub(super) fn set_queue_attributes(&self, body: &[u8]) -> Answered {
        let SetAttributes { queue_url, attributes } = parse(body)?;
        let name = name_of(&queue_url).to_owned();
        let mut store = self.store();
        let attributes = store.state.queue(&name)?.attributes.with(attributes)?;
        check_redrive(&name, &attributes, &store.state)?;
        let (attributes, at) = (attributes.set().clone(), self.clock.now());
        store.commit(vec![Record::Queue { name, attributes, at }]).map(|()| json!({}))
    }

    pub(super) fn list_queues(&self, body: &[u8]) -> Answered {
        let list: List = parse(body)?;
        let store = self.store();
        let names = store.state.queues().map(|(name, _)| name);
        let names = names.filter(|name| name.starts_with(&list.queue_name_prefix));
        Ok(self.page("QueueUrls", &list, names))
    }

    pub(super) fn list_dead_letter_source_queues(&self, body: &[u8]) -> Answered {
        let (target, list): (_, List) = (queue_name(body)?, parse(body)?);
        let store = self.store();
        store.state.queue(&target)?;
        let sources = store.state.queues().filter(|(_, queue)| {
            queue.attributes.redrive.as_ref().is_some_and(|redrive| redrive.to == target)
        });
        // The one answer of SQS whose list begins with a small letter.
        Ok(self.page("queueUrls", &list, sources.map(|(name, _)| name)))
    }

    /// A page of queues, whose names come in order.
    fn page<'a>(&self, field: &str, list: &List, names: impl Iterator<Item = &'a String>) -> Value {
        let mut names = names
            .skip_while(|name| list.next_token.as_ref().is_some_and(|last| *name <= last))
            .peekable();
        let max = list.max_results.unwrap_or(PAGE).clamp(1, PAGE);
        let page: Vec<_> = names.by_ref().take(max).collect();
        let urls: Vec<_> = page.iter().map(|name| self.url(name)).collect();
        let mut answer = json!({ field: urls });
        if names.peek().is_some()
            && let (Some(fields), Some(last)) = (answer.as_object_mut(), page.last())
        {
            fields.insert("NextToken".to_owned(), Value::String((*last).clone()));
        }
        answer
    }

    fn url(&self, name: &str) -> String {
        format!("{}{name}", self.base_url)
    }
}

/// Dead letters go to another queue, which exists.
fn check_redrive(name: &str, attributes: &Attributes, state: &State) -> Result<(), Refusal> {
    let Some(redrive) = &attributes.redrive else { return Ok(()) };
    if redrive.to == name || state.queue(&redrive.to).is_err() {
        let reason = "Dead letter target does not exist, or is the queue itself";
        return Err(Refusal::parameter("RedrivePolicy", &redrive.to, reason));
    }
    Ok(())
}

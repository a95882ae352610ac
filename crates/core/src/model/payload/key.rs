//! Keys of payloads in the bucket, and the places of tasks: the prefixes of their keys.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::checked_text::Sha256Hex;
use crate::{
    limits::PAYLOAD_KEY_BYTES_MAX,
    model::{
        attempt::Action,
        hash::fnv1a_128,
        names::{Incarnation, Part, TaskId},
    },
};

/// The prefix of the keys of uploads.
pub const UPLOADS: &str = "uploads/";

/// The prefix of the keys of all objects that belong to tasks.
pub const TASKS: &str = "tasks/";

/// The key of an object: `uploads/…` or `tasks/…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadKey(String);

/// The text is not a [`PayloadKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the key of a payload")]
pub struct InvalidPayloadKey;

impl TryFrom<String> for PayloadKey {
    type Error = InvalidPayloadKey;

    fn try_from(text: String) -> Result<Self, InvalidPayloadKey> {
        let is_known = text.starts_with(UPLOADS) || text.starts_with(TASKS);
        let is_plain = |segment: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
            // Task ids, steps and numbers begin with a letter or a digit, so `.` and `..` are no segments.
            segment.bytes().all(allowed)
                && segment.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        };
        if is_known && text.len() <= PAYLOAD_KEY_BYTES_MAX && text.split('/').all(is_plain) {
            return Ok(Self(text));
        }
        Err(InvalidPayloadKey)
    }
}

impl From<PayloadKey> for String {
    fn from(key: PayloadKey) -> Self {
        key.0
    }
}

impl PayloadKey {
    /// The key of a new upload. `id` must be random, because a client that knows the key may submit the upload.
    #[must_use]
    pub fn upload(id: u128) -> Self {
        Self(format!("{UPLOADS}{id:032x}"))
    }

    /// The key itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the key of an upload.
    #[must_use]
    pub fn is_upload(&self) -> bool {
        self.0.starts_with(UPLOADS)
    }

    /// The tasks to which the object belongs: the task itself first, then its parent and their parents. Empty if the
    /// key is not that of a task's object.
    #[must_use]
    pub fn owners(&self) -> Vec<(TaskId, Incarnation)> {
        let levels = self.0.strip_prefix(TASKS).unwrap_or_default().split('/');
        let levels = levels.map_while(|level| {
            let (task_id, incarnation) = level.split_once('@')?;
            Some((task_id.parse().ok()?, incarnation.parse().ok()?))
        });
        let mut owners: Vec<_> = levels.collect();
        owners.reverse();
        owners
    }
}

impl fmt::Display for PayloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of the payloads of one task: the prefix of their keys. It begins with the place of the parent task, so that
/// a parent may read what its child tasks have stored, and no task may read what others have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadPlace(String);

impl TryFrom<String> for PayloadPlace {
    type Error = InvalidPayloadKey;

    fn try_from(text: String) -> Result<Self, InvalidPayloadKey> {
        let levels = text.strip_prefix(TASKS).and_then(|rest| rest.strip_suffix('/'));
        let levels = levels.ok_or(InvalidPayloadKey)?;
        let is_task = |level: &str| {
            level.split_once('@').is_some_and(|(task_id, incarnation)| {
                task_id.parse::<TaskId>().is_ok() && incarnation.parse::<Incarnation>().is_ok()
            })
        };
        if text.len() < PAYLOAD_KEY_BYTES_MAX && levels.split('/').all(is_task) {
            return Ok(Self(text));
        }
        Err(InvalidPayloadKey)
    }
}

impl From<PayloadPlace> for String {
    fn from(place: PayloadPlace) -> Self {
        place.0
    }
}

impl PayloadPlace {
    /// The place of a task that has no parent.
    #[must_use]
    pub fn of_task(task_id: &TaskId, incarnation: Incarnation) -> Self {
        Self(format!("{TASKS}{task_id}@{incarnation}/"))
    }

    /// The place of a child task of the task with this place.
    #[must_use]
    pub fn of_child(&self, task_id: &TaskId, incarnation: Incarnation) -> Self {
        Self(format!("{}{task_id}@{incarnation}/", self.0))
    }

    /// The prefix itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The prefix of the keys of all tasks that have had the same id, with the same parent. It ends before the incarnation.
    #[must_use]
    pub fn prefix_of_id(&self) -> &str {
        self.0.rfind('@').and_then(|at| self.0.get(..=at)).unwrap_or(&self.0)
    }

    /// Whether the object with this key belongs to the task, or to one of its child tasks.
    #[must_use]
    pub fn contains(&self, key: &PayloadKey) -> bool {
        key.as_str().starts_with(&self.0)
    }

    /// The key under which an agent stores the response to an attempt. It is the same for every delivery of the request.
    #[must_use]
    pub fn output_key(&self, part: &Part, action: Action, attempt: u32) -> PayloadKey {
        let item = part.item.map(|item| format!("{item}/")).unwrap_or_default();
        let (step, action) = (&part.step, action.name());
        PayloadKey(format!("{}output/{step}/{item}{action}/{attempt}", self.0))
    }

    /// The key of the task's copy of the object with this key and digest. It follows from the content of an upload, so that the same content, uploaded
    /// twice, is the same submission. The digest of another task's object is not verified; its key is unique.
    #[must_use]
    pub fn claim_key(&self, key: &PayloadKey, sha256: &Sha256Hex) -> PayloadKey {
        let name = match key.is_upload() {
            true => sha256.as_str().to_owned(),
            false => format!("{:032x}", fnv1a_128(key.as_str())),
        };
        PayloadKey(format!("{}input/{name}", self.0))
    }
}

impl JsonSchema for PayloadKey {
    fn schema_name() -> Cow<'static, str> {
        "PayloadKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(uploads|tasks)(/[0-9A-Za-z][0-9A-Za-z._:@-]*)+$" })
    }
}

impl JsonSchema for PayloadPlace {
    fn schema_name() -> Cow<'static, str> {
        "PayloadPlace".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^tasks(/[0-9A-Za-z][0-9A-Za-z._:-]*@[0-9a-z]{9})+/$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    fn place(task_id: &str) -> PayloadPlace {
        PayloadPlace::of_task(&task_id.parse().unwrap(), "000000001".parse().unwrap())
    }

    #[test]
    fn only_a_task_and_its_ancestors_contain_its_objects() {
        let parent = place("order-1");
        let child = parent.of_child(&"order-1:ship".parse().unwrap(), "000000002".parse().unwrap());
        let key = child.output_key(&"pack[3]".parse().unwrap(), Action::Do, 2);
        let text = "tasks/order-1@000000001/order-1:ship@000000002/output/pack/3/do/2";
        assert_eq!(key.as_str(), text);
        assert_eq!(PayloadKey::try_from(text.to_owned()), Ok(key.clone()));
        assert!(parent.contains(&key) && child.contains(&key));
        assert!(!place("order-2").contains(&key) && !place("order").contains(&key));
        let same_id =
            PayloadPlace::of_task(&"order-1".parse().unwrap(), "000000002".parse().unwrap());
        assert!(!same_id.contains(&key), "a later task with the same id");
        let owners = key.owners();
        let owners: Vec<_> = owners.iter().map(|(id, at)| format!("{id} {at}")).collect();
        assert_eq!(owners, ["order-1:ship 000000002", "order-1 000000001"]);
        assert_eq!(PayloadKey::upload(7).owners(), []);
        let place = String::from(child.clone());
        assert_eq!(PayloadPlace::try_from(place), Ok(child));
    }

    #[test]
    fn the_longest_key_is_valid() {
        let id: TaskId = "x".repeat(limits::TASK_ID_CHARS_MAX).parse().unwrap();
        let incarnation: Incarnation = "zzzzzzzzz".parse().unwrap();
        let mut place = PayloadPlace::of_task(&id, incarnation);
        for _ in 0..limits::CHILD_DEPTH_MAX {
            place = place.of_child(&id, incarnation);
        }
        let step = "s".repeat(limits::NAME_CHARS_MAX).parse().unwrap();
        let part = Part { step, item: Some(u32::MAX) };
        let longest = place.output_key(&part, Action::Undo, u32::MAX);
        assert_eq!(PayloadKey::try_from(longest.to_string()), Ok(longest.clone()));
        assert_eq!(longest.owners().len(), 6);
        assert_eq!(PayloadPlace::try_from(place.as_str().to_owned()), Ok(place));
    }
}

//! The state store on DynamoDB.
//!
//! | table or index | key | contents |
//! | --- | --- | --- |
//! | table `tasks` | `task_id` | one small item for each task |
//! | index `due` of `tasks` | `shard`, `due` | only keys; an item without `due` is not in the index |
//! | index `ended` of `tasks` | `ended`, `ended_at` | the name of the workflow, for tasks in a final state |
//! | table `documents` | `task_id`, `document` | documents, written once; the index of labels; records that instances share |
//!
//! Every save of a task is a `PutItem` on the condition that the stored revision is the one that was read. The refusal of
//! a lost race contains the stored item, so the loser needs no additional read. If the database refuses without the
//! item, the store reads it.
//!
//! | module | contents |
//! | --- | --- |
//! | `dynamo_store` | the store with its tables, and reads that only people need |
//! | `state_store` | the port of the state store |
//! | `indices`, `labels` | lists and counts of tasks; the index of labels |
//! | `search`, `newest` | searches of tasks |
//! | `extend`, `unresolved` | extension of expiries; the tasks of a workflow version |
//! | `reads`, `writes` | reads and writes that share requests |
//! | `batch_support`, `backoff` | what to do after a refused batch; pauses |
//! | `throttle_counter` | counts throttled responses |
//! | `item_fields` | the contents of items |

mod backoff;
mod batch_support;
mod dynamo_store;
mod extend;
mod indices;
mod item_fields;
mod labels;
mod newest;
mod reads;
mod search;
mod state_store;
mod throttle_counter;
mod unresolved;
mod writes;

pub use aws_sdk_dynamodb::Client;
pub use dynamo_store::DynamoStore;
pub use indices::{InvalidListCursor, ListCursor, TaskCount, TaskList, TaskListEntry};
pub use labels::{Label, Labels};
pub use newest::NewestTasks;
pub use search::{FilterTime, PageCursor, SearchResult, StateFilter, TaskFilter};
pub(crate) use throttle_counter::ThrottleCounter;

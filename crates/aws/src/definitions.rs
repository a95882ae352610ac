//! The definitions of workflows on DynamoDB, with a cache in memory.
//!
//! | module | contents |
//! | --- | --- |
//! | `dynamo_definitions` | reading definitions, with the cache |
//! | `publication` | publishing and unpublishing versions |
//! | `listing` | lists of workflows and versions |
//! | `definition_item` | the format of the table's items |
//! | `cache`, `single_flight` | the cache, and single-flight loading |

mod cache;
mod definition_item;
mod dynamo_definitions;
mod listing;
mod publication;
mod single_flight;

pub use definition_item::StoredDefinition;
pub use dynamo_definitions::DynamoDefinitions;
pub use listing::VersionSummary;
pub use publication::{PublishError, check_task_ids, validated_json};

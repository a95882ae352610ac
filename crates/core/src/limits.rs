//! Every limit of the system, with the reason for its value.
//!
//! Input that exceeds a limit is refused with an error where it enters the system: at submission, at the publication of
//! a workflow, or in an agent's reply. So it cannot fail at a later stage.
//!
//! | module | limits of, and functions for |
//! | --- | --- |
//! | `agents` | agents: registration, replies, circuit breakers |
//! | `callbacks` | callback URLs |
//! | `definition` | a workflow definition |
//! | `events` | events and alerts |
//! | `expression` | expressions and templates |
//! | `json` | the nesting of JSON, and the memory of a value |
//! | `messages` | documents and messages |
//! | `names` | names and ids |
//! | `operators` | operators' commands |
//! | `payloads` | payloads in the bucket |
//! | `schema` | the JSON Schema of an input, and its validation |
//! | `task` | a task, its retention, and one decision |
//! | `text` | texts, which are shortened |
//! | `webhooks` | webhooks of other services |

pub use self::{
    agents::*, callbacks::*, definition::*, events::*, expression::*, json::*, messages::*,
    names::*, operators::*, payloads::*, schema::*, task::*, text::*, webhooks::*,
};

mod agents;
mod callbacks;
mod definition;
mod events;
mod expression;
mod json;
mod messages;
mod names;
mod operators;
mod payloads;
mod schema;
mod task;
mod text;
mod webhooks;

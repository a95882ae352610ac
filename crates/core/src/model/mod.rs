//! Data types of the engine, and the messages that the roles exchange. Their methods only derive values from the data.

pub mod attempt;
pub mod call_auth;
pub mod command;
pub mod document;
pub mod error_detail;
pub mod escapes;
pub mod events;
pub mod hash;
pub mod inline_documents;
pub mod integers;
pub mod items;
pub mod json_text;
pub mod lifecycle;
pub mod messages;
pub mod names;
pub mod part_span;
pub mod payload;
pub mod registration;
pub mod request_path;
pub mod responses;
pub mod retention;
pub mod step;
pub mod task;
pub mod time;

//! The decision engine: what becomes of a task when something happens to it.
//!
//! | module | |
//! | --- | --- |
//! | [`event`], [`decision`], [`documents`], [`effect`] | what goes in, and what comes out |
//! | [`transition`] | the table of all transitions, and the decision |
//! | [`change`] | a change in the making |
//! | [`forward`], [`compensate`] | which steps begin, and which undos |
//! | [`operate`] | operators' commands |
//! | [`request`], [`notify`] | what is sent: requests, and notifications of an end |
//! | [`values`] | what expressions read |

pub mod change;
pub mod compensate;
pub mod decision;
pub mod documents;
pub mod effect;
pub mod event;
pub mod forward;
pub mod notify;
pub mod operate;
pub mod request;
pub mod transition;
pub mod values;

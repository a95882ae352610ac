//! The conformance kit for agents: plays the scheduler, and the service that the agent calls, and checks which rules of the
//! contract (`docs/agent-contract.md`) an agent obeys. The agent may be written in any language.
//!
//! | module | contents |
//! | --- | --- |
//! | [`rule`] | the rules that the kit checks |
//! | [`case`] | the situations into which the kit brings an agent, and how the service behaves in each |
//! | [`request`] | the requests of the cases |
//! | [`evidence`] | what the kit observed, in order |
//! | [`judge`] | decides from the evidence which rules hold: pure |
//! | [`run`] | sends the requests of all cases and collects the evidence |
//! | [`service`] | the HTTP service that the kit plays |
//! | [`local`] | a queue pair and the service in this process, and the environment of an agent that uses them |

pub mod case;
pub mod evidence;
pub mod judge;
pub mod local;
pub mod request;
pub mod rule;
pub mod run;
pub mod service;
mod sqs_log;

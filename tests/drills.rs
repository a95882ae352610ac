//! Drills: what happens to tasks in flight when a deployment is upgraded, restored from a backup, or loses its region.
//!
//! All of them run the real handlers with the real adapters on the embedded AWS. A [`world::World`] delivers the messages,
//! plays clients, operators and the remote service, and can be copied at any moment: its tables, messages and time. Nothing
//! sleeps, and every run takes the same course.

mod compatibility;
mod failover;
mod function_process;
mod interfaces;
mod network;
mod records;
mod release;
mod restore;
mod samples;
mod scenario;
mod service;
mod shape;
mod tables;
mod two_releases;
mod upgrade;
mod upgrade_of_every_kind;
mod world;

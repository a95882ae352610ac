//! Lifetimes: ids that are used again, tasks that live longer than planned, and what remains after expiry. The tests run on
//! the in-memory ports, whose clock can advance by months and whose expired items can be deleted one by one.

#![cfg(test)]

mod child_tasks;
mod commands;
mod gone;
mod harness;
mod id_reuse;
mod late_child_messages;
mod lost_races;
mod payloads;
mod retention;

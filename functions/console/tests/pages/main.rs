//! The console's pages on embedded AWS: requests and the resulting pages.

#![cfg(test)]

mod access;
mod agents;
mod bulk;
mod callbacks;
mod dead_letters;
mod overview;
mod shop;
mod task;
mod tasks;
mod test_console;
mod workflows;

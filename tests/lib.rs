//! Nothing of its own: the tests are in `main.rs` and its modules.

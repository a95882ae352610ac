//! steward-local

pub mod embedded;
pub mod services;

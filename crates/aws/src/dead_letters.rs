//! Dead letters: messages that were received too often without success. This module lists them without removing them, and
//! redrives them to the queues that they came from.
//!
//! ```text
//! steward-scheduler ──► failed too often ──► steward-scheduler-dead-letters
//!        ▲                                       │                ▲
//!        └─────────────── redrive ───────────────┘    look: receive and release
//! ```

mod dead_letter;
mod error;
mod queue;
mod redrive;

pub use dead_letter::DeadLetter;
pub use error::DeadLettersError;
pub use queue::{DeadLetterQueue, QueueContents, SUFFIX};
pub use redrive::{RedriveOutcome, RedriveRequest};

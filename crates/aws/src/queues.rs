//! The settings of the queues in `template.yaml`, for the emulator and the forecast. A test compares them with the
//! template.

/// When a queue redelivers a message, and when the message becomes a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSettings {
    /// The visibility timeout, in seconds.
    pub visibility_seconds: u32,
    /// The number of receives after which a message becomes a dead letter.
    pub receives_max: u32,
}

/// The submissions queue. It allows more receives than the others: there is no task yet that the supervisor could recover.
pub const SUBMISSIONS: QueueSettings = QueueSettings { visibility_seconds: 180, receives_max: 30 };
/// The scheduler's queue.
pub const SCHEDULER: QueueSettings = QueueSettings { visibility_seconds: 180, receives_max: 16 };
/// The queue of an agent. An agent may hold a request for as long as its function runs.
pub const AGENT: QueueSettings = QueueSettings { visibility_seconds: 720, receives_max: 16 };

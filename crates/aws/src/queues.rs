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
/// The queue of operators' commands, which the scheduler handles like its own queue.
pub const COMMANDS: QueueSettings = SCHEDULER;
/// The queue of events that steps wait for. An event has no task that the supervisor could recover either.
pub const EVENTS: QueueSettings = SUBMISSIONS;
/// The visibility timeout of the queue of the supervisor's ticks, in seconds: six times the time limit of the supervisor.
/// It is longer than [`SWEEPS_RETENTION_SECONDS`], so a tick whose sweep failed is not delivered again. The next tick
/// sweeps the same tasks.
pub const SWEEPS_VISIBILITY_SECONDS: u32 = 300;
/// How long the queue of the supervisor's ticks keeps a message, in seconds: the least that SQS allows. By then the next run
/// of the supervisor has sent other ticks. The queue needs no dead-letter queue for the same reason.
pub const SWEEPS_RETENTION_SECONDS: u32 = 60;
/// The queue of an agent. An agent may hold a request for as long as its function runs.
pub const AGENT: QueueSettings = QueueSettings { visibility_seconds: 720, receives_max: 16 };

//! Limits of events: of those that Steward publishes, and of those that start a task or complete a step.

/// Characters in an event's source, and in its detail-type (EventBridge).
pub const EVENT_TEXT_CHARS_MAX: usize = 256;

/// Events that one step waits for.
pub const EVENTS_OF_WAIT_MAX: usize = 5;

/// Characters of the event pattern of a rule (EventBridge).
pub const EVENT_PATTERN_CHARS_MAX: usize = 2_048;

/// Characters of the value by which an event finds the step that waits for it.
pub const CORRELATION_KEY_CHARS_MAX: usize = 256;

/// Steps in one alert. With this limit, ten alerts fit into one request to EventBridge.
pub const ALERT_STEPS_MAX: usize = 100;

/// Events about failed steps and items that one decision publishes. Only the undo of a task can fail more at once: it gives up
/// the items that wait.
pub const FAILED_PART_EVENTS_MAX: usize = 100;

//! Limits of operators' commands.

use std::time::Duration;

/// Characters in a command's id. A UUID has 36.
pub const COMMAND_ID_CHARS_MAX: usize = 36;

/// Characters in each of the fields `by` and `why` of a command.
pub const COMMAND_TEXT_CHARS_MAX: usize = 200;

/// Tasks in one bulk command. Their ids fit in one record, and their results fit on one page of the console.
pub const BULK_TASKS_MAX: usize = 1_000;

/// How long the record of a bulk command is kept.
pub const BULK_RECORD_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

//! Limits of names: of tasks, tenants, workflows, steps, agents and queues.

/// Characters in a task id. The id is part of the idempotency key, and remote services limit the length of that key.
pub const TASK_ID_CHARS_MAX: usize = 128;

/// Characters in the name of a tenant. SQS accepts 128 in a message group id; each item of a task has room for these.
pub const TENANT_CHARS_MAX: usize = 64;

/// Characters in the name of a workflow, a step or an agent. The step names add to the size of the task's item.
pub const NAME_CHARS_MAX: usize = 40;

/// Characters in the name of a queue: SQS's limit.
pub const QUEUE_NAME_CHARS_MAX: usize = 80;

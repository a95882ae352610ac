//! What the console's function is configured with, beside what all functions are.

use envconfig::Envconfig;

use crate::access::Operators;

/// The console's own settings.
#[derive(Debug, Envconfig)]
pub struct ConsoleConfig {
    /// Who may act: see [`Operators`]. Nobody if empty.
    #[envconfig(from = "STEWARD_CONSOLE_OPERATORS", default = "")]
    pub operators: Operators,
    /// The identity-aware proxies whose word on who is calling is taken: IAM identities' ARNs, separated by
    /// commas, each exact or with a `*` at its end.
    #[envconfig(from = "STEWARD_CONSOLE_PROXIES", default = "")]
    pub proxies: Operators,
    /// Where a task's logs are.
    #[envconfig(from = "STEWARD_CONSOLE_LOGS_URL")]
    pub logs_url: Option<String>,
    /// Where a trace is.
    #[envconfig(from = "STEWARD_CONSOLE_TRACE_URL")]
    pub trace_url: Option<String>,
    /// Where the deployment's dashboard is.
    #[envconfig(from = "STEWARD_CONSOLE_DASHBOARD_URL")]
    pub dashboard_url: Option<String>,
}

impl ConsoleConfig {
    /// The addresses elsewhere.
    #[must_use]
    pub fn links(&self) -> Links {
        let Self { logs_url, trace_url, dashboard_url, .. } = self;
        let (logs, trace) = (logs_url.clone(), trace_url.clone());
        Links { logs, trace, dashboard: dashboard_url.clone() }
    }
}

/// Addresses elsewhere. `{task_id}` stands for a task's id, `{trace_id}` for a trace's as W3C writes it,
/// `{xray_trace_id}` as X-Ray does.
#[derive(Debug, Default)]
pub struct Links {
    /// A task's logs.
    pub logs: Option<String>,
    /// A trace.
    pub trace: Option<String>,
    /// The deployment's dashboard.
    pub dashboard: Option<String>,
}

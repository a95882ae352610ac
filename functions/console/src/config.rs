//! The configuration of the console's function, beside the configuration that all functions share.

use envconfig::Envconfig;

use crate::caller::IdentityPatterns;

/// The console's configuration.
#[derive(Debug, Envconfig)]
pub struct ConsoleConfig {
    /// The identities that may send commands; see [`IdentityPatterns`]. If empty, all access is read-only.
    #[envconfig(from = "STEWARD_CONSOLE_OPERATORS", default = "")]
    pub operators: IdentityPatterns,
    /// The identity-aware proxies whose headers about the caller are trusted: ARNs of IAM identities, separated by
    /// commas, each exact or with a `*` at its end.
    #[envconfig(from = "STEWARD_CONSOLE_PROXIES", default = "")]
    pub proxies: IdentityPatterns,
    /// The URL pattern of a task's logs; see [`Links`].
    #[envconfig(from = "STEWARD_CONSOLE_LOGS_URL")]
    pub logs_url: Option<String>,
    /// The URL pattern of a trace; see [`Links`].
    #[envconfig(from = "STEWARD_CONSOLE_TRACE_URL")]
    pub trace_url: Option<String>,
    /// The URL of the deployment's dashboard.
    #[envconfig(from = "STEWARD_CONSOLE_DASHBOARD_URL")]
    pub dashboard_url: Option<String>,
}

impl ConsoleConfig {
    /// The links to other tools.
    #[must_use]
    pub fn links(&self) -> Links {
        let Self { logs_url, trace_url, dashboard_url, .. } = self;
        let (logs, trace) = (logs_url.clone(), trace_url.clone());
        Links { logs, trace, dashboard: dashboard_url.clone() }
    }
}

/// Links to other tools. In a URL pattern `{task_id}` stands for the task's id, `{trace_id}` for its trace id in W3C
/// format, and `{xray_trace_id}` for its trace id in X-Ray format.
#[derive(Debug, Default)]
pub struct Links {
    /// The URL pattern of a task's logs.
    pub logs: Option<String>,
    /// The URL pattern of a trace.
    pub trace: Option<String>,
    /// The URL of the deployment's dashboard.
    pub dashboard: Option<String>,
}

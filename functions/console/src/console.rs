//! The data sources of the pages.

use std::sync::Arc;

use steward_aws::AwsPorts;

use crate::config::Links;

/// The data sources of the pages.
#[derive(Debug, Clone)]
pub struct Console {
    /// The state store, the definitions and the queues.
    pub ports: Arc<AwsPorts>,
    /// Links to a task's logs and trace, and to the dashboard.
    pub links: Arc<Links>,
}

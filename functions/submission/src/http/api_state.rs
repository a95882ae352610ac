//! What the handlers of all routes share.

use std::sync::Arc;

use axum::extract::State;
use steward_core::submission::ReplyQueues;

use crate::intake::IntakeView;

/// The state of the routes.
pub(super) type ApiState<P> = State<(Arc<P>, Arc<ReplyQueues>, Arc<IntakeView>)>;

//! The parsing of requests.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::{error::SqsError, service::name_of};

/// The JSON of a response, or SQS's error.
pub(super) type SqsResult = Result<Value, SqsError>;

/// Parses the body of a request.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, SqsError> {
    serde_json::from_slice(body).map_err(|error| SqsError::unreadable(&error))
}

/// The name of the queue in a request.
pub(super) fn queue_name(body: &[u8]) -> Result<String, SqsError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Request {
        queue_url: String,
    }
    parse(body).map(|Request { queue_url }| name_of(&queue_url).to_owned())
}

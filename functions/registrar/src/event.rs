//! The events that CloudFormation sends for a custom resource.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{DeliveryError, RegistrationError};

/// An event for a custom resource. Only the URL for the answer is required: every event that has one is answered.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct CustomResourceEvent {
    /// The URL to which the answer is sent. Anybody who knows it may answer: it never reaches a log.
    #[serde(rename = "ResponseURL")]
    pub(crate) response_url: String,
    /// What happened to the resource.
    #[serde(default)]
    pub(crate) request_type: String,
    /// The stack of the resource.
    #[serde(default)]
    pub(crate) stack_id: String,
    /// The id of the request. The answer repeats it.
    #[serde(default)]
    pub(crate) request_id: String,
    /// The name of the resource in its template.
    #[serde(default)]
    pub(crate) logical_resource_id: String,
    /// The id that the answer to the creation gave to the resource. Absent in a creation.
    pub(crate) physical_resource_id: Option<String>,
    /// The properties of the resource.
    #[serde(default)]
    pub(crate) resource_properties: Map<String, Value>,
}

/// What happened to a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestType {
    Create,
    Update,
    Delete,
}

impl CustomResourceEvent {
    /// Reads an event.
    ///
    /// # Errors
    /// The event is not one of a custom resource, so it cannot be answered.
    pub(crate) fn parse(event: &Value) -> Result<Self, DeliveryError> {
        // The message of serde may contain the URL.
        Self::deserialize(event).map_err(|_| DeliveryError::NotACustomResource)
    }

    pub(crate) fn request(&self) -> Result<RequestType, RegistrationError> {
        match self.request_type.as_str() {
            "Create" => Ok(RequestType::Create),
            "Update" => Ok(RequestType::Update),
            "Delete" => Ok(RequestType::Delete),
            other => Err(RegistrationError::UnknownRequest(other.to_owned())),
        }
    }

    /// A property that is a text.
    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        self.resource_properties.get(name)?.as_str()
    }
}

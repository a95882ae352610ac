//! The options of an import: values that the state machine does not contain.

use std::collections::BTreeMap;

/// What the importer does not find in the state machine.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the workflow.
    pub name: String,
    /// The region in the URLs of AWS services.
    pub region: String,
    /// The values of substitutions of the deployment: `${Name}` becomes the value.
    pub substitutions: BTreeMap<String, String>,
}

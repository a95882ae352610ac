//! The account and the region of the embedded resources.

/// The AWS account of every embedded resource.
pub const ACCOUNT: &str = "000000000000";

/// The AWS region of every embedded resource.
pub const REGION: &str = "us-east-1";

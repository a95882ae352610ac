//! A request to the embedded AWS: how it arrives, who signed it, and how large it may be.

use super::account::ACCOUNT;

/// The largest request body, in bytes. AWS allows 16 MiB on DynamoDB. Requests of this project are much smaller,
/// so a small limit detects runaway payloads early.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How a request reached the embedded AWS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryPoint {
    /// The SDK's connector in this process. A response is never lost.
    InProcess,
    /// HTTP. A response can be lost, and the request repeated.
    Http,
}

/// The identity that signed a request: the access key id in its `authorization` header. The signature is not checked, so it
/// identifies the sender, but does not authenticate it. A request without a signature is the account's.
pub(super) fn signer(authorization: Option<&str>) -> &str {
    let key_id = || authorization?.split_once("Credential=")?.1.split('/').next();
    key_id().filter(|key_id| !key_id.is_empty()).unwrap_or(ACCOUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signer_is_the_access_key_id_of_the_signature() {
        let header = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261124/us-east-1/sqs/aws4_request, SignedHeaders=host";
        assert_eq!(signer(Some(header)), "AKIDEXAMPLE");
        for unsigned in [None, Some(""), Some("Bearer x"), Some("AWS4-HMAC-SHA256 Credential=/x")] {
            assert_eq!(signer(unsigned), ACCOUNT, "{unsigned:?}");
        }
    }
}

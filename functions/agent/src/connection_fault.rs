//! Why a call has no complete response, named so that an operator knows what to correct: DNS, the port, or TLS.

use std::{error::Error, io};

use rustls::{CertificateError, Error as TlsError};

use crate::call_fault::CallFault;

/// The fault of a call without a complete response.
pub(crate) fn broken_connection(error: &reqwest::Error) -> CallFault {
    let may_have_run = !error.is_connect();
    if error.is_timeout() && may_have_run {
        return CallFault::TimedOut { reason: "the call timed out".to_owned() };
    }
    let reason = reason(error);
    CallFault::Transient { reason, retry_after: None, may_have_run, detail: None }
}

/// Why there is no complete response, for operators.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    let what = if error.is_connect() { "no connection" } else { "the connection broke" };
    match cause(error) {
        Some(cause) => format!("{what}: {cause}"),
        None => what.to_owned(),
    }
}

/// The first known cause in the chain of an error. Its words are constants: the errors of libraries may name hosts and paths.
fn cause(error: &reqwest::Error) -> Option<&'static str> {
    let chain = std::iter::successors(error.source(), |error| (*error).source());
    chain.filter_map(known_cause).next()
}

fn known_cause(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return error.is_parse().then_some("the answer is not HTTP; does the base URL need https?");
    }
    // The type of this error is private.
    if error.to_string() == "dns error" {
        return Some("the host name does not resolve");
    }
    if let Some(error) = error.downcast_ref::<TlsError>() {
        return Some(tls_cause(error));
    }
    let error = error.downcast_ref::<io::Error>()?;
    // An I/O error hides the error that it holds from the chain.
    match error.get_ref() {
        Some(inner) => known_cause(inner),
        None => io_cause(error.kind()),
    }
}

fn io_cause(kind: io::ErrorKind) -> Option<&'static str> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match kind {
        io::ErrorKind::ConnectionRefused => Some("the port refuses connections"),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Some("no route to the host")
        }
        _ => None,
    }
}

fn tls_cause(error: &TlsError) -> &'static str {
    use CertificateError as Certificate;
    #[expect(clippy::wildcard_enum_match_arm, reason = "foreign, non-exhaustive enums")]
    match error {
        TlsError::InvalidCertificate(certificate) => match certificate {
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                "the certificate has expired"
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "the certificate is not valid yet"
            }
            Certificate::UnknownIssuer => "the certificate is from an unknown authority",
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "the certificate is for another host"
            }
            _ => "the certificate is not valid",
        },
        TlsError::InvalidMessage(_) => "the port does not speak TLS",
        _ => "TLS failed",
    }
}

//! The service, the action and the completion that a resource names.

/// How the step gets its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The response of the call.
    Response,
    /// A task token, which the parameters contain.
    Token,
    /// A job that the state waits for (`.sync`).
    Job,
}

/// The parts of a resource such as `arn:aws:states:::sqs:sendMessage.waitForTaskToken`.
pub(super) fn integration(resource: &str) -> Option<(&str, &str, Completion)> {
    let (_, rest) = resource.split_once(":states:::")?;
    let (rest, completion) = match rest.split_once('.') {
        Some((rest, "waitForTaskToken")) => (rest, Completion::Token),
        Some((rest, "sync" | "sync:2")) => (rest, Completion::Job),
        Some(_) => return None,
        None => (rest, Completion::Response),
    };
    let rest = rest.strip_prefix("aws-sdk:").unwrap_or(rest);
    let (service, action) = rest.split_once(':')?;
    Some((service, action, completion))
}

/// How the state completes.
pub(crate) fn completion(resource: &str) -> Completion {
    integration(resource).map_or(Completion::Response, |(.., completion)| completion)
}

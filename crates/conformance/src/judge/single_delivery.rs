//! The verdicts on requests that only one delivery may handle.

use super::{Facts, did_run};
use crate::{
    case::{Case, ServiceBehaviour},
    rule::Verdict,
};

impl Facts<'_> {
    /// Requests that are not idempotent: one call an attempt, and no denial of a call that had an effect.
    pub(super) fn called_once(&self) -> Verdict {
        let cases = || Case::ALL.into_iter().filter(|case| case.is_once());
        let repeated = cases().filter_map(|case| self.repeated_call(case));
        let worked = cases().filter(|case| case.service() == ServiceBehaviour::Works);
        let called = worked.filter(|case| self.was_called_in(*case));
        let denied = called.flat_map(|case| self.replies_in(case));
        let denied = denied.filter(|reply| reply.denies_effect()).map(|reply| {
            let case = reply.request.map_or("?", |request| request.case.name());
            format!("case `{case}`: a call, and a reply {}{}", reply.status(), did_run(reply))
        });
        let is_silent =
            !self.was_called_in(Case::Once) && self.replies_in(Case::Once).next().is_none();
        let silent = is_silent.then(|| "case `once`: neither a call nor a reply".to_owned());
        Verdict::of(repeated.chain(denied).chain(silent))
    }

    /// A call in a case that is not the first one of its attempt: more calls than attempts were requested up to then.
    fn repeated_call(&self, case: Case) -> Option<String> {
        let mut calls = self.calls_in(case).enumerate();
        calls.find_map(|(earlier, call)| {
            let requests = self.requests.iter();
            let attempts = requests
                .filter(|(position, request)| *position < call.position && request.case == case)
                .filter_map(|(_, request)| request.message.get("attempt")?.as_u64())
                .max()
                .unwrap_or_default();
            let attempts = usize::try_from(attempts).unwrap_or(usize::MAX);
            (earlier >= attempts)
                .then(|| format!("case `{}`: a second call for one attempt", case.name()))
        })
    }

    /// `certain` is said only of exclusive requests that were not delivered before, no call follows, and no call of another
    /// delivery took effect.
    pub(super) fn certain_is_final(&self) -> Verdict {
        let certain = self.replies.iter().filter(|reply| reply.is_certain());
        Verdict::of(certain.filter_map(|reply| {
            let case = reply.request?.case;
            let is_called_later = || self.calls_in(case).any(|call| call.position > reply.position);
            let what = if !case.is_exclusive() {
                "the request is not exclusive"
            } else if case == Case::ExclusiveRedriven {
                "the request was delivered before"
            } else if case == Case::ExclusiveTwice && self.was_called_in(case) {
                "another delivery called"
            } else if is_called_later() {
                "a later delivery called"
            } else {
                return None;
            };
            Some(format!("case `{}`: a reply says `certain`, but {what}", case.name()))
        }))
    }
}

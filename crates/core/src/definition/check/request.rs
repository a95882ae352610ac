//! Checks of the request of a step or an undo: what it calls, and its templates.

use super::{checker::Checker, templates::TemplateLocation};
use crate::{
    definition::step::RequestTemplate,
    hint,
    model::{
        aws_action::AwsAction,
        aws_services::{AwsProtocol, AwsService},
        messages::HttpMethod,
    },
};

impl<'p> Checker<'_> {
    /// `location` is that of a key of the action that makes the request, such as `request.path`.
    pub(super) fn check_request(
        &mut self,
        request: &RequestTemplate,
        location: impl Fn(&str) -> TemplateLocation<'p>,
    ) {
        let at = location("request").at;
        match (&request.aws, &request.path) {
            (Some(action), _) => self.check_aws_action(action, request, &at),
            (None, Some(_)) => {}
            (None, None) => self.report(at, "missing key `path`"),
        }
        if let Some(path) = &request.path {
            let location = location("request.path");
            if let Some(problem) = path.path_problem() {
                self.report(location.at.clone(), problem);
            }
            self.check_template(path, &location);
        }
        if let Some(body) = &request.body {
            self.check_template(body, &location("request.body"));
        }
    }

    fn check_aws_action(&mut self, action: &AwsAction, request: &RequestTemplate, at: &str) {
        let service = action.service();
        let has_path = request.path.is_some();
        match AwsService::named(service).protocol {
            AwsProtocol::Rest if has_path => {}
            AwsProtocol::Rest => {
                let message = format!(
                    "`{service}` is not a service whose operations need only a name: a REST API needs the `method` and the \
                     `path` of the operation"
                );
                let similar =
                    hint::suggestion(service, AwsService::called_by_name().collect::<Vec<_>>());
                self.report_with_hint(format!("{at}.aws"), message, similar);
            }
            AwsProtocol::Json { .. } | AwsProtocol::Query { .. } => {
                let message = format!("the operations of `{service}` need only a name: remove it");
                if has_path {
                    self.report(format!("{at}.path"), message.clone());
                }
                if request.method != HttpMethod::Post {
                    self.report(format!("{at}.method"), message);
                }
            }
        }
    }
}

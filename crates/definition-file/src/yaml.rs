//! Parses YAML and JSON, and describes syntax errors.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_saphyr::{Error, Localizer, Location, MessageFormatter, UserMessageFormatter};
use steward_core::definition::problem::DefinitionProblem;

use super::location::{LocatedProblem, SourceLocation};

/// Parses YAML or JSON: JSON is a subset of YAML, so one parser is enough.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    // YAML 1.1 reads the country code `NO` as false; YAML 1.2 reads it as a string.
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

/// The problem of a file that is not valid YAML.
pub(super) fn syntax_problem(error: &Error) -> LocatedProblem {
    let message = error.without_snippet().render_with_formatter(&PlainMessages);
    let problem = DefinitionProblem { at: String::new(), message, hint: None };
    LocatedProblem { problem, location: error.location().and_then(SourceLocation::new) }
}

/// The parser's messages, without the location.
struct PlainMessages;

impl MessageFormatter for PlainMessages {
    fn localizer(&self) -> &dyn Localizer {
        self
    }

    fn format_message<'a>(&self, error: &'a Error) -> Cow<'a, str> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
        match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => {
                format!("duplicate key `{key}`").into()
            }
            _ => UserMessageFormatter.format_message(error),
        }
    }
}

impl Localizer for PlainMessages {
    fn attach_location<'a>(&self, message: Cow<'a, str>, _: Location) -> Cow<'a, str> {
        message
    }
}

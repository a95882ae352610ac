//! The filter of the task index in a form or a query string.

use axum::{extract::Query, http::Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use steward_aws::store::TaskFilter;

use crate::page::Failure;

/// The filter in the query string of `uri`.
pub(crate) fn of(uri: &Uri) -> Result<TaskFilter, Failure> {
    let read = Query::try_from_uri(uri);
    let Query(filter) = read.map_err(|error| Failure::BadRequest(error.body_text()))?;
    Ok(filter)
}

/// The query string of a filter with additional parameters; without a question mark.
pub(crate) fn query_of(filter: &TaskFilter, more: &[(&str, String)]) -> String {
    let own = filter.pairs();
    let pairs = own.iter().map(|(name, value)| (*name, value));
    let pairs = pairs.chain(more.iter().map(|(name, value)| (*name, value)));
    let pairs = pairs
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    pairs.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use steward_core::model::task::Task;

    use super::*;
    use serde_json::json;

    fn filter(query: &str) -> Result<TaskFilter, Failure> {
        of(&format!("/console/tasks?{query}").parse().unwrap())
    }

    fn task() -> Task {
        let task = json!({
            "task_id": "o-1", "t": "acme", "l": { "customer": "42", "shop": "a" }, "workflow": "order", "v": 1, "i": 1_780_000_000_000_u64, "k": 0, "process_state": "Error",
            "revision": 7, "complete_by": 0, "submitted_at": 1_780_000_000_000_u64,
            "error": "step `charge`: Card declined", "undo_reason": "step charge: 402 Payment Required",
            "steps": {
                "reserve": { "s": "c", "a": 2, "f": 1 },
                "charge": { "s": "f", "a": 3, "f": 3 },
            },
        });
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn a_query_round_trips_and_empty_fields_are_ignored() {
        assert_eq!(
            filter("workflow=&state=&from=&to=&step=&error=&id=x").unwrap(),
            TaskFilter::default()
        );
        let query = "workflow=order&tenant=acme&label=customer%3D42%2C+shop%3Da%26b&state=Error&from=2026-11-21T18%3A25&step=charge&error=50%25+off+%26+more";
        let read = filter(query).unwrap();
        assert_eq!(read.error.as_deref(), Some("50% off & more"));
        assert_eq!(read.from.unwrap().0, "2026-11-21T18:25:00Z".parse().unwrap());
        assert_eq!(filter(&query_of(&read, &[])).unwrap(), read);
        assert!(
            query_of(&read, &[("before", "e1.2.x".to_owned())]).ends_with("&before=e1%2E2%2Ex")
        );
    }

    #[test]
    fn an_invalid_filter_is_rejected_with_the_reason() {
        for (query, expected) in [
            ("state=Lost", "`Lost` is not the state"),
            ("from=noon", "`noon` is not a time"),
            ("tenant=a+b", "tenant `a b` is not valid"),
            ("label=customer", "`customer` is not a label; write it as customer=42"),
        ] {
            let refused = filter(query).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn a_task_must_match_all_criteria() {
        for (query, matches) in [
            ("", true),
            ("workflow=order", true),
            ("workflow=return", false),
            ("tenant=acme", true),
            ("tenant=globex", false),
            ("label=customer%3D42", true),
            ("label=customer%3D42,shop%3Da", true),
            ("label=customer%3D42,shop%3Db", false),
            ("label=region%3Deu", false),
            ("state=Error", true),
            ("state=unfinished", false),
            ("state=Processed", false),
            ("step=charge", true),
            ("step=reserve", false),
            ("step=ship", false),
            ("error=card DECLINED", true),
            ("error=payment+required", true),
            ("error=timed+out", false),
            ("from=2026-05-28T20:26&to=2026-05-28T20:27", true),
            ("from=2026-05-28T20:27", false),
            ("to=2026-05-28", false),
            ("workflow=order&step=charge&error=gone", false),
        ] {
            let query = query.replace(' ', "+");
            assert_eq!(filter(&query).unwrap().matches(&task()), matches, "{query}");
        }
    }
}

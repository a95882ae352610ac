//! The form that the query protocol of AWS wants as body: `Action`, `Version`, and the input as parameters with flat names.
//!
//! | input | parameters |
//! | --- | --- |
//! | `{ A: { B: 1 } }` | `A.B=1` |
//! | `{ A: [x, y] }` | `A.member.1=x`, `A.member.2=y`; of EC2 `A.1=x`, `A.2=y` |
//! | `{ A: { x: 1 } }`, where A is a map | `A.entry.1.key=x`, `A.entry.1.value=1` |
//! | null | none |
//!
//! A key of the input may also be the whole name of a parameter: `{ "A.member.1": x }`.

use form_urlencoded::Serializer;
use serde_json::{Map, Value};
use steward_core::model::aws_services::{QueryLists, QueryMap};

/// How an API names its parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryNames {
    pub(crate) version: &'static str,
    pub(crate) lists: QueryLists,
    pub(crate) maps: &'static [QueryMap],
}

/// The form for an operation with this input.
///
/// # Errors
/// The input has no form, for people: it is no mapping, or it has a list whose elements the service names on its own.
pub(crate) fn form(
    operation: &str,
    names: QueryNames,
    input: Option<Value>,
) -> Result<String, &'static str> {
    let mut form = Form { names, parameters: Serializer::new(String::new()) };
    form.parameters.append_pair("Action", operation).append_pair("Version", names.version);
    match input {
        None | Some(Value::Null) => {}
        Some(Value::Object(input)) => form.add_structure("", &input)?,
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err("the body must be a mapping: the input of the operation");
        }
    }
    Ok(form.parameters.finish())
}

struct Form {
    names: QueryNames,
    parameters: Serializer<'static, String>,
}

impl Form {
    fn add_structure(
        &mut self,
        prefix: &str,
        members: &Map<String, Value>,
    ) -> Result<(), &'static str> {
        let dot = if prefix.is_empty() { "" } else { "." };
        for (key, value) in members {
            let name = format!("{prefix}{dot}{key}");
            let map = self.names.maps.iter().find(|map| map.name == key);
            match (map, value) {
                (Some(map), Value::Object(entries)) => self.add_map(&name, *map, entries)?,
                _ => self.add(&name, value)?,
            }
        }
        Ok(())
    }

    fn add_map(
        &mut self,
        name: &str,
        map: QueryMap,
        entries: &Map<String, Value>,
    ) -> Result<(), &'static str> {
        for (number, (key, value)) in (1..).zip(entries) {
            let entry = format!("{name}.entry.{number}");
            self.parameters.append_pair(&format!("{entry}.{}", map.key), key);
            self.add(&format!("{entry}.{}", map.value), value)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &str, value: &Value) -> Result<(), &'static str> {
        match value {
            Value::Null => {}
            Value::Bool(value) => self.add_text(name, &value.to_string()),
            Value::Number(value) => self.add_text(name, &value.to_string()),
            Value::String(value) => self.add_text(name, value),
            Value::Object(members) => self.add_structure(name, members)?,
            Value::Array(elements) => self.add_list(name, elements)?,
        }
        Ok(())
    }

    fn add_list(&mut self, name: &str, elements: &[Value]) -> Result<(), &'static str> {
        let prefix = match self.names.lists {
            QueryLists::Member => format!("{name}.member"),
            QueryLists::Number => name.to_owned(),
            QueryLists::Named => {
                return Err(
                    "this service names the elements of its lists: write each as the parameter of its API reference, \
                     such as `VpcSecurityGroupIds.VpcSecurityGroupId.1`",
                );
            }
        };
        for (number, element) in (1..).zip(elements) {
            self.add(&format!("{prefix}.{number}"), element)?;
        }
        Ok(())
    }

    fn add_text(&mut self, name: &str, value: &str) {
        self.parameters.append_pair(name, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steward_core::model::aws_services::{AwsProtocol, AwsService};

    use super::*;

    fn form_of(service: &str, input: Value) -> Result<String, &'static str> {
        let AwsProtocol::Query { version, lists, maps } = AwsService::named(service).protocol
        else {
            panic!("{service} has another protocol");
        };
        let form = form("Do", QueryNames { version, lists, maps }, Some(input))?;
        let rest = form.strip_prefix(&format!("Action=Do&Version={version}")).unwrap();
        Ok(rest.trim_start_matches('&').to_owned())
    }

    #[test]
    fn the_input_becomes_parameters_with_flat_names() {
        for (service, input, expected) in [
            ("sts", json!(null), ""),
            (
                "sts",
                json!({ "RoleArn": "a:b/c d", "N": 7, "F": 0.5, "B": true, "X": null }),
                "RoleArn=a%3Ab%2Fc+d&N=7&F=0.5&B=true",
            ),
            ("iam", json!({ "A": { "B": [{ "C": 1 }, "x"] } }), "A.B.member.1.C=1&A.B.member.2=x"),
            ("ec2", json!({ "InstanceId": ["i-1", "i-2"] }), "InstanceId.1=i-1&InstanceId.2=i-2"),
            ("rds", json!({ "Ids.Id.1": "sg-1", "On": true }), "Ids.Id.1=sg-1&On=true"),
            (
                "sns",
                json!({ "MessageAttributes": { "kind": { "DataType": "String", "StringValue": "a&b" } } }),
                "MessageAttributes.entry.1.Name=kind&MessageAttributes.entry.1.Value.DataType=String&\
                 MessageAttributes.entry.1.Value.StringValue=a%26b",
            ),
            (
                "sns",
                json!({ "Attributes": { "FifoTopic": "true" } }),
                "Attributes.entry.1.key=FifoTopic&Attributes.entry.1.value=true",
            ),
            // A structure of the same name in another API.
            ("iam", json!({ "Attributes": { "A": 1 } }), "Attributes.A=1"),
        ] {
            assert_eq!(form_of(service, input.clone()).as_deref(), Ok(expected), "{input}");
        }
    }

    #[test]
    fn an_input_without_a_form_is_refused() {
        for input in [json!([1]), json!("x"), json!(1)] {
            assert!(form_of("sts", input).unwrap_err().starts_with("the body must be a mapping"));
        }
        let error = form_of("rds", json!({ "VpcSecurityGroupIds": ["sg-1"] })).unwrap_err();
        assert!(error.starts_with("this service names the elements of its lists"), "{error}");
    }
}

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
//!
//! The response is XML. Where lists have the usual form, its result becomes JSON ([`result`]).

use form_urlencoded::Serializer;
use roxmltree::{Document, Node};
use serde_json::{Map, Value};
use steward_core::{
    limits,
    model::aws_services::{QueryLists, QueryMap},
};

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

/// The result of an operation: what is in `<OPERATIONResult>`, or `{}` if there is nothing. `None` if the text is not the response
/// of such an API.
///
/// | element | value |
/// | --- | --- |
/// | text | that text, also of numbers and booleans: only the service knows the types |
/// | nothing | null, also of an empty list |
/// | `<member>` elements | a list |
/// | `<entry>` elements with `<key>` and `<value>` | an object with these keys |
/// | others | an object with their names |
pub(crate) fn result(operation: &str, text: &str) -> Option<Value> {
    let document = Document::parse(text).ok()?;
    let root = document.root_element();
    if root.tag_name().name().strip_suffix("Response") != Some(operation) {
        return None;
    }
    let mut elements = elements(root);
    let found =
        elements.find(|node| node.tag_name().name().strip_suffix("Result") == Some(operation));
    match found {
        Some(found) => {
            value(found, 0).map(|value| if value.is_null() { Map::new().into() } else { value })
        }
        None => Some(Map::new().into()),
    }
}

fn elements<'a>(node: Node<'a, 'a>) -> impl Iterator<Item = Node<'a, 'a>> {
    node.children().filter(Node::is_element)
}

/// `None` if it nests too deep.
fn value(node: Node<'_, '_>, depth: usize) -> Option<Value> {
    if depth > limits::JSON_DEPTH_MAX {
        return None;
    }
    let name = |node: Node<'_, '_>| node.tag_name().name().to_owned();
    let all: Vec<_> = elements(node).collect();
    let are_all = |of: &str| all.iter().all(|node| node.tag_name().name() == of);
    if all.is_empty() {
        let texts = node.children().filter(Node::is_text).filter_map(|text| text.text());
        let text: String = texts.collect();
        return Some(if text.trim().is_empty() { Value::Null } else { text.into() });
    }
    if are_all("member") {
        return all.into_iter().map(|node| value(node, depth + 1)).collect();
    }
    let entry = |node: Node<'_, '_>| {
        let find = |of: &str| elements(node).find(|node| node.tag_name().name() == of);
        Some((find("key")?.text()?.to_owned(), value(find("value")?, depth + 1)?))
    };
    let pairs = match are_all("entry") {
        true => all.into_iter().map(entry).collect::<Option<Map<_, _>>>(),
        false => all.into_iter().map(|node| Some((name(node), value(node, depth + 1)?))).collect(),
    };
    pairs.map(Value::Object)
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
    fn a_result_in_xml_becomes_json() {
        let namespace = "xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"";
        let response = |result: &str| {
            format!(
                "<DoResponse {namespace}>{result}<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></DoResponse>"
            )
        };
        for (xml, expected) in [
            (
                "<DoResult><MessageId>94f2&amp;</MessageId></DoResult>",
                json!({ "MessageId": "94f2&" }),
            ),
            ("", json!({})),
            ("<DoResult/>", json!({})),
            ("<DoResult>\n</DoResult>", json!({})),
            (
                "<DoResult> <Topics>\n </Topics> <A>x<!-- -->y</A></DoResult>",
                json!({ "Topics": null, "A": "xy" }),
            ),
            (
                "<DoResult><Topics><member><TopicArn>a</TopicArn></member></Topics><NextToken/></DoResult>",
                json!({ "Topics": [{ "TopicArn": "a" }], "NextToken": null }),
            ),
            (
                "<DoResult><Attributes><entry><key>Owner</key><value>1</value></entry></Attributes></DoResult>",
                json!({ "Attributes": { "Owner": "1" } }),
            ),
        ] {
            assert_eq!(result("Do", &response(xml)), Some(expected), "{xml}");
        }
        let deep = format!("<DoResult>{}{}</DoResult>", "<a>".repeat(99), "</a>".repeat(99));
        let entity =
            "<!DOCTYPE x [<!ENTITY a 'b'>]><DoResponse><DoResult>&a;</DoResult></DoResponse>";
        for other in ["", "{}", "<OtherResponse/>", "<DoResponse>", entity, &response(&deep)] {
            assert_eq!(result("Do", other), None, "{other}");
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

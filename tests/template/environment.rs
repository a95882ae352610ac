//! Lambda refuses a function with more than 4 KB of environment variables. So every parameter that becomes one has a longest
//! value, and all of them together fit, for every function of every template.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{FUNCTIONS, agent_template, agents_of_users, all, properties, template};

/// Bytes of names and values: <https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html>. Lambda counts them as JSON: its
/// error shows the text that it measured. So each variable counts six more, and a value that is JSON a quarter more, for escaped
/// quotes.
const LIMIT: usize = 4_096;
const AROUND_EACH_VARIABLE: usize = r#""":"","#.len();

/// What the templates do not choose, at least as long as in any region of AWS, of AWS in China and of AWS GovCloud. Isolated
/// regions, such as us-isof-south-1, have longer names. The stack's name is as long as the names of functions allow, see
/// `the_name_of_a_stack_is_limited_by_the_names_of_functions`.
const KNOWN: [(&str, &str); 5] = [
    ("AWS::StackName", STACK),
    ("AWS::Region", "ap-southeast-2"),
    ("AWS::URLSuffix", "amazonaws.com.cn"),
    ("AWS::Partition", "aws-us-gov"),
    ("AWS::AccountId", "123456789012"),
];
const STACK: &str = "a-name-of-a-stack-that-is-as-long-as-names-allow";
const ROLE_ID: &str = "AROAXXXXXXXXXXXXXXXXX";
const FUNCTION_URL: &str =
    "https://abcdefghijklmnopqrstuvwxyz123456.lambda-url.ap-southeast-2.on.aws/";
const BUCKET_MAX: usize = 63;
const ROLE_NAME_MAX: usize = 64;

/// The templates with functions, by path.
fn templates() -> impl Iterator<Item = (&'static str, Value)> {
    [("template.yaml", template()), ("infra/agent.yaml", agent_template())]
        .into_iter()
        .chain(agents_of_users())
}

/// The length of a parameter's longest value.
fn longest_parameter(name: &str, parameter: &Value) -> usize {
    let length = |value: &Value| value.as_str().map_or_else(|| value.to_string().len(), str::len);
    let allowed = parameter["AllowedValues"].as_array();
    let allowed = allowed.and_then(|values| values.iter().map(length).max());
    let number = parameter["MaxValue"].as_u64().map(|max| max.to_string().len());
    let text = parameter["MaxLength"].as_u64().map(|max| usize::try_from(max).unwrap());
    let escapes =
        |length: usize| if matches!(name, "Webhooks" | "Headers") { length / 4 } else { 0 };
    let longest = allowed.or(number).or(text.map(|length| length + escapes(length)));
    longest.unwrap_or_else(|| panic!("parameter {name} becomes a variable: it needs a MaxLength"))
}

/// The length of what `!Ref` of a resource, or an attribute of it, is replaced by.
fn longest_reference(template: &Value, reference: &str) -> Option<usize> {
    let (resource, attribute) = reference.split_once('.').unwrap_or((reference, ""));
    let kind = template["Resources"][resource]["Type"].as_str()?;
    // CloudFormation adds 12 characters to names that it generates, and Secrets Manager six.
    let generated = resource.len() + "-123456789012".len();
    Some(match (kind, attribute) {
        ("AWS::SQS::Queue", "") => {
            let name = properties(template, resource)["QueueName"].as_str().unwrap();
            let url = "https://sqs.${AWS::Region}.${AWS::URLSuffix}/${AWS::AccountId}/";
            longest_text(template, &format!("{url}{name}"))
        }
        ("AWS::DynamoDB::Table", "") => STACK.len() + 1 + generated,
        ("AWS::S3::Bucket", "") => BUCKET_MAX,
        ("AWS::Events::EventBus", "") => STACK.len(),
        ("AWS::IAM::Role", "RoleId") => ROLE_ID.len(),
        ("AWS::IAM::Role", "Arn") => {
            longest_text(template, "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/")
                + ROLE_NAME_MAX
        }
        ("AWS::Lambda::Url", "FunctionUrl") => FUNCTION_URL.len(),
        ("AWS::SecretsManager::Secret", "Id") => {
            let arn =
                "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:";
            longest_text(template, arn) + generated + "-123456".len()
        }
        _ => panic!("{reference}: how long is it?"),
    })
}

/// The length of a text with the longest values of what it names: `${AWS::StackName}-scheduler`.
fn longest_text(template: &Value, text: &str) -> usize {
    let mut length = 0;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').unwrap();
        length += before.len() + longest(template, &Value::from(name));
        rest = after;
    }
    length + rest.len()
}

/// The length of the longest value of a variable, which the template gives without its tags: `!Ref Shards` is `Shards`.
fn longest(template: &Value, value: &Value) -> usize {
    match value {
        Value::String(text) => {
            let known = KNOWN.iter().find(|(name, _)| name == text);
            let parameter = template["Parameters"].get(text);
            known
                .map(|(_, value)| value.len())
                .or_else(|| parameter.map(|parameter| longest_parameter(text, parameter)))
                .or_else(|| longest_reference(template, text))
                .unwrap_or_else(|| {
                    if text == "AWS::NoValue" { 0 } else { longest_text(template, text) }
                })
        }
        // `!If`.
        Value::Array(choice) => {
            assert!(template["Conditions"].get(choice[0].as_str().unwrap()).is_some(), "{value}");
            choice[1..].iter().map(|value| longest(template, value)).max().unwrap()
        }
        // Steward's output, the name of a table.
        Value::Object(import) => {
            let exported = import["Fn::ImportValue"].as_str().unwrap();
            assert_eq!(exported, "${Steward}-DocumentsTableName");
            longest_reference(&super::template(), "DocumentsTable").unwrap()
        }
        Value::Number(number) => number.to_string().len(),
        Value::Null | Value::Bool(_) => panic!("{value}"),
    }
}

/// The variables of a function with their longest lengths.
fn environment(template: &Value, function: &Value) -> BTreeMap<String, usize> {
    let shared = template["Globals"]["Function"]["Environment"]["Variables"].as_object();
    let own = function["Environment"]["Variables"].as_object();
    let variables = shared.into_iter().chain(own).flatten();
    variables.map(|(name, value)| (name.clone(), longest(template, value))).collect()
}

#[test]
fn the_environment_of_every_function_fits_with_every_parameter_at_its_maximum() {
    let mut functions = 0;
    for (path, template) in templates() {
        for (name, function) in all(&template, "AWS::Serverless::Function") {
            let variables = environment(&template, function);
            let lengths = variables.iter();
            let bytes: usize =
                lengths.map(|(name, length)| name.len() + length + AROUND_EACH_VARIABLE).sum();
            assert!(bytes <= LIMIT, "{path}: {name}: {bytes} bytes: {variables:#?}");
            // It would grow with the number of agents.
            assert!(!variables.contains_key("STEWARD_DEAD_LETTER_QUEUES"), "{path}: {name}");
            functions += 1;
        }
    }
    assert_eq!(functions, FUNCTIONS.len() + 6);
}

/// The length of a stack's name that is computed with.
#[test]
fn the_name_of_a_stack_is_limited_by_the_names_of_functions() {
    let template = template();
    let names = all(&template, "AWS::Serverless::Function")
        .map(|(_, function)| function["FunctionName"].as_str().unwrap());
    let longest = names.map(|name| longest_text(&template, name)).max();
    assert_eq!(longest, Some(64));
    for (path, template) in templates() {
        if let Some(steward) = template["Parameters"].get("Steward") {
            assert_eq!(steward["MaxLength"], STACK.len(), "{path}");
        }
    }
}

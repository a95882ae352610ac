//! The bucket of payloads: who gets it, and what deletes its objects.

use serde_json::{Value, json};
use steward_core::{limits, model::payload::UPLOADS};

use super::{agent_template, properties, template};

const DAY: u64 = 24 * 3600;

#[test]
fn the_bucket_is_encrypted_private_and_outlives_the_stack() {
    let template = template();
    let bucket = &template["Resources"]["PayloadsBucket"];
    assert_eq!(bucket["DeletionPolicy"], "RetainExceptOnCreate");
    assert_eq!(bucket["UpdateReplacePolicy"], "Retain");
    let bucket = properties(&template, "PayloadsBucket");
    let encryption = &bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"][0];
    let own = json!({ "SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "TableKeyArn" });
    let encrypted = json!(["HasTableKey", own, { "SSEAlgorithm": "AES256" }]);
    assert_eq!(encryption["ServerSideEncryptionByDefault"], encrypted);
    let public = bucket["PublicAccessBlockConfiguration"].as_object().unwrap();
    assert!(public.len() == 4 && public.values().all(|blocked| *blocked == true), "{public:?}");
    let policy = &properties(&template, "PayloadsPolicy")["PolicyDocument"]["Statement"][0];
    assert_eq!((&policy["Effect"], &policy["Principal"]), (&json!("Deny"), &json!("*")));
    assert_eq!(policy["Condition"]["Bool"]["aws:SecureTransport"], "false");
    assert_eq!(template["Resources"]["PayloadsPolicy"]["Condition"], "TlsOnly");
}

/// What belongs to a task has no expiry, because a task may live for any time.
#[test]
fn only_uploads_expire_and_not_before_they_can_be_submitted() {
    let template = template();
    let rules = &properties(&template, "PayloadsBucket")["LifecycleConfiguration"]["Rules"];
    let rules = rules.as_array().unwrap();
    let expiring: Vec<&Value> = rules
        .iter()
        .filter(|rule| rule.as_object().unwrap().keys().any(|key| key.contains("Expiration")))
        .collect();
    assert_eq!(expiring.len(), 1);
    assert_eq!(expiring[0]["Prefix"], UPLOADS);
    let days = expiring[0]["ExpirationInDays"].as_u64().unwrap();
    assert!(days * DAY > limits::UPLOAD_LIFETIME.as_secs());
    let aborted = rules.iter().find_map(|rule| rule["AbortIncompleteMultipartUpload"].as_object());
    assert_eq!(aborted.unwrap()["DaysAfterInitiation"], 1);
}

#[test]
fn only_functions_that_use_payloads_know_the_bucket() {
    let template = template();
    let of = |name: &str| {
        properties(&template, name)["Environment"]["Variables"]["STEWARD_PAYLOADS_BUCKET"].clone()
    };
    for function in ["SubmissionFunction", "SubmissionHttpFunction", "SupervisorFunction"] {
        assert_eq!(of(function), "PayloadsBucket", "{function}");
    }
    for function in
        ["SchedulerFunction", "ConsoleFunction", "CallbackFunction", "RegistrarFunction"]
    {
        assert_eq!(of(function), Value::Null, "{function}");
    }
    let globals = &template["Globals"]["Function"]["Environment"]["Variables"];
    assert_eq!(globals["STEWARD_PAYLOADS_BUCKET"], Value::Null);
    let agent = agent_template();
    let variables = &properties(&agent, "AgentFunction")["Environment"]["Variables"];
    let bucket = json!(["UsesPayloads", "PayloadsBucket", "AWS::NoValue"]);
    assert_eq!(variables["STEWARD_PAYLOADS_BUCKET"], bucket);
}

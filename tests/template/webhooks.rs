//! Signed webhooks in `template.yaml`: off by default, and without them the callback function has no further permission.
//! Emulators do not check the condition of its permission to write receipts, so this test reads it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{properties, template};

/// The statements of the callback's role that exist only with webhooks, by `Sid`.
fn statements_of_webhooks(template: &Value) -> BTreeMap<&str, &Value> {
    let policies = properties(template, "CallbackRole")["Policies"].as_array().unwrap().iter();
    let statements = policies
        .flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().unwrap().iter());
    let optional = statements.filter(|statement| statement[0] == "HasWebhooks");
    optional.map(|choice| (choice[1]["Sid"].as_str().unwrap(), &choice[1])).collect()
}

#[test]
fn webhooks_are_off_by_default_and_add_exactly_their_permissions() {
    let template = template();
    assert_eq!(template["Parameters"]["Webhooks"]["Default"], "");
    assert_eq!(template["Conditions"]["HasWebhooks"][0], "HasCallbacks");
    let statements = statements_of_webhooks(&template);
    let allowed = statements.iter().map(|(sid, statement)| {
        (*sid, statement["Action"].clone(), statement["Resource"].as_str().unwrap())
    });
    assert_eq!(
        allowed.collect::<Vec<_>>(),
        [
            ("PublishWebhooks", json!("events:PutEvents"), "EventBus.Arn"),
            (
                "ReadAndWriteReceiptsOfWebhooks",
                json!(["dynamodb:GetItem", "dynamodb:PutItem"]),
                "DocumentsTable.Arn"
            ),
            ("ReadWebhookSecrets", json!("secretsmanager:GetSecretValue"), "WebhookSecrets.Id"),
        ]
    );
    let keys = json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": ["#webhook/*"] } });
    assert_eq!(statements["ReadAndWriteReceiptsOfWebhooks"]["Condition"], keys);
    assert_eq!(template["Resources"]["WebhookSecrets"]["Condition"], "HasWebhooks");
}

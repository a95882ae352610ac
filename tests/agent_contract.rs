//! The published contract for agents, and the messages that the tests send.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use steward_core::{
    contract::{ContractDocument, check_reply, check_request},
    model::messages::StepRequest,
};

use crate::support::{
    TestDeployment, completed_reply, sequential_workflow, sqs_event, wake_message,
};

fn repository() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// To update the files: `STEWARD_RENEW=1 cargo test --workspace --test steward agent_contract`.
#[test]
fn the_published_contract_is_up_to_date() {
    for document in ContractDocument::ALL {
        let path = repository().join("docs/contract").join(document.file_name());
        let generated = format!("{:#}\n", document.generate());
        if std::env::var_os("STEWARD_RENEW").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let published = fs::read_to_string(&path).unwrap_or_default();
        assert!(published == generated, "{} is out of date", path.display());
    }
}

/// The requests of the scheduler pass the check, and so does a request that an older agent receives: it has a field that
/// the schema does not know.
#[tokio::test]
async fn requests_and_replies_of_a_task_obey_the_contract() {
    let deployment = TestDeployment::new(&sequential_workflow(2)).await;
    let ports = deployment.ports("scheduler");
    deployment.submit(&ports, &["o-1".to_owned()]).await;
    steward_scheduler::handle(&ports, sqs_event([wake_message("o-1")], 1)).await;
    let bodies = deployment.take_agent_messages().await;
    let mut request: Value = serde_json::from_str(&bodies[0]).unwrap();
    check_request(&request).unwrap();
    let reply = completed_reply(&serde_json::from_value::<StepRequest>(request.clone()).unwrap());
    check_reply(&serde_json::from_str(&reply).unwrap()).unwrap();
    request["field_of_a_later_release"] = json!({ "a": 1 });
    check_request(&request).unwrap();
}

//! A shop whose orders fail: its workflow, its service and its functions. The tests run the functions explicitly.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use aws_lambda_events::sqs::SqsEvent;
use aws_sdk_sqs::types::MessageSystemAttributeName;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_agent::attempt::{CallFault, RemoteService};
use steward_agent::response::CallResponse;
use steward_aws::polling;
use steward_core::{
    breaker::BreakerSettings,
    model::{error_detail::ErrorDetail, messages::StepRequest, task::Task},
};
use steward_runtime::ports::{Clock, Ports, SaveOutcome, StateStore};
use steward_scheduler::{CommandAuthority, SchedulerInstance};

use crate::test_console::{CONSOLE_ROLE, PageResponse, TestConsole};

/// Values that no page may show.
pub(crate) const CARD: &str = "4111-1111-1111-1111";
pub(crate) const RECEIPT: &str = "receipt-8f3a";

/// A service that records its calls, and whose faults are set by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShopService {
    pub(crate) calls: Arc<Mutex<Vec<StepRequest>>>,
    faults: Arc<Mutex<BTreeMap<String, CallFault>>>,
}

impl RemoteService for ShopService {
    async fn call(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        self.calls.lock().unwrap().push(request.clone());
        match self.faults.lock().unwrap().get(&request.path) {
            Some(fault) => Err(fault.clone()),
            None => Ok(json!({ "id": format!("{}-1", request.step), "receipt": RECEIPT }).into()),
        }
    }
}

/// The shop, with its console.
pub(crate) struct Shop {
    pub(crate) console: TestConsole,
    pub(crate) service: ShopService,
    agent: Agent<ShopService>,
}

/// The steps reserve, charge, ship. The card number and the receipt are masked.
fn workflow() -> Value {
    json!({
        "name": "order", "version": 1, "mask": ["/card/number", "/items/*/secret", "/receipt"],
        "input": {
            "type": "object", "required": ["amount"],
            "properties": { "amount": { "type": "integer", "maximum": 1000 } },
        },
        "steps": {
            "reserve": {
                "agent": "a", "request": { "path": "/reservations" },
                "undo": { "request": { "path": "/releases" } },
            },
            "charge": {
                "agent": "a", "after": ["reserve"], "idempotent": false,
                "request": { "path": "/charges", "body": { "card": "${ input.card.number }", "amount": "${ input.amount }" } },
            },
            "ship": { "agent": "a", "after": ["charge"], "request": { "path": "/parcels" } },
        },
    })
}

impl Shop {
    pub(crate) async fn open() -> Self {
        let console = TestConsole::new().await;
        console.publish(workflow()).await;
        let service = ShopService::default();
        let agent = Agent::new("a".parse().unwrap(), service.clone(), BreakerSettings::default());
        Self { console, service, agent }
    }

    /// A shop whose order `o-1` is in Error, because `charge` failed for this reason.
    pub(crate) async fn with_refused_charge(reason: &str) -> Self {
        Self::with_failed_charge(reason, false).await
    }

    /// With the order `o-1`, whose step `charge` failed for `reason` and may have run.
    pub(crate) async fn with_unknown_outcome_of_charge(reason: &str) -> Self {
        Self::with_failed_charge(reason, true).await
    }

    async fn with_failed_charge(reason: &str, may_have_run: bool) -> Self {
        let shop = Self::open().await;
        shop.fail("/charges", reason, may_have_run);
        shop.submit_order("o-1").await;
        shop
    }

    /// Makes all later calls of `path` fail.
    pub(crate) fn fail(&self, path: &str, reason: &str, may_have_run: bool) {
        // The service repeats a masked value.
        let said =
            json!({ "bank": "said no", "card": { "is": CARD }, "text": format!("<{CARD}>") });
        let detail = ErrorDetail::of_body(said.to_string().as_bytes());
        let fault = CallFault::Permanent { reason: reason.to_owned(), may_have_run, detail };
        self.service.faults.lock().unwrap().insert(path.to_owned(), fault);
    }

    /// Makes all later calls succeed.
    pub(crate) fn repair(&self) {
        self.service.faults.lock().unwrap().clear();
    }

    /// Changes the task so that no call can be in progress any more.
    pub(crate) async fn end_calls_in_progress(&self, id: &str) {
        let mut task = self.task(id).await;
        for record in task.steps.values_mut() {
            record.forward.call_may_run_until = None;
        }
        task.revision += 1;
        assert_eq!(self.console.ports.store().save(&task).await.unwrap(), SaveOutcome::Saved);
    }

    /// Submits an order.
    pub(crate) async fn submit_order(&self, id: &str) {
        let card = json!({ "number": CARD, "name": "Ann" });
        let items = json!([{ "secret": CARD, "sku": 1 }]);
        self.submit(id, "order", &json!({ "card": card, "amount": 7, "items": items })).await;
    }

    /// Submits a task, and runs the functions until nothing is left to do.
    pub(crate) async fn submit(&self, id: &str, workflow: &str, input: &Value) {
        let body = json!({ "task_id": id, "workflow": workflow, "input": input });
        let trace = json!({ "traceparent": {
            "stringValue": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "dataType": "String", "stringListValues": [], "binaryListValues": [],
        } });
        let record = json!({ "messageId": "m", "body": body.to_string(), "attributes": {}, "messageAttributes": trace });
        let event: SqsEvent = serde_json::from_value(json!({ "Records": [record] })).unwrap();
        steward_submission::handle(&*self.console.ports, &self.console.config.reply_queues, event)
            .await;
        self.run_functions().await;
    }

    /// Runs the scheduler and the agent until their queues are empty.
    pub(crate) async fn run_functions(&self) {
        let TestConsole { ports, config, .. } = &self.console;
        let agent_queue = config.agent_queue_url.of(&self.agent.name);
        loop {
            let to_scheduler = self.take(&config.scheduler_queue_url).await;
            let commands = self.take(&config.commands_queue_url).await;
            let to_agent = self.take(&agent_queue).await;
            let is_idle =
                [&to_scheduler, &commands, &to_agent].iter().all(|e| e.records.is_empty());
            if is_idle {
                return;
            }
            let authority = CommandAuthority::new(&config.commands_queue_url, CONSOLE_ROLE);
            let scheduler =
                SchedulerInstance { commands: authority, ..SchedulerInstance::default() };
            for batch in [to_scheduler, commands] {
                let response = steward_scheduler::handle_with(&**ports, &scheduler, batch).await;
                assert!(response.batch_item_failures.is_empty(), "{response:?}");
            }
            let deadline = ports.clock().now() + std::time::Duration::from_secs(115);
            let response = steward_agent::handle(&**ports, &self.agent, to_agent, deadline).await;
            assert!(response.batch_item_failures.is_empty(), "{response:?}");
        }
    }

    /// Receives and deletes up to ten messages, as an event for Lambda.
    async fn take(&self, queue: &str) -> SqsEvent {
        let sqs = aws_sdk_sqs::Client::new(&self.console.aws.sdk_config());
        let receive = sqs.receive_message().queue_url(queue).max_number_of_messages(10);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let receive = receive.message_attribute_names("All");
        let messages = receive.send().await.unwrap().messages.unwrap_or_default();
        let mut event = SqsEvent::default();
        for message in messages {
            let receipt = message.receipt_handle().unwrap();
            sqs.delete_message().queue_url(queue).receipt_handle(receipt).send().await.unwrap();
            event.records.push(polling::record(message, queue));
        }
        event
    }

    pub(crate) async fn task(&self, id: &str) -> Task {
        self.console.ports.store().load(&id.parse().unwrap()).await.unwrap().unwrap()
    }

    /// A page; panics if it shows a masked value.
    pub(crate) async fn get(&self, url: &str) -> PageResponse {
        let page = self.console.get(url).await;
        page.assert_absent(&[CARD, RECEIPT]);
        page
    }

    /// The response to a form; panics if it shows a masked value.
    pub(crate) async fn post(&self, url: &str, fields: &[(&str, &str)]) -> PageResponse {
        let page = self.console.post(url, fields).await;
        page.assert_absent(&[CARD, RECEIPT]);
        page
    }
}

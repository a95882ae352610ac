//! A shop whose tasks go wrong: its workflow, its service, and the functions between them, whose wheels
//! the test turns by hand.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use aws_lambda_events::sqs::SqsEvent;
use aws_sdk_sqs::types::MessageSystemAttributeName;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_agent::attempt::{Fault, RemoteService};
use steward_core::{
    breaker::Settings,
    model::{messages::StepRequest, task::Task},
};
use steward_runtime::ports::{Clock, Ports, Saved, StateStore};

use crate::world::{Page, World};

/// What nobody may see.
pub(crate) const CARD: &str = "4111-1111-1111-1111";
pub(crate) const RECEIPT: &str = "receipt-8f3a";

/// Calls, and what is answered to them by path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Service {
    pub(crate) calls: Arc<Mutex<Vec<StepRequest>>>,
    answers: Arc<Mutex<BTreeMap<String, Fault>>>,
}

impl RemoteService for Service {
    async fn call(&self, request: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
        self.calls.lock().unwrap().push(request.clone());
        match self.answers.lock().unwrap().get(&request.path) {
            Some(fault) => Err(fault.clone()),
            None => Ok(json!({ "id": format!("{}-1", request.step), "receipt": RECEIPT })),
        }
    }
}

pub(crate) struct Shop {
    pub(crate) world: World,
    pub(crate) service: Service,
    agent: Agent<Service>,
}

/// Reserve, charge, ship; a card's number and a receipt are hidden.
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
        let world = World::new().await;
        world.publish(workflow()).await;
        let service = Service::default();
        let agent = Agent::new("a".parse().unwrap(), service.clone(), Settings::default());
        Self { world, service, agent }
    }

    /// A shop whose order `o-1` failed at `charge`, for this reason.
    pub(crate) async fn stopped(reason: &str, may_have_run: bool) -> Self {
        let shop = Self::open().await;
        shop.refuses("/charges", reason, may_have_run);
        shop.order("o-1").await;
        shop
    }

    /// From now on the service refuses these calls.
    pub(crate) fn refuses(&self, path: &str, reason: &str, may_have_run: bool) {
        let fault = Fault::Permanent { reason: reason.to_owned(), may_have_run };
        self.service.answers.lock().unwrap().insert(path.to_owned(), fault);
    }

    /// From now on it does everything.
    pub(crate) fn mends(&self) {
        self.service.answers.lock().unwrap().clear();
    }

    /// Time passes, and no call of the task can be in progress any more.
    pub(crate) async fn calls_are_over(&self, id: &str) {
        let mut task = self.task(id).await;
        for record in task.steps.values_mut() {
            record.run.in_progress_until = None;
        }
        task.revision += 1;
        assert_eq!(self.world.ports.store().save(&task).await.unwrap(), Saved::Saved);
    }

    pub(crate) async fn order(&self, id: &str) {
        let body = json!({
            "task_id": id, "workflow": "order",
            "input": { "card": { "number": CARD, "name": "Ann" }, "amount": 7, "items": [{ "secret": CARD, "sku": 1 }] },
        });
        let trace = json!({ "traceparent": {
            "stringValue": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "dataType": "String", "stringListValues": [], "binaryListValues": [],
        } });
        let record = json!({ "messageId": "m", "body": body.to_string(), "attributes": {}, "messageAttributes": trace });
        let event = serde_json::from_value(json!({ "Records": [record] })).unwrap();
        steward_submission::handle(&*self.world.ports, &self.world.config.reply_queues, event)
            .await;
        self.turn().await;
    }

    /// Lets the functions handle what is waiting, until nothing is.
    pub(crate) async fn turn(&self) {
        let World { ports, config, .. } = &self.world;
        let agent_queue = config.agent_queue_url.of(&self.agent.name);
        loop {
            let to_scheduler = self.take(&config.scheduler_queue_url).await;
            let to_agent = self.take(&agent_queue).await;
            if to_scheduler.records.is_empty() && to_agent.records.is_empty() {
                return;
            }
            let answer = steward_scheduler::handle(&**ports, to_scheduler).await;
            assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
            let deadline = ports.clock().now() + std::time::Duration::from_secs(115);
            let answer = steward_agent::handle(&**ports, &self.agent, to_agent, deadline).await;
            assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
        }
    }

    /// Takes up to ten messages, as Lambda would.
    async fn take(&self, queue: &str) -> SqsEvent {
        let sqs = aws_sdk_sqs::Client::new(&self.world.aws.sdk_config());
        let receive = sqs.receive_message().queue_url(queue).max_number_of_messages(10);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        let messages = receive.send().await.unwrap().messages.unwrap_or_default();
        let mut records = Vec::new();
        for message in messages {
            let receipt = message.receipt_handle().unwrap();
            sqs.delete_message().queue_url(queue).receipt_handle(receipt).send().await.unwrap();
            let attributes = message.attributes.unwrap_or_default();
            let attributes: BTreeMap<_, _> =
                attributes.iter().map(|(name, value)| (name.as_str(), value)).collect();
            records.push(json!({
                "messageId": message.message_id, "body": message.body,
                "attributes": attributes, "messageAttributes": {},
            }));
        }
        serde_json::from_value(json!({ "Records": records })).unwrap()
    }

    pub(crate) async fn task(&self, id: &str) -> Task {
        self.world.ports.store().load(&id.parse().unwrap()).await.unwrap().unwrap()
    }

    /// A page, which shows nothing that is hidden.
    pub(crate) async fn get(&self, address: &str) -> Page {
        let page = self.world.get(address).await;
        page.has_no(&[CARD, RECEIPT]);
        page
    }

    /// The same, after a form.
    pub(crate) async fn post(&self, address: &str, fields: &[(&str, &str)]) -> Page {
        let page = self.world.post(address, fields).await;
        page.has_no(&[CARD, RECEIPT]);
        page
    }
}

//! Orders: the items are reserved, the customer is charged and the parcel is shipped, or all of it is undone.

use serde_json::{Value, json};
use steward_core::model::task::ProcessState;

use crate::{
    scenario::Scenario,
    services::{DemoService, ServiceLedgers},
};

pub(super) struct Orders;

impl Scenario for Orders {
    fn name(&self) -> &'static str {
        "order"
    }

    fn definition(&self) -> &'static str {
        include_str!("../../../../workflows/order.yaml")
    }

    fn nouns(&self) -> (&'static str, &'static str) {
        ("order", "orders")
    }

    fn services(&self) -> &'static [DemoService] {
        &DemoService::ORDER
    }

    fn outage_service(&self) -> DemoService {
        DemoService::Payment
    }

    fn input(&self, number: usize) -> Value {
        json!({
            "items": [{ "sku": format!("sku-{}", number % 97), "quantity": 1 + number % 3 }],
            "amount": { "value": 1_000 + number % 9_000, "currency": "EUR" },
            "address": { "name": format!("Customer {number}"), "street": "1 Main Street", "city": "Delft" },
        })
    }

    fn expected_effects(&self, _: DemoService, _: usize) -> usize {
        1
    }

    fn subject(&self, _: DemoService, number: usize) -> String {
        self.task_id(number)
    }

    fn findings(&self, _: usize, _: ProcessState, _: &ServiceLedgers) -> Vec<String> {
        Vec::new()
    }

    fn audit_summary(&self) -> &'static str {
        "every order has ended; processed orders are reserved, charged and shipped exactly once, \
         undone orders left no side effects, orders in Error have an alert"
    }
}

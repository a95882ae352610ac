//! Orders: each is reserved, charged and shipped, or none of it.

use crate::services::{Ledger, Service};
use serde_json::{Value, json};
use steward_core::model::task::ProcessState;

use super::Scenario;

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

    fn services(&self) -> &'static [Service] {
        &Service::ORDER
    }

    fn goes_down(&self) -> Service {
        Service::Payment
    }

    fn input(&self, number: usize) -> Value {
        json!({
            "items": [{ "sku": format!("sku-{}", number % 97), "quantity": 1 + number % 3 }],
            "amount": { "value": 1_000 + number % 9_000, "currency": "EUR" },
            "address": { "name": format!("Customer {number}"), "street": "1 Main Street", "city": "Delft" },
        })
    }

    fn wanted(&self, _: Service, _: usize) -> usize {
        1
    }

    fn page(&self, _: Service, number: usize) -> String {
        self.task_id(number)
    }

    fn objections(&self, _: usize, _: ProcessState, _: &Ledger) -> Vec<String> {
        Vec::new()
    }

    fn verdict(&self) -> &'static str {
        "every order has ended; the processed ones are reserved, charged and shipped once, \
         of the undone ones nothing stands, the others are alerted"
    }
}

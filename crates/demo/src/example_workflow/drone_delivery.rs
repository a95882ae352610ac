//! Drone deliveries: the package is registered, a drone or a third-party carrier is scheduled, and the delivery is
//! registered, or all of it is undone. For a suspended account no side effect happens at all.

use serde_json::{Value, json};
use steward_core::model::task::ProcessState;

use crate::{
    scenario::Scenario,
    services::{DemoService, ServiceLedgers},
};

/// One in this many deliveries is out of a drone's range.
const OUT_OF_RANGE_EVERY: usize = 4;

pub(super) struct DroneDeliveries;

impl DroneDeliveries {
    fn account(number: usize) -> String {
        format!("account-{number:06}")
    }

    const fn is_out_of_range(number: usize) -> bool {
        number.is_multiple_of(OUT_OF_RANGE_EVERY)
    }
}

impl Scenario for DroneDeliveries {
    fn name(&self) -> &'static str {
        "drone-delivery"
    }

    fn definition(&self) -> &'static str {
        include_str!("../../../../workflows/drone-delivery.yaml")
    }

    fn nouns(&self) -> (&'static str, &'static str) {
        ("delivery", "deliveries")
    }

    fn services(&self) -> &'static [DemoService] {
        &DemoService::DRONE_DELIVERY
    }

    fn outage_service(&self) -> DemoService {
        DemoService::DroneScheduler
    }

    fn input(&self, number: usize) -> Value {
        let (delft, rotterdam) = ((52.01, 4.36), (51.92, 4.48));
        let genoa = (44.41, 8.93);
        let coordinates = |(lat, lon)| json!({ "lat": lat, "lon": lon });
        json!({
            "account": Self::account(number),
            "weight_kg": 1 + number % 5,
            "pickup": coordinates(delft),
            "dropoff": coordinates(if Self::is_out_of_range(number) { genoa } else { rotterdam }),
        })
    }

    /// Exactly one transport, by drone or by a third party.
    fn expected_effects(&self, service: DemoService, number: usize) -> usize {
        match service {
            DemoService::Transport => usize::from(Self::is_out_of_range(number)),
            DemoService::DroneScheduler => usize::from(!Self::is_out_of_range(number)),
            DemoService::Package | DemoService::Delivery => 1,
            DemoService::Account
            | DemoService::Inventory
            | DemoService::Payment
            | DemoService::Shipping
            | DemoService::Finance
            | DemoService::Mail
            | DemoService::Supplier
            | DemoService::Accounting => 0,
        }
    }

    fn subject(&self, service: DemoService, number: usize) -> String {
        if service == DemoService::Account { Self::account(number) } else { self.task_id(number) }
    }

    /// A delivery for a suspended account must be Undone without any side effect.
    fn findings(&self, number: usize, end: ProcessState, ledgers: &ServiceLedgers) -> Vec<String> {
        if !ledgers.has_refused(DemoService::Account, &Self::account(number)) {
            return Vec::new();
        }
        let mut findings = Vec::new();
        if end != ProcessState::Undone {
            findings.push(format!("{end}, although its account is suspended"));
        }
        for service in DemoService::DRONE_DELIVERY {
            let count = ledgers.effects(service, &self.subject(service, number));
            if count > 0 {
                findings.push(format!(
                    "{count} side effects in {service}, although its account is suspended"
                ));
            }
        }
        findings
    }

    fn audit_summary(&self) -> &'static str {
        "every delivery has ended; processed deliveries have exactly one transport, undone deliveries \
         left no side effects, deliveries for suspended accounts are undone, deliveries in Error \
         have an alert"
    }
}

//! Drone deliveries: a package is taken in, a drone (or a third party) is sent for it, and it is
//! delivered, or none of it. For a suspended account, nothing is even begun.

use crate::services::{Ledger, Service};
use serde_json::{Value, json};
use steward_core::model::task::ProcessState;

use super::Scenario;

/// One delivery in so many goes farther than a drone flies.
const ONE_FAR_IN: usize = 4;

pub(super) struct DroneDeliveries;

impl DroneDeliveries {
    fn account(number: usize) -> String {
        format!("account-{number:06}")
    }

    const fn is_far(number: usize) -> bool {
        number.is_multiple_of(ONE_FAR_IN)
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

    fn services(&self) -> &'static [Service] {
        &Service::DRONE_DELIVERY
    }

    fn goes_down(&self) -> Service {
        Service::DroneScheduler
    }

    fn input(&self, number: usize) -> Value {
        let (delft, rotterdam) = ((52.01, 4.36), (51.92, 4.48));
        let genoa = (44.41, 8.93);
        let place = |(lat, lon)| json!({ "lat": lat, "lon": lon });
        json!({
            "account": Self::account(number),
            "weight_kg": 1 + number % 5,
            "pickup": place(delft),
            "dropoff": place(if Self::is_far(number) { genoa } else { rotterdam }),
        })
    }

    /// One transport, by drone or by a third party, and never both.
    fn wanted(&self, service: Service, number: usize) -> usize {
        match service {
            Service::Transport => usize::from(Self::is_far(number)),
            Service::DroneScheduler => usize::from(!Self::is_far(number)),
            Service::Package | Service::Delivery => 1,
            Service::Account | Service::Inventory | Service::Payment | Service::Shipping => 0,
        }
    }

    fn page(&self, service: Service, number: usize) -> String {
        if service == Service::Account { Self::account(number) } else { self.task_id(number) }
    }

    /// A suspended account is Undone, and before anything was begun.
    fn objections(&self, number: usize, ended: ProcessState, ledger: &Ledger) -> Vec<String> {
        if !ledger.has_refused(Service::Account, &Self::account(number)) {
            return Vec::new();
        }
        let mut objections = Vec::new();
        if ended != ProcessState::Undone {
            objections.push(format!("{ended}, and its account is suspended"));
        }
        for service in Service::DRONE_DELIVERY {
            let count = ledger.effects(service, &self.page(service, number));
            if count > 0 {
                objections
                    .push(format!("its account is suspended, with {count} effects in {service}"));
            }
        }
        objections
    }

    fn verdict(&self) -> &'static str {
        "every delivery has ended; the processed ones have one transport each and never two, \
         of the undone ones nothing stands and no drone flies, suspended accounts are undone, \
         the others are alerted"
    }
}

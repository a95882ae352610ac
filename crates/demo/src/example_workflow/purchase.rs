//! Purchases: the budget is committed, the manager approves, the supplier accepts the order, accounting books it and the
//! goods arrive, or the budget, the order and the booking are undone. One purchase in five cannot succeed: the budget is exceeded, the manager rejects,
//! the supplier refuses, or the parcel is lost and the manager undoes the purchase.

use serde_json::{Value, json};
use steward_core::model::task::ProcessState;

use crate::{
    scenario::Scenario,
    services::{DemoService, ServiceLedgers},
};

/// Each of the four obstacles is met by one purchase in this many.
const EACH_OBSTACLE_EVERY: usize = 20;

pub(super) struct Purchases;

/// Why a purchase cannot succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    OverBudget,
    RejectedByManager,
    RefusedBySupplier,
    ParcelLost,
}

impl Obstacle {
    const fn of(number: usize) -> Option<Self> {
        match number % EACH_OBSTACLE_EVERY {
            3 => Some(Self::OverBudget),
            8 => Some(Self::RejectedByManager),
            13 => Some(Self::RefusedBySupplier),
            18 => Some(Self::ParcelLost),
            _ => None,
        }
    }

    /// For findings.
    const fn text(self) -> &'static str {
        match self {
            Self::OverBudget => "it exceeds the budget",
            Self::RejectedByManager => "the manager rejected it",
            Self::RefusedBySupplier => "the supplier refused it",
            Self::ParcelLost => "the parcel is lost",
        }
    }

    /// The services that must not have acted for such a purchase.
    const fn untouched(self) -> &'static [DemoService] {
        match self {
            Self::OverBudget => &[
                DemoService::Finance,
                DemoService::Mail,
                DemoService::Supplier,
                DemoService::Accounting,
            ],
            Self::RejectedByManager => &[DemoService::Supplier, DemoService::Accounting],
            Self::RefusedBySupplier | Self::ParcelLost => &[],
        }
    }
}

impl Scenario for Purchases {
    fn name(&self) -> &'static str {
        "purchase"
    }

    fn definition(&self) -> &'static str {
        include_str!("../../../../workflows/purchase.yaml")
    }

    fn nouns(&self) -> (&'static str, &'static str) {
        ("purchase", "purchases")
    }

    fn services(&self) -> &'static [DemoService] {
        &DemoService::PURCHASE
    }

    fn outage_service(&self) -> DemoService {
        DemoService::Supplier
    }

    fn input(&self, number: usize) -> Value {
        let obstacle = Obstacle::of(number);
        let is = |other| obstacle == Some(other);
        let prefix = if is(Obstacle::RefusedBySupplier) {
            "discontinued-"
        } else if is(Obstacle::ParcelLost) {
            "lost-"
        } else {
            ""
        };
        let centre = if is(Obstacle::RejectedByManager) { "frozen" } else { "centre" };
        let amount = if is(Obstacle::OverBudget) { 2_000_000 } else { 5_000 + number % 90_000 };
        json!({
            "cost_centre": format!("{centre}-{}", number % 40),
            "article": format!("{prefix}laptop-{}", number % 7),
            "quantity": 1 + number % 3,
            "amount": amount,
        })
    }

    fn expected_effects(&self, _: DemoService, _: usize) -> usize {
        1
    }

    /// A mail stays sent.
    fn is_undone(&self, service: DemoService) -> bool {
        service != DemoService::Mail
    }

    fn subject(&self, _: DemoService, number: usize) -> String {
        self.task_id(number)
    }

    /// A purchase that cannot succeed, or that a service or the manager refused, must not be Processed. After a refusal
    /// nothing further must have happened.
    fn findings(&self, number: usize, end: ProcessState, ledgers: &ServiceLedgers) -> Vec<String> {
        let (id, obstacle) = (self.task_id(number), Obstacle::of(number));
        let mut findings = Vec::new();
        let refusing = DemoService::PURCHASE.into_iter();
        let refusing = refusing.filter(|service| ledgers.has_refused(*service, &id));
        let refused = refusing.map(|service| format!("{service} refused it"));
        let obstacles = obstacle.map(|obstacle| obstacle.text().to_owned()).into_iter();
        if end == ProcessState::Processed {
            findings
                .extend(obstacles.chain(refused).map(|why| format!("Processed, although {why}")));
        }
        let Some(obstacle) = obstacle else { return findings };
        for service in obstacle.untouched() {
            let effects = ledgers.effects(*service, &id);
            if effects > 0 {
                let why = obstacle.text();
                findings.push(format!("{effects} side effects in {service}, although {why}"));
            }
        }
        findings
    }

    fn audit_summary(&self) -> &'static str {
        "every purchase has ended; processed purchases have one commitment of budget, one mail, one order and one \
         booking, undone purchases left no commitment, order or booking, refused purchases are undone, purchases \
         in Error have an alert"
    }
}

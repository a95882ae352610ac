//! What differs from workflow to workflow that ships, when it is shown or tested: what is asked for, which
//! services run, and what their books must say in the end. The rest of a demo and of its audit knows no
//! business.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use steward_core::{definition::workflow::Workflow, model::task::ProcessState};

use crate::services::{Ledger, Service};

mod drone_delivery;
mod order;

/// The workflows that ship, and can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shipped {
    /// Reserve the items, charge the customer, ship the parcel.
    Order,
    /// Check the account, take the package in, send a drone for it.
    DroneDelivery,
}

impl Shipped {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Order, Self::DroneDelivery];

    /// The one of this name, if it is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shipped| shipped.scenario().name() == name)
    }

    /// All that a demo has to know of it.
    #[must_use]
    pub fn scenario(self) -> &'static dyn Scenario {
        match self {
            Self::Order => &order::Orders,
            Self::DroneDelivery => &drone_delivery::DroneDeliveries,
        }
    }
}

/// A workflow, as it is shown. Tasks are numbered from 0, and all about one follows from its number.
pub trait Scenario: Send + Sync {
    /// The name of the workflow.
    fn name(&self) -> &'static str;

    /// The text of its definition.
    fn definition(&self) -> &'static str;

    /// What one task is, and several: `order`, `orders`.
    fn nouns(&self) -> (&'static str, &'static str);

    /// The services that its steps call, each the agent of the same name.
    fn services(&self) -> &'static [Service];

    /// The service that chaos takes down: that of a step in the middle.
    fn goes_down(&self) -> Service;

    /// What the client submits with the task.
    fn input(&self, number: usize) -> Value;

    /// How many effects of the service stand for a Processed task.
    fn wanted(&self, service: Service, number: usize) -> usize;

    /// The page of the service's book that is about the task.
    fn page(&self, service: Service, number: usize) -> String;

    /// What the services' books have against this end of the task, beyond the number of effects.
    fn objections(&self, number: usize, ended: ProcessState, ledger: &Ledger) -> Vec<String>;

    /// What it means that the audit has passed.
    fn verdict(&self) -> &'static str;

    /// The id of the task.
    fn task_id(&self, number: usize) -> String {
        let (noun, _) = self.nouns();
        format!("{noun}-{number:06}")
    }

    /// The definition, read.
    ///
    /// # Errors
    /// It is no definition.
    fn workflow(&self) -> Result<Workflow> {
        let path = format!("workflows/{}.yaml", self.name());
        Ok(steward_definition_file::parse(Path::new(&path), self.definition())?)
    }
}

//! A deployment as a network of queues: which stages there are, what a task asks of each, and in which
//! order its messages pass them.

use std::collections::BTreeMap;

use steward_core::{
    definition::{step::Work, workflow::Workflow},
    model::attempt::Action,
};

use super::settings::Settings;
use crate::cost::{Asked, DELIVERY_TAKES, Demand, Role};

/// A queue and the function that reads it.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) role: Role,
    /// Messages of a task, all passes together.
    pub(super) messages: f64,
    /// How long an invocation takes, with a full batch, in seconds.
    pub(super) invocation_s: f64,
    /// What a message asks of whom.
    pub(super) asks: BTreeMap<Asked, f64>,
    /// Invocations at once that it is set to.
    pub(super) at_once: f64,
    /// Of an agent: how soon the shortest of its steps must be answered, in seconds.
    pub(super) within_s: Option<f64>,
}

/// Where the messages of one hop go.
#[derive(Debug, Clone, Default)]
pub(super) struct Hop {
    pub(super) to: Vec<To>,
    /// Messages of a task in this hop.
    pub(super) messages: f64,
    /// If it answers agents: how soon the shortest step of theirs must be answered, in seconds.
    pub(super) within_s: Option<f64>,
}

/// One way of a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct To {
    /// Which stage.
    pub(super) stage: usize,
    /// Messages of a task that take it.
    pub(super) messages: f64,
    /// Seconds until the function can have them.
    pub(super) delay_s: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) stages: Vec<Stage>,
    pub(super) hops: Vec<Hop>,
    /// Messages that share an invocation.
    pub(super) batch: f64,
}

impl Model {
    pub(super) fn of(settings: &Settings, demand: &Demand) -> Self {
        let batch = f64::from(settings.forecast.batch);
        let stages: Vec<_> =
            demand.roles.keys().map(|role| stage(settings, demand, role, batch)).collect();
        let mut hops: Vec<Hop> = Vec::new();
        for by_role in &demand.hops {
            let to = by_role.iter().filter_map(|(role, hop)| {
                let stage = stages.iter().position(|stage| stage.role == *role)?;
                let delay_s = DELIVERY_TAKES.as_secs_f64() + hop.delay_ms / 1_000.0;
                Some(To { stage, messages: hop.messages, delay_s })
            });
            let to: Vec<_> = to.collect();
            let before = hops.last().map(|hop| hop.to.as_slice()).unwrap_or_default();
            let within = before.iter().filter_map(|to| stages.get(to.stage)?.within_s);
            let within_s = within.reduce(f64::min);
            hops.push(Hop { messages: to.iter().map(|to| to.messages).sum(), to, within_s });
        }
        Self { stages, hops, batch }
    }

    /// What a task asks, all stages together.
    pub(super) fn asks(&self, asked: Asked) -> f64 {
        self.stages.iter().map(|stage| stage.messages * stage.ask(asked)).sum()
    }

    /// Invocations of a task.
    pub(super) fn invocations(&self) -> f64 {
        self.stages.iter().map(|stage| stage.messages / self.batch).sum()
    }

    /// Seconds of invocations of a task.
    pub(super) fn busy_s(&self) -> f64 {
        self.stages.iter().map(|stage| stage.busy_s(self.batch)).sum()
    }

    /// From submitted to ended, in seconds, if nothing waits: the slowest way of each hop, one after the
    /// other.
    pub(super) fn unloaded_s(&self) -> f64 {
        let slowest = |hop: &Hop| {
            let ways = hop
                .to
                .iter()
                .filter_map(|to| Some(to.delay_s + self.stages.get(to.stage)?.invocation_s));
            ways.fold(0.0, f64::max)
        };
        self.hops.iter().map(slowest).sum()
    }
}

impl Stage {
    pub(super) fn ask(&self, asked: Asked) -> f64 {
        self.asks.get(&asked).copied().unwrap_or(0.0)
    }

    /// Seconds of invocations of a task.
    pub(super) fn busy_s(&self, batch: f64) -> f64 {
        self.messages / batch * self.invocation_s
    }
}

fn stage(settings: &Settings, demand: &Demand, role: &Role, batch: f64) -> Stage {
    let handling = demand.roles.get(role).cloned().unwrap_or_default();
    let deployment = &settings.deployment;
    let at_once = match role {
        Role::Submission => deployment.submission,
        Role::Scheduler => deployment.scheduler,
        Role::Agent(_) => deployment.agent,
    };
    Stage {
        role: role.clone(),
        messages: demand.messages(role),
        invocation_s: handling.invocation_ms / 1_000.0 + settings.compute_s * batch,
        asks: handling.asks,
        at_once,
        within_s: within_s(settings, role),
    }
}

/// How soon the shortest step of an agent must be answered, in seconds.
fn within_s(settings: &Settings, role: &Role) -> Option<f64> {
    let Role::Agent(name) = role else { return None };
    let workflows = std::iter::once(&settings.forecast.workflow).chain(&settings.forecast.with);
    let steps = workflows.flat_map(|workflow: &Workflow| workflow.steps.values());
    let within = steps.filter_map(|step| {
        let action = step.action(Action::Do)?;
        match action.work {
            Work::Call { agent, callback, .. } if agent == name => {
                let answered = callback.map(|callback| callback.within);
                Some(answered.unwrap_or(action.complete_within).as_secs_f64())
            }
            Work::Call { .. } | Work::Child(_) | Work::Wait(_) => None,
        }
    });
    within.reduce(f64::min)
}

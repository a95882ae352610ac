//! The agents of a random step: one, several that are tried in order, or one that an expression names. Each agent has a
//! service of its own, which does not know the idempotency keys of the others.

use serde_json::{Value, json};

use super::random::SeededRandom;

/// The logical agents, each with a remote service of its own.
pub(super) const AGENTS: [&str; 3] = ["blue", "green", "red"];

/// The share of steps with agents that are tried in order.
const IN_ORDER_SHARE: f64 = 0.3;

/// The share of steps whose agent an expression names.
const BY_EXPRESSION_SHARE: f64 = 0.1;

/// The key `agent` of a step.
#[derive(Debug, Clone)]
pub(super) enum AgentsPlan {
    One(&'static str),
    /// Tried in this order.
    InOrder(Vec<&'static str>),
    /// The first if the amount of the input is below the limit, else the second.
    ByAmount {
        below: u64,
        of: [&'static str; 2],
    },
    /// An expression that names none of its agents.
    Broken([&'static str; 2]),
}

impl AgentsPlan {
    /// Draws the agents of a step. `faulty` says whether expressions may have no value.
    pub(super) fn draw(faulty: bool, random: &mut SeededRandom) -> Self {
        let [first, second, third] = shuffled(random);
        if random.chance(IN_ORDER_SHARE) {
            return Self::InOrder(random.pick(vec![first, second], &[vec![first, second, third]]));
        }
        if !random.chance(BY_EXPRESSION_SHARE) {
            return Self::One(first);
        }
        match faulty && random.chance(0.3) {
            true => Self::Broken([first, second]),
            false => Self::ByAmount { below: random.within(10..=90), of: [first, second] },
        }
    }

    pub(super) fn definition(&self) -> Value {
        match self {
            Self::One(name) => json!(name),
            Self::InOrder(names) => json!(names),
            Self::ByAmount { below, of } => {
                let [low, high] = of;
                let choose = format!("${{ input.amount < {below} ? '{low}' : '{high}' }}");
                json!({ "choose": choose, "of": of })
            }
            Self::Broken(of) => json!({ "choose": "${ task.id }", "of": of }),
        }
    }

    /// The names of the agents that may do the step.
    pub(super) fn names(&self) -> &[&'static str] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::InOrder(names) => names,
            Self::ByAmount { of, .. } => of,
            Self::Broken(_) => &[],
        }
    }
}

/// The agents in a random order.
fn shuffled(random: &mut SeededRandom) -> [&'static str; 3] {
    let [mut first, mut second, mut third] = AGENTS;
    match random.within(0..=2) {
        0 => {}
        1 => std::mem::swap(&mut first, &mut second),
        _ => std::mem::swap(&mut first, &mut third),
    }
    if random.chance(0.5) {
        std::mem::swap(&mut second, &mut third);
    }
    [first, second, third]
}

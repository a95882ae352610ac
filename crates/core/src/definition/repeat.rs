//! A step that is repeated: each round gets the output of the round before, until a condition holds.
//!
//! ```text
//! repeat: { until: "${ item.next == null }", at_most: 100 }
//! ```
//!
//! The rounds are items of a list that grows: a round is the part `step[n]`, with attempts and an undo of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{expression::template::Template, limits};

/// How often a step is repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// The `item` of the first round. If absent, null. The `item` of each later round is the output of the round before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Template>,
    /// The step completes after the first round for which this expression is true. `item` is the output of that round,
    /// and `item_index` its number, from 0.
    #[schemars(with = "String")]
    pub until: Template,
    /// The highest number of rounds. If `until` is not true after the last one, the step fails.
    #[schemars(range(min = 1, max = limits::ROUNDS_MAX))]
    pub at_most: u32,
}

impl Repeat {
    /// Ends after so many rounds, whatever they return.
    pub(super) fn end_after(&mut self, rounds: u32) {
        let last = rounds.min(self.at_most).saturating_sub(1);
        self.until = Template::parse(Value::String(format!("${{ item_index == {last} }}")));
    }

    pub(super) fn templates_mut(&mut self) -> impl Iterator<Item = &mut Template> {
        self.first.iter_mut().chain([&mut self.until])
    }
}

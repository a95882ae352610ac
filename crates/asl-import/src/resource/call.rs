//! The call of a step: its agent, its request, and the result of the state given its answer.

use serde_json::Value;

use crate::{
    names::{plain, small},
    symbol::{Symbol, Untranslatable},
};

/// The kind of an agent, and what its stack needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AgentKind {
    /// Kind `lambda`, with this function.
    Lambda(String),
    /// Kind `sqs`, with this queue.
    Sqs(String),
    /// Kind `events`, with this bus.
    Events(String),
    /// Kind `http`: base URL, and headers or authorisation for people.
    Http(String, String),
    /// Kind `aws`, with this action.
    Aws(String),
    /// An agent of the user's own.
    Own(String),
}

/// The call of a step.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) agent: String,
    pub(crate) kind: AgentKind,
    pub(crate) method: &'static str,
    pub(crate) path: Symbol,
    pub(crate) body: Option<Symbol>,
    /// The `output` of the step, if it is not the body of the response.
    pub(crate) output: Option<Value>,
    /// The result of the state, given the output of the step.
    pub(crate) result: ResultShape,
    /// Differences to know of.
    pub(crate) notes: Vec<String>,
    /// What a person has to decide.
    pub(crate) decisions: Vec<String>,
}

/// The result of a state, given the output of its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultShape {
    /// The output itself.
    Output,
    /// The output is in this field of the result.
    Within(&'static str),
    /// The id of a message of SQS.
    SqsMessage,
    /// The id of an event.
    Events,
    /// `{ ResponseBody, StatusCode }`.
    Http,
    /// An object with these members, which begin with a small letter in the output.
    Members(&'static [&'static str]),
    /// The same, as `Build` of the result.
    Build(&'static [&'static str]),
}

impl ResultShape {
    /// The result, as a symbol.
    pub(crate) fn of(self, output: Symbol) -> Symbol {
        match self {
            Self::Output => output,
            Self::Within("Output") => Symbol::open_object(
                [("Output", output), ("Status", Symbol::Scalar("SUCCEEDED".into()))],
                "the step returns only the output of the child task",
            ),
            Self::Within(field) => Symbol::open_object(
                [(field, output), ("StatusCode", Symbol::Scalar(200.into()))],
                "the agent returns only what the function returned",
            ),
            Self::SqsMessage => Symbol::open_object(
                [("MessageId", output.field("message_id"))],
                "the agent returns only the id of the message",
            ),
            Self::Events => {
                let entry = Symbol::open_object(
                    [("EventId", output.field("event_id"))],
                    "the agent returns only the id",
                );
                Symbol::object([
                    ("Entries".to_owned(), Symbol::List(vec![entry])),
                    ("FailedEntryCount".to_owned(), Symbol::Scalar(0.into())),
                ])
            }
            Self::Members(names) => {
                let of = |name: &&str| ((*name).to_owned(), output.field(&small(name)));
                let fields = names.iter().map(of).collect();
                let rest = Untranslatable {
                    original: "the result of the state".to_owned(),
                    reason: "in the response, all names begin with a small letter: list the members that are needed"
                        .to_owned(),
                    is_decision: true,
                };
                Symbol::Merged { base: Box::new(Symbol::Unknown(rest)), fields }
            }
            Self::Build(names) => {
                Symbol::object([("Build".to_owned(), Self::Members(names).of(output))])
            }
            Self::Http => Symbol::open_object(
                [
                    ("ResponseBody", output.field("ResponseBody")),
                    ("StatusCode", output.field("StatusCode")),
                ],
                "the step's `output` selects the body and the status",
            ),
        }
    }
}

/// A call with POST whose result is its output.
pub(super) fn call(agent: &str, kind: AgentKind, path: Symbol, body: Option<Symbol>) -> Call {
    Call {
        agent: plain(agent, "-"),
        kind,
        method: "POST",
        path,
        body,
        output: None,
        result: ResultShape::Output,
        notes: Vec::new(),
        decisions: Vec::new(),
    }
}

/// An agent that somebody has to write.
pub(super) fn own_agent(text: &str, name: &str, input: &Symbol, what: &str) -> Call {
    let path = Symbol::Scalar(format!("/{}", plain(name, "-")).into());
    let mut call = call(name, AgentKind::Own(text.to_owned()), path, Some(input.clone()));
    call.decisions.push(format!(
        "{what} needs an agent of your own (docs/agent-contract.md), which gets the parameters as body; or call a Lambda \
         function that does it"
    ));
    call
}

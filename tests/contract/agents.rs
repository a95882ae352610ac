//! The registry of agents: a registration is written only if the stored one allows it, whichever instance writes.

use steward_core::model::{
    names::{AgentName, StackId},
    registration::{AgentRegistration, RegistrationOwner},
};
use steward_runtime::{
    agents::{RegisterOutcome, deregister, register, registered, registration},
    ports::{Channel, Ports, SharedRecordKey, SharedRecordKind, StateStore},
};

use super::{backends::Backend, samples::at, tasks::race};
use crate::support::agent_registration;

fn payment() -> AgentName {
    "payment".parse().unwrap()
}

/// The registration of the agent `payment` by a stack.
fn by(stack: &str) -> AgentRegistration {
    agent_registration("payment", stack)
}

fn owner(stack: &str) -> RegistrationOwner {
    by(stack).owner
}

pub(super) async fn a_registered_agent_is_found_and_listed(backend: impl Backend) {
    let store = backend.ports().store();
    assert_eq!(registered(store).await.unwrap(), []);
    for name in ["shipping", "payment"] {
        let new = agent_registration(name, "stack");
        let outcome = register(store, &name.parse().unwrap(), &new).await.unwrap();
        assert_eq!(outcome, RegisterOutcome::Registered);
    }
    let other = backend.another_instance();
    let other = other.store();
    assert_eq!(registration(other, &payment()).await.unwrap(), Some(by("stack")));
    let names = registered(other).await.unwrap().into_iter().map(|agent| agent.name.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["payment", "shipping"]);
}

pub(super) async fn one_of_sixteen_stacks_registers_an_agent(backend: impl Backend) {
    let outcomes = race(backend.ports(), |ports, n| async move {
        let stack = format!("stack-{n}");
        (stack.clone(), register(ports.store(), &payment(), &by(&stack)).await.unwrap())
    });
    let (won, lost): (Vec<_>, Vec<_>) = outcomes
        .await
        .into_iter()
        .partition(|(_, outcome)| *outcome == RegisterOutcome::Registered);
    assert_eq!(won.len(), 1, "{won:?}");
    let winner: StackId = won[0].0.parse().unwrap();
    assert!(lost.iter().all(|(_, lost)| *lost == RegisterOutcome::OwnedBy(winner.clone())));
    let now = registration(backend.ports().store(), &payment()).await.unwrap();
    assert_eq!(now, Some(by(&won[0].0)));
}

pub(super) async fn a_stack_replaces_its_own_registration(backend: impl Backend) {
    let store = backend.ports().store();
    register(store, &payment(), &by("stack")).await.unwrap();
    let newer = AgentRegistration { version: Some("2".parse().unwrap()), ..by("stack") };
    let outcome = register(store, &payment(), &newer).await.unwrap();
    assert_eq!(outcome, RegisterOutcome::Registered);
    assert_eq!(registration(store, &payment()).await.unwrap(), Some(newer.clone()));
    let refused = register(store, &payment(), &by("other")).await.unwrap();
    assert_eq!(refused, RegisterOutcome::OwnedBy("stack".parse().unwrap()));
    assert_eq!(registration(store, &payment()).await.unwrap(), Some(newer));
}

pub(super) async fn an_agent_is_registered_again_after_its_deletion(backend: impl Backend) {
    let store = backend.ports().store();
    register(store, &payment(), &by("stack")).await.unwrap();
    assert!(!deregister(store, &payment(), &owner("other"), at(9)).await.unwrap());
    assert_eq!(registration(store, &payment()).await.unwrap(), Some(by("stack")));
    assert!(deregister(store, &payment(), &owner("stack"), at(9)).await.unwrap());
    assert!(!deregister(store, &payment(), &owner("stack"), at(9)).await.unwrap(), "a repetition");
    let agents = registered(store).await.unwrap();
    assert_eq!(agents.len(), 1, "it is listed as deleted");
    assert!(agents[0].is_deleted());
    let key = SharedRecordKey { kind: SharedRecordKind::Agent, name: "payment".to_owned() };
    let expiry = async || store.shared_record(&key).await.unwrap().unwrap().expires_at;
    assert!(expiry().await.is_some());
    let outcome = register(store, &payment(), &by("other")).await.unwrap();
    assert_eq!(outcome, RegisterOutcome::Registered);
    assert_eq!(registration(store, &payment()).await.unwrap(), Some(by("other")));
    assert_eq!(expiry().await, None, "the registration of an existing agent never expires");
}

pub(super) async fn an_agent_that_was_never_registered_is_deregistered_without_effect(
    backend: impl Backend,
) {
    assert!(
        !deregister(backend.ports().store(), &payment(), &owner("stack"), at(9)).await.unwrap()
    );
    assert_eq!(registered(backend.ports().store()).await.unwrap(), []);
}

pub(super) async fn a_missing_dead_letter_queue_has_its_own_error(backend: impl Backend) {
    let channel = backend.ports().channel();
    let mut queues = channel.configured_dead_letter_queues();
    queues.insert(0, "gone-dead-letters".to_owned());
    let counts = channel.dead_letters(&queues).await;
    assert_eq!(counts.len(), queues.len());
    for (n, (name, count)) in counts.into_iter().enumerate() {
        assert_eq!(Some(name.as_str()), queues[n].rsplit('/').next());
        match count {
            Ok(messages) => assert_eq!((n > 0, messages), (true, 0)),
            Err(error) => assert!(n == 0 && error.is_no_such_queue(), "{error:?}"),
        }
    }
}

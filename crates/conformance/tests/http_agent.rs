//! Steward's own agent for HTTP services obeys the contract.

#![cfg(test)]
#![recursion_limit = "256"]

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use steward_agent::{
    Agent, attempts_deadline,
    http::{HttpService, HttpSettings},
};
use steward_aws::{AwsPorts, function};
use steward_conformance::{
    judge::verdicts,
    local::LocalEnvironment,
    request::CheckRequest,
    rule::Verdict,
    run::{Patience, run},
    service::default_response,
};
use steward_core::{breaker::BreakerSettings, model::names::AgentName};
use steward_emulator::{
    embedded::{EmbeddedAws, ExternalEndpoints},
    event_source::EventSource,
};
use steward_runtime::ports::{Ports, Queue};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_http_agent_obeys_all_rules() {
    let name: AgentName = "http".parse().unwrap();
    let environment = LocalEnvironment::start(name.clone(), default_response()).await.unwrap();
    // The agent's requests, and those of the loop that takes Lambda's place, pass the kit.
    let endpoints = ExternalEndpoints::from_option(&environment.endpoint, |_| None).unwrap();
    let aws = EmbeddedAws::builder().external_endpoints(endpoints).build().unwrap();
    let ports = Arc::new(AwsPorts::new(&aws.sdk_config(), &environment.config, "agent"));
    let settings = HttpSettings::new(environment.service.url().parse().unwrap());
    let http = HttpService::new(settings).unwrap();
    let agent = Arc::new(Agent::new(name.clone(), http, BreakerSettings::default()));
    let queue_url = environment.target().queue_url;
    let handler = move |event| {
        let (ports, agent) = (ports.clone(), agent.clone());
        async move {
            let deadline = Timestamp::now() + SignedDuration::from_secs(120);
            let queue = Queue::Agent(agent.name.clone());
            let handle =
                |batch| steward_agent::handle(&*ports, &agent, batch, attempts_deadline(deadline));
            let stop = function::stop_at(deadline);
            ports.channel().process_batch(&queue, event, stop, handle).await
        }
    };
    let mut tasks = JoinSet::new();
    EventSource { queue_url, concurrency: 16 }.spawn(&aws, handler, &mut tasks);

    let template = CheckRequest::of_agent(name.as_str());
    let mut evidence = run(&environment.target(), &template, Patience::LOCAL).await.unwrap();
    // Tests of the agent itself look at its log.
    evidence.log = Some(String::new());
    for (rule, verdict) in verdicts(&evidence) {
        assert_eq!(verdict, Verdict::Holds, "{rule}");
    }
}

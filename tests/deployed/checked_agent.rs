//! The conformance kit plays the scheduler to a deployed agent: a function with its queue, whose replies go to a queue that
//! only the kit reads.

use std::{net::SocketAddr, rc::Rc};

use steward_conformance::{
    evidence::{Capabilities, Recorder},
    judge::verdicts,
    request::CheckRequest,
    rule::{Rule, Verdict},
    run::{Patience, Target, run},
    service::{PlayedService, default_response},
};

use super::{
    agent_stacks::{delete_agent, deploy_agent},
    stack::{Stack, queue},
    target::deployment_target,
};

const AGENT: &str = "checked";

/// What the kit cannot see of an agent elsewhere.
const NOT_CHECKED: [Rule; 3] = [Rule::DeleteLast, Rule::Logs, Rule::Deletion];

pub(super) async fn agent_obeys_the_contract(stack: Rc<Stack>) {
    let target = deployment_target();
    let sqs = aws_sdk_sqs::Client::new(&stack.sdk);
    let recorder = Recorder::default();
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let service = PlayedService::start(loopback, default_response(), recorder.clone());
    let service = service.await.unwrap();
    // The agent belongs to a deployment that consists of the queue of its replies.
    let kit = format!("{}-kit", target.stack);
    let replies_url = queue(&stack.sdk, &format!("{kit}-scheduler")).await;
    let parameters = [
        format!("Steward={kit}"),
        format!("BaseUrl={}", stack.forwarder.url_of(AGENT, &service.url())),
        "Register=false".to_owned(),
    ];
    deploy_agent(&stack, AGENT, &parameters).await;
    let target = Target {
        sqs: sqs.clone(),
        queue_url: target.queue_url(&format!("{kit}-agent-{AGENT}-requests")),
        replies_url: replies_url.clone(),
        recorder,
        capabilities: Capabilities { plays_service: true, sees_sqs: false },
    };
    let evidence = run(&target, &CheckRequest::of_agent(AGENT), Patience::REMOTE).await.unwrap();
    for (rule, verdict) in verdicts(&evidence) {
        let is_visible = !NOT_CHECKED.contains(&rule);
        assert_eq!(verdict == Verdict::Holds, is_visible, "{rule}: {verdict:?}");
    }
    delete_agent(&stack, AGENT).await;
    sqs.delete_queue().queue_url(replies_url).send().await.unwrap();
}

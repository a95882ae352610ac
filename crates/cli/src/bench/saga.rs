//! The order saga: steps one after the other, each one POST to a service nearby, with about 500 bytes of
//! input and 200 of each reply. Tasks come in over `POST /tasks` of the host.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;
use steward_emulator::{
    cpu,
    host::{Host, HostOptions},
};
use tokio::{sync::oneshot, task::JoinSet};

use super::{
    Figures,
    load::{Client, Latencies, input, ms},
    mock::Mock,
    peak_mib,
    thread::{named, on_a_thread},
};

/// Steps of the order saga.
const STEPS: u32 = 5;

/// Tasks before the first that counts: connections are opened, the definition is read.
const WARM_UP: usize = 64;

/// Writes under way while the store is filled.
const FILLING: usize = 64;

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Saga {
    tasks: usize,
    steps: u32,
    in_flight: usize,
    /// How long the service takes for each answer, in milliseconds.
    service_ms: u64,
    /// Tasks that are in the store before, at rest.
    stored: usize,
    pub(super) on_file: bool,
    /// Where the file is.
    pub(super) data: Option<PathBuf>,
}

impl Saga {
    const fn new(tasks: usize, in_flight: usize) -> Self {
        let (steps, service_ms, stored) = (STEPS, 0, 0);
        Self { tasks, steps, in_flight, service_ms, stored, on_file: true, data: None }
    }

    pub(super) fn name(&self) -> String {
        let Self { tasks, steps, in_flight, service_ms, stored, on_file, .. } = self;
        let place = if *on_file { "on file" } else { "in memory" };
        format!(
            "{tasks} tasks of {steps} steps, {in_flight} in flight, service {service_ms} ms, {place}, {stored} stored"
        )
    }
}

/// The saga as it is compared with other engines.
pub(super) fn grid(tasks: usize) -> Vec<Saga> {
    let mut cases = Vec::new();
    for on_file in [true, false] {
        for service_ms in [0, 20] {
            for in_flight in [16, 128, 1_024] {
                cases.push(Saga { service_ms, on_file, ..Saga::new(tasks, in_flight) });
            }
        }
    }
    cases
}

/// More steps, and more tasks in the store: what a step takes should not change.
pub(super) fn growth(stored_max: usize) -> Vec<Saga> {
    let steps = [1, 5, 20, 100];
    let longer = steps.map(|steps| Saga { steps, ..Saga::new(10_000 / steps as usize, 128) });
    let stored = [1_000, 100_000, 1_000_000].into_iter().filter(|stored| *stored <= stored_max);
    let fuller = stored.map(|stored| Saga { stored, ..Saga::new(2_000, 128) });
    longer.into_iter().chain(fuller).collect()
}

/// Runs one case.
pub(super) async fn run(saga: &Saga) -> Result<Figures> {
    let mock = Mock::start(Duration::from_millis(saga.service_ms)).await?;
    let host = Host::start(HostOptions {
        data: saga.data.clone(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        workflows: vec![workflow(saga.steps)?],
        agents: vec![("partner".parse()?, format!("http://{}", mock.address).parse()?)],
        supervise_every: Some(Duration::from_secs(5)),
        ..HostOptions::default()
    })
    .await?;
    fill(&host, saga.stored).await?;
    let client = Client::new(&host, "saga", saga.in_flight).await?;
    let (measured, is_measured) = oneshot::channel();
    let (go, may_go) = oneshot::channel();
    let (tasks, aws) = (saga.tasks, host.aws.clone());
    let (client, done) = on_a_thread(named("client"), async move {
        let mut listeners = JoinSet::new();
        client.listen(&mut listeners);
        client.run("warm-up", WARM_UP).await?;
        let (begun, all, asked) = (Instant::now(), cpu::process(), aws.requests());
        let latencies = client.run("saga", tasks).await?;
        let (time, all) = (begun.elapsed(), cpu::process() - all);
        let asked = aws
            .requests()
            .into_iter()
            .map(|(name, now)| (name, now - asked.get(name).unwrap_or(&0)));
        let asked: BTreeMap<_, _> = asked.collect();
        let _ = measured.send(());
        may_go.await?;
        client.run("accounted", tasks).await?;
        Ok((time, all, latencies, asked))
    })?;
    is_measured.await.context("the run failed")?;
    let used = || {
        let mut used: BTreeMap<_, _> = cpu::read();
        used.extend([("service", mock.thread.cpu()), ("client", client.cpu())]);
        let known: Duration = used.values().sum();
        used.insert("runtime and HTTP", cpu::process().saturating_sub(known));
        used
    };
    // Accounting takes some of the time that it measures, so what is measured first is not accounted.
    let before = used();
    cpu::start();
    let _ = go.send(());
    let (time, all, latencies, asked) = done.await.context("the client's thread")??;
    let after = used();
    let mut figures = speeds(saga, time, &latencies);
    let steps = saga.tasks as f64 * f64::from(saga.steps);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / steps;
    figures.insert("CPU µs/step".to_owned(), each(all));
    figures.extend(
        asked.into_iter().map(|(service, requests)| {
            (format!("requests/step, {service}"), requests as f64 / steps)
        }),
    );
    figures.extend(after.into_iter().map(|(account, after)| {
        let spent = after.saturating_sub(before.get(account).copied().unwrap_or_default());
        (format!("CPU µs/step, {account}"), each(spent))
    }));
    figures.extend(peak_mib("self").map(|peak| ("peak MiB".to_owned(), peak)));
    Ok(figures)
}

fn speeds(saga: &Saga, time: Duration, latencies: &Latencies) -> Figures {
    let rate = saga.tasks as f64 / time.as_secs_f64();
    Figures::from([
        ("tasks/s".to_owned(), rate),
        ("steps/s".to_owned(), rate * f64::from(saga.steps)),
        ("p50 ms".to_owned(), ms(latencies, 0.5)),
        ("p99 ms".to_owned(), ms(latencies, 0.99)),
    ])
}

fn workflow(steps: u32) -> Result<Workflow> {
    let step = |n: u32| {
        let after: Vec<_> =
            (1..n).last().map(|before| format!("step_{before}")).into_iter().collect();
        let step = json!({
            "agent": "partner",
            "after": after,
            "complete_within": "60s",
            "request": {
                "path": format!("/step_{n}"),
                "body": { "order": "${ task.id }", "amount": "${ input.amount }" },
            },
        });
        (format!("step_{n}"), step)
    };
    let steps: serde_json::Map<_, _> = (1..=steps).map(step).collect();
    let workflow =
        json!({ "name": "saga", "version": 1, "complete_within": "30m", "steps": steps });
    Ok(serde_json::from_value(workflow)?)
}

/// Puts tasks at rest into the store: items as those of ended tasks, with what was submitted.
async fn fill(host: &Host, count: usize) -> Result<()> {
    let client = aws_sdk_dynamodb::Client::new(&host.aws.sdk_config());
    let mut filling = JoinSet::new();
    for n in 0..count {
        if filling.len() >= FILLING {
            filling.join_next().await.transpose()?.transpose()?;
        }
        let (client, tables) = (
            client.clone(),
            [host.config.tasks_table.clone(), host.config.documents_table.clone()],
        );
        filling.spawn(async move {
            for (table, item) in tables.into_iter().zip(at_rest(n)) {
                let item = item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                client.put_item().table_name(table).set_item(Some(item)).send().await?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(filled) = filling.join_next().await {
        filled??;
    }
    Ok(())
}

fn at_rest(n: usize) -> [Vec<(&'static str, aws_sdk_dynamodb::types::AttributeValue)>; 2] {
    use aws_sdk_dynamodb::types::AttributeValue as Attribute;
    let text = |value: String| Attribute::S(value);
    let number = |value: i64| Attribute::N(value.to_string());
    // Ids that spread as a client's would.
    let id = text(format!("stored-{:016x}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let steps = (1..=STEPS).map(|step| (format!("step_{step}"), text("completed".to_owned())));
    let task = vec![
        ("task_id", id.clone()),
        ("workflow", text("saga".to_owned())),
        ("version", number(1)),
        ("revision", number(7)),
        ("process_state", text("Processed".to_owned())),
        ("steps", Attribute::M(steps.collect())),
        ("expires_at", number(4_000_000_000)),
    ];
    let submitted: Value = json!({ "workflow": "saga", "input": input(n) });
    let document = vec![
        ("task_id", id),
        ("document", text("submission".to_owned())),
        ("at", number(1_700_000_000_000)),
        ("body", text(submitted.to_string())),
        ("expires_at", number(4_000_000_000)),
    ];
    [task, document]
}

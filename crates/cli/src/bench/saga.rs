//! The order saga: sequential steps, each with one POST to a local service. The input has about 500 bytes and each
//! response 200 bytes. Tasks are submitted with `POST /tasks` of the host.

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
    client::{BenchClient, Latencies, input, ms},
    measured_thread::{named, spawn_measured},
    measurements::{Measurements, peak_mib},
    service::BenchService,
};

/// Steps of the order saga.
const STEPS: u32 = 5;

/// Tasks before the measurement: they open the connections and load the definition.
const WARM_UP: usize = 64;

/// Concurrent writes while the store is filled.
const FILLING: usize = 64;

/// One case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SagaBench {
    tasks: usize,
    steps: u32,
    in_flight: usize,
    /// The latency of the service, in milliseconds.
    service_ms: u64,
    /// Ended tasks in the store before the run.
    stored: usize,
    pub(super) on_file: bool,
    /// The folder of the state.
    pub(super) data: Option<PathBuf>,
}

impl SagaBench {
    const fn new(tasks: usize, in_flight: usize) -> Self {
        let (steps, service_ms, stored) = (STEPS, 0, 0);
        Self { tasks, steps, in_flight, service_ms, stored, on_file: true, data: None }
    }

    pub(super) fn name(&self) -> String {
        let Self { tasks, steps, in_flight, service_ms, stored, on_file, .. } = self;
        let storage = if *on_file { "on file" } else { "in memory" };
        format!(
            "{tasks} tasks of {steps} steps, {in_flight} in flight, service {service_ms} ms, {storage}, {stored} stored"
        )
    }
}

/// The cases for the comparison with other engines.
pub(super) fn grid(tasks: usize) -> Vec<SagaBench> {
    let mut cases = Vec::new();
    for on_file in [true, false] {
        for service_ms in [0, 20] {
            for in_flight in [16, 128, 1_024] {
                cases.push(SagaBench { service_ms, on_file, ..SagaBench::new(tasks, in_flight) });
            }
        }
    }
    cases
}

/// Cases with more steps and with more tasks in the store. The cost of a step should stay the same.
pub(super) fn growth(stored_max: usize) -> Vec<SagaBench> {
    let steps = [1, 5, 20, 100];
    let more_steps =
        steps.map(|steps| SagaBench { steps, ..SagaBench::new(10_000 / steps as usize, 128) });
    let stored = [1_000, 100_000, 1_000_000].into_iter().filter(|stored| *stored <= stored_max);
    let more_stored = stored.map(|stored| SagaBench { stored, ..SagaBench::new(2_000, 128) });
    more_steps.into_iter().chain(more_stored).collect()
}

/// Runs one case.
pub(super) async fn run(saga: &SagaBench) -> Result<Measurements> {
    let service = BenchService::start(Duration::from_millis(saga.service_ms)).await?;
    let host = Host::start(HostOptions {
        fast_path: true,
        data: saga.data.clone(),
        listen: Some(([127, 0, 0, 1], 0).into()),
        workflows: vec![workflow(saga.steps)?],
        agents: vec![("partner".parse()?, format!("http://{}", service.address).parse()?)],
        supervise_every: Some(Duration::from_secs(5)),
        ..HostOptions::default()
    })
    .await?;
    fill(&host, saga.stored).await?;
    let client = BenchClient::new(&host, "saga", saga.in_flight).await?;
    let (measured, is_measured) = oneshot::channel();
    let (start_accounting, accounting_started) = oneshot::channel();
    let (tasks, aws) = (saga.tasks, host.aws.clone());
    let (client, done) = spawn_measured(named("client"), async move {
        let mut listeners = JoinSet::new();
        client.listen(&mut listeners);
        client.run("warm-up", WARM_UP).await?;
        let (started, cpu_before, requests_before) =
            (Instant::now(), cpu::process(), aws.request_counts());
        let latencies = client.run("saga", tasks).await?;
        let (time, cpu_time) = (started.elapsed(), cpu::process() - cpu_before);
        let requests = aws
            .request_counts()
            .into_iter()
            .map(|(name, now)| (name, now - requests_before.get(name).unwrap_or(&0)));
        let requests: BTreeMap<_, _> = requests.collect();
        let _ = measured.send(());
        accounting_started.await?;
        client.run("accounted", tasks).await?;
        Ok((time, cpu_time, latencies, requests))
    })?;
    is_measured.await.context("the run failed")?;
    let cpu_by_account = || {
        let mut accounts: BTreeMap<_, _> = cpu::read();
        accounts.extend([("service", service.thread.cpu()), ("client", client.cpu())]);
        let known: Duration = accounts.values().sum();
        accounts.insert("runtime and HTTP", cpu::process().saturating_sub(known));
        accounts
    };
    // CPU accounting has a cost, so the throughput is measured before it starts.
    let before = cpu_by_account();
    cpu::start();
    let _ = start_accounting.send(());
    let (time, cpu_time, latencies, requests) = done.await.context("the client's thread")??;
    let after = cpu_by_account();
    let mut measurements = throughput(saga, time, &latencies);
    let steps = saga.tasks as f64 * f64::from(saga.steps);
    let per_step = |time: Duration| time.as_secs_f64() * 1e6 / steps;
    measurements.insert("CPU µs/step".to_owned(), per_step(cpu_time));
    measurements.extend(
        requests
            .into_iter()
            .map(|(service, count)| (format!("requests/step, {service}"), count as f64 / steps)),
    );
    measurements.extend(after.into_iter().map(|(account, after)| {
        let spent = after.saturating_sub(before.get(account).copied().unwrap_or_default());
        (format!("CPU µs/step, {account}"), per_step(spent))
    }));
    measurements.extend(peak_mib("self").map(|peak| ("peak MiB".to_owned(), peak)));
    Ok(measurements)
}

fn throughput(saga: &SagaBench, time: Duration, latencies: &Latencies) -> Measurements {
    let rate = saga.tasks as f64 / time.as_secs_f64();
    Measurements::from([
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

/// Fills the store with ended tasks and their submission documents.
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
            for (table, item) in tables.into_iter().zip(ended_task(n)) {
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

/// The items of an ended task: the task and its submission document.
fn ended_task(n: usize) -> [Vec<(&'static str, aws_sdk_dynamodb::types::AttributeValue)>; 2] {
    use aws_sdk_dynamodb::types::AttributeValue as Attribute;
    let text = |value: String| Attribute::S(value);
    let number = |value: i64| Attribute::N(value.to_string());
    // Random-looking ids, as clients generate them.
    let id = text(format!("stored-{:016x}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let steps = (1..=STEPS).map(|step| (format!("step_{step}"), text("completed".to_owned())));
    let task = vec![
        ("task_id", id.clone()),
        ("workflow", text("saga".to_owned())),
        ("v", number(1)),
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

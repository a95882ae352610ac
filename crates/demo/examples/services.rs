//! Serves the mock services of the example workflows, for manual calls, for `steward local` or for a deployed stack.
//!
//! ```console
//! $ cargo run -p steward-demo --example services
//! $ cargo run -p steward-demo --example services -- --seed 42 --listen 127.0.0.1:9000
//! $ cargo run -p steward-demo --example services -- --steward http://127.0.0.1:4566 --manager
//! ```
//!
//! Without a seed the services are healthy; with a seed they inject faults as in `steward demo`. Accounts whose ids start
//! with `suspended` are suspended. The ledgers show all calls and side effects.
//!
//! Purchases need `--steward`: then the services read their queues and put events on the bus. A person approves them in the
//! console, or with `--manager` a simulated manager does.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Parser;
use steward_demo::services::{DemoService, FaultPlan, MockServices, StewardConnection};

/// The event bus of `steward local`.
const EVENT_BUS: &str = "steward";

/// Serves the mock services of the example workflows until Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// The address to serve.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Inject faults; the seed decides which calls get which faults.
    #[arg(long)]
    seed: Option<u64>,
    /// The address of `steward local`, such as `http://127.0.0.1:4566`, which may start later: read its queues, and put
    /// events on its bus.
    #[arg(long, value_name = "URL")]
    steward: Option<String>,
    /// Approve and reject purchases in the console, in place of a person.
    #[arg(long, requires = "steward")]
    manager: bool,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program's output")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let plan = args.seed.map_or(FaultPlan::none(0), FaultPlan::demo);
    let services = MockServices::start_at(args.listen, &DemoService::ALL, plan);
    let services = services.await.with_context(|| format!("serve at {}", args.listen))?;
    if let Some(url) = &args.steward {
        services.connect(StewardConnection::local(url, EVENT_BUS, args.manager));
    }
    let urls = DemoService::ALL.map(|service| (service, services.base_url(service)));
    println!("serving until Ctrl-C; options for `steward local`:");
    for (service, url) in &urls {
        println!("  --agent {service}={}", service.agent_target(url));
    }
    println!("ledgers:");
    for (_, url) in &urls {
        println!("  curl {url}/ledger");
    }
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    Ok(services.shutdown().await?)
}

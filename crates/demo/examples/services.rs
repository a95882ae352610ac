//! Serves the mock services of the example workflows, for manual calls, for `steward local` or for a deployed stack.
//!
//! ```console
//! $ cargo run -p steward-demo --example services
//! $ cargo run -p steward-demo --example services -- --seed 42 --listen 127.0.0.1:9000
//! ```
//!
//! Without a seed the services are healthy; with a seed they inject faults as in `steward demo`. Accounts whose ids start
//! with `suspended` are suspended. The ledgers show all calls and side effects.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Parser;
use steward_demo::services::{DemoService, FaultPlan, MockServices};

/// Serves the mock services of orders and drone deliveries until Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// The address to serve.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Inject faults; the seed decides which calls get which faults.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program's output")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let plan = args.seed.map_or(FaultPlan::none(0), FaultPlan::demo);
    let services = MockServices::start_at(args.listen, &DemoService::ALL, plan);
    let services = services.await.with_context(|| format!("serve at {}", args.listen))?;
    let urls = DemoService::ALL.map(|service| (service, services.base_url(service)));
    println!("serving until Ctrl-C; options for `steward local`:");
    for (service, url) in &urls {
        println!("  --agent {service}={url}");
    }
    println!("ledgers:");
    for (_, url) in &urls {
        println!("  curl {url}/ledger");
    }
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    Ok(services.shutdown().await?)
}

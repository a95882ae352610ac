//! The remote services of the workflows that ship, to be asked by hand, by `steward local` or by a
//! deployed stack.
//!
//! ```console
//! $ cargo run -p steward-demo --example services
//! $ cargo run -p steward-demo --example services -- --seed 42 --listen 127.0.0.1:9000
//! ```
//!
//! They are well behaved without a seed; with one they misbehave as in `steward demo`. An account
//! whose id starts with `suspended` is suspended. What they did is in their ledgers.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use clap::Parser;
use steward_demo::services::{FaultPlan, MockServices, Service};

/// Serves the services of orders and of drone deliveries until Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// Where to serve them.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// Misbehave, and decide by this which call meets which fault.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program's output")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let plan = args.seed.map_or(FaultPlan::none(0), FaultPlan::demo);
    let services = MockServices::start_at(args.listen, &Service::ALL, plan);
    let services = services.await.with_context(|| format!("serve at {}", args.listen))?;
    let urls = Service::ALL.map(|service| (service, services.base_url(service)));
    println!("serving, until Ctrl-C; for `steward local`:");
    for (service, url) in &urls {
        println!("  --agent {service}={url}");
    }
    println!("what they did:");
    for (_, url) in &urls {
        println!("  curl {url}/ledger");
    }
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    Ok(services.shutdown().await?)
}

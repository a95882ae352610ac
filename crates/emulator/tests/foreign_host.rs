//! The pages of other sites cannot reach a local host by a name of their own (DNS rebinding).

#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and means test functions, not their helpers"
)]

use std::net::SocketAddr;

use steward_emulator::host::{Host, HostOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The status of the response to a request, as a browser would send it to the name `host`.
async fn status(address: SocketAddr, request: &str, host: &str) -> u16 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn every_route_refuses_a_foreign_host() {
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let host = Host::start(HostOptions { listen, ..HostOptions::default() }).await.unwrap();
    let address = host.address.unwrap();
    for own in [format!("127.0.0.1:{}", address.port()), "localhost".to_owned()] {
        assert_eq!(status(address, "GET /console", &own).await, 200, "{own}");
        assert_eq!(status(address, "GET /tasks/t-1", &own).await, 404, "{own}");
    }
    for request in [
        "GET /tasks/t-1",
        "POST /tasks",
        "GET /console",
        "GET /callbacks/x",
        "GET /openapi.json",
        "GET /bucket/key",
        "POST /",
        "GET /no-such-page",
    ] {
        for foreign in ["evil.example", "evil.example:4566", "localhost.evil.example"] {
            assert_eq!(status(address, request, foreign).await, 403, "{request} of {foreign}");
        }
    }
}

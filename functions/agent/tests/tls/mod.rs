//! HTTPS with a certificate of a custom CA. The tests of the deployed stack use it too.

use std::{io, net::SocketAddr, sync::Arc};

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
    server::TlsStream,
};

pub(crate) const CA: &str = include_str!("ca.pem");
/// A certificate of that authority, for `localhost`, and its key.
pub(crate) const CERTIFICATE: &str = include_str!("server.pem");
pub(crate) const KEY: &str = include_str!("server.key");

/// Accepts TLS connections on a free port of 127.0.0.1.
pub(crate) struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    /// With a certificate of the [key](KEY).
    pub(crate) async fn with_certificate(certificate: &str) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self { tcp, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    /// The base URL.
    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}", self.tcp.local_addr().unwrap().port())
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (socket, address) = self.tcp.accept().await.unwrap();
            // A client that does not trust the certificate breaks off.
            if let Ok(stream) = self.acceptor.accept(socket).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

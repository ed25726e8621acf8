//! From a host name to a socket: addresses, TCP without delay, TLS with verified certificates.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{Error as TlsError, ProtocolVersion};

use super::failure::Trouble;
use super::wire::Stream;
use crate::provider::trust;

/// Whom to believe that he is the server.
#[derive(Clone)]
pub(super) struct Trust {
    name: ServerName<'static>,
    connector: TlsConnector,
}

/// Why no trust can be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error("is neither a host name nor an address")]
    Host,
    #[error(transparent)]
    Authorities(#[from] trust::TrustError),
}

impl TrustError {
    pub(super) fn is_about_ca_file(&self) -> bool {
        matches!(self, Self::Authorities(problem) if problem.is_about_ca_file())
    }
}

impl Trust {
    /// Trusts the authorities of this machine, and those in `ca_file` besides.
    pub(super) fn new(host: &str, ca_file: Option<&Path>) -> Result<Self, TrustError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TrustError::Host)?;
        let config = trust::client_config(ca_file)?;
        Ok(Self { name, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Encrypts what follows on `stream`; answers with the protocol's name.
    pub(super) async fn encrypt(&self, stream: Box<dyn Stream>) -> Result<(Box<dyn Stream>, &'static str), Trouble> {
        let encrypted = self.connector.connect(self.name.clone(), stream).await.map_err(|error| tls_trouble(&error))?;
        let protocol = match encrypted.get_ref().1.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
            _ => "TLS",
        };
        Ok((Box::new(encrypted), protocol))
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("name", &self.name).finish_non_exhaustive()
    }
}

fn tls_trouble(error: &io::Error) -> Trouble {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    match cause {
        Some(TlsError::InvalidCertificate(reason)) => Trouble::Insecure(
            "tls_certificate",
            format!("the server's certificate is not valid here ({reason}); look at `host` and `ca_file`"),
        ),
        Some(other) => Trouble::Insecure("tls", other.to_string()),
        None => Trouble::Lost,
    }
}

/// A TCP connection to the first address of `host` that answers, and the address that it goes out from.
///
/// Small writes go out at once: the final dot is a write of its own, and with Nagle's algorithm it would wait for the
/// peer's delayed acknowledgement, 40 ms a message.
pub(super) async fn connect(host: &str, port: u16, only_loopback: bool) -> Result<(TcpStream, IpAddr), Trouble> {
    let found = lookup_host((host, port)).await.map_err(|error| Trouble::Unreachable("dns", error.to_string()))?;
    let addresses: Vec<SocketAddr> =
        found.filter(|address| !only_loopback || address.ip().to_canonical().is_loopback()).collect();
    if addresses.is_empty() && only_loopback {
        return Err(Trouble::Unfit(
            "the SMTP server's name does not lead to this machine, so that `tls` must not be \"none\"".to_owned(),
        ));
    }
    let unreachable = |error: io::Error| Trouble::Unreachable("connect", error.to_string());
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let local = stream.local_addr().map_err(unreachable)?.ip();
    Ok((stream, local))
}

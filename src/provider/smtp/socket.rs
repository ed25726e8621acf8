//! From a host name to a socket: addresses, TCP without delay, TLS with verified certificates.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, ProtocolVersion, RootCertStore};

use super::failure::Trouble;
use super::wire::Stream;

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
    #[error("{}: {reason}", path.display())]
    CaFile { path: PathBuf, reason: String },
    #[error("this machine has no certificate authorities to verify a server with; install them or set `ca_file`")]
    NoRoots,
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] TlsError),
}

impl TrustError {
    pub(super) fn is_about_ca_file(&self) -> bool {
        matches!(self, Self::CaFile { .. })
    }
}

impl Trust {
    /// Trusts the authorities of this machine, and those in `ca_file` besides.
    pub(super) fn new(host: &str, ca_file: Option<&Path>) -> Result<Self, TrustError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TrustError::Host)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = ca_file {
            add_file(&mut roots, path)?;
        }
        if roots.is_empty() {
            return Err(TrustError::NoRoots);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
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

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), TrustError> {
    let refuse = |reason: String| TrustError::CaFile { path: path.to_owned(), reason };
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| refuse(format!("cannot be read as PEM certificates: {error}")))?;
    if certificates.is_empty() {
        return Err(refuse("holds no PEM certificate".to_owned()));
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|error| refuse(format!("holds a certificate that cannot be used: {error}")))?;
    }
    Ok(())
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

//! Whom to believe that he is the server: certificate authorities, and what TLS is made from. Nothing here connects.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, Error as TlsError, RootCertStore};

/// Why no trust can be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    /// What the setting `ca_file` names is of no use.
    #[error("{}: {reason}", path.display())]
    CaFile { path: PathBuf, reason: String },
    /// Nobody to believe.
    #[error("this machine has no certificate authorities to verify a server with; install them or set `ca_file`")]
    NoRoots,
    /// The library refuses.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] TlsError),
}

impl TrustError {
    /// Whether the setting `ca_file` is to blame.
    pub(super) fn is_about_ca_file(&self) -> bool {
        matches!(self, Self::CaFile { .. })
    }
}

/// TLS 1.2 and 1.3 that trust the authorities of this machine, and those in `ca_file` besides.
///
/// # Errors
/// A `ca_file` without usable certificates, or no authorities at all.
pub(super) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    if roots.is_empty() {
        return Err(TrustError::NoRoots);
    }
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
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

//! Where a run's content and rows come from: the compiled bundle of a type and version, and the sealed snapshot.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::guards::digest_config;
use super::{Refusal, RunError, RunRequest, Setup, SnapshotSource, restored};
use crate::config::Config;
use crate::digest::{Bundle, BundleSettings, UnsubscribePattern};
use crate::identity::{ContentVersion, DigestType};
use crate::snapshot::{ContentCheck, Manifest, Row, RowChecks, RowFault, SealError, SealOptions, seal};

/// A sealed snapshot, and what sealing found in the export.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The snapshot.
    pub manifest: Manifest,
    /// Rows that the export held more than once alike.
    pub repeated: u64,
    /// Rows that were set aside.
    pub rejected: u64,
    /// Where those are listed.
    pub rejects: Option<PathBuf>,
    /// Whether the same content had been sealed before.
    pub found: bool,
}

impl ContentCheck for Bundle {
    fn check(&self, row: &Row) -> Result<(), RowFault> {
        Self::check(self, row)
    }
}

/// Loads and compiles the bundle of a type and version.
///
/// # Errors
/// A type that is not configured, settings or files that cannot be used.
pub fn bundle(config: &Config, digest_type: &DigestType, content_version: &ContentVersion) -> Result<Bundle, Refusal> {
    let digest = digest_config(config, digest_type)?;
    let unsubscribe = UnsubscribePattern::parse(&digest.unsubscribe)
        .map_err(|error| Refusal::Configuration(format!("setting `digest.{digest_type}.unsubscribe`: {error}")))?;
    let directory = config.templates.join(digest_type.as_str()).join(content_version.as_str());
    Ok(Bundle::load(&directory, &BundleSettings { from: digest.from.clone(), unsubscribe })?)
}

/// Seals the export, or finds the snapshot that is sealed already.
///
/// # Errors
/// An export that is refused, a snapshot that does not exist, or a store that fails.
pub async fn snapshot(
    request: &RunRequest,
    source: &SnapshotSource,
    bundle: &Arc<Bundle>,
    setup: &Setup,
) -> Result<Snapshot, RunError> {
    let store = setup.store.clone();
    let path = match source {
        SnapshotSource::Sealed(id) => {
            let manifests = restored::blocking(&store, |store| store.list()).await?;
            return sealed(manifests, id);
        }
        SnapshotSource::File(path) => path.clone(),
    };
    let options = SealOptions {
        on_bad_row: request.on_bad_row,
        rejects: request.rejects.clone(),
        expect_rows: request.expect_rows,
        expect_sha256: request.expect_sha256,
        sealed_at: jiff::Timestamp::now(),
    };
    let destinations: BTreeSet<String> = setup.config.destinations.keys().cloned().collect();
    let (bundle, progress) = (Arc::clone(bundle), Arc::clone(&setup.progress));
    progress.begin("sealing", 0);
    let task = tokio::task::spawn_blocking(move || {
        let checks = RowChecks::new(&destinations, bundle.as_ref());
        let sealed = seal(&path, &store, &checks, &options, &|rows| progress.sealed(rows));
        progress.end();
        sealed
    });
    let sealed = task.await.map_err(|_| RunError::Internal)?.map_err(seal_error)?;
    if let Some(rejects) = sealed.rejects.as_ref().filter(|_| sealed.rejected > 0) {
        tracing::warn!("{} bad rows were set aside; they are listed in {}", sealed.rejected, rejects.display());
    }
    Ok(Snapshot {
        manifest: sealed.manifest,
        repeated: sealed.repeated,
        rejected: sealed.rejected,
        rejects: sealed.rejects,
        found: sealed.found,
    })
}

/// A store that fails is out of reach; everything else about an export is a refusal.
pub fn seal_error(error: SealError) -> RunError {
    match error {
        SealError::Store(store) => store.into(),
        refused => Refusal::from(refused).into(),
    }
}

fn sealed(manifests: Vec<Manifest>, id: &str) -> Result<Snapshot, RunError> {
    let manifest =
        match manifests.into_iter().filter(|manifest| manifest.id.starts_with(id)).collect::<Vec<_>>().as_slice() {
            [one] => one.clone(),
            [] => {
                return Err(Refusal::Configuration(format!(
                    "there is no sealed snapshot {id}; `counterfoil snapshot list` shows what is sealed"
                ))
                .into());
            }
            _ => {
                return Err(Refusal::Configuration(format!(
                    "more than one sealed snapshot begins with {id}; give more digits"
                ))
                .into());
            }
        };
    Ok(Snapshot { repeated: manifest.repeated, rejected: manifest.rejected, manifest, rejects: None, found: true })
}

